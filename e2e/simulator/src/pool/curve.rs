//! What dynamic slices save, against what is asked for: from all large to all small, and from few workloads to
//! many. Each point stands beside the most that could be saved there.

use super::heap;
use super::loads::served_by;
use super::need::{saving, servers};
use super::report::{Bound, Section, Table, Target, percent};
use super::steady::{Case, Need, Setup};
use crate::mig::load::{MIXES, Mix, Pattern};
use crate::mig::shapes::{CLASSES, Shapes};
use crate::picture::lines::{Chart, Line};

/// Workloads at any time on the curves over the mix.
const WORKLOADS: f64 = 200.0;
/// Points of these curves: shares of small workloads, percent.
const SHARES: [f64; 11] = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0];
/// Workloads at any time on the curve over the load.
const LOADS: [f64; 6] = [10.0, 20.0, 50.0, 100.0, 200.0, 400.0];
/// All of them 1g.10gb, seven fit on a GPU: 1 - 1/7 is the most, and this much is to be reached.
const SMALL_SAVES: f64 = 0.85;

/// A point: where it is on the axis, how many workloads, of which mix.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: f64,
    workloads: f64,
    mix: Mix,
}

/// The curves.
#[must_use]
pub fn curves(setup: &Setup) -> Vec<Section> {
    // against 7g.80gb, which fills a GPU, and against 3g.40gb, of which two do
    let to_small = |large: usize| {
        SHARES.map(|small| {
            let mut shares = [0.0; CLASSES];
            shares[0] = small / 100.0;
            shares[large] = 1.0 - shares[0];
            Point {
                at: small,
                workloads: WORKLOADS,
                mix: Mix {
                    name: "curve",
                    shares,
                },
            }
        })
    };
    let loads = LOADS.map(|workloads| Point {
        at: workloads,
        workloads,
        mix: MIXES[0],
    });
    vec![
        curve(
            setup,
            "curve-7g",
            "1g.10gb among 7g.80gb, percent of the workloads",
            &to_small(5),
            true,
        ),
        curve(
            setup,
            "curve-3g",
            "1g.10gb among 3g.40gb, percent of the workloads",
            &to_small(3),
            true,
        ),
        curve(
            setup,
            "curve-load",
            "workloads at any time, uniform mix",
            &loads,
            false,
        ),
    ]
}

fn curve(setup: &Setup, name: &str, across: &str, points: &[Point], ends_small: bool) -> Section {
    let shapes = Shapes::h100();
    let policies = ["static", "ours/m"].map(served_by);
    let mut cases = Vec::new();
    for point in points {
        for policy in policies {
            cases.push(Case {
                pattern: Pattern::Steady(point.mix),
                slices: point.workloads * point.mix.mean_size(&shapes),
                policy,
            });
        }
    }
    let needs = setup.needs(&cases, name);
    let mut table = Table::new([
        across,
        "one GPU each",
        "best layout",
        "dynamic",
        "saves of GPUs each",
        "ceiling",
        "saves of layout",
    ]);
    let mut lines =
        [("ceiling", false), ("best layout", false), ("dynamic", true)].map(|(name, ours)| Line {
            name: name.to_owned(),
            ours,
            points: Vec::new(),
        });
    let (mut worst, mut last) = (f64::NEG_INFINITY, 0.0);
    for (point, needs) in points.iter().zip(needs.chunks(policies.len())) {
        let whole = servers(point.workloads, setup.accept) as f64;
        let gpus = |column: usize| needs[column].map_or(f64::NAN, |need| need.gpus as f64);
        let heap = heap::gpus(&shapes, &point.mix, point.workloads, setup.accept);
        let ceiling = saving(heap.map_or(f64::NAN, |gpus| gpus as f64), whole);
        let saves = [ceiling, saving(gpus(0), whole), saving(gpus(1), whole)];
        table.row([
            format!("{:.0}", point.at),
            format!("{whole:.0}"),
            Need::text(needs[0]),
            Need::text(needs[1]),
            percent(saves[2]),
            percent(ceiling),
            percent(saving(gpus(1), gpus(0))),
        ]);
        for (line, saves) in lines.iter_mut().zip(saves) {
            line.points.push((point.at, 100.0 * saves));
        }
        worst = worst.max(gpus(1) - gpus(0));
        last = saves[2];
    }
    let mut targets = vec![Target {
        what: format!("{name}: GPUs that dynamic needs more than the best layout, at its worst point"),
        found: worst,
        bound: Bound::AtMost(0.0),
    }];
    if ends_small {
        targets.push(Target {
            what: format!("{name}: saved where all are 1g.10gb (most: 1 - 1/7 = 85.7 %), percent"),
            found: (1_000.0 * last).round() / 10.0,
            bound: Bound::AtLeast(100.0 * SMALL_SAVES),
        });
    }
    let chart = Chart {
        title: format!(
            "GPUs saved against one whole GPU each, percent, at {} let in",
            percent(setup.accept)
        ),
        across: across.to_owned(),
        lines: lines.to_vec(),
    };
    Section {
        name: name.to_owned(),
        title: format!("what is saved against: {across}"),
        notes: vec![
            setup.service(),
            "ceiling: slices without geometry, all in one heap that lets in what fits, exact. It comes to 1 - 1/7 = 85.7 % where all are 1g, to 50 % where all are half a GPU.".to_owned(),
        ],
        table,
        targets,
        pictures: vec![(format!("{name}.svg"), chart.svg())],
        skipped: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::engine::Length;

    #[test]
    fn a_curve_rises_to_its_end_and_is_drawn() {
        let setup = Setup {
            accept: 0.95,
            seeds: vec![1],
            length: Length {
                arrivals: 800,
                warm_up: 200,
            },
            ours: shared::policy::Policy::default(),
            threads: 2,
        };
        let point = |small: f64| Point {
            at: 100.0 * small,
            workloads: 20.0,
            mix: Mix {
                name: "curve",
                shares: [small, 0.0, 0.0, 0.0, 0.0, 1.0 - small],
            },
        };
        let section = curve(&setup, "c", "share", &[0.0, 0.5, 1.0].map(point), true);
        let saved: Vec<f64> = section
            .table
            .rows
            .iter()
            .map(|row| row[4].trim_end_matches(" %").parse().unwrap())
            .collect();
        assert!(saved[0] < 20.0 && saved[1] > 30.0 && saved[2] > 75.0, "{saved:?}");
        let ceiling: f64 = section.table.rows[2][5].trim_end_matches(" %").parse().unwrap();
        assert!(
            (80.0..=85.8).contains(&ceiling) && saved[2] <= ceiling,
            "{ceiling}"
        );
        assert_eq!(section.pictures[0].1.matches("<polyline").count(), 3);
        assert_eq!(section.targets.len(), 2);
    }
}

//! C1 and C2: what the loads of MIG-100 need, as sections of the report.

use std::collections::BTreeMap;

use super::heap;
use super::need::{saving, servers};
use super::report::{Bound, Section, Table, Target, number, percent};
use super::steady::{Case, Need, Setup};
use crate::mig::fixed::{Cut, tuned};
use crate::mig::load::{MIXES, Mix, Pattern};
use crate::mig::policy::{Policy, mean_mix, switching};
use crate::mig::shapes::Shapes;

/// Memory slices that C1 and C2 ask for at any time: 85 GPUs full.
pub const SLICES: f64 = 680.0;
/// Memory slices that the five seeds behind the reference's figures came to.
const REFERENCE_SLICES: f64 = 675.0;
/// Policies of C1's columns, by their names in `migpool-sim mig`. The rules of the reference are told the true mix,
/// ours learns it.
const COLUMNS: [&str; 5] = ["static", "first-fit", "ef/m", "ours", OURS];
/// Production's.
const OURS: &str = "ours/m";
/// How long each mix of C2 lasts, in mean lifetimes.
const SWITCHES_EVERY: f64 = 5.0;
/// GPUs that the reference needs for each of [`MIXES`]: with one whole GPU a workload, ...
const PUBLISHED_WHOLE: [f64; 4] = [216.0, 333.0, 151.0, 195.0];
/// ... and with its best dynamic policy.
const PUBLISHED_DYNAMIC: [f64; 4] = [95.0, 92.0, 98.0, 97.0];

/// A policy by its name in `migpool-sim mig`.
#[must_use]
pub fn served_by(name: &str) -> Policy {
    name.parse().unwrap_or(Policy::Ours { repairs: true })
}

/// C1: four mixes that stay as they are.
#[must_use]
pub fn c1(setup: &Setup) -> Section {
    let mut cases = Vec::new();
    for mix in MIXES {
        let columns = COLUMNS.iter().map(|name| (*name, SLICES));
        cases.extend(
            columns
                .chain([(OURS, REFERENCE_SLICES)])
                .map(|(name, slices)| Case {
                    pattern: Pattern::Steady(mix),
                    slices,
                    policy: served_by(name),
                }),
        );
    }
    let needs = setup.needs(&cases, "C1");
    let mut table = Table::new([
        "mix",
        "one GPU each",
        "best layout",
        "first fit",
        "reference",
        "dynamic, no moves",
        "dynamic",
        "moves/100",
        "no geometry",
        "saves of GPUs each",
        "ceiling",
        "saves of layout",
        "dynamic, 675 slices",
    ]);
    let mut targets = Vec::new();
    for (at, (mix, needs)) in MIXES.iter().zip(needs.chunks(COLUMNS.len() + 1)).enumerate() {
        targets.extend(c1_mix(setup, at, mix, needs, &mut table));
    }
    Section {
        name: "C1".to_owned(),
        title: format!("GPUs for a steady load of {SLICES} memory slices at any time (H100-80GB)"),
        notes: vec![
            setup.service(),
            "one GPU each: Erlang's loss formula, exact. best layout: slices cut once, the best found for the mix. dynamic: production's placement, a pod moved at most once for a larger request of half a GPU or more. reference: EF+.2 with one move, told the true mix.".to_owned(),
            "no geometry, ceiling: all slices in one heap that lets in what fits, exact; no layout of slices comes below it but by refusing large requests.".to_owned(),
            format!(
                "The published figures for dynamic come from five seeds, which asked for some {REFERENCE_SLICES} slices; at {SLICES} not even a heap reaches all of them. Both loads are checked."
            ),
        ],
        table,
        targets,
        ..Section::default()
    }
}

/// The row of one mix, and its targets.
fn c1_mix(setup: &Setup, at: usize, mix: &Mix, needs: &[Option<Need>], table: &mut Table) -> Vec<Target> {
    let shapes = Shapes::h100();
    let workloads = SLICES / mix.mean_size(&shapes);
    let whole = servers(workloads, setup.accept) as f64;
    let heap = heap::gpus(&shapes, mix, workloads, setup.accept).map_or(f64::NAN, |gpus| gpus as f64);
    let gpus = |column: usize| needs[column].map_or(f64::NAN, |need| need.gpus as f64);
    let [layout, reference, dynamic, eased] = [0, 2, 4, 5].map(gpus);
    table.row([
        mix.name.to_owned(),
        number(whole),
        Need::text(needs[0]),
        Need::text(needs[1]),
        Need::text(needs[2]),
        Need::text(needs[3]),
        Need::text(needs[4]),
        needs[4].map_or_else(String::new, |need| format!("{:.1}", need.moves)),
        number(heap),
        percent(saving(dynamic, whole)),
        percent(saving(heap, whole)),
        percent(saving(dynamic, layout)),
        Need::text(needs[5]),
    ]);
    let target = |what: String, found: f64, bound: Bound| Target {
        what: format!("C1 {}: GPUs, {what}", mix.name),
        found,
        bound,
    };
    let mut targets = vec![
        target(
            "dynamic, against the reference's policy under the same requests".to_owned(),
            dynamic,
            Bound::AtMost(reference),
        ),
        target(
            "dynamic, against slices without geometry and one GPU".to_owned(),
            dynamic,
            Bound::AtMost(heap + 1.0),
        ),
    ];
    // what was published is for this service alone
    if (setup.accept - 0.99).abs() < 1e-12 {
        targets.extend([
            target(
                "one whole GPU each, published".to_owned(),
                whole,
                Bound::Exactly(PUBLISHED_WHOLE[at]),
            ),
            target(
                format!("dynamic, published, {REFERENCE_SLICES} slices"),
                eased,
                Bound::AtMost(PUBLISHED_DYNAMIC[at]),
            ),
            target(
                format!("dynamic, published, {SLICES} slices"),
                dynamic,
                Bound::AtMost(PUBLISHED_DYNAMIC[at]),
            ),
        ]);
    }
    targets
}

/// C2: the mix switches, the layout was made for the mean.
#[must_use]
pub fn c2(setup: &Setup) -> Section {
    let shapes = Shapes::h100();
    let pattern = switching(SWITCHES_EVERY);
    let rows = [
        ("one whole GPU each", "no-mig"),
        ("best layout for the mean mix", "static"),
        ("dynamic, no moves", "ours"),
        ("dynamic", OURS),
    ];
    let case = |(_, policy): &(&str, &str)| Case {
        pattern: pattern.clone(),
        slices: SLICES,
        policy: served_by(policy),
    };
    let cases: Vec<Case> = rows.iter().map(case).collect();
    let needs = setup.needs(&cases, "C2");
    let gpus = |row: usize| needs[row].map_or(f64::NAN, |need| need.gpus as f64);
    let mix = mean_mix(&pattern);
    let full = SLICES / f64::from(shapes.slices);
    let mut table = Table::new([
        "arm",
        "GPUs",
        "moves/100",
        "saves of GPUs each",
        "ceiling",
        "saves of layout",
    ]);
    for (row, (name, _)) in rows.iter().enumerate() {
        table.row([
            (*name).to_owned(),
            Need::text(needs[row]),
            needs[row].map_or_else(String::new, |need| format!("{:.1}", need.moves)),
            percent(saving(gpus(row), gpus(0))),
            percent(saving(full, gpus(0))),
            percent(saving(gpus(row), gpus(1))),
        ]);
    }
    let layout = needs[1].map_or_else(String::new, |need| {
        let load = SLICES / (need.gpus as f64 * f64::from(shapes.slices));
        format!(
            "the layout, on {} GPUs: {}",
            need.gpus,
            layout(&shapes, &tuned(&shapes, &mix, load, need.gpus))
        )
    });
    Section {
        name: "C2".to_owned(),
        title: format!(
            "GPUs for {SLICES} memory slices whose mix switches every {SWITCHES_EVERY} mean lifetimes"
        ),
        notes: vec![
            setup.service(),
            format!(
                "ceiling: the {} GPUs that the load fills without a gap, nothing in reserve.",
                number(full)
            ),
            layout,
        ],
        table,
        targets: vec![Target {
            what: "C2: GPUs, dynamic, against the best layout for the mean mix".to_owned(),
            found: gpus(3),
            bound: Bound::AtMost(gpus(1)),
        }],
        ..Section::default()
    }
}

/// A layout in words: `54 x 7g.80gb, 30 x 4g.40gb + 3g.40gb`, most frequent first.
#[must_use]
pub fn layout(shapes: &Shapes, cuts: &[Cut]) -> String {
    let mut counts: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for cut in cuts {
        let mut classes: Vec<usize> = cut.iter().map(|(class, _)| *class).collect();
        classes.sort_unstable_by(|a, b| b.cmp(a));
        *counts.entry(classes).or_default() += 1;
    }
    let mut counts: Vec<(Vec<usize>, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    let cut = |classes: &[usize]| {
        let names = classes
            .iter()
            .map(|class| shapes.shape(*class).profile.to_string());
        names.collect::<Vec<_>>().join(" + ")
    };
    let parts = counts
        .iter()
        .map(|(classes, count)| format!("{count} x ({})", cut(classes)));
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_reads_as_counts_of_cuts() {
        let shapes = Shapes::h100();
        let cuts = vec![vec![(5, 0)], vec![(3, 4), (4, 0)], vec![(5, 0)]];
        assert_eq!(layout(&shapes, &cuts), "2 x (7g.80gb), 1 x (4g.40gb + 3g.40gb)");
    }
}

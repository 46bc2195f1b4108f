//! C3: a real serving fleet (GenTD26, stable diffusion): pods on GPUs of their own against slices that are sized by
//! what each pod was measured to use lately. Read where it is present.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde::Deserialize;
use shared::decide::score::{BoardTable, Demand};
use shared::mig::Board;
use shared::mig::board::ProfileRow;
use shared::mig::layout::{plain, window};
use shared::policy::Policy;
use shared::snapshot::Request;

use super::need::{least, saving};
use super::recorded;
use super::report::{Bound, Section, Table, Target, number, percent};
use crate::fleet::{self, Fleet, Make};
use crate::parallel;

/// The files below the folder of traces.
const DUTY: &str = "alibaba-gentd26/pod_gpu_duty_cycle_anon.csv.gz";
const MEMORY: &str = "alibaba-gentd26/pod_gpu_memory_used_bytes_anon.csv.gz";
const TITLE: &str = "a serving fleet by measured use (GenTD26, 22.8 h, a sample each 57 s)";
/// What a memory slice is counted as, bytes: an eighth of 80 GiB.
const MEMORY_SLICE: f64 = 10.0 * (1_u64 << 30) as f64;
/// GPUs in a node.
const GPUS_PER_NODE: usize = 8;

/// A way to size slices.
#[derive(Clone, Copy, Debug)]
struct Variant {
    name: &'static str,
    what: &'static str,
    /// Peaks of duty and memory are taken over so long, seconds.
    window: f64,
    /// A pod without work for so long has no slice, seconds.
    idle: Option<f64>,
    /// How much faster a new GPU is than the one measured.
    speed: f64,
    /// Peak and mean of the reference, packed anew at each sample.
    published: [f64; 2],
}

const VARIANTS: [Variant; 3] = [
    Variant {
        name: "C3",
        what: "peaks of 30 min",
        window: 1_800.0,
        idle: None,
        speed: 1.0,
        published: [75.0, 65.0],
    },
    Variant {
        name: "C3b",
        what: "and none for 30 min idle",
        window: 1_800.0,
        idle: Some(1_800.0),
        speed: 1.0,
        published: [75.0, 57.0],
    },
    Variant {
        name: "C3c",
        what: "peaks of 15 min, none for 30 min idle, GPU twice as fast",
        window: 900.0,
        idle: Some(1_800.0),
        speed: 2.0,
        published: [61.0, 44.0],
    },
];

#[derive(Debug, Deserialize)]
struct Row {
    value: f64,
    timestamp_anon: f64,
    container_ip: String,
}

/// Measurements by pod, one place for each time.
#[derive(Clone, Debug, Default)]
struct Measured {
    times: Vec<f64>,
    /// By pod, by time; `None` where the pod is not there.
    duty: Vec<Vec<Option<f64>>>,
    memory: Vec<Vec<Option<f64>>>,
}

/// What each pod gets at each time: index of a row of the board.
type Sizes = Vec<Vec<Option<usize>>>;

/// C3, C3b and C3c.
///
/// # Errors
/// Where the trace is there and cannot be read.
pub fn c3(traces: &Path, accept: f64, policy: &Policy, threads: usize) -> Result<Section> {
    let paths =
        recorded::present(traces, DUTY).and_then(|duty| Ok((duty, recorded::present(traces, MEMORY)?)));
    let (duty, memory) = match paths {
        Ok(paths) => paths,
        Err(why) => return Ok(Section::skipped("C3", TITLE, why)),
    };
    let measured = Measured::new(&recorded::rows::<Row>(&duty)?, &recorded::rows::<Row>(&memory)?);
    let Some(board) = Board::named("H100-80GB").cloned().map(Arc::new) else {
        unreachable!("the catalogue has H100-80GB");
    };
    let present = measured.present();
    let whole = present.iter().copied().max().unwrap_or(0);
    let mean_whole = present.iter().sum::<usize>() as f64 / present.len().max(1) as f64;
    let found = parallel::run(&VARIANTS, threads, "C3", |variant| {
        let sizes = measured.sizes(&board, variant);
        let packed: Vec<usize> = sizes.iter().map(|sizes| packed(&board, policy, sizes)).collect();
        let come = as_they_come(&board, policy, &measured.times, &sizes, accept, whole);
        (packed, come)
    });
    let mut table = Table::new([
        "variant",
        "one GPU each",
        "packed anew: peak",
        "mean",
        "saves at peak",
        "mean",
        "as they come",
        "let in",
        "resizes a pod and hour",
        "saves",
    ]);
    let mut targets = Vec::new();
    for (variant, (packed, come)) in VARIANTS.iter().zip(&found) {
        let peak = packed.iter().copied().max().unwrap_or(0);
        let mean = packed.iter().sum::<usize>() as f64 / packed.len().max(1) as f64;
        let hours = measured
            .times
            .last()
            .zip(measured.times.first())
            .map_or(1.0, |(last, first)| (last - first) / 3_600.0);
        table.row([
            format!("{} {}", variant.name, variant.what),
            whole.to_string(),
            peak.to_string(),
            number(mean),
            percent(saving(peak as f64, whole as f64)),
            percent(saving(mean, whole as f64)),
            come.map_or_else(|| "none will do".to_owned(), |come| come.gpus.to_string()),
            come.map_or_else(String::new, |come| percent(come.served)),
            come.map_or_else(String::new, |come| {
                number(come.resizes as f64 / hours / mean_whole)
            }),
            come.map_or_else(String::new, |come| {
                percent(saving(come.gpus as f64, whole as f64))
            }),
        ]);
        for (what, found, published) in [
            ("peak", peak as f64, variant.published[0]),
            ("mean", mean.round(), variant.published[1]),
        ] {
            targets.push(Target {
                what: format!("{}: GPUs at {what}, packed anew", variant.name),
                found,
                bound: Bound::AtMost(published),
            });
        }
    }
    Ok(Section {
        name: "C3".to_owned(),
        title: TITLE.to_owned(),
        notes: vec![
            format!(
                "{whole} pods at peak, {mean_whole:.0} on average, on GPUs of 48 GB of their own. A slice has the memory (10 GiB each) and compute of the pod's peaks of late; the size is known only afterwards, so a pod that grows waits for its slice one sample."
            ),
            "packed anew: at every sample all slices are laid out afresh, so moves are free: a bound, not a service.".to_owned(),
            format!(
                "as they come: production's placement with one move, slices stay where they are until the pod's size changes; service: {} of pods and samples have their slice. ceiling: 50 % for pods that need 3g.40gb, which most do (median use 23 GiB).",
                percent(accept)
            ),
        ],
        table,
        targets,
        ..Section::default()
    })
}

impl Measured {
    fn new(duty: &[Row], memory: &[Row]) -> Self {
        // times are whole seconds, so their bits sort and compare as they do
        let mut times: Vec<f64> = duty.iter().map(|row| row.timestamp_anon).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        for row in duty {
            let next = pods.len();
            pods.entry(&row.container_ip).or_insert(next);
        }
        let empty = || vec![vec![None; times.len()]; pods.len()];
        let fill = |rows: &[Row]| {
            let mut series = empty();
            for row in rows {
                let at = times.binary_search_by(|time| time.total_cmp(&row.timestamp_anon));
                if let (Ok(at), Some(pod)) = (at, pods.get(row.container_ip.as_str())) {
                    series[*pod][at] = Some(row.value);
                }
            }
            series
        };
        Self {
            duty: fill(duty),
            memory: fill(memory),
            times,
        }
    }

    /// How many pods are there at each time.
    fn present(&self) -> Vec<usize> {
        (0..self.times.len())
            .map(|at| self.duty.iter().filter(|series| series[at].is_some()).count())
            .collect()
    }

    /// The greatest value of the last `window` seconds up to a time.
    fn peak(&self, series: &[Option<f64>], at: usize, window: f64) -> Option<f64> {
        let since = self.times[..=at].partition_point(|time| *time <= self.times[at] - window);
        series[since..=at]
            .iter()
            .flatten()
            .copied()
            .max_by(f64::total_cmp)
    }

    fn sizes(&self, board: &Board, variant: &Variant) -> Sizes {
        let size = |pod: usize, at: usize| {
            self.duty[pod][at]?;
            let duty = self.peak(&self.duty[pod], at, variant.window)?;
            let idle = variant.idle.and_then(|idle| self.peak(&self.duty[pod], at, idle)) == Some(0.0);
            let memory = self.peak(&self.memory[pod], at, variant.window).unwrap_or(0.0);
            (!idle).then(|| row_for(board, memory, duty / 100.0 / variant.speed))
        };
        (0..self.times.len())
            .map(|at| (0..self.duty.len()).map(|pod| size(pod, at)).collect())
            .collect()
    }
}

/// The smallest plain profile with so many bytes and such a share of the compute; the largest where none has.
fn row_for(board: &Board, memory: f64, compute: f64) -> usize {
    let slices = (memory / MEMORY_SLICE).ceil();
    let enough = |row: &&ProfileRow| {
        f64::from(row.size) >= slices
            && f64::from(row.profile.compute) + 1e-9 >= compute * f64::from(board.compute_slices)
    };
    let by_size = |row: &&ProfileRow| (row.size, row.profile.compute);
    let row = plain(board)
        .filter(enough)
        .min_by_key(by_size)
        .or_else(|| plain(board).max_by_key(by_size));
    row.and_then(|row| board.profiles.iter().position(|other| other == row))
        .unwrap_or_default()
}

/// GPUs for all slices at once: largest first, each where production's measure wants it.
fn packed(board: &Board, policy: &Policy, sizes: &[Option<usize>]) -> usize {
    let table = BoardTable::new(board, &Demand::default().mix(board), policy);
    let mut rows: Vec<usize> = sizes.iter().flatten().copied().collect();
    let size = |row: &usize| (board.profiles[*row].size, board.profiles[*row].profile.compute);
    rows.sort_unstable_by_key(|row| std::cmp::Reverse(size(row)));
    let mut masks: Vec<u16> = Vec::new();
    for row in rows {
        let best = masks.iter().enumerate().filter_map(|(gpu, mask)| {
            let (cost, start) = table.best(row, *mask)?;
            Some((cost, gpu, start))
        });
        match best.min() {
            Some((_, gpu, start)) => masks[gpu] |= window(board.profiles[row].size, start),
            None => masks.push(
                table
                    .best(row, 0)
                    .map_or(u16::MAX, |(_, start)| window(board.profiles[row].size, start)),
            ),
        }
    }
    masks.len()
}

/// What slices that stay where they are need.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Come {
    gpus: usize,
    served: f64,
    resizes: usize,
}

fn as_they_come(
    board: &Arc<Board>,
    policy: &Policy,
    times: &[f64],
    sizes: &Sizes,
    accept: f64,
    whole: usize,
) -> Option<Come> {
    let mut served = None;
    let gpus = least(whole * 2 / 3, whole, |gpus| {
        let (share, resizes) = replay(board, policy, times, sizes, gpus);
        // what is enough gets less from question to question, so the last is the least
        if share >= accept {
            served = Some((share, resizes));
        }
        share >= accept
    })?;
    served.map(|(served, resizes)| Come {
        gpus,
        served,
        resizes,
    })
}

/// The share of pods and samples that had their slice, and how often a slice was made for a pod that was there.
fn replay(board: &Arc<Board>, policy: &Policy, times: &[f64], sizes: &Sizes, gpus: usize) -> (f64, usize) {
    let make = Make {
        board: Arc::clone(board),
        gpus_per_node: GPUS_PER_NODE,
        policy: policy.clone(),
        repairs: true,
    };
    let mut fleet = Fleet::new(make, gpus);
    let pods = sizes.first().map_or(0, Vec::len);
    let mut have: Vec<Option<usize>> = vec![None; pods];
    let (mut asked, mut served, mut resizes) = (0, 0, 0);
    for (time, wanted) in times.iter().zip(sizes) {
        let mut come: Vec<usize> = Vec::new();
        for pod in 0..pods {
            if have[pod] != wanted[pod] {
                fleet.depart(pod);
                resizes += usize::from(have[pod].is_some() && wanted[pod].is_some());
                have[pod] = None;
                if wanted[pod].is_some() {
                    come.push(pod);
                }
            }
        }
        come.sort_by_key(|pod| std::cmp::Reverse(wanted[*pod]));
        for pod in come {
            let Some(row) = wanted[pod] else { continue };
            let request = Request::of_one(fleet::CONTAINER, Some(board.profiles[row].profile), 1);
            if fleet.arrive(*time, pod, &request).is_some() {
                have[pod] = Some(row);
            }
        }
        asked += wanted.iter().flatten().count();
        served += have.iter().flatten().count();
    }
    (
        f64::from(u32::try_from(served).unwrap_or(u32::MAX)) / asked.max(1) as f64,
        resizes,
    )
}

#[cfg(test)]
mod tests;

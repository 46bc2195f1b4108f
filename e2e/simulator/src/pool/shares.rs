//! C5: pods that share a GPU in a production cluster (openb, the default list): a GPU each, packed by thousandths
//! as time slicing would, and rounded up to MIG's compute slices.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use shared::decide::pack::Ask;
use shared::mig::layout::plain;
use shared::mig::{Board, Profile};
use shared::policy::Policy;
use shared::snapshot::Request;

use super::need::saving;
use super::report::{Bound, Section, Table, Target, number, percent};
use crate::fleet::{self, Fleet, Make};
use crate::place::trace;

/// What the reference found: pods, GPUs' worth of thousandths, and of compute slices.
const PUBLISHED: [f64; 3] = [3_078.0, 1_732.0, 2_212.0];
/// GPUs in a node; nothing depends on it, since every pod here asks for one slice.
const GPUS_PER_NODE: usize = 8;
/// Thousandths of a GPU.
const WHOLE: u32 = 1_000;

/// C5. `traces` is a folder of traces, `None` the copy that comes with the simulator.
///
/// # Errors
/// Where the list cannot be read.
pub fn c5(traces: Option<&Path>) -> Result<Section> {
    let folder = trace::folder(traces);
    let cluster = trace::nodes(&folder)?;
    let pods = trace::pods(&folder, "default", &cluster.models)?;
    let shares: Vec<u32> = pods.iter().filter_map(share).collect();
    let board = Arc::new(Board::named("H100-80GB").cloned().unwrap_or_else(no_board));
    let profiles: Vec<Profile> = shares
        .iter()
        .filter_map(|milli| profile(&board, *milli))
        .collect();
    let slices: u32 = profiles.iter().map(|profile| u32::from(profile.compute)).sum();

    let each = shares.len() as f64;
    let by_milli = f64::from(shares.iter().sum::<u32>()) / f64::from(WHOLE);
    let by_slices = f64::from(slices) / f64::from(board.compute_slices);
    let rows = [
        ("one whole GPU each", each, "what they would have without sharing"),
        ("thousandths added up", by_milli, "no GPU can be filled so well"),
        (
            "thousandths packed, largest first",
            packed(&shares) as f64,
            "time slicing: no isolation",
        ),
        (
            "compute slices added up",
            by_slices,
            "no GPU can be filled so well",
        ),
        (
            "slices at legal starts, as they come",
            sliced(&board, &profiles) as f64,
            "production's placement",
        ),
        (
            "the same, largest first",
            sliced(&board, &largest_first(&profiles)) as f64,
            "production's placement",
        ),
    ];
    let mut table = Table::new(["way", "GPUs", "saves", "note"]);
    for (name, gpus, note) in rows {
        table.row([
            name.to_owned(),
            number(gpus),
            percent(saving(gpus, each)),
            note.to_owned(),
        ]);
    }
    let targets = [
        "pods, one GPU each",
        "GPUs by thousandths",
        "GPUs by compute slices",
    ];
    let found = [each, by_milli.round(), by_slices.round()];
    let target = |at: usize| Target {
        what: format!("C5: {}", targets[at]),
        found: found[at],
        bound: Bound::Exactly(PUBLISHED[at]),
    };
    Ok(Section {
        name: "C5".to_owned(),
        title: "pods that share a GPU in a production cluster (openb, default list)".to_owned(),
        notes: vec![
            "service: every pod of the list has its share at once, none waits or leaves. A share is rounded up to 1, 2, 3, 4 or 7 of 7 compute slices; memory is not in the trace, so it does not count.".to_owned(),
        ],
        table,
        targets: (0..3).map(target).collect(),
        ..Section::default()
    })
}

/// The thousandths of a pod that shares a GPU.
fn share(ask: &Ask) -> Option<u32> {
    (ask.gpus == 1 && ask.share_milli < WHOLE).then_some(ask.share_milli)
}

/// The smallest profile with so much compute.
fn profile(board: &Board, milli: u32) -> Option<Profile> {
    let enough = |compute: u8| u32::from(compute) * WHOLE >= milli * u32::from(board.compute_slices);
    plain(board)
        .filter(|row| enough(row.profile.compute))
        .min_by_key(|row| (row.profile.compute, row.size))
        .map(|row| row.profile)
}

/// GPUs for shares that may not be split: each, largest first, into the first GPU that has room.
fn packed(shares: &[u32]) -> usize {
    let mut shares = shares.to_vec();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    let mut used: Vec<u32> = Vec::new();
    for share in shares {
        match used.iter_mut().find(|used| **used + share <= WHOLE) {
            Some(gpu) => *gpu += share,
            None => used.push(share),
        }
    }
    used.len()
}

/// GPUs that production's placement opens for them, one after the other.
fn sliced(board: &Arc<Board>, profiles: &[Profile]) -> usize {
    let make = Make {
        board: Arc::clone(board),
        gpus_per_node: GPUS_PER_NODE,
        policy: Policy::default(),
        repairs: false,
    };
    let mut fleet = Fleet::new(make, profiles.len());
    for (pod, profile) in profiles.iter().enumerate() {
        let request = Request::of_one(fleet::CONTAINER, Some(*profile), 1);
        // a second apart: the mix is learned from the list itself
        fleet.arrive(pod as f64, pod, &request);
    }
    fleet.active()
}

fn largest_first(profiles: &[Profile]) -> Vec<Profile> {
    let mut sorted = profiles.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted
}

fn no_board() -> Board {
    unreachable!("the catalogue has H100-80GB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_to_a_profile_there_is() {
        let board = Board::named("H100-80GB").unwrap();
        let of = |milli| profile(board, milli).unwrap().to_string();
        assert_eq!(
            [50, 143, 286, 470, 571].map(of),
            ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "4g.40gb"]
        );
        assert_eq!([572, 810, 999].map(of), ["7g.80gb"; 3]);
    }

    #[test]
    fn shares_are_never_split() {
        assert_eq!(packed(&[600, 600, 400]), 2);
        assert_eq!(packed(&[600, 600, 600, 100]), 3);
        assert_eq!(packed(&[]), 0);
    }
}

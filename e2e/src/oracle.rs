//! Brute force over the published state: what must be allocatable of each profile, whether a pod must run, and
//! that no place is given twice. Shares no code with the placement it judges, only the board tables.

use std::collections::BTreeMap;

use shared::api::gpu_node::{GpuNode, GpuStatus, Health};
use shared::mig::{Board, Place, Profile, Use};

/// Slices of one GPU that may not be touched.
#[must_use]
pub fn busy(gpu: &GpuStatus) -> Vec<Place> {
    gpu.slices
        .iter()
        .filter(|slice| slice.state != Use::Idle)
        .map(|slice| slice.place)
        .collect()
}

/// The most slices of `profile` that can still be cut beside `used`, by trying every set of starts.
#[must_use]
pub fn still_fit(board: &Board, used: &[Place], profile: Profile) -> usize {
    let Some(row) = board.profiles.iter().find(|row| row.profile == profile) else {
        return 0;
    };
    let sets = 0_u32..1 << row.starts.len();
    let fits = sets.filter_map(|set| {
        let chosen = row.starts.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let new: Vec<Place> = chosen.map(|(_, start)| Place::new(profile, *start)).collect();
        legal(board, used.iter().chain(&new)).then_some(new.len())
    });
    fits.max().unwrap_or(0)
}

/// Whether slices can live together: no overlap, limits kept.
pub fn legal<'a>(board: &Board, places: impl Iterator<Item = &'a Place> + Clone) -> bool {
    let mut covered = [false; 16];
    let mut compute = 0_u32;
    let mut media = 0;
    for place in places.clone() {
        let Some(row) = board.profiles.iter().find(|row| row.profile == place.profile) else {
            return false;
        };
        if !row.starts.contains(&place.start) {
            return false;
        }
        for slice in place.start..place.start + row.size {
            if std::mem::replace(&mut covered[usize::from(slice)], true) {
                return false;
            }
        }
        compute += u32::from(place.profile.compute);
        media += u32::from(place.profile.takes_media_extensions());
        let same = places
            .clone()
            .filter(|other| other.profile == place.profile)
            .count();
        if same > usize::from(row.max) {
            return false;
        }
    }
    compute <= u32::from(board.compute_slices) && media <= 1
}

/// What a node must show as allocatable, by profile: slices in use and slices that could be cut.
#[must_use]
pub fn allocatable(node: &GpuNode) -> BTreeMap<Profile, usize> {
    let mut counts = BTreeMap::new();
    let Some(status) = &node.status else { return counts };
    for gpu in status.gpus.iter().filter(|gpu| gpu.mig) {
        let Some(board) = board(node, gpu) else { continue };
        let withheld = node.spec.withhold.iter().any(|withheld| withheld.gpu == gpu.uuid);
        let takes_more = !withheld && !node.spec.paused && gpu.health == Health::Healthy;
        let used = busy(gpu);
        for row in &board.profiles {
            let have = gpu.slices.iter().filter(|slice| slice.state == Use::Allocated);
            let have = have.filter(|slice| slice.place.profile == row.profile).count();
            let more = if takes_more {
                still_fit(&board, &used, row.profile)
            } else {
                0
            };
            *counts.entry(row.profile).or_default() += have + more;
        }
    }
    counts
}

/// Whether some GPU of the cluster could take one slice of `profile` now.
#[must_use]
pub fn fits(nodes: &[GpuNode], profile: Profile) -> bool {
    nodes.iter().any(|node| {
        let gpus = node
            .status
            .iter()
            .flat_map(|status| &status.gpus)
            .filter(|gpu| gpu.mig);
        gpus.into_iter().any(|gpu| {
            let withheld = node.spec.withhold.iter().any(|withheld| withheld.gpu == gpu.uuid);
            !withheld && board(node, gpu).is_some_and(|board| still_fit(&board, &busy(gpu), profile) > 0)
        })
    })
}

/// What is wrong with a layout that a node publishes, in words; empty where it is legal.
#[must_use]
pub fn faults(nodes: &[GpuNode]) -> Vec<String> {
    let mut faults = Vec::new();
    for node in nodes {
        for gpu in node
            .status
            .iter()
            .flat_map(|status| &status.gpus)
            .filter(|gpu| gpu.mig)
        {
            let places: Vec<Place> = gpu.slices.iter().map(|slice| slice.place).collect();
            if board(node, gpu).is_some_and(|board| !legal(&board, places.iter())) {
                faults.push(format!(
                    "GPU {} holds slices that cannot live together: {places:?}",
                    gpu.uuid
                ));
            }
        }
    }
    faults
}

/// The placement table that the node publishes for a GPU.
#[must_use]
pub fn board(node: &GpuNode, gpu: &GpuStatus) -> Option<Board> {
    node.status
        .as_ref()?
        .boards
        .iter()
        .find(|board| board.name == gpu.board)
        .map(Board::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brute_force_agrees_with_the_loss_table() {
        let h100 = Board::named("H100-80GB").unwrap();
        let used = ["3g.40gb:4".parse().unwrap()];
        let left = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
        let left = left.map(|name| still_fit(h100, &used, name.parse().unwrap()));
        assert_eq!(left, [4, 2, 2, 1, 1, 0]);
        assert_eq!(still_fit(h100, &[], "1g.10gb+me".parse().unwrap()), 1);
    }

    #[test]
    fn an_overlap_is_illegal() {
        let h100 = Board::named("H100-80GB").unwrap();
        let places: Vec<Place> = ["4g.40gb:0", "2g.20gb:2"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        assert!(!legal(h100, places.iter()));
    }
}

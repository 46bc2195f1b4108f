//! The independent judge: whether a placement may be acted on. It shares no code with what made the placement,
//! so an error there does not pass here.

use std::collections::BTreeMap;

use crate::mig::Use;
use crate::names::{DeviceId, Placements};
use crate::snapshot::{Request, Snapshot};

/// What is wrong with a placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The node or GPU is not in the snapshot, or the GPU is not in MIG mode.
    #[error("{0} is not on that node")]
    NotThere(DeviceId),
    /// The board has no such profile or start.
    #[error("{0} is no legal place of its board")]
    NotLegal(DeviceId),
    /// It overlaps a used slice, or another place of the same placement.
    #[error("{0} overlaps {1}")]
    Overlap(DeviceId, String),
    /// Together with what is used, a limit of the board is passed.
    #[error("{0} passes a limit of its board")]
    Limit(DeviceId),
    /// It gives a container more or less than it asked for.
    #[error("container {container} asked for {asked} and gets {given}")]
    Amount {
        /// The container.
        container: String,
        /// How many slices it asked for.
        asked: u32,
        /// How many it would get.
        given: u32,
    },
}

/// Judges a placement of `request` on `node` against the used slices of the snapshot.
///
/// # Errors
/// The first [`Fault`] found.
pub fn check(before: &Snapshot, node: &str, request: &Request, placements: &Placements) -> Result<(), Fault> {
    amounts(request, placements)?;
    let mut new: BTreeMap<&str, Vec<&DeviceId>> = BTreeMap::new();
    for device in placements.places() {
        new.entry(&device.gpu).or_default().push(device);
    }
    for (uuid, devices) in new {
        let gpu = before
            .nodes
            .get(node)
            .and_then(|node| node.gpus.iter().find(|gpu| gpu.uuid == uuid));
        let board = gpu.and_then(|gpu| gpu.board.as_deref());
        let (Some(gpu), Some(board)) = (gpu, board) else {
            return Err(Fault::NotThere(devices[0].clone()));
        };
        // (first slice, end, profile, who) of all that must live together
        let row = |profile| board.profiles.iter().find(|row| row.profile == profile);
        let used = gpu
            .layout()
            .slices()
            .iter()
            .filter(|slice| slice.used != Use::Idle);
        let mut there: Vec<_> = used
            .map(|slice| {
                (
                    slice.place.start,
                    slice.place.start + row(slice.place.profile).map_or(1, |row| row.size),
                    slice.place,
                )
            })
            .collect();
        for device in devices {
            let place = device.place;
            let row = row(place.profile).filter(|row| row.starts.contains(&place.start));
            let row = row.ok_or_else(|| Fault::NotLegal(device.clone()))?;
            let end = place.start + row.size;
            if let Some(other) = there
                .iter()
                .find(|(from, to, _)| place.start < *to && *from < end)
            {
                return Err(Fault::Overlap(device.clone(), other.2.to_string()));
            }
            there.push((place.start, end, place));
            let compute: u32 = there
                .iter()
                .map(|(_, _, place)| u32::from(place.profile.compute))
                .sum();
            let same = there
                .iter()
                .filter(|(_, _, other)| other.profile == place.profile)
                .count();
            let media = there
                .iter()
                .filter(|(_, _, other)| other.profile.takes_media_extensions())
                .count();
            if compute > u32::from(board.compute_slices) || same > usize::from(row.max) || media > 1 {
                return Err(Fault::Limit(device.clone()));
            }
        }
    }
    Ok(())
}

/// Each container gets what it asked for, of each profile.
fn amounts(request: &Request, placements: &Placements) -> Result<(), Fault> {
    let mut asked: BTreeMap<(&str, _), u32> = BTreeMap::new();
    for want in &request.wants {
        if let Some(profile) = want.profile {
            *asked.entry((&want.container, profile)).or_default() += want.count;
        }
    }
    let mut given: BTreeMap<(&str, _), u32> = BTreeMap::new();
    for (container, devices) in &placements.0 {
        for device in devices {
            *given.entry((container, device.place.profile)).or_default() += 1;
        }
    }
    for key in asked.keys().chain(given.keys()) {
        let (asked, given) = (
            asked.get(key).copied().unwrap_or(0),
            given.get(key).copied().unwrap_or(0),
        );
        if asked != given {
            return Err(Fault::Amount {
                container: key.0.to_owned(),
                asked,
                given,
            });
        }
    }
    Ok(())
}

//! Which slice may sit where. Written from NVIDIA's rules, on memory intervals, without a look at `shared`'s
//! layouts: where the two disagree, one of them is wrong.
//!
//! GPU instances: no two share a memory slice, their compute slices sum to at most the GPU's, no profile exceeds
//! its maximum, at most one has the media extensions. Compute instances: no two share a compute slice.

use crate::code::Code;
use crate::model::{Model, Profile};
use crate::state::{Gpu, GpuInstance};

/// A profile at a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'m> {
    pub(crate) profile: &'m Profile,
    pub(crate) start: u32,
}

impl Place<'_> {
    fn overlaps(&self, other: &Place<'_>) -> bool {
        self.start < other.start + other.profile.size && other.start < self.start + self.profile.size
    }
}

/// The places that a GPU's instances take.
pub(crate) fn places<'m>(gpu: &Gpu, model: &'m Model) -> Result<Vec<Place<'m>>, Code> {
    let place = |instance: &GpuInstance| {
        Ok(Place {
            profile: instance.profile(model)?,
            start: instance.start,
        })
    };
    gpu.instances.iter().map(place).collect()
}

/// Whether an instance can be made at a place beside those that are there.
pub(crate) fn check(model: &Model, held: &[Place<'_>], wanted: &Place<'_>) -> Result<(), Code> {
    if !wanted.profile.starts.contains(&wanted.start) {
        return Err(Code::InvalidArgument);
    }
    let compute: u32 = held.iter().map(|place| place.profile.compute).sum();
    let same = held
        .iter()
        .filter(|place| place.profile.id == wanted.profile.id)
        .count() as u32;
    let media = held.iter().any(|place| place.profile.takes_media());
    let fits = !held.iter().any(|place| place.overlaps(wanted))
        && compute + wanted.profile.compute <= model.compute_slices
        && same < wanted.profile.max
        && !(media && wanted.profile.takes_media());
    if fits {
        Ok(())
    } else {
        Err(Code::InsufficientResources)
    }
}

/// The lowest start at which a profile fits.
pub(crate) fn first_fit(model: &Model, held: &[Place<'_>], profile: &Profile) -> Option<u32> {
    profile.starts.iter().copied().find(|start| {
        check(
            model,
            held,
            &Place {
                profile,
                start: *start,
            },
        )
        .is_ok()
    })
}

/// How many more instances of one profile can be made at most.
pub(crate) fn remaining(model: &Model, held: &[Place<'_>], profile: &Profile) -> u32 {
    fn more<'m>(model: &Model, held: &mut Vec<Place<'m>>, profile: &'m Profile, from: usize) -> u32 {
        let mut best = 0;
        for (index, start) in profile.starts.iter().enumerate().skip(from) {
            let place = Place {
                profile,
                start: *start,
            };
            if check(model, held, &place).is_ok() {
                held.push(place);
                best = best.max(1 + more(model, held, profile, index + 1));
                held.pop();
            }
        }
        best
    }
    more(model, &mut held.to_vec(), profile, 0)
}

/// The id of a new GPU instance: the lowest free one from where NVIDIA's driver starts to count for slices of
/// this size (0 for a whole GPU, 1 for halves, 3 for quarters, 7 for eighths), out of 15.
pub(crate) fn gpu_instance_id(gpu: &Gpu, model: &Model, size: u32) -> Option<u32> {
    const IDS: u32 = 15;
    let base = model.memory_slices / size.max(1) - 1;
    (base..IDS).find(|id| gpu.instance(*id).is_none())
}

/// A compute instance profile: NVML's enum value, which is also its id, and its compute slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComputeProfile {
    pub(crate) id: u32,
    pub(crate) slices: u32,
}

/// Compute instance profiles of a GPU instance with so many compute slices (`nvidia-smi mig -lcip`).
pub(crate) fn compute_profiles(slices: u32) -> impl Iterator<Item = ComputeProfile> {
    const ALL: [ComputeProfile; 5] = [
        ComputeProfile { id: 0, slices: 1 },
        ComputeProfile { id: 1, slices: 2 },
        ComputeProfile { id: 2, slices: 3 },
        ComputeProfile { id: 3, slices: 4 },
        ComputeProfile { id: 4, slices: 7 },
    ];
    // a GPU instance of four compute slices has no compute instance of three
    ALL.into_iter()
        .filter(move |profile| profile.slices <= slices && (slices, profile.slices) != (4, 3))
}

/// Where compute instances of a profile may start in a GPU instance with so many compute slices.
pub(crate) fn compute_starts(profile: ComputeProfile, slices: u32) -> Vec<u32> {
    let step = if profile.slices == 3 { 4 } else { profile.slices };
    (0..slices)
        .step_by(step as usize)
        .filter(|start| start + profile.slices <= slices)
        .collect()
}

/// Starts that are free for compute instances of a profile.
pub(crate) fn free_compute_starts(instance: &GpuInstance, profile: ComputeProfile, slices: u32) -> Vec<u32> {
    let free = |start: &u32| {
        !instance
            .compute_instances
            .iter()
            .any(|held| held.start < start + profile.slices && *start < held.start + held.size)
    };
    compute_starts(profile, slices).into_iter().filter(free).collect()
}

#[cfg(test)]
mod tests;

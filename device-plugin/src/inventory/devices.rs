//! The truth as the kubelet counts it: resources, device ids, health. With the dynamic strategy a device is a
//! place; it is healthy when its slice is held, or could be cut now by removing at most idle slices.

use std::collections::BTreeMap;

use shared::api::gpu_node::Health;
use shared::mig::Place;
use shared::names::{self, DeviceId};

use super::{Gpu, State};
use crate::args::Strategy;

/// A device as the kubelet sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// Its id: `<gpu uuid>:<profile>:<start>`, or a UUID with NVIDIA's strategies and for whole GPUs.
    pub id: String,
    /// Whether it counts as allocatable.
    pub healthy: bool,
    /// NUMA node.
    pub numa: Option<u32>,
}

/// All resources with their devices. A resource that was there before and has nothing now stays, empty: the
/// kubelet is told so at once instead of after minutes.
#[must_use]
pub fn resources(state: &State, before: &BTreeMap<String, Vec<Device>>) -> BTreeMap<String, Vec<Device>> {
    let mut found: BTreeMap<String, Vec<Device>> =
        before.keys().map(|name| (name.clone(), Vec::new())).collect();
    for gpu in &state.gpus {
        match state.strategy {
            Strategy::Dynamic if gpu.info.mig => places(state, gpu, &mut found),
            Strategy::Mixed if gpu.info.mig => slices(state, gpu, &mut found, names::resource),
            Strategy::Single if gpu.info.mig => {
                if single_profile(state).is_ok() {
                    slices(state, gpu, &mut found, |_| names::RESOURCE_GPU.to_owned());
                }
            }
            Strategy::Single if single_profile(state).is_err() => {}
            Strategy::None | Strategy::Single | Strategy::Mixed | Strategy::Dynamic => {
                let healthy =
                    usable(gpu) && (state.held.contains_key(&gpu.info.uuid) || state.closed(gpu).is_none());
                let device = Device {
                    id: gpu.info.uuid.clone(),
                    healthy,
                    numa: gpu.info.numa,
                };
                found
                    .entry(names::RESOURCE_GPU.to_owned())
                    .or_default()
                    .push(device);
            }
        }
    }
    found
}

/// Every legal place of a GPU in MIG mode.
fn places(state: &State, gpu: &Gpu, found: &mut BTreeMap<String, Vec<Device>>) {
    let Some(board) = &gpu.info.board else { return };
    let busy = state.layout(gpu).busy();
    let closed = state.closed(gpu).is_some();
    for row in &board.profiles {
        let offered = if closed {
            Vec::new()
        } else {
            busy.offered(board, row.profile)
        };
        let devices = row.starts.iter().map(|start| {
            let place = Place::new(row.profile, *start);
            let id = DeviceId::new(gpu.info.uuid.clone(), place).to_string();
            // an id in use may not turn unhealthy for bookkeeping: the kubelet would refuse its pod after a reboot
            let healthy = offered.contains(&place) || (state.held.contains_key(&id) && sound(gpu, place));
            Device {
                id,
                healthy: healthy && usable(gpu),
                numa: gpu.info.numa,
            }
        });
        found
            .entry(names::resource(row.profile))
            .or_default()
            .extend(devices);
    }
}

/// The slices that exist on a GPU, by their own UUIDs.
fn slices(
    state: &State,
    gpu: &Gpu,
    found: &mut BTreeMap<String, Vec<Device>>,
    resource: impl Fn(shared::mig::Profile) -> String,
) {
    let closed = state.closed(gpu).is_some();
    for (place, slice) in gpu.slices.iter().filter(|(_, slice)| slice.instance.is_slice()) {
        let id = slice.instance.uuid.clone();
        let healthy = usable(gpu) && slice.fault.is_none() && (!closed || state.held.contains_key(&id));
        let device = Device {
            id,
            healthy,
            numa: gpu.info.numa,
        };
        found.entry(resource(place.profile)).or_default().push(device);
    }
}

/// What NVIDIA's strategy `single` demands: one MIG mode on all GPUs, and with it on, slices of one profile on
/// each. Gives the profile, or `None` with MIG mode off.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn single_profile(state: &State) -> Result<Option<shared::mig::Profile>, String> {
    let on = state.gpus.iter().filter(|gpu| gpu.info.mig).count();
    if on == 0 {
        return Ok(None);
    }
    if on < state.gpus.len() {
        return Err(
            "strategy single needs the same MIG mode on all GPUs; set it on all, or use mixed".to_owned(),
        );
    }
    let mut profile = None;
    for gpu in &state.gpus {
        let mut slices = gpu
            .slices
            .iter()
            .filter(|(_, slice)| slice.instance.is_slice())
            .peekable();
        if slices.peek().is_none() {
            let uuid = &gpu.info.uuid;
            return Err(format!(
                "strategy single needs slices on all GPUs; {uuid} has none: cut some, or use mixed"
            ));
        }
        for (place, _) in slices {
            if *profile.get_or_insert(place.profile) != place.profile {
                return Err(
                    "strategy single needs slices of one profile; recut them, or use mixed".to_owned(),
                );
            }
        }
    }
    Ok(profile)
}

/// Whether anything on a GPU works. A suspect GPU does, for those who are on it.
fn usable(gpu: &Gpu) -> bool {
    gpu.health != Health::Unhealthy
}

/// Whether the slice at a place, if there is one, works.
fn sound(gpu: &Gpu, place: Place) -> bool {
    gpu.slices.get(&place).is_none_or(|slice| slice.fault.is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
    use shared::mig::layout::enumerate;
    use tokio::time::Instant;

    use super::super::{Held, SliceState};
    use super::*;
    use crate::gpus::fake::Fake;
    use crate::gpus::{Gpus, Instance};

    /// A node whose GPU 0 has these places, each held or idle.
    fn state(places: &[(Place, bool)]) -> State {
        let info = Fake::node("H100-80GB", 1).list().unwrap().remove(0);
        let uuid = info.uuid.clone();
        let mut gpu = Gpu {
            info,
            slices: BTreeMap::new(),
            health: Health::Healthy,
            message: String::new(),
        };
        let mut state = State {
            strategy: Strategy::Dynamic,
            ..State::default()
        };
        for (at, (place, held)) in places.iter().enumerate() {
            let instance = Instance {
                place: *place,
                gi: 1,
                ci: Some(0),
                uuid: format!("MIG-{at}"),
                partial: 0,
            };
            gpu.slices
                .insert(*place, SliceState::new(instance, Instant::now()));
            if *held {
                let id = DeviceId::new(uuid.clone(), *place).to_string();
                state.held.insert(id, Held::new("", 0, Instant::now()));
            }
        }
        state.gpus.push(gpu);
        state
    }

    fn healthy(state: &State) -> BTreeMap<String, usize> {
        let count = |devices: &Vec<Device>| devices.iter().filter(|device| device.healthy).count();
        resources(state, &BTreeMap::new())
            .iter()
            .map(|(name, devices)| (name.clone(), count(devices)))
            .collect()
    }

    #[test]
    fn an_empty_gpu_offers_everything_and_a_full_one_only_what_is_held() {
        let empty = healthy(&state(&[]));
        let expect = [
            ("1g.10gb", 7),
            ("1g.10gb.me", 1),
            ("1g.20gb", 4),
            ("2g.20gb", 3),
            ("3g.40gb", 2),
            ("4g.40gb", 1),
            ("7g.80gb", 1),
        ];
        for (profile, count) in expect {
            assert_eq!(empty[&format!("nvidia.com/mig-{profile}")], count, "{profile}");
        }
        let full = healthy(&state(&[("7g.80gb:0".parse().unwrap(), true)]));
        assert_eq!(full.values().sum::<usize>(), 1);
        assert_eq!(full["nvidia.com/mig-7g.80gb"], 1);
    }

    #[test]
    fn a_closed_gpu_keeps_what_is_held_and_a_broken_one_nothing() {
        let place: Place = "2g.20gb:4".parse().unwrap();
        let mut state = state(&[(place, true)]);
        state.spec.paused = true;
        assert_eq!(healthy(&state).values().sum::<usize>(), 1);
        state.gpus[0].health = Health::Suspect;
        assert_eq!(healthy(&state).values().sum::<usize>(), 1);
        state.gpus[0].health = Health::Unhealthy;
        assert_eq!(healthy(&state).values().sum::<usize>(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn healthy_devices_are_what_brute_force_counts(at in 0..2319_usize, held in proptest::collection::vec(any::<bool>(), 8)) {
            let board = shared::mig::Board::named("H100-80GB").unwrap();
            let layouts = enumerate(board, |_| true);
            let slices = layouts[at].slices();
            let places: Vec<_> = slices.iter().zip(held).map(|(slice, held)| (slice.place, held)).collect();
            let state = state(&places);
            let counts = healthy(&state);
            for row in &board.profiles {
                // the most slices of the profile that any legal layout has which keeps every held slice
                let most = layouts.iter().filter(|layout| {
                    places.iter().all(|(place, held)| !held || layout.at(*place).is_some())
                        && layout.slices().iter().all(|slice| {
                            slice.place.profile == row.profile || places.contains(&(slice.place, true))
                        })
                });
                let count = |layout: &shared::mig::Layout| layout.slices().iter().filter(|slice| slice.place.profile == row.profile).count();
                let most = most.map(count).max().unwrap_or(0);
                prop_assert_eq!(counts[&names::resource(row.profile)], most, "{}", row.profile);
            }
        }
    }
}

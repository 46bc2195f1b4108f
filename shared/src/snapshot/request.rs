//! What a pod asks of us: how many slices of which profile, container by container, as the kubelet counts them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::CpuMemory;
use crate::mig::Profile;
use crate::names::{self, Asked, DeviceId, Placements};

/// What a pod asks of us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// In the order in which the kubelet admits containers: init containers and sidecars as written, then the rest.
    pub wants: Vec<Want>,
    /// CPU and memory that it asks besides. Kube-scheduler sees to it that they are there; to us they tell which
    /// nodes would be left with GPUs and no CPU to use them.
    pub besides: CpuMemory,
}

/// What one container asks of us, of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Name of the container.
    pub container: String,
    /// When it runs.
    pub phase: Phase,
    /// A profile; `None` is a whole GPU.
    pub profile: Option<Profile>,
    /// How many, at least 1.
    pub count: u32,
}

/// When a container runs, which decides who may use its slices afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It ends before the pod's containers start; they get its slices.
    Init,
    /// A restartable init container: it keeps what it has.
    Sidecar,
    /// A container of the pod.
    Main,
}

/// A request that cannot be read or can never be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// `nvidia.com/mig-<something>`.
    #[error("container {container}: {resource} names no MIG profile; write it like nvidia.com/mig-2g.20gb")]
    UnknownProfile {
        /// The container.
        container: String,
        /// The resource as written.
        resource: String,
    },
    /// Not a whole number from 0 to 1000.
    #[error("container {container}: {resource} is {value:?}; ask for a whole number of slices, at most {max}", max = Request::MAX_COUNT)]
    Count {
        /// The container.
        container: String,
        /// The resource as written.
        resource: String,
        /// The quantity as written.
        value: String,
    },
}

impl Request {
    /// Most slices of one profile that a container may ask for; more than any node has.
    pub const MAX_COUNT: u32 = 256;

    /// So many slices of a profile for one container, or so many whole GPUs where there is none.
    #[must_use]
    pub fn of_one(container: &str, profile: Option<Profile>, count: u32) -> Self {
        Self {
            wants: vec![Want {
                container: container.to_owned(),
                phase: Phase::Main,
                profile,
                count,
            }],
            ..Self::default()
        }
    }

    /// Reads a pod. A pod that asks nothing of ours gives an empty request.
    ///
    /// # Errors
    /// [`BadRequest`] says which container asks for what in the wrong way.
    pub fn of_pod(pod: &Pod) -> Result<Self, BadRequest> {
        let Some(spec) = &pod.spec else {
            return Ok(Self::default());
        };
        let mut wants = Vec::new();
        for container in spec.init_containers.iter().flatten() {
            let restarts = container.restart_policy.as_deref() == Some("Always");
            read(
                container,
                if restarts { Phase::Sidecar } else { Phase::Init },
                &mut wants,
            )?;
        }
        for container in &spec.containers {
            read(container, Phase::Main, &mut wants)?;
        }
        Ok(Self {
            wants,
            besides: CpuMemory::of_pod(pod),
        })
    }

    /// Whether the pod asks nothing of ours.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    /// What has to be there for the pod, largest profile first; whole GPUs (`None`) before slices. An init
    /// container's slices are counted once: the containers after it get them.
    #[must_use]
    pub fn distinct(&self) -> Vec<(Option<Profile>, u32)> {
        let mut needed: BTreeMap<Option<Profile>, u32> = BTreeMap::new();
        let mut spare: BTreeMap<Option<Profile>, u32> = BTreeMap::new();
        for want in &self.wants {
            let spare = spare.entry(want.profile).or_default();
            let reused = want.count.min(*spare);
            *needed.entry(want.profile).or_default() += want.count - reused;
            *spare = if want.phase == Phase::Init {
                (*spare).max(want.count)
            } else {
                *spare - reused
            };
        }
        let mut needed: Vec<_> = needed.into_iter().filter(|(_, count)| *count > 0).collect();
        needed.sort_by_key(|(profile, _)| (profile.is_some(), std::cmp::Reverse(*profile)));
        needed
    }

    /// Hands places, one for each of [`Request::distinct`], to the containers, in the order given.
    #[must_use]
    pub fn assign(&self, places: &[DeviceId]) -> Placements {
        let mut fresh: BTreeMap<Profile, std::collections::VecDeque<DeviceId>> = BTreeMap::new();
        for place in places {
            fresh
                .entry(place.place.profile)
                .or_default()
                .push_back(place.clone());
        }
        let mut spare: BTreeMap<Profile, Vec<DeviceId>> = BTreeMap::new();
        let mut placements = Placements::default();
        for want in &self.wants {
            let Some(profile) = want.profile else { continue };
            let spare = spare.entry(profile).or_default();
            let count = want.count as usize;
            let mut given: Vec<DeviceId> = spare.drain(..count.min(spare.len())).collect();
            let fresh = fresh.entry(profile).or_default();
            given.extend(fresh.drain(..(count - given.len()).min(fresh.len())));
            if want.phase == Phase::Init {
                let kept = std::mem::take(spare);
                *spare = given.iter().cloned().chain(kept).collect();
            }
            placements
                .0
                .entry(want.container.clone())
                .or_default()
                .extend(given);
        }
        placements
    }

    /// The request in words: `2 x 1g.10gb + 2g.20gb`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let word = |(profile, count): &(Option<Profile>, u32)| {
            let name = profile.map_or_else(|| "whole GPU".to_owned(), |profile| profile.to_string());
            if *count == 1 {
                name
            } else {
                format!("{count} x {name}")
            }
        };
        self.distinct().iter().map(word).collect::<Vec<_>>().join(" + ")
    }
}

/// Adds what one container asks. Limits count where both are given: for extended resources they are equal.
fn read(container: &Container, phase: Phase, wants: &mut Vec<Want>) -> Result<(), BadRequest> {
    let Some(resources) = &container.resources else {
        return Ok(());
    };
    let mut asked: BTreeMap<&String, &Quantity> = resources.requests.iter().flatten().collect();
    asked.extend(resources.limits.iter().flatten());
    for (resource, quantity) in asked {
        let profile = match names::parse_resource(resource) {
            None => continue,
            Some(Asked::WholeGpu) => None,
            Some(Asked::Slice(profile)) => Some(profile),
            Some(Asked::Unknown(_)) => {
                return Err(BadRequest::UnknownProfile {
                    container: container.name.clone(),
                    resource: resource.clone(),
                });
            }
        };
        let count = quantity
            .0
            .parse()
            .ok()
            .filter(|count: &u32| *count <= Request::MAX_COUNT);
        let count = count.ok_or_else(|| BadRequest::Count {
            container: container.name.clone(),
            resource: resource.clone(),
            value: quantity.0.clone(),
        })?;
        if count > 0 {
            wants.push(Want {
                container: container.name.clone(),
                phase,
                profile,
                count,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(init: serde_json::Value, main: serde_json::Value) -> Result<Request, BadRequest> {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"initContainers": init, "containers": main}});
        Request::of_pod(&serde_json::from_value(pod).unwrap())
    }

    fn container(name: &str, resource: &str, count: &str) -> serde_json::Value {
        json!({"name": name, "resources": {"limits": {resource: count, "cpu": "1"}, "requests": {resource: count}}})
    }

    #[test]
    fn a_pod_without_gpus_asks_nothing() {
        assert!(request(json!([]), json!([{"name": "a"}])).unwrap().is_empty());
    }

    #[test]
    fn init_slices_are_handed_on_and_counted_once() {
        let resource = "nvidia.com/mig-1g.10gb";
        let init = container("prepare", resource, "2");
        let request = request(
            json!([init]),
            json!([container("a", resource, "1"), container("b", resource, "2")]),
        )
        .unwrap();
        let profile: Profile = "1g.10gb".parse().unwrap();
        assert_eq!(request.distinct(), [(Some(profile), 3)]);
        let places: Vec<DeviceId> = (0..3)
            .map(|at| format!("GPU-1:1g.10gb:{at}").parse().unwrap())
            .collect();
        assert_eq!(
            request.assign(&places).to_string(),
            "a=GPU-1:1g.10gb:0;b=GPU-1:1g.10gb:1,GPU-1:1g.10gb:2;prepare=GPU-1:1g.10gb:0,GPU-1:1g.10gb:1"
        );
    }

    #[test]
    fn a_sidecar_keeps_what_it_has() {
        let resource = "nvidia.com/mig-1g.10gb";
        let mut sidecar = container("proxy", resource, "1");
        sidecar["restartPolicy"] = json!("Always");
        let request = request(json!([sidecar]), json!([container("a", resource, "1")])).unwrap();
        assert_eq!(request.in_words(), "2 x 1g.10gb");
    }

    #[test]
    fn a_request_that_cannot_be_met_is_named_with_its_container() {
        let bad = request(json!([]), json!([container("a", "nvidia.com/mig-9x", "1")]))
            .unwrap_err()
            .to_string();
        assert_eq!(
            bad,
            "container a: nvidia.com/mig-9x names no MIG profile; write it like nvidia.com/mig-2g.20gb"
        );
        for count in ["-1", "1.5", "257", "many"] {
            let bad = request(json!([]), json!([container("a", "nvidia.com/gpu", count)]))
                .unwrap_err()
                .to_string();
            assert!(bad.contains("whole number of slices, at most 256"), "{bad}");
        }
    }
}

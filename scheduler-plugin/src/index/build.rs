//! One node of the snapshot from what is known of it. Used is what its agent reports, and what is promised to the
//! pods on it and has not been reported yet, and what is reserved.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::api::gpu_node::{GpuStatus, Health, Holder};
use shared::api::gpu_pool::Mode;
use shared::mig::{Board, Profile, Slice, Use};
use shared::names::{DeviceId, Placements};
use shared::snapshot::{CpuMemory, Gpu, Node, NodeState, Outlook, Owner};

use super::reservations::Reservation;
use super::usage::take_whole;
use crate::watch::gpu_nodes::{GpuNodePart, Serves};
use crate::watch::nodes::NodePart;
use crate::watch::pods::PodPart;
use crate::writer::PodRef;

/// What is known of a node.
pub struct Known<'a> {
    /// Its Node.
    pub node: &'a NodePart,
    /// Its GpuNode.
    pub gpus: &'a GpuNodePart,
    /// The placement tables of the GpuNode, shared between nodes.
    pub boards: &'a [Arc<Board>],
    /// The mode of its pool.
    pub mode: Mode,
    /// The pods on it.
    pub pods: Vec<&'a PodPart>,
    /// What is reserved on it.
    pub reservations: Vec<&'a Reservation>,
    /// CPU and memory that nobody has, where known.
    pub free: Option<CpuMemory>,
    /// Whole GPUs that pods were promised: whose, and how many.
    pub whole: Vec<(Owner, u32)>,
    /// The label that names its rack.
    pub rack_label: &'a str,
    /// The load that is expected of it, where any is.
    pub outlook: Option<Outlook>,
    /// A refused pod whose places the pod in question was given: what the agent still counts as its is free.
    pub forgiven: Option<&'a PodRef>,
    /// Version of the result.
    pub version: u64,
}

/// A node, and how many of its places the annotations and the agent disagree about.
pub struct Built {
    /// The node.
    pub node: Node,
    /// Annotated places of started containers that hold others by the agent's account.
    pub drift: usize,
}

impl Known<'_> {
    /// Puts it together.
    #[must_use]
    pub fn build(&self) -> Built {
        let mut gpus: Vec<Gpu> = self.gpus.gpus.iter().flat_map(|gpu| self.gpu(gpu)).collect();
        let mut drift = 0;
        for pod in &self.pods {
            let Some(placements) = pod.holds() else { continue };
            let (held, contradicted) = self.held(pod, placements);
            drift += contradicted;
            hold(&mut gpus, held, &pod.pod.owner());
        }
        for reservation in &self.reservations {
            hold(
                &mut gpus,
                reservation.placements.places().into_iter().collect(),
                &reservation.pod.owner(),
            );
        }
        let mode = if self.gpus.serves == Serves::AsAsked {
            self.mode
        } else {
            Mode::Static
        };
        let mut node = Node {
            state: self.state(),
            mode,
            free: self.free,
            model: self.gpus.model().map(Arc::from),
            rack: self
                .node
                .labels
                .get(self.rack_label)
                .map(|rack| rack.as_str().into()),
            outlook: self.outlook,
            version: self.version,
            ..Node::new(self.gpus.name.clone(), gpus)
        };
        for (owner, count) in &self.whole {
            take_whole(&mut node, owner, *count);
        }
        Built { node, drift }
    }

    fn state(&self) -> NodeState {
        match (self.gpus.ready && !self.is_of_another_boot(), self.gpus.paused) {
            (false, _) => NodeState::Away,
            (true, true) => NodeState::Paused,
            (true, false) => NodeState::Ready,
        }
    }

    /// Whether the status was written before the node's last boot. Slices do not survive a boot; the agent cuts
    /// again what its pods had, and until it says so the node takes nothing new.
    fn is_of_another_boot(&self) -> bool {
        let (now, then) = (&self.node.boot_id, &self.gpus.boot_id);
        !now.is_empty() && !then.is_empty() && now != then
    }

    fn gpu(&self, status: &GpuStatus) -> Vec<Gpu> {
        if self.gpus.serves == Serves::WhatIsThereAsGpus && status.mig {
            return self.slices_as_gpus(status);
        }
        let board = self
            .boards
            .iter()
            .find(|board| status.mig && board.name == status.board);
        let mut gpu = Gpu::new(status.uuid.clone(), status.index, board.cloned());
        // in MIG mode, yet without a table: nobody can say what fits
        gpu.health = if status.mig && board.is_none() {
            Health::Suspect
        } else {
            status.health
        };
        gpu.withheld = self.gpus.withheld.contains(&status.uuid);
        gpu.whole = status.holder.as_ref().map(|holder| self.holder(holder));
        for slice in &status.slices {
            let holder = slice.holder.as_ref().map(|holder| self.holder(holder));
            // after a boot only what a pod still has will be cut again
            let gone = self.is_of_another_boot() && holder.as_ref().is_none_or(|owner| owner.uid.is_empty());
            let forgiven = self.forgiven.is_some_and(|pod| {
                let of = |holder: &Holder| holder.namespace == pod.namespace && holder.pod == pod.name;
                slice.holder.as_ref().is_some_and(of)
            });
            let (used, holder) = if forgiven {
                (Use::Idle, None)
            } else {
                (slice.state, holder)
            };
            if !gone {
                gpu.put(
                    Slice {
                        place: slice.place,
                        used,
                    },
                    holder,
                );
            }
        }
        vec![gpu]
    }

    /// Where every slice is served as `nvidia.com/gpu`, each is a whole GPU to us.
    fn slices_as_gpus(&self, status: &GpuStatus) -> Vec<Gpu> {
        let slice = |slice: &shared::api::gpu_node::SliceStatus| {
            let mut gpu = Gpu::new(format!("{}:{}", status.uuid, slice.place), status.index, None);
            gpu.health = status.health;
            gpu.withheld = self.gpus.withheld.contains(&status.uuid);
            let unknown = || Owner {
                namespace: String::new(),
                pod: String::new(),
                uid: String::new(),
            };
            let holder = slice.holder.as_ref().map(|holder| self.holder(holder));
            gpu.whole = (slice.state != Use::Idle).then(|| holder.unwrap_or_else(unknown));
            gpu
        };
        status.slices.iter().map(slice).collect()
    }

    fn holder(&self, holder: &Holder) -> Owner {
        let is = |pod: &&&PodPart| {
            pod.pod.namespace == holder.namespace && pod.pod.name == holder.pod && !pod.ended
        };
        let uid = self
            .pods
            .iter()
            .find(is)
            .map(|pod| pod.pod.uid.clone())
            .unwrap_or_default();
        Owner {
            namespace: holder.namespace.clone(),
            pod: holder.pod.clone(),
            uid,
        }
    }

    /// The annotated places that a pod holds beyond what the agent reports, and how many the agent contradicts.
    /// The kubelet may give a container another slice of the same profile than the one written; once it has
    /// started with as many as it asked for, the agent's account of what it has is the truth.
    fn held<'p>(&self, pod: &PodPart, placements: &'p Placements) -> (BTreeSet<&'p DeviceId>, usize) {
        let (mut held, mut settled, mut drift) = (BTreeSet::new(), BTreeSet::new(), 0);
        for (container, places) in &placements.0 {
            let actual = self.reported(pod, container);
            if pod.started.contains(container) && profiles(places.iter()) == profiles(actual.iter()) {
                drift += places.iter().filter(|place| !actual.contains(place)).count();
                settled.extend(places);
            } else {
                held.extend(places);
            }
        }
        // an init container's slices were handed on to containers that may hold others by now
        held.retain(|place| !settled.contains(place));
        (held, drift)
    }

    fn reported(&self, pod: &PodPart, container: &str) -> Vec<DeviceId> {
        let is = |holder: &Holder| {
            holder.namespace == pod.pod.namespace
                && holder.pod == pod.pod.name
                && holder.container == container
        };
        let of_gpu = |gpu: &GpuStatus| -> Vec<DeviceId> {
            let held = gpu
                .slices
                .iter()
                .filter(|slice| slice.holder.as_ref().is_some_and(is));
            held.map(|slice| DeviceId::new(gpu.uuid.clone(), slice.place))
                .collect()
        };
        self.gpus.gpus.iter().flat_map(of_gpu).collect()
    }
}

fn profiles<'a>(places: impl Iterator<Item = &'a DeviceId>) -> Vec<Profile> {
    let mut profiles: Vec<Profile> = places.map(|device| device.place.profile).collect();
    profiles.sort_unstable();
    profiles
}

fn hold(gpus: &mut [Gpu], places: BTreeSet<&DeviceId>, owner: &Owner) {
    for device in places {
        // a GPU that left the node takes its promises with it
        if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == device.gpu) {
            gpu.hold(device.place, owner.clone());
        }
    }
}

#[cfg(test)]
mod tests;

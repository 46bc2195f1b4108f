//! What a Pod tells: what it asks of us, which node it is on, and which places it holds.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use shared::names::{self, BadName, Placements};
use shared::snapshot::request::BadRequest;
use shared::snapshot::{CpuMemory, Request};

use super::nominated::Nominated;
use super::rules::NodeRules;
use crate::writer::PodRef;

pub mod message;
mod unpack;

/// `status.reason` of a pod that the kubelet refused because a device it was promised was not there.
const ADMISSION_ERROR: &str = "UnexpectedAdmissionError";

/// A pod, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPart {
    /// Which pod.
    pub pod: PodRef,
    /// Version of the object.
    pub resource_version: String,
    /// When it was made, seconds since 1970.
    pub created: i64,
    /// What it asks of us.
    pub request: Result<Request, BadRequest>,
    /// CPU and memory it asks of its node.
    pub besides: CpuMemory,
    /// Where it is.
    pub node: Option<String>,
    /// The placement written on it.
    pub placement: Option<Result<Placements, BadName>>,
    /// Containers that the kubelet has started, so that it knows better than the annotation what they have.
    pub started: BTreeSet<String>,
    /// It is Succeeded or Failed.
    pub ended: bool,
    /// It is being deleted. It still holds what it has: its containers may run for the whole grace period.
    pub deleting: bool,
    /// kube-scheduler found no node for it.
    pub unschedulable: bool,
    /// Which nodes it may go to, as far as labels and taints tell.
    pub rules: NodeRules,
    /// Its priority.
    pub priority: i32,
    /// The scheduler that it waits for.
    pub scheduler: String,
    /// It waits for somebody to open its scheduling gates.
    pub gated: bool,
    /// The node it is nominated to.
    pub nominated: Option<Nominated>,
    /// UID of the controller that owns it.
    pub controller: Option<String>,
    /// The kubelet refused it, and a controller will make another.
    pub refused_and_replaceable: bool,
}

impl PodPart {
    /// Reads a Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let status = pod.status.as_ref();
        let phase = status
            .and_then(|status| status.phase.as_deref())
            .unwrap_or_default();
        let annotation = meta
            .annotations
            .as_ref()
            .and_then(|all| all.get(names::ANNOTATION_PLACEMENT));
        let spec = pod.spec.as_ref();
        let node = spec
            .and_then(|spec| spec.node_name.clone())
            .filter(|node| !node.is_empty());
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone());
        let reason = status.and_then(|status| status.reason.as_deref());
        let unschedulable = status
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|conditions| {
                conditions.iter().any(|condition| {
                    condition.type_ == "PodScheduled"
                        && condition.status == "False"
                        && condition.reason.as_deref() == Some("Unschedulable")
                })
            });
        Self {
            pod: PodRef {
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
                uid: meta.uid.clone().unwrap_or_default(),
            },
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(0, |created| created.0.as_second()),
            request: Request::of_pod(pod),
            besides: CpuMemory::of_pod(pod),
            node,
            placement: annotation.map(|text| text.parse()),
            started: started(pod),
            ended: matches!(phase, "Succeeded" | "Failed"),
            deleting: meta.deletion_timestamp.is_some(),
            unschedulable,
            rules: NodeRules::of(pod),
            priority: spec.and_then(|spec| spec.priority).unwrap_or_default(),
            scheduler: spec
                .and_then(|spec| spec.scheduler_name.clone())
                .unwrap_or_default(),
            gated: spec.is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some()),
            nominated: Nominated::of(pod),
            refused_and_replaceable: phase == "Failed"
                && reason == Some(ADMISSION_ERROR)
                && controller.is_some(),
            controller,
        }
    }

    /// Whether it asks something of us, rightly or wrongly.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.request.as_ref().map_or(true, |request| !request.is_empty())
    }

    /// Whether it asks for whole GPUs.
    #[must_use]
    pub fn asks_whole_gpus(&self) -> bool {
        let wants = self.request.as_ref().map(|request| &request.wants);
        wants.is_ok_and(|wants| wants.iter().any(|want| want.profile.is_none()))
    }

    /// Whether the books need it: it asks something of us, says that it holds something, or waits for a node (so
    /// that it can be bound without a look-up).
    #[must_use]
    pub fn matters(&self) -> bool {
        self.asks() || self.placement.is_some() || self.node.is_none()
    }

    /// The places that its annotation holds on its node. A pod that ended holds nothing by its annotation: what it
    /// had is used until its agent says otherwise.
    #[must_use]
    pub fn holds(&self) -> Option<&Placements> {
        let placements = self.placement.as_ref()?.as_ref().ok()?;
        (self.node.is_some() && !self.ended).then_some(placements)
    }
}

/// Containers that run or ran: their devices were given to them.
fn started(pod: &Pod) -> BTreeSet<String> {
    let Some(status) = &pod.status else {
        return BTreeSet::new();
    };
    let all = status
        .container_statuses
        .iter()
        .flatten()
        .chain(status.init_container_statuses.iter().flatten());
    let given = all.filter(|container| container.container_id.as_ref().is_some_and(|id| !id.is_empty()));
    given.map(|container| container.name.clone()).collect()
}

#[cfg(test)]
mod tests;

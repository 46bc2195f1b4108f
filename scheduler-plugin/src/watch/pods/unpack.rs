//! Makes of a [`PodMessage`] the Pod that [`super::PodPart`] reads, so that there is one reading of pods, in whatever
//! language they come. Strings are moved, not copied.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use shared::names::MANAGER_SCHEDULER;

use super::message::{self, PodMessage};

impl From<PodMessage> for api::Pod {
    fn from(pod: PodMessage) -> Self {
        Self {
            metadata: pod.metadata.map(meta).unwrap_or_default(),
            spec: pod.spec.map(spec),
            status: pod.status.map(status),
        }
    }
}

fn meta(from: message::ObjectMeta) -> meta::ObjectMeta {
    let owner = |owner: message::OwnerReference| meta::OwnerReference {
        uid: owner.uid,
        controller: owner.controller,
        ..meta::OwnerReference::default()
    };
    meta::ObjectMeta {
        name: text(from.name),
        namespace: text(from.namespace),
        uid: text(from.uid),
        resource_version: text(from.resource_version),
        creation_timestamp: from.creation_timestamp.and_then(time),
        deletion_timestamp: from.deletion_timestamp.and_then(time),
        annotations: map(from.annotations),
        owner_references: list(from.owner_references, owner),
        // who else wrote what is of no use here, and is the larger part of most pods
        managed_fields: list(
            from.managed_fields
                .into_iter()
                .filter(|entry| entry.manager == MANAGER_SCHEDULER),
            managed,
        ),
        ..meta::ObjectMeta::default()
    }
}

fn managed(from: message::ManagedFieldsEntry) -> meta::ManagedFieldsEntry {
    let fields = from
        .fields_v1
        .and_then(|fields| serde_json::from_slice(&fields.raw).ok());
    meta::ManagedFieldsEntry {
        manager: text(from.manager),
        fields_v1: fields.map(meta::FieldsV1),
        ..meta::ManagedFieldsEntry::default()
    }
}

fn spec(from: message::PodSpec) -> api::PodSpec {
    let spread = |one: message::TopologySpreadConstraint| api::TopologySpreadConstraint {
        when_unsatisfiable: one.when_unsatisfiable,
        ..api::TopologySpreadConstraint::default()
    };
    api::PodSpec {
        volumes: list(from.volumes, volume),
        containers: from.containers.into_iter().map(container).collect(),
        init_containers: list(from.init_containers, container),
        node_selector: map(from.node_selector),
        node_name: text(from.node_name),
        affinity: from.affinity.map(affinity),
        scheduler_name: text(from.scheduler_name),
        tolerations: list(from.tolerations, toleration),
        priority: from.priority,
        overhead: quantities(from.overhead),
        topology_spread_constraints: list(from.topology_spread_constraints, spread),
        scheduling_gates: list(from.scheduling_gates, unread),
        resource_claims: list(from.resource_claims, unread),
        resources: from.resources.map(resources),
        ..api::PodSpec::default()
    }
}

fn volume(from: message::Volume) -> api::Volume {
    let source = from.source.unwrap_or_default();
    api::Volume {
        persistent_volume_claim: source.persistent_volume_claim.map(unread),
        csi: source.csi.map(unread),
        ephemeral: source.ephemeral.map(unread),
        ..api::Volume::default()
    }
}

fn container(from: message::Container) -> api::Container {
    let port = |port: message::ContainerPort| api::ContainerPort {
        host_port: Some(port.host_port),
        ..api::ContainerPort::default()
    };
    api::Container {
        name: from.name,
        ports: list(from.ports, port),
        resources: from.resources.map(resources),
        restart_policy: from.restart_policy,
        ..api::Container::default()
    }
}

fn resources(from: message::ResourceRequirements) -> api::ResourceRequirements {
    api::ResourceRequirements {
        limits: quantities(from.limits),
        requests: quantities(from.requests),
        ..api::ResourceRequirements::default()
    }
}

fn affinity(from: message::Affinity) -> api::Affinity {
    let near = |from: message::Neighbours| api::PodAffinity {
        required_during_scheduling_ignored_during_execution: list(from.required, unread),
        preferred_during_scheduling_ignored_during_execution: list(from.preferred, unread),
    };
    let far = |from: message::Neighbours| api::PodAntiAffinity {
        required_during_scheduling_ignored_during_execution: list(from.required, unread),
        preferred_during_scheduling_ignored_during_execution: list(from.preferred, unread),
    };
    api::Affinity {
        node_affinity: from.node.map(node_affinity),
        pod_affinity: from.near.map(near),
        pod_anti_affinity: from.far.map(far),
    }
}

fn node_affinity(from: message::NodeAffinity) -> api::NodeAffinity {
    let requirement = |one: message::NodeSelectorRequirement| api::NodeSelectorRequirement {
        key: one.key,
        operator: one.operator,
        values: some(one.values),
    };
    let term = |one: message::NodeSelectorTerm| api::NodeSelectorTerm {
        match_expressions: list(one.match_expressions, requirement),
        match_fields: list(one.match_fields, requirement),
    };
    api::NodeAffinity {
        required_during_scheduling_ignored_during_execution: from.required.map(|selector| {
            api::NodeSelector {
                node_selector_terms: selector.terms.into_iter().map(term).collect(),
            }
        }),
        preferred_during_scheduling_ignored_during_execution: list(from.preferred, unread),
    }
}

fn toleration(from: message::Toleration) -> api::Toleration {
    api::Toleration {
        key: text(from.key),
        operator: text(from.operator),
        value: text(from.value),
        effect: text(from.effect),
        toleration_seconds: from.seconds,
    }
}

fn status(from: message::PodStatus) -> api::PodStatus {
    let condition = |one: message::PodCondition| api::PodCondition {
        type_: one.r#type,
        status: one.status,
        reason: text(one.reason),
        ..api::PodCondition::default()
    };
    let container = |one: message::ContainerStatus| api::ContainerStatus {
        name: one.name,
        container_id: text(one.container_id),
        ..api::ContainerStatus::default()
    };
    api::PodStatus {
        phase: text(from.phase),
        conditions: list(from.conditions, condition),
        reason: text(from.reason),
        container_statuses: list(from.container_statuses, container),
        init_container_statuses: list(from.init_container_statuses, container),
        nominated_node_name: text(from.nominated_node_name),
        ..api::PodStatus::default()
    }
}

/// What is empty is not there: protobuf does not tell the two apart, and JSON leaves it out.
fn text(from: String) -> Option<String> {
    Some(from).filter(|text| !text.is_empty())
}

fn map<V>(from: BTreeMap<String, V>) -> Option<BTreeMap<String, V>> {
    Some(from).filter(|map| !map.is_empty())
}

fn some<T>(from: Vec<T>) -> Option<Vec<T>> {
    Some(from).filter(|list| !list.is_empty())
}

fn list<F, T>(from: impl IntoIterator<Item = F>, each: impl Fn(F) -> T) -> Option<Vec<T>> {
    some(from.into_iter().map(each).collect())
}

fn quantities(from: BTreeMap<String, message::Quantity>) -> Option<BTreeMap<String, Quantity>> {
    map(from
        .into_iter()
        .map(|(name, quantity)| (name, Quantity(quantity.text)))
        .collect())
}

fn time(from: message::Time) -> Option<meta::Time> {
    Timestamp::from_second(from.seconds).ok().map(meta::Time)
}

fn unread<T: Default>(_: message::Unread) -> T {
    T::default()
}

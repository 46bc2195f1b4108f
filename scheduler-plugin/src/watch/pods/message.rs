//! A Pod as protobuf carries it: the fields that [`super::PodPart`] reads, and no others. The numbers are those of
//! `generated.proto` in `k8s.io/api/core/v1` and `k8s.io/apimachinery` (`pkg/apis/meta/v1`, `pkg/api/resource`);
//! Kubernetes never changes them. What the API server makes of a pod in JSON and in protobuf is compared by
//! `e2e/tests/cluster`.

use std::collections::BTreeMap;

use serve::watch::protobuf::Versioned;

/// A Pod.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<PodStatus>,
}

impl Versioned for PodMessage {
    const KIND: &'static str = "Pod";

    fn resource_version(&self) -> &str {
        self.metadata.as_ref().map_or("", |meta| &meta.resource_version)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(string, tag = "6")]
    pub(super) resource_version: String,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub(super) deletion_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(super) annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub(super) owner_references: Vec<OwnerReference>,
    #[prost(message, repeated, tag = "17")]
    pub(super) managed_fields: Vec<ManagedFieldsEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OwnerReference {
    #[prost(string, tag = "4")]
    pub(super) uid: String,
    #[prost(bool, optional, tag = "6")]
    pub(super) controller: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ManagedFieldsEntry {
    #[prost(string, tag = "1")]
    pub(super) manager: String,
    #[prost(message, optional, tag = "7")]
    pub(super) fields_v1: Option<FieldsV1>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FieldsV1 {
    /// JSON.
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) raw: bytes::Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSpec {
    #[prost(message, repeated, tag = "1")]
    pub(super) volumes: Vec<Volume>,
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<Container>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(super) node_selector: BTreeMap<String, String>,
    #[prost(string, tag = "10")]
    pub(super) node_name: String,
    #[prost(message, optional, tag = "18")]
    pub(super) affinity: Option<Affinity>,
    #[prost(string, tag = "19")]
    pub(super) scheduler_name: String,
    #[prost(message, repeated, tag = "20")]
    pub(super) init_containers: Vec<Container>,
    #[prost(message, repeated, tag = "22")]
    pub(super) tolerations: Vec<Toleration>,
    #[prost(int32, optional, tag = "25")]
    pub(super) priority: Option<i32>,
    #[prost(btree_map = "string, message", tag = "32")]
    pub(super) overhead: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "33")]
    pub(super) topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[prost(message, repeated, tag = "38")]
    pub(super) scheduling_gates: Vec<Unread>,
    #[prost(message, repeated, tag = "39")]
    pub(super) resource_claims: Vec<Unread>,
    #[prost(message, optional, tag = "40")]
    pub(super) resources: Option<ResourceRequirements>,
}

/// Something of which only the number counts.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct Unread {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Volume {
    #[prost(message, optional, tag = "2")]
    pub(super) source: Option<VolumeSource>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct VolumeSource {
    #[prost(message, optional, tag = "10")]
    pub(super) persistent_volume_claim: Option<Unread>,
    #[prost(message, optional, tag = "28")]
    pub(super) csi: Option<Unread>,
    #[prost(message, optional, tag = "29")]
    pub(super) ephemeral: Option<Unread>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "6")]
    pub(super) ports: Vec<ContainerPort>,
    #[prost(message, optional, tag = "8")]
    pub(super) resources: Option<ResourceRequirements>,
    #[prost(string, optional, tag = "24")]
    pub(super) restart_policy: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct ContainerPort {
    #[prost(int32, tag = "2")]
    pub(super) host_port: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceRequirements {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) limits: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Quantity {
    #[prost(string, tag = "1")]
    pub(super) text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Affinity {
    #[prost(message, optional, tag = "1")]
    pub(super) node: Option<NodeAffinity>,
    #[prost(message, optional, tag = "2")]
    pub(super) near: Option<Neighbours>,
    #[prost(message, optional, tag = "3")]
    pub(super) far: Option<Neighbours>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeAffinity {
    #[prost(message, optional, tag = "1")]
    pub(super) required: Option<NodeSelector>,
    #[prost(message, repeated, tag = "2")]
    pub(super) preferred: Vec<Unread>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    pub(super) terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeSelectorTerm {
    #[prost(message, repeated, tag = "1")]
    pub(super) match_expressions: Vec<NodeSelectorRequirement>,
    #[prost(message, repeated, tag = "2")]
    pub(super) match_fields: Vec<NodeSelectorRequirement>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeSelectorRequirement {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) operator: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) values: Vec<String>,
}

/// Pod affinity and pod anti-affinity, which are alike.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Neighbours {
    #[prost(message, repeated, tag = "1")]
    pub(super) required: Vec<Unread>,
    #[prost(message, repeated, tag = "2")]
    pub(super) preferred: Vec<Unread>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Toleration {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) operator: String,
    #[prost(string, tag = "3")]
    pub(super) value: String,
    #[prost(string, tag = "4")]
    pub(super) effect: String,
    #[prost(int64, optional, tag = "5")]
    pub(super) seconds: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TopologySpreadConstraint {
    #[prost(string, tag = "3")]
    pub(super) when_unsatisfiable: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodStatus {
    #[prost(string, tag = "1")]
    pub(super) phase: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) conditions: Vec<PodCondition>,
    #[prost(string, tag = "4")]
    pub(super) reason: String,
    #[prost(message, repeated, tag = "8")]
    pub(super) container_statuses: Vec<ContainerStatus>,
    #[prost(message, repeated, tag = "10")]
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    #[prost(string, tag = "11")]
    pub(super) nominated_node_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodCondition {
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
    #[prost(string, tag = "5")]
    pub(super) reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "8")]
    pub(super) container_id: String,
}

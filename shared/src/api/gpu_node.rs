//! GpuNode: what a node has (status, written by its agent alone) and what is wanted of it (spec, written by the
//! scheduler and by people). Cluster-scoped, named as its Node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mig::{Board, Place, Profile, ProfileRow, Use};

/// What is wanted of a node's GPUs.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "migpool.dev",
    version = "v1alpha1",
    kind = "GpuNode",
    plural = "gpunodes",
    shortname = "gn",
    category = "migpool",
    status = "GpuNodeStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"GPUs","type":"integer","jsonPath":".status.summary.gpus"}"#,
    printcolumn = r#"{"name":"Slices","type":"integer","jsonPath":".status.summary.slices"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.summary.allocated"}"#,
    printcolumn = r#"{"name":"Free","type":"string","jsonPath":".status.summary.free"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Layout","type":"string","priority":1,"jsonPath":".status.summary.layout"}"#,
    printcolumn = r#"{"name":"Driver","type":"string","priority":1,"jsonPath":".status.driverVersion"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeSpec {
    /// Place nothing more here; running pods go on.
    pub paused: bool,
    /// Slices to keep ready before a pod asks for them.
    #[schemars(length(max = 128))]
    pub warm: Vec<GpuPlace>,
    /// GPUs to place nothing on.
    #[schemars(length(max = 32))]
    pub withhold: Vec<Withhold>,
}

/// A place on a named GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuPlace {
    /// UUID of the GPU.
    #[schemars(length(max = 64))]
    pub gpu: String,
    /// Profile and start.
    #[serde(flatten)]
    pub place: Place,
}

/// A GPU that is kept out of placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Withhold {
    /// UUID of the GPU.
    #[schemars(length(max = 64))]
    pub gpu: String,
    /// Why, for the people who will ask.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub reason: String,
}

/// What a node has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuNodeStatus {
    /// Generation of the spec that this status follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// NVIDIA driver, as NVML tells it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_version: String,
    /// MIG strategy of the agent: none, single, mixed or dynamic.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub strategy: String,
    /// Boot id of the node when this was written; another one means that the slices below are gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// Placement table of each kind of board here, as NVML reports it.
    #[schemars(length(max = 8))]
    pub boards: Vec<BoardStatus>,
    /// The GPUs, by index.
    #[schemars(length(max = 32))]
    pub gpus: Vec<GpuStatus>,
    /// Where the load of its GPUs is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The same in a line, for `kubectl get`.
    pub summary: Summary,
    /// Ready, StoodBack.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Where an agent tells load, and how it is known there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Address and port: `10.0.0.7:9404`, `[fd00::7]:9404`.
    #[schemars(length(max = 64))]
    pub address: String,
    /// SHA-256 of its certificate: `sha256:<64 hexadecimal digits>`.
    #[schemars(length(max = 71))]
    pub fingerprint: String,
}

/// Placement table of a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardStatus {
    /// Name in our catalogue, else the product name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// Memory slices.
    #[schemars(range(min = 1, max = 16))]
    pub memory_slices: u8,
    /// Compute slices.
    #[schemars(range(min = 1, max = 16))]
    pub compute_slices: u8,
    /// Profiles it offers.
    #[schemars(length(max = 32))]
    pub profiles: Vec<BoardProfile>,
}

/// One profile of a placement table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardProfile {
    /// The profile.
    pub profile: Profile,
    /// Memory slices it covers.
    #[schemars(range(min = 1, max = 16))]
    pub size: u8,
    /// Legal starts.
    #[schemars(length(max = 16))]
    pub starts: Vec<u8>,
    /// How many fit on an empty GPU.
    pub max: u8,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuStatus {
    /// UUID.
    #[schemars(length(max = 64))]
    pub uuid: String,
    /// NVML index.
    pub index: u32,
    /// Product name.
    #[schemars(length(max = 64))]
    pub model: String,
    /// Name of its [`BoardStatus`]; empty for a GPU without MIG.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub board: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// NUMA node, where the machine has more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Whether MIG mode is on.
    pub mig: bool,
    /// Health.
    pub health: Health,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
    /// Who has the whole GPU, when MIG mode is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The slices, by start.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub slices: Vec<SliceStatus>,
}

/// Health of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// It takes work.
    Healthy,
    /// Something went wrong that may pass; nothing new is placed on it.
    Suspect,
    /// It is broken.
    Unhealthy,
    /// It is coming back.
    Recovering,
}

/// One slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceStatus {
    /// Profile and start.
    #[serde(flatten)]
    pub place: Place,
    /// UUID of the MIG device; changes whenever the slice is cut again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub mig_uuid: String,
    /// How it is used.
    pub state: Use,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// The container that has a slice or a GPU, by the kubelet's account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace of the pod.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the pod.
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Name of the container.
    #[schemars(length(max = 63))]
    pub container: String,
}

/// A node in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// GPUs.
    pub gpus: u32,
    /// Slices that exist.
    pub slices: u32,
    /// Slices that pods have.
    pub allocated: u32,
    /// What could still be cut of each profile alone: `7x1g.10gb 3x2g.20gb`.
    #[schemars(length(max = 512))]
    pub free: String,
    /// Each GPU's memory slices drawn in a line: `[33331.2!] [........]` (used slices by their compute size,
    /// `-` idle, `!` blocked, `.` free).
    #[schemars(length(max = 512))]
    pub layout: String,
}

impl From<&Board> for BoardStatus {
    fn from(board: &Board) -> Self {
        let profiles = board.profiles.iter().map(|row| BoardProfile {
            profile: row.profile,
            size: row.size,
            starts: row.starts.clone(),
            max: row.max,
        });
        Self {
            name: board.name.clone(),
            memory_slices: board.memory_slices,
            compute_slices: board.compute_slices,
            profiles: profiles.collect(),
        }
    }
}

impl From<&BoardStatus> for Board {
    /// The table as the scheduler needs it: driver ids and engines stay on the node.
    fn from(status: &BoardStatus) -> Self {
        let profiles = status.profiles.iter().map(|row| ProfileRow {
            profile: row.profile,
            id: 0,
            nvml_enum: 0,
            size: row.size,
            starts: row.starts.clone(),
            max: row.max,
            memory_mib: None,
            multiprocessors: None,
            engines: crate::mig::board::Engines::default(),
        });
        Self {
            name: status.name.clone(),
            memory_slices: status.memory_slices,
            compute_slices: status.compute_slices,
            pci: Vec::new(),
            profiles: profiles.collect(),
        }
    }
}

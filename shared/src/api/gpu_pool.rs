//! GpuPool: which nodes belong together, how freely migpool may act on them, and the policy for it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Policy;

/// A pool of GPU nodes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "migpool.dev",
    version = "v1alpha1",
    kind = "GpuPool",
    plural = "gpupools",
    shortname = "gp",
    category = "migpool",
    status = "GpuPoolStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"GPUs","type":"integer","jsonPath":".status.gpus"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.allocated"}"#,
    printcolumn = r#"{"name":"Free","type":"string","jsonPath":".status.free"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolSpec {
    /// Labels a node must have to belong to the pool; none selects every GPU node. A node that several pools
    /// select belongs to the first of them by name.
    #[schemars(extend("maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// How freely migpool acts.
    pub mode: Mode,
    /// The numbers.
    pub policy: Policy,
}

/// How freely migpool acts on a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Cut slices as pods need them.
    #[default]
    Dynamic,
    /// Decide and report, act on nothing that runs.
    Observe,
    /// Only hand out slices that are there.
    Static,
}

/// What a pool has, written by the scheduler's leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuPoolStatus {
    /// Generation of the spec that this status follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes with GPUs.
    pub nodes: u32,
    /// GPUs.
    pub gpus: u32,
    /// Slices that pods have.
    pub allocated: u32,
    /// Slices that pods have, by profile.
    pub slices: BTreeMap<String, u32>,
    /// What could still be cut of each profile alone.
    #[schemars(length(max = 512))]
    pub free: String,
    /// Free memory slices that no profile of the expected mix can use, percent of the free ones.
    pub fragmentation_percent: u32,
    /// How load is forecast; absent where no agent tells load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastStatus>,
    /// Ready.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// How the load of a pool is forecast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForecastStatus {
    /// Nodes that tell their load.
    pub nodes: u32,
    /// Nodes whose forecast is acted on.
    pub acting: u32,
    /// Share of the last forecasts that were right within 10 points, percent; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_percent: Option<u32>,
    /// Error of the last forecasts over that of "as it is now", percent: below 100 is better than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<u32>,
    /// Whether the pool acts on forecasts, and why not.
    #[schemars(length(max = 256))]
    pub message: String,
}

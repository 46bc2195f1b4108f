//! What a GpuNode tells: which GPUs a node has, what sits on them, whether its agent takes work, and where it tells
//! their load.

use std::collections::BTreeSet;

use shared::api::GpuNode;
use shared::api::conditions::{READY, STOOD_BACK};
use shared::api::gpu_node::GpuStatus;
use shared::mig::Board;

use super::endpoint::{BadEndpoint, Endpoint};

/// Strategy of an agent that cuts slices when pods land.
const DYNAMIC: &str = "dynamic";
/// Strategy of an agent that serves every slice as `nvidia.com/gpu`.
const SINGLE: &str = "single";

/// A node's GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuNodePart {
    /// Name of the node.
    pub name: String,
    /// How slices come to be there.
    pub serves: Serves,
    /// Boot in which the status was written; empty where the agent has not said.
    pub boot_id: String,
    /// Whether the agent takes work.
    pub ready: bool,
    /// Nothing new is to be placed here.
    pub paused: bool,
    /// UUIDs of GPUs that take nothing new.
    pub withheld: BTreeSet<String>,
    /// Placement tables.
    pub boards: Vec<Board>,
    /// The GPUs.
    pub gpus: Vec<GpuStatus>,
    /// Where its load is told, or why that cannot be read; `None` where it is not told.
    pub endpoint: Option<Result<Endpoint, BadEndpoint>>,
}

/// How slices come to be on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Serves {
    /// They are cut when pods land.
    #[default]
    AsAsked,
    /// They are there already, each a resource of its profile.
    WhatIsThere,
    /// They are there already, each an `nvidia.com/gpu`.
    WhatIsThereAsGpus,
}

impl GpuNodePart {
    /// Reads a GpuNode.
    #[must_use]
    pub fn of(node: GpuNode) -> Self {
        let status = node.status.unwrap_or_default();
        let on = |kind: &str| {
            status
                .conditions
                .iter()
                .any(|condition| condition.type_ == kind && condition.status == "True")
        };
        Self {
            name: node.metadata.name.unwrap_or_default(),
            serves: match status.strategy.as_str() {
                "" | DYNAMIC => Serves::AsAsked,
                SINGLE => Serves::WhatIsThereAsGpus,
                _ => Serves::WhatIsThere,
            },
            ready: on(READY) && !on(STOOD_BACK),
            paused: node.spec.paused,
            withheld: node
                .spec
                .withhold
                .into_iter()
                .map(|withhold| withhold.gpu)
                .collect(),
            boards: status.boards.iter().map(Board::from).collect(),
            boot_id: status.boot_id,
            endpoint: status.endpoint.as_ref().map(Endpoint::of),
            gpus: status.gpus,
        }
    }

    /// Product name of its GPUs; that of the first where they differ.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        let model = self.gpus.first().map(|gpu| gpu.model.as_str());
        model.filter(|model| !model.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(spec: serde_json::Value, status: serde_json::Value) -> GpuNodePart {
        let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "a"},
            "spec": spec, "status": status});
        GpuNodePart::of(serde_json::from_value(object).unwrap())
    }

    fn condition(kind: &str, status: &str) -> serde_json::Value {
        json!({"type": kind, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-11-29T00:00:00Z"})
    }

    #[test]
    fn a_node_takes_work_only_while_its_agent_says_so() {
        for (conditions, ready) in [
            (json!([]), false),
            (json!([condition("Ready", "True")]), true),
            (json!([condition("Ready", "False")]), false),
            (json!([condition("Ready", "Unknown")]), false),
            (
                json!([condition("Ready", "True"), condition("StoodBack", "False")]),
                true,
            ),
            (
                json!([condition("Ready", "True"), condition("StoodBack", "True")]),
                false,
            ),
        ] {
            assert_eq!(
                part(json!({}), json!({"conditions": conditions})).ready,
                ready,
                "{conditions}"
            );
        }
    }

    #[test]
    fn a_strategy_says_how_slices_come_to_be() {
        for (strategy, serves) in [
            ("", Serves::AsAsked),
            ("dynamic", Serves::AsAsked),
            ("mixed", Serves::WhatIsThere),
            ("none", Serves::WhatIsThere),
            ("single", Serves::WhatIsThereAsGpus),
        ] {
            assert_eq!(
                part(json!({}), json!({"strategy": strategy})).serves,
                serves,
                "{strategy}"
            );
        }
    }

    #[test]
    fn a_node_without_status_has_nothing() {
        let node = part(
            json!({"paused": true, "withhold": [{"gpu": "GPU-1"}]}),
            json!(null),
        );
        assert!(node.paused && !node.ready && node.gpus.is_empty());
        assert!(node.withheld.contains("GPU-1"));
    }
}

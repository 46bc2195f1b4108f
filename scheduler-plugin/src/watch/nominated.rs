//! The node that a pod is nominated to, and whether by us. A nomination that kube-scheduler wrote (preemption) or a
//! person did is not ours to change: the API server notes who wrote the field.

use k8s_openapi::api::core::v1::Pod;
use shared::names::MANAGER_SCHEDULER;

/// `status.nominatedNodeName` of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nominated {
    /// The node.
    pub node: String,
    /// We wrote it.
    pub ours: bool,
}

impl Nominated {
    /// Reads a Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let node = pod.status.as_ref()?.nominated_node_name.clone();
        let node = node.filter(|node| !node.is_empty())?;
        let mut entries = pod.metadata.managed_fields.iter().flatten();
        let ours = entries.any(|entry| {
            let fields = entry
                .fields_v1
                .as_ref()
                .and_then(|fields| fields.0.get("f:status"));
            entry.manager.as_deref() == Some(MANAGER_SCHEDULER)
                && fields.is_some_and(|status| status.get("f:nominatedNodeName").is_some())
        });
        Some(Self { node, ours })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn nominated(status: Value, manager: &str) -> Option<Nominated> {
        let pod = json!({"metadata": {"name": "p", "managedFields": [
            {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}},
            {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}},
        ]}, "status": status});
        Nominated::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn who_wrote_a_nomination_is_read_from_the_managed_fields() {
        let node = || json!({"nominatedNodeName": "a"});
        let is = |ours| {
            Some(Nominated {
                node: "a".into(),
                ours,
            })
        };
        assert_eq!(nominated(node(), MANAGER_SCHEDULER), is(true));
        assert_eq!(nominated(node(), "kube-scheduler"), is(false));
        assert_eq!(
            nominated(json!({"nominatedNodeName": ""}), MANAGER_SCHEDULER),
            None
        );
        assert_eq!(nominated(json!({}), MANAGER_SCHEDULER), None);
        let bare = json!({"metadata": {}, "status": node()});
        assert_eq!(Nominated::of(&serde_json::from_value(bare).unwrap()), is(false));
    }
}

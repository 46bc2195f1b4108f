//! What a Node tells: that it exists, which boot it is in, the labels that pools select by, its CPU and memory, and
//! what keeps pods away. Whether a pod may go there is kube-scheduler's business, which asks us about nodes that passed all that;
//! only what is planned ahead of it ([`super::rules`]) looks at cordons and taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use shared::snapshot::CpuMemory;

/// A node, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePart {
    /// Name.
    pub name: String,
    /// Id of its boot; empty where the kubelet has not said.
    pub boot_id: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// CPU and memory it has for pods, where the kubelet has said.
    pub allocatable: Option<CpuMemory>,
    /// It is cordoned.
    pub cordoned: bool,
    /// What keeps pods away that do not tolerate it.
    pub taints: Vec<Taint>,
}

impl NodePart {
    /// Reads a Node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            boot_id: info.map(|info| info.boot_id.clone()).unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            allocatable: allocatable.and_then(CpuMemory::of_allocatable),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        }
    }

    /// Whether it has all these labels.
    #[must_use]
    pub fn has_labels(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted
            .iter()
            .all(|(key, value)| self.labels.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(node: serde_json::Value) -> NodePart {
        NodePart::of(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn a_node_is_read_whatever_it_lacks() {
        let table = [
            (
                json!({"metadata": {"name": "a"}}),
                NodePart {
                    name: "a".into(),
                    ..NodePart::default()
                },
            ),
            (
                json!({"metadata": {"name": "a"}, "status": {}}),
                NodePart {
                    name: "a".into(),
                    ..NodePart::default()
                },
            ),
            (
                json!({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "7500m", "memory": "1Gi", "pods": "110"}}}),
                NodePart {
                    name: "a".into(),
                    allocatable: Some(CpuMemory {
                        cpu_milli: 7_500,
                        memory_mib: 1_024,
                    }),
                    ..NodePart::default()
                },
            ),
            (
                json!({"metadata": {"name": "a", "labels": {"rack": "1"}}, "status": {"nodeInfo": {"bootID": "b1",
                    "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}}),
                NodePart {
                    name: "a".into(),
                    boot_id: "b1".into(),
                    labels: [("rack".into(), "1".into())].into(),
                    ..NodePart::default()
                },
            ),
        ];
        for (node, expected) in table {
            assert_eq!(part(node), expected);
        }
    }

    #[test]
    fn a_selector_wants_every_label() {
        let node = part(json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}}));
        let wanted =
            |labels: &[(&str, &str)]| labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        for (labels, has) in [
            (&[][..], true),
            (&[("x", "1")], true),
            (&[("x", "2")], false),
            (&[("x", "1"), ("z", "")], false),
        ] {
            assert_eq!(node.has_labels(&wanted(labels)), has, "{labels:?}");
        }
    }
}

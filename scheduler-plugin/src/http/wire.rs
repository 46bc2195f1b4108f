//! What kube-scheduler and its extenders say to each other. Its Go types carry no JSON tags, so the Go names are
//! the names on the wire (`PodUID`, not `PodUid`). Lower-case spellings are read too, `null` means absent, and
//! unknown fields are skipped: other versions of kube-scheduler may send more than this one knows.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use super::node_names::NodeNames;
use super::pod_text::PodText;

/// Highest score an extender gives.
pub const MAX_PRIORITY: i64 = 10;

/// Body of filter and prioritize.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExtenderArgs {
    /// The pod to be placed.
    #[serde(rename = "Pod", alias = "pod")]
    pub pod: Option<PodText>,
    /// Whole nodes; kube-scheduler sends none to an extender that keeps its own, a cluster autoscaler that
    /// simulates does.
    #[serde(rename = "Nodes", alias = "nodes")]
    pub nodes: Option<Nodes>,
    /// Names of the nodes that passed so far.
    #[serde(rename = "NodeNames", alias = "nodeNames", alias = "nodenames")]
    pub node_names: Option<NodeNames>,
}

/// A NodeList as it is marshalled inside the extender's types: `items` may be null.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Nodes {
    /// The nodes.
    #[serde(alias = "Items")]
    pub items: Option<Vec<Node>>,
}

/// Answer of filter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExtenderFilterResult {
    /// The nodes that passed, where whole nodes were asked about.
    #[serde(rename = "Nodes", alias = "nodes", skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// Names of the nodes that passed.
    #[serde(
        rename = "NodeNames",
        alias = "nodeNames",
        alias = "nodenames",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_names: Option<NodeNames>,
    /// Nodes that failed -> why; preemption may help them.
    #[serde(
        rename = "FailedNodes",
        alias = "failedNodes",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub failed_nodes: BTreeMap<String, String>,
    /// Nodes that failed -> why; nothing can help them.
    #[serde(
        rename = "FailedAndUnresolvableNodes",
        alias = "failedAndUnresolvableNodes",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// Why the question could not be answered; empty when it was.
    #[serde(rename = "Error", alias = "error")]
    pub error: String,
}

/// Answer of prioritize is a list of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct HostPriority {
    /// Name of the node.
    #[serde(rename = "Host", alias = "host")]
    pub host: String,
    /// 0 to [`MAX_PRIORITY`].
    #[serde(rename = "Score", alias = "score")]
    pub score: i64,
}

/// Body of bind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExtenderBindingArgs {
    /// Name of the pod.
    #[serde(rename = "PodName", alias = "podName", alias = "podname")]
    pub pod_name: String,
    /// Namespace of the pod.
    #[serde(rename = "PodNamespace", alias = "podNamespace", alias = "podnamespace")]
    pub pod_namespace: String,
    /// UID of the pod.
    #[serde(rename = "PodUID", alias = "podUID", alias = "podUid", alias = "poduid")]
    pub pod_uid: String,
    /// The node to bind it to.
    #[serde(rename = "Node", alias = "node")]
    pub node: String,
}

/// Answer of bind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ExtenderBindingResult {
    /// Why the pod was not bound; empty when it was.
    #[serde(rename = "Error", alias = "error")]
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_on_the_wire_are_the_go_names() {
        let args = ExtenderBindingArgs {
            pod_name: "p".into(),
            pod_namespace: "ns".into(),
            pod_uid: "u".into(),
            node: "n".into(),
        };
        let text = serde_json::to_string(&args).unwrap();
        assert_eq!(
            text,
            r#"{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n"}"#
        );
        let result = ExtenderFilterResult {
            nodes: Some(Nodes {
                items: Some(Vec::new()),
            }),
            node_names: Some(["a"].into_iter().collect()),
            failed_nodes: BTreeMap::from([("b".into(), "no".into())]),
            failed_and_unresolvable_nodes: BTreeMap::from([("c".into(), "never".into())]),
            error: "e".into(),
        };
        let text = serde_json::to_string(&result).unwrap();
        assert_eq!(
            text,
            r#"{"Nodes":{"items":[]},"NodeNames":["a"],"FailedNodes":{"b":"no"},"FailedAndUnresolvableNodes":{"c":"never"},"Error":"e"}"#
        );
        assert_eq!(
            serde_json::to_string(&vec![HostPriority {
                host: "a".into(),
                score: 10
            }])
            .unwrap(),
            r#"[{"Host":"a","Score":10}]"#
        );
        assert_eq!(
            serde_json::to_string(&ExtenderBindingResult::default()).unwrap(),
            r#"{"Error":""}"#
        );
    }

    #[test]
    fn nulls_lower_case_and_unknown_fields_are_read() {
        let args: ExtenderArgs =
            serde_json::from_str(r#"{"Pod":null,"Nodes":null,"NodeNames":null,"New":{}}"#).unwrap();
        assert_eq!(args, ExtenderArgs::default());
        let args: ExtenderArgs =
            serde_json::from_str(r#"{"pod":{"metadata":{"name":"p"}},"nodenames":["a"]}"#).unwrap();
        assert_eq!(args.node_names, Some(["a"].into_iter().collect()));
        assert_eq!(args.pod.unwrap().read().unwrap().pod.name, "p");
        let bind: ExtenderBindingArgs =
            serde_json::from_str(r#"{"podName":"p","podNamespace":"ns","podUID":"u","node":"n","x":1}"#)
                .unwrap();
        assert_eq!(bind.pod_uid, "u");
        let nodes: Nodes = serde_json::from_str(r#"{"metadata":{},"items":null}"#).unwrap();
        assert_eq!(nodes.items, None);
    }
}

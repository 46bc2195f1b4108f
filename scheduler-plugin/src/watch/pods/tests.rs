//! Pods as the API server sends them, and what is read from each.

use serde_json::{Value, json};

use super::*;

const PLACEMENT: &str = "main=GPU-1:1g.10gb:6";

fn pod(patch: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, patch);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch,
    }
}

#[test]
fn what_a_pod_holds_follows_from_its_node_annotation_and_phase() {
    let annotated = |text: &str| json!({"metadata": {"annotations": {"migpool.dev/placement": text}}});
    let bound = json!({"spec": {"nodeName": "a"}});
    let table: [(&str, Vec<Value>, bool); 7] = [
        ("pending", vec![], false),
        (
            "annotated by its author, not bound",
            vec![annotated(PLACEMENT)],
            false,
        ),
        ("bound without us", vec![bound.clone()], false),
        ("bound by us", vec![annotated(PLACEMENT), bound.clone()], true),
        (
            "being deleted",
            vec![
                annotated(PLACEMENT),
                bound.clone(),
                json!({"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}}),
            ],
            true,
        ),
        (
            "failed",
            vec![
                annotated(PLACEMENT),
                bound.clone(),
                json!({"status": {"phase": "Failed"}}),
            ],
            false,
        ),
        ("malformed", vec![annotated("main=7"), bound], false),
    ];
    for (name, patches, holds) in table {
        let mut patch = json!({});
        patches.into_iter().for_each(|part| merge(&mut patch, part));
        assert_eq!(PodPart::of(&pod(patch)).holds().is_some(), holds, "{name}");
    }
}

#[test]
fn a_pod_that_asks_nothing_matters_only_until_it_has_a_node() {
    let plain = json!({"spec": {"containers": [{"name": "main", "resources": null}]}});
    let part = PodPart::of(&pod(plain.clone()));
    assert!(!part.asks() && part.matters());
    let mut bound = plain;
    merge(&mut bound, json!({"spec": {"nodeName": "a"}}));
    assert!(!PodPart::of(&pod(bound)).matters());
}

#[test]
fn a_wrong_request_is_one_of_ours() {
    let wrong = json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-9x": "1"}}}]}});
    let part = PodPart::of(&pod(wrong));
    assert!(part.asks() && part.request.is_err());
}

#[test]
fn only_a_refused_pod_with_a_controller_is_replaceable() {
    let owner = |controller: bool| json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": controller}]}});
    let failed = |reason: &str| json!({"status": {"phase": "Failed", "reason": reason}});
    for (name, patches, expected) in [
        ("refused", [failed("UnexpectedAdmissionError"), owner(true)], true),
        (
            "refused, bare",
            [failed("UnexpectedAdmissionError"), json!({})],
            false,
        ),
        (
            "refused, owned but not controlled",
            [failed("UnexpectedAdmissionError"), owner(false)],
            false,
        ),
        ("failed by itself", [failed("Error"), owner(true)], false),
        (
            "running",
            [
                json!({"status": {"phase": "Running", "reason": "UnexpectedAdmissionError"}}),
                owner(true),
            ],
            false,
        ),
    ] {
        let mut patch = json!({});
        patches.into_iter().for_each(|part| merge(&mut patch, part));
        assert_eq!(
            PodPart::of(&pod(patch)).refused_and_replaceable,
            expected,
            "{name}"
        );
    }
}

#[test]
fn started_containers_are_those_with_an_id() {
    let status = |name: &str, id: &str| json!({"name": name, "containerID": id, "image": "", "imageID": "", "ready": false, "restartCount": 0});
    let part = PodPart::of(&pod(json!({"status": {
        "containerStatuses": [status("main", ""), status("other", "containerd://1")],
        "initContainerStatuses": [status("first", "containerd://2")],
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }})));
    assert_eq!(
        part.started.iter().map(String::as_str).collect::<Vec<_>>(),
        ["first", "other"]
    );
    assert!(part.unschedulable);
}

#[test]
fn soft_preferences_are_those_that_kube_scheduler_scores() {
    let term = json!({"topologyKey": "zone", "labelSelector": {}});
    for (name, spec, soft) in [
        ("none", json!({}), false),
        (
            "required only",
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
            false,
        ),
        (
            "empty list",
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
            false,
        ),
        (
            "node affinity",
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}}}),
            true,
        ),
        (
            "pod anti-affinity",
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}}),
            true,
        ),
        (
            "soft spread",
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
            true,
        ),
        (
            "hard spread",
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
            false,
        ),
    ] {
        assert_eq!(
            PodPart::of(&pod(json!({"spec": spec}))).rules.soft,
            soft,
            "{name}"
        );
    }
}

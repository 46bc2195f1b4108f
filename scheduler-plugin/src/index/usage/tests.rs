//! CPU of all pods, ours and others, through every way a pod comes and goes.

use std::time::Duration;

use serde_json::{Value, json};
use serve::watch::Change;
use shared::policy::Policy;

use super::*;
use crate::index::reservations::State;
use crate::watch::gpu_nodes::GpuNodePart;
use crate::watch::nodes::NodePart;

fn pod(name: &str, cpu: &str, patch: &Value) -> PodPart {
    let mut pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}, "status": {}});
    for (path, value) in patch.as_object().unwrap() {
        *pod.pointer_mut("/spec").unwrap() = match path.as_str() {
            "spec" => merged(&pod["spec"], value),
            _ => pod["spec"].clone(),
        };
        if path != "spec" {
            pod[path] = merged(&pod[path], value);
        }
    }
    PodPart::of(&serde_json::from_value(pod).unwrap())
}

fn merged(one: &Value, other: &Value) -> Value {
    let mut all = one.as_object().unwrap().clone();
    all.extend(other.as_object().unwrap().clone());
    Value::Object(all)
}

fn on(name: &str, cpu: &str, node: &str) -> PodPart {
    pod(name, cpu, &json!({"spec": {"nodeName": node}}))
}

fn gpu_node(name: &str) -> GpuNodePart {
    let gpu = |index: u32| json!({"uuid": format!("GPU-{name}-{index}"), "index": index, "model": "T4", "memoryMib": 1, "mig": false, "health": "Healthy"});
    let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "spec": {},
        "status": {"gpus": [gpu(0), gpu(1)], "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-11-29T00:00:00Z"}]}});
    GpuNodePart::of(serde_json::from_value(object).unwrap())
}

/// Nodes `a` and `b` with GPUs and `c` without, 16 cores each.
fn books() -> Books {
    let mut books = Books::default();
    let there = CpuMemory {
        cpu_milli: 16_000,
        memory_mib: 65_536,
    };
    let node = |name: &str| NodePart {
        name: name.into(),
        allocatable: Some(there),
        labels: [(shared::names::LABEL_RACK.into(), format!("rack-{name}"))].into(),
        ..NodePart::default()
    };
    books.change_nodes(Change::Reset(["a", "b", "c"].map(node).into()));
    books.change_gpu_nodes(Change::Reset(["a", "b"].map(gpu_node).into()));
    books
}

fn free(books: &mut Books, node: &str) -> u64 {
    books.settle();
    books.snapshot.nodes[node].free.unwrap().cpu_milli
}

fn apply(books: &mut Books, pod: PodPart) {
    books.change_pods(Change::Apply(pod), Duration::ZERO);
}

#[test]
fn pods_that_ask_nothing_of_ours_count_until_they_are_gone() {
    let mut books = books();
    assert_eq!(free(&mut books, "a"), 16_000);
    apply(&mut books, on("web", "6", "a"));
    assert_eq!(free(&mut books, "a"), 10_000);
    assert!(books.pods.is_empty(), "nothing else of it is kept");
    // what is said again changes nothing
    apply(&mut books, on("web", "6", "a"));
    assert!(!books.has_news());
    // resized in place
    apply(&mut books, on("web", "2", "a"));
    assert_eq!(free(&mut books, "a"), 14_000);
    books.change_pods(Change::Delete(on("web", "2", "a")), Duration::ZERO);
    assert!(books.has_news());
    assert_eq!(free(&mut books, "a"), 16_000);
}

#[test]
fn a_pod_that_ended_has_nothing_and_one_that_is_being_deleted_still_has_it() {
    let mut books = books();
    apply(&mut books, on("web", "6", "a"));
    let deleting =
        json!({"spec": {"nodeName": "a"}, "metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}});
    apply(&mut books, pod("web", "6", &deleting));
    assert_eq!(free(&mut books, "a"), 10_000);
    apply(
        &mut books,
        pod(
            "web",
            "6",
            &json!({"spec": {"nodeName": "a"}, "status": {"phase": "Succeeded"}}),
        ),
    );
    assert_eq!(free(&mut books, "a"), 16_000);
}

#[test]
fn a_list_takes_the_place_of_all_that_was_known() {
    let mut books = books();
    apply(&mut books, on("gone", "6", "a"));
    apply(&mut books, on("stays", "1", "a"));
    books.change_pods(
        Change::Reset(vec![
            on("stays", "1", "a"),
            on("new", "4", "b"),
            pod("waits", "9", &json!({})),
        ]),
        Duration::ZERO,
    );
    assert_eq!((free(&mut books, "a"), free(&mut books, "b")), (15_000, 12_000));
}

#[test]
fn nodes_without_gpus_of_ours_are_none_of_our_business() {
    let mut books = books();
    books.settle();
    apply(&mut books, on("web", "6", "c"));
    assert!(!books.has_news());
    // until they have some
    books.change_gpu_nodes(Change::Apply(gpu_node("c")));
    assert_eq!(free(&mut books, "c"), 10_000);
}

#[test]
fn what_a_pod_is_promised_counts_once_before_and_after_it_is_bound() {
    let mut books = books();
    let asking = |spec: Value| {
        let limits = json!({"nvidia.com/gpu": "1"});
        let container = json!({"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": limits}});
        pod(
            "p",
            "4",
            &json!({"spec": merged(&json!({"containers": [container]}), &spec)}),
        )
    };
    apply(&mut books, asking(json!({})));
    assert_eq!(free(&mut books, "a"), 16_000);
    let waiting = asking(json!({}));
    books.reserve(Reservation {
        pod: waiting.pod.clone(),
        node: "a".into(),
        placements: shared::names::Placements::default(),
        state: State::Tentative,
        since: Duration::ZERO,
    });
    let taken = |books: &Books| {
        books.snapshot.nodes["a"]
            .gpus
            .iter()
            .filter(|gpu| gpu.whole.is_some())
            .count()
    };
    assert_eq!((free(&mut books, "a"), taken(&books)), (12_000, 1));
    apply(&mut books, asking(json!({"nodeName": "a"})));
    assert_eq!((free(&mut books, "a"), taken(&books)), (12_000, 1));
    // and once the agent has told which GPU it is
    let mut told = gpu_node("a");
    told.gpus[1].holder = Some(shared::api::gpu_node::Holder {
        namespace: "ns".into(),
        pod: "p".into(),
        container: "main".into(),
    });
    books.change_gpu_nodes(Change::Apply(told));
    assert_eq!((free(&mut books, "a"), taken(&books)), (12_000, 1));
    assert!(books.snapshot.nodes["a"].gpus[1].whole.is_some());
}

#[test]
fn a_node_says_its_model_and_rack_and_its_rack_is_free_until_somebody_is_in_it() {
    let mut books = books();
    let (snapshot, tables) = books.refresh();
    let a = &snapshot.nodes["a"];
    assert_eq!(
        (a.model.as_deref(), a.rack.as_deref()),
        (Some("T4"), Some("rack-a"))
    );
    assert!(tables.is_free_rack("rack-a") && tables.is_free_rack("rack-b") && !tables.is_free_rack("rack-c"));
    let mut held = gpu_node("a");
    held.gpus[0].holder = Some(shared::api::gpu_node::Holder {
        namespace: "ns".into(),
        pod: "p".into(),
        container: "main".into(),
    });
    books.change_gpu_nodes(Change::Apply(held));
    let (_, tables) = books.refresh();
    assert!(!tables.is_free_rack("rack-a") && tables.is_free_rack("rack-b"));
    assert_eq!(Policy::default().rack_label, shared::names::LABEL_RACK);
}

#[test]
fn pods_tied_to_a_model_by_their_own_rules_are_known_by_it() {
    let mut books = books();
    let mut other = gpu_node("b");
    for gpu in &mut other.gpus {
        gpu.model = "A10".into();
    }
    books.change_gpu_nodes(Change::Apply(other));
    books.settle();
    let (t4, a10) = (
        1_u64 << books.stock.model(Some("T4")),
        1_u64 << books.stock.model(Some("A10")),
    );
    let container = |resource: &str| json!([{"name": "main", "resources": {"limits": {resource: "1"}}}]);
    let tied = |resource: &str, selector: Value| {
        pod(
            "p",
            "1",
            &json!({"spec": {"containers": container(resource), "nodeSelector": selector}}),
        )
    };
    let rack = |name: &str| json!({shared::names::LABEL_RACK: name});
    assert_eq!(books.models_of(&tied("nvidia.com/gpu", rack("rack-a"))), t4);
    assert_eq!(books.models_of(&tied("nvidia.com/gpu", rack("rack-b"))), a10);
    assert_eq!(books.models_of(&tied("nvidia.com/gpu", json!({}))), 0);
    assert_eq!(
        books.models_of(&tied("nvidia.com/mig-1g.10gb", rack("rack-a"))),
        0
    );
}

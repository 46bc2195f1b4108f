//! What counts as used on a node, case by case.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::index::reservations::State;
use crate::layout_page::bar;

/// A node with one H100, drawn after each case.
struct Case {
    node_boot: &'static str,
    gpu_node: Value,
    pods: Vec<Value>,
    reservations: Vec<&'static str>,
}

impl Case {
    fn new(slices: Value) -> Self {
        let board = shared::api::gpu_node::BoardStatus::from(Board::named("H100-80GB").unwrap());
        let gpu_node = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "n"}, "spec": {},
            "status": {"strategy": "dynamic", "bootId": "b1", "boards": [board],
                "gpus": [{"uuid": "GPU-1", "index": 0, "model": "H100", "board": "H100-80GB", "memoryMib": 81559, "mig": true,
                    "health": "Healthy", "slices": slices}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
                    "lastTransitionTime": "2026-11-29T00:00:00Z"}]}});
        Self {
            node_boot: "b1",
            gpu_node,
            pods: Vec::new(),
            reservations: Vec::new(),
        }
    }

    fn pod(mut self, name: &str, placement: &str, status: Value) -> Self {
        self.pods.push(
            json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "annotations": {"migpool.dev/placement": placement}},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}]}, "status": status}),
        );
        self
    }

    fn reserved(mut self, placement: &'static str) -> Self {
        self.reservations.push(placement);
        self
    }

    fn with(mut self, path: &str, value: Value) -> Self {
        *self.gpu_node.pointer_mut(path).unwrap() = value;
        self
    }

    fn booted_again(mut self) -> Self {
        self.node_boot = "b2";
        self
    }

    fn build(&self) -> Built {
        let gpus = GpuNodePart::of(serde_json::from_value(self.gpu_node.clone()).unwrap());
        let node = NodePart {
            name: "n".into(),
            boot_id: self.node_boot.into(),
            ..NodePart::default()
        };
        let boards: Vec<Arc<Board>> = gpus.boards.iter().cloned().map(Arc::new).collect();
        let pods: Vec<PodPart> = self
            .pods
            .iter()
            .map(|pod| PodPart::of(&serde_json::from_value(pod.clone()).unwrap()))
            .collect();
        let held = |(at, placement): (usize, &&str)| Reservation {
            pod: PodRef {
                namespace: "ns".into(),
                name: format!("r{at}"),
                uid: format!("r{at}"),
            },
            node: "n".into(),
            placements: placement.parse().unwrap(),
            state: State::Tentative,
            since: Duration::ZERO,
        };
        let reservations: Vec<Reservation> = self.reservations.iter().enumerate().map(held).collect();
        let known = Known {
            forgiven: None,
            node: &node,
            gpus: &gpus,
            boards: &boards,
            mode: Mode::Dynamic,
            pods: pods.iter().collect(),
            reservations: reservations.iter().collect(),
            free: None,
            whole: Vec::new(),
            rack_label: shared::names::LABEL_RACK,
            outlook: None,
            version: 1,
        };
        known.build()
    }

    fn drawn(&self) -> String {
        bar(&self.build().node.gpus[0])
    }
}

fn slice(profile: &str, start: u8, state: &str, holder: Option<&str>) -> Value {
    let mut slice = json!({"profile": profile, "start": start, "state": state});
    if let Some(pod) = holder {
        slice["holder"] = json!({"namespace": "ns", "pod": pod, "container": "main"});
    }
    slice
}

fn started() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "c", "image": "", "imageID": "",
        "ready": true, "restartCount": 0}]})
}

#[test]
fn used_is_what_is_reported_promised_or_reserved() {
    let pending = || json!({"phase": "Pending"});
    let table = [
        ("nothing", Case::new(json!([])), "[........]"),
        (
            "reported",
            Case::new(json!([
                slice("1g.10gb", 0, "Allocated", None),
                slice("1g.10gb", 1, "Blocked", None),
                slice("1g.10gb", 2, "Idle", None)
            ])),
            "[1!-.....]",
        ),
        (
            "promised",
            Case::new(json!([])).pod("p", "main=GPU-1:2g.20gb:4", pending()),
            "[....22..]",
        ),
        (
            "reserved",
            Case::new(json!([])).reserved("main=GPU-1:3g.40gb:4"),
            "[....3333]",
        ),
        (
            "a promise takes the idle slices in its way",
            Case::new(json!([
                slice("1g.10gb", 4, "Idle", None),
                slice("1g.10gb", 0, "Idle", None)
            ]))
            .pod("p", "main=GPU-1:3g.40gb:4", pending()),
            "[-...3333]",
        ),
        (
            "a pod that ended holds nothing by its annotation",
            Case::new(json!([])).pod("p", "main=GPU-1:2g.20gb:4", json!({"phase": "Failed"})),
            "[........]",
        ),
        (
            "and what is reported of it still counts",
            Case::new(json!([slice("2g.20gb", 4, "Allocated", Some("p"))])).pod(
                "p",
                "main=GPU-1:2g.20gb:4",
                json!({"phase": "Failed"}),
            ),
            "[....22..]",
        ),
        (
            "a malformed annotation holds nothing",
            Case::new(json!([])).pod("p", "main=nowhere", pending()),
            "[........]",
        ),
        (
            "a GPU that is gone takes its promises along",
            Case::new(json!([])).pod("p", "main=GPU-9:2g.20gb:4", pending()),
            "[........]",
        ),
    ];
    for (name, case, drawn) in table {
        assert_eq!(case.drawn(), drawn, "{name}");
    }
}

#[test]
fn once_a_container_has_started_the_agents_account_of_it_wins() {
    let elsewhere = json!([slice("2g.20gb", 0, "Allocated", Some("p"))]);
    let table = [
        (
            "not started: both count",
            elsewhere.clone(),
            "main=GPU-1:2g.20gb:4",
            json!({"phase": "Pending"}),
            "[22..22..]",
            0,
        ),
        (
            "started: the report counts",
            elsewhere.clone(),
            "main=GPU-1:2g.20gb:4",
            started(),
            "[22......]",
            1,
        ),
        (
            "started, the report is of another pod",
            json!([slice("2g.20gb", 0, "Allocated", Some("q"))]),
            "main=GPU-1:2g.20gb:4",
            started(),
            "[22..22..]",
            0,
        ),
        (
            "started, the report has too few",
            elsewhere.clone(),
            "main=GPU-1:2g.20gb:4,GPU-1:2g.20gb:2",
            started(),
            "[222222..]",
            0,
        ),
        (
            "an init container's slices went to the started one",
            elsewhere,
            "first=GPU-1:2g.20gb:4;main=GPU-1:2g.20gb:4",
            started(),
            "[22......]",
            1,
        ),
    ];
    for (name, slices, placement, status, drawn, drift) in table {
        let case = Case::new(slices).pod("p", placement, status);
        assert_eq!(
            (case.drawn().as_str(), case.build().drift),
            (drawn, drift),
            "{name}"
        );
    }
}

#[test]
fn after_a_boot_only_what_pods_have_is_left() {
    let slices = json!([
        slice("1g.10gb", 0, "Allocated", Some("p")),
        slice("1g.10gb", 1, "Allocated", Some("gone")),
        slice("1g.10gb", 2, "Blocked", None),
        slice("1g.10gb", 3, "Idle", None),
    ]);
    let case = Case::new(slices)
        .pod("p", "main=GPU-1:1g.10gb:6", json!({"phase": "Pending"}))
        .booted_again();
    assert_eq!(
        (case.drawn().as_str(), case.build().node.state),
        ("[1.....1.]", NodeState::Away)
    );
}

#[test]
fn a_node_takes_work_only_in_its_right_state() {
    let table = [
        (Case::new(json!([])), NodeState::Ready),
        (
            Case::new(json!([])).with("/spec", json!({"paused": true})),
            NodeState::Paused,
        ),
        (
            Case::new(json!([])).with("/status/conditions", json!([])),
            NodeState::Away,
        ),
        (Case::new(json!([])).booted_again(), NodeState::Away),
        (
            Case::new(json!([]))
                .with("/status/bootId", json!(""))
                .booted_again(),
            NodeState::Ready,
        ),
    ];
    for (case, state) in table {
        assert_eq!(case.build().node.state, state);
    }
}

#[test]
fn a_gpu_in_mig_mode_without_a_table_takes_no_work() {
    let built = Case::new(json!([]))
        .with("/status/gpus/0/board", json!("unknown"))
        .build();
    assert_eq!(
        (built.node.gpus[0].health, built.node.gpus[0].board.is_none()),
        (Health::Suspect, true)
    );
}

#[test]
fn static_strategies_hand_out_what_is_there() {
    let case = Case::new(json!([])).with("/status/strategy", json!("mixed"));
    assert_eq!(case.build().node.mode, Mode::Static);
    let slices = json!([
        slice("1g.10gb", 0, "Idle", None),
        slice("1g.10gb", 1, "Allocated", Some("p"))
    ]);
    let built = Case::new(slices)
        .with("/status/strategy", json!("single"))
        .build();
    let whole: Vec<bool> = built
        .node
        .gpus
        .iter()
        .map(|gpu| gpu.board.is_none() && gpu.whole.is_some())
        .collect();
    assert_eq!(whole, [false, true]);
}

#[test]
fn a_whole_gpu_and_a_withheld_one_are_told() {
    let case = Case::new(json!([]))
        .with("/status/gpus/0/mig", json!(false))
        .with("/spec", json!({"withhold": [{"gpu": "GPU-1"}]}));
    let mut held = case.gpu_node.clone();
    held["status"]["gpus"][0]["holder"] = json!({"namespace": "ns", "pod": "p", "container": "main"});
    let built = Case {
        gpu_node: held,
        ..case
    }
    .build();
    let gpu = &built.node.gpus[0];
    assert!(gpu.withheld && gpu.board.is_none());
    assert_eq!(gpu.whole.as_ref().unwrap().pod, "p");
}

//! For the tests of the index: one that is loaded and whose clock they move, nodes with empty H100s, pods in a line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use serve::watch::Change;
use shared::api::gpu_node::BoardStatus;
use shared::mig::Board;
use shared::names::{self, Placements};

use super::Index;
use super::sources::Source;
use crate::clock::Clock;
use crate::watch::gpu_nodes::GpuNodePart;
use crate::watch::nodes::NodePart;
use crate::watch::pods::PodPart;

/// Profiles that pods of random histories ask for.
pub(crate) const PROFILES: [&str; 5] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb"];

/// An index that knows that there is nothing, and the seconds that its steady clock shows.
pub(crate) fn empty() -> (Index, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&seconds);
    let clock = Clock::new(
        move || Duration::from_secs(told.load(Ordering::SeqCst)),
        || jiff::Timestamp::UNIX_EPOCH,
    );
    let index = Index::new(clock);
    Source::ALL.into_iter().for_each(|source| index.loaded(source));
    (index, seconds)
}

/// Makes a node with so many empty GPUs known.
pub(crate) fn put_node(index: &Index, name: &str, gpus: u32) {
    let node = NodePart {
        name: name.to_owned(),
        ..NodePart::default()
    };
    index.nodes(Change::Apply(node));
    index.gpu_nodes(Change::Apply(gpu_node(name, gpus)));
}

/// What an agent tells of such a node.
pub(crate) fn gpu_node(name: &str, gpus: u32) -> GpuNodePart {
    let board = BoardStatus::from(Board::named("H100-80GB").unwrap());
    let gpu = |at: u32| {
        json!({"uuid": format!("GPU-{name}-{at}"), "index": at, "model": "H100", "board": "H100-80GB", "memoryMib": 1,
            "mig": true, "health": "Healthy"})
    };
    let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "spec": {},
        "status": {"boards": [board], "gpus": (0..gpus).map(gpu).collect::<Vec<_>>(),
            "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-11-29T00:00:00Z"}]}});
    GpuNodePart::of(serde_json::from_value(object).unwrap())
}

/// A pod of ours that asks for one slice.
pub(crate) fn pod(name: &str, profile: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"schedulerName": names::SCHEDULER,
            "containers": [{"name": "main", "resources": {"limits": {format!("nvidia.com/mig-{profile}"): "1"}}}]}})
}

/// The pod as the index takes it in.
pub(crate) fn part(pod: &Value) -> PodPart {
    PodPart::of(&serde_json::from_value(pod.clone()).unwrap())
}

/// The pod once it is bound.
pub(crate) fn bound_to(pod: &Value, node: &str, placements: &Placements) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = json!(node);
    pod["metadata"]["annotations"] = json!({names::ANNOTATION_PLACEMENT: placements.to_string()});
    pod
}

/// No place was given twice.
pub(crate) fn assert_disjoint<'a>(given: impl IntoIterator<Item = (&'a String, &'a Placements)>) {
    let board = Board::named("H100-80GB").unwrap();
    let mut used: BTreeMap<&str, u16> = BTreeMap::new();
    for (pod, placements) in given {
        for device in placements.places() {
            let bits = device.place.window(board).unwrap();
            let mask = used.entry(&device.gpu).or_default();
            assert_eq!(*mask & bits, 0, "{pod} overlaps at {device}");
            *mask |= bits;
        }
    }
}

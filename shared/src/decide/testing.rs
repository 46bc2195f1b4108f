//! Builders for tests and benches: clusters in a line. They make values only, so they cost production nothing.

use std::sync::Arc;

use crate::api::gpu_pool::Mode;
use crate::mig::Board;
use crate::snapshot::{Gpu, Node, NodeState, Owner, Snapshot};

/// A ready node with `gpus` empty GPUs of a board of the catalogue; a GPU without MIG where it is not there.
#[must_use]
pub fn node(name: &str, board: &str, gpus: u32) -> Node {
    let board = Board::named(board).map(|board| Arc::new(board.clone()));
    let gpus = (0..gpus).map(|index| Gpu::new(gpu_uuid(name, index), index, board.clone()));
    Node {
        name: name.to_owned(),
        state: NodeState::Ready,
        mode: Mode::Dynamic,
        gpus: gpus.collect(),
        version: 0,
    }
}

/// A snapshot of nodes.
#[must_use]
pub fn cluster(nodes: impl IntoIterator<Item = Node>) -> Snapshot {
    Snapshot {
        nodes: nodes
            .into_iter()
            .map(|node| (node.name.as_str().into(), Arc::new(node)))
            .collect(),
    }
}

/// The UUID that [`node`] gives a GPU.
#[must_use]
pub fn gpu_uuid(node: &str, index: u32) -> String {
    format!("GPU-{node}-{index}")
}

/// A pod by name.
#[must_use]
pub fn owner(pod: &str) -> Owner {
    Owner {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        uid: format!("uid-{pod}"),
    }
}

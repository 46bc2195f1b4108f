//! Builders for tests and benches: clusters in a line. They make values only, so they cost production nothing.

use std::sync::Arc;

use super::score::{Demand, Tables};
use crate::mig::{Board, Profile};
use crate::policy::Policy;
use crate::snapshot::{Gpu, Node, Owner, Request, Snapshot};

/// A ready node with `gpus` empty GPUs of a board of the catalogue; a GPU without MIG where it is not there.
#[must_use]
pub fn node(name: &str, board: &str, gpus: u32) -> Node {
    let board = Board::named(board).map(|board| Arc::new(board.clone()));
    let gpus = (0..gpus).map(|index| Gpu::new(gpu_uuid(name, index), index, board.clone()));
    Node::new(name, gpus.collect())
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

/// A pod of one container that asks for so many slices of a profile; a whole GPU where that is `None`.
#[must_use]
pub fn asks(profile: Option<Profile>, count: u32) -> Request {
    Request::of_one("main", profile, count)
}

/// The cost tables of a snapshot before any arrival was seen.
#[must_use]
pub fn tables(snapshot: &Snapshot) -> Tables {
    let boards: Vec<Arc<Board>> = snapshot.gpus().filter_map(|(_, gpu)| gpu.board.clone()).collect();
    Tables::new(&boards, &Demand::default(), &Policy::default())
}

//! Why a change was not made: one sentence each, which stands in the pod's status.

use std::io;

use crate::device_nodes::NodeError;
use crate::gpus::GpuError;

/// Why a change was not made. Each is the one sentence that stands in the pod's status.
#[derive(Debug, thiserror::Error)]
pub enum CarveError {
    /// Not a device of this node.
    #[error(
        "{id} is not a device of this node; the pod was placed by an old picture of it, and a new pod will do"
    )]
    Unknown {
        /// The id.
        id: String,
    },
    /// The GPU takes nothing.
    #[error("{id} cannot be given out: {why}")]
    Closed {
        /// The id.
        id: String,
        /// Why.
        why: String,
    },
    /// A pod has it.
    #[error("{id} is already held by {holder}")]
    Held {
        /// The id.
        id: String,
        /// By whom.
        holder: String,
    },
    /// A process works there.
    #[error("{id} still has process {pid} on it, left by nobody the kubelet knows; end that process")]
    Leftover {
        /// The id.
        id: String,
        /// The process.
        pid: u32,
    },
    /// Used slices are in the way.
    #[error("there is no room for {id}: {occupied}")]
    NoRoom {
        /// The id.
        id: String,
        /// What is there.
        occupied: String,
    },
    /// The slice is another one than the container was told.
    #[error(
        "{id} was cut again since its container was told {told}; delete the pod, its controller makes a new one"
    )]
    Recut {
        /// The id.
        id: String,
        /// The UUID it was told.
        told: String,
    },
    /// The driver refused.
    #[error("{id}: {error}")]
    Gpu {
        /// The id, or the GPU.
        id: String,
        /// What it said.
        error: GpuError,
    },
    /// A capability node could not be made.
    #[error("{id}: {error}")]
    Node {
        /// The id.
        id: String,
        /// What went wrong.
        error: NodeError,
    },
    /// A file could not be written.
    #[error("{what} cannot be written: {error}")]
    File {
        /// Journal or CDI file.
        what: &'static str,
        /// What the file system said.
        error: io::Error,
    },
}

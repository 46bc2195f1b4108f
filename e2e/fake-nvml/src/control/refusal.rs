//! Why the control side refused: one sentence that names what is wrong and what would be right.

use std::io;
use std::path::PathBuf;

use crate::code::Code;
use crate::model;
use crate::store::StoreError;

/// A refusal.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The state file.
    #[error(transparent)]
    Store(StoreError),
    /// A board that the catalogue does not have.
    #[error("no board is called {board:?}; known: {known}")]
    UnknownBoard {
        /// What was asked for.
        board: String,
        /// The catalogue.
        known: String,
    },
    /// No GPUs, or too many.
    #[error("a node has 1 to {most} GPUs, not {gpus}")]
    GpuCount {
        /// What was asked for.
        gpus: u32,
        /// The most there can be.
        most: u32,
    },
    /// No NUMA nodes, or too many.
    #[error("a node has 1 to {most} NUMA nodes, not {nodes}")]
    NumaNodes {
        /// What was asked for.
        nodes: u32,
        /// The most there can be.
        most: u32,
    },
    /// A GPU that is not there.
    #[error("there is no GPU {gpu}; this node has GPUs 0 to {last}")]
    NoGpu {
        /// What was asked for.
        gpu: u32,
        /// The last one.
        last: usize,
    },
    /// A GPU instance that is not there.
    #[error("GPU {gpu} has no GPU instance {gpu_instance}; it has: [{known}]")]
    NoInstance {
        /// The GPU.
        gpu: u32,
        /// What was asked for.
        gpu_instance: u32,
        /// The ids of those that are there.
        known: String,
    },
    /// A process that is not there.
    #[error("no process {pid} is on GPU {gpu}; `fake-nvml show` lists them")]
    NoProcess {
        /// The GPU.
        gpu: u32,
        /// What was asked for.
        pid: u32,
    },
    /// A profile that the board does not have.
    #[error("{board} has no profile {profile:?}; it has: {known}")]
    UnknownProfile {
        /// What was asked for.
        profile: String,
        /// The board.
        board: &'static str,
        /// Its profiles.
        known: String,
    },
    /// A function that the library does not export, or that cannot fail.
    #[error("the library has no function {function:?}{near}")]
    UnknownFunction {
        /// What was asked for.
        function: String,
        /// Functions with similar names, as an end of the sentence.
        near: String,
    },
    /// A count that starts at 0.
    #[error("calls and times are counted from 1, not from 0")]
    FromOne,
    /// NVML's own rules forbid it.
    #[error("{what}: NVML refuses with {code}")]
    Nvml {
        /// What was asked for.
        what: String,
        /// The code that a client would get.
        code: Code,
    },
    /// The library is not built.
    #[error("libnvidia_ml.so is not beside this program; build it with `cargo build -p fake-nvml`")]
    NoLibrary,
    /// Only root makes device nodes.
    #[error("{0}: only root can make device nodes")]
    NotRoot(PathBuf),
    /// The file system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl Refusal {
    /// With the names of the catalogue.
    pub(super) fn unknown_board(board: &str) -> Self {
        let known: Vec<&str> = model::all().iter().map(|model| model.board).collect();
        Self::UnknownBoard {
            board: board.to_owned(),
            known: known.join(", "),
        }
    }

    /// With the functions whose names have the longest common part with what was asked for.
    pub(super) fn unknown_function(function: &str, known: &[&str]) -> Self {
        let wanted = function.trim_start_matches("nvml").to_ascii_lowercase();
        let alike: Vec<&str> = known
            .iter()
            .copied()
            .filter(|name| {
                let name = name.trim_start_matches("nvml").to_ascii_lowercase();
                !wanted.is_empty() && (name.contains(&wanted) || wanted.contains(&name))
            })
            .take(5)
            .collect();
        let near = if alike.is_empty() {
            "; names are NVML's, like nvmlDeviceCreateGpuInstanceWithPlacement".to_owned()
        } else {
            format!("; did you mean {}?", alike.join(" or "))
        };
        Self::UnknownFunction {
            function: function.to_owned(),
            near,
        }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::Nvml {
            what: "the state file".to_owned(),
            code,
        }
    }
}

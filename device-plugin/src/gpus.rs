//! What the agent can see of GPUs and do to them, without a word about how. The real thing is [`nvml`]; it lives
//! on the one thread of [`driver`], because a call into a driver can hang.

pub mod driver;
#[cfg(test)]
pub(crate) mod fake;
pub mod nvml;
mod nvml_ext;
mod samples;
mod table;

use std::sync::Arc;

use shared::mig::{Board, Place};

/// The GPUs of a node.
pub trait Gpus: Send {
    /// Versions, for status and labels.
    ///
    /// # Errors
    /// [`GpuError`], as every call here.
    fn driver(&self) -> Result<DriverInfo, GpuError>;

    /// All GPUs by index, with their placement tables.
    ///
    /// # Errors
    /// [`GpuError`]
    fn list(&mut self) -> Result<Vec<GpuInfo>, GpuError>;

    /// The GPU instances of one GPU.
    ///
    /// # Errors
    /// [`GpuError`]
    fn instances(&mut self, gpu: &GpuInfo) -> Result<Vec<Instance>, GpuError>;

    /// Makes a GPU instance at exactly this place and returns its id.
    ///
    /// # Errors
    /// [`GpuError`]
    fn create_instance(&mut self, gpu: &GpuInfo, place: Place) -> Result<u32, GpuError>;

    /// Makes the compute instance that fills a GPU instance; returns what stands there then.
    ///
    /// # Errors
    /// [`GpuError`]
    fn create_compute(&mut self, gpu: &GpuInfo, place: Place, gi: u32) -> Result<Instance, GpuError>;

    /// Removes the compute instances of a GPU instance.
    ///
    /// # Errors
    /// [`GpuError`]; [`GpuError::InUse`] where somebody works on it.
    fn destroy_compute(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError>;

    /// Removes a GPU instance without compute instances.
    ///
    /// # Errors
    /// [`GpuError`]; [`GpuError::InUse`] where somebody works on it.
    fn destroy_instance(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError>;

    /// Processes on a GPU, each with the GPU instance it runs on.
    ///
    /// # Errors
    /// [`GpuError`]
    fn processes(&mut self, gpu: &GpuInfo) -> Result<Vec<Process>, GpuError>;

    /// What each slice of a GPU did since it was read before, and what it holds; of a GPU without MIG the same as a
    /// whole. Activity is as the driver tells it: beyond 0 to 1 too. A slice that nobody read before has none.
    ///
    /// # Errors
    /// [`GpuError`] about the GPU or the driver; what a single slice does not tell is left out.
    fn usage(&mut self, gpu: &GpuInfo) -> Result<Vec<Usage>, GpuError>;

    /// Whether the GPU wants something done before it works again.
    ///
    /// # Errors
    /// [`GpuError`]
    fn recovery(&mut self, gpu: &GpuInfo) -> Result<Recovery, GpuError>;

    /// A source of events of all GPUs, to be waited on by a thread of its own.
    ///
    /// # Errors
    /// [`GpuError`]
    fn events(&mut self) -> Result<Box<dyn Events>, GpuError>;
}

/// Events of GPUs.
pub trait Events: Send {
    /// The next event, or `None` when none came within the time.
    ///
    /// # Errors
    /// [`GpuError`] when the driver is gone.
    fn next(&mut self, wait: std::time::Duration) -> Result<Option<Event>, GpuError>;
}

/// What the driver says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// `580.95.05`
    pub version: String,
    /// CUDA version of the driver, major and minor.
    pub cuda: (u32, u32),
}

/// What a GPU is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// `GPU-…`
    pub uuid: String,
    /// NVML index.
    pub index: u32,
    /// N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Product name.
    pub model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// PCI bus id.
    pub pci_bus: String,
    /// NUMA node, where the machine has more than one.
    pub numa: Option<u32>,
    /// CUDA compute capability.
    pub capability: (u32, u32),
    /// Whether MIG mode is on.
    pub mig: bool,
    /// Its placement table; `None` where it cannot do MIG.
    pub board: Option<Arc<Board>>,
    /// Whether NVML's table is not the one of our catalogue.
    pub unlike_catalogue: bool,
}

/// A GPU instance with what is inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Where it sits.
    pub place: Place,
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id, where one compute instance fills the GPU instance.
    pub ci: Option<u32>,
    /// UUID of its MIG device; empty without [`Self::ci`].
    pub uuid: String,
    /// Other compute instances: somebody else's partition.
    pub partial: usize,
}

impl Instance {
    /// Whether it is a slice as we make them: one compute instance that fills it.
    #[must_use]
    pub fn is_slice(&self) -> bool {
        self.ci.is_some() && self.partial == 0
    }
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id on the host.
    pub pid: u32,
    /// GPU instance it runs on; `None` on a GPU without MIG.
    pub gi: Option<u32>,
}

/// What a slice, or a GPU without MIG, did and holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// UUID of the MIG device, or of the GPU.
    pub uuid: String,
    /// Share of what it could do that it did, 0 to 1; `None` where nobody can tell.
    pub activity: Option<f64>,
    /// Memory, where it is told.
    pub memory: Option<Memory>,
}

/// Memory of a slice or a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that there are.
    pub total: u64,
}

/// What a GPU wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing, or the driver cannot tell.
    None,
    /// A reset of the GPU.
    Reset,
    /// A reboot of the node.
    Reboot,
    /// Its work must end first.
    Drain,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// UUID of the GPU, where known.
    pub gpu: Option<String>,
    /// GPU instance; `None` for the whole GPU.
    pub gi: Option<u32>,
    /// What.
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An XID.
    Xid(u64),
    /// Somebody changed the instances or the mode.
    MigConfigChange,
    /// The GPU cannot be reached.
    Unavailable,
    /// What the GPU wants done has changed.
    RecoveryAction,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The library or the driver is not there.
    #[error("no NVIDIA driver: {0}")]
    NoDriver(String),
    /// A GPU is gone.
    #[error("{call}: the GPU is lost")]
    Lost {
        /// The call.
        call: &'static str,
    },
    /// Somebody works on it.
    #[error("{call}: in use by another client")]
    InUse {
        /// The call.
        call: &'static str,
    },
    /// The place is taken, or a limit is reached.
    #[error("{call}: the GPU has no room there")]
    NoRoom {
        /// The call.
        call: &'static str,
    },
    /// There is no such thing.
    #[error("{call}: not found")]
    NotFound {
        /// The call.
        call: &'static str,
    },
    /// The GPU cannot do this.
    #[error("{call}: not supported")]
    NotSupported {
        /// The call.
        call: &'static str,
    },
    /// We may not do this.
    #[error("{call}: no permission; the agent needs root and the MIG config capability")]
    NoPermission {
        /// The call.
        call: &'static str,
    },
    /// The call did not come back in time.
    #[error("{call}: no answer from the driver within {seconds} s")]
    Hung {
        /// The call.
        call: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// Anything else NVML says.
    #[error("{call}: {text}")]
    Other {
        /// The call.
        call: &'static str,
        /// NVML's words.
        text: String,
    },
}

impl GpuError {
    /// Whether the whole driver is gone, so that it must be opened again.
    #[must_use]
    pub fn driver_gone(&self) -> bool {
        matches!(self, Self::NoDriver(_))
    }
}

//! What a node with GPUs is: the content of the state file.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::model::{Architecture, Model, Profile};
use crate::naming::Kind;
use crate::utilisation::Curve;

/// Driver version of a node that was not told another.
pub const DRIVER_VERSION: &str = "580.105.08";

/// How many events are kept for readers that are behind.
const EVENTS_KEPT: usize = 256;

/// Event type bit of `nvmlEventMigConfigChange`.
pub const MIG_CONFIG_CHANGE: u64 = 0x100;

/// Event type bit of `nvmlEventTypeXidCriticalError`.
pub const XID_CRITICAL_ERROR: u64 = 0x8;

/// Event type bit of `nvmlEventTypeGpuRecoveryAction`.
pub const GPU_RECOVERY_ACTION: u64 = 0x8000;

/// A node: its driver, its GPUs, and what is broken about them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Counts the writes of this file; the lock file has the same number. See `store`.
    pub generation: u64,
    /// Board of every GPU, a name of the catalogue.
    pub board: String,
    /// What `nvmlSystemGetDriverVersion` says.
    pub driver_version: String,
    /// Every uuid and serial follows from it.
    pub seed: u64,
    /// MIG mode that Hopper and later come back with after a reboot (what the node's own units set at boot).
    pub mig_at_boot: bool,
    /// Reboots so far.
    pub boots: u64,
    /// The number that the next instance gets; never given twice, so that no uuid and no handle is.
    pub next_serial: u64,
    /// The GPUs, by index.
    pub gpus: Vec<Gpu>,
    /// Events, oldest first.
    pub events: VecDeque<Event>,
    /// Sequence number of the next event.
    pub next_event: u64,
    /// Calls that shall fail.
    pub failures: Vec<Failure>,
    /// Milliseconds that a function takes, by name.
    pub delays: BTreeMap<String, u64>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// NVML index; equals the minor number of `/dev/nvidia<N>`.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Serial number of the board.
    pub serial: String,
    /// NUMA node.
    pub numa: u32,
    /// Whether MIG mode is on.
    pub mig: bool,
    /// MIG mode after the next reset.
    pub mig_pending: bool,
    /// Fallen off the bus.
    pub lost: bool,
    /// Value of `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`.
    pub recovery_action: u32,
    /// GPU instances, in the order they were made.
    pub instances: Vec<GpuInstance>,
    /// Processes on the GPU.
    pub processes: Vec<Process>,
    /// Load outside MIG mode.
    pub load: Load,
    /// Persistence mode.
    pub persistence: bool,
    /// NVML's compute mode.
    pub compute_mode: u32,
    /// Whether GPM streaming is on.
    pub gpm_streaming: bool,
}

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuInstance {
    /// NVML's id on this GPU; used again after the instance is gone.
    pub id: u32,
    /// Never used again.
    pub serial: u64,
    /// Driver profile id.
    pub profile: u32,
    /// First memory slice.
    pub start: u32,
    /// Memory slices.
    pub size: u32,
    /// Its compute instances, in the order they were made.
    pub compute_instances: Vec<ComputeInstance>,
    /// Load.
    pub load: Load,
}

/// A compute instance, and so a MIG device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeInstance {
    /// NVML's id in its GPU instance.
    pub id: u32,
    /// Never used again.
    pub serial: u64,
    /// Compute instance profile id, which is NVML's enum value.
    pub profile: u32,
    /// First compute slice in the GPU instance.
    pub start: u32,
    /// Compute slices.
    pub size: u32,
    /// Index of the MIG device on its GPU.
    pub mig_index: u32,
    /// `MIG-…`.
    pub uuid: String,
}

/// What a GPU or a slice is busy with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Activity; none is idle.
    pub curve: Option<Curve>,
    /// Memory in use besides that of known processes, in MiB.
    pub memory_mib: u64,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// GPU instance it runs on, in MIG mode.
    pub gpu_instance: Option<u32>,
    /// Compute instance it runs on, in MIG mode.
    pub compute_instance: Option<u32>,
    /// Memory it holds, in MiB.
    pub memory_mib: u64,
}

/// An event, for every process that registered for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Sequence number.
    pub number: u64,
    /// GPU index.
    pub gpu: u32,
    /// One bit of NVML's event types.
    pub kind: u64,
    /// The XID, for an XID event.
    pub data: u64,
    /// GPU instance, if the event is about one.
    pub gpu_instance: Option<u32>,
    /// Compute instance, if the event is about one.
    pub compute_instance: Option<u32>,
}

/// Calls of a function that shall fail, counted over all processes from the moment this was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Function, with `nvml` in front.
    pub function: String,
    /// The first call that fails, from 1.
    pub on_call: u64,
    /// How many calls fail from there on.
    pub times: u64,
    /// What they answer.
    pub code: u32,
    /// Calls seen so far.
    pub seen: u64,
}

impl State {
    /// The model of its GPUs.
    ///
    /// # Errors
    /// `UNKNOWN` when the state file names a board that the catalogue does not have.
    pub fn model(&self) -> Result<&'static Model, Code> {
        Model::named(&self.board).ok_or(Code::Unknown)
    }

    /// Tells an event to every process that registered for it. Of changes of a GPU's MIG layout only the last is
    /// kept, so that a busy GPU does not push errors out of the queue.
    pub fn tell(&mut self, gpu: u32, kind: u64, data: u64, gpu_instance: Option<u32>, compute: Option<u32>) {
        if kind == MIG_CONFIG_CHANGE {
            self.events.retain(|event| (event.gpu, event.kind) != (gpu, kind));
        }
        while self.events.len() >= EVENTS_KEPT {
            self.events.pop_front();
        }
        let number = self.next_event;
        self.next_event += 1;
        self.events.push_back(Event {
            number,
            gpu,
            kind,
            data,
            gpu_instance,
            compute_instance: compute,
        });
    }

    /// A new serial, and the uuid of a MIG device with it.
    pub(crate) fn serial(&mut self) -> (u64, String) {
        let serial = self.next_serial;
        self.next_serial += 1;
        (serial, Kind::Mig.uuid(self.seed, serial))
    }

    /// A GPU loses its instances, processes and errors, and takes its pending MIG mode.
    pub fn reset(&mut self, gpu: usize) {
        let Some(gpu) = self.gpus.get_mut(gpu) else { return };
        gpu.instances.clear();
        gpu.processes.clear();
        gpu.load = Load::default();
        gpu.mig = gpu.mig_pending;
        gpu.lost = false;
        gpu.recovery_action = 0;
        let index = gpu.index;
        self.tell(index, MIG_CONFIG_CHANGE, 0, None, None);
    }

    /// The node reboots: every GPU is reset. Ampere keeps its MIG mode, later generations come back with `mig`,
    /// or with what the node's units set at boot.
    pub fn reboot(&mut self, mig: Option<bool>) {
        let ampere = self
            .model()
            .is_ok_and(|model| model.architecture == Architecture::Ampere);
        let at_boot = self.mig_at_boot;
        self.boots += 1;
        for index in 0..self.gpus.len() {
            if !ampere {
                self.gpus[index].mig_pending = mig.unwrap_or(at_boot);
            }
            self.reset(index);
        }
        self.events.clear();
    }

    /// Removes what was broken on purpose: failures, delays, lost GPUs, recovery actions, leftover processes.
    pub fn clear(&mut self) {
        self.failures.clear();
        self.delays.clear();
        for gpu in &mut self.gpus {
            gpu.lost = false;
            gpu.recovery_action = 0;
            gpu.processes.clear();
        }
    }
}

impl Gpu {
    /// The GPU instance with this id.
    #[must_use]
    pub fn instance(&self, id: u32) -> Option<&GpuInstance> {
        self.instances.iter().find(|instance| instance.id == id)
    }

    /// PCI bus number; the domain and device are 0.
    #[must_use]
    pub fn bus(&self) -> u32 {
        4 + 7 * self.index
    }

    /// PCI bus id as NVML writes it.
    #[must_use]
    pub fn bus_id(&self) -> String {
        format!("00000000:{:02X}:00.0", self.bus())
    }

    /// Memory in use on a slice, or on the whole GPU, in MiB; never more than there is.
    #[must_use]
    pub fn memory_used(&self, model: &Model, instance: Option<&GpuInstance>) -> u64 {
        /// What the driver itself takes of a slice that nobody uses.
        const DRIVER_MIB: u64 = 13;
        let processes = |id: Option<u32>| {
            let held = self
                .processes
                .iter()
                .filter(|process| id.is_none() || process.gpu_instance == id);
            held.map(|process| process.memory_mib).sum::<u64>()
        };
        match instance {
            Some(instance) => {
                let total = model
                    .profile(instance.profile)
                    .map_or(0, |profile| profile.memory_mib);
                (DRIVER_MIB + processes(Some(instance.id)) + instance.load.memory_mib).min(total)
            }
            None => {
                let slices = self
                    .instances
                    .iter()
                    .map(|instance| DRIVER_MIB + instance.load.memory_mib);
                (slices.sum::<u64>() + processes(None) + self.load.memory_mib).min(model.memory_mib)
            }
        }
    }

    /// Activity curves that make up the load of a slice or of the GPU, each with its weight; weights sum to at
    /// most 1.
    #[must_use]
    pub fn curves(&self, model: &Model, instance: Option<&GpuInstance>) -> Vec<(f64, Curve)> {
        if let Some(instance) = instance {
            return instance
                .load
                .curve
                .iter()
                .map(|curve| (1.0, curve.clone()))
                .collect();
        }
        let whole = self
            .load
            .curve
            .iter()
            .filter(|_| !self.mig)
            .map(|curve| (1.0, curve.clone()));
        let slices = self.instances.iter().filter_map(|instance| {
            let compute = model.profile(instance.profile)?.compute;
            Some((
                f64::from(compute) / f64::from(model.compute_slices),
                instance.load.curve.clone()?,
            ))
        });
        whole.chain(slices).collect()
    }
}

impl GpuInstance {
    /// Its profile.
    ///
    /// # Errors
    /// `UNKNOWN` when the state file names a profile that the board does not have.
    pub fn profile<'m>(&self, model: &'m Model) -> Result<&'m Profile, Code> {
        model.profile(self.profile).ok_or(Code::Unknown)
    }
}

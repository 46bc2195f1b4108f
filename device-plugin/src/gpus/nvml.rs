//! GPUs through NVIDIA's management library.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use shared::mig::Place;

use super::samples::Samples;
use super::{
    DriverInfo, Event, EventKind, Events, GpuError, GpuInfo, Gpus, Instance, Process, Recovery, Usage,
    nvml_ext, samples, table,
};

/// Where the library is looked for beneath a driver root, in this order.
const LIBRARY_FOLDERS: [&str; 6] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
];
/// The library's name.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// The real thing.
pub struct NvmlGpus {
    nvml: Arc<Nvml>,
    /// Boards whose difference from the catalogue was logged.
    told: BTreeSet<String>,
    /// What was read of slices before.
    samples: Samples,
}

impl NvmlGpus {
    /// Opens the library beneath a driver root; `/` leaves the search to the dynamic linker.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`] with where was looked.
    pub fn open(driver_root: &Path) -> Result<Self, GpuError> {
        let nvml = if driver_root == Path::new("/") {
            Nvml::builder().lib_path(LIBRARY.as_ref()).init()
        } else {
            let library = find(driver_root)?;
            Nvml::builder().lib_path(library.as_os_str()).init()
        };
        let nvml = nvml.map_err(|error| GpuError::NoDriver(error.to_string()))?;
        Ok(Self {
            nvml: Arc::new(nvml),
            told: BTreeSet::new(),
            samples: Samples::default(),
        })
    }

    fn device(&self, gpu: &GpuInfo) -> Result<Device<'_>, GpuError> {
        device(&self.nvml, gpu)
    }

    fn info(&mut self, index: u32) -> Result<GpuInfo, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let pci = device.pci_info()?;
        let memory_mib = device.memory_info()?.total / MIB;
        let capability = device
            .cuda_compute_capability()
            .map(|found| (found.major, found.minor));
        let (major, minor) = capability.unwrap_or((0, 0));
        let model = device.name()?;
        // a GPU that knows no MIG mode has no table
        let mode = device.mig_mode().ok();
        let (board, unlike_catalogue) = match mode {
            Some(_) => table::board(&device, pci.pci_device_id >> 16, &model, memory_mib)?,
            None => (None, false),
        };
        let gpu = GpuInfo {
            uuid: device.uuid()?,
            index,
            minor: device.minor_number()?,
            model,
            memory_mib,
            numa: numa_node(&pci.bus_id),
            pci_bus: pci.bus_id,
            capability: (major.unsigned_abs(), minor.unsigned_abs()),
            mig: mode.is_some_and(|mode| mode.current == 1) && board.is_some(),
            board: board.map(Arc::new),
            unlike_catalogue,
        };
        if let Some(board) = gpu.board.as_ref().filter(|_| unlike_catalogue)
            && self.told.insert(board.name.clone())
        {
            tracing::warn!(
                board = board.name,
                "NVML's placement table is not our catalogue's; NVML's is used"
            );
        }
        Ok(gpu)
    }
}

impl Gpus for NvmlGpus {
    fn driver(&self) -> Result<DriverInfo, GpuError> {
        let version = self
            .nvml
            .sys_driver_version()
            .map_err(fail("nvmlSystemGetDriverVersion"))?;
        let cuda = self.nvml.sys_cuda_driver_version().unwrap_or(0).unsigned_abs();
        Ok(DriverInfo {
            version,
            cuda: (cuda / 1000, cuda % 1000 / 10),
        })
    }

    fn list(&mut self) -> Result<Vec<GpuInfo>, GpuError> {
        let count = self.nvml.device_count().map_err(fail("nvmlDeviceGetCount_v2"))?;
        let mut found = Vec::new();
        for index in 0..count {
            match self.info(index).map_err(fail("reading a GPU")) {
                Ok(gpu) => found.push(gpu),
                // one lost GPU does not take the others with it; the inventory notices that it is missing
                Err(error @ GpuError::Lost { .. }) => tracing::debug!(index, %error, "GPU skipped"),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn instances(&mut self, gpu: &GpuInfo) -> Result<Vec<Instance>, GpuError> {
        let Some(board) = gpu.board.as_ref().filter(|_| gpu.mig) else {
            return Ok(Vec::new());
        };
        let device = self.device(gpu)?;
        let uuids = nvml_ext::mig_uuids(&device).map_err(fail("listing MIG devices"))?;
        let mut found = Vec::new();
        for row in &board.profiles {
            for raw in nvml_ext::instances(&device, row.id).map_err(fail("nvmlDeviceGetGpuInstances"))? {
                let place = Place::new(row.profile, u8::try_from(raw.start).unwrap_or(u8::MAX));
                found.push(describe(&device, place, raw.gi, &uuids)?);
            }
        }
        Ok(found)
    }

    fn create_instance(&mut self, gpu: &GpuInfo, place: Place) -> Result<u32, GpuError> {
        let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
        let row = gpu.board.as_ref().and_then(|board| board.row(place.profile));
        let row = row.ok_or(GpuError::NotSupported { call })?;
        let device = self.device(gpu)?;
        nvml_ext::create_instance(&device, row.id, place.start.into(), row.size.into()).map_err(fail(call))
    }

    fn create_compute(&mut self, gpu: &GpuInfo, place: Place, gi: u32) -> Result<Instance, GpuError> {
        let nvml = Arc::clone(&self.nvml);
        let device = device(&nvml, gpu)?;
        nvml_ext::create_compute(&device, gi, place.profile.compute.into())
            .map_err(fail("nvmlGpuInstanceCreateComputeInstance"))?;
        let uuids = nvml_ext::mig_uuids(&device).map_err(fail("listing MIG devices"))?;
        let made = describe(&device, place, gi, &uuids)?;
        self.samples.begin(&nvml, &device, gi, &made.uuid);
        Ok(made)
    }

    fn destroy_compute(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError> {
        // first: nothing of ours is left that could keep it
        self.samples.forget(&gpu.uuid, gi);
        nvml_ext::destroy_computes(&self.device(gpu)?, gi).map_err(fail("nvmlComputeInstanceDestroy"))
    }

    fn destroy_instance(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError> {
        nvml_ext::destroy_instance(&self.device(gpu)?, gi).map_err(fail("nvmlGpuInstanceDestroy"))
    }

    fn processes(&mut self, gpu: &GpuInfo) -> Result<Vec<Process>, GpuError> {
        let device = self.device(gpu)?;
        let mut all = device
            .running_compute_processes()
            .map_err(fail("nvmlDeviceGetComputeRunningProcesses_v3"))?;
        // graphics is not there on every board
        all.extend(device.running_graphics_processes().unwrap_or_default());
        Ok(all
            .into_iter()
            .map(|process| Process {
                pid: process.pid,
                gi: process.gpu_instance_id,
            })
            .collect())
    }

    fn usage(&mut self, gpu: &GpuInfo) -> Result<Vec<Usage>, GpuError> {
        let nvml = Arc::clone(&self.nvml);
        let device = device(&nvml, gpu)?;
        if gpu.mig {
            self.samples.slices(&nvml, &device, &gpu.uuid)
        } else {
            samples::whole(&device, &gpu.uuid).map(|usage| vec![usage])
        }
    }

    fn recovery(&mut self, gpu: &GpuInfo) -> Result<Recovery, GpuError> {
        let device = self.device(gpu)?;
        let field = FieldId(sys::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
        let values = device
            .field_values_for(&[field])
            .map_err(fail("nvmlDeviceGetFieldValues"))?;
        let value = values
            .into_iter()
            .next()
            .and_then(Result::ok)
            .and_then(|sample| sample.value.ok());
        let action = match value {
            Some(SampleValue::U32(action)) => action,
            Some(SampleValue::U64(action)) => u32::try_from(action).unwrap_or(u32::MAX),
            Some(SampleValue::I64(action)) => u32::try_from(action).unwrap_or(u32::MAX),
            // an older driver cannot tell
            _ => return Ok(Recovery::None),
        };
        Ok(match action {
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NONE => Recovery::None,
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_NODE_REBOOT => Recovery::Reboot,
            sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_P2P
            | sys::nvmlDeviceGpuRecoveryAction_s_NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET => Recovery::Drain,
            _ => Recovery::Reset,
        })
    }

    fn events(&mut self) -> Result<Box<dyn Events>, GpuError> {
        let wanted = [
            sys::nvmlEventTypeXidCriticalError,
            sys::nvmlEventTypeDoubleBitEccError,
            sys::nvmlEventTypeGpuUnavailableError,
            sys::nvmlEventTypeGpuRecoveryAction,
        ];
        let wanted = wanted
            .into_iter()
            .fold(nvml_ext::EVENT_MIG_CONFIG_CHANGE, |all, one| all | u64::from(one));
        let set = nvml_ext::EventSet::new(Arc::clone(&self.nvml), wanted)
            .map_err(fail("nvmlDeviceRegisterEvents"))?;
        Ok(Box::new(set))
    }
}

impl Events for nvml_ext::EventSet {
    fn next(&mut self, wait: Duration) -> Result<Option<Event>, GpuError> {
        let Some(raw) = self.wait(wait).map_err(fail("nvmlEventSetWait_v2"))? else {
            return Ok(None);
        };
        let is = |kind: u32| raw.kind & u64::from(kind) != 0;
        let kind = if is(sys::nvmlEventTypeXidCriticalError) {
            EventKind::Xid(raw.data)
        } else if is(sys::nvmlEventTypeDoubleBitEccError) {
            // the XID of a double bit error; its event carries no number
            EventKind::Xid(48)
        } else if is(sys::nvmlEventTypeGpuUnavailableError) {
            EventKind::Unavailable
        } else if is(sys::nvmlEventTypeGpuRecoveryAction) {
            EventKind::RecoveryAction
        } else {
            EventKind::MigConfigChange
        };
        Ok(Some(Event {
            gpu: raw.gpu,
            gi: raw.gi,
            kind,
        }))
    }
}

fn device<'n>(nvml: &'n Nvml, gpu: &GpuInfo) -> Result<Device<'n>, GpuError> {
    nvml.device_by_uuid(gpu.uuid.as_str())
        .map_err(fail("nvmlDeviceGetHandleByUUID"))
}

/// The library beneath a driver root.
fn find(root: &Path) -> Result<PathBuf, GpuError> {
    let candidates = LIBRARY_FOLDERS
        .iter()
        .map(|folder| root.join(folder).join(LIBRARY));
    candidates.into_iter().find(|path| path.exists()).ok_or_else(|| {
        let folders = LIBRARY_FOLDERS.join(", ");
        GpuError::NoDriver(format!(
            "{LIBRARY} is in none of {folders} beneath {}",
            root.display()
        ))
    })
}

/// What stands in a GPU instance.
fn describe(
    device: &Device<'_>,
    place: Place,
    gi: u32,
    uuids: &[(u32, u32, String)],
) -> Result<Instance, GpuError> {
    let computes = nvml_ext::computes(device, gi).map_err(fail("nvmlGpuInstanceGetComputeInstances"))?;
    let full = computes
        .iter()
        .find(|compute| compute.slices == u32::from(place.profile.compute));
    let ci = full.map(|compute| compute.ci);
    let uuid = uuids
        .iter()
        .find(|(of_gi, of_ci, _)| *of_gi == gi && Some(*of_ci) == ci);
    let uuid = uuid.map(|(_, _, uuid)| uuid.clone()).unwrap_or_default();
    let partial = computes.len() - usize::from(full.is_some());
    Ok(Instance {
        place,
        gi,
        ci,
        uuid,
        partial,
    })
}

/// NUMA node of a PCI device; the kernel says -1 where there is only one.
fn numa_node(bus_id: &str) -> Option<u32> {
    // NVML writes 8 digits of domain, sysfs 4
    let (domain, rest) = bus_id.split_once(':')?;
    let bus = format!("{}:{rest}", domain.get(domain.len().saturating_sub(4)..)?).to_ascii_lowercase();
    std::fs::read_to_string(format!("/sys/bus/pci/devices/{bus}/numa_node"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Turns what the wrapper says into what we say.
pub(super) fn fail(call: &'static str) -> impl Fn(NvmlError) -> GpuError {
    move |error| match error {
        NvmlError::Uninitialized
        | NvmlError::DriverNotLoaded
        | NvmlError::LibraryNotFound
        | NvmlError::LibloadingError(_)
        | NvmlError::LibRmVersionMismatch => GpuError::NoDriver(format!("{call}: {error}")),
        NvmlError::GpuLost | NvmlError::ResetRequired => GpuError::Lost { call },
        NvmlError::InUse => GpuError::InUse { call },
        NvmlError::UnexpectedVariant(nvml_ext::INSUFFICIENT_RESOURCES) => GpuError::NoRoom { call },
        NvmlError::NotFound => GpuError::NotFound { call },
        NvmlError::NotSupported => GpuError::NotSupported { call },
        NvmlError::NoPermission => GpuError::NoPermission { call },
        other => GpuError::Other {
            call,
            text: other.to_string(),
        },
    }
}

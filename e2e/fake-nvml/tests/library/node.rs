//! A node in a temporary folder with the library loaded, and safe shapes of the raw calls that tests make often.

use std::ptr;

use nvidia_ml::control::{Setup, World};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::*;
use tempfile::TempDir;

/// A node. Each has its own copy of the library, so that tests of one process do not meet.
pub(crate) struct Node {
    pub(crate) nvml: Nvml,
    pub(crate) world: World,
    pub(crate) folder: TempDir,
}

/// A return code that is not SUCCESS.
pub(crate) type Refused = nvmlReturn_t;

/// A result of a raw call.
pub(crate) fn raw(code: nvmlReturn_t) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Node {
    /// GPUs in MIG mode.
    pub(crate) fn new(board: &str, gpus: u32) -> Self {
        Self::set_up(&Setup::new(board, gpus, 42))
    }

    pub(crate) fn set_up(setup: &Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = World::set_up(&folder.path().join("state.json"), setup).unwrap();
        let nvml = Nvml::builder()
            .lib_path(world.library().unwrap().as_os_str())
            .init()
            .unwrap();
        Self { nvml, world, folder }
    }

    pub(crate) fn gpu(&self, index: u32) -> Device<'_> {
        self.nvml.device_by_index(index).unwrap()
    }

    /// Makes a GPU instance by profile id.
    pub(crate) fn create(
        &self,
        gpu: u32,
        profile: u32,
        start: u32,
        size: u32,
    ) -> Result<nvmlGpuInstance_t, Refused> {
        let placement = nvmlGpuInstancePlacement_t { start, size };
        let mut made = ptr::null_mut();
        // SAFETY: the handle is the library's, the pointers are to locals.
        raw(unsafe {
            let gpu = self.gpu(gpu).handle();
            self.nvml.lib().nvmlDeviceCreateGpuInstanceWithPlacement(
                gpu,
                profile,
                &raw const placement,
                &raw mut made,
            )
        })?;
        Ok(made)
    }

    /// Makes a compute instance where the first fits.
    pub(crate) fn create_compute(
        &self,
        inside: nvmlGpuInstance_t,
        profile: u32,
    ) -> Result<nvmlComputeInstance_t, Refused> {
        let mut made = ptr::null_mut();
        // SAFETY: as above.
        raw(unsafe {
            self.nvml
                .lib()
                .nvmlGpuInstanceCreateComputeInstance(inside, profile, &raw mut made)
        })?;
        Ok(made)
    }

    pub(crate) fn destroy(&self, instance: nvmlGpuInstance_t) -> Result<(), Refused> {
        // SAFETY: handles are never followed; a stale one is refused.
        raw(unsafe { self.nvml.lib().nvmlGpuInstanceDestroy(instance) })
    }

    pub(crate) fn destroy_compute(&self, instance: nvmlComputeInstance_t) -> Result<(), Refused> {
        // SAFETY: as above.
        raw(unsafe { self.nvml.lib().nvmlComputeInstanceDestroy(instance) })
    }

    pub(crate) fn info(&self, instance: nvmlGpuInstance_t) -> Result<nvmlGpuInstanceInfo_t, Refused> {
        // SAFETY: the struct is plain data and the library fills it.
        unsafe {
            let mut info = std::mem::zeroed();
            raw(self.nvml.lib().nvmlGpuInstanceGetInfo(instance, &raw mut info))?;
            Ok(info)
        }
    }

    /// Uuids of the MIG devices of a GPU, by index.
    pub(crate) fn uuids(&self, gpu: u32) -> Vec<String> {
        let gpu = self.gpu(gpu);
        let most = gpu.mig_device_count().unwrap();
        (0..most)
            .filter_map(|index| gpu.mig_device_by_index(index).ok())
            .map(|mig| mig.uuid().unwrap())
            .collect()
    }
}

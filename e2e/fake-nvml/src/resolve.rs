//! From a handle to what it stands for in a state, or to the code of the refusal.

use crate::code::Code;
use crate::handle::{Handle, Target};
use crate::model::Model;
use crate::state::{ComputeInstance, Gpu, GpuInstance, State};

/// What a device handle may stand for.
pub(crate) enum Device<'s> {
    /// A GPU.
    Gpu(&'s Gpu),
    /// A MIG device: a compute instance in its GPU instance.
    Mig(Slice<'s>),
}

/// A compute instance with all that it is part of.
#[derive(Clone, Copy)]
pub(crate) struct Slice<'s> {
    pub(crate) gpu: &'s Gpu,
    pub(crate) instance: &'s GpuInstance,
    pub(crate) compute: &'s ComputeInstance,
}

impl<'s> Device<'s> {
    /// The GPU itself, or the parent of the MIG device.
    pub(crate) fn parent(&self) -> &'s Gpu {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Mig(slice) => slice.gpu,
        }
    }

    /// The GPU instance of a MIG device.
    pub(crate) fn instance(&self) -> Option<&'s GpuInstance> {
        match self {
            Self::Gpu(_) => None,
            Self::Mig(slice) => Some(slice.instance),
        }
    }
}

impl Gpu {
    /// Its handle.
    pub(crate) fn handle(&self) -> Handle {
        Handle::to(Target::Gpu(self.index.into()))
    }

    /// Itself, if it can be reached.
    pub(crate) fn reached(&self) -> Result<&Self, Code> {
        if self.lost { Err(Code::GpuIsLost) } else { Ok(self) }
    }
}

impl GpuInstance {
    /// Its handle.
    pub(crate) fn handle(&self) -> Handle {
        Handle::to(Target::GpuInstance(self.serial))
    }
}

impl ComputeInstance {
    /// Its handle as a compute instance.
    pub(crate) fn handle(&self) -> Handle {
        Handle::to(Target::ComputeInstance(self.serial))
    }

    /// Its handle as a MIG device.
    pub(crate) fn mig_handle(&self) -> Handle {
        Handle::to(Target::Mig(self.serial))
    }
}

/// Every compute instance of a node.
pub(crate) fn slices(state: &State) -> impl Iterator<Item = Slice<'_>> {
    state.gpus.iter().flat_map(|gpu| {
        gpu.instances.iter().flat_map(move |instance| {
            instance.compute_instances.iter().map(move |compute| Slice {
                gpu,
                instance,
                compute,
            })
        })
    })
}

/// A GPU or a MIG device.
pub(crate) fn device(state: &State, handle: Handle) -> Result<Device<'_>, Code> {
    match handle.target() {
        Some(Target::Gpu(index)) => {
            let gpu = state.gpus.get(index as usize).ok_or(Code::InvalidArgument)?;
            Ok(Device::Gpu(gpu.reached()?))
        }
        Some(Target::Mig(serial)) => {
            let slice = slices(state).find(|slice| slice.compute.serial == serial);
            let slice = slice.ok_or(Code::InvalidArgument)?;
            slice.gpu.reached()?;
            Ok(Device::Mig(slice))
        }
        _ => Err(Code::InvalidArgument),
    }
}

/// A GPU, for a function that does not take MIG devices.
pub(crate) fn gpu(state: &State, handle: Handle) -> Result<&Gpu, Code> {
    match device(state, handle)? {
        Device::Gpu(gpu) => Ok(gpu),
        Device::Mig(_) => Err(Code::NotSupported),
    }
}

/// A GPU in MIG mode.
pub(crate) fn gpu_in_mig_mode(state: &State, handle: Handle) -> Result<&Gpu, Code> {
    let gpu = gpu(state, handle)?;
    if gpu.mig { Ok(gpu) } else { Err(Code::NotSupported) }
}

/// A GPU instance and its GPU.
pub(crate) fn gpu_instance(state: &State, handle: Handle) -> Result<(&Gpu, &GpuInstance), Code> {
    let Some(Target::GpuInstance(serial)) = handle.target() else {
        return Err(Code::InvalidArgument);
    };
    let mut all = state
        .gpus
        .iter()
        .flat_map(|gpu| gpu.instances.iter().map(move |instance| (gpu, instance)));
    let found = all
        .find(|(_, instance)| instance.serial == serial)
        .ok_or(Code::InvalidArgument)?;
    found.0.reached()?;
    Ok(found)
}

/// A compute instance and all that it is part of.
pub(crate) fn compute_instance(state: &State, handle: Handle) -> Result<Slice<'_>, Code> {
    let Some(Target::ComputeInstance(serial)) = handle.target() else {
        return Err(Code::InvalidArgument);
    };
    let slice = slices(state)
        .find(|slice| slice.compute.serial == serial)
        .ok_or(Code::InvalidArgument)?;
    slice.gpu.reached()?;
    Ok(slice)
}

/// Compute slices of a GPU instance.
pub(crate) fn compute_slices(model: &Model, instance: &GpuInstance) -> Result<u32, Code> {
    Ok(instance.profile(model)?.compute)
}

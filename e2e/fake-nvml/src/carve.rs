//! Making and destroying instances: the part of NVML that changes a GPU. Used by the library's entry points and
//! by the control command, which so plays the foreign hand behind a program's back.

use crate::code::Code;
use crate::model::Model;
use crate::placement::{self, ComputeProfile, Place};
use crate::state::{ComputeInstance, Gpu, GpuInstance, Load, MIG_CONFIG_CHANGE, State};

/// Makes a GPU instance, at a start or at the first that fits; answers with its id.
pub(crate) fn create_gpu_instance(
    state: &mut State,
    gpu: usize,
    profile: u32,
    start: Option<u32>,
) -> Result<u32, Code> {
    let model = state.model()?;
    let on = in_mig_mode(state, gpu)?;
    let profile = model.profile(profile).ok_or(Code::InvalidArgument)?;
    let held = placement::places(on, model)?;
    let start = match start {
        Some(start) => start,
        None => placement::first_fit(model, &held, profile).ok_or(Code::InsufficientResources)?,
    };
    placement::check(model, &held, &Place { profile, start })?;
    let id = placement::gpu_instance_id(on, model, profile.size).ok_or(Code::InsufficientResources)?;
    let (serial, _) = state.serial();
    let (profile, size) = (profile.id, profile.size);
    let instance = GpuInstance {
        id,
        serial,
        profile,
        start,
        size,
        compute_instances: Vec::new(),
        load: Load::default(),
    };
    state.gpus[gpu].instances.push(instance);
    state.tell(gpu as u32, MIG_CONFIG_CHANGE, 0, Some(id), None);
    Ok(id)
}

/// Destroys a GPU instance without compute instances and processes.
pub(crate) fn destroy_gpu_instance(state: &mut State, gpu: usize, id: u32) -> Result<(), Code> {
    let on = in_mig_mode(state, gpu)?;
    let instance = on.instance(id).ok_or(Code::InvalidArgument)?;
    let running = on
        .processes
        .iter()
        .any(|process| process.gpu_instance == Some(id));
    if running || !instance.compute_instances.is_empty() {
        return Err(Code::InUse);
    }
    state.gpus[gpu].instances.retain(|instance| instance.id != id);
    state.tell(gpu as u32, MIG_CONFIG_CHANGE, 0, Some(id), None);
    Ok(())
}

/// Makes a compute instance, at a start or at the first that fits; answers with its id.
pub(crate) fn create_compute_instance(
    state: &mut State,
    gpu: usize,
    gpu_instance: u32,
    profile: u32,
    start: Option<u32>,
) -> Result<u32, Code> {
    let model = state.model()?;
    let on = in_mig_mode(state, gpu)?;
    let instance = on.instance(gpu_instance).ok_or(Code::InvalidArgument)?;
    let slices = instance.profile(model)?.compute;
    let profile = compute_profile(slices, profile)?;
    let free = placement::free_compute_starts(instance, profile, slices);
    let start = match start {
        Some(start) if !placement::compute_starts(profile, slices).contains(&start) => {
            return Err(Code::InvalidArgument);
        }
        Some(start) => free
            .into_iter()
            .find(|free| *free == start)
            .ok_or(Code::InsufficientResources)?,
        None => *free.first().ok_or(Code::InsufficientResources)?,
    };
    let id = lowest_free(instance.compute_instances.iter().map(|held| held.id));
    let mig_index = free_mig_index(on, model)?;
    let (serial, uuid) = state.serial();
    let (profile, size) = (profile.id, profile.slices);
    let made = ComputeInstance {
        id,
        serial,
        profile,
        start,
        size,
        mig_index,
        uuid,
    };
    let instances = &mut state.gpus[gpu].instances;
    if let Some(instance) = instances.iter_mut().find(|instance| instance.id == gpu_instance) {
        instance.compute_instances.push(made);
    }
    state.tell(gpu as u32, MIG_CONFIG_CHANGE, 0, Some(gpu_instance), Some(id));
    Ok(id)
}

/// Destroys a compute instance without processes.
pub(crate) fn destroy_compute_instance(
    state: &mut State,
    gpu: usize,
    gpu_instance: u32,
    id: u32,
) -> Result<(), Code> {
    let on = in_mig_mode(state, gpu)?;
    let running = on.processes.iter().any(|process| {
        process.gpu_instance == Some(gpu_instance) && process.compute_instance.is_none_or(|held| held == id)
    });
    if running {
        return Err(Code::InUse);
    }
    let mut instances = state.gpus[gpu].instances.iter_mut();
    let instance = instances
        .find(|instance| instance.id == gpu_instance)
        .ok_or(Code::InvalidArgument)?;
    let before = instance.compute_instances.len();
    instance.compute_instances.retain(|held| held.id != id);
    if instance.compute_instances.len() == before {
        return Err(Code::InvalidArgument);
    }
    state.tell(gpu as u32, MIG_CONFIG_CHANGE, 0, Some(gpu_instance), Some(id));
    Ok(())
}

/// Turns MIG mode on or off; answers with the activation status. Ampere changes at the next reset; later
/// generations at once, unless slices or processes are there.
pub(crate) fn set_mig_mode(state: &mut State, gpu: usize, on: bool) -> Result<Option<Code>, Code> {
    let immediate = state.model()?.is_hopper_or_later();
    let gpu = state.gpus.get_mut(gpu).ok_or(Code::InvalidArgument)?;
    gpu.mig_pending = on;
    if gpu.mig == on {
        return Ok(None);
    }
    if !gpu.instances.is_empty() || !gpu.processes.is_empty() {
        return Ok(Some(Code::InUse));
    }
    if !immediate {
        return Ok(Some(Code::ResetRequired));
    }
    gpu.mig = on;
    Ok(None)
}

/// The compute instance profile with this id in a GPU instance with so many compute slices.
pub(crate) fn compute_profile(slices: u32, id: u32) -> Result<ComputeProfile, Code> {
    placement::compute_profiles(slices)
        .find(|profile| profile.id == id)
        .ok_or(Code::InvalidArgument)
}

fn in_mig_mode(state: &State, gpu: usize) -> Result<&Gpu, Code> {
    let gpu = state.gpus.get(gpu).ok_or(Code::InvalidArgument)?;
    if gpu.mig { Ok(gpu) } else { Err(Code::NotSupported) }
}

fn free_mig_index(gpu: &Gpu, model: &Model) -> Result<u32, Code> {
    let held = gpu
        .instances
        .iter()
        .flat_map(|instance| &instance.compute_instances);
    let index = lowest_free(held.map(|instance| instance.mig_index));
    if index < model.max_mig_devices() {
        Ok(index)
    } else {
        Err(Code::InsufficientResources)
    }
}

fn lowest_free(taken: impl Iterator<Item = u32>) -> u32 {
    let taken: Vec<u32> = taken.collect();
    (0..=taken.len() as u32)
        .find(|id| !taken.contains(id))
        .unwrap_or(taken.len() as u32)
}

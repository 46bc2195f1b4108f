//! MIG mode and GPU instances: made, listed, destroyed.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t};

use super::{Out, entries};
use crate::carve;
use crate::code::Code;
use crate::handle::Handle;
use crate::library::{Answer, Call};
use crate::resolve;
use crate::state::GpuInstance;

/// Makes an instance and hands its handle out.
fn create(call: &Call, device: Handle, profile: c_uint, start: Option<c_uint>, made: Out<Handle>) -> Answer {
    if made.is_null() {
        return Err(Code::InvalidArgument);
    }
    let handle = call.change(|state| {
        let gpu = resolve::gpu(state, device)?.index as usize;
        let id = carve::create_gpu_instance(state, gpu, profile, start)?;
        let instance = state.gpus[gpu].instance(id).ok_or(Code::Unknown)?;
        Ok(instance.handle())
    })?;
    made.put(handle)
}

entries! {
    fn nvmlDeviceGetMigMode(call, device: Handle, current: Out<c_uint>, pending: Out<c_uint>) {
        let gpu = call.gpu(device)?;
        current.put(gpu.mig.into())?;
        pending.put(gpu.mig_pending.into())
    }

    /// The answer is about the setting; whether it took effect is in the activation status.
    fn nvmlDeviceSetMigMode(call, device: Handle, mode: c_uint, activation: Out<c_uint>) {
        if mode > 1 || activation.is_null() {
            return Err(Code::InvalidArgument);
        }
        let status = call.change(|state| {
            let gpu = resolve::gpu(state, device)?.index as usize;
            carve::set_mig_mode(state, gpu, mode == 1)
        })?;
        activation.put(status.map_or(0, |code| code as c_uint))
    }

    fn nvmlDeviceCreateGpuInstance(call, device: Handle, profile_id: c_uint, made: Out<Handle>) {
        create(call, device, profile_id, None, made)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        call,
        device: Handle,
        profile_id: c_uint,
        placement: Out<nvmlGpuInstancePlacement_t>,
        made: Out<Handle>,
    ) {
        let placement = placement.get()?;
        let profile = call.model.profile(profile_id).ok_or(Code::InvalidArgument)?;
        if placement.size != profile.size {
            return Err(Code::InvalidArgument);
        }
        create(call, device, profile_id, Some(placement.start), made)
    }

    fn nvmlGpuInstanceDestroy(call, instance: Handle) {
        call.change(|state| {
            let (gpu, instance) = resolve::gpu_instance(state, instance)?;
            let (gpu, id) = (gpu.index as usize, instance.id);
            carve::destroy_gpu_instance(state, gpu, id)
        })
    }

    /// The array is as long as the profile's instance count; the count only comes out.
    fn nvmlDeviceGetGpuInstances(
        call,
        device: Handle,
        profile_id: c_uint,
        instances: Out<Handle>,
        count: Out<c_uint>,
    ) {
        let gpu = resolve::gpu_in_mig_mode(&call.state, device)?;
        call.model.profile(profile_id).ok_or(Code::InvalidArgument)?;
        let of_profile = || gpu.instances.iter().filter(|instance| instance.profile == profile_id);
        count.put(of_profile().count() as c_uint)?;
        instances.put_all(of_profile().map(GpuInstance::handle))
    }

    fn nvmlDeviceGetGpuInstanceById(call, device: Handle, id: c_uint, instance: Out<Handle>) {
        let gpu = resolve::gpu_in_mig_mode(&call.state, device)?;
        instance.put(gpu.instance(id).ok_or(Code::NotFound)?.handle())
    }

    fn nvmlGpuInstanceGetInfo(call, instance: Handle, info: Out<nvmlGpuInstanceInfo_t>) {
        let (gpu, instance) = resolve::gpu_instance(&call.state, instance)?;
        info.put(nvmlGpuInstanceInfo_t {
            device: gpu.handle().pointer(),
            id: instance.id,
            profileId: instance.profile,
            placement: nvmlGpuInstancePlacement_t { start: instance.start, size: instance.size },
        })
    }
}

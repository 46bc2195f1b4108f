//! Compute instances: profiles, places, made, listed, destroyed.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_st,
    nvmlComputeInstanceProfileInfo_v2_st, nvmlComputeInstanceProfileInfo_v3_st,
};

use super::identity::slice_name;
use super::{Out, entries, fixed, version};
use crate::carve;
use crate::code::Code;
use crate::handle::Handle;
use crate::library::{Answer, Call};
use crate::model::Profile;
use crate::placement::{self, ComputeProfile};
use crate::resolve;
use crate::state::ComputeInstance;

/// Values of NVML's compute instance profile enum end here (header 13.5).
const PROFILE_ENUMS: c_uint = 9;

/// A compute instance profile in its GPU instance, with its figures.
struct Listed {
    profile: ComputeProfile,
    /// The GPU instance's profile.
    inside: &'static Profile,
}

impl Listed {
    /// By NVML's enum value. There is one engine profile, shared engines (0).
    fn find(call: &Call, instance: Handle, nvml_enum: c_uint, engine: c_uint) -> Result<Self, Code> {
        let (_, instance) = resolve::gpu_instance(&call.state, instance)?;
        if nvml_enum >= PROFILE_ENUMS || engine != 0 {
            return Err(Code::InvalidArgument);
        }
        let inside = instance.profile(call.model)?;
        let mut profiles = placement::compute_profiles(inside.compute);
        let profile = profiles
            .find(|profile| profile.id == nvml_enum)
            .ok_or(Code::NotSupported)?;
        Ok(Self { profile, inside })
    }

    fn multiprocessors(&self) -> c_uint {
        self.inside.multiprocessors * self.profile.slices / self.inside.compute
    }

    fn count(&self) -> c_uint {
        placement::compute_starts(self.profile, self.inside.compute).len() as c_uint
    }

    fn name(&self) -> String {
        format!("MIG {}", slice_name(self.inside, self.profile.slices))
    }
}

/// Makes an instance and hands its handle out.
fn create(call: &Call, within: Handle, profile: c_uint, start: Option<c_uint>, made: Out<Handle>) -> Answer {
    if made.is_null() {
        return Err(Code::InvalidArgument);
    }
    let handle = call.change(|state| {
        let (gpu, instance) = resolve::gpu_instance(state, within)?;
        let (gpu, gpu_instance) = (gpu.index as usize, instance.id);
        let id = carve::create_compute_instance(state, gpu, gpu_instance, profile, start)?;
        let (_, instance) = resolve::gpu_instance(state, within)?;
        let compute = instance.compute_instances.iter().find(|compute| compute.id == id);
        Ok(compute.ok_or(Code::Unknown)?.handle())
    })?;
    made.put(handle)
}

entries! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        call,
        instance: Handle,
        profile: c_uint,
        engine: c_uint,
        info: Out<nvmlComputeInstanceProfileInfo_st>,
    ) {
        let listed = Listed::find(call, instance, profile, engine)?;
        info.put(nvmlComputeInstanceProfileInfo_st {
            id: listed.profile.id,
            sliceCount: listed.profile.slices,
            instanceCount: listed.count(),
            multiprocessorCount: listed.multiprocessors(),
            sharedCopyEngineCount: listed.inside.copy_engines,
            sharedDecoderCount: listed.inside.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: listed.inside.jpeg,
            sharedOfaCount: listed.inside.ofa,
        })
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        call,
        instance: Handle,
        profile: c_uint,
        engine: c_uint,
        info: Out<nvmlComputeInstanceProfileInfo_v2_st>,
    ) {
        const V2: u32 = version::<nvmlComputeInstanceProfileInfo_v2_st>(2);
        const V3: u32 = version::<nvmlComputeInstanceProfileInfo_v3_st>(3);
        let listed = Listed::find(call, instance, profile, engine)?;
        match info.cast::<c_uint>().get()? {
            V2 => info.put(nvmlComputeInstanceProfileInfo_v2_st {
                version: V2,
                id: listed.profile.id,
                sliceCount: listed.profile.slices,
                instanceCount: listed.count(),
                multiprocessorCount: listed.multiprocessors(),
                sharedCopyEngineCount: listed.inside.copy_engines,
                sharedDecoderCount: listed.inside.decoders,
                sharedEncoderCount: 0,
                sharedJpegCount: listed.inside.jpeg,
                sharedOfaCount: listed.inside.ofa,
                name: fixed(&listed.name()),
            }),
            V3 => info.cast().put(nvmlComputeInstanceProfileInfo_v3_st {
                version: V3,
                id: listed.profile.id,
                sliceCount: listed.profile.slices,
                instanceCount: listed.count(),
                multiprocessorCount: listed.multiprocessors(),
                sharedCopyEngineCount: listed.inside.copy_engines,
                sharedDecoderCount: listed.inside.decoders,
                sharedEncoderCount: 0,
                sharedJpegCount: listed.inside.jpeg,
                sharedOfaCount: listed.inside.ofa,
                name: fixed(&listed.name()),
                capabilities: 0,
            }),
            _ => Err(Code::ArgumentVersionMismatch),
        }
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        call,
        instance: Handle,
        profile_id: c_uint,
        count: Out<c_uint>,
    ) {
        let (_, instance) = resolve::gpu_instance(&call.state, instance)?;
        let slices = resolve::compute_slices(call.model, instance)?;
        let profile = carve::compute_profile(slices, profile_id)?;
        count.put(placement::free_compute_starts(instance, profile, slices).len() as c_uint)
    }

    /// All places of a profile, taken or free.
    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        call,
        instance: Handle,
        profile_id: c_uint,
        placements: Out<nvmlComputeInstancePlacement_t>,
        count: Out<c_uint>,
    ) {
        let (_, instance) = resolve::gpu_instance(&call.state, instance)?;
        let slices = resolve::compute_slices(call.model, instance)?;
        let profile = carve::compute_profile(slices, profile_id)?;
        let starts = placement::compute_starts(profile, slices);
        count.put(starts.len() as c_uint)?;
        if placements.is_null() {
            return Ok(());
        }
        let placement = |start| nvmlComputeInstancePlacement_t { start, size: profile.slices };
        placements.put_all(starts.into_iter().map(placement))
    }

    fn nvmlGpuInstanceCreateComputeInstance(call, instance: Handle, profile_id: c_uint, made: Out<Handle>) {
        create(call, instance, profile_id, None, made)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        call,
        instance: Handle,
        profile_id: c_uint,
        placement: Out<nvmlComputeInstancePlacement_t>,
        made: Out<Handle>,
    ) {
        let placement = placement.get()?;
        let (_, inside) = resolve::gpu_instance(&call.state, instance)?;
        let profile = carve::compute_profile(resolve::compute_slices(call.model, inside)?, profile_id)?;
        if placement.size != profile.slices {
            return Err(Code::InvalidArgument);
        }
        create(call, instance, profile_id, Some(placement.start), made)
    }

    fn nvmlComputeInstanceDestroy(call, compute: Handle) {
        call.change(|state| {
            let slice = resolve::compute_instance(state, compute)?;
            let (gpu, instance, id) = (slice.gpu.index as usize, slice.instance.id, slice.compute.id);
            carve::destroy_compute_instance(state, gpu, instance, id)
        })
    }

    /// The array is as long as the profile's instance count; the count only comes out.
    fn nvmlGpuInstanceGetComputeInstances(
        call,
        instance: Handle,
        profile_id: c_uint,
        instances: Out<Handle>,
        count: Out<c_uint>,
    ) {
        let (_, instance) = resolve::gpu_instance(&call.state, instance)?;
        carve::compute_profile(resolve::compute_slices(call.model, instance)?, profile_id)?;
        let of_profile = || instance.compute_instances.iter().filter(|held| held.profile == profile_id);
        count.put(of_profile().count() as c_uint)?;
        instances.put_all(of_profile().map(ComputeInstance::handle))
    }

    fn nvmlGpuInstanceGetComputeInstanceById(call, instance: Handle, id: c_uint, compute: Out<Handle>) {
        let (_, instance) = resolve::gpu_instance(&call.state, instance)?;
        let found = instance.compute_instances.iter().find(|held| held.id == id);
        compute.put(found.ok_or(Code::NotFound)?.handle())
    }

    fn nvmlComputeInstanceGetInfo_v2(call, compute: Handle, info: Out<nvmlComputeInstanceInfo_t>) {
        let slice = resolve::compute_instance(&call.state, compute)?;
        info.put(nvmlComputeInstanceInfo_t {
            device: slice.gpu.handle().pointer(),
            gpuInstance: slice.instance.handle().pointer(),
            id: slice.compute.id,
            profileId: slice.compute.profile,
            placement: nvmlComputeInstancePlacement_t { start: slice.compute.start, size: slice.compute.size },
        })
    }
}

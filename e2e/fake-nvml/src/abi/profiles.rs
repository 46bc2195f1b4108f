//! GPU instance profiles: what can be cut, where, and how many more. Asked for by NVML's enum value, placed by
//! the driver's profile id.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_st, nvmlGpuInstanceProfileInfo_v2_st,
    nvmlGpuInstanceProfileInfo_v3_st,
};

use super::{Out, entries, fixed, version};
use crate::code::Code;
use crate::handle::Handle;
use crate::library::{Answer, Call};
use crate::model::Profile;
use crate::placement;
use crate::resolve;

/// Values of NVML's GPU instance profile enum end here (header 13.3).
const PROFILE_ENUMS: c_uint = 18;

/// Capability bit of profiles that can do graphics.
const GRAPHICS: c_uint = 2;

/// Drivers up to this one list profiles only in MIG mode (mig-parted, its discovery of devices).
const LAST_DRIVER_THAT_NEEDS_MIG_MODE: u32 = 535;

/// Refuses a question about profiles that an old driver answers only in MIG mode.
fn listed(call: &Call, device: Handle) -> Answer {
    let gpu = call.gpu(device)?;
    let driver = call
        .state
        .driver_version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    if gpu.mig || driver > LAST_DRIVER_THAT_NEEDS_MIG_MODE {
        Ok(())
    } else {
        Err(Code::NotSupported)
    }
}

fn by_enum(call: &Call, device: Handle, nvml_enum: c_uint) -> Result<&'static Profile, Code> {
    listed(call, device)?;
    if nvml_enum >= PROFILE_ENUMS {
        return Err(Code::InvalidArgument);
    }
    call.model.by_enum(nvml_enum).ok_or(Code::NotSupported)
}

/// The name as NVML gives it.
fn listed_name(profile: &Profile) -> String {
    format!("MIG {}", profile.name)
}

/// Fills version 2 or 3 of the profile's struct, whichever the caller's version word asks for.
fn put_versioned(profile: &Profile, info: Out<nvmlGpuInstanceProfileInfo_v2_st>) -> Answer {
    const V2: u32 = version::<nvmlGpuInstanceProfileInfo_v2_st>(2);
    const V3: u32 = version::<nvmlGpuInstanceProfileInfo_v3_st>(3);
    match info.cast::<c_uint>().get()? {
        V2 => info.put(nvmlGpuInstanceProfileInfo_v2_st {
            version: V2,
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.compute,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpeg,
            ofaCount: profile.ofa,
            memorySizeMB: profile.memory_mib,
            name: fixed(&listed_name(profile)),
        }),
        V3 => info.cast().put(nvmlGpuInstanceProfileInfo_v3_st {
            version: V3,
            id: profile.id,
            sliceCount: profile.compute,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpeg,
            ofaCount: profile.ofa,
            memorySizeMB: profile.memory_mib,
            name: fixed(&listed_name(profile)),
            capabilities: if profile.name.contains("+gfx") {
                GRAPHICS
            } else {
                0
            },
        }),
        _ => Err(Code::ArgumentVersionMismatch),
    }
}

entries! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        call,
        device: Handle,
        profile: c_uint,
        info: Out<nvmlGpuInstanceProfileInfo_st>,
    ) {
        let profile = by_enum(call, device, profile)?;
        info.put(nvmlGpuInstanceProfileInfo_st {
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.compute,
            instanceCount: profile.max,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: 0,
            jpegCount: profile.jpeg,
            ofaCount: profile.ofa,
            memorySizeMB: profile.memory_mib,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        call,
        device: Handle,
        profile: c_uint,
        info: Out<nvmlGpuInstanceProfileInfo_v2_st>,
    ) {
        put_versioned(by_enum(call, device, profile)?, info)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
        call,
        device: Handle,
        profile_id: c_uint,
        info: Out<nvmlGpuInstanceProfileInfo_v2_st>,
    ) {
        listed(call, device)?;
        put_versioned(call.model.profile(profile_id).ok_or(Code::NotSupported)?, info)
    }

    /// All places of a profile, taken or free.
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        call,
        device: Handle,
        profile_id: c_uint,
        placements: Out<nvmlGpuInstancePlacement_t>,
        count: Out<c_uint>,
    ) {
        listed(call, device)?;
        let profile = call.model.profile(profile_id).ok_or(Code::NotSupported)?;
        count.put(profile.starts.len() as c_uint)?;
        if placements.is_null() {
            return Ok(());
        }
        placements.put_all(profile.starts.iter().map(|start| nvmlGpuInstancePlacement_t {
            start: *start,
            size: profile.size,
        }))
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(call, device: Handle, profile_id: c_uint, count: Out<c_uint>) {
        let gpu = resolve::gpu_in_mig_mode(&call.state, device)?;
        let profile = call.model.profile(profile_id).ok_or(Code::InvalidArgument)?;
        count.put(placement::remaining(call.model, &placement::places(gpu, call.model)?, profile))
    }
}

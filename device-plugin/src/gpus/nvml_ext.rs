//! The NVML calls that the wrapper crate lacks or gets wrong, and the only `unsafe` of this program. Nothing
//! unsafe leaves this file: handles stay inside, ids and owned values go out.
#![allow(
    unsafe_code,
    reason = "NVML is a C library; each block states what it relies on"
)]

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// NVML's number for "no room", which the wrapper does not know.
pub(super) const INSUFFICIENT_RESOURCES: u32 = 23;
/// Somebody changed MIG instances or mode; newer than the bindings' list of names.
pub(super) const EVENT_MIG_CONFIG_CHANGE: u64 = 0x100;
/// Most instances of one profile on one GPU, with room to spare.
const MOST: usize = 16;
/// One more than the largest compute instance profile that any header has named so far.
const CI_PROFILES: u32 = 9;

/// A GPU instance as NVML lists it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawInstance {
    pub(super) gi: u32,
    pub(super) start: u32,
}

/// A compute instance as NVML lists it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawCompute {
    pub(super) ci: u32,
    /// Compute slices it has.
    pub(super) slices: u32,
}

/// An event as NVML gives it.
#[derive(Clone, Debug)]
pub(super) struct RawEvent {
    pub(super) gpu: Option<String>,
    pub(super) kind: u64,
    pub(super) data: u64,
    pub(super) gi: Option<u32>,
}

/// Legal placements of a profile (by driver id) as (start, size).
pub(super) fn possible_placements(device: &Device<'_>, profile: u32) -> Result<Vec<(u32, u32)>, NvmlError> {
    let call = nvml_sym(
        device
            .nvml()
            .lib()
            .nvmlDeviceGetGpuInstancePossiblePlacements_v2
            .as_ref(),
    )?;
    let mut count = 0;
    // SAFETY: the handle lives as long as `device`; a null buffer asks for the count alone
    let code = unsafe { call(device.handle(), profile, std::ptr::null_mut(), &raw mut count) };
    if code != sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE {
        nvml_try(code)?;
    }
    let mut found = vec![sys::nvmlGpuInstancePlacement_t { start: 0, size: 0 }; count as usize];
    // SAFETY: the buffer has room for `count` entries, which NVML takes as its size
    nvml_try(unsafe { call(device.handle(), profile, found.as_mut_ptr(), &raw mut count) })?;
    found.truncate(count as usize);
    Ok(found
        .into_iter()
        .map(|placement| (placement.start, placement.size))
        .collect())
}

/// GPU instances of a profile (by driver id).
pub(super) fn instances(device: &Device<'_>, profile: u32) -> Result<Vec<RawInstance>, NvmlError> {
    let lib = device.nvml().lib();
    let list = nvml_sym(lib.nvmlDeviceGetGpuInstances.as_ref())?;
    let info = nvml_sym(lib.nvmlGpuInstanceGetInfo.as_ref())?;
    let mut handles: [sys::nvmlGpuInstance_t; MOST] = [std::ptr::null_mut(); MOST];
    let mut count = MOST as u32;
    // SAFETY: the buffer is larger than the most instances a GPU can hold, and `count` says how large
    nvml_try(unsafe { list(device.handle(), profile, handles.as_mut_ptr(), &raw mut count) })?;
    let describe = |handle: &sys::nvmlGpuInstance_t| {
        // SAFETY: an all-zero info is a valid value of this plain C struct
        let mut found: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle was listed just now and `found` is ours
        nvml_try(unsafe { info(*handle, &raw mut found) })?;
        Ok(RawInstance {
            gi: found.id,
            start: found.placement.start,
        })
    };
    handles.iter().take(count as usize).map(describe).collect()
}

/// Makes a GPU instance at a placement; returns its id.
pub(super) fn create_instance(
    device: &Device<'_>,
    profile: u32,
    start: u32,
    size: u32,
) -> Result<u32, NvmlError> {
    let lib = device.nvml().lib();
    let create = nvml_sym(lib.nvmlDeviceCreateGpuInstanceWithPlacement.as_ref())?;
    let info = nvml_sym(lib.nvmlGpuInstanceGetInfo.as_ref())?;
    let placement = sys::nvmlGpuInstancePlacement_t { start, size };
    let mut handle: sys::nvmlGpuInstance_t = std::ptr::null_mut();
    // SAFETY: placement and handle are ours and outlive the call
    nvml_try(unsafe { create(device.handle(), profile, &raw const placement, &raw mut handle) })?;
    // SAFETY: an all-zero info is a valid value of this plain C struct
    let mut found: sys::nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the handle was made just now and `found` is ours
    nvml_try(unsafe { info(handle, &raw mut found) })?;
    Ok(found.id)
}

/// Removes a GPU instance.
pub(super) fn destroy_instance(device: &Device<'_>, gi: u32) -> Result<(), NvmlError> {
    let destroy = nvml_sym(device.nvml().lib().nvmlGpuInstanceDestroy.as_ref())?;
    let handle = handle_of(device, gi)?;
    // SAFETY: the handle was looked up just now
    nvml_try(unsafe { destroy(handle) })
}

/// Compute instances of a GPU instance.
pub(super) fn computes(device: &Device<'_>, gi: u32) -> Result<Vec<RawCompute>, NvmlError> {
    let mut found = Vec::new();
    each_compute(device, gi, |slices, handle| {
        let info = nvml_sym(device.nvml().lib().nvmlComputeInstanceGetInfo_v2.as_ref())?;
        // SAFETY: an all-zero info is a valid value of this plain C struct
        let mut about: sys::nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the handle was listed just now and `about` is ours
        nvml_try(unsafe { info(handle, &raw mut about) })?;
        found.push(RawCompute { ci: about.id, slices });
        Ok(())
    })?;
    Ok(found)
}

/// Removes every compute instance of a GPU instance.
pub(super) fn destroy_computes(device: &Device<'_>, gi: u32) -> Result<(), NvmlError> {
    let destroy = nvml_sym(device.nvml().lib().nvmlComputeInstanceDestroy.as_ref())?;
    let mut handles = Vec::new();
    each_compute(device, gi, |_, handle| {
        handles.push(handle);
        Ok(())
    })?;
    for handle in handles {
        // SAFETY: the handle was listed just now and is destroyed once
        nvml_try(unsafe { destroy(handle) })?;
    }
    Ok(())
}

/// Makes the compute instance that has all `slices` of its GPU instance.
pub(super) fn create_compute(device: &Device<'_>, gi: u32, slices: u32) -> Result<(), NvmlError> {
    let create = nvml_sym(device.nvml().lib().nvmlGpuInstanceCreateComputeInstance.as_ref())?;
    let handle = handle_of(device, gi)?;
    for (profile, has) in compute_profiles(device, handle)? {
        if has == slices {
            let mut made: sys::nvmlComputeInstance_t = std::ptr::null_mut();
            // SAFETY: the handle was looked up just now and `made` is ours
            return nvml_try(unsafe { create(handle, profile, &raw mut made) });
        }
    }
    Err(NvmlError::NotSupported)
}

/// UUIDs of the MIG devices of a GPU, with the GPU and compute instance of each.
pub(super) fn mig_uuids(device: &Device<'_>) -> Result<Vec<(u32, u32, String)>, NvmlError> {
    let lib = device.nvml().lib();
    let gi_of = nvml_sym(lib.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let ci_of = nvml_sym(lib.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut found = Vec::new();
    for index in 0..device.mig_device_count()? {
        let slice = match device.mig_device_by_index(index) {
            Ok(slice) => slice,
            // the list has holes
            Err(NvmlError::NotFound) => continue,
            Err(error) => return Err(error),
        };
        let (mut gi, mut ci) = (0, 0);
        // SAFETY: the handle lives as long as `slice`, both numbers are ours
        nvml_try(unsafe { gi_of(slice.handle(), &raw mut gi) })?;
        // SAFETY: as above
        nvml_try(unsafe { ci_of(slice.handle(), &raw mut ci) })?;
        found.push((gi, ci, slice.uuid()?));
    }
    Ok(found)
}

fn handle_of(device: &Device<'_>, gi: u32) -> Result<sys::nvmlGpuInstance_t, NvmlError> {
    let by_id = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceById.as_ref())?;
    let mut handle: sys::nvmlGpuInstance_t = std::ptr::null_mut();
    // SAFETY: the device handle lives as long as `device`, `handle` is ours
    nvml_try(unsafe { by_id(device.handle(), gi, &raw mut handle) })?;
    Ok(handle)
}

/// Compute instance profiles of a GPU instance: (id, compute slices).
fn compute_profiles(
    device: &Device<'_>,
    handle: sys::nvmlGpuInstance_t,
) -> Result<Vec<(u32, u32)>, NvmlError> {
    let profile_info = nvml_sym(
        device
            .nvml()
            .lib()
            .nvmlGpuInstanceGetComputeInstanceProfileInfo
            .as_ref(),
    )?;
    let mut profiles = Vec::new();
    for profile in 0..CI_PROFILES {
        // SAFETY: an all-zero info is a valid value of this plain C struct
        let mut info: sys::nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        let engines = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
        // SAFETY: the handle was looked up by the caller, `info` is ours
        match nvml_try(unsafe { profile_info(handle, profile, engines, &raw mut info) }) {
            Ok(()) => profiles.push((info.id, info.sliceCount)),
            // not on this board, or newer than this driver
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(profiles)
}

fn each_compute(
    device: &Device<'_>,
    gi: u32,
    mut visit: impl FnMut(u32, sys::nvmlComputeInstance_t) -> Result<(), NvmlError>,
) -> Result<(), NvmlError> {
    let list = nvml_sym(device.nvml().lib().nvmlGpuInstanceGetComputeInstances.as_ref())?;
    let handle = handle_of(device, gi)?;
    for (profile, slices) in compute_profiles(device, handle)? {
        let mut handles: [sys::nvmlComputeInstance_t; MOST] = [std::ptr::null_mut(); MOST];
        let mut count = MOST as u32;
        // SAFETY: the buffer is larger than the most compute instances there can be, `count` says how large
        nvml_try(unsafe { list(handle, profile, handles.as_mut_ptr(), &raw mut count) })?;
        for handle in handles.into_iter().take(count as usize) {
            visit(slices, handle)?;
        }
    }
    Ok(())
}

/// A set of events with every GPU in it.
pub(super) struct EventSet {
    nvml: Arc<Nvml>,
    set: sys::nvmlEventSet_t,
    /// Device handles as numbers, to tell whose an event is.
    gpus: Vec<(usize, String)>,
}

// SAFETY: NVML is thread-safe, and the set is used by one thread at a time because every method takes `&mut self`
unsafe impl Send for EventSet {}

impl EventSet {
    /// A set that hears of `wanted` kinds on every GPU, or of those of them that a GPU can tell.
    pub(super) fn new(nvml: Arc<Nvml>, wanted: u64) -> Result<Self, NvmlError> {
        let mut made = Self {
            set: std::ptr::null_mut(),
            gpus: Vec::new(),
            nvml,
        };
        let create = nvml_sym(made.nvml.lib().nvmlEventSetCreate.as_ref())?;
        // SAFETY: `made.set` is ours
        nvml_try(unsafe { create(&raw mut made.set) })?;
        for index in 0..made.nvml.device_count()? {
            let (handle, uuid) = {
                let device = made.nvml.device_by_index(index)?;
                let kinds = device.supported_event_types()?.bits() | EVENT_MIG_CONFIG_CHANGE;
                let register = nvml_sym(made.nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
                // SAFETY: device and set live; kinds that the GPU does not know are refused, not misread
                let all = nvml_try(unsafe { register(device.handle(), kinds & wanted, made.set) });
                if all.is_err() {
                    let least = wanted & u64::from(sys::nvmlEventTypeXidCriticalError);
                    // SAFETY: as above
                    nvml_try(unsafe { register(device.handle(), least, made.set) })?;
                }
                // SAFETY: the handle is only compared, never followed
                (unsafe { device.handle() } as usize, device.uuid()?)
            };
            made.gpus.push((handle, uuid));
        }
        Ok(made)
    }

    /// The next event within the time.
    pub(super) fn wait(&mut self, time: Duration) -> Result<Option<RawEvent>, NvmlError> {
        let wait = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        // SAFETY: an all-zero event is a valid value of this plain C struct
        let mut event: sys::nvmlEventData_t = unsafe { std::mem::zeroed() };
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: the set lives until drop, `event` is ours
        match nvml_try(unsafe { wait(self.set, &raw mut event, milliseconds) }) {
            Ok(()) => {}
            Err(NvmlError::Timeout) => return Ok(None),
            Err(error) => return Err(error),
        }
        let gpu = self
            .gpus
            .iter()
            .find(|(handle, _)| *handle == event.device as usize);
        Ok(Some(RawEvent {
            gpu: gpu.map(|(_, uuid)| uuid.clone()),
            kind: event.eventType,
            data: event.eventData,
            gi: (event.gpuInstanceId != u32::MAX).then_some(event.gpuInstanceId),
        }))
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if self.set.is_null() {
            return;
        }
        if let Ok(free) = nvml_sym(self.nvml.lib().nvmlEventSetFree.as_ref()) {
            // SAFETY: the set was made by `new`, is not null and is freed here alone
            let code = unsafe { free(self.set) };
            tracing::debug!(code, "event set freed");
        }
    }
}

/// What GPM has counted on a GPU instance up to a moment.
pub(super) struct Sample {
    nvml: Arc<Nvml>,
    sample: sys::nvmlGpmSample_t,
}

// SAFETY: a sample is memory of NVML's that belongs to no thread, and it is not Sync: one thread at a time uses it
unsafe impl Send for Sample {}

impl Sample {
    /// Takes one of a GPU instance. Hopper and newer; `NotSupported` elsewhere.
    pub(super) fn take(nvml: &Arc<Nvml>, device: &Device<'_>, gi: u32) -> Result<Self, NvmlError> {
        let alloc = nvml_sym(nvml.lib().nvmlGpmSampleAlloc.as_ref())?;
        let fill = nvml_sym(nvml.lib().nvmlGpmMigSampleGet.as_ref())?;
        let mut made = Self {
            nvml: Arc::clone(nvml),
            sample: std::ptr::null_mut(),
        };
        // SAFETY: `made.sample` is ours
        nvml_try(unsafe { alloc(&raw mut made.sample) })?;
        // SAFETY: the handle lives as long as `device`, the sample was allocated just now
        nvml_try(unsafe { fill(device.handle(), gi, made.sample) })?;
        Ok(made)
    }

    /// Share of the time since an earlier sample in which the instance worked; `None` where it is not told.
    pub(super) fn activity_since(&self, earlier: &Self) -> Result<Option<f64>, NvmlError> {
        let get = nvml_sym(self.nvml.lib().nvmlGpmMetricsGet.as_ref())?;
        // SAFETY: an all-zero request is a valid value of this plain C struct
        let mut request: sys::nvmlGpmMetricsGet_t = unsafe { std::mem::zeroed() };
        (request.version, request.numMetrics) = (sys::NVML_GPM_METRICS_GET_VERSION, 2);
        (request.sample1, request.sample2) = (earlier.sample, self.sample);
        request.metrics[0].metricId = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL;
        request.metrics[1].metricId = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL;
        // SAFETY: both samples live, and the request is ours; NVML's array may be longer than that of these bindings,
        // but no more of it is touched than `numMetrics`
        nvml_try(unsafe { get(&raw mut request) })?;
        let told = |metric: &&sys::nvmlGpmMetric_t| metric.nvmlReturn == sys::nvmlReturn_enum_NVML_SUCCESS;
        let first = request.metrics.iter().take(2).find(told);
        Ok(first.map(|metric| metric.value / 100.0))
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if let Ok(free) = nvml_sym(self.nvml.lib().nvmlGpmSampleFree.as_ref())
            && !self.sample.is_null()
        {
            // SAFETY: the sample was allocated by `take`, is not null and is freed here alone
            let code = unsafe { free(self.sample) };
            tracing::trace!(code, "sample freed");
        }
    }
}

//! Processes: who runs on a GPU or a slice.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlProcessInfo_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_v1_t,
};

use super::load::activity;
use super::{Out, entries, put_counted, version};
use crate::clock::now_ms;
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::resolve::Device;
use crate::state::{Gpu, Process};

/// Id of no instance, and what NVML says of memory it does not know.
const NONE: c_uint = c_uint::MAX;

/// Bytes in a MiB.
const MIB: c_ulonglong = 1 << 20;

/// The processes of a GPU, or of a slice.
fn running(call: &Call, device: Handle) -> Result<Vec<nvmlProcessInfo_t>, Code> {
    let device = call.device(device)?;
    let here = |process: &&Process| match &device {
        Device::Gpu(_) => true,
        Device::Mig(slice) => {
            process.gpu_instance == Some(slice.instance.id)
                && process.compute_instance.is_none_or(|id| id == slice.compute.id)
        }
    };
    let info = |process: &Process| nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.memory_mib * MIB,
        gpuInstanceId: process.gpu_instance.unwrap_or(NONE),
        computeInstanceId: process.compute_instance.unwrap_or(NONE),
    };
    Ok(device.parent().processes.iter().filter(here).map(info).collect())
}

/// A GPU whose processes have a utilisation: one outside MIG mode.
fn outside_mig_mode(call: &Call, device: Handle) -> Result<&Gpu, Code> {
    let gpu = call.gpu(device)?;
    if gpu.mig { Err(Code::NotSupported) } else { Ok(gpu) }
}

/// Each process's share of the GPU's activity, in percent.
fn share(call: &Call, gpu: &Gpu) -> c_uint {
    (activity(call, gpu) * 100.0) as c_uint / gpu.processes.len().max(1) as c_uint
}

entries! {
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        call,
        device: Handle,
        count: Out<c_uint>,
        infos: Out<nvmlProcessInfo_t>,
    ) {
        put_counted(running(call, device)?, count, infos)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        call,
        device: Handle,
        count: Out<c_uint>,
        infos: Out<nvmlProcessInfo_t>,
    ) {
        call.device(device)?;
        put_counted(Vec::new(), count, infos)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        call,
        device: Handle,
        count: Out<c_uint>,
        infos: Out<nvmlProcessInfo_t>,
    ) {
        call.device(device)?;
        put_counted(Vec::new(), count, infos)
    }

    fn nvmlDeviceGetProcessUtilization(
        call,
        device: Handle,
        samples: Out<nvmlProcessUtilizationSample_t>,
        count: Out<c_uint>,
        _since: c_ulonglong,
    ) {
        let gpu = outside_mig_mode(call, device)?;
        if gpu.processes.is_empty() {
            count.put(0)?;
            return Err(Code::NotFound);
        }
        let share = share(call, gpu);
        let sample = |process: &Process| nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: now_ms() * 1000,
            smUtil: share,
            memUtil: share * 2 / 5,
            encUtil: 0,
            decUtil: 0,
        };
        put_counted(gpu.processes.iter().map(sample).collect(), count, samples)
    }

    fn nvmlDeviceGetProcessesUtilizationInfo(
        call,
        device: Handle,
        request: Out<nvmlProcessesUtilizationInfo_v1_t>,
    ) {
        let gpu = outside_mig_mode(call, device)?;
        let mut asked = request.get()?;
        if asked.version != version::<nvmlProcessesUtilizationInfo_v1_t>(1) {
            return Err(Code::ArgumentVersionMismatch);
        }
        if gpu.processes.is_empty() {
            return Err(Code::NotFound);
        }
        let room = asked.processSamplesCount as usize;
        asked.processSamplesCount = gpu.processes.len() as c_uint;
        request.put(asked)?;
        if asked.procUtilArray.is_null() || room < gpu.processes.len() {
            return Err(Code::InsufficientSize);
        }
        let share = share(call, gpu);
        Out(asked.procUtilArray).put_all(gpu.processes.iter().map(|process| nvmlProcessUtilizationInfo_v1_t {
            timeStamp: now_ms() * 1000,
            pid: process.pid,
            smUtil: share,
            memUtil: share * 2 / 5,
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        }))
    }
}

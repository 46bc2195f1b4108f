//! Load and power: memory, utilisation, temperature, power, clocks. All but memory belong to the GPU alone.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlBAR1Memory_t, nvmlClocksEventReasonGpuIdle, nvmlMemory_t, nvmlMemory_v2_t, nvmlUtilization_t,
};

use super::{Out, entries, version};
use crate::clock::now_ms;
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::resolve::Device;
use crate::state::Gpu;

/// Bytes in a MiB.
const MIB: c_ulonglong = 1 << 20;

/// Clocks in MHz by NVML's clock type: graphics, SM, memory, video.
const IDLE_MHZ: [c_uint; 4] = [345, 345, 2619, 765];
const BUSY_MHZ: [c_uint; 4] = [1980, 1980, 2619, 1545];

/// Total and used bytes of a GPU or a slice.
fn memory(call: &Call, device: Handle) -> Result<(c_ulonglong, c_ulonglong), Code> {
    let device = call.device(device)?;
    let total = match &device {
        Device::Gpu(_) => call.model.memory_mib,
        Device::Mig(slice) => slice.instance.profile(call.model)?.memory_mib,
    };
    Ok((
        total * MIB,
        device.parent().memory_used(call.model, device.instance()) * MIB,
    ))
}

/// Activity of a GPU now, 0 to 1.
pub(crate) fn activity(call: &Call, gpu: &Gpu) -> f64 {
    let now = now_ms();
    let curves = gpu.curves(call.model, None);
    curves
        .iter()
        .map(|(weight, curve)| weight * curve.at(now))
        .sum::<f64>()
        .clamp(0.0, 1.0)
}

/// Power of a GPU now, in milliwatts: a tenth of the limit when idle.
pub(crate) fn power_mw(call: &Call, gpu: &Gpu) -> c_uint {
    let limit = f64::from(call.model.power_limit_w) * 1000.0;
    (limit * (0.1 + 0.8 * activity(call, gpu))) as c_uint
}

/// Energy in millijoules: as much as an idle GPU uses since 1970, so that it only grows.
pub(crate) fn energy_mj(call: &Call) -> c_ulonglong {
    now_ms() / 10 * c_ulonglong::from(call.model.power_limit_w)
}

entries! {
    fn nvmlDeviceGetMemoryInfo(call, device: Handle, memory_info: Out<nvmlMemory_t>) {
        let (total, used) = memory(call, device)?;
        memory_info.put(nvmlMemory_t { total, free: total - used, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(call, device: Handle, memory_info: Out<nvmlMemory_v2_t>) {
        const V2: u32 = version::<nvmlMemory_v2_t>(2);
        if memory_info.cast::<c_uint>().get()? != V2 {
            return Err(Code::ArgumentVersionMismatch);
        }
        let (total, used) = memory(call, device)?;
        memory_info.put(nvmlMemory_v2_t { version: V2, total, reserved: 0, free: total - used, used })
    }

    fn nvmlDeviceGetBAR1MemoryInfo(call, device: Handle, bar1: Out<nvmlBAR1Memory_t>) {
        let (total, _) = memory(call, device)?;
        let total = total.next_power_of_two();
        bar1.put(nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - MIB, bar1Used: MIB })
    }

    /// Not there in MIG mode, neither for the slices nor for the GPU.
    fn nvmlDeviceGetUtilizationRates(call, device: Handle, rates: Out<nvmlUtilization_t>) {
        let gpu = call.gpu(device)?;
        if gpu.mig {
            return Err(Code::NotSupported);
        }
        let activity = activity(call, gpu);
        rates.put(nvmlUtilization_t {
            gpu: (activity * 100.0).round() as c_uint,
            memory: (activity * 40.0).round() as c_uint,
        })
    }

    fn nvmlDeviceGetTemperature(call, device: Handle, sensor: c_uint, temperature: Out<c_uint>) {
        let gpu = call.gpu(device)?;
        if sensor != 0 {
            return Err(Code::InvalidArgument);
        }
        temperature.put((32.0 + 40.0 * activity(call, gpu)) as c_uint)
    }

    fn nvmlDeviceGetPowerUsage(call, device: Handle, milliwatts: Out<c_uint>) {
        milliwatts.put(power_mw(call, call.gpu(device)?))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(call, device: Handle, millijoules: Out<c_ulonglong>) {
        call.gpu(device)?;
        millijoules.put(energy_mj(call))
    }

    fn nvmlDeviceGetClockInfo(call, device: Handle, kind: c_uint, mhz: Out<c_uint>) {
        let clocks = if activity(call, call.gpu(device)?) > 0.0 { BUSY_MHZ } else { IDLE_MHZ };
        mhz.put(*clocks.get(kind as usize).ok_or(Code::InvalidArgument)?)
    }

    fn nvmlDeviceGetMaxClockInfo(call, device: Handle, kind: c_uint, mhz: Out<c_uint>) {
        call.gpu(device)?;
        mhz.put(*BUSY_MHZ.get(kind as usize).ok_or(Code::InvalidArgument)?)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(call, device: Handle, milliwatts: Out<c_uint>) {
        call.gpu(device)?;
        milliwatts.put(call.model.power_limit_w * 1000)
    }

    fn nvmlDeviceGetPowerManagementLimit(call, device: Handle, milliwatts: Out<c_uint>) {
        call.gpu(device)?;
        milliwatts.put(call.model.power_limit_w * 1000)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(call, device: Handle, reasons: Out<c_ulonglong>) {
        let busy = activity(call, call.gpu(device)?) > 0.0;
        reasons.put(if busy { 0 } else { nvmlClocksEventReasonGpuIdle.into() })
    }

    fn nvmlDeviceGetPerformanceState(call, device: Handle, state: Out<c_uint>) {
        call.gpu(device)?;
        state.put(0)
    }
}

//! GPM: samples of a GPU or a slice, and metrics between two of them. Hopper and later.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_uint};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper_sys::bindings::{nvmlGpmMetric_t, nvmlGpmMetricsGet_t, nvmlGpmSupport_t};

use super::{Out, entries};
use crate::clock::now_ms;
use crate::code::Code;
use crate::handle::{Handle, Target};
use crate::library::{Answer, Call};
use crate::resolve::{self, Device};
use crate::state::{Gpu, GpuInstance};
use crate::utilisation::Curve;

/// The longest metric list of any header (13.4).
const METRICS_MAX: c_uint = 477;

/// Version word of the structs of this interface, which has no size in it.
const VERSION: c_uint = 1;

/// A sample: when, and what the activity was to be around then.
#[derive(Clone, Default)]
struct Sample {
    at_ms: u64,
    curves: Vec<(f64, Curve)>,
}

/// A metric: id, its share of the activity, short name, unit. Shares are ours: they keep the metrics apart.
struct Metric {
    id: c_uint,
    share: f64,
    short: &'static CStr,
    unit: &'static CStr,
}

const fn metric(id: c_uint, share: f64, short: &'static CStr, unit: &'static CStr) -> Metric {
    Metric {
        id,
        share,
        short,
        unit,
    }
}

/// Percentages follow the activity at 100 a whole; the PCIe and NVLink rates follow it in MiB a second.
const METRICS: &[Metric] = &[
    metric(1, 100.0, c"Graphics Activity", c"%"),
    metric(2, 100.0, c"SM Activity", c"%"),
    metric(3, 50.0, c"SM Occupancy", c"%"),
    metric(4, 20.0, c"Integer Activity", c"%"),
    metric(5, 60.0, c"Tensor Activity", c"%"),
    metric(6, 0.0, c"DFMA Tensor Activity", c"%"),
    metric(7, 60.0, c"HMMA Tensor Activity", c"%"),
    metric(9, 0.0, c"IMMA Tensor Activity", c"%"),
    metric(10, 40.0, c"DRAM Activity", c"%"),
    metric(11, 0.0, c"FP64 Activity", c"%"),
    metric(12, 30.0, c"FP32 Activity", c"%"),
    metric(13, 10.0, c"FP16 Activity", c"%"),
    metric(20, 1000.0, c"PCIe TX", c"MiB/s"),
    metric(21, 2000.0, c"PCIe RX", c"MiB/s"),
    metric(30, 0.0, c"NVDEC 0 Activity", c"%"),
    metric(60, 3000.0, c"NVLink RX", c"MiB/s"),
    metric(61, 3000.0, c"NVLink TX", c"MiB/s"),
];

/// The samples of this process, and the number that the next one gets.
static SAMPLES: Mutex<(u64, BTreeMap<u64, Sample>)> = Mutex::new((1, BTreeMap::new()));

fn samples() -> MutexGuard<'static, (u64, BTreeMap<u64, Sample>)> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops all samples.
pub(crate) fn forget() {
    samples().1.clear();
}

fn number(sample: Handle) -> Result<u64, Code> {
    match sample.target() {
        Some(Target::Sample(number)) => Ok(number),
        _ => Err(Code::InvalidArgument),
    }
}

fn sampled(sample: Handle) -> Result<Sample, Code> {
    samples()
        .1
        .get(&number(sample)?)
        .cloned()
        .ok_or(Code::InvalidArgument)
}

/// Refuses where there is no GPM.
fn supported(call: &Call) -> Answer {
    if call.model.is_hopper_or_later() {
        Ok(())
    } else {
        Err(Code::NotSupported)
    }
}

fn take(call: &Call, gpu: &Gpu, instance: Option<&GpuInstance>, into: Handle) -> Answer {
    let sample = Sample {
        at_ms: now_ms(),
        curves: gpu.curves(call.model, instance),
    };
    *samples().1.get_mut(&number(into)?).ok_or(Code::InvalidArgument)? = sample;
    Ok(())
}

entries! {
    /// Touches only as many metrics as the caller counts: the array's length differs between headers.
    fn nvmlGpmMetricsGet(call, request: Out<nvmlGpmMetricsGet_t>) {
        supported(call)?;
        // version and count are the first two words
        let word = request.cast::<c_uint>();
        let (version, count) = (word.get()?, word.element(1).get()?);
        if version != VERSION {
            return Err(Code::ArgumentVersionMismatch);
        }
        if count > METRICS_MAX {
            return Err(Code::InvalidArgument);
        }
        let handles = request.cast::<Handle>();
        let handle = |offset: usize| handles.element(offset / size_of::<Handle>()).get();
        let first = sampled(handle(std::mem::offset_of!(nvmlGpmMetricsGet_t, sample1))?)?;
        let second = sampled(handle(std::mem::offset_of!(nvmlGpmMetricsGet_t, sample2))?)?;
        let weighted = |(weight, curve): &(f64, Curve)| weight * curve.mean(first.at_ms, second.at_ms);
        let activity: f64 = second.curves.iter().map(weighted).sum();
        let metrics_at = std::mem::offset_of!(nvmlGpmMetricsGet_t, metrics);
        let metrics = request.cast::<u8>().element(metrics_at).cast::<nvmlGpmMetric_t>();
        for index in 0..count as usize {
            let mut metric = metrics.element(index).get()?;
            match METRICS.iter().find(|known| known.id == metric.metricId) {
                Some(_) if second.at_ms <= first.at_ms => metric.nvmlReturn = Code::NoData as c_uint,
                Some(known) => {
                    metric.nvmlReturn = 0;
                    metric.value = activity * known.share;
                    metric.metricInfo.shortName = known.short.as_ptr().cast_mut();
                    metric.metricInfo.longName = known.short.as_ptr().cast_mut();
                    metric.metricInfo.unit = known.unit.as_ptr().cast_mut();
                }
                None => {
                    metric.nvmlReturn = Code::NotSupported as c_uint;
                    metric.metricInfo.shortName = ptr::null_mut();
                    metric.metricInfo.longName = ptr::null_mut();
                    metric.metricInfo.unit = ptr::null_mut();
                }
            }
            metrics.element(index).put(metric)?;
        }
        Ok(())
    }

    fn nvmlGpmSampleAlloc(_, sample: Out<Handle>) {
        let number = {
            let mut samples = samples();
            let number = samples.0;
            samples.0 += 1;
            samples.1.insert(number, Sample::default());
            number
        };
        sample.put(Handle::to(Target::Sample(number)))
    }

    fn nvmlGpmSampleFree(_, sample: Handle) {
        samples().1.remove(&number(sample)?).map(|_| ()).ok_or(Code::InvalidArgument)
    }

    fn nvmlGpmSampleGet(call, device: Handle, sample: Handle) {
        supported(call)?;
        let device = call.device(device)?;
        take(call, device.parent(), device.instance(), sample)
    }

    fn nvmlGpmMigSampleGet(call, device: Handle, gpu_instance: c_uint, sample: Handle) {
        supported(call)?;
        let gpu = resolve::gpu_in_mig_mode(&call.state, device)?;
        take(call, gpu, Some(gpu.instance(gpu_instance).ok_or(Code::InvalidArgument)?), sample)
    }

    fn nvmlGpmQueryDeviceSupport(call, device: Handle, support: Out<nvmlGpmSupport_t>) {
        call.device(device)?;
        if support.get()?.version != VERSION {
            return Err(Code::ArgumentVersionMismatch);
        }
        support.put(nvmlGpmSupport_t { version: VERSION, isSupportedDevice: supported(call).is_ok().into() })
    }

    fn nvmlGpmQueryIfStreamingEnabled(call, device: Handle, streaming: Out<c_uint>) {
        supported(call)?;
        match call.device(device)? {
            Device::Gpu(gpu) => streaming.put(gpu.gpm_streaming.into()),
            Device::Mig(_) => Err(Code::NotSupported),
        }
    }

    fn nvmlGpmSetStreamingEnabled(call, device: Handle, streaming: c_uint) {
        supported(call)?;
        call.change(|state| {
            let gpu = resolve::gpu(state, device)?.index as usize;
            state.gpus[gpu].gpm_streaming = streaming != 0;
            Ok(())
        })
    }
}

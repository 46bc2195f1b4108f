//! What slices did, from what GPM had counted when they were read before. A sample is kept for each, so that no call
//! waits between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::nvml::fail;
use super::nvml_ext::{self, Sample};
use super::{GpuError, Memory, Usage};

/// Least time between two samples, by NVIDIA's word.
const APART: Duration = Duration::from_millis(100);

/// The samples of slices, by UUID of the MIG device.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<String, Earlier>);

/// A sample that was taken before.
struct Earlier {
    /// UUID of the GPU.
    gpu: String,
    /// GPU instance.
    gi: u32,
    at: Instant,
    sample: Sample,
}

impl Samples {
    /// Begins to watch a slice that was made just now, so that its first reading says something.
    pub(super) fn begin(&mut self, nvml: &Arc<Nvml>, device: &Device<'_>, gi: u32, uuid: &str) {
        let begun = device
            .uuid()
            .and_then(|gpu| self.since(nvml, device, (&gpu, gi), uuid));
        if let Err(error) = begun {
            tracing::trace!(uuid, %error, "no sample of a new slice");
        }
    }

    /// Drops the sample of a GPU instance.
    pub(super) fn forget(&mut self, gpu: &str, gi: u32) {
        self.0.retain(|_, earlier| earlier.gpu != gpu || earlier.gi != gi);
    }

    /// What the slices of a GPU did and hold. Samples of slices that are gone are dropped.
    pub(super) fn slices(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        gpu: &str,
    ) -> Result<Vec<Usage>, GpuError> {
        let there = nvml_ext::mig_uuids(device).map_err(fail("listing MIG devices"))?;
        let uuids: BTreeSet<&str> = there.iter().map(|(_, _, uuid)| uuid.as_str()).collect();
        self.0
            .retain(|uuid, earlier| earlier.gpu != gpu || uuids.contains(uuid.as_str()));
        let mut found = Vec::new();
        for (gi, _, uuid) in &there {
            let slice = nvml.device_by_uuid(uuid.as_str());
            let memory = slice.and_then(|slice| slice.memory_info());
            let activity = self.since(nvml, device, (gpu, *gi), uuid);
            found.push(Usage {
                uuid: uuid.clone(),
                activity: told("nvmlGpmMetricsGet", activity)?.flatten(),
                memory: told("nvmlDeviceGetMemoryInfo", memory)?.map(|memory| Memory {
                    used: memory.used,
                    total: memory.total,
                }),
            });
        }
        Ok(found)
    }

    /// Takes a sample; the activity since the one before, if there was one long enough ago.
    fn since(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        (gpu, gi): (&str, u32),
        uuid: &str,
    ) -> Result<Option<f64>, NvmlError> {
        let now = Instant::now();
        let before = self.0.get(uuid).filter(|earlier| earlier.gi == gi);
        if before.is_some_and(|earlier| now.duration_since(earlier.at) < APART) {
            return Ok(None);
        }
        let sample = Sample::take(nvml, device, gi)?;
        let activity = before.map(|earlier| sample.activity_since(&earlier.sample));
        let taken = Earlier {
            gpu: gpu.to_owned(),
            gi,
            at: now,
            sample,
        };
        self.0.insert(uuid.to_owned(), taken);
        activity.transpose().map(Option::flatten)
    }
}

/// What a GPU without MIG did and holds.
pub(super) fn whole(device: &Device<'_>, gpu: &str) -> Result<Usage, GpuError> {
    let rates = told("nvmlDeviceGetUtilizationRates", device.utilization_rates())?;
    let memory = told("nvmlDeviceGetMemoryInfo", device.memory_info())?;
    Ok(Usage {
        uuid: gpu.to_owned(),
        activity: rates.map(|rates| f64::from(rates.gpu) / 100.0),
        memory: memory.map(|memory| Memory {
            used: memory.used,
            total: memory.total,
        }),
    })
}

/// What was told. That one thing is not told says nothing of the rest; that the GPU or the driver is gone does.
fn told<T>(call: &'static str, answer: Result<T, NvmlError>) -> Result<Option<T>, GpuError> {
    match answer.map_err(fail(call)) {
        Ok(value) => Ok(Some(value)),
        Err(error @ (GpuError::NoDriver(_) | GpuError::Lost { .. })) => Err(error),
        Err(error) => {
            tracing::trace!(%error, "not told");
            Ok(None)
        }
    }
}

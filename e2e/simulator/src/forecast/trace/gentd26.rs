//! Alibaba's GenTD26: GPU duty cycle of pods that serve stable diffusion, their mean, and the requests. Evaluation
//! only: it has no licence to be copied under.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use shared::decide::forecast::history::Reading;
use shared::policy::Policy;

use super::rows::Rows;
use super::{BIN_MINUTES, Set, Track};

/// Duty cycle of the pods.
const DUTY: &str = "pod_gpu_duty_cycle_anon.csv.gz";
/// The requests.
const REQUESTS: &str = "lora_request_trace.csv.gz";
/// Where the duty cycle begins, seconds, and how many whole bins it has.
const DUTY_FROM: f64 = 1_662_858_720.0;
const DUTY_BINS: usize = 91;
/// Pods that were there nearly throughout have at least this many of 1,441 samples.
const PRESENT_SAMPLES: usize = 1_300;
/// Requests are sparse before 2024-11-20, which is this many minutes after 1970. 19 days from there.
const REQUESTS_FROM: i64 = 28_867_680;
const REQUESTS_BINS: usize = 19 * 96;
/// A day of duty cycle leaves no window of a day.
const DUTY_WINDOW_HOURS: u32 = 6;

/// The set of that name, if it is one of these. The inner error is the file that is missing.
pub(super) fn set(name: &str, folder: &Path) -> Option<Result<Result<Set, PathBuf>>> {
    let (file, read): (&str, fn(&Path) -> Result<Set>) = match name {
        "requests" => (REQUESTS, requests),
        "duty" => (DUTY, duty),
        "fleet" => (DUTY, fleet),
        _ => return None,
    };
    let path = folder.join(file);
    Some(if path.is_file() {
        read(&path).map(Ok)
    } else {
        Ok(Err(path))
    })
}

/// Samples by pod and bin.
fn samples(path: &Path) -> Result<BTreeMap<String, Vec<Vec<f64>>>> {
    let mut pods: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
    let mut rows = Rows::open(path)?;
    while let Some(row) = rows.next()? {
        let percent: f64 = row.number("value")?;
        let at: f64 = row.number("timestamp_anon")?;
        let bin = ((at - DUTY_FROM) / (60 * BIN_MINUTES) as f64).floor();
        if !(0.0..DUTY_BINS as f64).contains(&bin) {
            continue;
        }
        let pod = row.text("container_ip")?;
        if !pods.contains_key(pod) {
            pods.insert(pod.to_owned(), vec![Vec::new(); DUTY_BINS]);
        }
        if let Some(bins) = pods.get_mut(pod) {
            bins[bin as usize].push(percent / 100.0);
        }
    }
    Ok(pods)
}

fn reading(samples: &[f64]) -> Option<Reading> {
    let last = *samples.last()?;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    Some(Reading { mean, last })
}

fn duty_policy() -> Policy {
    Policy {
        forecast_window_hours: DUTY_WINDOW_HOURS,
        ..Policy::default()
    }
}

/// The pods that were there nearly throughout, bin by bin.
fn present(path: &Path) -> Result<BTreeMap<String, Vec<Option<Reading>>>> {
    let pods = samples(path)?.into_iter();
    let present = pods.filter(|(_, bins)| bins.iter().map(Vec::len).sum::<usize>() >= PRESENT_SAMPLES);
    Ok(present
        .map(|(name, bins)| (name, bins.iter().map(|bin| reading(bin)).collect()))
        .collect())
}

fn duty(path: &Path) -> Result<Set> {
    let tracks = present(path)?.into_iter().map(|(name, bins)| Track {
        name: name.chars().take(8).collect(),
        bins,
        test_from: DUTY_BINS.div_ceil(2),
    });
    Ok(Set {
        name: "duty",
        title: "GenTD26, GPU duty cycle of single pods (window 6 h)",
        tracks: tracks.collect(),
        policy: duty_policy(),
    })
}

/// The mean of the same pods: one that comes or goes would change what it is the mean of.
fn fleet(path: &Path) -> Result<Set> {
    let pods = present(path)?;
    let bins = (0..DUTY_BINS).map(|bin| {
        let read: Vec<Reading> = pods.values().filter_map(|bins| bins[bin]).collect();
        let mean = |of: fn(&Reading) -> f64| read.iter().map(of).sum::<f64>() / read.len() as f64;
        (!read.is_empty()).then(|| Reading {
            mean: mean(|reading| reading.mean),
            // all are sampled at the same times
            last: mean(|reading| reading.last),
        })
    });
    Ok(Set {
        name: "fleet",
        title: "GenTD26, mean GPU duty cycle of the pods of duty (window 6 h)",
        tracks: vec![Track {
            name: "all pods".to_owned(),
            bins: bins.collect(),
            test_from: DUTY_BINS.div_ceil(2),
        }],
        policy: duty_policy(),
    })
}

fn requests(path: &Path) -> Result<Set> {
    let mut counts = vec![0_u32; REQUESTS_BINS];
    let mut rows = Rows::open(path)?;
    while let Some(row) = rows.next()? {
        let bin = (row.minute("gmt_create")? - REQUESTS_FROM).div_euclid(BIN_MINUTES as i64);
        if let Some(count) = usize::try_from(bin).ok().and_then(|bin| counts.get_mut(bin)) {
            *count += 1;
        }
    }
    let most = f64::from(counts.iter().copied().max().unwrap_or_default().max(1));
    Ok(Set {
        name: "requests",
        title: "GenTD26, requests in 15 minutes, share of the most",
        tracks: vec![Track {
            name: "requests".to_owned(),
            bins: counts
                .iter()
                .map(|count| Some(Reading::flat(f64::from(*count) / most)))
                .collect(),
            test_from: REQUESTS_BINS * 60 / 100,
        }],
        policy: Policy::default(),
    })
}

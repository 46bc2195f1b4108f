//! C4: services that each keep GPUs for their own peak, against one pool for the peak of all. Disaggregated
//! recommendation inference, 31 days, read where it is present.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::need::saving;
use super::recorded;
use super::report::{Bound, Section, Table, Target, percent};

/// The file below the folder of traces.
const FILE: &str = "alibaba-dlrm-2025/disaggregated_DLRM_trace.csv.gz";
const TITLE: &str = "services with GPUs of their own against one pool (DLRM inference, 31 days)";
/// The reference looked at the pool once in so many seconds.
const SAMPLE_SECONDS: f64 = 3_600.0;
/// What it found: the sum of the services' own peaks, ...
const PUBLISHED_PEAKS: f64 = 4_298.0;
/// ... and the pool's.
const PUBLISHED_POOLED: f64 = 3_367.0;

/// An instance; an empty time is before the recording or after it.
#[derive(Debug, Deserialize)]
struct Row {
    app_name: String,
    gpu_request: u32,
    creation_time: Option<f64>,
    deletion_time: Option<f64>,
}

/// What instances add up to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Peaks {
    services: usize,
    own: u32,
    pooled: u32,
    sampled: u32,
}

/// C4.
///
/// # Errors
/// Where the trace is there and cannot be read.
pub fn c4(traces: &Path) -> Result<Section> {
    let path = match recorded::present(traces, FILE) {
        Ok(path) => path,
        Err(why) => return Ok(Section::skipped("C4", TITLE, why)),
    };
    let rows: Vec<Row> = recorded::rows(&path)?;
    let peaks = peaks(&rows);
    let mut table = Table::new(["GPUs", "own peaks", "pooled", "saves"]);
    for (name, pooled) in [("at every change", peaks.pooled), ("once an hour", peaks.sampled)] {
        table.row([
            name.to_owned(),
            peaks.own.to_string(),
            pooled.to_string(),
            percent(saving(f64::from(pooled), f64::from(peaks.own))),
        ]);
    }
    Ok(Section {
        name: "C4".to_owned(),
        title: TITLE.to_owned(),
        notes: vec![format!(
            "service: every instance that ran has its GPU, {} services. Nothing is cut into slices here: what is saved comes from peaks that do not meet.",
            peaks.services
        )],
        table,
        targets: vec![
            Target {
                what: "C4: GPUs, sum of the services' own peaks".to_owned(),
                found: f64::from(peaks.own),
                bound: Bound::Exactly(PUBLISHED_PEAKS),
            },
            Target {
                what: "C4: GPUs, pooled, once an hour".to_owned(),
                found: f64::from(peaks.sampled),
                bound: Bound::Exactly(PUBLISHED_POOLED),
            },
        ],
        ..Section::default()
    })
}

fn peaks(rows: &[Row]) -> Peaks {
    // (time, 0 ends or 1 begins, service, GPUs): what ends at a moment is gone before anything begins
    let mut events: Vec<(f64, u8, &str, u32)> = Vec::new();
    for row in rows.iter().filter(|row| row.gpu_request > 0) {
        events.push((
            row.creation_time.unwrap_or(f64::NEG_INFINITY),
            1,
            &row.app_name,
            row.gpu_request,
        ));
        if let Some(end) = row.deletion_time {
            events.push((end, 0, &row.app_name, row.gpu_request));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    // (now, peak) of each service
    let mut services: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let (mut now, mut pooled, mut sampled) = (0, 0, 0);
    let mut sample = 0.0;
    for (time, begins, service, gpus) in events {
        while time > sample {
            sampled = sampled.max(now);
            sample += SAMPLE_SECONDS;
        }
        let own = services.entry(service).or_default();
        if begins == 1 {
            now += gpus;
            own.0 += gpus;
        } else {
            now = now.saturating_sub(gpus);
            own.0 = own.0.saturating_sub(gpus);
        }
        own.1 = own.1.max(own.0);
        pooled = pooled.max(now);
    }
    Peaks {
        services: services.len(),
        own: services.values().map(|(_, peak)| peak).sum(),
        pooled,
        sampled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(service: &str, from: Option<f64>, until: Option<f64>) -> Row {
        Row {
            app_name: service.to_owned(),
            gpu_request: 1,
            creation_time: from,
            deletion_time: until,
        }
    }

    #[test]
    fn peaks_that_do_not_meet_are_added_on_one_side_only() {
        let rows = [
            row("a", None, Some(10.0)),
            row("a", None, Some(20.0)),
            row("b", Some(10.0), None),
            row("b", Some(20.0), Some(7_000.0)),
            row("c", Some(4_000.0), Some(4_001.0)),
        ];
        let peaks = peaks(&rows);
        assert_eq!((peaks.services, peaks.own), (3, 2 + 2 + 1));
        // at 4000 c joins two of b; the hour at 3600 saw two
        assert_eq!((peaks.pooled, peaks.sampled), (3, 2));
    }

    #[test]
    fn a_trace_that_is_not_there_is_skipped_with_a_reason() {
        let section = c4(Path::new("/nowhere")).unwrap();
        assert!(section.skipped.unwrap().contains("/nowhere/alibaba-dlrm-2025"));
        assert!(section.targets.is_empty());
    }
}

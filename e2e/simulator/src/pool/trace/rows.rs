//! A trace as CSV. The columns stand in the parent module.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use jiff::Timestamp;
use shared::decide::size::Hints;
use shared::names::{Asked, parse_resource};
use shared::snapshot::Request;

use super::{Judge, Pod, Trace, stay};
use crate::fleet;

/// What a row may hold.
pub const COLUMNS: [&str; 10] = [
    "name",
    "namespace",
    "created",
    "deleted",
    "profile",
    "resource",
    "count",
    "gpus",
    "model-parameters",
    "gpu-memory",
];
/// One of these must be there.
const ASKS: [&str; 5] = ["profile", "resource", "gpus", "model-parameters", "gpu-memory"];
/// Times in seconds reach to the year 33658.
const MOST_SECONDS: f64 = 1e12;

/// Reads it.
///
/// # Errors
/// Where the head lacks a column. Rows that cannot be read are in the trace.
pub fn read(bytes: &[u8], judge: &mut Judge) -> Result<Trace> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(bytes);
    let mut trace = Trace::default();
    let columns = columns(&mut trace, reader.headers()?)?;
    let mut times = None;
    let mut record = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        let fields = columns.values().max().map_or(0, |last| last + 1);
        let read = match reader.read_record(&mut record) {
            Ok(false) => return Ok(trace),
            Ok(true) => {
                let row = Row {
                    columns: &columns,
                    record: &record,
                };
                if record.len() < fields {
                    Err(format!("it has {} fields, the head has {fields}", record.len()))
                } else {
                    row.pod(&mut trace, &mut times, judge)
                }
            }
            // a line that is no text is a bad row too, what follows can be read
            Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                Err("it is no UTF-8 text".to_owned())
            }
            Err(error) => return Err(error.into()),
        };
        // blank lines are passed over by the reader, so the record knows its line better
        let line = record.position().map_or(line, csv::Position::line);
        trace.enter(|| format!("line {line}"), read);
    }
}

/// Where each column is, `model_parameters` being read as `model-parameters`.
fn columns(trace: &mut Trace, head: &csv::StringRecord) -> Result<BTreeMap<&'static str, usize>> {
    let mut columns = BTreeMap::new();
    for (at, name) in head.iter().enumerate() {
        // spreadsheets put a mark before the first column
        let plain = name
            .trim_start_matches('\u{feff}')
            .to_ascii_lowercase()
            .replace('_', "-");
        match COLUMNS.iter().find(|known| **known == plain) {
            Some(known) if columns.insert(*known, at).is_some() => bail!("it has the column {known} twice"),
            Some(_) => {}
            None => trace.unused.push(name.to_owned()),
        }
    }
    for must in ["name", "created"] {
        if !columns.contains_key(must) {
            bail!("it has no column {must}; the columns are {}", COLUMNS.join(", "));
        }
    }
    if !ASKS.iter().any(|ask| columns.contains_key(ask)) {
        bail!(
            "it has no column that says what a pod asks for: one of {}",
            ASKS.join(", ")
        );
    }
    Ok(columns)
}

/// How times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Seconds,
    Dates,
}

struct Row<'a> {
    columns: &'a BTreeMap<&'static str, usize>,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    fn pod(
        &self,
        trace: &mut Trace,
        times: &mut Option<Times>,
        judge: &mut Judge,
    ) -> Result<Option<Pod>, String> {
        let name = self.said("name").ok_or("name is empty")?;
        let namespace = self.said("namespace").unwrap_or("default");
        let from = self.time("created", times)?.ok_or("created is empty")?;
        let until = self.time("deleted", times)?;
        stay(from, until)?;
        let request = match self.asked()? {
            Some(request) => Some(request),
            None => trace.sized(self.hints()?, judge)?,
        };
        let Some(request) = request else { return Ok(None) };
        Ok(Some(Pod {
            name: format!("{namespace}/{name}"),
            from,
            until,
            request: judge.judge(request)?,
        }))
    }

    fn said(&self, column: &str) -> Option<&str> {
        let text = self.record.get(*self.columns.get(column)?)?;
        (!text.is_empty()).then_some(text)
    }

    /// What it asks for by name; hints do not count here.
    fn asked(&self) -> Result<Option<Request>, String> {
        let said: Vec<(&str, &str)> = ["profile", "resource", "gpus"]
            .into_iter()
            .filter_map(|column| Some((column, self.said(column)?)))
            .collect();
        let (profile, count) = match said[..] {
            [] if self.said("count").is_some() => return Err("it says a count, but not of what".to_owned()),
            [] => return Ok(None),
            [("profile", text)] => (
                Some(
                    text.parse()
                        .map_err(|bad: shared::mig::profile::BadProfile| bad.to_string())?,
                ),
                self.count("count")?,
            ),
            [("resource", text)] => match parse_resource(text) {
                Some(Asked::Slice(profile)) => (Some(profile), self.count("count")?),
                Some(Asked::WholeGpu) => (None, self.count("count")?),
                Some(Asked::Unknown(_)) | None => {
                    return Err(format!(
                        "resource is {text:?}; write nvidia.com/gpu, or a slice like nvidia.com/mig-2g.20gb"
                    ));
                }
            },
            [("gpus", _)] if self.said("count").is_some() => {
                return Err("it says both gpus and count; one is enough".to_owned());
            }
            [("gpus", _)] => (None, self.count("gpus")?),
            _ => {
                let names: Vec<&str> = said.iter().map(|(column, _)| *column).collect();
                return Err(format!("it says {}; one is enough", names.join(" and ")));
            }
        };
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(Request::of_one(fleet::CONTAINER, profile, count)))
    }

    fn hints(&self) -> Result<Hints, String> {
        Hints::read(self.said("model-parameters"), self.said("gpu-memory")).map_err(|bad| bad.to_string())
    }

    /// A count; 1 where nothing is said.
    fn count(&self, column: &str) -> Result<u32, String> {
        let Some(text) = self.said(column) else {
            return Ok(1);
        };
        let count = text
            .parse()
            .ok()
            .filter(|count: &u32| *count <= Request::MAX_COUNT);
        count.ok_or_else(|| {
            format!(
                "{column} is {text:?}, not a whole number from 0 to {}",
                Request::MAX_COUNT
            )
        })
    }

    /// A time in seconds; `None` where nothing is said.
    fn time(&self, column: &str, times: &mut Option<Times>) -> Result<Option<f64>, String> {
        let Some(text) = self.said(column) else {
            return Ok(None);
        };
        let seconds = text
            .parse()
            .ok()
            .filter(|seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds));
        let (how, time) = match seconds {
            Some(seconds) => (Times::Seconds, seconds),
            None => {
                let date: Timestamp = text.parse().map_err(|_| {
                    format!("{column} is {text:?}; write it like 2026-11-29T08:00:00Z, or in seconds from 0")
                })?;
                (Times::Dates, date.as_microsecond() as f64 / 1e6)
            }
        };
        if *times.get_or_insert(how) != how {
            return Err(match how {
                Times::Seconds => format!("{column} is in seconds, the rows before it have dates"),
                Times::Dates => format!("{column} is a date, the rows before it have seconds"),
            });
        }
        Ok(Some(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Result<Trace> {
        read(text.as_bytes(), &mut crate::pool::trace::tests::judge())
    }

    #[test]
    fn every_way_to_ask_is_read() {
        let text = "Name,created,deleted,profile,resource,count,gpus,model_parameters,gpu_memory,team\n\
            a,0,10,2g.20gb,,,,,,x\n\
            b,1.5,,,nvidia.com/mig-1g.10gb.me,2,,,,x\n\
            \n\
            c,2,,,nvidia.com/gpu,,,,,x\n\
            d,2,,,,,4,,,x\n\
            e,2,,,,,,7B,,x\n\
            f,2,,,,,,70B,30Gi,x\n\
            g,2,,,,,0,,,x\n\
            h,2,,,,,,,,x\n";
        let trace = trace(text).unwrap();
        let asked: Vec<String> = trace.pods.iter().map(|pod| pod.request.in_words()).collect();
        assert_eq!(
            asked,
            [
                "2g.20gb",
                "2 x 1g.10gb+me",
                "whole GPU",
                "4 x whole GPU",
                "1g.20gb",
                "3g.40gb"
            ]
        );
        assert_eq!((trace.bad.len(), trace.without_gpus), (0, 2));
        assert_eq!(trace.unused, ["team"]);
        assert_eq!(
            (trace.pods[0].from, trace.pods[0].until, trace.pods[1].until),
            (0.0, Some(10.0), None)
        );
        assert_eq!(trace.sized.len(), 2);
    }

    #[test]
    fn dates_are_read_as_seconds_and_not_mixed_with_them() {
        let text = "name,created,deleted,gpus\n\
            a,2026-11-29T08:00:00Z,2026-11-29T09:00:00+01:00,1\n\
            b,2026-11-29T08:00:00.5Z,,1\n\
            c,17,,1\n";
        let trace = trace(text).unwrap();
        assert_eq!(trace.pods[0].until, Some(trace.pods[0].from));
        assert!((trace.pods[1].from - trace.pods[0].from - 0.5).abs() < 1e-6);
        assert_eq!(
            trace.bad[0].to_string(),
            "line 4: created is in seconds, the rows before it have dates"
        );
    }

    #[test]
    fn a_head_that_lacks_something_says_what() {
        let no = |text: &str| format!("{:#}", trace(text).unwrap_err());
        assert!(no("").starts_with("it has no column name; the columns are name, namespace, created"));
        assert!(no("name,gpus\n").starts_with("it has no column created;"));
        assert!(
            no("name,created\n")
                .starts_with("it has no column that says what a pod asks for: one of profile")
        );
        assert_eq!(no("name,created,gpus,GPUs\n"), "it has the column gpus twice");
    }
}

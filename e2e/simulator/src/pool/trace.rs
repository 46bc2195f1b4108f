//! A user's own pods: when each came and went, and what it asked for. Read from CSV or from what
//! `kubectl get pods -A -o json` prints. A row that cannot be read is named with the reason and left out.
//!
//! CSV: the first line names the columns, in any order. `name` and `created` must be there, and one of the columns
//! that say what a pod asks for.
//!
//! | column | meaning |
//! |---|---|
//! | `name` | of the pod; may come again once a pod has gone |
//! | `namespace` | optional |
//! | `created` | when it began: RFC 3339 (`2026-11-29T08:00:00Z`) or seconds, the same in all rows |
//! | `deleted` | when it ended; empty: it runs until the end of the trace, which is the last time in the file |
//! | `profile` | a MIG profile: `2g.20gb` |
//! | `resource` | or a resource: `nvidia.com/mig-2g.20gb`, `nvidia.com/gpu` |
//! | `count` | how many of the profile or resource; empty: 1 |
//! | `gpus` | or so many whole GPUs |
//! | `model-parameters`, `gpu-memory` | or what the pod's annotations of that name say: `7B`, `18Gi` |
//!
//! * [`rows`] - CSV
//! * [`listing`] - kubectl's JSON
//! * [`replay`] - the same pods on fewer and fewer GPUs
//! * [`answer`] - what they need, in words and figures

pub mod answer;
pub mod listing;
pub mod replay;
pub mod rows;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use shared::decide::size::{Beyond, Hints, size};
use shared::snapshot::Request;

use crate::fleet::{Fleet, Make};

/// Largest file that is read, bytes: what kubectl prints of some 50,000 pods.
pub const MOST_BYTES: u64 = 512 << 20;
/// Most pods in a trace: a replay of so many takes minutes.
pub const MOST_PODS: usize = 500_000;

/// A pod that asked for something of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Namespace and name.
    pub name: String,
    /// When it began, seconds.
    pub from: f64,
    /// When it ended; `None` where it still ran.
    pub until: Option<f64>,
    /// What it asks for.
    pub request: Request,
}

/// A row that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where it is: `line 7`, `item 3 (team/train-0)`.
    pub at: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.why)
    }
}

/// A trace as it was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Pods, in the order of the file.
    pub pods: Vec<Pod>,
    /// What was left out.
    pub bad: Vec<Bad>,
    /// Pods that ask for no GPU.
    pub without_gpus: usize,
    /// How hints were read, each way once: `1g.20gb: 7B parameters are fewer than 10B, ...`.
    pub sized: Vec<String>,
    /// Columns that mean nothing here.
    pub unused: Vec<String>,
}

/// What pods are read for: says what they get and whether a node could ever hold it.
#[derive(Clone, Debug)]
pub struct Judge {
    make: Make,
    /// A node with nothing on it.
    empty: Fleet,
    /// Requests judged before, in words.
    judged: BTreeMap<String, bool>,
}

/// Reads a trace.
///
/// # Errors
/// Where the file cannot be read, is too large, or is no trace at all; bad rows are no error.
pub fn read(path: &Path, judge: &mut Judge) -> Result<Trace> {
    let shown = path.display();
    let size = std::fs::metadata(path)
        .with_context(|| format!("cannot read {shown}"))?
        .len();
    if size > MOST_BYTES {
        bail!(
            "{shown} has {} MiB, at most {} are read: leave out the pods without GPUs, or split it by time",
            size >> 20,
            MOST_BYTES >> 20
        );
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let mut trace = if first == Some(&b'{') {
        listing::read(&bytes, judge)
    } else {
        rows::read(&bytes, judge)
    }
    .with_context(|| format!("{shown} is no trace"))?;
    trace.sized.sort_unstable();
    trace.sized.dedup();
    if trace.pods.len() > MOST_PODS {
        bail!(
            "{shown} has {} pods with GPUs, at most {MOST_PODS} are replayed: split it by time",
            trace.pods.len()
        );
    }
    Ok(trace)
}

impl Trace {
    /// Enters a pod, or why it cannot be.
    fn enter(&mut self, at: impl FnOnce() -> String, pod: Result<Option<Pod>, String>) {
        match pod {
            Ok(Some(pod)) => self.pods.push(pod),
            Ok(None) => self.without_gpus += 1,
            Err(why) => self.bad.push(Bad { at: at(), why }),
        }
    }

    /// The request that hints come to; `None` where there are none.
    fn sized(&mut self, hints: Hints, judge: &Judge) -> Result<Option<Request>, String> {
        if hints.is_empty() {
            return Ok(None);
        }
        let sized = size(
            hints,
            &judge.make.board,
            Beyond::LargestSlices,
            &judge.make.policy,
        );
        let sized = sized.map_err(|no| no.to_string())?;
        self.sized.push(sized.to_string());
        Ok(Some(sized.request("main")))
    }
}

impl Judge {
    /// For nodes of this make.
    #[must_use]
    pub fn new(make: Make) -> Self {
        Self {
            empty: Fleet::new(make.clone(), make.gpus_per_node),
            judged: BTreeMap::new(),
            make,
        }
    }

    /// The request, if the board has what it asks for and an empty node has room for it.
    fn judge(&mut self, request: Request) -> Result<Request, String> {
        let board = &self.make.board;
        for profile in request.wants.iter().filter_map(|want| want.profile) {
            if board.row(profile).is_none() {
                let names: Vec<String> = board.profiles.iter().map(|row| row.profile.to_string()).collect();
                return Err(format!(
                    "{} has no profile {profile}; it has {} (another board: --board)",
                    board.name,
                    names.join(", ")
                ));
            }
        }
        let words = request.in_words();
        let fits = match self.judged.get(&words) {
            Some(fits) => *fits,
            None => self.empty.clone().arrive(0.0, 0, &request).is_some(),
        };
        self.judged.insert(words.clone(), fits);
        if fits {
            Ok(request)
        } else {
            Err(format!(
                "it asks for {words}, for which a node of {} {} has no room (larger nodes: --gpus-per-node)",
                self.make.gpus_per_node, board.name
            ))
        }
    }
}

/// Whether a stay makes sense.
fn stay(from: f64, until: Option<f64>) -> Result<(), String> {
    match until {
        Some(until) if until < from => Err("it ended before it began".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use shared::mig::Board;
    use shared::policy::Policy;

    pub(super) fn judge() -> Judge {
        Judge::new(Make {
            board: Arc::new(Board::named("H100-80GB").unwrap().clone()),
            gpus_per_node: 8,
            policy: Policy::default(),
            repairs: true,
        })
    }

    fn read_text(name: &str, text: &str) -> Result<Trace> {
        let path = std::env::temp_dir().join(format!("migpool-sim-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let trace = read(&path, &mut judge());
        std::fs::remove_file(&path).unwrap();
        trace
    }

    #[test]
    fn a_file_is_read_by_what_is_in_it() {
        let trace = read_text("a.txt", "name,created,gpus\na,0,1\n").unwrap();
        assert_eq!(trace.pods[0].name, "default/a");
        let trace = read_text("b.txt", "\n {\"kind\": \"List\", \"items\": []}").unwrap();
        assert!(trace.pods.is_empty());
        let no = format!("{:#}", read_text("c.txt", "{\"kind\"").unwrap_err());
        assert!(
            no.contains("is no trace: it is no JSON that kubectl prints: "),
            "{no}"
        );
        let no = format!("{:#}", read(Path::new("/nowhere.csv"), &mut judge()).unwrap_err());
        assert!(no.starts_with("cannot read /nowhere.csv: "), "{no}");
    }

    #[test]
    fn what_no_node_could_ever_hold_is_a_bad_row() {
        let text =
            "name,created,profile,count,gpus\na,0,,,9\nb,0,1g.5gb,,\nc,0,4g.40gb,9,\nd,0,1g.10gb,56,\n";
        let trace = read_text("d.csv", text).unwrap();
        let bad: Vec<String> = trace.bad.iter().map(ToString::to_string).collect();
        assert_eq!(
            bad[0],
            "line 2: it asks for 9 x whole GPU, for which a node of 8 H100-80GB has no room (larger nodes: --gpus-per-node)"
        );
        assert!(
            bad[1].starts_with("line 3: H100-80GB has no profile 1g.5gb; it has 1g.10gb, "),
            "{bad:?}"
        );
        assert!(bad[2].starts_with("line 4: it asks for 9 x 4g.40gb"), "{bad:?}");
        assert_eq!((bad.len(), trace.pods.len()), (3, 1));
    }
}

//! `migpool-sim pool`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use shared::mig::Board;
use shared::mig::board::catalogue;
use shared::policy::Policy;

use super::curve::curves;
use super::duty::c3;
use super::loads::{c1, c2};
use super::recorded::{TRACES, TRACES_ENV};
use super::report::{self, Section};
use super::services::c4;
use super::shares::c5;
use super::speed;
use super::steady::Setup;
use super::trace::answer::{Question, answer};
use crate::fleet::Make;
use crate::mig::engine::Length;

/// What a trace may look like, for `--help`.
const TRACE_HELP: &str = "A trace (--trace FILE) is CSV, or what `kubectl get pods -A -o json` prints.

CSV columns, in any order, named by the first line:
  name                       of the pod
  namespace                  optional
  created                    when it began: RFC 3339 (2026-11-29T08:00:00Z) or seconds, the same in all rows
  deleted                    when it ended; empty: it runs until the last time in the file
and what it asks for, one of:
  profile, count             a MIG profile (2g.20gb), so many of it (empty: 1)
  resource, count            a resource (nvidia.com/mig-2g.20gb, nvidia.com/gpu), so many of it
  gpus                       so many whole GPUs
  model-parameters, gpu-memory
                             what the annotations migpool.dev/model-parameters (7B) and migpool.dev/gpu-memory (18Gi) say

From JSON are taken the requests of each pod, else those two annotations, the start of its first container and the end
of its last; a pod that still runs does so until the last time in the file. Bad rows are listed and left out; with
--strict they end the run with exit code 1 and nothing is computed.";

/// Counts the GPUs that are needed at equal service: dynamic slices against whole GPUs and static layouts.
#[derive(Args, Debug)]
#[command(after_long_help = TRACE_HELP)]
pub struct Pool {
    /// Parts of the comparison, separated by commas [default: all].
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "trace")]
    only: Vec<Part>,
    /// Share of requests or pods that must be let in, percent.
    #[arg(long, default_value_t = 99.0)]
    accept: f64,
    /// How many seeds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Requests a run; the first fifth is not counted. The curves take half of both this and the seeds.
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    arrivals: u32,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    threads: u64,
    /// Folder of recorded clusters; what is not there is skipped.
    #[arg(long, env = TRACES_ENV, default_value = TRACES)]
    traces: PathBuf,
    /// Answers what the pods of this file would need: CSV, or kubectl's JSON (see --help).
    #[arg(long)]
    trace: Option<PathBuf>,
    /// What all GPUs of --trace are.
    #[arg(long, default_value = "H100-80GB")]
    board: String,
    /// GPUs in a node of --trace.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    gpus_per_node: u64,
    /// Refuses a --trace that has a bad row.
    #[arg(long, requires = "trace")]
    strict: bool,
    /// Writes one row a figure to this file.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Writes a page with pictures into this folder.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Ends with exit code 1 where a target is not held.
    #[arg(long, conflicts_with = "trace")]
    check: bool,
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Steady loads of MIG-100.
    C1,
    /// A load whose mix switches.
    C2,
    /// A serving fleet by measured use (GenTD26).
    C3,
    /// Services with GPUs of their own (DLRM).
    C4,
    /// Pods that share a GPU (openb).
    C5,
    /// What is saved against mix and load.
    Curve,
    /// What slices cost in speed.
    Speed,
}

impl Pool {
    /// Runs it.
    ///
    /// # Errors
    /// Where numbers make no sense, a file cannot be read or written, a strict trace has a bad row, or a target is
    /// missed under `--check`.
    pub fn run(&self) -> Result<()> {
        if !(50.0..=100.0).contains(&self.accept) {
            bail!("--accept {}: choose from 50 to 100 percent", self.accept);
        }
        let sections = match &self.trace {
            Some(path) => answer(path, &self.question()?)?,
            None => self.compare()?,
        };
        print!("{}", report::text(&sections));
        if let Some(path) = &self.csv {
            std::fs::write(path, report::csv(&sections)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = &self.html {
            report::page(&sections).write(folder)?;
        }
        let (missed, targets) = report::missed(&sections);
        if self.check && missed > 0 {
            bail!("{missed} of {targets} targets are not held");
        }
        Ok(())
    }

    fn question(&self) -> Result<Question> {
        let Some(board) = Board::named(&self.board) else {
            let names: Vec<&str> = catalogue().iter().map(|board| board.name.as_str()).collect();
            bail!("--board {}: choose from {}", self.board, names.join(", "));
        };
        Ok(Question {
            make: Make {
                board: Arc::new(board.clone()),
                gpus_per_node: self.gpus_per_node as usize,
                policy: Policy::default(),
                repairs: true,
            },
            accept: self.accept / 100.0,
            strict: self.strict,
            threads: self.threads as usize,
        })
    }

    fn compare(&self) -> Result<Vec<Section>> {
        let setup = |part: u64| {
            let arrivals = self.arrivals as usize / part as usize;
            Setup {
                accept: self.accept / 100.0,
                seeds: (self.first_seed..self.first_seed + self.seeds.div_ceil(part)).collect(),
                length: Length {
                    arrivals,
                    warm_up: arrivals / 5,
                },
                ours: Policy::default(),
                threads: self.threads as usize,
            }
        };
        let mut sections = Vec::new();
        for part in Part::value_variants() {
            if !self.only.is_empty() && !self.only.contains(part) {
                continue;
            }
            match part {
                Part::C1 => sections.push(c1(&setup(1))),
                Part::C2 => sections.push(c2(&setup(1))),
                Part::C3 => sections.push(c3(
                    &self.traces,
                    self.accept / 100.0,
                    &Policy::default(),
                    self.threads as usize,
                )?),
                Part::C4 => sections.push(c4(&self.traces)?),
                Part::C5 => sections.push(c5(None)?),
                Part::Curve => sections.extend(curves(&setup(2))),
                Part::Speed => sections.push(speed::table()?),
            }
        }
        Ok(sections)
    }
}

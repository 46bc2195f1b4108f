//! `migpool-sim place`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::experiment::{Entry, Grid, Results};
use super::fill::MEASURED;
use super::policy::{POLICIES, Policy, Ties};
use super::table;
use super::trace::{self, LISTS};
use crate::picture::lines::{Chart, Line};
use crate::picture::page::Page;

/// Pictures begin here, percent asked for: below it all policies place everything.
const SHOWN_FROM: usize = 80;

/// Fills 1,213 nodes with 6,212 GPUs (openb) and compares with the published results.
#[derive(Args, Debug)]
pub struct Place {
    /// Policies, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Lists of pods, separated by commas [default: the 17 of the paper].
    #[arg(long, value_delimiter = ',')]
    list: Vec<String>,
    /// What breaks ties among equal scores.
    #[arg(long, value_enum, default_value = "usual")]
    ties: TiesArg,
    /// How many seeds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// The first seed; the paper's are 42 to 51.
    #[arg(long, default_value_t = 42)]
    first_seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    threads: u64,
    /// Folder of the traces, or of openb in it [default: the copy that comes with the simulator].
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Writes one row a run and percent to this file.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Writes a page with pictures into this folder.
    #[arg(long)]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TiesArg {
    /// By an order as published; by chance for ours.
    Usual,
    /// By one order of the nodes, drawn from the seed.
    Order,
    /// By chance, as stock kube-scheduler does.
    Random,
    /// Both, a row each.
    Both,
}

impl Place {
    /// Runs it.
    ///
    /// # Errors
    /// Where the trace cannot be read or a file not be written.
    pub fn run(&self) -> Result<()> {
        let policies = if self.policy.is_empty() {
            POLICIES.iter().map(|(_, policy)| *policy).collect()
        } else {
            self.policy.clone()
        };
        let entries = |policy: Policy| {
            let ties = match self.ties {
                TiesArg::Usual => vec![policy.usual_ties()],
                TiesArg::Order => vec![Ties::Order],
                TiesArg::Random => vec![Ties::Random],
                // chance has no other ties
                TiesArg::Both if policy == Policy::Random => vec![Ties::Random],
                TiesArg::Both => vec![Ties::Order, Ties::Random],
            };
            ties.into_iter().map(move |ties| Entry { policy, ties })
        };
        let grid = Grid {
            entries: policies.into_iter().flat_map(entries).collect(),
            lists: if self.list.is_empty() {
                LISTS.map(ToOwned::to_owned).to_vec()
            } else {
                self.list.clone()
            },
            seeds: (self.first_seed..self.first_seed + self.seeds).collect(),
        };
        let results = grid.run(&trace::folder(self.traces.as_deref()), self.threads as usize)?;
        print!("{}", table::text(&results));
        if let Some(path) = &self.csv {
            std::fs::write(path, table::csv(&results))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(folder) = &self.html {
            page(&results).write(folder)?;
        }
        Ok(())
    }
}

/// Allocation and fragments against what was asked for, a pair of pictures a list.
fn page(results: &Results) -> Page {
    let mut page = Page::new("migpool-sim place");
    page.say(&format!(
        "openb: 1,213 nodes, 6,212 GPUs. Pods arrive in random order, one that fits nowhere is dropped, nothing leaves. Mean of {} seeds.",
        results.grid.seeds.len()
    ));
    for (at, list) in results.grid.lists.iter().enumerate() {
        let line = |entry: &Entry, fragment: bool| Line {
            name: entry.name(),
            ours: entry.policy == Policy::Ours,
            points: (SHOWN_FROM..=MEASURED)
                .map(|percent| {
                    let mean = results.cell(*entry, at, |curve| {
                        if fragment {
                            curve.fragment[percent]
                        } else {
                            curve.allocated[percent]
                        }
                    });
                    (percent as f64, mean.mean)
                })
                .collect(),
        };
        for (what, fragment) in [("allocated", false), ("fragment", true)] {
            let chart = Chart {
                title: format!("{list}: {what}, percent of all GPUs"),
                across: "GPUs asked for, percent of all".to_owned(),
                lines: results
                    .grid
                    .entries
                    .iter()
                    .map(|entry| line(entry, fragment))
                    .collect(),
            };
            page.picture(&format!("{what}-{list}.svg"), chart.svg());
        }
    }
    page.verbatim(&table::text(results));
    page
}

//! Which fillings are made, and what each gave.

use anyhow::Result;
use shared::decide::pack::{Ask, Workload};

use super::arrivals::arrivals;
use super::fill::{Curve, fill};
use super::policy::{Policy, Ties};
use super::trace::{self, Cluster};
use crate::parallel;
use crate::statistics::Summary;

/// A policy with what breaks its ties: a row of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The policy.
    pub policy: Policy,
    /// What breaks its ties.
    pub ties: Ties,
}

/// A grid of fillings.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Policies.
    pub entries: Vec<Entry>,
    /// Lists of pods.
    pub lists: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
}

/// All fillings of a grid.
#[derive(Clone, Debug)]
pub struct Results {
    /// The grid.
    pub grid: Grid,
    /// In the order list, entry, seed.
    pub runs: Vec<(usize, Entry, u64, Curve)>,
}

impl Entry {
    /// Its name: the policy's, with the ties where they are not the usual ones.
    #[must_use]
    pub fn name(&self) -> String {
        let ties = match self.ties {
            Ties::Order => "order",
            Ties::Random => "random",
        };
        if self.ties == self.policy.usual_ties() {
            self.policy.to_string()
        } else {
            format!("{}, ties {ties}", self.policy)
        }
    }
}

impl Grid {
    /// Reads the trace and makes all fillings on so many threads.
    ///
    /// # Errors
    /// Where the trace cannot be read.
    pub fn run(self, folder: &std::path::Path, threads: usize) -> Result<Results> {
        let cluster = trace::nodes(folder)?;
        let lists: Vec<Loaded> = self
            .lists
            .iter()
            .map(|list| Loaded::new(folder, list, &cluster))
            .collect::<Result<_>>()?;
        let all = cluster.capacity().iter().sum();
        let mut jobs = Vec::new();
        for list in 0..lists.len() {
            for entry in &self.entries {
                jobs.extend(self.seeds.iter().map(|seed| (list, *entry, *seed)));
            }
        }
        let runs = parallel::run(&jobs, threads, "place", |(list, entry, seed)| {
            let loaded = &lists[*list];
            let pods = arrivals(&loaded.pods, all, *seed);
            let curve = fill(&cluster, &loaded.workload, &pods, entry.policy, entry.ties, *seed);
            (*list, *entry, *seed, curve)
        });
        Ok(Results { grid: self, runs })
    }
}

/// A list of pods and what it tells of those to come: the list as it is, before it is stretched.
struct Loaded {
    pods: Vec<Ask>,
    workload: Workload,
}

impl Loaded {
    fn new(folder: &std::path::Path, list: &str, cluster: &Cluster) -> Result<Self> {
        let pods = trace::pods(folder, list, &cluster.models)?;
        Ok(Self {
            workload: Workload::of(&pods, &cluster.capacity()),
            pods,
        })
    }
}

impl Results {
    /// One entry on one list, over the seeds: what `of` reads from each curve.
    #[must_use]
    pub fn cell(&self, entry: Entry, list: usize, of: impl Fn(&Curve) -> f64) -> Summary {
        let runs = self
            .runs
            .iter()
            .filter(|(at, other, _, _)| *at == list && *other == entry);
        Summary::of(runs.map(|(_, _, _, curve)| of(curve)))
    }
}

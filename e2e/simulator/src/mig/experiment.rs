//! Which runs are made, and what each gave.

use shared::policy::Policy as OurPolicy;

use super::engine::{Length, Tally, run};
use super::load::{Arrivals, Pattern};
use super::policy::Policy;
use super::shapes::Shapes;
use crate::parallel;
use crate::statistics::Summary;

/// A grid of runs: every policy under every load with every seed.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Rows.
    pub policies: Vec<Policy>,
    /// Columns.
    pub patterns: Vec<Pattern>,
    /// Offered loads: one table each.
    pub loads: Vec<f64>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// GPUs.
    pub gpus: usize,
    /// How long each run is.
    pub length: Length,
    /// Our own tunable numbers.
    pub ours: OurPolicy,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub struct Run {
    /// The policy.
    pub policy: Policy,
    /// Index among the patterns.
    pub pattern: usize,
    /// Index among the loads.
    pub load: usize,
    /// The seed.
    pub seed: u64,
    /// What it gave.
    pub tally: Tally,
}

/// All runs of a grid.
#[derive(Clone, Debug)]
pub struct Results {
    /// The grid.
    pub grid: Grid,
    /// In the order load, pattern, policy, seed.
    pub runs: Vec<Run>,
}

/// One policy under one load, over the seeds.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Share of requests let in.
    pub acceptance: Summary,
    /// Share of memory slices used.
    pub utilisation: Summary,
    /// Moves per 100 requests let in.
    pub moves: Summary,
}

impl Grid {
    /// Makes all runs on so many threads.
    #[must_use]
    pub fn run(self, threads: usize) -> Results {
        let shapes = Shapes::h100();
        let mut jobs = Vec::new();
        for load in 0..self.loads.len() {
            for pattern in 0..self.patterns.len() {
                for policy in &self.policies {
                    jobs.extend(self.seeds.iter().map(|seed| (*policy, pattern, load, *seed)));
                }
            }
        }
        let runs = parallel::run(&jobs, threads, "mig", |(policy, pattern, load, seed)| {
            let (loads, patterns) = (&self.loads, &self.patterns);
            let offered = loads[*load];
            let mut fleet = policy.fleet(&shapes, &patterns[*pattern], offered, self.gpus, &self.ours);
            let arrivals = Arrivals::new(&patterns[*pattern], &shapes, offered, self.gpus, *seed);
            Run {
                policy: *policy,
                pattern: *pattern,
                load: *load,
                seed: *seed,
                tally: run(&mut *fleet, self.gpus, &shapes, arrivals, self.length, &mut ()),
            }
        });
        Results { grid: self, runs }
    }
}

impl Results {
    /// The runs of one policy under one load.
    pub fn of(&self, policy: Policy, pattern: usize, load: usize) -> impl Iterator<Item = &Tally> {
        self.runs
            .iter()
            .filter(move |run| run.policy == policy && run.pattern == pattern && run.load == load)
            .map(|run| &run.tally)
    }

    /// Them over the seeds.
    #[must_use]
    pub fn cell(&self, policy: Policy, pattern: usize, load: usize) -> Cell {
        let over = |of: fn(&Tally) -> f64| Summary::of(self.of(policy, pattern, load).map(of));
        Cell {
            acceptance: over(Tally::acceptance),
            utilisation: over(|tally| tally.utilisation),
            moves: over(Tally::moves_per_hundred),
        }
    }

    /// How much more one policy uses than another, seed by seed: both saw the same requests, so this is known far
    /// better than either figure alone.
    #[must_use]
    pub fn gain(&self, policy: Policy, over: Policy, pattern: usize, load: usize) -> Summary {
        let pairs = self.of(policy, pattern, load).zip(self.of(over, pattern, load));
        Summary::of(pairs.map(|(one, other)| one.utilisation - other.utilisation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::load::MIXES;

    fn grid(policies: &[&str], loads: &[f64], length: Length) -> Grid {
        Grid {
            policies: policies.iter().map(|name| name.parse().unwrap()).collect(),
            patterns: MIXES.map(Pattern::Steady).to_vec(),
            loads: loads.to_vec(),
            seeds: vec![1, 2],
            gpus: 100,
            length,
            ours: OurPolicy::default(),
        }
    }

    #[test]
    fn a_seed_names_one_result_whatever_the_threads() {
        let short = Length {
            arrivals: 600,
            warm_up: 100,
        };
        let tallies = |threads| {
            let results = grid(&["ours/m", "mfi-b", "static"], &[1.0], short).run(threads);
            results.runs.into_iter().map(|run| run.tally).collect::<Vec<_>>()
        };
        assert_eq!(tallies(1), tallies(3));
    }

    #[test]
    fn production_code_and_table_give_the_same_figures_for_the_same_rule() {
        let length = Length {
            arrivals: 3_000,
            warm_up: 1_000,
        };
        let results = grid(&["ef", "ours"], &[0.85], length).run(2);
        let policies = results.grid.policies.clone();
        for (pattern, mix) in MIXES.iter().enumerate() {
            let gain = results.gain(policies[1], policies[0], pattern, 0);
            // ours must learn the mix and breaks ties by name, so the two are close, not equal
            assert!(gain.mean.abs() < 0.01, "{}: {gain:?}", mix.name);
        }
    }
}

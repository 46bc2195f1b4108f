//! Steady and switching loads on as few GPUs as let in what they must. The requests of a seed are the same on
//! any number of GPUs and under any policy.

use std::collections::BTreeMap;

use super::need::least;
use super::report::percent;
use crate::mig::engine::{Length, Tally, run};
use crate::mig::load::{Arrivals, Pattern};
use crate::mig::policy::Policy;
use crate::mig::shapes::Shapes;
use crate::parallel;
use crate::statistics::Summary;

/// No search looks beyond so many GPUs for each that the load would fill.
const MOST_TIMES: f64 = 12.0;

/// What all searches share.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Share of requests that must be let in.
    pub accept: f64,
    /// Seeds of the requests.
    pub seeds: Vec<u64>,
    /// How long a run is.
    pub length: Length,
    /// Our own tunable numbers.
    pub ours: shared::policy::Policy,
    /// Threads.
    pub threads: usize,
}

/// A load and who serves it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What arrives.
    pub pattern: Pattern,
    /// Memory slices asked for at any time.
    pub slices: f64,
    /// Who serves it.
    pub policy: Policy,
}

/// What a load needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// GPUs.
    pub gpus: usize,
    /// Share of requests let in on so many, over the seeds.
    pub acceptance: Summary,
    /// Moves per 100 requests let in.
    pub moves: f64,
}

impl Need {
    /// `95 (.9903 ±.0006)`.
    #[must_use]
    pub fn text(need: Option<Self>) -> String {
        need.map_or_else(
            || "none will do".to_owned(),
            |need| {
                let digits = |value: f64| format!("{value:.4}").trim_start_matches('0').to_owned();
                format!(
                    "{} ({} ±{})",
                    need.gpus,
                    digits(need.acceptance.mean),
                    digits(need.acceptance.half)
                )
            },
        )
    }
}

impl Setup {
    /// The service in words.
    #[must_use]
    pub fn service(&self) -> String {
        format!(
            "service: {} of the requests are let in, by count; the rest is lost, nothing waits. In brackets the mean of {} seeds from {} with its 95 % interval; {} requests a run, {} of them not counted.",
            percent(self.accept),
            self.seeds.len(),
            self.seeds.first().copied().unwrap_or_default(),
            self.length.arrivals,
            self.length.warm_up
        )
    }

    /// What each case needs, in order.
    #[must_use]
    pub fn needs(&self, cases: &[Case], what: &str) -> Vec<Option<Need>> {
        let shapes = Shapes::h100();
        parallel::run(cases, self.threads, what, |case| self.need(case, &shapes))
    }

    /// The least GPUs on which a load is served, the mean over the seeds deciding.
    fn need(&self, case: &Case, shapes: &Shapes) -> Option<Need> {
        let full = case.slices / f64::from(shapes.slices);
        let mut tried: BTreeMap<usize, (Summary, f64)> = BTreeMap::new();
        let gpus = least(
            (full * 1.12).ceil() as usize,
            (full * MOST_TIMES).ceil() as usize,
            |gpus| {
                let tallies: Vec<Tally> = self
                    .seeds
                    .iter()
                    .map(|seed| self.run(case, shapes, gpus, *seed))
                    .collect();
                let acceptance = Summary::of(tallies.iter().map(Tally::acceptance));
                let moves = Summary::of(tallies.iter().map(Tally::moves_per_hundred)).mean;
                tried.insert(gpus, (acceptance, moves));
                acceptance.mean >= self.accept
            },
        )?;
        let (acceptance, moves) = tried.get(&gpus).copied()?;
        Some(Need {
            gpus,
            acceptance,
            moves,
        })
    }

    fn run(&self, case: &Case, shapes: &Shapes, gpus: usize, seed: u64) -> Tally {
        let of = |gpus: usize| case.slices / (gpus as f64 * f64::from(shapes.slices));
        // the stream is drawn for 100 GPUs whatever there are, so that it is the same for all
        let arrivals = Arrivals::new(&case.pattern, shapes, of(100), 100, seed);
        let mut fleet = case
            .policy
            .fleet(shapes, &case.pattern, of(gpus), gpus, &self.ours);
        run(&mut *fleet, gpus, shapes, arrivals, self.length, &mut ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::load::MIXES;

    #[test]
    fn the_same_service_is_reached_with_fewer_gpus_the_more_freely_they_are_cut() {
        let setup = Setup {
            accept: 0.95,
            seeds: vec![1, 2],
            length: Length {
                arrivals: 1_500,
                warm_up: 300,
            },
            ours: shared::policy::Policy::default(),
            threads: 2,
        };
        let case = |policy: &str| Case {
            pattern: Pattern::Steady(MIXES[1]),
            slices: 80.0,
            policy: policy.parse().unwrap(),
        };
        let needs = setup.needs(&["no-mig", "static", "ours", "ours/m"].map(case), "test");
        let gpus: Vec<usize> = needs.iter().map(|need| need.unwrap().gpus).collect();
        assert!(
            gpus[0] > 2 * gpus[1] && gpus[1] > gpus[2] && gpus[2] >= gpus[3],
            "{gpus:?}"
        );
        for need in needs.into_iter().flatten() {
            assert!(need.acceptance.mean >= 0.95, "{need:?}");
        }
    }
}

//! The demand expected: what arrived, each arrival worth half as much after a half-life.

use std::collections::BTreeMap;

use crate::decide::pack::{Ask, WHOLE};
use crate::mig::layout::plain;
use crate::mig::{Board, Profile};
use crate::policy::{ASKS_KEPT, CPU_STEP_MILLI};
use crate::snapshot::Request;

/// Arrivals by what they asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    slices: BTreeMap<Profile, f64>,
    /// Pods that asked for whole GPUs.
    whole: BTreeMap<Ask, f64>,
    /// CPU that pods with slices asked for, thousandths of a core.
    slices_cpu: f64,
    /// Time of the last arrival, seconds; weights are as of then.
    as_of: f64,
}

impl Demand {
    /// Counts a pod that arrives at `now` seconds (any epoch, the same for all calls) with all it asks. `models` are those its own rules let it run on,
    /// as bits; 0 is any.
    pub fn arrive(&mut self, request: &Request, models: u64, now: f64, half_life_seconds: f64) {
        self.fade(now, half_life_seconds);
        let cpu_milli = cpu_milli(request);
        let mut whole = 0;
        let mut slices = false;
        for (profile, count) in request.distinct() {
            match profile {
                Some(profile) => {
                    *self.slices.entry(profile).or_default() += f64::from(count);
                    slices = true;
                }
                None => whole = count,
            }
        }
        if whole > 0 {
            let ask = Ask {
                cpu_milli,
                memory_mib: 0,
                gpus: whole,
                share_milli: WHOLE,
                models,
            };
            *self.whole.entry(ask).or_default() += 1.0;
            self.let_go_of_the_rarest();
        } else if slices {
            self.slices_cpu += cpu_milli as f64;
        }
    }

    fn fade(&mut self, now: f64, half_life_seconds: f64) {
        let fade = 0.5_f64.powf((now - self.as_of).max(0.0) / half_life_seconds.max(1.0));
        let weights = self.slices.values_mut().chain(self.whole.values_mut());
        weights.for_each(|weight| *weight *= fade);
        self.slices_cpu *= fade;
        self.as_of = self.as_of.max(now);
    }

    fn let_go_of_the_rarest(&mut self) {
        if self.whole.len() > ASKS_KEPT {
            let rarest = self.whole.iter().min_by(|a, b| a.1.total_cmp(b.1));
            if let Some(ask) = rarest.map(|(ask, _)| *ask) {
                self.whole.remove(&ask);
            }
        }
    }

    /// The mix expected on a board: shares of its plain profiles, in the order of [`plain`], with one arrival of
    /// each assumed beforehand, so that what was never seen keeps a little weight.
    #[must_use]
    pub fn mix(&self, board: &Board) -> Vec<f64> {
        let seen = |profile| self.seen(profile) + 1.0;
        let weights: Vec<f64> = plain(board).map(|row| seen(row.profile)).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }

    /// How many slices of a profile were asked for, faded.
    #[must_use]
    pub fn seen(&self, profile: Profile) -> f64 {
        self.slices.get(&profile).copied().unwrap_or(0.0)
    }

    /// Profiles that were asked for, with how many slices of each.
    pub fn profiles(&self) -> impl Iterator<Item = (Profile, f64)> {
        self.slices.iter().map(|(profile, count)| (*profile, *count))
    }

    /// CPU that went with all of them, thousandths of a core.
    #[must_use]
    pub const fn slices_cpu_milli(&self) -> f64 {
        self.slices_cpu
    }

    /// What pods with whole GPUs asked, as shares of them.
    #[must_use]
    pub fn asks(&self) -> BTreeMap<Ask, f64> {
        let total: f64 = self.whole.values().sum();
        let share = |(ask, weight): (&Ask, &f64)| (*ask, weight / total.max(f64::MIN_POSITIVE));
        self.whole.iter().map(share).collect()
    }
}

/// CPU that a request counts with: whole steps, rounded up, so that requests that hardly differ are one kind.
#[must_use]
pub fn cpu_milli(request: &Request) -> u64 {
    request
        .besides
        .cpu_milli
        .div_ceil(CPU_STEP_MILLI)
        .saturating_mul(CPU_STEP_MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::asks;
    use crate::snapshot::CpuMemory;

    fn whole(cpu_milli: u64, gpus: u32) -> Request {
        Request {
            besides: CpuMemory {
                cpu_milli,
                memory_mib: 7,
            },
            ..asks(None, gpus)
        }
    }

    #[test]
    fn demand_fades_by_half_in_a_half_life() {
        let (small, large): (Profile, Profile) = ("1g.10gb".parse().unwrap(), "7g.80gb".parse().unwrap());
        let mut demand = Demand::default();
        demand.arrive(&asks(Some(small), 8), 0, 0.0, 60.0);
        demand.arrive(&asks(Some(large), 4), 0, 60.0, 60.0);
        let board = Board::named("H100-80GB").unwrap();
        let mix = demand.mix(board);
        let share = |profile| mix[plain(board).position(|row| row.profile == profile).unwrap()];
        assert!((share(small) - share(large)).abs() < 1e-12);
        assert!((mix.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn time_that_runs_backwards_fades_nothing() {
        let profile: Profile = "1g.10gb".parse().unwrap();
        let mut demand = Demand::default();
        demand.arrive(&asks(Some(profile), 1), 0, 100.0, 60.0);
        demand.arrive(&asks(Some(profile), 1), 0, 50.0, 60.0);
        assert_eq!(demand.seen(profile).to_bits(), 2.0_f64.to_bits());
    }

    #[test]
    fn whole_gpus_are_counted_by_their_number_and_cpu_in_steps() {
        let mut demand = Demand::default();
        for cpu in [7_001, 8_000, 7_500, 12_000] {
            demand.arrive(&whole(cpu, 2), 0, 0.0, 60.0);
        }
        let shares: Vec<(u64, f64)> = demand
            .asks()
            .iter()
            .map(|(ask, share)| (ask.cpu_milli, *share))
            .collect();
        assert_eq!(shares, [(8_000, 0.75), (12_000, 0.25)]);
        assert_eq!(demand.profiles().count(), 0);
    }

    #[test]
    fn slices_are_counted_as_record_counts_them_and_their_cpu_beside() {
        let profile: Profile = "2g.20gb".parse().unwrap();
        let (mut one, mut other) = (Demand::default(), Demand::default());
        one.arrive(&asks(Some(profile), 3), 0, 5.0, 60.0);
        other.arrive(
            &Request {
                besides: whole(1_500, 0).besides,
                ..asks(Some(profile), 3)
            },
            0,
            5.0,
            60.0,
        );
        assert_eq!(one.seen(profile).to_bits(), other.seen(profile).to_bits());
        assert_eq!((one.slices_cpu_milli(), other.slices_cpu_milli()), (0.0, 2_000.0));
    }

    #[test]
    fn of_too_many_kinds_the_rarest_is_let_go() {
        let mut demand = Demand::default();
        for kind in 0..=ASKS_KEPT as u64 {
            demand.arrive(&whole(kind * 1_000, 1), 0, 0.0, 60.0);
            if kind != 3 {
                demand.arrive(&whole(kind * 1_000, 1), 0, 0.0, 60.0);
            }
        }
        let asks = demand.asks();
        assert!(
            asks.len() <= ASKS_KEPT && asks.keys().all(|ask| ask.cpu_milli != 3_000),
            "{asks:?}"
        );
    }
}

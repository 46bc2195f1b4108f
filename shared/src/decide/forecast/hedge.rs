//! How members are weighed: Hedge, weights ∝ exp(-rate * loss). The loss of a member is what it lost on this series,
//! forgotten slowly, and what it lost on the whole pool lately, each in units of the mean member's loss. What is
//! forecast is the weighed median of the members, not their mean: a load that stays where it is, is met exactly.

use super::member::MOST_MEMBERS;
use super::pool::Pool;
use crate::policy::{FORECAST_HEDGE_RATE, FORECAST_OWN_DECAY};

/// Mean losses below this are as good as none, share of capacity.
const LEAST_LOSS: f64 = 1e-6;

/// What each member says. None where it sleeps.
pub type Opinions = [Option<f64>; MOST_MEMBERS];

/// The losses of the members on one series.
#[derive(Clone, Debug, Default)]
pub struct Hedge {
    losses: [f64; MOST_MEMBERS],
    /// Rounds judged, forgotten as losses are.
    rounds: f64,
}

impl Hedge {
    /// Weights of the first `members`, which sum to 1 over those that speak; all 0 where none does.
    #[must_use]
    pub fn weights(&self, opinions: &Opinions, members: usize, pool: &Pool) -> [f64; MOST_MEMBERS] {
        let mean = self.losses[..members].iter().sum::<f64>() / members.max(1) as f64;
        let unit = (mean / self.rounds.max(1.0)).max(LEAST_LOSS);
        let mut weights = [0.0; MOST_MEMBERS];
        let mut least = f64::INFINITY;
        for at in (0..members).filter(|at| opinions[*at].is_some()) {
            weights[at] = FORECAST_HEDGE_RATE * (self.losses[at] / unit + pool.evidence(at));
            least = least.min(weights[at]);
        }
        let mut sum = 0.0;
        for at in 0..members {
            weights[at] = match opinions[at] {
                // the least loss weighs 1 before the sum is taken out, so the sum is never 0
                Some(_) => (least - weights[at]).exp(),
                None => 0.0,
            };
            sum += weights[at];
        }
        if sum > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        weights
    }

    /// Counts a round. A member that slept is charged what the ensemble lost: sleeping neither helps nor hurts.
    pub fn learn(&mut self, opinions: &Opinions, members: usize, median: f64, truth: f64) {
        self.rounds = self.rounds * FORECAST_OWN_DECAY + 1.0;
        for (loss, opinion) in self.losses.iter_mut().zip(opinions).take(members) {
            *loss = *loss * FORECAST_OWN_DECAY + (opinion.unwrap_or(median) - truth).abs();
        }
    }
}

/// The least opinion at or below which half of the weight lies.
#[must_use]
pub fn median(opinions: &Opinions, weights: &[f64; MOST_MEMBERS]) -> Option<f64> {
    let mut order = [0; MOST_MEMBERS];
    let mut count = 0;
    for (at, opinion) in opinions.iter().enumerate() {
        if opinion.is_some() {
            order[count] = at;
            count += 1;
        }
    }
    let value = |at: usize| opinions[at].unwrap_or_default();
    order[..count].sort_unstable_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut below = 0.0;
    for at in &order[..count] {
        below += weights[*at];
        if below >= 0.5 {
            return Some(value(*at));
        }
    }
    // rounding may leave the sum a hair under a half only where a single member has all weight
    order[..count].last().map(|at| value(*at))
}

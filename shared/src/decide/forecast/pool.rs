//! What the series of one pool learn from each other. Ninety slices under one kind of work say in an hour what one
//! would say in days: which member is right these days, and whether the upper quantile is met. It changes only when
//! a round is closed, so the order of the series within a round does not matter.

use super::gate::{Gate, Standing, Verdict};
use super::member::MOST_MEMBERS;
use crate::policy::{
    FORECAST_POOL_DECAY, FORECAST_POOL_ROUNDS, FORECAST_SHIFT_MOST, FORECAST_UPPER_POOL_STEP, Policy,
};

/// One series' part of a round.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// What each member lost. None where it slept.
    pub losses: [Option<f64>; MOST_MEMBERS],
    /// What the ensemble lost.
    pub loss: f64,
    /// How far the upper quantile is off, see [`super::upper::Upper::learn`].
    pub pull: f64,
}

/// What all series of a pool share.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Mean losses of the last rounds, forgotten fast.
    losses: [f64; MOST_MEMBERS],
    evidence: [f64; MOST_MEMBERS],
    /// How many members have ever spoken.
    members: usize,
    /// Added to the quantile level of each series.
    shift: f64,
    gate: Gate,
    verdict: Verdict,
    round: Round,
}

#[derive(Clone, Copy, Debug, Default)]
struct Round {
    losses: [f64; MOST_MEMBERS],
    spoke: [u32; MOST_MEMBERS],
    loss: f64,
    pull: f64,
    judged: u32,
    standing: Standing,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            losses: [0.0; MOST_MEMBERS],
            evidence: [0.0; MOST_MEMBERS],
            members: 0,
            shift: 0.0,
            gate: Gate::default(),
            verdict: Verdict::unproven(&Standing::default()),
            round: Round::default(),
        }
    }
}

impl Pool {
    /// The loss of a member on the pool lately, as many rounds' worth as the policy gives it.
    #[must_use]
    pub const fn evidence(&self, member: usize) -> f64 {
        self.evidence[member]
    }

    /// What is added to the quantile level of each series.
    #[must_use]
    pub const fn shift(&self) -> f64 {
        self.shift
    }

    /// Whether the forecasts of this pool may be acted on at all.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes one series' part of the round.
    pub fn add(&mut self, judged: &Judged) {
        let round = &mut self.round;
        for (at, loss) in judged.losses.iter().enumerate() {
            if let Some(loss) = loss {
                round.losses[at] += loss;
                round.spoke[at] += 1;
            }
        }
        round.loss += judged.loss;
        round.pull += judged.pull;
        round.judged += 1;
    }

    /// Takes one series' standing, judged in this round or not.
    pub fn stand(&mut self, standing: &Standing) {
        self.round.standing.add(standing);
    }

    /// Ends the round: what was added counts from now on.
    pub fn close(&mut self, policy: &Policy) {
        let round = std::mem::take(&mut self.round);
        self.verdict = self.gate.round(&round.standing, policy);
        if round.judged == 0 {
            return;
        }
        let judged = f64::from(round.judged);
        let spoke = round.spoke.iter().rposition(|times| *times > 0);
        self.members = self.members.max(spoke.map_or(0, |last| last + 1));
        for at in 0..self.members {
            let mean = if round.spoke[at] > 0 {
                round.losses[at] / f64::from(round.spoke[at])
            } else {
                round.loss / judged
            };
            self.losses[at] = self.losses[at] * FORECAST_POOL_DECAY + mean;
        }
        let unit = self.losses.iter().sum::<f64>() / self.members.max(1) as f64;
        if unit > 0.0 {
            self.evidence = self.losses.map(|loss| FORECAST_POOL_ROUNDS * loss / unit);
        }
        // a series corrects itself by its own misses; the shift is what the others say, so alone there is none
        let others = 1.0 - 1.0 / judged;
        let shift = self.shift + FORECAST_UPPER_POOL_STEP * others * round.pull / judged;
        self.shift = shift.clamp(-FORECAST_SHIFT_MOST, FORECAST_SHIFT_MOST);
    }
}

//! What a forecaster is, and the list of those that need no training. The order of the list is that of the weights
//! everywhere.

use super::autoregression::Autoregression;
use super::history::History;
use super::level::{LastHour, Latest, Persistence};
use super::season::Daily;
use super::smoothing::{Exponential, Holt};
use crate::policy::FORECAST_CHOICE_DECAY;

/// Most members a series may have.
pub const MOST_MEMBERS: usize = 10;
/// Which of them is persistence, the yardstick of skill.
pub const PERSISTENCE: usize = 0;

/// One forecaster of one series.
pub trait Member: Send {
    /// Its name in tables and metrics.
    fn name(&self) -> &'static str;

    /// The mean of the next bin; None where it has nothing to say. The caller bounds it to 0..1.
    fn predict(&self, history: &History) -> Option<f64>;

    /// Learns from the bin that was just read and pushed. `history` ends with it.
    fn learn(&mut self, _truth: f64, _history: &History) {}

    /// Forgets what it learned: a long hole lies behind.
    fn restart(&mut self) {}

    /// Trains on the window, where it is one that is trained. Slow: the caller chooses when.
    fn train(&mut self, _history: &History) {}

    /// Memory, bytes.
    fn bytes(&self) -> usize;
}

/// Those that need no training.
#[must_use]
pub fn untrained() -> Vec<Box<dyn Member>> {
    vec![
        Box::new(Persistence),
        Box::new(Latest::default()),
        Box::new(LastHour),
        Box::new(Exponential::default()),
        Box::new(Holt::default()),
        Box::new(Autoregression::default()),
        Box::new(Daily::default()),
    ]
}

/// A few settings of one method, of which the one with the least recent loss speaks.
#[derive(Clone, Copy, Debug)]
pub struct Choice<const N: usize> {
    losses: [f32; N],
    predicted: [f32; N],
}

impl<const N: usize> Default for Choice<N> {
    fn default() -> Self {
        Self {
            losses: [0.0; N],
            predicted: [f32::NAN; N],
        }
    }
}

impl<const N: usize> Choice<N> {
    /// Counts what the settings said before `truth` came, then notes what they say now.
    pub fn turn(&mut self, truth: f64, now: [Option<f64>; N]) {
        let decay = FORECAST_CHOICE_DECAY as f32;
        for ((loss, predicted), now) in self.losses.iter_mut().zip(&mut self.predicted).zip(now) {
            if !predicted.is_nan() {
                *loss = *loss * decay + (*predicted - truth as f32).abs();
            }
            *predicted = now.map_or(f32::NAN, |now| now.clamp(0.0, 1.0) as f32);
        }
    }

    /// What the best of those that speak says. Equal ones: the first.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        let speaking = (0..N).filter(|at| !self.predicted[*at].is_nan());
        let best = speaking.min_by(|a, b| self.losses[*a].total_cmp(&self.losses[*b]))?;
        Some(f64::from(self.predicted[best]))
    }
}

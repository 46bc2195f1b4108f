//! Simple exponential smoothing and Holt's damped trend, each over a small grid of settings.

use super::history::History;
use super::member::{Choice, Member};

/// Weights of the newest bin.
const ALPHAS: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.9];
/// Settings of Holt: weight of the newest level, of the newest trend, and the damping a bin.
const TRENDS: [(f64, f64, f64); 12] = [
    (0.3, 0.1, 0.8),
    (0.3, 0.1, 0.95),
    (0.3, 0.3, 0.8),
    (0.3, 0.3, 0.95),
    (0.5, 0.1, 0.8),
    (0.5, 0.1, 0.95),
    (0.5, 0.3, 0.8),
    (0.5, 0.3, 0.95),
    (0.8, 0.1, 0.8),
    (0.8, 0.1, 0.95),
    (0.8, 0.3, 0.8),
    (0.8, 0.3, 0.95),
];

/// Simple exponential smoothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exponential {
    levels: Option<[f32; ALPHAS.len()]>,
    choice: Choice<{ ALPHAS.len() }>,
}

impl Member for Exponential {
    fn name(&self) -> &'static str {
        "smoothing"
    }

    fn predict(&self, _history: &History) -> Option<f64> {
        self.choice.best()
    }

    fn learn(&mut self, truth: f64, _history: &History) {
        let levels = self.levels.get_or_insert([truth as f32; ALPHAS.len()]);
        for (level, alpha) in levels.iter_mut().zip(ALPHAS) {
            *level += alpha as f32 * (truth as f32 - *level);
        }
        self.choice
            .turn(truth, levels.map(|level| Some(f64::from(level))));
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// Holt's method with a damped trend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holt {
    /// Level and trend.
    states: Option<[(f32, f32); TRENDS.len()]>,
    choice: Choice<{ TRENDS.len() }>,
}

impl Member for Holt {
    fn name(&self) -> &'static str {
        "damped Holt"
    }

    fn predict(&self, _history: &History) -> Option<f64> {
        self.choice.best()
    }

    fn learn(&mut self, truth: f64, _history: &History) {
        let truth32 = truth as f32;
        let states = self.states.get_or_insert([(truth32, 0.0); TRENDS.len()]);
        let mut now = [None; TRENDS.len()];
        for ((state, setting), now) in states.iter_mut().zip(TRENDS).zip(&mut now) {
            let (alpha, beta, damping) = (setting.0 as f32, setting.1 as f32, setting.2 as f32);
            let (level, trend) = *state;
            let next = alpha * truth32 + (1.0 - alpha) * (level + damping * trend);
            let slope = beta * (next - level) + (1.0 - beta) * damping * trend;
            *state = (next, slope);
            *now = Some(f64::from(next + damping * slope));
        }
        self.choice.turn(truth, now);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

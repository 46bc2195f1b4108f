//! The 0.9 quantile of one series: the median plus a quantile of the last residuals. Residuals are kept in units of
//! the spread of the moment, so that a load that has calmed down is not judged by its wild hour. Which quantile of
//! them is taken is corrected online (adaptive conformal inference): a truth above raises the level, one below
//! lowers it, by steps that leave the level alone at nine to one.

use crate::policy::{
    FORECAST_JUDGED, FORECAST_LEVEL_LEAST, FORECAST_LEVEL_MOST, FORECAST_SPREAD_DECAY, FORECAST_SPREAD_FIRST,
    FORECAST_SPREAD_LEAST, FORECAST_TIE, FORECAST_UPPER_LEVEL, FORECAST_UPPER_STEP,
};

/// The residuals of one series and the level taken of them.
#[derive(Clone, Debug)]
pub struct Upper {
    /// In units of the spread of their moment; `head` is the oldest once there are as many as there is room for.
    residuals: [f32; FORECAST_JUDGED],
    head: usize,
    count: usize,
    level: f64,
    spread: f64,
}

impl Default for Upper {
    fn default() -> Self {
        Self {
            residuals: [0.0; FORECAST_JUDGED],
            head: 0,
            count: 0,
            level: FORECAST_UPPER_LEVEL,
            spread: FORECAST_SPREAD_FIRST,
        }
    }
}

impl Upper {
    /// The quantile above this median. Before the first residual it is 1: nothing is known.
    #[must_use]
    pub fn above(&self, median: f64, shift: f64) -> f64 {
        let Some(residual) = self.quantile(bounded(self.level + shift)) else {
            return 1.0;
        };
        (median + (residual * self.spread).max(0.0)).min(1.0)
    }

    /// Takes what came. The answer says to the pool which way the level should go: above zero where the truth was
    /// above, nothing where it was met exactly, for then any level was right.
    pub fn learn(&mut self, median: f64, upper: f64, truth: f64) -> f64 {
        let above = truth - upper;
        let miss = f64::from(u8::from(above > FORECAST_TIE));
        let pull = miss - (1.0 - FORECAST_UPPER_LEVEL);
        self.level = bounded(self.level + FORECAST_UPPER_STEP * pull);
        let residual = truth - median;
        self.residuals[self.head] = (residual / self.spread) as f32;
        self.head = (self.head + 1) % FORECAST_JUDGED;
        self.count = (self.count + 1).min(FORECAST_JUDGED);
        let spread = self.spread * FORECAST_SPREAD_DECAY + residual.abs() * (1.0 - FORECAST_SPREAD_DECAY);
        self.spread = spread.max(FORECAST_SPREAD_LEAST);
        if above.abs() <= FORECAST_TIE { 0.0 } else { pull }
    }

    /// The quantile of the residuals, between the two nearest.
    fn quantile(&self, level: f64) -> Option<f64> {
        let mut residuals = self.residuals;
        let residuals = &mut residuals[..self.count];
        let last = self.count.checked_sub(1)?;
        let rank = (level * (self.count as f64 + 1.0) - 1.0).clamp(0.0, last as f64);
        let (_, below, rest) = residuals.select_nth_unstable_by(rank as usize, f32::total_cmp);
        let below = f64::from(*below);
        let next = rest
            .iter()
            .copied()
            .min_by(f32::total_cmp)
            .map_or(below, f64::from);
        Some(below + rank.fract() * (next - below))
    }
}

fn bounded(level: f64) -> f64 {
    level.clamp(FORECAST_LEVEL_LEAST, FORECAST_LEVEL_MOST)
}

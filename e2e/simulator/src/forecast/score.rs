//! What is counted of one method on one series or one set. Errors are shares of capacity; tables print points.

use shared::policy::{FORECAST_RIGHT_WITHIN, FORECAST_TIE, FORECAST_UPPER_LEVEL};

/// A step of the truth above this is a change event.
pub const EVENT: f64 = 0.05;

/// One forecast of one bin, and what came.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The median.
    pub median: f64,
    /// The 0.9 quantile.
    pub upper: f64,
    /// What came.
    pub truth: f64,
    /// What came before.
    pub before: f64,
}

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Forecasts scored.
    pub count: usize,
    /// Sum of absolute errors.
    pub error: f64,
    /// Sum of what came.
    pub truth: f64,
    /// Sum of the absolute errors of persistence on the same bins.
    pub persistence: f64,
    /// Within ten points.
    pub within: usize,
    /// At or below the upper quantile.
    pub covered: usize,
    /// Below it.
    pub below: usize,
    /// Sum of the pinball loss of the upper quantile.
    pub pinball: f64,
    /// Change events.
    pub events: usize,
    /// Within ten points at those.
    pub events_within: usize,
    /// Sum of absolute errors at those.
    pub events_error: f64,
}

impl Score {
    /// Counts one forecast.
    pub fn add(&mut self, point: &Point) {
        let error = (point.median - point.truth).abs();
        let above = point.truth - point.upper;
        self.count += 1;
        self.error += error;
        self.truth += point.truth;
        self.persistence += (point.before - point.truth).abs();
        self.within += usize::from(error <= FORECAST_RIGHT_WITHIN);
        self.covered += usize::from(above <= FORECAST_TIE);
        self.below += usize::from(above < -FORECAST_TIE);
        self.pinball += (FORECAST_UPPER_LEVEL * above).max((FORECAST_UPPER_LEVEL - 1.0) * above);
        if (point.truth - point.before).abs() > EVENT {
            self.events += 1;
            self.events_within += usize::from(error <= FORECAST_RIGHT_WITHIN);
            self.events_error += error;
        }
    }

    /// Adds another series'.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.error += other.error;
        self.truth += other.truth;
        self.persistence += other.persistence;
        self.within += other.within;
        self.covered += other.covered;
        self.below += other.below;
        self.pinball += other.pinball;
        self.events += other.events;
        self.events_within += other.events_within;
        self.events_error += other.events_error;
    }

    fn each(&self, sum: f64) -> f64 {
        100.0 * sum / self.count.max(1) as f64
    }

    /// Mean absolute error, points.
    #[must_use]
    pub fn mae(&self) -> f64 {
        self.each(self.error)
    }

    /// Sum of errors over sum of truths, percent.
    #[must_use]
    pub fn wape(&self) -> f64 {
        100.0 * self.error / self.truth.max(f64::MIN_POSITIVE)
    }

    /// Error over that of persistence.
    #[must_use]
    pub fn mase(&self) -> f64 {
        self.error / self.persistence.max(f64::MIN_POSITIVE)
    }

    /// Within ten points, percent.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        self.each(self.within as f64)
    }

    /// At or below the upper quantile, percent.
    #[must_use]
    pub fn covered(&self) -> f64 {
        self.each(self.covered as f64)
    }

    /// Below the upper quantile, percent.
    #[must_use]
    pub fn below(&self) -> f64 {
        self.each(self.below as f64)
    }

    /// Pinball loss of the upper quantile, points.
    #[must_use]
    pub fn pinball(&self) -> f64 {
        self.each(self.pinball)
    }

    /// Within ten points at change events, percent.
    #[must_use]
    pub fn events_accuracy(&self) -> f64 {
        100.0 * self.events_within as f64 / self.events.max(1) as f64
    }

    /// Mean absolute error at change events, points.
    #[must_use]
    pub fn events_mae(&self) -> f64 {
        100.0 * self.events_error / self.events.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_list_gives_known_figures() {
        let mut score = Score::default();
        let point = |median, upper, truth, before| Point {
            median,
            upper,
            truth,
            before,
        };
        score.add(&point(0.5, 0.6, 0.5, 0.4));
        score.add(&point(0.5, 0.6, 0.8, 0.5));
        score.add(&point(0.5, 0.6, 0.6, 0.6));
        assert_eq!(
            (score.count, score.within, score.covered, score.below),
            (3, 2, 2, 1)
        );
        assert!((score.mae() - 100.0 * 0.4 / 3.0).abs() < 1e-9);
        assert!((score.mase() - 1.0).abs() < 1e-9);
        assert!((score.pinball() - 100.0 * (0.01 + 0.18) / 3.0).abs() < 1e-9);
        assert_eq!((score.events, score.events_within), (2, 1));
    }
}

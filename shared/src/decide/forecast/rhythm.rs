//! When members that are trained learn anew: once the window is full, then at the policy's rhythm, and with the first
//! bin after a hole that made void what they knew.

use super::history::History;
use crate::policy::{FORECAST_CARRIED_BINS, FORECAST_RETRAIN_BINS};

/// Bins since the last training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    since: usize,
}

impl Default for Rhythm {
    /// Nothing was trained yet.
    fn default() -> Self {
        Self {
            since: FORECAST_RETRAIN_BINS,
        }
    }
}

impl Rhythm {
    /// One more bin is about to be pushed; whether a hole lies behind that is so long that what was learned is void.
    pub fn turn(&mut self, history: &History) -> bool {
        let void = history.missing() > FORECAST_CARRIED_BINS;
        if void {
            *self = Self::default();
        }
        self.since += 1;
        void
    }

    /// Whether a training is due.
    #[must_use]
    pub fn is_due(&self, history: &History) -> bool {
        history.read() >= history.window() && history.missing() == 0 && self.since >= FORECAST_RETRAIN_BINS
    }

    /// A training was done.
    pub fn trained(&mut self) {
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::forecast::history::Reading;
    use crate::policy::Policy;

    #[test]
    fn a_training_is_due_when_the_window_is_full_then_at_the_rhythm_and_after_a_long_hole() {
        let mut history = History::new(&Policy::default());
        let mut rhythm = Rhythm::default();
        let window = history.window();
        let hole = window + 10..window + 10 + FORECAST_CARRIED_BINS + 3;
        let (mut due, mut void) = (Vec::new(), Vec::new());
        for bin in 0..2 * window {
            if rhythm.turn(&history) {
                void.push(bin);
            }
            history.push((!hole.contains(&bin)).then(|| Reading::flat(0.5)));
            if rhythm.is_due(&history) {
                rhythm.trained();
                due.push(bin);
            }
        }
        // what was carried over is known; from then on, until a bin is read again, it is void
        assert_eq!(
            void,
            (hole.start + FORECAST_CARRIED_BINS + 1..=hole.end).collect::<Vec<_>>()
        );
        assert_eq!(due[..3], [window - 1, hole.end, hole.end + FORECAST_RETRAIN_BINS]);
    }
}

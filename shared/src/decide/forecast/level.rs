//! Members that repeat what was: the last bin, the last reading, the last hour.

use super::history::History;
use super::member::{Choice, Member};

/// How far from the mean of the last bin towards its last reading. A step process is all the way there, a noisy
/// one not far.
const TOWARDS_LAST: [f64; 4] = [1.0, 0.75, 0.5, 0.25];
/// Bins of the last hour at the default horizon.
const HOUR_BINS: usize = 4;

/// The last bin again.
#[derive(Clone, Copy, Debug)]
pub struct Persistence;

impl Member for Persistence {
    fn name(&self) -> &'static str {
        "persistence"
    }

    fn predict(&self, history: &History) -> Option<f64> {
        history.ago(1)
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// The last reading, drawn towards the mean of its bin where that has been better.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latest {
    choice: Choice<{ TOWARDS_LAST.len() }>,
}

impl Member for Latest {
    fn name(&self) -> &'static str {
        "latest reading"
    }

    fn predict(&self, _history: &History) -> Option<f64> {
        self.choice.best()
    }

    fn learn(&mut self, truth: f64, history: &History) {
        let last = history.last_ago(1);
        self.choice.turn(
            truth,
            TOWARDS_LAST.map(|share| last.map(|last| truth + share * (last - truth))),
        );
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The mean of the last four bins.
#[derive(Clone, Copy, Debug)]
pub struct LastHour;

impl Member for LastHour {
    fn name(&self) -> &'static str {
        "last hour"
    }

    fn predict(&self, history: &History) -> Option<f64> {
        let (sum, count) = (1..=HOUR_BINS)
            .filter_map(|bins| history.ago(bins))
            .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    fn bytes(&self) -> usize {
        0
    }
}

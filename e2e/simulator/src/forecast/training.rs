//! The LSTM of each series over its whole trace, before anything else. It depends on its own series alone, so all
//! of them can be trained at once; the members that are weighed round by round then hear what it said.

use std::time::{Duration, Instant};

use lstm::Lstm;
use shared::decide::forecast::history::History;
use shared::decide::forecast::member::Member;
use shared::decide::forecast::rhythm::Rhythm;

use super::trace::{Set, Track};
use crate::parallel;

/// What one LSTM said, by bin.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Its forecast of each bin.
    pub bins: Vec<Option<f64>>,
    /// How often it was trained, and how long that took.
    pub trainings: u32,
    /// Time of all trainings.
    pub training: Duration,
    /// Time of all forecasts.
    pub forecasting: Duration,
    /// Its memory, bytes.
    pub bytes: usize,
}

/// Trains all series of all sets.
#[must_use]
pub fn train(sets: &[Set], threads: usize) -> Vec<Vec<Said>> {
    let jobs: Vec<(&Set, &Track)> = sets
        .iter()
        .flat_map(|set| set.tracks.iter().map(move |track| (set, track)))
        .collect();
    let mut said = parallel::run(&jobs, threads, "training", |(set, track)| one(set, track)).into_iter();
    let of = |set: &Set| said.by_ref().take(set.tracks.len()).collect();
    sets.iter().map(of).collect()
}

fn one(set: &Set, track: &Track) -> Said {
    let mut lstm = Lstm::default();
    let mut history = History::new(&set.policy);
    let mut said = Said::default();
    let mut rhythm = Rhythm::default();
    for bin in &track.bins {
        let began = Instant::now();
        let predicted = lstm.predict(&history);
        said.forecasting += began.elapsed();
        said.bins.push(predicted);
        if rhythm.turn(&history) {
            lstm.restart();
        }
        history.push(*bin);
        if rhythm.is_due(&history) {
            let began = Instant::now();
            lstm.train(&history);
            said.training += began.elapsed();
            said.trainings += 1;
            rhythm.trained();
        }
    }
    said.bytes = lstm.bytes();
    said
}

/// A member that says what was said before.
pub(super) struct Heard {
    pub(super) bins: Vec<Option<f64>>,
    pub(super) bytes: usize,
}

impl Member for Heard {
    fn name(&self) -> &'static str {
        "LSTM"
    }

    fn predict(&self, history: &History) -> Option<f64> {
        self.bins.get(history.seen()).copied().flatten()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

//! Persistence blended with the same time yesterday, and with the same time last week where there is as much
//! history. How much of it is chosen by recent loss; nothing of it is among the choices.

use super::history::History;
use super::member::{Choice, Member};

/// What is blended in, each from a day and from a week ago: a share of the level then, or of the step that
/// followed then.
const BLENDS: [Blend; 7] = [
    Blend {
        level: 0.0,
        step: 0.0,
    },
    Blend {
        level: 0.1,
        step: 0.0,
    },
    Blend {
        level: 0.2,
        step: 0.0,
    },
    Blend {
        level: 0.35,
        step: 0.0,
    },
    Blend {
        level: 0.5,
        step: 0.0,
    },
    Blend {
        level: 0.0,
        step: 0.25,
    },
    Blend {
        level: 0.0,
        step: 0.5,
    },
];

#[derive(Clone, Copy, Debug)]
struct Blend {
    level: f64,
    step: f64,
}

impl Blend {
    fn of(self, now: f64, then: f64, after: f64) -> f64 {
        now + self.level * (after - now) + self.step * (after - then)
    }
}

/// The member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Daily {
    choice: Choice<{ 2 * BLENDS.len() }>,
}

impl Member for Daily {
    fn name(&self) -> &'static str {
        "daily blend"
    }

    fn predict(&self, _history: &History) -> Option<f64> {
        self.choice.best()
    }

    fn learn(&mut self, truth: f64, history: &History) {
        let mut now = [None; 2 * BLENDS.len()];
        for (half, days) in now.chunks_mut(BLENDS.len()).zip([1, 7]) {
            // the newest bin is 1 ago, so its like is a day and 1 ago, and what followed it a day ago
            let season = days * history.day();
            let (then, after) = (history.ago(season + 1), history.ago(season));
            for (now, blend) in half.iter_mut().zip(BLENDS) {
                *now = then.zip(after).map(|(then, after)| blend.of(truth, then, after));
            }
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

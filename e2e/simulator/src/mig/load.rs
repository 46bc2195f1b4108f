//! What arrives: requests for one slice, at random times, of a known mix. The stream depends on the seed alone, so
//! two policies under the same seed see the same requests.

use std::str::FromStr;

use super::shapes::{CLASSES, Shapes};
use crate::random::Random;

/// How often each profile is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Name.
    pub name: &'static str,
    /// Shares of 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb; they add up to 1.
    pub shares: [f64; CLASSES],
}

/// The mixes of MIG-100.
pub const MIXES: [Mix; 4] = [
    Mix {
        name: "uniform",
        shares: [1.0 / 6.0; CLASSES],
    },
    Mix {
        name: "skew-small",
        shares: [0.40, 0.20, 0.20, 0.10, 0.05, 0.05],
    },
    Mix {
        name: "skew-big",
        shares: [0.05, 0.05, 0.10, 0.20, 0.20, 0.40],
    },
    Mix {
        name: "bimodal",
        shares: [0.30, 0.10, 0.10, 0.10, 0.10, 0.30],
    },
];

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let names = MIXES.map(|mix| mix.name).join(", ");
        let known = MIXES.into_iter().find(|mix| mix.name == name);
        known.ok_or_else(|| format!("{name:?} is no mix; choose one of {names}"))
    }
}

impl Mix {
    /// Memory slices a request asks for on average.
    #[must_use]
    pub fn mean_size(&self, shapes: &Shapes) -> f64 {
        let sizes = shapes.each().map(|shape| f64::from(shape.size));
        sizes.zip(self.shares).map(|(size, share)| size * share).sum()
    }

    fn draw(&self, random: &mut Random) -> usize {
        let mut left = random.unit();
        for (class, share) in self.shares.iter().enumerate() {
            left -= share;
            if left < 0.0 {
                return class;
            }
        }
        CLASSES - 1
    }
}

/// Which mix arrives when.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// The same all the time.
    Steady(Mix),
    /// One after the other, each for this many mean lifetimes, round and round.
    Switching {
        /// The mixes in turn.
        mixes: Vec<Mix>,
        /// How long each lasts.
        every: f64,
    },
}

impl Pattern {
    /// Name for tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Steady(mix) => mix.name,
            Self::Switching { .. } => "switching",
        }
    }

    /// The mix at a time, and when it ends.
    fn at(&self, now: f64) -> (Mix, f64) {
        match self {
            Self::Steady(mix) => (*mix, f64::INFINITY),
            Self::Switching { mixes, every } => {
                let turn = (now / every).floor();
                (mixes[turn as usize % mixes.len()], (turn + 1.0) * every)
            }
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When, in mean lifetimes from the start.
    pub at: f64,
    /// What: index of the profile among [`Shapes`].
    pub class: usize,
    /// For how long, if it is let in.
    pub stays: f64,
}

/// An endless stream of requests.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    pattern: &'a Pattern,
    shapes: &'a Shapes,
    /// Memory slices asked for per mean lifetime.
    offered: f64,
    now: f64,
    random: Random,
}

impl<'a> Arrivals<'a> {
    /// The stream of a seed: `load` times the memory slices of `gpus` GPUs are asked for at any time.
    #[must_use]
    pub fn new(pattern: &'a Pattern, shapes: &'a Shapes, load: f64, gpus: usize, seed: u64) -> Self {
        Self {
            pattern,
            shapes,
            offered: load * gpus as f64 * f64::from(shapes.slices),
            now: 0.0,
            random: Random::new(seed),
        }
    }
}

impl Iterator for Arrivals<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let (mix, until) = self.pattern.at(self.now);
            let gap = self.random.exponential() * mix.mean_size(self.shapes) / self.offered;
            if self.now + gap < until {
                self.now += gap;
                return Some(Arrival {
                    at: self.now,
                    class: mix.draw(&mut self.random),
                    stays: self.random.exponential(),
                });
            }
            // exponential gaps have no memory: the next mix starts afresh
            self.now = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offered_load_is_what_was_asked_for_in_every_pattern() {
        let shapes = Shapes::h100();
        let switching = Pattern::Switching {
            mixes: MIXES.to_vec(),
            every: 5.0,
        };
        for pattern in MIXES.map(Pattern::Steady).into_iter().chain([switching]) {
            let mut asked = 0.0;
            let mut last = 0.0;
            for arrival in Arrivals::new(&pattern, &shapes, 0.85, 100, 3).take(40_000) {
                asked += f64::from(shapes.shape(arrival.class).size) * arrival.stays;
                assert!(arrival.at > last);
                last = arrival.at;
            }
            let load = asked / last / 800.0;
            assert!((load - 0.85).abs() < 0.03, "{}: {load}", pattern.name());
        }
    }

    #[test]
    fn shares_add_up() {
        for mix in MIXES {
            assert!(
                (mix.shares.iter().sum::<f64>() - 1.0).abs() < 1e-12,
                "{}",
                mix.name
            );
            assert_eq!(mix.name.parse::<Mix>(), Ok(mix));
        }
        assert!("even".parse::<Mix>().unwrap_err().contains("uniform, skew-small"));
    }
}

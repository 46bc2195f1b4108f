//! The member of [`shared::decide::forecast`] that is trained: one LSTM layer on the bins of the last day, which predicts the step from the last bin
//! to the next. It sees for each of the last bins its level, its step and how far its last reading was from its
//! mean, in units of the mean step of the day.
//!
//! Training takes a fraction of a second and starts from the same weights each time, so the same history gives the
//! same forecasts on one machine. A training that fails (numbers out of range) leaves the member asleep.
//!
//! The matrices are small. With RAYON_NUM_THREADS=1 in the environment, which the library reads, a training takes
//! half and a forecast a tenth of the time that waking other threads takes, and says the same.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::rnn::{LSTM, LSTMConfig, RNN, lstm};
use candle_nn::{AdamW, Linear, Module, Optimizer, ParamsAdamW, VarBuilder};

use shared::decide::forecast::history::History;
use shared::decide::forecast::member::Member;
use shared::policy::{LSTM_EPOCHS, LSTM_HIDDEN, LSTM_LAGS, LSTM_RATE, LSTM_SEED};

/// What it sees of one bin.
const FEATURES: usize = 3;
/// Examples a training needs, or there is none.
const LEAST_EXAMPLES: usize = 8;
/// Least mean step, share of capacity: the unit must not be nothing.
const LEAST_UNIT: f64 = 1e-3;
/// Errors above this many units count linearly, not by their square.
const HUBER: f64 = 1.0;

/// The member.
#[derive(Default)]
pub struct Lstm {
    trained: Option<Trained>,
}

/// A network and the scale of the day it learned from.
struct Trained {
    network: Network,
    scale: Scale,
}

struct Network {
    cells: LSTM,
    out: Linear,
}

#[derive(Clone, Copy, Debug)]
struct Scale {
    mean: f64,
    unit: f64,
}

impl Member for Lstm {
    fn name(&self) -> &'static str {
        "LSTM"
    }

    fn predict(&self, history: &History) -> Option<f64> {
        let trained = self.trained.as_ref()?;
        let mut seen = Vec::with_capacity(LSTM_LAGS * FEATURES);
        trained.scale.see(history, 1, &mut seen)?;
        let step = trained.network.step(&seen).ok()?;
        let last = history.ago(1)?;
        Some(last + f64::from(step) * trained.scale.unit)
    }

    fn restart(&mut self) {
        self.trained = None;
    }

    fn train(&mut self, history: &History) {
        self.trained = Trained::on(history).and_then(std::result::Result::ok);
    }

    fn bytes(&self) -> usize {
        let cells = 4 * LSTM_HIDDEN * (FEATURES + LSTM_HIDDEN + 2);
        let weights = (cells + LSTM_HIDDEN + 1) * size_of::<f32>();
        size_of::<Self>() + if self.trained.is_some() { weights } else { 0 }
    }
}

impl Scale {
    fn of(history: &History) -> Option<Self> {
        let bins = || (1..=history.window()).filter_map(|bins| history.ago(bins));
        let count = bins().count();
        let steps: Vec<f64> = (1..history.window())
            .filter_map(|bins| Some((history.ago(bins)? - history.ago(bins + 1)?).abs()))
            .collect();
        if steps.is_empty() {
            return None;
        }
        Some(Self {
            mean: bins().sum::<f64>() / count as f64,
            unit: (steps.iter().sum::<f64>() / steps.len() as f64).max(LEAST_UNIT),
        })
    }

    /// What the network sees when the newest bin is `newest` ago. None where there is a hole.
    fn see(self, history: &History, newest: usize, seen: &mut Vec<f32>) -> Option<()> {
        for lag in (0..LSTM_LAGS).rev() {
            let bins = newest + lag;
            let value = history.ago(bins)?;
            let before = history.ago(bins + 1)?;
            let last = history.last_ago(bins)?;
            for feature in [value - self.mean, value - before, last - value] {
                seen.push((feature / self.unit) as f32);
            }
        }
        Some(())
    }
}

impl Trained {
    /// Trains on the window. None where there are too few examples in it.
    fn on(history: &History) -> Option<Result<Self>> {
        let scale = Scale::of(history)?;
        let (mut seen, mut steps) = (Vec::new(), Vec::new());
        for newest in 2..=history.window().saturating_sub(LSTM_LAGS) {
            let from = seen.len();
            let step = history
                .ago(newest - 1)
                .zip(history.ago(newest))
                .map(|(next, last)| ((next - last) / scale.unit) as f32);
            match (scale.see(history, newest, &mut seen), step) {
                (Some(()), Some(step)) => steps.push(step),
                _ => seen.truncate(from),
            }
        }
        (steps.len() >= LEAST_EXAMPLES).then(|| {
            let network = Network::fit(seen, steps)?;
            Ok(Self { network, scale })
        })
    }
}

impl Network {
    #[allow(
        clippy::disallowed_types,
        reason = "the library takes its variables in no other map; they are got by name, never in its order"
    )]
    fn fit(seen: Vec<f32>, steps: Vec<f32>) -> Result<Self> {
        let device = Device::Cpu;
        let examples = steps.len();
        let seen = Tensor::from_vec(seen, (examples, LSTM_LAGS, FEATURES), &device)?;
        let steps = Tensor::from_vec(steps, examples, &device)?;
        let mut draw = Draw(LSTM_SEED);
        let reach = 1.0 / (LSTM_HIDDEN as f32).sqrt();
        // the head starts at nothing, so the first prediction is persistence
        let shapes: [(&str, &[usize], f32); 6] = [
            ("weight_ih_l0", &[4 * LSTM_HIDDEN, FEATURES], reach),
            ("weight_hh_l0", &[4 * LSTM_HIDDEN, LSTM_HIDDEN], reach),
            ("bias_ih_l0", &[4 * LSTM_HIDDEN], 0.0),
            ("bias_hh_l0", &[4 * LSTM_HIDDEN], 0.0),
            ("weight", &[1, LSTM_HIDDEN], 0.0),
            ("bias", &[1], 0.0),
        ];
        let mut variables = Vec::new();
        let mut named = std::collections::HashMap::new();
        for (name, shape, reach) in shapes {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| draw.next() * reach).collect();
            let variable = Var::from_tensor(&Tensor::from_vec(values, shape, &device)?)?;
            named.insert(name.to_owned(), variable.as_tensor().clone());
            variables.push(variable);
        }
        let builder = VarBuilder::from_tensors(named, DType::F32, &device);
        let network = Self {
            cells: lstm(FEATURES, LSTM_HIDDEN, LSTMConfig::default(), builder.clone())?,
            out: candle_nn::linear(LSTM_HIDDEN, 1, builder)?,
        };
        let settings = ParamsAdamW {
            lr: LSTM_RATE,
            weight_decay: 0.0,
            ..ParamsAdamW::default()
        };
        let mut adam = AdamW::new(variables, settings)?;
        for _ in 0..LSTM_EPOCHS {
            let off = network.forward(&seen)?.sub(&steps)?.abs()?;
            // Huber: half the square up to the bound, linear above
            let near = off.minimum(HUBER)?;
            let loss = ((near.sqr()? * 0.5)? + ((off - near)? * HUBER)?)?.mean_all()?;
            adam.backward_step(&loss)?;
        }
        Ok(network)
    }

    /// The steps from examples of [LSTM_LAGS] bins.
    fn forward(&self, seen: &Tensor) -> Result<Tensor> {
        let states = self.cells.seq(seen)?;
        let last = states.last().map_or_else(
            || self.cells.zero_state(seen.dim(0)?).map(|state| state.h),
            |state| Ok(state.h.clone()),
        )?;
        self.out.forward(&last)?.squeeze(D::Minus1)
    }

    fn step(&self, seen: &[f32]) -> Result<f32> {
        let seen = Tensor::from_slice(seen, (1, LSTM_LAGS, FEATURES), &Device::Cpu)?;
        self.forward(&seen)?.squeeze(0)?.to_scalar::<f32>()
    }
}

/// Numbers from -1 to 1 (splitmix64); the library's own cannot be seeded on a CPU.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // the upper 24 bits, which a float holds exactly
        (mixed >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::decide::forecast::history::Reading;
    use shared::decide::forecast::pool::Pool;
    use shared::decide::forecast::series::Series;
    use shared::policy::Policy;

    fn wave(t: u32) -> f64 {
        0.5 + 0.3 * (f64::from(t) * 0.4).sin()
    }

    fn history() -> History {
        let mut history = History::new(&Policy::default());
        for t in 0..97 {
            history.push(Some(Reading::flat(wave(t))));
        }
        history
    }

    #[test]
    fn it_learns_a_wave_that_persistence_is_wrong_about_and_the_same_one_each_time() {
        let history = history();
        let trained = || {
            let mut lstm = Lstm::default();
            assert_eq!(lstm.predict(&history), None, "nothing is known before training");
            lstm.train(&history);
            lstm.predict(&history).unwrap()
        };
        let predicted = trained();
        let (truth, last) = (wave(97), wave(96));
        assert!(
            (predicted - truth).abs() < 0.7 * (last - truth).abs(),
            "{predicted}, truth {truth}, last {last}"
        );
        assert_eq!(predicted.to_bits(), trained().to_bits());
    }

    #[test]
    fn without_enough_history_or_after_a_long_hole_it_sleeps() {
        let mut short = History::new(&Policy::default());
        for t in 0..10 {
            short.push(Some(Reading::flat(wave(t))));
        }
        let mut lstm = Lstm::default();
        lstm.train(&short);
        assert_eq!(lstm.predict(&short), None);
        lstm.train(&history());
        lstm.restart();
        assert_eq!(lstm.predict(&history()), None);
    }

    #[test]
    fn a_series_trains_it_when_it_is_due_and_then_hears_it() {
        let policy = Policy::default();
        let mut pool = Pool::default();
        let mut series = Series::new(&policy).with(Box::new(Lstm::default()));
        let mut trainings = Vec::new();
        for t in 0..130 {
            series.observe(Some(Reading::flat(wave(t))), &mut pool, &policy);
            pool.close(&policy);
            if series.retrain_due() {
                series.retrain();
                trainings.push(t);
            }
            let says = series.members(&pool).find(|(name, ..)| *name == "LSTM");
            let says = says.and_then(|(_, said, _)| said);
            assert_eq!(says.is_some(), !trainings.is_empty(), "{t}");
        }
        assert_eq!(trainings, [95, 119]);
    }
}

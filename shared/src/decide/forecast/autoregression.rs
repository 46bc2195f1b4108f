//! An autoregression of order four, fitted on the window at each step by normal equations with a ridge. The ridge
//! draws towards persistence, not towards nothing: with little to learn from it repeats the last bin. A wave wants a
//! weak ridge and noise a strong one, so there are several, and the one that was right lately speaks.

use super::history::History;
use super::member::{Choice, Member};
use crate::policy::FORECAST_RIDGES;

/// Lags.
const ORDER: usize = 4;
/// Ridge of a window that stands still, so that it can be solved for.
const LEAST_RIDGE: f64 = 1e-9;
/// Rows a fit needs: twice what it solves for.
const LEAST_ROWS: usize = 2 * ORDER;

/// The member. It keeps how right each ridge was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autoregression {
    choice: Choice<{ FORECAST_RIDGES.len() }>,
}

/// The normal equations of a window, and the lags from which the next bin is made.
struct Window {
    mean: f64,
    normal: [[f64; ORDER]; ORDER],
    right: [f64; ORDER],
    lags: [f64; ORDER],
}

impl Member for Autoregression {
    fn name(&self) -> &'static str {
        "AR(4)"
    }

    fn predict(&self, _history: &History) -> Option<f64> {
        self.choice.best()
    }

    fn learn(&mut self, truth: f64, history: &History) {
        let window = Window::of(history);
        let said = FORECAST_RIDGES.map(|ridge| window.as_ref()?.next(ridge));
        self.choice.turn(truth, said);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl Window {
    /// None where there is too little to fit, or a hole in the lags.
    fn of(history: &History) -> Option<Self> {
        let window = history.window().min(history.seen());
        let (sum, count) = (1..=window)
            .filter_map(|bins| history.ago(bins))
            .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
        if count == 0 {
            return None;
        }
        let mean = sum / f64::from(count);
        let value = |bins: usize| history.ago(bins).map(|value| value - mean);
        let mut normal = [[0.0_f64; ORDER]; ORDER];
        let mut right = [0.0_f64; ORDER];
        let mut rows = 0;
        // one pass from the oldest; a hole empties the lags
        let mut lags = [None; ORDER];
        for bins in (1..=window).rev() {
            let truth = value(bins);
            if let (Some(truth), [Some(a), Some(b), Some(c), Some(d)]) = (truth, lags) {
                let row: [f64; ORDER] = [a, b, c, d];
                for (at, left) in row.iter().enumerate() {
                    right[at] += left * truth;
                    for other in 0..=at {
                        normal[at][other] += left * row[other];
                    }
                }
                rows += 1;
            }
            lags = [truth, lags[0], lags[1], lags[2]];
        }
        let [Some(a), Some(b), Some(c), Some(d)] = lags else {
            return None;
        };
        (rows >= LEAST_ROWS).then_some(Self {
            mean,
            normal,
            right,
            lags: [a, b, c, d],
        })
    }

    /// The next bin by a fit with this ridge.
    fn next(&self, ridge: f64) -> Option<f64> {
        let (mut normal, mut right) = (self.normal, self.right);
        let squares: f64 = normal.iter().enumerate().map(|(at, row)| row[at]).sum();
        let ridge = ridge * squares / ORDER as f64 + LEAST_RIDGE;
        for (at, row) in normal.iter_mut().enumerate() {
            row[at] += ridge;
        }
        right[0] += ridge;
        let weights = solve(normal, right)?;
        let predicted = self.mean + weights.iter().zip(self.lags).map(|(w, x)| w * x).sum::<f64>();
        predicted.is_finite().then_some(predicted)
    }
}

/// Solves a symmetric positive system, of which the lower half is given, by Cholesky.
fn solve(mut matrix: [[f64; ORDER]; ORDER], mut right: [f64; ORDER]) -> Option<[f64; ORDER]> {
    for at in 0..ORDER {
        for other in 0..=at {
            let done: f64 = (0..other).map(|k| matrix[at][k] * matrix[other][k]).sum();
            let rest = matrix[at][other] - done;
            matrix[at][other] = if at == other {
                if rest <= 0.0 {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / matrix[other][other]
            };
        }
    }
    for at in 0..ORDER {
        let done: f64 = (0..at).map(|k| matrix[at][k] * right[k]).sum();
        right[at] = (right[at] - done) / matrix[at][at];
    }
    for at in (0..ORDER).rev() {
        let done: f64 = (at + 1..ORDER).map(|k| matrix[k][at] * right[k]).sum();
        right[at] = (right[at] - done) / matrix[at][at];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::forecast::history::Reading;
    use crate::policy::Policy;

    #[test]
    fn a_known_system_is_solved() {
        let matrix = [
            [4.0, 0.0, 0.0, 0.0],
            [2.0, 5.0, 0.0, 0.0],
            [0.0, 1.0, 3.0, 0.0],
            [1.0, 0.0, 0.0, 2.0],
        ];
        // the solution (1, 2, 3, 4) times the full matrix
        let solved = solve(matrix, [12.0, 15.0, 11.0, 9.0]).unwrap();
        for (found, wanted) in solved.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            assert!((found - wanted).abs() < 1e-12, "{solved:?}");
        }
    }

    #[test]
    fn a_wave_is_continued_and_a_flat_line_stays_flat() {
        let after_96 = |load: &dyn Fn(i32) -> f64| {
            let mut history = History::new(&Policy::default());
            let mut member = Autoregression::default();
            for t in 0..96 {
                history.push(Some(Reading::flat(load(t))));
                member.learn(load(t), &history);
            }
            member.predict(&history).unwrap()
        };
        // however small it is
        for height in [0.3, 0.01] {
            let wave = |t: i32| 0.5 + height * (f64::from(t) * 0.5).sin();
            let predicted = after_96(&wave);
            assert!(
                (predicted - wave(96)).abs() < 0.05 * height,
                "{predicted}, {}",
                wave(96)
            );
        }
        assert!((after_96(&|_| 0.25) - 0.25).abs() < 1e-6);
    }
}

//! Load over time: a curve of points that GPM samples, utilisation rates and power follow.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Steps a mean is taken over. A power of two, so that the mean of a short binary constant is that constant.
const MEAN_STEPS: u32 = 32;

/// Activity over time: straight lines between points, the last value for ever, or again from the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Milliseconds since 1970 at which second 0 of the curve is.
    pub since_ms: u64,
    /// (second, activity): seconds ascending, activity 0 to 1. Values outside are told as they are: a client must
    /// cope with them.
    pub points: Vec<(f64, f64)>,
    /// Whether the curve starts again after its last point.
    pub repeat: bool,
}

/// A text that is no curve.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a curve; write seconds and activity like 0:0.2,60:0.9 with seconds ascending, or one number"
)]
pub struct BadCurve(String);

impl Curve {
    /// The same activity for ever.
    #[must_use]
    pub fn constant(activity: f64) -> Self {
        Self {
            since_ms: 0,
            points: vec![(0.0, activity)],
            repeat: false,
        }
    }

    /// Activity at a moment.
    #[must_use]
    pub fn at(&self, now_ms: u64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return 0.0;
        };
        let mut second = now_ms.saturating_sub(self.since_ms) as f64 / 1000.0;
        if self.repeat && last.0 > 0.0 {
            second %= last.0;
        }
        if second <= first.0 {
            return first.1;
        }
        let Some(next) = self.points.iter().position(|point| point.0 > second) else {
            return last.1;
        };
        let ((t0, a0), (t1, a1)) = (self.points[next - 1], self.points[next]);
        a0 + (a1 - a0) * (second - t0) / (t1 - t0)
    }

    /// Mean activity between two moments.
    #[must_use]
    pub fn mean(&self, from_ms: u64, to_ms: u64) -> f64 {
        let span = to_ms.saturating_sub(from_ms) as f64;
        let step = |n: u32| from_ms + (span * (f64::from(n) + 0.5) / f64::from(MEAN_STEPS)) as u64;
        (0..MEAN_STEPS).map(|n| self.at(step(n))).sum::<f64>() / f64::from(MEAN_STEPS)
    }
}

impl FromStr for Curve {
    type Err = BadCurve;

    fn from_str(text: &str) -> Result<Self, BadCurve> {
        let bad = || BadCurve(text.to_owned());
        if let Ok(activity) = text.parse::<f64>() {
            return if activity.is_finite() {
                Ok(Self::constant(activity))
            } else {
                Err(bad())
            };
        }
        let point = |part: &str| {
            let (second, activity) = part.split_once(':')?;
            Some((
                second.trim().parse::<f64>().ok()?,
                activity.trim().parse::<f64>().ok()?,
            ))
        };
        let points = text
            .split(',')
            .map(point)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(bad)?;
        let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let sound = points
            .iter()
            .all(|(second, activity)| *second >= 0.0 && second.is_finite() && activity.is_finite());
        if ascending && sound {
            Ok(Self {
                since_ms: 0,
                points,
                repeat: false,
            })
        } else {
            Err(bad())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_points_and_flat_after_the_last() {
        let curve = Curve {
            since_ms: 1000,
            ..("0:0.0,10:1.0".parse().unwrap())
        };
        assert_eq!((curve.at(0), curve.at(6000), curve.at(60_000)), (0.0, 0.5, 1.0));
        assert_eq!(
            Curve {
                repeat: true,
                ..curve.clone()
            }
            .at(13_500),
            0.25
        );
        assert!((curve.mean(1000, 11_000) - 0.5).abs() < 1e-3);
        assert_eq!(Curve::constant(0.375).mean(5, 5000), 0.375);
    }

    #[test]
    fn a_bad_curve_is_refused_with_an_example() {
        for text in ["", "x", "1:2:3", "5:0.1,5:0.2", "-1:0.5", "0:nan"] {
            assert!(
                text.parse::<Curve>()
                    .unwrap_err()
                    .to_string()
                    .contains("0:0.2,60:0.9"),
                "{text}"
            );
        }
    }
}

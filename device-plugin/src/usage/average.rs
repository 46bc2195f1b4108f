//! Samples to minutes: whole ones of the wall clock, each the mean of what was read in it.

use jiff::Timestamp;

/// The minute that is under way, with what was read in it so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Average {
    minute: i64,
    sum: f64,
    count: u32,
}

/// Whole minutes since 1970.
#[must_use]
pub fn minute(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

impl Average {
    /// Takes the load of a sample, 0 to 1, that was read in a minute; gives the minute before, if that is over now.
    pub fn take(&mut self, minute: i64, load: f64) -> Option<(i64, f32)> {
        let over = self.over(minute);
        self.minute = minute;
        self.sum += load;
        self.count += 1;
        over
    }

    /// The minute under way with its mean load, if it was over before this one. A clock that is set back has whatever
    /// was read of later minutes forgotten.
    pub fn over(&mut self, minute: i64) -> Option<(i64, f32)> {
        if self.minute == minute {
            return None;
        }
        let read = std::mem::take(self);
        let over = read.count > 0 && read.minute < minute;
        over.then(|| {
            let mean = read.sum / f64::from(read.count);
            (read.minute, mean.clamp(0.0, 1.0) as f32)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_minute_is_the_mean_of_its_samples_and_told_once_when_it_is_over() {
        let mut average = Average::default();
        assert_eq!(average.over(10), None, "nothing was read");
        assert_eq!(average.take(10, 0.25), None);
        assert_eq!(average.over(10), None, "not over");
        assert_eq!(average.take(10, 0.75), None);
        assert_eq!(average.take(11, 1.0), Some((10, 0.5)));
        assert_eq!(
            average.over(14),
            Some((11, 1.0)),
            "told though nothing came after"
        );
        assert_eq!(average.over(15), None, "and not again");
        assert_eq!(average.take(20, 0.0), None);
        assert_eq!(average.over(21), Some((20, 0.0)));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_minute_of_two() {
        let mut average = Average::default();
        average.take(100, 1.0);
        assert_eq!(average.take(50, 0.5), None);
        assert_eq!(average.over(51), Some((50, 0.5)));
    }

    #[test]
    fn minutes_are_whole_ones_since_1970() {
        for (second, expected) in [(0, 0), (59, 0), (60, 1), (1_790_000_039, 29_833_333), (-1, -1)] {
            assert_eq!(
                minute(Timestamp::from_second(second).unwrap()),
                expected,
                "{second}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_minute_with_samples_is_told_once_in_order(
            samples in prop::collection::vec((0_i64..3, 0.0_f64..=1.0), 1..60),
        ) {
            let (mut average, mut at) = (Average::default(), 1);
            let mut expected: Vec<(i64, Vec<f64>)> = Vec::new();
            let mut told = Vec::new();
            for (step, load) in samples {
                at += step;
                told.extend(average.take(at, load));
                match expected.last_mut() {
                    Some((minute, loads)) if *minute == at => loads.push(load),
                    _ => expected.push((at, vec![load])),
                }
            }
            told.extend(average.over(at + 1));
            prop_assert_eq!(told.len(), expected.len());
            for ((minute, mean), (of, loads)) in told.into_iter().zip(expected) {
                let right = loads.iter().sum::<f64>() / loads.len() as f64;
                prop_assert!(minute == of && (f64::from(mean) - right).abs() < 1e-6);
            }
        }
    }
}

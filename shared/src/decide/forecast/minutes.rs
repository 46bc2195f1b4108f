//! The load of one node, a value a minute: what its agent remembers and tells, and what bins are made of. Minutes are
//! whole ones since 1970.

use std::collections::VecDeque;

use super::history::Reading;
use crate::policy::{LOAD_BIN_LEAST_PERCENT, LOAD_MINUTES, LOAD_STALE_MINUTES};

/// The last [`LOAD_MINUTES`] of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Minutes {
    /// Up to and with [`Self::last`]; a minute that was not read is not a number.
    loads: VecDeque<f32>,
    last: i64,
}

impl Minutes {
    /// Takes the load of a minute, a share of capacity. One that is not after all that are known says nothing new, and
    /// one that is no share is not taken: both give false.
    pub fn put(&mut self, minute: i64, load: f32) -> bool {
        if minute <= 0 || !(0.0..=1.0).contains(&load) {
            return false;
        }
        let missed = match self.last() {
            None => 0,
            Some(last) if minute <= last => return false,
            Some(last) => usize::try_from(minute - last - 1).unwrap_or(usize::MAX),
        };
        if missed >= LOAD_MINUTES {
            self.loads.clear();
        } else {
            self.loads.extend(std::iter::repeat_n(f32::NAN, missed));
        }
        self.loads.push_back(load);
        let beyond = self.loads.len().saturating_sub(LOAD_MINUTES);
        self.loads.drain(..beyond);
        self.last = minute;
        true
    }

    /// The last minute that was read.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        (!self.loads.is_empty()).then_some(self.last)
    }

    /// Whether a minute was read lately, at `now` (seconds since 1970).
    #[must_use]
    pub fn is_fresh(&self, now: i64) -> bool {
        self.is_within(LOAD_STALE_MINUTES, now)
    }

    /// Whether any of what is remembered is not too old to be remembered, at `now` (seconds since 1970).
    #[must_use]
    pub fn is_of_use(&self, now: i64) -> bool {
        self.is_within(LOAD_MINUTES as i64, now)
    }

    fn is_within(&self, minutes: i64, now: i64) -> bool {
        self.last()
            .is_some_and(|last| last >= now.div_euclid(60) - minutes)
    }

    /// The first minute that is remembered.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        Some(self.last()? + 1 - self.loads.len() as i64)
    }

    /// Minutes and their loads after a minute, in order.
    pub fn after(&self, minute: i64) -> impl Iterator<Item = (i64, f32)> + '_ {
        let first = self.first().unwrap_or_default();
        let skipped = usize::try_from(minute.saturating_add(1).saturating_sub(first)).unwrap_or_default();
        let loads = self.loads.iter().enumerate().skip(skipped);
        loads
            .filter(|(_, load)| !load.is_nan())
            .map(move |(at, load)| (first + at as i64, *load))
    }

    /// What was read in bin number `bin` of so many minutes; `None` where that is too little.
    #[must_use]
    pub fn bin(&self, bin: i64, minutes: u32) -> Option<Reading> {
        let from = bin * i64::from(minutes);
        let until = from + i64::from(minutes);
        let within = self.after(from - 1).take_while(|(minute, _)| *minute < until);
        let (mut sum, mut count, mut last) = (0.0, 0, None);
        for (_, load) in within {
            sum += f64::from(load);
            count += 1;
            last = Some(f64::from(load));
        }
        let enough = count * 100 >= minutes as usize * LOAD_BIN_LEAST_PERCENT;
        let last = last.filter(|_| enough)?;
        Some(Reading {
            mean: sum / count as f64,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(minutes: &[(i64, f32)]) -> Minutes {
        let mut known = Minutes::default();
        for (minute, load) in minutes {
            assert!(known.put(*minute, *load), "{minute}");
        }
        known
    }

    #[test]
    fn what_is_old_or_no_share_is_not_taken() {
        let mut minutes = of(&[(10, 0.5)]);
        for (minute, load) in [
            (10, 0.1),
            (9, 0.1),
            (11, 1.01),
            (11, -0.01),
            (11, f32::NAN),
            (11, f32::INFINITY),
        ] {
            assert!(!minutes.put(minute, load), "{minute} {load}");
        }
        assert!(!Minutes::default().put(0, 0.5) && !Minutes::default().put(-5, 0.5));
        assert_eq!(minutes, of(&[(10, 0.5)]));
    }

    #[test]
    fn a_bin_is_the_mean_and_the_last_of_its_minutes_where_half_of_them_were_read() {
        let minutes = of(&[(29, 0.9), (30, 0.1), (31, 0.2), (33, 0.6), (35, 0.9)]);
        let bin = minutes.bin(6, 5).unwrap();
        assert!(
            (bin.mean - 0.3).abs() < 1e-6 && (bin.last - 0.6).abs() < 1e-6,
            "{bin:?}"
        );
        // one minute of five
        assert_eq!(minutes.bin(7, 5), None);
        assert_eq!(minutes.bin(5, 5), None);
        assert_eq!(Minutes::default().bin(6, 5), None);
        assert!(of(&[(10, 0.0), (11, 0.0)]).bin(5, 2).is_some(), "two of two");
        assert!(
            of(&[(10, 0.0), (12, 0.0)]).bin(5, 2).is_some(),
            "one of two is half"
        );
    }

    proptest! {
        #[test]
        fn the_last_day_is_remembered_and_told_in_order(
            steps in prop::collection::vec((1_i64..700, 0.0_f32..=1.0), 1..40), after in 0_i64..20_000,
        ) {
            let mut minutes = Minutes::default();
            let mut told: Vec<(i64, f32)> = Vec::new();
            let mut at = 0;
            for (step, load) in steps {
                at += step;
                prop_assert!(minutes.put(at, load));
                told.push((at, load));
            }
            let remembered = told.into_iter().filter(|(minute, _)| *minute > at - LOAD_MINUTES as i64);
            let expected: Vec<_> = remembered.filter(|(minute, _)| *minute > after).collect();
            prop_assert_eq!(minutes.after(after).collect::<Vec<_>>(), expected);
            prop_assert_eq!(minutes.last(), Some(at));
            // and told again they make the same bins
            let mut again = Minutes::default();
            for (minute, load) in minutes.after(0) {
                again.put(minute, load);
            }
            for bin in 0..at / 15 + 1 {
                prop_assert_eq!(minutes.bin(bin, 15), again.bin(bin, 15));
            }
        }
    }
}

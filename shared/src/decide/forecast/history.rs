//! What was read of one series: a ring of bins for a week, and for the window of the policy the last reading within
//! each bin. A bin that is missing is carried forward for a while and then is a hole.

use crate::policy::{FORECAST_CARRIED_BINS, Policy};

/// The readings of one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Their mean.
    pub mean: f64,
    /// The last of them. A load that moves in steps is nearer to it than to the mean.
    pub last: f64,
}

impl Reading {
    /// Where nothing but the mean is known.
    #[must_use]
    pub const fn flat(mean: f64) -> Self {
        Self { mean, last: mean }
    }
}

/// Readings that were not as they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Not a number: treated as missing.
    pub unreadable: u64,
    /// Below 0 or above 1: set to the bound.
    pub clamped: u64,
    /// Bins with no reading at all.
    pub missing: u64,
}

/// The bins of one series.
#[derive(Clone, Debug)]
pub struct History {
    /// Means, the newest at `head - 1`. A hole is not a number.
    means: Vec<f32>,
    head: usize,
    seen: usize,
    read: usize,
    /// Last readings, the newest at `last_head - 1`.
    lasts: Vec<f32>,
    last_head: usize,
    /// Bins a day.
    day: usize,
    /// Missing bins up to now, carried or not.
    missing: usize,
    faults: Faults,
}

impl History {
    /// Empty.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let minutes = policy.forecast_horizon_minutes.max(1) as usize;
        let day = (24 * 60 / minutes).max(1);
        let window = (policy.forecast_window_hours as usize * 60 / minutes).max(1);
        Self {
            means: vec![f32::NAN; window.max(7 * day + 1)],
            head: 0,
            seen: 0,
            read: 0,
            lasts: vec![f32::NAN; window],
            last_head: 0,
            day,
            missing: 0,
            faults: Faults::default(),
        }
    }

    /// Takes the next bin. What comes back is its mean, where it was read.
    pub fn push(&mut self, reading: Option<Reading>) -> Option<f64> {
        let read = match reading {
            None => {
                self.faults.missing += 1;
                None
            }
            Some(reading) if reading.mean.is_nan() => {
                self.faults.unreadable += 1;
                None
            }
            Some(reading) => {
                let mean = self.bounded(reading.mean);
                // the last reading alone may be bad
                let last = if reading.last.is_nan() {
                    self.faults.unreadable += 1;
                    mean
                } else {
                    self.bounded(reading.last)
                };
                Some((mean, last))
            }
        };
        if let Some((mean, last)) = read {
            self.missing = 0;
            self.read += 1;
            self.put(mean as f32, last as f32);
        } else {
            self.missing += 1;
            let carried = if self.missing <= FORECAST_CARRIED_BINS {
                self.ago(1).zip(self.last_ago(1))
            } else {
                None
            };
            let (mean, last) = carried.unwrap_or((f64::NAN, f64::NAN));
            self.put(mean as f32, last as f32);
        }
        // as it is kept, or a load that stands still would be missed by the rounding
        read.map(|(mean, _)| f64::from(mean as f32))
    }

    fn bounded(&mut self, value: f64) -> f64 {
        if !(0.0..=1.0).contains(&value) {
            self.faults.clamped += 1;
        }
        value.clamp(0.0, 1.0)
    }

    fn put(&mut self, mean: f32, last: f32) {
        self.means[self.head] = mean;
        self.head = (self.head + 1) % self.means.len();
        self.lasts[self.last_head] = last;
        self.last_head = (self.last_head + 1) % self.lasts.len();
        self.seen += 1;
    }

    /// The mean `bins` ago; 1 is the newest. None where it was not seen, or is a hole.
    #[must_use]
    pub fn ago(&self, bins: usize) -> Option<f64> {
        let length = self.means.len();
        if bins == 0 || bins > length {
            return None;
        }
        let value = self.means[(self.head + length - bins) % length];
        (!value.is_nan()).then_some(f64::from(value))
    }

    /// The last reading within the bin `bins` ago, within the window.
    #[must_use]
    pub fn last_ago(&self, bins: usize) -> Option<f64> {
        let length = self.lasts.len();
        if bins == 0 || bins > length {
            return None;
        }
        let value = self.lasts[(self.last_head + length - bins) % length];
        (!value.is_nan()).then_some(f64::from(value))
    }

    /// Bins in the window of the policy.
    #[must_use]
    pub fn window(&self) -> usize {
        self.lasts.len()
    }

    /// Bins in a day.
    #[must_use]
    pub const fn day(&self) -> usize {
        self.day
    }

    /// Bins taken so far, with holes.
    #[must_use]
    pub const fn seen(&self) -> usize {
        self.seen
    }

    /// Bins that were read, so far.
    #[must_use]
    pub const fn read(&self) -> usize {
        self.read
    }

    /// Missing bins up to now.
    #[must_use]
    pub const fn missing(&self) -> usize {
        self.missing
    }

    /// Bad readings so far.
    #[must_use]
    pub const fn faults(&self) -> Faults {
        self.faults
    }

    /// Memory behind pointers, bytes.
    #[must_use]
    pub fn heap(&self) -> usize {
        (self.means.capacity() + self.lasts.capacity()) * size_of::<f32>()
    }
}

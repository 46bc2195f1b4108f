//! The time, handed in: a steady clock for ages and expiries, and the calendar for what is written into objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Tells the time. Clones tell the same time.
#[derive(Clone)]
pub struct Clock {
    steady: Arc<dyn Fn() -> Duration + Send + Sync>,
    calendar: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clock {
    /// The machine's clocks; steady time counts from now.
    #[must_use]
    pub fn of_machine() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed(), Timestamp::now)
    }

    /// Clocks of one's own.
    pub fn new(
        steady: impl Fn() -> Duration + Send + Sync + 'static,
        calendar: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        Self {
            steady: Arc::new(steady),
            calendar: Arc::new(calendar),
        }
    }

    /// Steady time since some moment; never goes back.
    #[must_use]
    pub fn steady(&self) -> Duration {
        (self.steady)()
    }

    /// Calendar time.
    #[must_use]
    pub fn calendar(&self) -> Timestamp {
        (self.calendar)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").field("steady", &self.steady()).finish()
    }
}

//! What a node's or a slice's load will be one horizon ahead (15 minutes by default), from one day of history, and
//! whether that may be acted on. Loads are shares of capacity, 0 to 1.
//!
//! A [`series::Series`] is stepped once a horizon with what was read and gives a [`Forecast`]: a median and a 0.9
//! quantile. Series of one pool share a [`pool::Pool`]: what one learns about the members helps the others.
//!
//! * [`history`] - the last day and week, gaps and bad readings
//! * [`member`] - what a forecaster is, and the seven that need no training
//! * [`level`], [`smoothing`], [`autoregression`], [`season`] - those seven
//! * [`rhythm`] - when members that are trained learn anew; the one there is stands in the package `lstm`
//! * [`hedge`], [`pool`] - how members are weighed
//! * [`upper`] - the 0.9 quantile
//! * [`gate`] - accuracy, skill, and whether to act
//! * [`series`] - all of it for one series
//! * [`minutes`], [`fleet`] - the same for the nodes of a GpuPool, from the load that they tell

pub mod autoregression;
pub mod fleet;
pub mod gate;
pub mod hedge;
pub mod history;
pub mod level;
pub mod member;
pub mod minutes;
pub mod pool;
pub mod rhythm;
pub mod season;
pub mod series;
pub mod smoothing;
pub mod upper;

use gate::Verdict;

/// What the next bin will be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// As likely to be above as below.
    pub median: f64,
    /// Not exceeded in nine of ten bins. Never below the median.
    pub upper: f64,
    /// Where the median comes from.
    pub label: Label,
    /// Whether it may be acted on.
    pub verdict: Verdict,
}

/// Where a median comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// The weighed members, which have been better than persistence lately.
    Ensemble,
    /// The last bin repeated, for nothing has been better lately.
    Persistence,
}

impl Label {
    /// Short and stable, for metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ensemble => "Ensemble",
            Self::Persistence => "Persistence",
        }
    }
}

/// Why there is no forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// Too little was seen yet.
    #[error("{have} bins of load were seen, a forecast needs {need}")]
    TooShort {
        /// Bins seen.
        have: usize,
        /// Bins needed.
        need: usize,
    },
    /// The load has been missing for longer than it may be carried forward.
    #[error("no load was read for {missing} bins, it is carried forward for {most} at most")]
    Gap {
        /// Bins missing up to now.
        missing: usize,
        /// How many may be.
        most: usize,
    },
}

impl NoForecast {
    /// Short and stable, for metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooShort { .. } => "TooShort",
            Self::Gap { .. } => "Gap",
        }
    }
}

#[cfg(test)]
mod tests;

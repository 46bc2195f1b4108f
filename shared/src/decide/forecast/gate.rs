//! Whether forecasts may be acted on. Accuracy is the share of the last 96 that were within ten points of capacity;
//! skill is a mean error below that of persistence over the same. Both must hold. Above 20 % failures all is static
//! until fewer than 15 % failed for 24 rounds in a row.

use std::fmt;

use crate::policy::{
    FALLBACK_ENDS_AT, FALLBACK_QUIET_ROUNDS, FORECAST_JUDGED, FORECAST_RIGHT_WITHIN, Policy,
};

/// How the last forecasts were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// How many were judged.
    pub judged: u32,
    /// How many of them were within ten points.
    pub right: u32,
    /// Sum of absolute errors.
    pub error: f64,
    /// Sum of the absolute errors of persistence.
    pub persistence_error: f64,
}

impl Standing {
    /// Adds another series'.
    pub fn add(&mut self, other: &Self) {
        self.judged += other.judged;
        self.right += other.right;
        self.error += other.error;
        self.persistence_error += other.persistence_error;
    }

    /// Share that was right; 0 where none was judged.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        f64::from(self.right) / f64::from(self.judged.max(1))
    }

    /// Mean error over that of persistence; None where persistence made none.
    #[must_use]
    pub fn mase(&self) -> Option<f64> {
        (self.persistence_error > 0.0).then(|| self.error / self.persistence_error)
    }

    /// Whether it was better than persistence.
    #[must_use]
    pub fn skill(&self) -> bool {
        self.mase().is_some_and(|mase| mase < 1.0)
    }

    /// Whether more than this share failed, percent.
    fn fails_above(&self, percent: f64) -> bool {
        f64::from(self.judged - self.right) * 100.0 > percent * f64::from(self.judged)
    }

    /// Whether less than this share failed, percent.
    fn fails_below(&self, percent: f64) -> bool {
        f64::from(self.judged - self.right) * 100.0 < percent * f64::from(self.judged)
    }
}

/// The errors of the last forecasts of one series.
#[derive(Clone, Debug)]
pub struct Record {
    /// Of the forecast, and of persistence.
    errors: [(f32, f32); FORECAST_JUDGED],
    head: usize,
    count: usize,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            errors: [(0.0, 0.0); FORECAST_JUDGED],
            head: 0,
            count: 0,
        }
    }
}

impl Record {
    /// Adds the absolute errors of one round.
    pub fn add(&mut self, error: f64, persistence_error: f64) {
        self.errors[self.head] = (error as f32, persistence_error as f32);
        self.head = (self.head + 1) % FORECAST_JUDGED;
        self.count = (self.count + 1).min(FORECAST_JUDGED);
    }

    /// What they say together.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let mut standing = Standing::default();
        for (error, persistence_error) in &self.errors[..self.count] {
            standing.judged += 1;
            standing.right += u32::from(f64::from(*error) <= FORECAST_RIGHT_WITHIN);
            standing.error += f64::from(*error);
            standing.persistence_error += f64::from(*persistence_error);
        }
        standing
    }
}

/// The gate of one series or of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    fallen: bool,
    quiet: u32,
}

/// Whether to act.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Accurate and with skill.
    Act,
    /// Too few were judged to say.
    Unproven {
        /// Judged.
        judged: u32,
    },
    /// Too many are off by more than ten points, fewer than would end dynamic behaviour.
    Inaccurate {
        /// Share that was right.
        accuracy: f64,
    },
    /// Persistence is as good.
    NoSkill {
        /// Mean error over that of persistence.
        mase: Option<f64>,
    },
    /// Too many failed; static until enough quiet rounds have passed.
    Static {
        /// Quiet rounds so far.
        quiet: u32,
    },
}

impl Verdict {
    /// The verdict on those who have not been judged often enough.
    #[must_use]
    pub const fn unproven(standing: &Standing) -> Self {
        Self::Unproven {
            judged: standing.judged,
        }
    }

    /// Short and stable, for metrics.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Act => "Act",
            Self::Unproven { .. } => "Unproven",
            Self::Inaccurate { .. } => "Inaccurate",
            Self::NoSkill { .. } => "NoSkill",
            Self::Static { .. } => "Static",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act => write!(f, "forecasts are accurate and better than persistence"),
            Self::Unproven { judged } => {
                write!(f, "{judged} forecasts were judged, {FORECAST_JUDGED} are needed")
            }
            Self::Inaccurate { accuracy } => {
                write!(f, "{:.0} % of forecasts were within 10 points", accuracy * 100.0)
            }
            Self::NoSkill { mase: Some(mase) } => {
                write!(f, "the mean error is {mase:.2} times that of persistence")
            }
            Self::NoSkill { mase: None } => write!(f, "the load does not move, persistence is exact"),
            Self::Static { quiet } => write!(
                f,
                "too many forecasts failed; {quiet} of {FALLBACK_QUIET_ROUNDS} quiet rounds have passed"
            ),
        }
    }
}

impl Gate {
    /// One round: where the gate stands now.
    pub fn round(&mut self, standing: &Standing, policy: &Policy) -> Verdict {
        if (standing.judged as usize) < FORECAST_JUDGED {
            return Verdict::unproven(standing);
        }
        let falls_above = f64::from(policy.fallback_failure_rate_percent);
        if standing.fails_above(falls_above) {
            *self = Self {
                fallen: true,
                quiet: 0,
            };
        } else if standing.fails_below(falls_above * FALLBACK_ENDS_AT) {
            self.quiet = (self.quiet + 1).min(FALLBACK_QUIET_ROUNDS);
            self.fallen &= self.quiet < FALLBACK_QUIET_ROUNDS;
        } else {
            self.quiet = 0;
        }
        if self.fallen {
            Verdict::Static { quiet: self.quiet }
        } else if standing.accuracy() * 100.0 < f64::from(policy.accuracy_gate_percent) {
            Verdict::Inaccurate {
                accuracy: standing.accuracy(),
            }
        } else if standing.skill() {
            Verdict::Act
        } else {
            Verdict::NoSkill {
                mase: standing.mase(),
            }
        }
    }
}

//! One series: what it remembers, its members, and what they say together.

use super::gate::{Gate, Record, Standing, Verdict};
use super::hedge::{self, Hedge, Opinions};
use super::history::{Faults, History, Reading};
use super::member::{MOST_MEMBERS, Member, PERSISTENCE, untrained};
use super::pool::{Judged, Pool};
use super::rhythm::Rhythm;
use super::upper::Upper;
use super::{Forecast, Label, NoForecast};
use crate::policy::{FORECAST_CARRIED_BINS, FORECAST_LEAST_BINS, Policy};

/// The forecaster of one node's or slice's load. Its memory is set when it is made: it depends on the policy alone.
pub struct Series {
    history: History,
    members: Vec<Box<dyn Member>>,
    /// What the members say of the next bin.
    opinions: Opinions,
    hedge: Hedge,
    upper: Upper,
    record: Record,
    gate: Gate,
    verdict: Verdict,
    standing: Standing,
    rhythm: Rhythm,
}

impl Series {
    /// With the members that need no training, and no history.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self {
            history: History::new(policy),
            members: untrained(),
            opinions: [None; MOST_MEMBERS],
            hedge: Hedge::default(),
            upper: Upper::default(),
            record: Record::default(),
            gate: Gate::default(),
            verdict: Verdict::unproven(&Standing::default()),
            standing: Standing::default(),
            rhythm: Rhythm::default(),
        }
    }

    /// With one more member, as long as there is room for one.
    #[must_use]
    pub fn with(mut self, member: Box<dyn Member>) -> Self {
        if self.members.len() < MOST_MEMBERS {
            self.members.push(member);
        }
        self
    }

    /// Takes the next bin, which is None where nothing was read: judges the forecast that was made for it, learns,
    /// and asks the members about the bin after it. To be called once a horizon, with [`Pool::close`] after all
    /// series of the pool.
    pub fn observe(&mut self, reading: Option<Reading>, pool: &mut Pool, policy: &Policy) {
        let made = self.said(pool);
        let persistence = self.opinions[PERSISTENCE];
        if self.rhythm.turn(&self.history) {
            self.members.iter_mut().for_each(|member| member.restart());
        }
        let truth = self.history.push(reading);
        if let Some(truth) = truth {
            for member in &mut self.members {
                member.learn(truth, &self.history);
            }
            if let Some((median, upper)) = made {
                let error = (median - truth).abs();
                self.record
                    .add(error, (persistence.unwrap_or(median) - truth).abs());
                self.standing = self.record.standing();
                self.verdict = self.gate.round(&self.standing, policy);
                self.hedge
                    .learn(&self.opinions, self.members.len(), median, truth);
                pool.add(&Judged {
                    losses: self.opinions.map(|said| said.map(|said| (said - truth).abs())),
                    loss: error,
                    pull: self.upper.learn(median, upper, truth),
                });
            }
        }
        pool.stand(&self.standing);
        self.ask();
    }

    fn ask(&mut self) {
        for (said, member) in self.opinions.iter_mut().zip(&self.members) {
            let predicted = member.predict(&self.history);
            *said = predicted
                .filter(|value| value.is_finite())
                .map(|value| value.clamp(0.0, 1.0));
        }
    }

    /// The ensemble's median and upper quantile for the next bin, where there is a forecast.
    fn said(&self, pool: &Pool) -> Option<(f64, f64)> {
        self.possible().ok()?;
        let weights = self.hedge.weights(&self.opinions, self.members.len(), pool);
        let median = hedge::median(&self.opinions, &weights)?;
        Some((median, self.upper.above(median, pool.shift())))
    }

    fn possible(&self) -> Result<(), NoForecast> {
        let (have, missing) = (self.history.read(), self.history.missing());
        if have < FORECAST_LEAST_BINS {
            return Err(NoForecast::TooShort {
                have,
                need: FORECAST_LEAST_BINS,
            });
        }
        if missing > FORECAST_CARRIED_BINS {
            return Err(NoForecast::Gap {
                missing,
                most: FORECAST_CARRIED_BINS,
            });
        }
        Ok(())
    }

    /// What the next bin will be.
    ///
    /// # Errors
    /// [`NoForecast`] says why there is none.
    pub fn forecast(&self, pool: &Pool) -> Result<Forecast, NoForecast> {
        self.possible()?;
        let none = NoForecast::TooShort {
            have: self.history.read(),
            need: FORECAST_LEAST_BINS,
        };
        let (median, upper) = self.said(pool).ok_or(none)?;
        let verdict = match pool.verdict() {
            // the pool may still be unproven where only this series is old enough
            Verdict::Act | Verdict::Unproven { .. } => self.verdict,
            closed @ Verdict::Static { .. } => closed,
            // accuracy and skill are each series' own
            Verdict::Inaccurate { .. } | Verdict::NoSkill { .. } => self.verdict,
        };
        Ok(if self.standing.skill() {
            Forecast {
                median,
                upper,
                label: Label::Ensemble,
                verdict,
            }
        } else {
            let median = self.opinions[PERSISTENCE].unwrap_or(median);
            Forecast {
                median,
                upper: upper.max(median),
                label: Label::Persistence,
                verdict,
            }
        })
    }

    /// The ensemble's median and upper quantile whatever its skill, for comparisons.
    #[must_use]
    pub fn ensemble(&self, pool: &Pool) -> Option<(f64, f64)> {
        self.said(pool)
    }

    /// What each member says of the next bin, with its name and weight.
    pub fn members<'a>(
        &'a self,
        pool: &Pool,
    ) -> impl Iterator<Item = (&'static str, Option<f64>, f64)> + use<'a> {
        let weights = self.hedge.weights(&self.opinions, self.members.len(), pool);
        let said = self.members.iter().zip(self.opinions).zip(weights);
        said.map(|((member, opinion), weight)| (member.name(), opinion, weight))
    }

    /// Whether members that are trained should be.
    #[must_use]
    pub fn retrain_due(&self) -> bool {
        self.rhythm.is_due(&self.history)
    }

    /// Trains those that are trained. Takes up to a second: not where a decision waits.
    pub fn retrain(&mut self) {
        for member in &mut self.members {
            member.train(&self.history);
        }
        self.rhythm.trained();
        self.ask();
    }

    /// Whether this series' forecasts may be acted on, whatever its pool says.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// How the last forecasts were.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Bad readings so far.
    #[must_use]
    pub const fn faults(&self) -> Faults {
        self.history.faults()
    }

    /// Memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let members: usize = self.members.iter().map(|member| member.bytes()).sum();
        let pointers = self.members.capacity() * size_of::<Box<dyn Member>>();
        size_of::<Self>() + self.history.heap() + pointers + members
    }
}

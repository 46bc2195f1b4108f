//! The turns in which what the agents told becomes what is expected of their nodes. A turn reads what is there, and
//! computes beside the thread that answers; nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use serve::tasks::aside;
use shared::decide::forecast::gate::Standing;
use shared::policy::{LOAD_GATHER_MILLISECONDS, LOAD_TURN_SECONDS};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::fleets::{Fleets, group};
use super::loads::{Load, Loads, State};
use crate::clock::Clock;
use crate::index::Index;
use crate::index::expected::Expected;
use crate::metrics::load::LoadMetrics;

/// What the turns are made of.
pub struct Turns {
    /// The cluster.
    pub index: Arc<Index>,
    /// What the agents told.
    pub loads: Arc<Loads>,
    /// Whether anybody asks them.
    pub followed: bool,
    /// What is counted.
    pub metrics: LoadMetrics,
    /// The time.
    pub clock: Clock,
    /// What the index was told last.
    pub expected: Expected,
}

impl Turns {
    /// Takes turns until the token is cancelled: every [`LOAD_TURN_SECONDS`], and soon after a node was heard for the
    /// first time.
    ///
    /// # Errors
    /// None; the type fits a part of the program.
    pub async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        let mut fleets = Fleets::default();
        let mut turn = tokio::time::interval(Duration::from_secs(LOAD_TURN_SECONDS));
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let settled = async {
                self.loads.settled().await;
                tokio::time::sleep(Duration::from_millis(LOAD_GATHER_MILLISECONDS)).await;
            };
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = settled => {}
                _ = turn.tick() => {}
            }
            // before the lists are complete nobody knows which nodes a pool has
            if self.index.available().is_ok() {
                aside(|| self.turn(&mut fleets));
            }
        }
    }

    fn turn(&mut self, fleets: &mut Fleets) {
        let now = self.clock.calendar().as_second();
        let loads = self.loads.all();
        let pools = group(&self.index, &loads, self.followed);
        let expected = fleets.turn(&pools, now);
        if expected != self.expected {
            self.index.expect(expected.clone());
            // the nodes that changed are made anew here and not while kube-scheduler waits
            drop(self.index.view());
            self.expected = expected;
        }
        show_streams(&self.metrics, loads.values(), now);
        show_forecasts(&self.metrics, &self.expected);
    }
}

/// Streams by how they stand.
fn show_streams<'a>(metrics: &LoadMetrics, loads: impl Iterator<Item = &'a Load>, now: i64) {
    let [mut live, mut lost, mut stale] = [0; 3];
    for load in loads {
        let count = match load.state {
            State::None => continue,
            State::Called | State::Lost => &mut lost,
            State::Open if load.minutes.is_fresh(now) => &mut live,
            State::Open => &mut stale,
        };
        *count += 1;
    }
    metrics.streams([("live", live), ("lost", lost), ("stale", stale)]);
}

/// The forecasts of all pools in numbers.
fn show_forecasts(metrics: &LoadMetrics, expected: &Expected) {
    let reports = || expected.reports.values().flatten();
    let own = reports().map(|report| report.acting).sum();
    let neutral = expected.outlooks.len().saturating_sub(own);
    metrics.forecast_nodes([("own", own), ("neutral", neutral)]);
    metrics.verdicts(reports().map(|report| report.verdict.code()));
    let mut standing = Standing::default();
    reports().for_each(|report| standing.add(&report.standing));
    let judged = standing.judged > 0;
    metrics.accuracy(if judged {
        standing.accuracy() * 100.0
    } else {
        f64::NAN
    });
}

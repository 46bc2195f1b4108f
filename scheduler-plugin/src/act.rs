//! What the leader does on its own, in turns: look at the index, decide, hand the writes to the writer.
//!
//! * [`nominate`] - places for the pods that wait, planned ahead of kube-scheduler; in turns of its own
//! * [`explain`] - an event on every pod that cannot be placed, with the reason
//! * [`pool`] - the numbers of each GpuPool, and the metrics made of the same
//! * [`refused`] - pods that a kubelet refused make room for their replacement

pub mod explain;
pub mod nominate;
pub mod pool;
pub mod refused;

use std::sync::Arc;
use std::time::Duration;

use serve::tasks::aside;
use shared::policy::LEADER_TURN_SECONDS;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::writer::Writer;

/// What the turns are made of.
#[derive(Clone)]
pub struct Leader {
    /// The cluster.
    pub index: Arc<Index>,
    /// To the API server.
    pub writer: Writer,
    /// What is counted.
    pub metrics: Metrics,
    /// The time.
    pub clock: Clock,
}

impl Leader {
    /// Takes turns until the token is cancelled. Expiry and metrics are every replica's own; the rest is done while
    /// this one leads.
    ///
    /// # Errors
    /// None; the type fits a part of the program.
    pub async fn run(self, leads: Receiver<bool>, token: CancellationToken) -> anyhow::Result<()> {
        let mut explain = explain::Explain::default();
        let mut pool = pool::PoolNumbers::default();
        let mut refused = refused::Refused::default();
        let mut changes = self.index.changes();
        let mut turn = tokio::time::interval(Duration::from_secs(LEADER_TURN_SECONDS));
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                _ = turn.tick() => {}
            }
            self.index.expire();
            self.measure();
            let leading = *leads.borrow();
            self.metrics.leader(leading);
            if self.index.available().is_err() {
                continue;
            }
            let changed = changes.has_changed().unwrap_or(false);
            changes.mark_unchanged();
            if changed {
                aside(|| pool.count(&self.index, &self.metrics));
            }
            if leading {
                refused.turn(&self.index, &self.writer).await;
                explain.turn(&self.index, &self.writer, &self.clock).await;
                pool.turn(&self.index, &self.writer, &self.clock).await;
            }
        }
    }

    fn measure(&self) {
        self.metrics.snapshot_age(self.index.age());
        for (state, count) in self.index.reservations() {
            self.metrics.reservations(state.code(), count);
        }
        self.metrics
            .drift(self.index.read(crate::index::books::Books::drift));
    }
}

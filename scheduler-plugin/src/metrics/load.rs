//! The metrics of the load that agents tell and of what is forecast from it.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{StateLabel, signed};

/// What agents tell, and what is made of it. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct LoadMetrics {
    streams: Family<StateLabel, Gauge>,
    minutes: Family<OutcomeLabel, Counter>,
    dial_failures: Family<ReasonLabel, Counter>,
    nodes: Family<StateLabel, Gauge>,
    pools: Family<VerdictLabel, Gauge>,
    accuracy: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

impl LoadMetrics {
    pub(super) fn register_streams(&self, of_scheduler: &mut Registry) {
        of_scheduler.register(
            "load_streams",
            "Nodes whose agent is asked for load, by whether it tells any",
            self.streams.clone(),
        );
        of_scheduler.register(
            "load_minutes",
            "Minutes of load that agents told, by whether they were of use",
            self.minutes.clone(),
        );
        of_scheduler.register(
            "load_dial_failures",
            "Calls of agents that came to nothing, by reason",
            self.dial_failures.clone(),
        );
    }

    pub(super) fn register_forecasts(&self, of_pool: &mut Registry) {
        of_pool.register(
            "forecast_nodes",
            "Nodes whose expected load counts in placement, by whether it is their own or the middle one of their pool",
            self.nodes.clone(),
        );
        of_pool.register(
            "forecast_pools",
            "Pools whose nodes tell load, by the verdict on their forecasts",
            self.pools.clone(),
        );
        of_pool.register(
            "forecast_accuracy_percent",
            "Share of the last forecasts of all nodes that were right; not a number before the first",
            self.accuracy.clone(),
        );
    }

    /// Streams by how they stand.
    pub fn streams<const N: usize>(&self, counts: [(&'static str, usize); N]) {
        for (state, count) in counts {
            self.streams
                .get_or_create(&StateLabel { state })
                .set(signed(count));
        }
    }

    /// An agent told so many minutes that were taken, and so many of no use.
    pub fn minutes(&self, taken: usize, useless: usize) {
        for (outcome, count) in [("taken", taken), ("refused", useless)] {
            self.minutes
                .get_or_create(&OutcomeLabel { outcome })
                .inc_by(count as u64);
        }
    }

    /// A call of an agent came to nothing.
    pub fn dial_failed(&self, reason: &'static str) {
        self.dial_failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Nodes of which load is expected, by whose forecast it is.
    pub fn forecast_nodes<const N: usize>(&self, counts: [(&'static str, usize); N]) {
        for (state, count) in counts {
            self.nodes.get_or_create(&StateLabel { state }).set(signed(count));
        }
    }

    /// The verdict on each pool; verdicts not named hold for none.
    pub fn verdicts(&self, verdicts: impl IntoIterator<Item = &'static str>) {
        self.pools.clear();
        for verdict in verdicts {
            self.pools.get_or_create(&VerdictLabel { verdict }).inc();
        }
    }

    /// Share of the last forecasts that were right, percent.
    pub fn accuracy(&self, percent: f64) {
        self.accuracy.set(percent);
    }
}

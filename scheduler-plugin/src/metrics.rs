//! Every metric of the program, registered here and nowhere else. Labels stay few: profiles, states and reason
//! codes, never names of pods or nodes.
//!
//! * [`load`] - those of the load that agents tell

pub mod load;

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use load::LoadMetrics;

/// Bounds of the request histograms, seconds: from a bare answer to kube-scheduler's default timeout.
const LATENCY: [f64; 13] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];

/// What the program counts. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<VerbLabel, Histogram, fn() -> Histogram>,
    decisions: Family<DecisionLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
    events: Counter,
    reservations: Family<StateLabel, Gauge>,
    snapshot_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    gpus: Family<StateLabel, Gauge>,
    slices: Family<SliceLabels, Gauge>,
    free: Family<ProfileLabel, Gauge>,
    fragmentation: Gauge,
    drift: Gauge,
    leader: Gauge,
    /// What agents tell, and what is made of it.
    pub load: LoadMetrics,
}

/// A call of kube-scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the extender's contract")]
pub enum Verb {
    Filter,
    Prioritize,
    Bind,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing of ours was asked for.
    Passed,
    /// A place was found.
    Placed,
    /// Nothing fits, and that was said.
    Refused,
    /// No answer could be given.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    verb: &'static str,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    object: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SliceLabels {
    profile: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProfileLabel {
    profile: String,
}

impl Verb {
    const fn code(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Bind => "bind",
        }
    }
}

impl Outcome {
    const fn code(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Placed => "placed",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them under `migpool_`.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::new_with_constructor(|| Histogram::new(LATENCY)),
            decisions: Family::default(),
            writes: Family::default(),
            events: Counter::default(),
            reservations: Family::default(),
            snapshot_age: Gauge::default(),
            gpus: Family::default(),
            slices: Family::default(),
            free: Family::default(),
            fragmentation: Gauge::default(),
            drift: Gauge::default(),
            leader: Gauge::default(),
            load: LoadMetrics::default(),
        };
        let of_scheduler = registry.sub_registry_with_prefix("migpool_scheduler");
        of_scheduler.register_with_unit(
            "request_duration",
            "Time from a request of kube-scheduler to its answer",
            Unit::Seconds,
            metrics.requests.clone(),
        );
        of_scheduler.register(
            "decisions",
            "Answers by how they ended and why",
            metrics.decisions.clone(),
        );
        of_scheduler.register(
            "writes",
            "Writes to the API server by object and outcome",
            metrics.writes.clone(),
        );
        of_scheduler.register(
            "events",
            "Events written on pods that cannot be placed",
            metrics.events.clone(),
        );
        of_scheduler.register(
            "reservations",
            "Places held for pods that are not seen bound yet, by state",
            metrics.reservations.clone(),
        );
        of_scheduler.register_with_unit(
            "snapshot_age",
            "How long the API server has been away; 0 while every watch is open",
            Unit::Seconds,
            metrics.snapshot_age.clone(),
        );
        of_scheduler.register("leader", "1 while this replica leads", metrics.leader.clone());
        of_scheduler.register(
            "drift_places",
            "Places that a pod's annotation says and its node's GpuNode contradicts",
            metrics.drift.clone(),
        );
        metrics.load.register_streams(of_scheduler);
        let of_pool = registry.sub_registry_with_prefix("migpool_pool");
        of_pool.register("gpus", "GPUs by whether they take work", metrics.gpus.clone());
        of_pool.register("slices", "Slices by profile and state", metrics.slices.clone());
        of_pool.register(
            "free_slices",
            "Slices of each profile alone that could still be cut",
            metrics.free.clone(),
        );
        of_pool.register(
            "fragmentation_percent",
            "Free memory slices that the expected demand cannot use, percent of the free ones",
            metrics.fragmentation.clone(),
        );
        metrics.load.register_forecasts(of_pool);
        metrics
    }

    /// A call was answered.
    pub fn answered(&self, verb: Verb, outcome: Outcome, reason: &'static str, took: Duration) {
        let (verb, outcome) = (verb.code(), outcome.code());
        self.requests
            .get_or_create(&VerbLabel { verb })
            .observe(took.as_secs_f64());
        self.decisions
            .get_or_create(&DecisionLabels {
                verb,
                outcome,
                reason,
            })
            .inc();
    }

    /// A write to the API server ended.
    pub fn wrote(&self, object: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { object, outcome }).inc();
        if object == "event" && outcome == "ok" {
            self.events.inc();
        }
    }

    /// Reservations in a state.
    pub fn reservations(&self, state: &'static str, count: usize) {
        self.reservations
            .get_or_create(&StateLabel { state })
            .set(signed(count));
    }

    /// How long the API server has been away.
    pub fn snapshot_age(&self, age: Duration) {
        self.snapshot_age.set(age.as_secs_f64());
    }

    /// Whether this replica leads.
    pub fn leader(&self, leading: bool) {
        self.leader.set(i64::from(leading));
    }

    /// Places that annotation and GpuNode disagree about.
    pub fn drift(&self, places: usize) {
        self.drift.set(signed(places));
    }

    /// GPUs in a state.
    pub fn gpus(&self, state: &'static str, count: usize) {
        self.gpus.get_or_create(&StateLabel { state }).set(signed(count));
    }

    /// Slices of each profile and state; those not named are gone.
    pub fn slices<'a>(&self, counts: impl IntoIterator<Item = (&'a str, &'static str, usize)>) {
        self.slices.clear();
        for (profile, state, count) in counts {
            self.slices
                .get_or_create(&SliceLabels {
                    profile: profile.to_owned(),
                    state,
                })
                .set(signed(count));
        }
    }

    /// Slices of each profile alone that could still be cut; profiles not named are gone.
    pub fn free<'a>(&self, counts: impl IntoIterator<Item = (&'a str, usize)>) {
        self.free.clear();
        for (profile, count) in counts {
            self.free
                .get_or_create(&ProfileLabel {
                    profile: profile.to_owned(),
                })
                .set(signed(count));
        }
    }

    /// Share of free memory slices that the expected demand cannot use.
    pub fn fragmentation(&self, percent: u32) {
        self.fragmentation.set(i64::from(percent));
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_shows_under_its_documented_name() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.answered(Verb::Filter, Outcome::Placed, "", Duration::from_micros(300));
        metrics.wrote("event", "ok");
        metrics.reservations("tentative", 2);
        metrics.slices([("1g.10gb", "allocated", 7)]);
        metrics.load.streams([("live", 3)]);
        metrics.load.minutes(60, 1);
        metrics.load.dial_failed("Refused");
        metrics.load.forecast_nodes([("own", 2)]);
        metrics.load.verdicts(["Act", "Static", "Act"]);
        metrics.load.accuracy(93.5);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"migpool_scheduler_request_duration_seconds_count{verb="filter"} 1"#,
            r#"migpool_scheduler_decisions_total{verb="filter",outcome="placed",reason=""} 1"#,
            r#"migpool_scheduler_writes_total{object="event",outcome="ok"} 1"#,
            "migpool_scheduler_events_total 1",
            r#"migpool_scheduler_reservations{state="tentative"} 2"#,
            r#"migpool_pool_slices{profile="1g.10gb",state="allocated"} 7"#,
            r#"migpool_scheduler_load_streams{state="live"} 3"#,
            r#"migpool_scheduler_load_minutes_total{outcome="taken"} 60"#,
            r#"migpool_scheduler_load_minutes_total{outcome="refused"} 1"#,
            r#"migpool_scheduler_load_dial_failures_total{reason="Refused"} 1"#,
            r#"migpool_pool_forecast_nodes{state="own"} 2"#,
            r#"migpool_pool_forecast_pools{verdict="Act"} 2"#,
            "migpool_pool_forecast_accuracy_percent 93.5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

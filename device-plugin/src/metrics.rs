//! Every metric of the agent. Counters are counted where things happen; what describes the node is read from the
//! inventory at each scrape, so that no label outlives its slice.

mod load;
mod node;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use shared::api::gpu_node::Health;
use shared::mig::Step;

use crate::inventory::Inventory;
use crate::usage::Load;

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

/// The counters. Clones count together.
#[derive(Clone)]
pub struct Metrics {
    steps: Counters,
    seconds: Family<Labels, Histogram>,
    calls: Counters,
    call_seconds: Family<CallLabels, Histogram>,
    registrations: Counters,
    xids: Counters,
    health: Counters,
    recoveries: Counter,
    api_writes: Counters,
    clamped: Counter,
    told: Counter,
    streams: Gauge,
    usage_calls: Counters,
}

/// Labels of a call of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: &'static str,
}

impl Metrics {
    /// Counters, and the registry that serves them.
    #[must_use]
    pub fn new(inventory: &Inventory, load: &Load) -> (Self, Arc<Registry>) {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        let made = Self {
            steps: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(histogram),
            registrations: Family::default(),
            xids: Family::default(),
            health: Family::default(),
            recoveries: Counter::default(),
            api_writes: Family::default(),
            clamped: Counter::default(),
            told: Counter::default(),
            streams: Gauge::default(),
            usage_calls: Family::default(),
        };
        let mut registry = Registry::with_prefix("migpool");
        registry.register(
            "slice_steps",
            "Slices made and removed, by result",
            made.steps.clone(),
        );
        registry.register(
            "slice_step_duration_seconds",
            "How long making and removing took",
            made.seconds.clone(),
        );
        registry.register(
            "kubelet_calls",
            "Calls of the kubelet, by result",
            made.calls.clone(),
        );
        registry.register(
            "kubelet_call_duration_seconds",
            "How long the kubelet waited",
            made.call_seconds.clone(),
        );
        registry.register(
            "registrations",
            "Registrations with the kubelet, by result",
            made.registrations.clone(),
        );
        registry.register("xids", "XIDs seen", made.xids.clone());
        registry.register(
            "gpu_health_changes",
            "Changes of the health of GPUs",
            made.health.clone(),
        );
        registry.register(
            "slice_recoveries",
            "Faulty slices cut again",
            made.recoveries.clone(),
        );
        registry.register(
            "api_writes",
            "Writes to the API server, by result",
            made.api_writes.clone(),
        );
        registry.register(
            "usage_samples_clamped",
            "Activities beyond 0 to 1 that were brought there",
            made.clamped.clone(),
        );
        registry.register(
            "usage_minutes_told",
            "Minutes of load told to callers",
            made.told.clone(),
        );
        registry.register(
            "usage_streams",
            "Load streams that are open",
            made.streams.clone(),
        );
        registry.register(
            "usage_calls",
            "Calls for the load, by result",
            made.usage_calls.clone(),
        );
        registry.register_collector(Box::new(node::Node::new(inventory.clone())));
        registry.register_collector(Box::new(load::Collected::new(inventory.clone(), load.clone())));
        (made, Arc::new(registry))
    }

    /// A slice was made or removed, or not.
    pub fn stepped(&self, step: Step, ok: bool, took: Duration) {
        let kind = match step {
            Step::Create(_) => "create",
            Step::Destroy(_) => "destroy",
        };
        self.steps
            .get_or_create(&vec![("step", kind.to_owned()), result(ok)])
            .inc();
        self.seconds
            .get_or_create(&vec![("step", kind.to_owned())])
            .observe(took.as_secs_f64());
    }

    /// The kubelet called.
    pub fn called(&self, call: &'static str, resource: &str, ok: bool, took: Duration) {
        let labels = vec![
            ("call", call.to_owned()),
            ("resource", resource.to_owned()),
            result(ok),
        ];
        self.calls.get_or_create(&labels).inc();
        self.call_seconds
            .get_or_create(&CallLabels { call })
            .observe(took.as_secs_f64());
    }

    /// A resource was registered, or not.
    pub fn registered(&self, resource: &str, ok: bool) {
        self.registrations
            .get_or_create(&vec![("resource", resource.to_owned()), result(ok)])
            .inc();
    }

    /// An XID came.
    pub fn xid(&self, gpu: &str, xid: u64) {
        self.xids
            .get_or_create(&vec![("gpu_uuid", gpu.to_owned()), ("xid", xid.to_string())])
            .inc();
    }

    /// A GPU's health changed.
    pub fn health_changed(&self, gpu: &str, to: Health) {
        self.health
            .get_or_create(&vec![("gpu_uuid", gpu.to_owned()), ("to", format!("{to:?}"))])
            .inc();
    }

    /// A faulty slice was cut again.
    pub fn recovered(&self) {
        self.recoveries.inc();
    }

    /// Activities were out of range.
    pub fn clamped(&self, count: u64) {
        self.clamped.inc_by(count);
    }

    /// Minutes of load were told.
    pub fn told(&self, minutes: usize) {
        self.told.inc_by(minutes as u64);
    }

    /// So many more load streams are open.
    pub fn usage_streams(&self, more: i64) {
        self.streams.inc_by(more);
    }

    /// Somebody asked for the load, and was refused with a code or was not.
    pub fn usage_called(&self, refused: Option<tonic::Code>) {
        let result = match refused {
            None => "ok",
            Some(tonic::Code::Unauthenticated) => "unauthenticated",
            Some(tonic::Code::PermissionDenied) => "denied",
            Some(_) => "unavailable",
        };
        self.usage_calls
            .get_or_create(&vec![("result", result.to_owned())])
            .inc();
    }

    /// Something was written to the API server, or not.
    pub fn wrote(&self, what: &'static str, ok: bool) {
        self.api_writes
            .get_or_create(&vec![("what", what.to_owned()), result(ok)])
            .inc();
    }
}

fn result(ok: bool) -> (&'static str, String) {
    ("result", if ok { "ok" } else { "error" }.to_owned())
}

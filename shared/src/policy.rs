//! Every tunable number: unit, default, range and why. One struct for the GpuPool object, the scheduler and the
//! simulator. A field whose range is broken is refused by the API server (the schema carries the range) and by
//! [`Policy::check`] where no API server stands in between.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest request body the extender reads, bytes. A filter call with 5,000 node names is 85 kB; a caller that
/// sends whole Node objects of 5,000 nodes stays under this too.
pub const EXTENDER_BODY_LIMIT_BYTES: usize = 64 << 20;
/// Longest a write to the API server may take, seconds: less than the extender's `httpTimeout` of 5 s, so that the
/// scheduler hears of a failed bind from us.
pub const WRITE_TIMEOUT_SECONDS: u64 = 4;
/// Cost tables are rebuilt at most this often, seconds: the demand mix moves in hours.
pub const TABLES_REFRESH_SECONDS: u64 = 10;
/// Nodes whose cost is within this of the best are offered to a pod with soft preferences of its own, in
/// millionths of a memory slice: a twentieth of a slice is less than any placement of one slice differs by.
pub const HAIR_COST: i64 = 50_000;
/// After a kubelet refused a pod, the next Binding to its node waits this long, milliseconds. Controllers replace a
/// refused pod at once and without back-off; a kubelet whose agent just died takes about a second to say that it
/// has no devices, and until then it refuses every replacement. Binding, pause and write together stay under the
/// extender's `httpTimeout`.
pub const REFUSAL_PAUSE_MILLISECONDS: u64 = 900;
/// A running pod is moved only to let in a request of at least this many memory slices: half a GPU of 80 GB. The
/// moves that smaller requests would cost bring no utilisation (e2e/simulator/RESULTS.md).
pub const MOVES_FROM_SLICES: u8 = 4;
/// One pod gets at most one event of ours in this time, seconds.
pub const EVENT_SPACING_SECONDS: u64 = 60;
/// How often the leader looks at what is pending, seconds.
pub const LEADER_TURN_SECONDS: u64 = 1;

/// The policy of a pool. Times are whole seconds, shares are percent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// How often load is read, seconds. Below 5 s NVML sampling itself costs; above 300 s idleness is seen late.
    #[schemars(range(min = 5, max = 300))]
    pub scan_interval_seconds: u32,
    /// A slice whose activity stays below this is idle, percent. The articles use 15 to 25.
    #[schemars(range(min = 15, max = 25))]
    pub idle_threshold_percent: u32,
    /// How long a slice is held before it may be taken back, seconds: shorter holds make work flap.
    #[schemars(range(min = 60, max = 86_400))]
    pub minimum_hold_seconds: u32,
    /// How often the leader plans, seconds.
    #[schemars(range(min = 60, max = 300))]
    pub schedule_interval_seconds: u32,
    /// How long a released slice is kept for the next pod of its profile before it is removed, seconds. Room that
    /// is needed takes it at once whatever this says; 0 removes it when it is released.
    #[schemars(range(min = 0, max = 86_400))]
    pub idle_slice_seconds: u32,
    /// Imbalance of node load, (max - mean) / mean, above which work is moved, percent.
    #[schemars(range(min = 10, max = 200))]
    pub imbalance_threshold_percent: u32,
    /// Moves an hour in the whole pool at most: each costs its pod a restart.
    #[schemars(range(min = 0, max = 1_000))]
    pub max_migrations_per_hour: u32,
    /// A move is rolled back when the moved work got slower by more than this, percent.
    #[schemars(range(min = 1, max = 50))]
    pub regression_limit_percent: u32,
    /// How far ahead load is forecast, minutes.
    #[schemars(range(min = 5, max = 60))]
    pub forecast_horizon_minutes: u32,
    /// How much history a forecast sees, hours.
    #[schemars(range(min = 1, max = 168))]
    pub forecast_window_hours: u32,
    /// Forecasts are acted on only while this share of them was right, percent.
    #[schemars(range(min = 50, max = 100))]
    pub accuracy_gate_percent: u32,
    /// Above this share of failed forecasts the pool falls back to static behaviour, percent.
    #[schemars(range(min = 1, max = 50))]
    pub fallback_failure_rate_percent: u32,
    /// Share of a node's score that may come from the forecast, percent.
    #[schemars(range(min = 0, max = 40))]
    pub forecast_weight_percent: u32,
    /// Mean time a decision may take, milliseconds.
    #[schemars(range(min = 10, max = 10_000))]
    pub decision_sla_milliseconds: u32,
    /// How long a gang waits for all its places, seconds.
    #[schemars(range(min = 10, max = 3_600))]
    pub gang_timeout_seconds: u32,
    /// How often a gang is tried again after it failed.
    #[schemars(range(min = 0, max = 100))]
    pub backoff_limit: u32,
    /// Share of nodes that run dynamically while a roll-out is watched, percent.
    #[schemars(range(min = 0, max = 100))]
    pub rollout_percent: u32,
    /// Node label that names the rack.
    #[schemars(length(min = 1, max = 253))]
    pub rack_label: String,
    /// Models with fewer parameters than this get a quarter of a GPU's memory, billions.
    #[schemars(range(min = 1, max = 1_000))]
    pub quarter_gpu_below_billion_parameters: u32,
    /// Weight of "keep empty GPUs empty" in placement, thousandths of a memory slice for each free slice of the
    /// GPU. 200 to 400 measured flat; 0 loses up to 3 points of utilisation where small slices dominate.
    #[schemars(range(min = 0, max = 2_000))]
    pub best_fit_weight_milli: u32,
    /// Half-life of the demand mix that placement expects, minutes.
    #[schemars(range(min = 1, max = 10_080))]
    pub demand_half_life_minutes: u32,
    /// How long a place is held for a pod between decision and binding, seconds.
    #[schemars(range(min = 5, max = 600))]
    pub reservation_seconds: u32,
    /// How long answers are given from the last snapshot while the API server is away, seconds.
    #[schemars(range(min = 1, max = 600))]
    pub snapshot_ttl_seconds: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            scan_interval_seconds: 30,
            idle_threshold_percent: 20,
            minimum_hold_seconds: 300,
            schedule_interval_seconds: 60,
            idle_slice_seconds: 600,
            imbalance_threshold_percent: 30,
            max_migrations_per_hour: 10,
            regression_limit_percent: 10,
            forecast_horizon_minutes: 15,
            forecast_window_hours: 24,
            accuracy_gate_percent: 85,
            fallback_failure_rate_percent: 20,
            forecast_weight_percent: 40,
            decision_sla_milliseconds: 2_000,
            gang_timeout_seconds: 300,
            backoff_limit: 3,
            rollout_percent: 10,
            rack_label: crate::names::LABEL_RACK.to_owned(),
            quarter_gpu_below_billion_parameters: 10,
            best_fit_weight_milli: 200,
            demand_half_life_minutes: 360,
            reservation_seconds: 60,
            snapshot_ttl_seconds: 60,
        }
    }
}

/// A policy value out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy.{field} is {value}, allowed is {min} to {max}")]
pub struct OutOfRange {
    /// The field as it is written in YAML.
    pub field: String,
    /// What it says.
    pub value: i64,
    /// Least allowed.
    pub min: i64,
    /// Most allowed.
    pub max: i64,
}

impl Policy {
    /// Whether every number is in its range. The ranges are those of the schema: there is one place to change.
    ///
    /// # Errors
    /// [`OutOfRange`] names the first field that is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let schema = schemars::schema_for!(Self);
        let values = serde_json::to_value(self).unwrap_or_default();
        let properties = schema
            .get("properties")
            .and_then(|properties| properties.as_object());
        for (field, rules) in properties.into_iter().flatten() {
            let Some(value) = values.get(field).and_then(serde_json::Value::as_i64) else {
                continue;
            };
            let bound = |name: &str| rules.get(name).and_then(serde_json::Value::as_i64);
            let (min, max) = (
                bound("minimum").unwrap_or(i64::MIN),
                bound("maximum").unwrap_or(i64::MAX),
            );
            if !(min..=max).contains(&value) {
                return Err(OutOfRange {
                    field: field.clone(),
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_every_number_has_one() {
        assert_eq!(Policy::default().check(), Ok(()));
        let schema = schemars::schema_for!(Policy);
        for (field, rules) in schema.get("properties").unwrap().as_object().unwrap() {
            let bounded = rules.get("maximum").or(rules.get("maxLength")).is_some();
            assert!(
                bounded && rules.get("default").is_some(),
                "{field} lacks a range or a default"
            );
        }
    }

    #[test]
    fn a_number_out_of_range_is_named_with_its_range() {
        let policy = Policy {
            idle_threshold_percent: 50,
            ..Policy::default()
        };
        let refused = policy.check().unwrap_err().to_string();
        assert_eq!(refused, "policy.idleThresholdPercent is 50, allowed is 15 to 25");
    }
}

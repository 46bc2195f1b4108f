//! Every tunable number: unit, default, range and why. One struct for the GpuPool object, the scheduler and the
//! simulator; the numbers of the load stream stand in `policy/load.rs`. A field whose range is broken is refused by the
//! API server (the schema carries the range) and by [`Policy::check`] where no API server stands in between.

mod load;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use load::*;

/// Largest request body the extender reads, bytes. A filter call with 5,000 node names is 85 kB; a caller that
/// sends whole Node objects of 5,000 nodes stays under this too.
pub const EXTENDER_BODY_LIMIT_BYTES: usize = 64 << 20;
/// Longest a write to the API server may take, seconds: less than the extender's `httpTimeout` of 5 s, so that the
/// scheduler hears of a failed bind from us.
pub const WRITE_TIMEOUT_SECONDS: u64 = 4;
/// Cost tables are made anew when this share of the expected demand is another than they were made for: a mix that
/// is known to two percent places as well as one known exactly (e2e/simulator/RESULTS.md), and once much was seen
/// single arrivals do not move it.
pub const MIX_MOVED: f64 = 0.02;
/// Nodes whose cost is within this of the best are offered to a pod with soft preferences of its own, in
/// millionths of a memory slice: a twentieth of a slice is less than any placement of one slice differs by.
pub const HAIR_COST: i64 = 50_000;
/// After a kubelet refused a pod, the next Binding to its node waits this long, milliseconds. Controllers replace a
/// refused pod at once and without back-off; a kubelet whose agent just died takes about a second to say that it
/// has no devices, and until then it refuses every replacement. Binding, pause and write together stay under the
/// extender's `httpTimeout`.
pub const REFUSAL_PAUSE_MILLISECONDS: u64 = 900;
/// A running pod is moved only to let in a request of at least this many memory slices, half a GPU of 80 GB, and one
/// that is larger than what moves. The moves that smaller requests would cost bring no utilisation, and those of equals
/// a tenth of a point (e2e/simulator/RESULTS.md).
pub const MOVES_FROM_SLICES: u8 = 4;
/// Kinds of request whose order of nodes is kept between decisions: the profiles of a board, each with a handful of
/// amounts of CPU. Each costs about 100 bytes a node, and one that is not kept a look at every node.
pub const STANDINGS_KEPT: usize = 64;
/// What whole GPUs were asked with (number, CPU, models) is remembered for this many kinds; rarer ones are noise.
pub const ASKS_KEPT: usize = 64;
/// CPU of a request counts in steps of this, thousandths of a core, rounded up: requests that differ by less than a
/// core are one kind, and their order of nodes is kept once.
pub const CPU_STEP_MILLI: u64 = 1_000;
/// Memory slices of a whole GPU in MIG's unit: what a GPU without MIG counts for beside slices.
pub const SLICES_OF_A_GPU: i64 = 8;
/// A memory slice that a node's CPU can no longer serve costs as much as this many that are fragments. Whole GPUs
/// have a weight of their own (`decide::pack`), flat from 1 to 3 on 17 traces; for slices it has not been measured.
pub const STRANDED_SLICE_WEIGHT: i64 = 1;
/// What it costs to put a slice on a board that other demand cannot do without, in fragments, where all demand is of
/// that kind. As for models of whole GPUs, where anything from 0.3 to 10 mends what is lost without it.
pub const BOARD_PRESSURE_WEIGHT: f64 = 2.0;
/// What the first pod in a rack costs, millionths of a memory slice: half of what a free slice costs by default, so
/// that a free rack is kept whole for a gang and no better fit is passed over for it.
pub const FREE_RACK_COST: i64 = 100_000;
/// Bytes a parameter of a model takes: FP16 and BF16, in which models are served. FP8 takes 1, FP32 4; a pod that
/// knows better says how much memory it needs.
pub const MODEL_BYTES_PER_PARAMETER: u64 = 2;
/// Memory of a served model over that of its weights, percent: key-value cache, activations and the CUDA context.
/// 105 holds the weights and little else; long contexts and large batches need 150 and more.
pub const MODEL_MEMORY_PERCENT: u64 = 120;
/// Share of the memory in a profile's name that a slice has at least, percent, for boards whose exact figures no
/// source tells. NVIDIA rounds up: of the figures we have, 1g.18gb (16,384 MiB) is furthest off, with 89.
pub const NAMED_MEMORY_PERCENT: u64 = 88;
/// Whole GPUs and shares (`decide::pack`): weight of room left on the node. 0.05 to 0.2 measured flat, as all of
/// these around their values: less than a tenth of a percent of the GPUs of openb (e2e/simulator/RESULTS.md).
pub const PACK_TIGHT_WEIGHT: f64 = 0.1;
/// The same: weight of GPUs stranded by missing CPU; 1 to 3 is flat.
pub const PACK_STRANDED_WEIGHT: f64 = 2.0;
/// The same: weight of using a model that others cannot do without; 2 to 3 is flat.
pub const PACK_MODEL_WEIGHT: f64 = 2.0;
/// The same: weight of what a share wastes of its gap; anything from 10 up is flat.
pub const PACK_GAP_WEIGHT: f64 = 10.0;
/// Share of a workload's pods that its typical requests cover; rarer ones are noise (FGD takes the same).
pub const PACK_COVERED: f64 = 0.95;
/// Most of a node's score that may come from the forecast, percent, whatever a policy says: the article's limit.
pub const FORECAST_MOST_PERCENT: u32 = 40;
/// Threads of the scheduler service that read, write and answer; what takes milliseconds goes to others. Its work is
/// many small messages, and what it saves by a second thread is less than what waking it costs, which the API server
/// and kube-scheduler then lack: 271 nominated pods a second with one, 248 with two (`migpool-bench`, 4 rounds, two
/// cores that everything shares). By its CPU for a pod (0.66 ms) one would do for some
/// 1,500 a second.
pub const SCHEDULER_THREADS: usize = 1;
/// Bindings that are written at once. Each needs a connection of its own to the API server, and hundreds of TLS
/// handshakes at once cost it more than the writes: it answered none of 500 within 3 s (5,000 nodes, two cores).
pub const BINDINGS_AT_ONCE: usize = 16;
/// Pods are nominated in clusters of at least so many nodes. A nomination is one more write of the pod, by estimate as
/// dear as a look at some 300 nodes. At 1,000 nodes it gave 385 pods a second for 180 without, at 5,000 258 for 61
/// (`migpool-bench --nodes N`, two cores that everything shares).
pub const NOMINATE_FROM_NODES: usize = 1_000;
/// Nominations that are written at once; more would take the API server's time from the scheduler they are for.
pub const NOMINATIONS_AT_ONCE: usize = 8;
/// Pods that have a place ahead of kube-scheduler at any time, about: at 250 writes a second the last of them is
/// nominated after 16 s, long before what is held for it expires (`reservation_seconds`).
pub const PLANNED_AHEAD: usize = 4_096;
/// Nominations in one turn; then what has come since is planned too.
pub const NOMINATIONS_PER_TURN: usize = 512;
/// Kube-scheduler is held back while fewer nominations than this are ready for it and more are being written. Its own
/// watch of pods runs up to some 80 nominations behind ours: of 2,000 pods at 5,000 nodes it looked at every node for
/// 58 with a lead of 32, for 2 to 9 with 96.
pub const NOMINATION_LEAD: usize = 96;
/// It is held back at most for this long for each node, microseconds: four times what it takes to look at a node
/// (5,000 nodes in 24 ms on two cores). A pod without a nomination costs it a look at every node, on every core, at
/// a time when the API server needs them.
pub const HELD_BACK_MICROSECONDS_PER_NODE: u64 = 20;
/// Rest between turns that had nothing to nominate, milliseconds: an idle scheduler comes to a new pod at once and
/// needs no nomination.
pub const NOMINATION_TURN_MILLISECONDS: u64 = 100;
/// A pod whose nomination came to nothing is not nominated again for this long, and nobody to a node that
/// kube-scheduler did not offer to a pod nominated there, seconds: as long as its own longest back-off (10 s) and
/// well under the five minutes after which it tries unschedulable pods again.
pub const NOMINATION_REST_SECONDS: u64 = 30;
/// One pod gets at most one event of ours in this time, seconds.
pub const EVENT_SPACING_SECONDS: u64 = 60;
/// How often the leader looks at what is pending, seconds.
pub const LEADER_TURN_SECONDS: u64 = 1;

/// A forecast is right when it is off by no more than this share of capacity: 10 points, the step in which pools are
/// planned.
pub const FORECAST_RIGHT_WITHIN: f64 = 0.10;
/// How many of the last forecasts are judged: a day of quarter hours. The gate stays closed until as many are there.
pub const FORECAST_JUDGED: usize = 96;
/// Bins that must have been read before there is a forecast: an hour.
pub const FORECAST_LEAST_BINS: usize = 4;
/// Bins in a row that may be missing and are carried forward; after more there is no forecast. Half an hour: an
/// agent restarts in a minute, and half an hour later its node may be anything.
pub const FORECAST_CARRIED_BINS: usize = 2;
/// Weight of a member is exp(-this * its loss in mean losses). From 0.3 to 10 changes no set by half a percent: what
/// tells is how fast is forgotten.
pub const FORECAST_HEDGE_RATE: f64 = 1.0;
/// What is left of a member's loss on its own series a bin later. Half of it in a week: members differ by a few
/// percent, and fewer rounds cannot tell them apart (0.99 costs 3 % on Philly).
pub const FORECAST_OWN_DECAY: f64 = 0.999;
/// What is left of a member's loss on the pool a bin later. Half of it in 45 minutes: many series tell quickly.
pub const FORECAST_POOL_DECAY: f64 = 0.8;
/// How many rounds of a series' own the pool's evidence is worth. It rules a young series, and of one that is older
/// than a week a third.
pub const FORECAST_POOL_ROUNDS: f64 = 400.0;
/// What is left of the loss of a setting of one method a bin later: half of it in 6 hours.
pub const FORECAST_CHOICE_DECAY: f64 = 0.97;
/// Ridges of the autoregression, as multiples of the mean square of a lag in its window, so that a quiet series is fitted
/// as a lively one is: from a wave, which is followed by the weakest, to noise.
pub const FORECAST_RIDGES: [f64; 4] = [0.001, 0.1, 1.0, 10.0];
/// The upper quantile of a forecast.
pub const FORECAST_UPPER_LEVEL: f64 = 0.9;
/// Step of the level of the upper quantile after each truth: 28 misses in a row move it from end to end.
pub const FORECAST_UPPER_STEP: f64 = 0.01;
/// Step of the level for the whole pool, times the mean of its series.
pub const FORECAST_UPPER_POOL_STEP: f64 = 0.05;
/// Most that the pool moves the level, up to the largest of the residuals kept.
pub const FORECAST_SHIFT_MOST: f64 = 0.1;
/// Least level: a quarter of the truths above would be no upper quantile.
pub const FORECAST_LEVEL_LEAST: f64 = 0.75;
/// Most: the largest of the residuals kept.
pub const FORECAST_LEVEL_MOST: f64 = 0.995;
/// What is left of the spread of residuals a bin later: half of it in 45 minutes.
pub const FORECAST_SPREAD_DECAY: f64 = 0.8;
/// The spread before the first residual, share of capacity.
pub const FORECAST_SPREAD_FIRST: f64 = 0.02;
/// Least spread: a load that stood still may move by this much unnoticed.
pub const FORECAST_SPREAD_LEAST: f64 = 0.002;
/// Truths this near to a forecast met it, share of capacity: half of a tenth of a point.
pub const FORECAST_TIE: f64 = 0.0005;
/// Members that are trained are trained again after this many bins: 6 hours.
pub const FORECAST_RETRAIN_BINS: usize = 24;
/// Cells of the LSTM: small, for a day gives it 84 examples. Not tuned.
pub const LSTM_HIDDEN: usize = 16;
/// Bins it sees: three hours.
pub const LSTM_LAGS: usize = 12;
/// Passes over the day: what 60 milliseconds on one core allow. Not tuned.
pub const LSTM_EPOCHS: usize = 30;
/// Learning rate of Adam, high for so few passes.
pub const LSTM_RATE: f64 = 0.01;
/// Seed of its first weights: the same history gives the same forecasts.
pub const LSTM_SEED: u64 = 15;
/// Static behaviour ends below this part of the failure rate at which it began: 15 % where that is 20 %.
pub const FALLBACK_ENDS_AT: f64 = 0.75;
/// Rounds in a row that must be so before it ends.
pub const FALLBACK_QUIET_ROUNDS: u32 = 24;

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

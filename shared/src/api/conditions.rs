//! Condition types and reasons as constants, and the one way to set a condition: its transition time moves only
//! when its status does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// GpuNode: the agent talks to the driver and serves the kubelet. GpuPool: the pool is being placed.
pub const READY: &str = "Ready";
/// GpuNode: another owner of the node's GPUs was found, so we touch nothing.
pub const STOOD_BACK: &str = "StoodBack";

/// All is well.
pub const REASON_SERVING: &str = "Serving";
/// No NVIDIA driver on the node yet.
pub const REASON_NO_DRIVER: &str = "NoDriver";
/// NVML does not answer.
pub const REASON_DRIVER_FAILED: &str = "DriverFailed";
/// The kubelet has not taken our registration yet.
pub const REASON_NOT_REGISTERED: &str = "NotRegistered";
/// No other owner was found.
pub const REASON_SOLE_OWNER: &str = "SoleOwner";
/// NVIDIA's MIG manager owns the layout.
pub const REASON_MIG_MANAGER: &str = "MigManager";
/// Another device plugin serves the same resources.
pub const REASON_OTHER_PLUGIN: &str = "OtherPlugin";
/// A DRA driver serves the same GPUs.
pub const REASON_DRA_DRIVER: &str = "DraDriver";
/// The spec says something we cannot do; the message names the field.
pub const REASON_BAD_SPEC: &str = "BadSpec";

/// Sets a condition in a list keyed by type. `now` becomes its transition time only if the status changed.
/// A message is always written: some API servers refuse an empty one.
pub fn set(
    list: &mut Vec<Condition>,
    kind: &str,
    on: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Time,
) {
    let status = if on { "True" } else { "False" };
    let message = if message.is_empty() { reason } else { message };
    let old = list
        .iter()
        .position(|condition| condition.type_ == kind)
        .map(|at| list.remove(at));
    let since = old
        .filter(|old| old.status == status)
        .map_or(now, |old| old.last_transition_time);
    list.push(Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since,
    });
    list.sort_by(|a, b| a.type_.cmp(&b.type_));
}

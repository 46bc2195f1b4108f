//! What a GpuPool tells: which nodes it has, how freely migpool acts on them, and the numbers. A policy that is
//! out of range (an API server that did not check) is reported and replaced by the defaults, never acted on.

use std::collections::BTreeMap;

use shared::api::GpuPool;
use shared::api::gpu_pool::Mode;
use shared::policy::Policy;

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPart {
    /// Name.
    pub name: String,
    /// Labels that its nodes have.
    pub selector: BTreeMap<String, String>,
    /// How freely migpool acts.
    pub mode: Mode,
    /// The numbers, all in range.
    pub policy: Policy,
    /// What is wrong with its spec.
    pub problem: Option<String>,
    /// The object, for its status to be written over the version that was read.
    pub object: GpuPool,
}

impl PoolPart {
    /// Reads a GpuPool.
    #[must_use]
    pub fn of(pool: GpuPool) -> Self {
        let problem = pool
            .spec
            .policy
            .check()
            .err()
            .map(|bad| format!("spec.{bad}; the default is used until it is corrected"));
        let policy = if problem.is_some() {
            Policy::default()
        } else {
            pool.spec.policy.clone()
        };
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            selector: pool.spec.node_selector.clone(),
            mode: pool.spec.mode,
            policy,
            problem,
            object: pool,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(spec: serde_json::Value) -> PoolPart {
        let object = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default"}, "spec": spec});
        PoolPart::of(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_pool_is_read_with_its_defaults() {
        let pool = part(json!({}));
        assert_eq!(
            (pool.name.as_str(), pool.mode, pool.problem),
            ("default", Mode::Dynamic, None)
        );
        assert_eq!(pool.policy, Policy::default());
        let pool =
            part(json!({"mode": "Static", "nodeSelector": {"a": "b"}, "policy": {"reservationSeconds": 30}}));
        assert_eq!(
            (
                pool.mode,
                pool.policy.reservation_seconds,
                pool.selector["a"].as_str()
            ),
            (Mode::Static, 30, "b")
        );
    }

    #[test]
    fn a_policy_out_of_range_is_named_and_not_acted_on() {
        let pool = part(json!({"policy": {"reservationSeconds": 5_000, "snapshotTtlSeconds": 30}}));
        assert_eq!(pool.policy, Policy::default());
        assert_eq!(
            pool.problem.unwrap(),
            "spec.policy.reservationSeconds is 5000, allowed is 5 to 600; the default is used until it is corrected"
        );
    }
}

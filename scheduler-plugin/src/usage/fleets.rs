//! The forecasts of all pools, and what follows from them for their nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::decide::forecast::fleet::{Fleet, fill};
use shared::decide::forecast::minutes::Minutes;
use shared::policy::{LOAD_NODES_AT_ONCE, LOAD_STALE_MINUTES, Policy};

use super::loads::Load;
use crate::index::Index;
use crate::index::expected::Expected;
use crate::watch::gpu_nodes::GpuNodePart;

/// The forecasters of all pools.
#[derive(Default)]
pub struct Fleets {
    pools: BTreeMap<String, Fleet>,
    /// Pools whose nodes are being called for the first time, and since when (seconds since 1970).
    gathering: BTreeMap<String, i64>,
}

/// The nodes of a pool and what they told.
#[derive(Debug, Default, PartialEq)]
pub struct Members {
    /// The numbers of the pool.
    pub policy: Policy,
    /// By node: its minutes, where it told any and has settled.
    pub nodes: BTreeMap<Arc<str>, Option<Arc<Minutes>>>,
    /// Some of them are called and have not settled.
    pub gathering: bool,
}

/// The nodes with GPUs by their pools; those of no pool are left out. Where load is not `followed` nobody is waited for.
/// The index is looked at for a few nodes at a time: whoever asks where a pod goes waits for it meanwhile.
#[must_use]
pub fn group(index: &Index, loads: &BTreeMap<Arc<str>, Load>, followed: bool) -> BTreeMap<String, Members> {
    let empty = |policy: &Policy| Members {
        policy: policy.clone(),
        ..Members::default()
    };
    let (mut groups, any_tells) = index.read(|books| {
        let pools = books.pools.values();
        let groups: BTreeMap<String, Members> = pools
            .map(|pool| (pool.name.clone(), empty(&pool.policy)))
            .collect();
        (groups, books.gpu_nodes().any(|(_, part)| tells(part)))
    });
    if loads.is_empty() && !any_tells {
        return groups;
    }
    let view = index.view();
    let names: Vec<&Arc<str>> = view.snapshot.nodes.keys().collect();
    for some in names.chunks(LOAD_NODES_AT_ONCE) {
        index.read(|books| {
            for name in some {
                let (part, pool) = (books.gpu_node(name), books.pool_of(name));
                let members = pool.and_then(|pool| groups.get_mut(&pool.name));
                if let (Some(part), Some(members)) = (part, members) {
                    members.add(name, loads.get(*name), followed && tells(part));
                }
            }
        });
    }
    groups
}

/// Whether the agent of a node says where it tells load.
fn tells(part: &GpuNodePart) -> bool {
    matches!(part.endpoint, Some(Ok(_)))
}

impl Fleets {
    /// Forecasts what has come due at `now` (seconds since 1970), and says what is expected. A pool whose nodes are
    /// being called for the first time waits for all of them, at most as long as a node may be silent: nodes that are
    /// taken in together learn from each other's past.
    pub fn turn(&mut self, pools: &BTreeMap<String, Members>, now: i64) -> Expected {
        self.gathering.retain(|name, _| pools.contains_key(name));
        self.pools.retain(|name, fleet| {
            let members = pools.get(name);
            members.is_some_and(|members| forecast_alike(fleet.policy(), &members.policy))
        });
        let mut expected = Expected::default();
        for (name, members) in pools {
            if !self.pools.contains_key(name) && members.gathering {
                let since = *self.gathering.entry(name.clone()).or_insert(now);
                if now - since < LOAD_STALE_MINUTES * 60 {
                    continue;
                }
            }
            self.gathering.remove(name);
            let loads = members.remembered(now);
            if loads.is_empty() {
                self.pools.remove(name);
                expected.reports.insert(name.clone(), None);
                continue;
            }
            let fleet = self.pools.entry(name.clone());
            let fleet = fleet.or_insert_with(|| Fleet::new(members.policy.clone()));
            fleet.advance(&loads, now);
            let (mut outlooks, report) = fleet.forecasts(&loads, now);
            fill(&mut outlooks, members.nodes.keys().map(|node| &**node));
            expected.outlooks.extend(outlooks);
            expected.reports.insert(name.clone(), Some(report));
        }
        expected
    }
}

impl Members {
    /// Adds a node, and what it told.
    fn add(&mut self, name: &Arc<str>, load: Option<&Load>, tells: bool) {
        self.gathering |= tells && load.is_none_or(|load| !load.settled);
        let minutes = load
            .filter(|load| load.settled)
            .map(|load| Arc::clone(&load.minutes));
        let minutes = minutes.filter(|minutes| minutes.last().is_some());
        self.nodes.insert(Arc::clone(name), minutes);
    }

    /// What its nodes told in the time that is remembered; before that is as never.
    fn remembered(&self, now: i64) -> BTreeMap<&str, &Minutes> {
        let told = self.nodes.iter().filter_map(|(name, minutes)| {
            let minutes = minutes.as_deref()?;
            minutes.is_of_use(now).then_some((&**name, minutes))
        });
        told.collect()
    }
}

/// Whether forecasts by these policies are the same.
fn forecast_alike(one: &Policy, other: &Policy) -> bool {
    let numbers = |policy: &Policy| {
        [
            policy.forecast_horizon_minutes,
            policy.forecast_window_hours,
            policy.accuracy_gate_percent,
            policy.fallback_failure_rate_percent,
        ]
    };
    numbers(one) == numbers(other)
}

#[cfg(test)]
mod tests;

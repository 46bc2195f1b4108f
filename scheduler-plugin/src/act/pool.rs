//! The numbers of each pool, counted node by node and kept until the node changes, and how its load is forecast;
//! written to `GpuPool.status` and shown as metrics.

mod forecast;
mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared::api::GpuPool;
use shared::api::conditions::{self, READY, REASON_BAD_SPEC, REASON_SERVING};
use shared::api::gpu_pool::GpuPoolStatus;
use shared::decide::forecast::fleet::Report;

use self::numbers::Numbers;
use crate::clock::Clock;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::watch::gpu_pools::PoolPart;
use crate::writer::{WriteError, Writer};

/// The numbers of every pool.
#[derive(Debug, Default)]
pub struct PoolNumbers {
    nodes: BTreeMap<String, Counted>,
    /// By pool.
    pools: BTreeMap<String, Numbers>,
    /// Of all nodes, in a pool or not.
    all: Numbers,
}

/// A node as it was counted.
#[derive(Debug)]
struct Counted {
    version: u64,
    pool: Option<String>,
    numbers: Numbers,
}

impl PoolNumbers {
    /// Counts what changed, and shows the sum over all pools as metrics.
    pub fn count(&mut self, index: &Index, metrics: &Metrics) {
        let view = index.view();
        let pools = index.read(|books| books.pools.keys().cloned().collect::<BTreeSet<_>>());
        self.follow(&pools);
        let is_gone = |name: &&String| !view.snapshot.nodes.contains_key(name.as_str());
        let gone: Vec<String> = self.nodes.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|name| self.put(name, None));
        for (name, node) in &view.snapshot.nodes {
            let known = self.nodes.get(&**name);
            // a node that changes its pool is made anew too
            if known.is_none_or(|known| known.version != node.version) {
                let pool = index.read(|books| books.pool_of(name).map(|pool| pool.name.clone()));
                let counted = Counted {
                    version: node.version,
                    // a pool that came just now is not counted yet; its nodes are made anew for it
                    pool: pool.filter(|pool| self.pools.contains_key(pool)),
                    numbers: Numbers::of_node(node, &view.tables),
                };
                self.put(name, Some(counted));
            }
        }
        self.all.show(metrics);
    }

    /// Counts these pools and no others. What was in one that is gone is in none, so that it is not taken from a later
    /// pool of the same name.
    fn follow(&mut self, pools: &BTreeSet<String>) {
        self.pools.retain(|name, _| pools.contains(name));
        for counted in self.nodes.values_mut() {
            counted.pool = counted.pool.take().filter(|pool| self.pools.contains_key(pool));
        }
        for name in pools {
            self.pools.entry(name.clone()).or_default();
        }
    }

    /// Puts a node's numbers in place of those it had in the sums.
    fn put(&mut self, name: &str, counted: Option<Counted>) {
        if let Some(before) = self.nodes.remove(name) {
            self.sums(before.pool.as_deref())
                .for_each(|sum| sum.take(&before.numbers));
        }
        if let Some(now) = counted {
            self.sums(now.pool.as_deref())
                .for_each(|sum| sum.add(&now.numbers));
            self.nodes.insert(name.to_owned(), now);
        }
    }

    /// The sums that a node of a pool is part of.
    fn sums(&mut self, pool: Option<&str>) -> impl Iterator<Item = &mut Numbers> {
        let pool = pool.and_then(|pool| self.pools.get_mut(pool));
        std::iter::once(&mut self.all).chain(pool)
    }

    /// Writes the status of each pool whose numbers moved.
    pub async fn turn(&mut self, index: &Index, writer: &Writer, clock: &Clock) {
        let pools: Vec<(PoolPart, Option<Option<Report>>)> = index.read(|books| {
            let report = |pool: &PoolPart| books.expected.reports.get(&pool.name).copied();
            let pools = books.pools.values();
            pools.map(|pool| (pool.clone(), report(pool))).collect()
        });
        for (pool, report) in pools {
            let Some(numbers) = self.pools.get(&pool.name) else {
                continue;
            };
            let Some(object) = with_status(&pool, numbers, report, Time(clock.calendar())) else {
                continue;
            };
            match writer.pool_status(&object).await {
                Ok(()) => {}
                // somebody else wrote in between: the watch shows it, and the next turn counts anew
                Err(WriteError::Refused {
                    code: 404 | 409,
                    message,
                }) => tracing::debug!(pool = pool.name, message, "status not written"),
                Err(error) => tracing::warn!(pool = pool.name, %error, "status not written"),
            }
        }
    }
}

/// The pool with its status as counted; `None` where that is what it says already. Before it is known how its forecasts
/// stand, what was written of them stays.
fn with_status(
    pool: &PoolPart,
    numbers: &Numbers,
    report: Option<Option<Report>>,
    now: Time,
) -> Option<GpuPool> {
    let mut object = pool.object.clone();
    let before = object.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone();
    let generation = object.metadata.generation;
    let (on, reason, message) = match &pool.problem {
        Some(problem) => (false, REASON_BAD_SPEC, problem.as_str()),
        None => (true, REASON_SERVING, "pods are placed by this spec"),
    };
    conditions::set(&mut conditions, READY, on, reason, message, generation, now);
    let status = GpuPoolStatus {
        forecast: match report {
            Some(report) => report.map(|report| forecast::status(&report, &pool.policy)),
            None => before.forecast.clone(),
        },
        ..numbers.status(generation, conditions)
    };
    (status != before).then(|| {
        object.status = Some(status);
        object
    })
}

#[cfg(test)]
mod tests {
    use shared::decide::forecast::gate::{Standing, Verdict};
    use shared::decide::testing::{node, owner};
    use shared::mig::{Slice, Use};

    use super::numbers::testing::tables;
    use super::*;

    fn pool() -> PoolPart {
        let object = serde_json::json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool",
            "metadata": {"name": "default", "generation": 3}, "spec": {}});
        PoolPart::of(serde_json::from_value(object).unwrap())
    }

    /// A node with so many GPUs, of which so many have half a GPU given away.
    fn counted(pool: Option<&str>, gpus: u32, used: usize) -> Counted {
        let mut a = node("a", "H100-80GB", gpus);
        for gpu in &mut a.gpus[..used] {
            let place = "3g.40gb:4".parse().unwrap();
            let used = Use::Allocated;
            gpu.put(Slice { place, used }, Some(owner("p")));
        }
        Counted {
            version: 0,
            pool: pool.map(ToOwned::to_owned),
            numbers: Numbers::of_node(&a, &tables()),
        }
    }

    fn pools(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// A sum says what a fresh one over these nodes does.
    fn is_sum_of(sum: &Numbers, nodes: &[Counted]) {
        let mut fresh = Numbers::default();
        nodes.iter().for_each(|counted| fresh.add(&counted.numbers));
        assert_eq!(sum.status(None, Vec::new()), fresh.status(None, Vec::new()));
    }

    #[test]
    fn the_sums_follow_nodes_that_change_move_and_go() {
        let mut sums = PoolNumbers::default();
        sums.follow(&pools(&["one", "other"]));
        sums.put("a", Some(counted(Some("one"), 2, 1)));
        sums.put("b", Some(counted(Some("one"), 3, 2)));
        sums.put("c", Some(counted(None, 1, 1)));
        is_sum_of(&sums.pools["one"], &[counted(None, 2, 1), counted(None, 3, 2)]);
        sums.put("a", Some(counted(Some("other"), 2, 0)));
        sums.put("b", None);
        is_sum_of(&sums.pools["one"], &[]);
        is_sum_of(&sums.pools["other"], &[counted(None, 2, 0)]);
        is_sum_of(&sums.all, &[counted(None, 2, 0), counted(None, 1, 1)]);
    }

    #[test]
    fn a_pool_that_goes_and_comes_back_starts_from_nothing() {
        let mut sums = PoolNumbers::default();
        sums.follow(&pools(&["one"]));
        sums.put("a", Some(counted(Some("one"), 2, 1)));
        sums.follow(&pools(&[]));
        assert!(sums.pools.is_empty());
        sums.follow(&pools(&["one"]));
        is_sum_of(&sums.pools["one"], &[]);
        sums.put("a", Some(counted(Some("one"), 2, 2)));
        is_sum_of(&sums.pools["one"], &[counted(None, 2, 2)]);
        is_sum_of(&sums.all, &[counted(None, 2, 2)]);
    }

    #[test]
    fn a_status_is_written_only_when_it_says_something_new() {
        let numbers = Numbers::default();
        let now = || Time(jiff::Timestamp::from_second(1_000).unwrap());
        let written = with_status(&pool(), &numbers, None, now()).unwrap();
        let status = written.status.clone().unwrap();
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(
            (
                status.conditions[0].type_.as_str(),
                status.conditions[0].status.as_str()
            ),
            ("Ready", "True")
        );
        let later = Time(jiff::Timestamp::from_second(2_000).unwrap());
        assert_eq!(with_status(&PoolPart::of(written), &numbers, None, later), None);
    }

    #[test]
    fn how_load_is_forecast_is_written_when_it_changes_and_taken_away_when_nobody_tells_any() {
        let now = || Time(jiff::Timestamp::UNIX_EPOCH);
        let numbers = Numbers::default();
        let write = |pool: &PoolPart, report| with_status(pool, &numbers, report, now()).map(PoolPart::of);
        let forecast = |pool: &PoolPart| pool.object.status.clone().unwrap().forecast;
        let report = |nodes, acting| Report {
            nodes,
            acting,
            standing: Standing::default(),
            verdict: Verdict::Act,
        };
        let told = write(&pool(), Some(Some(report(2, 2)))).unwrap();
        assert_eq!(forecast(&told).unwrap().acting, 2);
        assert_eq!(write(&told, Some(Some(report(2, 2)))), None);
        // a scheduler that has just started does not take away what the last one wrote
        assert_eq!(write(&told, None), None);
        let told = write(&told, Some(Some(report(2, 1)))).unwrap();
        assert_eq!(forecast(&told).unwrap().acting, 1);
        assert_eq!(forecast(&write(&told, Some(None)).unwrap()), None);
    }

    #[test]
    fn a_pool_with_a_wrong_number_says_so_in_its_condition() {
        let mut wrong = pool().object;
        wrong.spec.policy.reservation_seconds = 5_000;
        let written = with_status(
            &PoolPart::of(wrong),
            &Numbers::default(),
            None,
            Time(jiff::Timestamp::UNIX_EPOCH),
        )
        .unwrap();
        let ready = written.status.unwrap().conditions.remove(0);
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_str()),
            ("False", "BadSpec")
        );
        assert!(
            ready.message.contains("spec.policy.reservationSeconds is 5000"),
            "{}",
            ready.message
        );
    }
}

//! The numbers of each pool: how many GPUs and slices, what could still be cut, how fragmented the free room is.
//! Counted node by node and kept until the node changes; written to `GpuPool.status` and shown as metrics.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use shared::api::conditions::{self, READY, REASON_BAD_SPEC, REASON_SERVING};
use shared::api::gpu_node::Health;
use shared::api::{GpuPool, gpu_pool::GpuPoolStatus};
use shared::decide::score::Tables;
use shared::mig::layout::plain;
use shared::mig::{Profile, Use};
use shared::snapshot::{Gpu, Node, NodeState};

use crate::clock::Clock;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::watch::gpu_pools::PoolPart;
use crate::writer::{WriteError, Writer};

/// Numbers of some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Nodes.
    pub nodes: u32,
    /// GPUs by whether they take work: `ready`, `withheld`, `unhealthy`, `away`.
    pub gpus: BTreeMap<&'static str, u32>,
    /// Slices by profile and state.
    pub slices: BTreeMap<(Profile, &'static str), u32>,
    /// What could still be cut of each profile alone.
    pub free: BTreeMap<Profile, u32>,
    /// Free memory slices of GPUs that take work.
    pub free_slices: u32,
    /// How many of them the expected demand cannot use, in millionths.
    pub fragment: i64,
}

/// The numbers of every pool.
#[derive(Debug, Default)]
pub struct PoolNumbers {
    nodes: BTreeMap<String, Counted>,
    /// By pool.
    pools: BTreeMap<String, Numbers>,
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
        self.nodes
            .retain(|name, _| view.snapshot.nodes.contains_key(name.as_str()));
        for (name, node) in &view.snapshot.nodes {
            let known = self.nodes.get(&**name);
            // a node that changes its pool is made anew too
            if known.is_none_or(|known| known.version != node.version) {
                let pool = index.read(|books| books.pool_of(name).map(|pool| pool.name.clone()));
                let numbers = Numbers::of_node(node, &view.tables);
                self.nodes.insert(
                    name.to_string(),
                    Counted {
                        version: node.version,
                        pool,
                        numbers,
                    },
                );
            }
        }
        let pools = index.read(|books| books.pools.keys().cloned().collect::<Vec<_>>());
        self.pools = pools.into_iter().map(|name| (name, Numbers::default())).collect();
        let mut all = Numbers::default();
        for counted in self.nodes.values() {
            all.add(&counted.numbers);
            if let Some(pool) = counted.pool.as_ref().and_then(|pool| self.pools.get_mut(pool)) {
                pool.add(&counted.numbers);
            }
        }
        all.show(metrics);
    }

    /// Writes the status of each pool whose numbers moved.
    pub async fn turn(&mut self, index: &Index, writer: &Writer, clock: &Clock) {
        let pools: Vec<PoolPart> = index.read(|books| books.pools.values().cloned().collect());
        for pool in pools {
            let Some(numbers) = self.pools.get(&pool.name) else {
                continue;
            };
            let Some(object) = with_status(&pool, numbers, Time(clock.calendar())) else {
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

/// The pool with its status as counted; `None` where that is what it says already.
fn with_status(pool: &PoolPart, numbers: &Numbers, now: Time) -> Option<GpuPool> {
    let mut object = pool.object.clone();
    let before = object.status.clone().unwrap_or_default();
    let mut conditions = before.conditions.clone();
    let generation = object.metadata.generation;
    let (on, reason, message) = match &pool.problem {
        Some(problem) => (false, REASON_BAD_SPEC, problem.as_str()),
        None => (true, REASON_SERVING, "pods are placed by this spec"),
    };
    conditions::set(&mut conditions, READY, on, reason, message, generation, now);
    let status = numbers.status(generation, conditions);
    (status != before).then(|| {
        object.status = Some(status);
        object
    })
}

impl Numbers {
    /// The numbers of one node.
    #[must_use]
    pub fn of_node(node: &Node, tables: &Tables) -> Self {
        let mut numbers = Self {
            nodes: 1,
            ..Self::default()
        };
        for gpu in &node.gpus {
            numbers.count_gpu(node, gpu, tables);
        }
        numbers
    }

    fn count_gpu(&mut self, node: &Node, gpu: &Gpu, tables: &Tables) {
        let state = match (node.state, gpu.withheld, gpu.health) {
            (NodeState::Away, _, _) => "away",
            (NodeState::Paused, _, _) | (_, true, _) => "withheld",
            (NodeState::Ready, false, Health::Healthy) => "ready",
            (NodeState::Ready, false, _) => "unhealthy",
        };
        *self.gpus.entry(state).or_default() += 1;
        for slice in gpu.layout().slices() {
            let used = match slice.used {
                Use::Idle => "idle",
                Use::Allocated => "allocated",
                Use::Blocked => "blocked",
            };
            *self.slices.entry((slice.place.profile, used)).or_default() += 1;
        }
        let Some(board) = gpu.board.as_ref().filter(|_| state == "ready") else {
            return;
        };
        let busy = gpu.layout().busy();
        for row in plain(board) {
            let count = u32::try_from(busy.count_free(board, row.profile)).unwrap_or(u32::MAX);
            *self.free.entry(row.profile).or_default() += count;
        }
        self.free_slices += u32::from(board.memory_slices) - gpu.busy_mask().count_ones();
        self.fragment += tables
            .of(board)
            .map_or(0, |table| table.fragment(gpu.busy_mask()));
    }

    fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        other
            .gpus
            .iter()
            .for_each(|(state, count)| *self.gpus.entry(state).or_default() += count);
        other
            .slices
            .iter()
            .for_each(|(key, count)| *self.slices.entry(*key).or_default() += count);
        other
            .free
            .iter()
            .for_each(|(profile, count)| *self.free.entry(*profile).or_default() += count);
        self.free_slices += other.free_slices;
        self.fragment += other.fragment;
    }

    fn fragmentation_percent(&self) -> u32 {
        let millionths = i64::from(self.free_slices) * 1_000_000;
        if millionths == 0 {
            0
        } else {
            u32::try_from(self.fragment * 100 / millionths)
                .unwrap_or(0)
                .min(100)
        }
    }

    fn status(
        &self,
        generation: Option<i64>,
        conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    ) -> GpuPoolStatus {
        let allocated = self.slices.iter().filter(|((_, state), _)| *state == "allocated");
        let slices: BTreeMap<String, u32> = allocated
            .map(|((profile, _), count)| (profile.to_string(), *count))
            .collect();
        let free = self.free.iter().filter(|(_, count)| **count > 0);
        GpuPoolStatus {
            observed_generation: generation,
            nodes: self.nodes,
            gpus: self.gpus.values().sum(),
            allocated: slices.values().sum(),
            slices,
            free: free
                .map(|(profile, count)| format!("{count}x{profile}"))
                .collect::<Vec<_>>()
                .join(" "),
            fragmentation_percent: self.fragmentation_percent(),
            conditions,
        }
    }

    fn show(&self, metrics: &Metrics) {
        for state in ["ready", "withheld", "unhealthy", "away"] {
            metrics.gpus(state, self.gpus.get(state).copied().unwrap_or(0) as usize);
        }
        let names: Vec<(String, &'static str, usize)> = self
            .slices
            .iter()
            .map(|((profile, state), count)| (profile.to_string(), *state, *count as usize))
            .collect();
        metrics.slices(
            names
                .iter()
                .map(|(profile, state, count)| (profile.as_str(), *state, *count)),
        );
        let free: Vec<(String, usize)> = self
            .free
            .iter()
            .map(|(profile, count)| (profile.to_string(), *count as usize))
            .collect();
        metrics.free(free.iter().map(|(profile, count)| (profile.as_str(), *count)));
        metrics.fragmentation(self.fragmentation_percent());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::decide::score::Demand;
    use shared::decide::testing::{node, owner};
    use shared::mig::{Board, Slice};
    use shared::policy::Policy;

    use super::*;

    fn tables() -> Tables {
        Tables::new(
            [&Arc::new(Board::named("H100-80GB").unwrap().clone())],
            &Demand::default(),
            &Policy::default(),
        )
    }

    fn pool() -> PoolPart {
        let object = serde_json::json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool",
            "metadata": {"name": "default", "generation": 3}, "spec": {}});
        PoolPart::of(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_pool_says_what_its_nodes_have_and_what_could_be_cut() {
        let mut a = node("a", "H100-80GB", 2);
        for (place, used) in [("3g.40gb:4", Use::Allocated), ("1g.10gb:0", Use::Idle)] {
            a.gpus[0].put(
                Slice {
                    place: place.parse().unwrap(),
                    used,
                },
                (used == Use::Allocated).then(|| owner("p")),
            );
        }
        a.gpus[1].withheld = true;
        let numbers = Numbers::of_node(&a, &tables());
        let status = numbers.status(Some(3), Vec::new());
        assert_eq!((status.nodes, status.gpus, status.allocated), (1, 2, 1));
        assert_eq!(status.slices, [("3g.40gb".to_owned(), 1)].into());
        assert_eq!(status.free, "4x1g.10gb 2x1g.20gb 2x2g.20gb 1x3g.40gb 1x4g.40gb");
        assert_eq!(numbers.free_slices, 4);
        assert_eq!((numbers.gpus["ready"], numbers.gpus["withheld"]), (1, 1));
    }

    #[test]
    fn an_empty_pool_is_not_fragmented_and_a_full_one_neither() {
        assert_eq!(Numbers::default().fragmentation_percent(), 0);
        let mut a = node("a", "H100-80GB", 1);
        a.gpus[0].put(
            Slice {
                place: "7g.80gb:0".parse().unwrap(),
                used: Use::Allocated,
            },
            None,
        );
        assert_eq!(Numbers::of_node(&a, &tables()).fragmentation_percent(), 0);
    }

    #[test]
    fn a_status_is_written_only_when_it_says_something_new() {
        let numbers = Numbers::default();
        let now = || Time(jiff::Timestamp::from_second(1_000).unwrap());
        let written = with_status(&pool(), &numbers, now()).unwrap();
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
        assert_eq!(with_status(&PoolPart::of(written), &numbers, later), None);
    }

    #[test]
    fn a_pool_with_a_wrong_number_says_so_in_its_condition() {
        let mut wrong = pool().object;
        wrong.spec.policy.reservation_seconds = 5_000;
        let written = with_status(
            &PoolPart::of(wrong),
            &Numbers::default(),
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

//! Numbers of some nodes: how many GPUs and slices, what could still be cut, how fragmented the free room is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use shared::api::gpu_node::Health;
use shared::api::gpu_pool::GpuPoolStatus;
use shared::decide::score::Tables;
use shared::mig::layout::plain;
use shared::mig::{Profile, Use};
use shared::snapshot::{Gpu, Node, NodeState};

use crate::metrics::Metrics;

/// Numbers of some nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// Nodes.
    nodes: u32,
    /// GPUs by whether they take work: `ready`, `withheld`, `unhealthy`, `away`.
    gpus: BTreeMap<&'static str, u32>,
    /// Slices by profile and state.
    slices: BTreeMap<(Profile, &'static str), u32>,
    /// What could still be cut of each profile alone.
    free: BTreeMap<Profile, u32>,
    /// Free memory slices of GPUs that take work.
    free_slices: u32,
    /// How many of them the expected demand cannot use, in millionths.
    fragment: i64,
}

impl Numbers {
    /// The numbers of one node.
    #[must_use]
    pub(super) fn of_node(node: &Node, tables: &Tables) -> Self {
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

    pub(super) fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        add_each(&mut self.gpus, &other.gpus);
        add_each(&mut self.slices, &other.slices);
        add_each(&mut self.free, &other.free);
        self.free_slices += other.free_slices;
        self.fragment += other.fragment;
    }

    /// Undoes [`Self::add`].
    pub(super) fn take(&mut self, other: &Self) {
        self.nodes -= other.nodes;
        take_each(&mut self.gpus, &other.gpus);
        take_each(&mut self.slices, &other.slices);
        take_each(&mut self.free, &other.free);
        self.free_slices -= other.free_slices;
        self.fragment -= other.fragment;
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

    /// What its numbers say of a pool; how its load is forecast is added by others.
    pub(super) fn status(&self, generation: Option<i64>, conditions: Vec<Condition>) -> GpuPoolStatus {
        let allocated = self
            .slices
            .iter()
            .filter(|((_, state), count)| *state == "allocated" && **count > 0);
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
            forecast: None,
            conditions,
        }
    }

    pub(super) fn show(&self, metrics: &Metrics) {
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

fn add_each<K: Ord + Copy>(sums: &mut BTreeMap<K, u32>, counts: &BTreeMap<K, u32>) {
    for (key, count) in counts {
        *sums.entry(*key).or_default() += count;
    }
}

fn take_each<K: Ord>(sums: &mut BTreeMap<K, u32>, counts: &BTreeMap<K, u32>) {
    for (key, count) in counts {
        if let Some(sum) = sums.get_mut(key) {
            *sum -= count;
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::sync::Arc;

    use shared::decide::score::{Demand, Tables};
    use shared::mig::Board;
    use shared::policy::Policy;

    /// Costs of a pool of H100s.
    pub(in super::super) fn tables() -> Tables {
        Tables::new(
            [&Arc::new(Board::named("H100-80GB").unwrap().clone())],
            &Demand::default(),
            &Policy::default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use shared::decide::testing::{node, owner};
    use shared::mig::Slice;

    use super::testing::tables;
    use super::*;

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
}

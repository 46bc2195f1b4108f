//! Everything the index knows: what the watches told, and what is reserved. Each change marks its node as stale;
//! [`super::fresh`] makes the snapshot of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serve::watch::Change;
use shared::decide::place::Standings;
use shared::decide::score::{Demand, Stock, Tables};
use shared::mig::Board;
use shared::policy::Policy;
use shared::snapshot::Snapshot;

use super::expected::Expected;
use super::legacies::Legacies;
use super::nominations::Nominations;
use super::queue::Queue;
use super::reservations::{Reservation, Reservations, State};
use super::usage::Usage;
use crate::watch::gpu_nodes::GpuNodePart;
use crate::watch::gpu_pools::PoolPart;
use crate::watch::nodes::NodePart;
use crate::watch::pods::PodPart;

/// What the index knows.
#[derive(Default)]
pub struct Books {
    /// Pods that matter, by UID.
    pub pods: BTreeMap<String, PodPart>,
    /// Pools, by name.
    pub pools: BTreeMap<String, PoolPart>,
    /// Places held.
    pub reservations: Reservations,
    /// What refused pods leave to their replacements.
    pub legacies: Legacies,
    /// How nominations ended.
    pub nominations: Nominations,
    /// Pods that wait for a node.
    pub queue: Queue,
    /// The load that is expected of nodes.
    pub expected: Expected,
    pub(super) nodes: BTreeMap<String, NodePart>,
    pub(super) gpu_nodes: BTreeMap<String, (GpuNodePart, Vec<Arc<Board>>)>,
    pub(super) pods_on: BTreeMap<String, BTreeSet<String>>,
    pub(super) usage: Usage,
    pub(super) stock: Stock,
    pub(super) boards: Vec<Arc<Board>>,
    pub(super) demand: Demand,
    pub(super) snapshot: Snapshot,
    pub(super) standings: Standings,
    pub(super) drift: BTreeMap<String, usize>,
    pub(super) tables: Arc<Tables>,
    pub(super) tables_stale: bool,
    pub(super) stale: BTreeSet<String>,
    pub(super) version: u64,
    endpoints: u64,
}

impl Books {
    /// The numbers that hold for the whole scheduler: those of the default pool, else of the first.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let pool = self
            .pools
            .get(shared::names::DEFAULT_POOL)
            .or_else(|| self.pools.values().next());
        pool.map(|pool| pool.policy.clone()).unwrap_or_default()
    }

    /// The pool of a node: the first by name that selects it.
    #[must_use]
    pub fn pool_of(&self, node: &str) -> Option<&PoolPart> {
        let node = self.nodes.get(node)?;
        self.pools.values().find(|pool| node.has_labels(&pool.selector))
    }

    /// How many nodes there are, with GPUs or without.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The labels of a node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePart> {
        self.nodes.get(name)
    }

    /// What agents tell, by node.
    pub fn gpu_nodes(&self) -> impl Iterator<Item = (&str, &GpuNodePart)> {
        self.gpu_nodes
            .iter()
            .map(|(name, (node, _))| (name.as_str(), node))
    }

    /// What the agent of this node tells.
    #[must_use]
    pub fn gpu_node(&self, node: &str) -> Option<&GpuNodePart> {
        self.gpu_nodes.get(node).map(|(node, _)| node)
    }

    /// Rises whenever a node with GPUs comes or goes, or tells its load elsewhere; seldom, while other news of nodes
    /// come with every pod.
    #[must_use]
    pub const fn endpoints(&self) -> u64 {
        self.endpoints
    }

    /// Places that annotations and agents disagree about.
    #[must_use]
    pub fn drift(&self) -> usize {
        self.drift.values().sum()
    }

    /// Takes in a change of Nodes.
    pub fn change_nodes(&mut self, change: Change<NodePart>) {
        match change {
            Change::Reset(all) => {
                self.nodes = all.into_iter().map(|node| (node.name.clone(), node)).collect();
                self.mark_all();
            }
            Change::Apply(node) => {
                if self.nodes.get(&node.name) != Some(&node) {
                    self.stale.insert(node.name.clone());
                    self.nodes.insert(node.name.clone(), node);
                }
            }
            Change::Delete(node) => {
                self.nodes.remove(&node.name);
                self.stale.insert(node.name);
            }
        }
    }

    /// Takes in a change of GpuNodes.
    pub fn change_gpu_nodes(&mut self, change: Change<GpuNodePart>) {
        match change {
            Change::Reset(all) => {
                self.mark_all();
                self.gpu_nodes.clear();
                self.endpoints += 1;
                all.into_iter().for_each(|node| self.put_gpu_node(node));
            }
            Change::Apply(node) => {
                if self
                    .gpu_nodes
                    .get(&node.name)
                    .is_none_or(|(known, _)| *known != node)
                {
                    self.put_gpu_node(node);
                }
            }
            Change::Delete(node) => {
                self.gpu_nodes.remove(&node.name);
                self.endpoints += 1;
                self.stale.insert(node.name);
            }
        }
    }

    fn put_gpu_node(&mut self, node: GpuNodePart) {
        let before = self.gpu_node(&node.name);
        if before.is_none_or(|before| before.endpoint != node.endpoint) {
            self.endpoints += 1;
        }
        let boards = node.boards.iter().map(|board| self.shared_board(board)).collect();
        self.stale.insert(node.name.clone());
        self.gpu_nodes.insert(node.name.clone(), (node, boards));
    }

    /// Equal boards are one value, so that a cost table is found by its address.
    fn shared_board(&mut self, board: &Board) -> Arc<Board> {
        if let Some(known) = self.boards.iter().find(|known| ***known == *board) {
            return Arc::clone(known);
        }
        let board = Arc::new(board.clone());
        self.boards.push(Arc::clone(&board));
        self.tables_stale = true;
        board
    }

    /// Takes in a change of GpuPools.
    pub fn change_pools(&mut self, change: Change<PoolPart>) {
        let rules = |pools: &BTreeMap<String, PoolPart>| -> Vec<_> {
            pools
                .values()
                .map(|pool| {
                    (
                        pool.name.clone(),
                        pool.selector.clone(),
                        pool.mode,
                        pool.policy.clone(),
                    )
                })
                .collect()
        };
        let before = rules(&self.pools);
        match change {
            Change::Reset(all) => {
                self.pools = all.into_iter().map(|pool| (pool.name.clone(), pool)).collect();
            }
            Change::Apply(pool) => drop(self.pools.insert(pool.name.clone(), pool)),
            Change::Delete(pool) => drop(self.pools.remove(&pool.name)),
        }
        if rules(&self.pools) != before {
            self.tables_stale = true;
            self.mark_all();
        }
    }

    /// Takes in a change of Pods.
    pub fn change_pods(&mut self, change: Change<PodPart>, now: Duration) {
        match change {
            Change::Reset(mut all) => {
                self.mark_all();
                let before = std::mem::take(&mut self.pods);
                self.pods_on.clear();
                self.usage = Usage::default();
                // the order of the list breaks ties, as it does for kube-scheduler
                all.sort_by_key(|pod| pod.created);
                for pod in all {
                    self.account(&pod);
                    if !pod.matters() {
                        self.release(&pod.pod.uid);
                        continue;
                    }
                    if !before.contains_key(&pod.pod.uid) {
                        self.count_arrival(&pod);
                    }
                    self.put_pod(pod, now);
                }
                let pods = &self.pods;
                self.queue.keep(|uid| pods.contains_key(uid));
                // a list may be a moment older than our own last write
                let ttl = Duration::from_secs(self.policy().reservation_seconds.into());
                self.reservations.remove_if(|held| {
                    !pods.contains_key(&held.pod.uid) && now.saturating_sub(held.since) > ttl
                });
            }
            Change::Apply(pod) => {
                if !self.pods.contains_key(&pod.pod.uid) {
                    self.count_arrival(&pod);
                }
                self.account(&pod);
                self.forget_pod(&pod.pod.uid);
                if pod.matters() {
                    self.put_pod(pod, now);
                } else {
                    self.queue.leave(&pod.pod.uid);
                    self.release(&pod.pod.uid);
                }
            }
            Change::Delete(pod) => {
                self.close_account(&pod.pod.uid);
                self.forget_pod(&pod.pod.uid);
                self.queue.leave(&pod.pod.uid);
                self.nominations.forget(&pod.pod.uid);
                self.legacies.forget(&pod.pod.uid);
                // what a refused pod leaves outlives it
                let left = self
                    .reservations
                    .get(&pod.pod.uid)
                    .is_some_and(|held| held.state == State::Left);
                if !left {
                    self.release(&pod.pod.uid);
                }
            }
        }
    }

    fn put_pod(&mut self, pod: PodPart, now: Duration) {
        let uid = pod.pod.uid.clone();
        if let Some(node) = pod.node.clone() {
            if pod.refused_and_replaceable {
                self.leave(&pod, now);
            } else {
                // from here on its annotation holds what the reservation held
                self.release(&uid);
                self.legacies.settle(&uid);
            }
            self.stale.insert(node.clone());
            self.pods_on.entry(node).or_default().insert(uid.clone());
            self.queue.leave(&uid);
            self.pods.insert(uid, pod);
            return;
        }
        self.queue.enter(&uid);
        if pod.deleting
            && self
                .reservations
                .get(&uid)
                .is_some_and(|held| held.state == State::Tentative || held.state.is_hint())
        {
            self.release(&uid);
        }
        self.pods.insert(uid, pod);
    }

    fn forget_pod(&mut self, uid: &str) {
        let Some(node) = self.pods.remove(uid).and_then(|pod| pod.node) else {
            return;
        };
        if let Some(uids) = self.pods_on.get_mut(&node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.pods_on.remove(&node);
            }
        }
        self.stale.insert(node);
    }

    fn count_arrival(&mut self, pod: &PodPart) {
        // a pod that asks nothing of ours tells nothing, and comes here with every change of its status
        let Some(request) = pod.request.as_ref().ok().filter(|request| !request.is_empty()) else {
            return;
        };
        let half_life = f64::from(self.policy().demand_half_life_minutes) * 60.0;
        let models = self.models_of(pod);
        self.demand.arrive(request, models, pod.created as f64, half_life);
        self.tables_stale |= self.tables.is_behind(&self.demand);
    }

    /// Holds places for a pod in place of what was held for it.
    pub fn reserve(&mut self, reservation: Reservation) {
        self.stale.insert(reservation.node.clone());
        if let Some(before) = self.reservations.put(reservation) {
            self.stale.insert(before.node);
        }
    }

    /// Frees what is held for a pod.
    pub fn release(&mut self, uid: &str) {
        if let Some(before) = self.reservations.remove(uid) {
            self.stale.insert(before.node);
        }
    }

    /// Frees what was held for too long; says how many.
    pub fn expire(&mut self, now: Duration) -> usize {
        let ttl = Duration::from_secs(self.policy().reservation_seconds.into());
        let gone = self.reservations.expire(now, ttl);
        for held in &gone {
            tracing::info!(pod = %held.pod, node = held.node, state = held.state.code(), "reservation expired");
            self.stale.insert(held.node.clone());
            if held.state.is_hint() {
                self.nominations.rest(&held.pod.uid, now);
            }
        }
        self.nominations.tidy(now);
        self.tidy_legacies();
        gone.len()
    }
}

//! The snapshot, the cost tables and the order of nodes that are made of the books. Only what changed is made
//! again: the nodes that a change marked as stale.

use std::sync::Arc;

use shared::api::gpu_pool::Mode;
use shared::decide::score::Tables;
use shared::names;
use shared::snapshot::{Node, Request, Snapshot};

use super::books::Books;
use super::build::{Built, Known};
use super::reservations::Reservation;

/// What is left out of a node.
#[derive(Clone, Copy, Debug)]
pub enum Without<'a> {
    /// Nothing: the node as it is.
    Nothing,
    /// What is held for the pod of this UID: that is free for it.
    Pod(&'a str),
    /// What is only planned: it gives way to a pod that kube-scheduler has reached.
    Nominations,
}

impl Without<'_> {
    fn leaves_out(self, held: &Reservation) -> bool {
        match self {
            Self::Nothing => false,
            Self::Pod(uid) => held.pod.uid == uid,
            Self::Nominations => held.state.is_hint(),
        }
    }
}

impl Books {
    /// A node as it is, or as it would be without some of what is held on it; `None` where it has no GPUs of ours.
    #[must_use]
    pub fn built(&self, name: &str, without: Without<'_>) -> Option<Built> {
        let (gpus, boards) = self.gpu_nodes.get(name)?;
        let node = self.nodes.get(name)?;
        let (mode, rack_label) = match self.pool_of(name) {
            Some(pool) => (pool.mode, pool.policy.rack_label.as_str()),
            None if self.pools.is_empty() => (Mode::default(), names::LABEL_RACK),
            None => return None,
        };
        let uids = self.pods_on.get(name).into_iter().flatten();
        let pods: Vec<_> = uids.filter_map(|uid| self.pods.get(uid)).collect();
        let held = || {
            self.reservations
                .on(name)
                .filter(|held| !without.leaves_out(held))
        };
        let known = Known {
            node,
            gpus,
            boards,
            mode,
            reservations: held().collect(),
            free: self.free_on(name, held()),
            whole: self.whole_gpus(&pods, held()),
            rack_label,
            outlook: self.expected.outlooks.get(name).copied(),
            pods,
            forgiven: match without {
                Without::Pod(uid) => self.legacies.of_heir(uid),
                Without::Nothing | Without::Nominations => None,
            },
            version: self.version,
        };
        Some(known.build())
    }

    /// Makes anew what changed.
    pub fn settle(&mut self) {
        for name in std::mem::take(&mut self.stale) {
            self.version += 1;
            let built = self.built(&name, Without::Nothing);
            let name: Arc<str> = match self.snapshot.nodes.get_key_value(name.as_str()) {
                Some((known, _)) => Arc::clone(known),
                None => name.into(),
            };
            self.standings.changed(&name);
            let before = self.snapshot.nodes.get(&name).map(Arc::clone);
            let after = built.as_ref().map(|built| &built.node);
            self.tables_stale |= self.stock.change(before.as_deref(), after);
            match built {
                Some(Built { node, drift }) => {
                    self.drift.insert(node.name.clone(), drift);
                    self.snapshot.nodes.insert(name, Arc::new(node));
                }
                None => {
                    self.drift.remove(&*name);
                    self.snapshot.nodes.remove(&name);
                }
            }
        }
        self.settle_tables();
    }

    /// The snapshot and the cost tables as of now.
    pub fn refresh(&mut self) -> (Snapshot, Arc<Tables>) {
        self.settle();
        (self.snapshot.clone(), Arc::clone(&self.tables))
    }

    /// The best node for a request among those offered, and the cost tables, as of now.
    pub fn best(
        &mut self,
        request: &Request,
        offered: impl FnMut(&str) -> bool,
    ) -> Option<(Arc<Node>, Arc<Tables>)> {
        self.settle();
        let name = self
            .standings
            .best(&self.snapshot, request, &self.tables, offered)?;
        let node = self.snapshot.nodes.get(&name)?;
        Some((Arc::clone(node), Arc::clone(&self.tables)))
    }

    /// The cost tables; they know every board that a node has.
    pub fn tables(&mut self) -> Arc<Tables> {
        self.settle_tables();
        Arc::clone(&self.tables)
    }

    fn settle_tables(&mut self) {
        if self.tables_stale {
            let policy = self.policy();
            self.tables = Arc::new(Tables::of_pool(&self.boards, &self.demand, &self.stock, &policy));
            self.tables_stale = false;
        }
    }

    /// Whether the snapshot or the tables are behind what is known.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.stale.is_empty() || self.tables_stale
    }

    pub(super) fn mark_all(&mut self) {
        self.stale.extend(self.gpu_nodes.keys().cloned());
        self.stale
            .extend(self.snapshot.nodes.keys().map(ToString::to_string));
    }
}

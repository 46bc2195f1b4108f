//! The cluster as this program knows it, behind one lock: what the watches told, and what is reserved. Readers get
//! a snapshot that never changes under them; nobody holds the lock over I/O.
//!
//! * [`books`] - what is known, and the snapshot made of it
//! * [`build`] - one node of the snapshot
//! * [`legacies`] - what a refused pod leaves to its replacement
//! * [`reservations`] - places held between decision and proof
//! * [`sources`] - whether all of it is still the truth
//! * [`binding`] - the one step that gives a place away

pub mod binding;
pub mod books;
pub mod build;
pub mod legacies;
pub mod reservations;
pub mod sources;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serve::watch::Change;
use shared::decide::place::on_node;
use shared::decide::score::Tables;
use shared::names::Placements;
use shared::snapshot::{Node, Request, Snapshot};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::watch::gpu_nodes::GpuNodePart;
use crate::watch::gpu_pools::PoolPart;
use crate::watch::nodes::NodePart;
use crate::watch::pods::PodPart;
use crate::writer::PodRef;
use books::Books;
use reservations::{Reservation, State};
use sources::{Source, Sources, Unavailable};

/// The cluster at one moment, with the costs that hold in it.
#[derive(Debug, Default)]
pub struct View {
    /// The cluster.
    pub snapshot: Snapshot,
    /// The costs.
    pub tables: Arc<Tables>,
}

/// The cluster as this program knows it.
pub struct Index {
    books: Mutex<Books>,
    sources: Mutex<Sources>,
    view: ArcSwap<View>,
    outdated: AtomicBool,
    changed: watch::Sender<u64>,
    clock: Clock,
}

/// What was decided about a pod before it is filtered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nothing that still counts.
    Nothing,
    /// It is on this node, or a Binding to it was sent: no other node may be answered.
    On(String),
}

impl Index {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            books: Mutex::default(),
            sources: Mutex::default(),
            view: ArcSwap::default(),
            outdated: AtomicBool::new(false),
            changed: watch::Sender::new(0),
            clock,
        }
    }

    /// Takes in a change of Pods.
    pub fn pods(&self, change: Change<PodPart>) {
        let now = self.clock.steady();
        self.change(|books| books.change_pods(change, now));
    }

    /// Takes in a change of Nodes.
    pub fn nodes(&self, change: Change<NodePart>) {
        self.change(|books| books.change_nodes(change));
    }

    /// Takes in a change of GpuNodes.
    pub fn gpu_nodes(&self, change: Change<GpuNodePart>) {
        self.change(|books| books.change_gpu_nodes(change));
    }

    /// Takes in a change of GpuPools.
    pub fn gpu_pools(&self, change: Change<PoolPart>) {
        self.change(|books| books.change_pools(change));
    }

    /// A watch delivered its whole list.
    pub fn loaded(&self, source: Source) {
        self.sources().loaded(source);
        self.changed.send_modify(|revision| *revision += 1);
    }

    /// A watch was lost, or still is.
    pub fn lost(&self, source: Source, why: &str) {
        self.sources().lost(source, self.clock.steady(), why);
    }

    /// A watch is open.
    pub fn live(&self, source: Source) {
        self.sources().live(source);
    }

    /// Whether decisions can be made.
    ///
    /// # Errors
    /// [`Unavailable`] says why not.
    pub fn available(&self) -> Result<(), Unavailable> {
        let ttl = Duration::from_secs(self.books().policy().snapshot_ttl_seconds.into());
        self.sources().check(self.clock.steady(), ttl)
    }

    /// How long the API server has been away.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.sources().age(self.clock.steady())
    }

    /// Moves with every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The cluster now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        if self.outdated.load(Ordering::Acquire) {
            let mut books = self.books();
            // whoever came first has made it for all who waited
            if self.outdated.load(Ordering::Acquire) {
                let (snapshot, tables) = books.refresh(self.clock.steady());
                self.view.store(Arc::new(View { snapshot, tables }));
                self.outdated.store(false, Ordering::Release);
            }
        }
        self.view.load_full()
    }

    /// Frees what was held for too long.
    pub fn expire(&self) {
        let now = self.clock.steady();
        if self.books().expire(now) > 0 {
            self.outdate();
        }
    }

    /// Starts a decision for a pod: what was held for it tentatively is free again, and what cannot be taken back
    /// any more is said.
    pub fn begin_filter(&self, pod: &PodRef) -> Earlier {
        let mut books = self.books();
        if let Some(node) = books.pods.get(&pod.uid).and_then(|known| known.node.clone()) {
            return Earlier::On(node);
        }
        match books
            .reservations
            .get(&pod.uid)
            .map(|held| (held.state, held.node.clone()))
        {
            None => Earlier::Nothing,
            Some((State::Tentative, _)) => {
                books.release(&pod.uid);
                drop(books);
                self.outdate();
                Earlier::Nothing
            }
            Some((_, node)) => Earlier::On(node),
        }
    }

    /// Holds the best places of a node for a pod; `None` where it has no room by now.
    pub fn reserve(&self, pod: &PodRef, request: &Request, node: &str) -> Option<Placements> {
        let mut books = self.books();
        let built = books.built(node, Some(&pod.uid))?;
        let tables = books.tables(self.clock.steady());
        let placements = on_node(&built.node, request, &tables)?.placements;
        books.reserve(Reservation {
            pod: pod.clone(),
            node: node.to_owned(),
            placements: placements.clone(),
            state: State::Tentative,
            since: self.clock.steady(),
        });
        drop(books);
        self.outdate();
        Some(placements)
    }

    /// The node on which something is held for a pod, as it would be without that.
    #[must_use]
    pub fn without(&self, uid: &str) -> Option<Node> {
        let books = self.books();
        let held = books.reservations.get(uid)?;
        Some(books.built(&held.node, Some(uid))?.node)
    }

    /// Looks at what is known, briefly.
    pub fn read<T>(&self, look: impl FnOnce(&Books) -> T) -> T {
        look(&self.books())
    }

    /// Reservations by state.
    #[must_use]
    pub fn reservations(&self) -> BTreeMap<State, usize> {
        let books = self.books();
        State::ALL
            .into_iter()
            .map(|state| (state, books.reservations.count(state)))
            .collect()
    }

    fn change(&self, change: impl FnOnce(&mut Books)) {
        let mut books = self.books();
        change(&mut books);
        let news = books.has_news();
        drop(books);
        // heartbeats of nodes and the like change nothing
        if news {
            self.outdate();
        }
    }

    fn outdate(&self) {
        self.outdated.store(true, Ordering::Release);
        self.changed.send_modify(|revision| *revision += 1);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

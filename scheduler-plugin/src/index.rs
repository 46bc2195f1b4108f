//! The cluster as this program knows it, behind one lock: what the watches told, and what is reserved. Readers get
//! a snapshot that never changes under them; nobody holds the lock over I/O.
//!
//! * [`books`] - what is known
//! * [`expected`] - the load that is expected of nodes
//! * [`fresh`] - the snapshot made of it, and the order of nodes for each kind of request
//! * [`build`] - one node of the snapshot
//! * [`holding`] - filter's step: a node is chosen and the places on it are held
//! * [`legacies`] - what a refused pod leaves to its replacement
//! * [`queue`] - pods that wait, in order
//! * [`reservations`] - places held between decision and proof
//! * [`sources`] - whether all of it is still the truth
//! * [`usage`] - CPU and memory that pods have of their nodes
//! * [`binding`] - bind's step, the only one that gives a place away
//! * [`nominations`] - what the leader plans for pods that kube-scheduler has not reached yet

pub mod binding;
pub mod books;
pub mod build;
pub mod expected;
pub mod fresh;
pub mod holding;
pub mod legacies;
pub mod nominations;
pub mod queue;
pub mod reservations;
pub mod sources;
pub mod usage;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use serve::watch::Change;
use shared::decide::score::Tables;
use shared::snapshot::Snapshot;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::watch::gpu_nodes::GpuNodePart;
use crate::watch::gpu_pools::PoolPart;
use crate::watch::nodes::NodePart;
use crate::watch::pods::PodPart;
use books::Books;
use expected::Expected;
use reservations::State;
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
    planning: AtomicBool,
    changed: watch::Sender<u64>,
    clock: Clock,
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
            planning: AtomicBool::new(false),
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

    /// Takes in what load is expected.
    pub fn expect(&self, expected: Expected) {
        self.change(|books| books.expect(expected));
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
                let (snapshot, tables) = books.refresh();
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

    /// A pod as a watch told of it, if that is the version meant.
    #[must_use]
    pub fn known(&self, uid: &str, resource_version: &str) -> Option<PodPart> {
        let books = self.books();
        let pod = books.pods.get(uid)?;
        (pod.resource_version == resource_version).then(|| pod.clone())
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
pub(crate) mod testing;
#[cfg(test)]
mod tests;

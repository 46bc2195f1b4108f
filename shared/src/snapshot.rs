//! The cluster as one value: nodes, their GPUs, who has what. Data only, ordered, cheap to share: a node that did
//! not change is the same `Arc` in the next snapshot.
//!
//! * [`request`] - what a pod asks of us
//! * [`cpu_memory`] - CPU and memory, as kube-scheduler counts them
//! * [`what_if`] - assume a placement, and take it back

pub mod cpu_memory;
pub mod request;
pub mod what_if;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use cpu_memory::CpuMemory;
pub use request::{Phase, Request, Want};
pub use what_if::{CannotAssume, Undo};

use crate::api::gpu_node::Health;
use crate::api::gpu_pool::Mode;
use crate::mig::{Board, Layout, Place, Slice, Use};

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Nodes with GPUs, by name.
    pub nodes: BTreeMap<Arc<str>, Arc<Node>>,
}

/// A node with GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name of the Node object.
    pub name: String,
    /// Whether it takes pods of ours.
    pub state: NodeState,
    /// How freely we act on it: the mode of its pool.
    pub mode: Mode,
    /// Its GPUs, by index.
    pub gpus: Vec<Gpu>,
    /// CPU and memory that no pod on it asked for, where known.
    pub free: Option<CpuMemory>,
    /// Product name of its GPUs, where known.
    pub model: Option<Arc<str>>,
    /// The rack it stands in, where known.
    pub rack: Option<Arc<str>>,
    /// The load expected on it, where there is a forecast to act on.
    pub outlook: Option<Outlook>,
    /// Rises with every change of this node, so that what was computed for it can be kept.
    pub version: u64,
}

/// Whether a node takes pods of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// It does.
    Ready,
    /// Its GpuNode says `paused`.
    Paused,
    /// Its agent is not there, or says that it is not ready.
    Away,
}

/// The load that a node is expected to stay under: the upper quantile of its forecast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outlook(u16);

/// One GPU. Its layout changes only through methods, so that the mask kept beside it is never stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// UUID.
    pub uuid: String,
    /// NVML index.
    pub index: u32,
    /// Placement table, where MIG mode is on.
    pub board: Option<Arc<Board>>,
    /// Health.
    pub health: Health,
    /// Kept out of placement by its GpuNode's spec.
    pub withheld: bool,
    /// Who has the whole GPU, where MIG mode is off.
    pub whole: Option<Owner>,
    layout: Layout,
    owners: BTreeMap<Place, Owner>,
    busy_mask: u16,
    all_busy: bool,
}

/// A pod that has something, or is promised it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub pod: String,
    /// UID; empty where only the name is known.
    pub uid: String,
}

impl Snapshot {
    /// All GPUs.
    pub fn gpus(&self) -> impl Iterator<Item = (&Node, &Gpu)> {
        self.nodes
            .values()
            .flat_map(|node| node.gpus.iter().map(move |gpu| (&**node, gpu)))
    }
}

impl Node {
    /// A node that takes pods of ours, of which nothing is known besides its GPUs.
    #[must_use]
    pub fn new(name: impl Into<String>, gpus: Vec<Gpu>) -> Self {
        Self {
            name: name.into(),
            state: NodeState::Ready,
            mode: Mode::Dynamic,
            gpus,
            free: None,
            model: None,
            rack: None,
            outlook: None,
            version: 0,
        }
    }

    /// Whether pods have anything of its GPUs.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.gpus
            .iter()
            .any(|gpu| gpu.whole.is_some() || gpu.busy_mask != 0)
    }

    /// Whether its CPU and memory hold what a request asks of them; `None` where they are not known.
    #[must_use]
    pub fn has_besides(&self, request: &Request) -> Option<bool> {
        self.free.map(|free| free.covers(request.besides))
    }

    /// The GPU with this UUID.
    #[must_use]
    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == uuid)
    }
}

impl Outlook {
    /// The whole capacity of a node, in the unit of [`Outlook::milli`].
    pub const WHOLE: u16 = 1_000;

    /// From a share of capacity in thousandths; what is more than all counts as all.
    #[must_use]
    pub const fn of_milli(share: u16) -> Self {
        Self(if share < Self::WHOLE { share } else { Self::WHOLE })
    }

    /// Share of capacity, thousandths.
    #[must_use]
    pub const fn milli(self) -> u16 {
        self.0
    }
}

impl Gpu {
    /// A healthy GPU with nothing on it. `board` is `None` where MIG mode is off.
    #[must_use]
    pub fn new(uuid: impl Into<String>, index: u32, board: Option<Arc<Board>>) -> Self {
        Self {
            uuid: uuid.into(),
            index,
            board,
            health: Health::Healthy,
            withheld: false,
            whole: None,
            layout: Layout::default(),
            owners: BTreeMap::new(),
            busy_mask: 0,
            all_busy: true,
        }
    }

    /// The slices.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Memory slices that may not be touched, as bits.
    #[must_use]
    pub const fn busy_mask(&self) -> u16 {
        self.busy_mask
    }

    /// Whether no slice is idle.
    #[must_use]
    pub const fn all_busy(&self) -> bool {
        self.all_busy
    }

    /// Who has the slice at a place.
    #[must_use]
    pub fn owner(&self, place: Place) -> Option<&Owner> {
        self.owners.get(&place)
    }

    /// Slices with their owners.
    pub fn owners(&self) -> impl Iterator<Item = (Place, &Owner)> {
        self.owners.iter().map(|(place, owner)| (*place, owner))
    }

    /// Puts a slice there as reported, legal or not; one at the same place is replaced.
    pub fn put(&mut self, slice: Slice, owner: Option<Owner>) {
        self.layout.remove(slice.place);
        self.layout.insert(slice);
        match owner {
            Some(owner) => self.owners.insert(slice.place, owner),
            None => self.owners.remove(&slice.place),
        };
        self.refresh();
    }

    /// Takes the slice at a place away.
    pub fn take(&mut self, place: Place) -> Option<(Slice, Option<Owner>)> {
        let slice = self.layout.remove(place)?;
        let owner = self.owners.remove(&place);
        self.refresh();
        Some((slice, owner))
    }

    /// Marks a place as promised or held, whatever idle slices are in the way: those are gone once it is cut.
    pub fn hold(&mut self, place: Place, owner: Owner) {
        if let Some(board) = self.board.clone() {
            let bits = place.window(&board).unwrap_or_default();
            let overlaps = |slice: &&Slice| {
                slice.used == Use::Idle && slice.place.window(&board).is_some_and(|other| other & bits != 0)
            };
            let in_the_way: Vec<Place> = self
                .layout
                .slices()
                .iter()
                .filter(overlaps)
                .map(|slice| slice.place)
                .collect();
            for idle in in_the_way {
                self.layout.remove(idle);
            }
        }
        self.put(
            Slice {
                place,
                used: Use::Allocated,
            },
            Some(owner),
        );
    }

    fn refresh(&mut self) {
        let board = self.board.clone();
        self.all_busy = self.layout.slices().iter().all(|slice| slice.used != Use::Idle);
        self.busy_mask = board.map_or(0, |board| self.layout.busy().mask(&board));
    }
}

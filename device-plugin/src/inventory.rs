//! The one truth about this node: its GPUs, the slices on them, who holds what. One owner under one lock; every
//! change publishes a [`View`] on one channel, which the kubelet's lists and the GpuNode object are both read from.

pub mod devices;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use shared::api::gpu_node::{Endpoint, GpuNodeSpec, Health};
use shared::mig::{Layout, Place, Slice, Use};
use shared::names::DeviceId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::args::Strategy;
use crate::gpus::{DriverInfo, GpuInfo, Instance};
pub use devices::Device;

/// The truth, shared.
#[derive(Clone)]
pub struct Inventory {
    state: Arc<Mutex<State>>,
    views: watch::Sender<Arc<View>>,
}

/// What is published after a change.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The truth at that moment.
    pub state: State,
    /// The kubelet's devices by resource name.
    pub resources: BTreeMap<String, Vec<Device>>,
}

/// The truth as a value.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// How GPUs become resources.
    pub strategy: Strategy,
    /// Which boot of the node this is.
    pub boot_id: String,
    /// The driver.
    pub driver: Driver,
    /// GPUs by index. A GPU that vanishes stays, unhealthy: an id in use must never disappear.
    pub gpus: Vec<Gpu>,
    /// Devices that pods have or are promised, by device id.
    pub held: BTreeMap<String, Held>,
    /// What is wanted of the node.
    pub spec: GpuNodeSpec,
    /// Generation of that.
    pub generation: Option<i64>,
    /// Why we stand back, as (reason, sentence).
    pub stood_back: Option<(&'static str, String)>,
    /// Places where a step of ours may have been left half done, because the driver did not answer.
    pub unfinished: BTreeSet<DeviceId>,
    /// Whether everything was taken over once: before that the kubelet is told nothing.
    pub adopted: bool,
    /// Why the kubelet does not know us, if so.
    pub unregistered: Option<String>,
    /// Where the load of the GPUs is told, if it is.
    pub endpoint: Option<Endpoint>,
    /// Counts allocations, so that an older account of the kubelet cannot undo a newer one.
    pub sequence: u64,
}

/// Whether there is a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// There is none.
    Absent(String),
    /// It is there and does not do what it should.
    Failed(String),
    /// It works.
    Works(DriverInfo),
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// What it is.
    pub info: GpuInfo,
    /// GPU instances that exist, by place.
    pub slices: BTreeMap<Place, SliceState>,
    /// Health.
    pub health: Health,
    /// Why it is not healthy.
    pub message: String,
}

/// A GPU instance that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceState {
    /// What NVML says of it.
    pub instance: Instance,
    /// Why it may not be touched although nobody holds it.
    pub blocked: Option<String>,
    /// A fault that goes when the slice is cut anew.
    pub fault: Option<String>,
    /// Since when nobody holds it.
    pub idle_since: Instant,
}

/// A pod as far as the kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, where the API server told it.
    pub uid: Option<String>,
}

/// Whether the kubelet's account shows a device in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Not since this agent began to look, or since it was handed out.
    Never,
    /// When it was read last.
    Now,
    /// It did, and no longer does.
    Missing,
}

/// A device that is held.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Under which resource.
    pub resource: String,
    /// By whom, as far as known.
    pub pod: Option<PodRef>,
    /// By which container.
    pub container: Option<String>,
    /// Whether the kubelet's account shows it.
    pub seen: Seen,
    /// UUID that the container was told; it changes when the slice is cut anew.
    pub told: String,
    /// Number of the allocation.
    pub sequence: u64,
    /// Since when.
    pub since: Instant,
}

impl Inventory {
    /// An empty inventory.
    #[must_use]
    pub fn new(strategy: Strategy) -> Self {
        let state = State {
            strategy,
            ..State::default()
        };
        let view = View {
            state: state.clone(),
            ..View::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            views: watch::Sender::new(Arc::new(view)),
        }
    }

    /// Changes the truth and publishes it.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // a panic elsewhere leaves a state that was consistent line by line; serving it beats stopping
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        let view = View {
            resources: devices::resources(&state, &self.views.borrow().resources),
            state: state.clone(),
        };
        // inside the lock, so that views are published in the order of the changes
        self.views.send_replace(Arc::new(view));
        result
    }

    /// The truth at this moment.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }

    /// The channel of views.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<View>> {
        self.views.subscribe()
    }
}

impl State {
    /// The GPU with this UUID.
    #[must_use]
    pub fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.info.uuid == uuid)
    }

    /// The GPU with this UUID, to change it.
    pub fn gpu_mut(&mut self, uuid: &str) -> Option<&mut Gpu> {
        self.gpus.iter_mut().find(|gpu| gpu.info.uuid == uuid)
    }

    /// Places on a GPU that pods hold.
    pub fn held_places(&self, uuid: &str) -> impl Iterator<Item = Place> {
        let ids = self.held.keys().filter_map(|id| id.parse::<DeviceId>().ok());
        ids.filter(move |id| id.gpu == uuid).map(|id| id.place)
    }

    /// Who holds a slice that stands on a GPU. With NVIDIA's strategies slices are held by their own UUID.
    #[must_use]
    pub fn holding(&self, gpu: &Gpu, slice: &SliceState) -> Option<&Held> {
        let id = DeviceId::new(gpu.info.uuid.clone(), slice.instance.place).to_string();
        let held = self.held.get(&id);
        held.or_else(|| self.held.get(&slice.instance.uuid))
    }

    /// The layout of a GPU: what stands there, and what is promised and not cut yet.
    #[must_use]
    pub fn layout(&self, gpu: &Gpu) -> Layout {
        let mut layout = Layout::default();
        for place in self.held_places(&gpu.info.uuid) {
            layout.insert(Slice {
                place,
                used: Use::Allocated,
            });
        }
        for (place, slice) in &gpu.slices {
            if layout.at(*place).is_none() {
                let used = if slice.blocked.is_some() {
                    Use::Blocked
                } else {
                    Use::Idle
                };
                layout.insert(Slice { place: *place, used });
            }
        }
        layout
    }

    /// Why nothing new goes on a GPU, if so.
    #[must_use]
    pub fn closed(&self, gpu: &Gpu) -> Option<String> {
        if let Some((_, why)) = &self.stood_back {
            return Some(why.clone());
        }
        if let Driver::Absent(why) | Driver::Failed(why) = &self.driver {
            return Some(why.clone());
        }
        if self.spec.paused {
            return Some("the node is paused".to_owned());
        }
        if let Some(withheld) = self.spec.withhold.iter().find(|entry| entry.gpu == gpu.info.uuid) {
            return Some(format!("GPU {} is withheld: {}", gpu.info.uuid, withheld.reason));
        }
        let ill = gpu.health != Health::Healthy;
        ill.then(|| format!("GPU {} is not healthy: {}", gpu.info.uuid, gpu.message))
    }
}

impl SliceState {
    /// A slice as NVML reports it. What is no slice of ours blocks its place.
    #[must_use]
    pub fn new(instance: Instance, now: Instant) -> Self {
        let foreign = (!instance.is_slice()).then(|| {
            let gi = instance.gi;
            format!("GPU instance {gi} does not have the one compute instance that fills it; somebody else made it")
        });
        Self {
            instance,
            blocked: foreign,
            fault: None,
            idle_since: now,
        }
    }
}

impl Held {
    /// A device handed out under a resource, to whom is not known yet.
    #[must_use]
    pub fn new(resource: &str, sequence: u64, since: Instant) -> Self {
        let resource = resource.to_owned();
        Self {
            resource,
            pod: None,
            container: None,
            seen: Seen::Never,
            told: String::new(),
            sequence,
            since,
        }
    }
}

impl PodRef {
    /// Whether another reference can mean the same pod.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }
}

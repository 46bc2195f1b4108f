//! The hands: makes and removes slices, one change at a time on the whole node. Every step is written to the journal
//! before it is taken, and a change that fails takes its own steps back.
//!
//! * [`adopt`] - the start: what stands there, what a crash or a reboot left behind
//! * [`grant`] - a pod comes: Allocate and PreStartContainer
//! * [`release`] - a pod goes, and idle slices grow old

pub mod adopt;
mod error;
pub mod grant;
pub mod release;

pub use error::CarveError;

use std::sync::Arc;

use shared::api::gpu_node::Health;
use shared::mig::{Place, Step};
use shared::names::{self, DeviceId};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::cdi::{Cdi, Edits};
use crate::device_nodes::{DeviceNode, DeviceNodes};
use crate::gpus::driver::Driver;
use crate::gpus::{GpuError, GpuInfo, Gpus, Instance};
use crate::inventory::{self, Inventory, SliceState};
use crate::journal::Journal;
use crate::kubelet::account::Account;
use crate::metrics::Metrics;
use crate::pods::Pods;

/// Everything a change needs. Clones share it.
#[derive(Clone)]
pub struct Carver {
    /// The truth.
    pub inventory: Inventory,
    /// Pods of this node.
    pub pods: Pods,
    /// The kubelet's account of who has what.
    pub account: Account,
    /// Counters.
    pub metrics: Metrics,
    /// The driver.
    pub driver: Driver,
    /// What survives a crash.
    pub journal: Arc<Journal>,
    nodes: DeviceNodes,
    cdi: Cdi,
    /// Held during a change.
    turn: Arc<Mutex<()>>,
}

/// What was granted for one device id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The device id.
    pub id: String,
    /// CDI kind under which its file is written.
    pub kind: &'static str,
    /// What NVIDIA's runtime calls it: the UUID of the MIG device or of the GPU.
    pub uuid: String,
    /// Nodes its container gets.
    pub nodes: Vec<DeviceNode>,
}

impl Carver {
    /// A carver over its parts.
    #[must_use]
    #[allow(
        clippy::too_many_arguments,
        reason = "each part is made once, in run.rs, and has its own type"
    )]
    pub fn new(
        inventory: Inventory,
        pods: Pods,
        account: Account,
        metrics: Metrics,
        driver: Driver,
        journal: Journal,
        nodes: DeviceNodes,
        cdi: Cdi,
    ) -> Self {
        let (journal, turn) = (Arc::new(journal), Arc::new(Mutex::new(())));
        Self {
            inventory,
            pods,
            account,
            metrics,
            driver,
            journal,
            nodes,
            cdi,
            turn,
        }
    }

    /// Waits for the one turn in which the node may be changed.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// A call about one GPU. What it says of the GPU's health is taken down.
    async fn on_gpu<T: Send + 'static>(
        &self,
        gpu: &GpuInfo,
        call: &'static str,
        work: impl FnOnce(&mut dyn Gpus, &GpuInfo) -> Result<T, GpuError> + Send + 'static,
    ) -> Result<T, GpuError> {
        let about = gpu.clone();
        let result = self.driver.call(call, move |gpus| work(gpus, &about)).await;
        if let Err(error) = &result {
            self.note(&gpu.uuid, error);
        }
        result
    }

    /// Takes down what an error says of a GPU or of the driver.
    pub fn note(&self, uuid: &str, error: &GpuError) {
        let health = match error {
            GpuError::Lost { .. } => Health::Unhealthy,
            GpuError::Hung { .. } => Health::Suspect,
            GpuError::NoDriver(why) => {
                let why = why.clone();
                return self
                    .inventory
                    .change(|state| state.driver = inventory::Driver::Absent(why));
            }
            _ => return,
        };
        self.set_health(uuid, health, &error.to_string());
    }

    /// Sets the health of a GPU; a change is logged and counted.
    pub fn set_health(&self, uuid: &str, health: Health, message: &str) {
        let before = self.inventory.change(|state| {
            let gpu = state.gpu_mut(uuid)?;
            message.clone_into(&mut gpu.message);
            Some(std::mem::replace(&mut gpu.health, health))
        });
        if before.is_some_and(|before| before != health) {
            tracing::warn!(gpu = uuid, ?health, message, "health of a GPU changed");
            self.metrics.health_changed(uuid, health);
        }
    }

    /// Takes one step on a GPU, after writing it down.
    async fn step(&self, gpu: &GpuInfo, step: Step) -> Result<(), CarveError> {
        self.journal
            .begin(&gpu.uuid, step)
            .map_err(|error| CarveError::File {
                what: "the journal",
                error,
            })?;
        let started = Instant::now();
        let result = match step {
            Step::Create(place) => self.create(gpu, place).await,
            Step::Destroy(place) => self.destroy(gpu, place).await,
        };
        self.metrics.stepped(step, result.is_ok(), started.elapsed());
        if let Err(error) = &result {
            tracing::warn!(gpu = gpu.uuid, ?step, %error, "step failed");
        } else {
            tracing::info!(gpu = gpu.uuid, ?step, elapsed = ?started.elapsed(), "step taken");
        }
        let (Step::Create(place) | Step::Destroy(place)) = step;
        let id = DeviceId::new(gpu.uuid.clone(), place);
        if matches!(result, Err(GpuError::Hung { .. })) {
            self.inventory.change(|state| state.unfinished.insert(id.clone()));
        }
        result.map_err(|error| CarveError::Gpu {
            id: id.to_string(),
            error,
        })
    }

    async fn create(&self, gpu: &GpuInfo, place: Place) -> Result<(), GpuError> {
        let gi = self
            .on_gpu(gpu, "making a GPU instance", move |gpus, gpu| {
                gpus.create_instance(gpu, place)
            })
            .await?;
        let made = self
            .on_gpu(gpu, "making a compute instance", move |gpus, gpu| {
                gpus.create_compute(gpu, place, gi)
            })
            .await;
        match made {
            Ok(instance) => {
                self.put(gpu, instance);
                Ok(())
            }
            Err(error) => {
                let undone = self
                    .on_gpu(gpu, "removing a GPU instance", move |gpus, gpu| {
                        gpus.destroy_instance(gpu, gi)
                    })
                    .await;
                if let Err(undo) = undone {
                    tracing::error!(gpu = gpu.uuid, gi, %undo, "an empty GPU instance is left behind; the next scan removes it");
                    self.inventory
                        .change(|state| state.unfinished.insert(DeviceId::new(gpu.uuid.clone(), place)));
                }
                Err(error)
            }
        }
    }

    /// Removes a slice, unless a process is on it.
    async fn destroy(&self, gpu: &GpuInfo, place: Place) -> Result<(), GpuError> {
        let gi = self.slice(&gpu.uuid, place).map(|slice| slice.instance.gi);
        // gone already: somebody was faster, and that is what was wanted
        let Some(gi) = gi else { return Ok(()) };
        let result = self.on_gpu(gpu, "removing a slice", move |gpus, gpu| {
            if gpus.processes(gpu)?.iter().any(|process| process.gi == Some(gi)) {
                return Err(GpuError::InUse {
                    call: "removing a slice",
                });
            }
            gpus.destroy_compute(gpu, gi)?;
            gpus.destroy_instance(gpu, gi).inspect_err(|_| {
                // half a removal is taken back; where that fails too, the next scan finds the half and removes it
                let _ = gpus.create_compute(gpu, place, gi);
            })
        });
        match result.await {
            Ok(()) => {
                self.inventory
                    .change(|state| state.gpu_mut(&gpu.uuid).map(|gpu| gpu.slices.remove(&place)));
                Ok(())
            }
            Err(error) => {
                self.look_again(gpu, place, &error).await;
                Err(error)
            }
        }
    }

    /// After a removal that failed: what stands there now, and that it may not be touched.
    async fn look_again(&self, gpu: &GpuInfo, place: Place, error: &GpuError) {
        let found = self
            .on_gpu(gpu, "looking again", |gpus, gpu| gpus.instances(gpu))
            .await;
        let (why, uuid) = (error.to_string(), gpu.uuid.clone());
        self.inventory.change(|state| {
            let Some(gpu) = state.gpu_mut(&uuid) else { return };
            let still = found
                .ok()
                .and_then(|all| all.into_iter().find(|instance| instance.place == place));
            if let (Some(slice), Some(instance)) = (gpu.slices.get_mut(&place), still) {
                let half = instance.ci.is_none();
                slice.instance = instance;
                slice.blocked = Some(why);
                if half {
                    state.unfinished.insert(DeviceId::new(uuid, place));
                }
            }
        });
    }

    /// Takes an instance into the inventory.
    fn put(&self, gpu: &GpuInfo, instance: Instance) {
        self.inventory.change(|state| {
            if let Some(gpu) = state.gpu_mut(&gpu.uuid) {
                gpu.slices
                    .insert(instance.place, SliceState::new(instance, Instant::now()));
            }
        });
    }

    /// What stands at a place.
    fn slice(&self, uuid: &str, place: Place) -> Option<SliceState> {
        self.inventory.view().state.gpu(uuid)?.slices.get(&place).cloned()
    }

    /// A process on a slice, if there is one.
    async fn process_on(&self, gpu: &GpuInfo, gi: u32) -> Result<Option<u32>, GpuError> {
        let all = self
            .on_gpu(gpu, "listing processes", |gpus, gpu| gpus.processes(gpu))
            .await?;
        Ok(all
            .into_iter()
            .find(|process| process.gi == Some(gi))
            .map(|process| process.pid))
    }

    /// Takes steps back, last first. What fails stays as it is and is logged: the next scan sees it as it is.
    async fn take_back(&self, done: Vec<(GpuInfo, Step)>) {
        for (gpu, step) in done.into_iter().rev() {
            if let Err(error) = self.step(&gpu, step.undo()).await {
                tracing::error!(gpu = gpu.uuid, ?step, %error, "a step could not be taken back");
            }
        }
    }

    /// Writes down that nothing is under way, and who holds what.
    fn settle(&self) -> Result<(), CarveError> {
        let settled = self.journal.settle(&self.inventory.view().state);
        settled.map_err(|error| CarveError::File {
            what: "the journal",
            error,
        })
    }

    /// Makes the nodes of a slice and writes its CDI file.
    fn equip(
        &self,
        id: &str,
        kind: &'static str,
        gpu: &GpuInfo,
        instance: &Instance,
    ) -> Result<Granted, CarveError> {
        let caps = self
            .nodes
            .of_slice(gpu.minor, instance.gi, instance.ci.unwrap_or(0));
        let caps = caps.map_err(|error| CarveError::Node {
            id: id.to_owned(),
            error,
        })?;
        let mut nodes = self.nodes.of_gpu(gpu.minor);
        nodes.splice(1..1, caps);
        let name = format!(
            "{}{}_{}",
            names::ENV_SLICE_PREFIX,
            gpu.index,
            instance.place.start
        );
        self.write_cdi(id, kind, nodes, instance.uuid.clone(), Some(name))
    }

    fn write_cdi(
        &self,
        id: &str,
        kind: &'static str,
        nodes: Vec<DeviceNode>,
        uuid: String,
        slice: Option<String>,
    ) -> Result<Granted, CarveError> {
        // NVIDIA's own hook must not act a second time
        let mut env = vec![(names::ENV_VISIBLE_DEVICES.to_owned(), "void".to_owned())];
        env.extend(slice.map(|name| (name, uuid.clone())));
        let edits = Edits { nodes, env };
        let written = self.cdi.write(kind, id, &edits);
        written.map_err(|error| CarveError::File {
            what: "the CDI file",
            error,
        })?;
        Ok(Granted {
            id: id.to_owned(),
            kind,
            uuid,
            nodes: edits.nodes,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;

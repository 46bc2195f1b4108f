//! The start, and every later look: what NVML shows becomes the inventory; what a crash left half done is repaired;
//! what pods held before a reboot is cut again before the kubelet asks.

use std::collections::BTreeMap;

use shared::api::gpu_node::Health;
use shared::mig::Step;
use shared::names::{self, DeviceId};
use tokio::time::Instant;

use super::{CarveError, Carver};
use crate::args::Strategy;
use crate::gpus::{DriverInfo, GpuError, GpuInfo, Instance};
use crate::inventory::{self, Gpu, SliceState, State};
use crate::journal::Entry;

impl Carver {
    /// Looks at the driver and takes everything over. To be called before the kubelet is, and whenever a driver
    /// has come (back). With another owner on the node nothing is touched.
    ///
    /// # Errors
    /// What the driver says.
    pub async fn adopt(&self) -> Result<(), GpuError> {
        let _turn = self.turn().await;
        let record = self.journal.record();
        self.inventory.change(|state| {
            let now = Instant::now();
            for (id, holding) in &record.held {
                state.held.entry(id.clone()).or_insert_with(|| holding.held(now));
            }
        });
        self.look().await?;
        let touch = self.inventory.view().state.stood_back.is_none();
        if touch && self.inventory.view().state.strategy == Strategy::Dynamic {
            self.repair(&record.under_way).await;
            self.cut_held().await;
            let boot_id = self.inventory.view().state.boot_id.clone();
            if let Err(error) = self.journal.change(|record| record.boot_id = boot_id) {
                tracing::error!(%error, "the journal is behind");
            }
        }
        let view = self.inventory.view();
        let kinds = view.state.held.keys().map(|id| {
            let kind = if id.parse::<DeviceId>().is_ok() {
                names::CDI_KIND
            } else {
                names::CDI_KIND_GPU
            };
            (kind, id.as_str())
        });
        if let Err(error) = self.cdi.keep_only(kinds) {
            tracing::warn!(%error, "old CDI files not removed");
        }
        if let Err(error) = self.settle() {
            tracing::error!(%error, "the journal is behind");
        }
        self.inventory.change(|state| state.adopted = true);
        Ok(())
    }

    /// Looks again at what NVML shows.
    ///
    /// # Errors
    /// What the driver says.
    pub async fn rescan(&self) -> Result<(), GpuError> {
        let _turn = self.turn().await;
        self.look().await?;
        if self.inventory.view().state.stood_back.is_none() {
            self.finish().await;
        }
        Ok(())
    }

    /// Removes what a step left half done while the driver did not answer.
    async fn finish(&self) {
        let unfinished = self.inventory.view().state.unfinished.clone();
        for id in unfinished {
            let half = self
                .slice(&id.gpu, id.place)
                .is_some_and(|slice| slice.instance.ci.is_none());
            let gpu = self
                .inventory
                .view()
                .state
                .gpu(&id.gpu)
                .map(|gpu| gpu.info.clone());
            let done = match gpu.filter(|_| half) {
                Some(gpu) => self.try_step(&gpu, Step::Destroy(id.place)).await,
                None => true,
            };
            if done {
                self.inventory.change(|state| state.unfinished.remove(&id));
            }
        }
    }

    async fn look(&self) -> Result<(), GpuError> {
        type Seen = (DriverInfo, Vec<(GpuInfo, Result<Vec<Instance>, GpuError>)>);
        let seen: Result<Seen, GpuError> = self
            .driver
            .call("looking at all GPUs", |gpus| {
                let driver = gpus.driver()?;
                let list = gpus.list()?;
                let mut all = Vec::new();
                for gpu in list {
                    let instances = match gpus.instances(&gpu) {
                        Err(error) if error.driver_gone() => return Err(error),
                        instances => instances,
                    };
                    all.push((gpu, instances));
                }
                Ok((driver, all))
            })
            .await;
        match seen {
            Ok((driver, all)) => {
                let failed = self
                    .inventory
                    .change(|state| merge(state, driver, all, Instant::now()));
                for (uuid, error) in failed {
                    self.note(&uuid, &error);
                    tracing::warn!(gpu = uuid, %error, "a GPU cannot be read");
                }
                Ok(())
            }
            Err(error) => {
                let why = error.to_string();
                let gone = error.driver_gone();
                self.inventory.change(|state| {
                    state.driver = if gone {
                        inventory::Driver::Absent(why)
                    } else {
                        inventory::Driver::Failed(why)
                    };
                });
                Err(error)
            }
        }
    }

    /// Undoes what a crash left half done: GPU instances without a compute instance go, slices made for a pod that
    /// never got them go, idle slices that were removed for it come back.
    async fn repair(&self, under_way: &[Entry]) {
        let view = self.inventory.view();
        for gpu in &view.state.gpus {
            for slice in gpu.slices.values() {
                let instance = &slice.instance;
                if instance.ci.is_none() && instance.partial == 0 {
                    tracing::warn!(gpu = gpu.info.uuid, place = %instance.place, "removing a GPU instance left empty");
                    self.try_step(&gpu.info, Step::Destroy(instance.place)).await;
                }
            }
        }
        for entry in under_way.iter().rev() {
            let view = self.inventory.view();
            let Some(gpu) = view.state.gpu(&entry.gpu) else {
                continue;
            };
            let id = DeviceId::new(entry.gpu.clone(), entry.place).to_string();
            let stands = gpu.slices.contains_key(&entry.place);
            let held = view.state.held.contains_key(&id);
            if entry.create && stands && !held {
                tracing::warn!(id, "taking back a slice whose pod never got it");
                self.try_step(&gpu.info, Step::Destroy(entry.place)).await;
            } else if !entry.create && !stands && room(&view.state, gpu, entry) {
                tracing::warn!(id, "making a slice again that was removed for nothing");
                self.try_step(&gpu.info, Step::Create(entry.place)).await;
            }
        }
    }

    /// Cuts what pods hold and does not stand, as after a reboot, and writes the files of what does.
    async fn cut_held(&self) {
        let held: Vec<String> = self.inventory.view().state.held.keys().cloned().collect();
        for id in held {
            if let Err(error) = self.cut_one_held(&id).await {
                tracing::error!(id, %error, "a held slice does not stand; its pod is told when it starts");
            }
        }
    }

    async fn cut_one_held(&self, id: &str) -> Result<(), CarveError> {
        let Ok(device) = id.parse::<DeviceId>() else {
            return Ok(());
        };
        let view = self.inventory.view();
        let Some(gpu) = view.state.gpu(&device.gpu) else {
            return Ok(());
        };
        let Some(board) = gpu.info.board.as_ref().filter(|_| gpu.info.mig) else {
            return Ok(());
        };
        for step in super::grant::steps(&view.state, gpu, board, id, device.place)? {
            self.step(&gpu.info, step).await?;
        }
        if let Some(slice) = self.slice(&device.gpu, device.place) {
            self.equip(id, names::CDI_KIND, &gpu.info, &slice.instance)?;
        }
        Ok(())
    }

    /// A step whose failure is logged where it is taken and changes nothing else.
    pub(crate) async fn try_step(&self, gpu: &GpuInfo, step: Step) -> bool {
        self.step(gpu, step).await.is_ok()
    }
}

fn room(state: &State, gpu: &Gpu, entry: &Entry) -> bool {
    gpu.info
        .board
        .as_ref()
        .is_some_and(|board| state.layout(gpu).fits(board, entry.place))
}

/// Merges what was seen into the truth. Returns what could not be read.
fn merge(
    state: &mut State,
    driver: DriverInfo,
    seen: Vec<(GpuInfo, Result<Vec<Instance>, GpuError>)>,
    now: Instant,
) -> Vec<(String, GpuError)> {
    state.driver = inventory::Driver::Works(driver);
    let mut failed = Vec::new();
    for gpu in &mut state.gpus {
        if !seen.iter().any(|(info, _)| info.uuid == gpu.info.uuid) {
            gpu.health = Health::Unhealthy;
            "NVML does not list it any more".clone_into(&mut gpu.message);
        }
    }
    for (info, instances) in seen {
        let uuid = info.uuid.clone();
        let at = match state.gpus.iter().position(|gpu| gpu.info.uuid == uuid) {
            Some(at) => at,
            None => {
                let fresh = Gpu {
                    info: info.clone(),
                    slices: BTreeMap::new(),
                    health: Health::Healthy,
                    message: String::new(),
                };
                state.gpus.push(fresh);
                state.gpus.len() - 1
            }
        };
        let gpu = &mut state.gpus[at];
        gpu.info = info;
        match instances {
            Ok(instances) => gpu.slices = slices(std::mem::take(&mut gpu.slices), instances, now),
            Err(error) => failed.push((uuid, error)),
        }
    }
    state.gpus.sort_by_key(|gpu| gpu.info.index);
    failed
}

/// What is known of an instance stays known while it is the same one.
fn slices(
    mut before: BTreeMap<shared::mig::Place, SliceState>,
    instances: Vec<Instance>,
    now: Instant,
) -> BTreeMap<shared::mig::Place, SliceState> {
    let known = |instance: Instance| {
        let old = before
            .remove(&instance.place)
            .filter(|old| old.instance == instance);
        (
            instance.place,
            old.unwrap_or_else(|| SliceState::new(instance, now)),
        )
    };
    instances.into_iter().map(known).collect()
}

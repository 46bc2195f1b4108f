//! A pod goes: its slices become idle. There is no call for it, so the kubelet's account and the pods of the node
//! are read. And idle slices grow old, leftover processes end, slices are kept warm.

use std::time::Duration;

use shared::mig::Step;
use shared::names::DeviceId;
use tokio::time::Instant;

use super::Carver;
use crate::holders::{self, Verdict};
use crate::inventory::{Inventory, Seen};

impl Carver {
    /// Reads the kubelet's account and releases what nobody has any more. Returns whether it should be read again
    /// soon: something is on its way in or out.
    pub async fn watch_account(&self) -> bool {
        let _turn = self.turn().await;
        self.settle_account().await;
        let view = self.inventory.view();
        self.pods.any_ending() || view.state.held.values().any(|held| held.seen != Seen::Now)
    }

    /// As [`Self::watch_account`], within a turn.
    pub(super) async fn settle_account(&self) {
        // an allocation after this moment cannot be judged by the account that is read now
        let sequence = self.inventory.view().state.sequence;
        let shown = match self.account.list().await {
            Ok(shown) => shown,
            Err(error) => {
                tracing::debug!(%error, "the kubelet's account cannot be read");
                return;
            }
        };
        let (now, pods) = (Instant::now(), self.pods.facts());
        let verdicts = holders::judge(&self.inventory.view().state.held, sequence, &shown, &pods, now);
        if verdicts.is_empty() {
            return;
        }
        let mut released = Vec::new();
        self.inventory.change(|state| {
            for (id, verdict) in verdicts {
                match verdict {
                    Verdict::Changed(held) => drop(state.held.insert(id, held)),
                    Verdict::Released => released.push(id),
                }
            }
        });
        for id in released {
            self.release(&id).await;
        }
        if let Err(error) = self.settle() {
            tracing::error!(%error, "the journal is behind");
        }
    }

    async fn release(&self, id: &str) {
        let view = self.inventory.view();
        let place = id.parse::<DeviceId>().ok();
        let gpu = place.as_ref().and_then(|device| view.state.gpu(&device.gpu));
        let slice = gpu
            .zip(place.as_ref())
            .and_then(|(gpu, device)| gpu.slices.get(&device.place));
        let mut leftover = None;
        if let (Some(gpu), Some(slice)) = (gpu, slice) {
            match self.process_on(&gpu.info, slice.instance.gi).await {
                Ok(Some(pid)) => {
                    leftover = Some(format!(
                        "process {pid} is still on it, left by the pod that had it"
                    ));
                }
                Ok(None) => {}
                Err(error) => {
                    leftover = Some(format!("whether a process is left on it cannot be told: {error}"));
                }
            }
        }
        if let Some(why) = &leftover {
            tracing::warn!(id, why, "released slice is blocked");
        } else {
            tracing::info!(id, "released");
        }
        let faulty = slice.is_some_and(|slice| slice.fault.is_some()) && leftover.is_none();
        self.inventory.change(|state| {
            state.held.remove(id);
            let device = place.as_ref()?;
            let slice = state.gpu_mut(&device.gpu)?.slices.get_mut(&device.place)?;
            slice.idle_since = Instant::now();
            slice.blocked = leftover.or(slice.blocked.take());
            Some(())
        });
        self.forget_cdi(id);
        if let (true, Some(gpu), Some(device)) = (faulty, gpu, &place)
            && self.try_step(&gpu.info, Step::Destroy(device.place)).await
        {
            self.metrics.recovered();
        }
    }

    /// Looks after slices that nobody holds: unblocks those whose process has ended, removes those idle for longer
    /// than `keep`, makes those that are wanted warm.
    pub async fn tidy(&self, keep: Duration) {
        let _turn = self.turn().await;
        if self.inventory.view().state.stood_back.is_some() {
            return;
        }
        self.unblock().await;
        let mut changed = self.remove_old(keep).await;
        changed |= self.make_warm().await;
        if changed && let Err(error) = self.settle() {
            tracing::error!(%error, "the journal is behind");
        }
    }

    async fn unblock(&self) {
        let view = self.inventory.view();
        for gpu in &view.state.gpus {
            for (place, slice) in gpu
                .slices
                .iter()
                .filter(|(_, slice)| slice.blocked.is_some() && slice.instance.is_slice())
            {
                if matches!(self.process_on(&gpu.info, slice.instance.gi).await, Ok(None)) {
                    tracing::info!(gpu = gpu.info.uuid, %place, "slice is free again");
                    set_idle(&self.inventory, &gpu.info.uuid, *place);
                }
            }
        }
    }

    async fn remove_old(&self, keep: Duration) -> bool {
        let view = self.inventory.view();
        let now = Instant::now();
        let mut changed = false;
        for gpu in &view.state.gpus {
            let uuid = &gpu.info.uuid;
            for (place, slice) in &gpu.slices {
                let id = DeviceId::new(uuid.clone(), *place).to_string();
                let wanted = view
                    .state
                    .spec
                    .warm
                    .iter()
                    .any(|warm| warm.gpu == *uuid && warm.place == *place);
                let idle = slice.blocked.is_none() && !view.state.held.contains_key(&id);
                if idle && !wanted && now.saturating_duration_since(slice.idle_since) >= keep {
                    changed |= self.try_step(&gpu.info, Step::Destroy(*place)).await;
                }
            }
        }
        changed
    }

    async fn make_warm(&self) -> bool {
        let mut changed = false;
        for warm in &self.inventory.view().state.spec.warm {
            let view = self.inventory.view();
            let Some(gpu) = view
                .state
                .gpu(&warm.gpu)
                .filter(|gpu| view.state.closed(gpu).is_none())
            else {
                continue;
            };
            let Some(board) = gpu.info.board.as_ref().filter(|_| gpu.info.mig) else {
                continue;
            };
            if view.state.layout(gpu).fits(board, warm.place) {
                changed |= self.try_step(&gpu.info, Step::Create(warm.place)).await;
            }
        }
        changed
    }
}

fn set_idle(inventory: &Inventory, uuid: &str, place: shared::mig::Place) {
    inventory.change(|state| {
        let slice = state.gpu_mut(uuid)?.slices.get_mut(&place)?;
        slice.blocked = None;
        slice.idle_since = Instant::now();
        Some(())
    });
}

//! Health: one loop over the events of all GPUs, a table of what each XID means, and a way back for what fell ill.
//!
//! * [`xid`] - the table
//! * [`course`] - how a GPU gets well again

pub mod course;
pub mod xid;

use std::collections::BTreeMap;
use std::time::Duration;

use shared::api::gpu_node::Health;
use shared::mig::{Place, Step};
use shared::names::DeviceId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::carve::Carver;
use crate::gpus::{Event, EventKind, Recovery};
use course::Course;
use xid::{Action, Table};

/// How long one wait for an event lasts: how late the loop notices shutdown.
const WAIT: Duration = Duration::from_millis(500);
/// How soon a lost source of events is asked for again.
const RETRY: Duration = Duration::from_secs(2);
/// How often an ill GPU is looked at.
const PROBE: Duration = Duration::from_secs(1);

/// Watches over the GPUs until shutdown.
///
/// # Errors
/// The thread that waits for events ended.
pub async fn watch(carver: Carver, table: Table, token: CancellationToken) -> anyhow::Result<()> {
    let (events, mut news) = mpsc::channel(64);
    let (source, runtime, end) = (carver.clone(), tokio::runtime::Handle::current(), token.clone());
    std::thread::spawn(move || listen(&source, &runtime, &events, &end));
    let mut courses = BTreeMap::new();
    let mut probe = tokio::time::interval(PROBE);
    loop {
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            event = news.recv() => match event {
                Some(event) => take(&carver, &table, event).await,
                None if token.is_cancelled() => return Ok(()),
                None => anyhow::bail!("the thread that waits for GPU events has ended"),
            },
            _ = probe.tick() => look_after(&carver, &mut courses).await,
        }
    }
}

/// Waits for events, on a thread of its own because the driver's wait blocks.
fn listen(
    carver: &Carver,
    runtime: &tokio::runtime::Handle,
    events: &mpsc::Sender<Event>,
    end: &CancellationToken,
) {
    while !end.is_cancelled() {
        let source = runtime.block_on(carver.driver.call("listening for events", |gpus| gpus.events()));
        let mut source = match source {
            Ok(source) => source,
            Err(error) => {
                tracing::debug!(%error, "no events yet");
                runtime.block_on(async {
                    tokio::select! {
                        () = end.cancelled() => {}
                        () = tokio::time::sleep(RETRY) => {}
                    }
                });
                continue;
            }
        };
        tracing::info!("listening for events of the GPUs");
        while !end.is_cancelled() {
            match source.next(WAIT) {
                Ok(None) => {}
                Ok(Some(event)) => {
                    if events.blocking_send(event).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "events lost");
                    break;
                }
            }
        }
    }
}

/// Acts on one event.
async fn take(carver: &Carver, table: &Table, event: Event) {
    let gpu = event.gpu.as_deref().unwrap_or_default();
    match event.kind {
        EventKind::Xid(xid) => {
            carver.metrics.xid(gpu, xid);
            let action = table.action(xid);
            tracing::warn!(gpu, xid, gi = event.gi, ?action, "XID");
            let place = event.gi.and_then(|gi| place_of(carver, gpu, gi));
            match (action, place) {
                (Action::Ignore, _) => {}
                (Action::Slice, Some(place)) => carver.slice_fault(gpu, place, &format!("XID {xid}")).await,
                (Action::Slice | Action::Gpu, _) => {
                    carver.set_health(gpu, Health::Unhealthy, &format!("XID {xid}"));
                }
                (Action::Lost, _) => {
                    carver.set_health(gpu, Health::Unhealthy, &format!("XID {xid}: fallen off the bus"));
                }
            }
        }
        EventKind::Unavailable => {
            carver.set_health(gpu, Health::Unhealthy, "the driver says it cannot be reached");
        }
        EventKind::RecoveryAction => {
            if let Some(wants) = wants(carver, gpu).await {
                carver.set_health(gpu, Health::Unhealthy, &wants);
            }
        }
        EventKind::MigConfigChange => {
            if let Err(error) = carver.rescan().await {
                tracing::warn!(%error, "the GPUs cannot be read after a change");
            }
        }
    }
}

fn place_of(carver: &Carver, gpu: &str, gi: u32) -> Option<Place> {
    let view = carver.inventory.view();
    let mut slices = view.state.gpu(gpu)?.slices.iter();
    slices
        .find(|(_, slice)| slice.instance.gi == gi)
        .map(|(place, _)| *place)
}

/// What a GPU wants done, in words; `None` when nothing.
async fn wants(carver: &Carver, uuid: &str) -> Option<String> {
    let gpu = carver.inventory.view().state.gpu(uuid)?.info.clone();
    match carver
        .driver
        .call("asking what a GPU needs", move |gpus| gpus.recovery(&gpu))
        .await
    {
        Ok(Recovery::None) => None,
        Ok(Recovery::Reset) => Some("it needs a reset (nvidia-smi --gpu-reset)".to_owned()),
        Ok(Recovery::Reboot) => Some("the node needs a reboot".to_owned()),
        Ok(Recovery::Drain) => Some("its work must end, then it needs a reset".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Looks at every GPU that is not well, and lets it back when it has been for long enough.
async fn look_after(carver: &Carver, courses: &mut BTreeMap<String, Course>) {
    let view = carver.inventory.view();
    for gpu in &view.state.gpus {
        let uuid = &gpu.info.uuid;
        if gpu.health == Health::Healthy {
            continue;
        }
        let course = courses.entry(uuid.clone()).or_default();
        let trouble = wants(carver, uuid).await;
        let next = course.probed(gpu.health, trouble.is_none(), Instant::now());
        if next != gpu.health {
            let message = match next {
                Health::Healthy => String::new(),
                _ => format!(
                    "{} (was: {})",
                    trouble.unwrap_or_else(|| "nothing is wrong any more".to_owned()),
                    gpu.message
                ),
            };
            carver.set_health(uuid, next, &message);
        }
    }
}

impl Carver {
    /// Marks a slice as faulty. It is cut again when its pod lets go; one that nobody holds goes at once.
    pub async fn slice_fault(&self, uuid: &str, place: Place, fault: &str) {
        let _turn = self.turn().await;
        let id = DeviceId::new(uuid, place).to_string();
        let (held, gpu) = self.inventory.change(|state| {
            let held = state.held.contains_key(&id);
            let gpu = state.gpu_mut(uuid);
            let info = gpu.and_then(|gpu| {
                gpu.slices.get_mut(&place)?.fault = Some(fault.to_owned());
                Some(gpu.info.clone())
            });
            (held, info)
        });
        if let (false, Some(gpu)) = (held, gpu)
            && self.try_step(&gpu, Step::Destroy(place)).await
        {
            self.metrics.recovered();
        }
    }
}

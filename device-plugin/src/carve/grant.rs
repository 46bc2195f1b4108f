//! A pod comes. `Allocate` makes the slices behind device ids stand, `PreStartContainer` checks that they still do.

use shared::mig::{Board, Place, Step, plan};
use shared::names::{self, DeviceId};
use tokio::time::Instant;

use super::{CarveError, Carver, Granted};
use crate::gpus::GpuInfo;
use crate::inventory::{Gpu, Held, State};

/// What a device id names.
#[derive(Clone, Debug)]
enum Target {
    /// A place, which may have to be cut.
    Place(GpuInfo, Place),
    /// A slice that exists, by its UUID.
    Slice(GpuInfo, Place),
    /// A whole GPU.
    Gpu(GpuInfo),
}

impl Target {
    const fn gpu(&self) -> &GpuInfo {
        match self {
            Self::Place(gpu, _) | Self::Slice(gpu, _) | Self::Gpu(gpu) => gpu,
        }
    }
}

impl Carver {
    /// Makes devices of a resource stand and marks them held. All or nothing.
    ///
    /// # Errors
    /// The sentence for the pod's status; everything is as it was then, as far as the driver lets us.
    pub async fn allocate(&self, resource: &str, ids: &[String]) -> Result<Vec<Granted>, CarveError> {
        let _turn = self.turn().await;
        let mut fresh = Vec::new();
        let mut done = Vec::new();
        let mut result = Ok(Vec::new());
        for id in ids {
            match self.grant(resource, id, &mut fresh, &mut done).await {
                Ok(granted) => result
                    .as_mut()
                    .map(|all: &mut Vec<Granted>| all.push(granted))
                    .unwrap_or_default(),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if result.is_ok()
            && let Err(error) = self.settle()
        {
            result = Err(error);
        }
        if result.is_err() {
            self.inventory
                .change(|state| fresh.iter().for_each(|id| drop(state.held.remove(id))));
            self.take_back(done).await;
            for id in &fresh {
                self.forget_cdi(id);
            }
            if let Err(error) = self.settle() {
                tracing::error!(%error, "the journal is behind");
            }
        }
        result
    }

    /// Checks that the slices behind device ids stand, before a container starts, and cuts them again where they
    /// do not, at the same place.
    ///
    /// # Errors
    /// The sentence for the container's status.
    pub async fn pre_start(&self, resource: &str, ids: &[String], by_uuid: bool) -> Result<(), CarveError> {
        let _turn = self.turn().await;
        for id in ids {
            let mut done = Vec::new();
            let target = self.target(id)?;
            let held = self.inventory.view().state.held.get(id).cloned();
            self.renew_faulty(id, &target).await?;
            if held.is_none() {
                // the kubelet starts a container with it, so it is held, whatever we lost
                self.hold(resource, id);
            }
            let granted = match self.stand(id, &target, &mut done).await {
                Ok(granted) => granted,
                Err(error) => {
                    self.take_back(done).await;
                    return Err(error);
                }
            };
            let told = self.tell(id, &granted.uuid);
            self.settle()?;
            if by_uuid && !told.is_empty() && told != granted.uuid {
                return Err(CarveError::Recut { id: id.clone(), told });
            }
        }
        Ok(())
    }

    /// One device of an allocation.
    async fn grant(
        &self,
        resource: &str,
        id: &String,
        fresh: &mut Vec<String>,
        done: &mut Vec<(GpuInfo, Step)>,
    ) -> Result<Granted, CarveError> {
        let target = self.target(id)?;
        let view = self.inventory.view();
        if let Some(held) = view.state.held.get(id) {
            self.may_take_over(id, held, &target).await?;
        } else if let Some(why) = view
            .state
            .gpu(&target.gpu().uuid)
            .and_then(|gpu| view.state.closed(gpu))
        {
            return Err(CarveError::Closed { id: id.clone(), why });
        }
        if !view.state.held.contains_key(id) {
            fresh.push(id.clone());
        }
        let granted = match self.stand(id, &target, done).await {
            Err(CarveError::NoRoom { .. }) => {
                // perhaps a pod is gone that we still count
                self.settle_account().await;
                self.stand(id, &target, done).await?
            }
            result => result?,
        };
        // a place is held as soon as it stands, so that the next one of this request does not take it for room
        self.hold(resource, id);
        self.tell(id, &granted.uuid);
        Ok(granted)
    }

    /// Whether a device that we count as held may be handed out again. It may when the kubelet's own account shows
    /// nobody with it: then its pod is gone and we have not noticed, or an init container's device goes on to the
    /// containers of the same pod.
    async fn may_take_over(&self, id: &str, held: &Held, target: &Target) -> Result<(), CarveError> {
        let refused = |holder: String| {
            Err(CarveError::Held {
                id: id.to_owned(),
                holder,
            })
        };
        let shown = match self.account.list().await {
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(%error, "the kubelet's account cannot be read");
                let pod = held
                    .pod
                    .as_ref()
                    .map(|pod| format!("{}/{}", pod.namespace, pod.name));
                return refused(pod.unwrap_or_else(|| "a pod".to_owned()));
            }
        };
        if let Some(by) = shown.iter().find(|shown| shown.id == id) {
            return refused(format!("{}/{}", by.namespace, by.pod));
        }
        if let Target::Place(gpu, place) | Target::Slice(gpu, place) = target
            && let Some(slice) = self.slice(&gpu.uuid, *place)
        {
            let process = self.process_on(gpu, slice.instance.gi).await;
            if let Some(pid) = process.map_err(|error| CarveError::Gpu {
                id: id.to_owned(),
                error,
            })? {
                return Err(CarveError::Leftover {
                    id: id.to_owned(),
                    pid,
                });
            }
        }
        Ok(())
    }

    /// Makes what an id names stand, with nodes and CDI file.
    async fn stand(
        &self,
        id: &str,
        target: &Target,
        done: &mut Vec<(GpuInfo, Step)>,
    ) -> Result<Granted, CarveError> {
        match target {
            Target::Gpu(gpu) => {
                let (uuid, nodes) = (gpu.uuid.clone(), self.nodes.of_gpu(gpu.minor));
                self.write_cdi(id, names::CDI_KIND_GPU, nodes, uuid, None)
            }
            Target::Slice(gpu, place) => {
                let slice = self.slice(&gpu.uuid, *place);
                let slice = slice.ok_or_else(|| CarveError::Unknown { id: id.to_owned() })?;
                self.equip(id, names::CDI_KIND_GPU, gpu, &slice.instance)
            }
            Target::Place(gpu, place) => {
                self.cut(id, gpu, *place, done).await?;
                let slice = self.slice(&gpu.uuid, *place);
                let slice = slice.ok_or_else(|| CarveError::Unknown { id: id.to_owned() })?;
                self.equip(id, names::CDI_KIND, gpu, &slice.instance)
            }
        }
    }

    /// Makes a slice stand at a place, by the fewest steps.
    async fn cut(
        &self,
        id: &str,
        gpu: &GpuInfo,
        place: Place,
        done: &mut Vec<(GpuInfo, Step)>,
    ) -> Result<(), CarveError> {
        let unknown = || CarveError::Unknown { id: id.to_owned() };
        let board = gpu.board.clone().ok_or_else(unknown)?;
        // a removal that finds a process leads to another plan; each such round blocks one more slice, so it ends
        for _ in 0..=board.memory_slices {
            let steps = {
                let view = self.inventory.view();
                let of = view.state.gpu(&gpu.uuid).ok_or_else(unknown)?;
                steps(&view.state, of, &board, id, place)?
            };
            let mut again = false;
            for step in steps {
                match self.step(gpu, step).await {
                    Ok(()) => done.push((gpu.clone(), step)),
                    Err(error) if matches!(step, Step::Destroy(_)) && self.is_blocked(gpu, step) => {
                        tracing::info!(%error, id, "planning around a slice in use");
                        again = true;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !again {
                return Ok(());
            }
        }
        Err(CarveError::NoRoom {
            id: id.to_owned(),
            occupied: "every idle slice in the way is in use".to_owned(),
        })
    }

    fn is_blocked(&self, gpu: &GpuInfo, step: Step) -> bool {
        let (Step::Create(place) | Step::Destroy(place)) = step;
        self.slice(&gpu.uuid, place)
            .is_some_and(|slice| slice.blocked.is_some() && slice.instance.is_slice())
    }

    /// Cuts a faulty slice again, where nobody works on it.
    async fn renew_faulty(&self, id: &str, target: &Target) -> Result<(), CarveError> {
        let Target::Place(gpu, place) = target else {
            return Ok(());
        };
        if self
            .slice(&gpu.uuid, *place)
            .is_some_and(|slice| slice.fault.is_some())
        {
            tracing::info!(id, "cutting a faulty slice again");
            self.step(gpu, Step::Destroy(*place)).await?;
            self.metrics.recovered();
        }
        Ok(())
    }

    /// What an id names on this node.
    fn target(&self, id: &str) -> Result<Target, CarveError> {
        let view = self.inventory.view();
        let unknown = || CarveError::Unknown { id: id.to_owned() };
        if let Ok(device) = id.parse::<DeviceId>() {
            let gpu = view.state.gpu(&device.gpu).ok_or_else(unknown)?;
            let board = gpu
                .info
                .board
                .as_ref()
                .filter(|_| gpu.info.mig)
                .ok_or_else(unknown)?;
            device.place.window(board).ok_or_else(unknown)?;
            return Ok(Target::Place(gpu.info.clone(), device.place));
        }
        if let Some(gpu) = view.state.gpu(id) {
            return Ok(Target::Gpu(gpu.info.clone()));
        }
        let slice_on = |gpu: &Gpu| {
            let mut slices = gpu.slices.iter();
            slices
                .find(|(_, slice)| slice.instance.uuid == id)
                .map(|(place, _)| Target::Slice(gpu.info.clone(), *place))
        };
        view.state.gpus.iter().find_map(slice_on).ok_or_else(unknown)
    }

    fn hold(&self, resource: &str, id: &str) {
        let pod = self.pods.placed_at(id);
        self.inventory.change(|state| {
            state.sequence += 1;
            let mut held = Held::new(resource, state.sequence, Instant::now());
            (held.pod, held.container) =
                pod.map_or((None, None), |(pod, container)| (Some(pod), Some(container)));
            state.held.insert(id.to_owned(), held);
        });
    }

    /// Notes the UUID that a container is told; returns what it was told before.
    fn tell(&self, id: &str, uuid: &str) -> String {
        self.inventory.change(|state| {
            let held = state.held.get_mut(id);
            held.map(|held| std::mem::replace(&mut held.told, uuid.to_owned()))
                .unwrap_or_default()
        })
    }

    /// Removes the CDI file of a device that is no longer held.
    pub(super) fn forget_cdi(&self, id: &str) {
        let kind = if id.parse::<DeviceId>().is_ok() {
            names::CDI_KIND
        } else {
            names::CDI_KIND_GPU
        };
        if let Err(error) = self.cdi.remove(kind, id) {
            tracing::warn!(id, %error, "CDI file not removed");
        }
    }
}

/// The steps that make a slice stand at a place that is not held by another, or is held by the asker and not cut.
pub(super) fn steps(
    state: &State,
    gpu: &Gpu,
    board: &Board,
    id: &str,
    place: Place,
) -> Result<Vec<Step>, CarveError> {
    if gpu
        .slices
        .get(&place)
        .is_some_and(|slice| slice.instance.is_slice() && slice.blocked.is_none())
    {
        return Ok(Vec::new());
    }
    let mut layout = state.layout(gpu);
    if state.held.contains_key(id) && !gpu.slices.contains_key(&place) {
        // promised and not cut: the promise is not in its own way
        layout.remove(place);
    }
    plan(board, &layout, place).map(|plan| plan.steps).map_err(|_| {
        let busy = layout.busy();
        let used = busy
            .slices()
            .iter()
            .map(|slice| slice.place.to_string())
            .collect::<Vec<_>>()
            .join(", ");
        let blocked = gpu
            .slices
            .values()
            .find_map(|slice| slice.blocked.clone())
            .map(|why| format!(" ({why})"));
        let occupied = format!(
            "{} of GPU {} are in use{}",
            used,
            gpu.info.index,
            blocked.unwrap_or_default()
        );
        CarveError::NoRoom {
            id: id.to_owned(),
            occupied,
        }
    })
}

//! The device plugin interface for one resource.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use futures::stream::unfold;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::answer::answer;
use super::prefer::{self, Question};
use super::proto::v1beta1::device_plugin_server::DevicePlugin;
use super::proto::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, Device, DevicePluginOptions,
    Empty, ListAndWatchResponse, NumaNode, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, TopologyInfo,
};
use crate::args::ListStrategy;
use crate::carve::{CarveError, Carver};
use crate::inventory::{self, View};

/// What we tell the kubelet of ourselves.
pub const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: true,
    get_preferred_allocation_available: true,
};

/// One resource.
#[derive(Clone)]
pub struct Plugin {
    /// Its name.
    pub resource: String,
    /// The hands.
    pub carver: Carver,
    /// How containers are told.
    pub list_strategy: ListStrategy,
    /// Whether device nodes are given too.
    pub device_specs: bool,
    /// Ends its streams.
    pub token: CancellationToken,
}

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let (views, resource) = (self.carver.inventory.subscribe(), self.resource.clone());
        Ok(Response::new(Box::pin(lists(
            views,
            resource,
            self.token.clone(),
        ))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let started = Instant::now();
        let mut answers = Vec::new();
        for asked in request.into_inner().container_requests {
            let question = Question {
                resource: self.resource.clone(),
                available: asked.available_device_i_ds.into_iter().collect(),
                must: asked.must_include_device_i_ds.into_iter().collect(),
                size: usize::try_from(asked.allocation_size).unwrap_or(0),
            };
            answers.push(ContainerPreferredAllocationResponse {
                device_i_ds: self.prefer(&question).await,
            });
        }
        self.carver
            .metrics
            .called("GetPreferredAllocation", &self.resource, true, started.elapsed());
        Ok(Response::new(PreferredAllocationResponse {
            container_responses: answers,
        }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let started = Instant::now();
        let mut responses = Vec::new();
        for asked in request.into_inner().container_requests {
            let plugin = self.clone();
            let ids = asked.devices_ids;
            tracing::info!(resource = self.resource, ?ids, "allocate");
            // on a task of its own: a kubelet that hangs up must not leave half a change behind
            let work = tokio::spawn(async move { plugin.carver.allocate(&plugin.resource, &ids).await });
            let granted = work.await.map_err(|error| Status::internal(error.to_string()))?;
            self.carver
                .metrics
                .called("Allocate", &self.resource, granted.is_ok(), started.elapsed());
            responses.push(answer(
                &granted.map_err(refuse)?,
                self.list_strategy,
                self.device_specs,
            ));
        }
        Ok(Response::new(AllocateResponse {
            container_responses: responses,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let started = Instant::now();
        let (plugin, ids) = (self.clone(), request.into_inner().devices_ids);
        let by_uuid = self.list_strategy == ListStrategy::Envvar;
        let work =
            tokio::spawn(async move { plugin.carver.pre_start(&plugin.resource, &ids, by_uuid).await });
        let checked = work.await.map_err(|error| Status::internal(error.to_string()))?;
        self.carver.metrics.called(
            "PreStartContainer",
            &self.resource,
            checked.is_ok(),
            started.elapsed(),
        );
        checked.map_err(refuse)?;
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

impl Plugin {
    async fn prefer(&self, question: &Question) -> Vec<String> {
        let carver = &self.carver;
        let written = || prefer::as_written(question, &carver.inventory.view().state, &carver.pods.facts());
        if let Some(ids) = written() {
            return ids;
        }
        // the pod may be newer than what the watch has told
        carver.pods.look().await;
        if let Some(ids) = written() {
            return ids;
        }
        let ids = prefer::by_cost(question, &carver.inventory.view().state);
        tracing::info!(
            resource = self.resource,
            ?ids,
            "no placement is written on any waiting pod; own choice"
        );
        ids
    }
}

fn refuse(error: CarveError) -> Status {
    tracing::warn!(%error, "refused");
    match error {
        CarveError::Unknown { .. } => Status::not_found(error.to_string()),
        CarveError::Held { .. } => Status::already_exists(error.to_string()),
        CarveError::Closed { .. }
        | CarveError::NoRoom { .. }
        | CarveError::Leftover { .. }
        | CarveError::Recut { .. } => Status::failed_precondition(error.to_string()),
        CarveError::Gpu { .. } | CarveError::Node { .. } | CarveError::File { .. } => {
            Status::unavailable(error.to_string())
        }
    }
}

/// The whole list at once, then again whenever it is another one, until the token ends it.
fn lists(
    views: watch::Receiver<Arc<View>>,
    resource: String,
    token: CancellationToken,
) -> impl Stream<Item = Result<ListAndWatchResponse, Status>> + Send {
    let start = (views, None::<Vec<inventory::Device>>, resource, token);
    unfold(start, |(mut views, last, resource, token)| async move {
        loop {
            let now = views
                .borrow_and_update()
                .resources
                .get(&resource)
                .cloned()
                .unwrap_or_default();
            if last.as_ref() != Some(&now) {
                let healthy = now.iter().filter(|device| device.healthy).count();
                tracing::debug!(resource, devices = now.len(), healthy, "list sent");
                let list = ListAndWatchResponse {
                    devices: now.iter().map(device).collect(),
                };
                return Some((Ok(list), (views, Some(now), resource, token)));
            }
            tokio::select! {
                () = token.cancelled() => return None,
                changed = views.changed() => changed.ok()?,
            }
        }
    })
}

fn device(device: &inventory::Device) -> Device {
    let health = if device.healthy { "Healthy" } else { "Unhealthy" };
    let nodes = |numa| TopologyInfo {
        nodes: vec![NumaNode { id: i64::from(numa) }],
    };
    Device {
        id: device.id.clone(),
        health: health.to_owned(),
        topology: device.numa.map(nodes),
    }
}

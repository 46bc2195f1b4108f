//! The GpuNode of this node, and the labels of its Node: what was asked of us is followed, what we have is written.
//! This is all that the agent writes to the API server; where there is none, or it is away, the kubelet is served
//! all the same.
//!
//! * [`status`] - the inventory as a GpuNode's status
//! * [`labels`] - the inventory as node labels, by the names of NVIDIA's feature discovery
//! * [`events`] - what people should hear of

pub mod events;
pub mod labels;
pub mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use serve::watch::Change;
use shared::api::gpu_node::{GpuNodeSpec, GpuNodeStatus};
use shared::api::{GpuNode, conditions};
use shared::names;
use tokio_util::sync::CancellationToken;

use crate::inventory::Inventory;
use crate::metrics::Metrics;

/// Changes within this time become one write.
const COALESCE: Duration = Duration::from_millis(200);
/// How soon a failed write is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often the labels are written again, in case somebody took them away.
const LABELS: Duration = Duration::from_secs(300);

/// Writes about one node.
#[derive(Clone)]
pub struct NodeObject {
    client: Client,
    name: String,
    inventory: Inventory,
    metrics: Metrics,
}

impl NodeObject {
    /// The objects of a node.
    #[must_use]
    pub fn new(client: Client, name: &str, inventory: Inventory, metrics: Metrics) -> Self {
        Self {
            client,
            name: name.to_owned(),
            inventory,
            metrics,
        }
    }

    /// Follows what is wanted of the node.
    ///
    /// # Errors
    /// None: a watch that fails is tried again.
    pub async fn follow(self, token: CancellationToken) -> anyhow::Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut watch = serve::watch::watch(Api::<GpuNode>::all(self.client.clone()), config, token);
        while let Some(change) = watch.stream.next().await {
            let object = match change {
                Change::Reset(mut all) => all.pop(),
                Change::Apply(object) => Some(object),
                Change::Delete(_) => None,
            };
            let (spec, generation) = object.map_or((GpuNodeSpec::default(), None), |object| {
                (object.spec, object.metadata.generation)
            });
            let state = &self.inventory.view().state;
            if state.spec != spec || state.generation != generation {
                tracing::info!(
                    paused = spec.paused,
                    withheld = spec.withhold.len(),
                    warm = spec.warm.len(),
                    ?generation,
                    "asked of this node"
                );
                self.inventory
                    .change(|state| (state.spec, state.generation) = (spec, generation));
            }
        }
        Ok(())
    }

    /// Writes the status whenever it is another one.
    ///
    /// # Errors
    /// None: a write that fails is tried again.
    pub async fn write_status(self, token: CancellationToken) -> anyhow::Result<()> {
        let mut views = self.inventory.subscribe();
        let mut written: Option<GpuNodeStatus> = None;
        let mut before: Option<Vec<Condition>> = None;
        loop {
            let view = views.borrow_and_update().clone();
            if before.is_none() {
                before = self.conditions().await;
            }
            let now = Time(Timestamp::now());
            let status = status::status(
                &view.state,
                &view.state.boot_id,
                before.as_deref().unwrap_or_default(),
                now,
            );
            let mut wait = None;
            // before anything was looked at, what the last agent wrote is nearer to the truth than nothing
            if view.state.driver != crate::inventory::Driver::Unknown && written.as_ref() != Some(&status) {
                match self.put(&status).await {
                    Ok(()) => {
                        before = Some(status.conditions.clone());
                        written = Some(status);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "GpuNode not written");
                        wait = Some(RETRY);
                    }
                }
                self.metrics.wrote("gpunode", wait.is_none());
            }
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = async { tokio::time::sleep(wait.unwrap_or_default()).await }, if wait.is_some() => {}
                Ok(()) = views.changed(), if wait.is_none() => tokio::time::sleep(COALESCE).await,
            }
        }
    }

    /// Conditions that the last agent wrote, for their times of change.
    async fn conditions(&self) -> Option<Vec<Condition>> {
        let found = Api::<GpuNode>::all(self.client.clone())
            .get_opt(&self.name)
            .await
            .ok()?;
        Some(
            found
                .and_then(|object| object.status)
                .unwrap_or_default()
                .conditions,
        )
    }

    async fn put(&self, status: &GpuNodeStatus) -> kube::Result<()> {
        let api = Api::<GpuNode>::all(self.client.clone());
        let patch = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "GpuNode",
            "metadata": { "name": self.name },
            "status": status,
        });
        let params = PatchParams::apply(names::MANAGER_AGENT).force();
        match api.patch_status(&self.name, &params, &Patch::Apply(&patch)).await {
            Err(kube::Error::Api(refused)) if refused.code == 404 => {}
            written => return written.map(drop),
        }
        let made = api
            .create(
                &PostParams::default(),
                &GpuNode::new(&self.name, GpuNodeSpec::default()),
            )
            .await;
        match made {
            // somebody was faster
            Err(kube::Error::Api(refused)) if refused.code == 409 => {}
            made => drop(made?),
        }
        api.patch_status(&self.name, &params, &Patch::Apply(&patch))
            .await
            .map(drop)
    }

    /// Keeps the labels of the Node.
    ///
    /// # Errors
    /// None: a write that fails is tried again.
    pub async fn write_labels(self, token: CancellationToken) -> anyhow::Result<()> {
        let api = Api::<Node>::all(self.client.clone());
        let mut views = self.inventory.subscribe();
        let mut written: Option<BTreeMap<String, String>> = None;
        loop {
            let view = views.borrow_and_update().clone();
            let labels = labels::labels(&view.state);
            let mut wait = LABELS;
            if written.as_ref() != Some(&labels) {
                match self.put_labels(&api, &labels).await {
                    Ok(()) => written = Some(labels),
                    Err(error) => {
                        tracing::warn!(%error, "node labels not written");
                        wait = RETRY;
                    }
                }
                self.metrics.wrote("labels", wait != RETRY);
            }
            let failed = wait == RETRY;
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = tokio::time::sleep(wait) => written = None,
                Ok(()) = views.changed(), if !failed => tokio::time::sleep(COALESCE).await,
            }
        }
    }

    /// Adds what is missing, corrects what is wrong, removes what we set once and is no longer true.
    async fn put_labels(&self, api: &Api<Node>, labels: &BTreeMap<String, String>) -> kube::Result<()> {
        let node = api.get(&self.name).await?;
        let there = node.labels();
        if labels.is_empty() || there.contains_key(names::LABEL_DISCOVERED) {
            return Ok(());
        }
        let stale = there
            .keys()
            .filter(|key| labels::is_ours(key) && !labels.contains_key(*key));
        let mut changes: BTreeMap<&String, Value> = stale.map(|key| (key, Value::Null)).collect();
        changes.extend(
            labels
                .iter()
                .filter(|(key, value)| there.get(*key) != Some(value))
                .map(|(key, value)| (key, json!(value))),
        );
        if changes.is_empty() {
            return Ok(());
        }
        tracing::info!(changes = changes.len(), "labelling the node");
        let patch = json!({ "metadata": { "labels": changes } });
        let params = PatchParams {
            field_manager: Some(names::MANAGER_AGENT.to_owned()),
            ..PatchParams::default()
        };
        api.patch(&self.name, &params, &Patch::Strategic(&patch))
            .await
            .map(drop)
    }
}

/// Sets the conditions of a status.
pub(crate) fn condition(
    list: &mut Vec<Condition>,
    kind: &str,
    on: bool,
    why: (&str, &str),
    generation: Option<i64>,
    now: Time,
) {
    conditions::set(list, kind, on, why.0, why.1, generation, now);
}

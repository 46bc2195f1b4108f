//! A running cluster with migpool installed: submit, look, wait. Waiting polls with a deadline and says at the
//! end what it saw last, because that is what a failed test is read for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use shared::api::GpuNode;
use shared::mig::Profile;
use shared::names;

use crate::pods::{Seen, phase};
use crate::{oracle, pods};

/// How often a wait looks again.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Namespace of the test pods.
const NAMESPACE: &str = "default";

/// A cluster to test.
#[derive(Clone)]
pub struct World {
    /// Client with the administrator's rights.
    pub client: Client,
}

impl World {
    /// Talks to the cluster of this kubeconfig.
    pub async fn connect(kubeconfig: &std::path::Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the cluster's kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
        })
    }

    /// Pods of the test namespace.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Pods of migpool itself.
    #[must_use]
    pub fn own_pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), names::NAMESPACE)
    }

    /// Submits a pod.
    pub async fn submit(&self, pod: Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(pod)?;
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .context("create a pod")?;
        Ok(())
    }

    /// Submits a Deployment.
    pub async fn deploy(&self, deployment: Value) -> Result<()> {
        let deployment: Deployment = serde_json::from_value(deployment)?;
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.create(&PostParams::default(), &deployment)
            .await
            .context("create a deployment")?;
        Ok(())
    }

    /// Deletes a pod and waits until it is gone.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.pods()
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("delete pod {name}"))?;
        self.until(30, &format!("pod {name} is gone"), async || {
            Ok(self
                .pods()
                .get_opt(name)
                .await?
                .map(|pod| phase(&pod).to_owned())
                .map_or(Ok(()), Err))
        })
        .await
    }

    /// Deletes a Deployment and waits until its pods are gone.
    pub async fn undeploy(&self, name: &str) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.delete(name, &DeleteParams::background())
            .await
            .with_context(|| format!("delete deployment {name}"))?;
        self.until(60, &format!("the pods of {name} are gone"), async || {
            let pods = self.all_pods().await?;
            let left = pods
                .iter()
                .find(|pod| pod.name_any().starts_with(name))
                .map(describe);
            Ok(left.map_or(Ok(()), Err))
        })
        .await
    }

    /// Deletes every Deployment and pod of the tests and waits until all slices are free.
    pub async fn clear(&self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        deployments
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await?;
        self.pods()
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        // a slice whose pod went before its kubelet showed it is held for a minute
        self.until(100, "no test pod and no used slice is left", async || {
            let pods = self.pods().list(&ListParams::default()).await?.items.len();
            let used: usize = self.gpu_nodes().await?.iter().map(used).sum();
            Ok(if pods + used == 0 {
                Ok(())
            } else {
                Err(format!("{pods} pods, {used} used slices"))
            })
        })
        .await
    }

    /// One pod.
    pub async fn pod(&self, name: &str) -> Result<Pod> {
        self.pods()
            .get(name)
            .await
            .with_context(|| format!("get pod {name}"))
    }

    /// All test pods.
    pub async fn all_pods(&self) -> Result<Vec<Pod>> {
        Ok(self.pods().list(&ListParams::default()).await?.items)
    }

    /// Waits until a pod runs.
    pub async fn running(&self, name: &str) -> Result<Pod> {
        self.until(60, &format!("pod {name} runs"), async || {
            let pod = self.pod(name).await?;
            Ok(if phase(&pod) == "Running" {
                Ok(pod)
            } else {
                Err(describe(&pod))
            })
        })
        .await
    }

    /// Waits until the container of a pod has looked around, and returns what it saw.
    pub async fn seen(&self, name: &str) -> Result<Seen> {
        self.until(30, &format!("pod {name} has looked"), async || {
            let log = self
                .pods()
                .logs(name, &LogParams::default())
                .await
                .unwrap_or_default();
            Ok(Seen::read(&log).ok_or(log))
        })
        .await
    }

    /// The GpuNodes, by name.
    pub async fn gpu_nodes(&self) -> Result<Vec<GpuNode>> {
        let api: Api<GpuNode> = Api::all(self.client.clone());
        let mut nodes = api.list(&ListParams::default()).await?.items;
        nodes.sort_by_key(kube::ResourceExt::name_any);
        Ok(nodes)
    }

    /// Slices allocatable on each node by the kubelet's account, by profile.
    pub async fn allocatable(&self) -> Result<BTreeMap<String, BTreeMap<Profile, usize>>> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut all = BTreeMap::new();
        for node in api.list(&ListParams::default()).await?.items {
            let shown = node
                .status
                .clone()
                .and_then(|status| status.allocatable)
                .unwrap_or_default();
            let counts = shown
                .iter()
                .filter_map(|(name, count)| match names::parse_resource(name)? {
                    names::Asked::Slice(profile) => Some((profile, count.0.parse().ok()?)),
                    _ => None,
                });
            all.insert(node.name_any(), counts.collect());
        }
        Ok(all)
    }

    /// Waits until the kubelet of every node shows exactly what brute force says, and every layout is legal.
    pub async fn counts_are_true(&self, seconds: u64) -> Result<()> {
        self.until(seconds, "allocatable equals the brute-force count", async || {
            let nodes = self.gpu_nodes().await?;
            let faults = oracle::faults(&nodes);
            if !faults.is_empty() {
                bail!("{}", faults.join("; "));
            }
            let shown = self.allocatable().await?;
            for node in &nodes {
                let name = node.name_any();
                let (want, have) = (
                    oracle::allocatable(node),
                    shown.get(&name).cloned().unwrap_or_default(),
                );
                let wrong: Vec<String> = want
                    .iter()
                    .filter(|(profile, count)| have.get(profile).copied().unwrap_or(0) != **count)
                    .map(|(profile, count)| format!("{profile}: {:?} instead of {count}", have.get(profile)))
                    .collect();
                if !wrong.is_empty() || want.is_empty() {
                    return Ok(Err(format!("{name}: {}", wrong.join(", "))));
                }
            }
            Ok(Ok(()))
        })
        .await
    }

    /// Events about a pod whose note holds `text`.
    pub async fn events(&self, pod: &str, text: &str) -> Result<Vec<String>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let events = api.list(&ListParams::default()).await?.items.into_iter();
        let about =
            events.filter(|event| event.regarding.as_ref().and_then(|at| at.name.as_deref()) == Some(pod));
        Ok(about
            .filter_map(|event| event.note)
            .filter(|note| note.contains(text))
            .collect())
    }

    /// Waits until `look` gives `Ok`; its `Err` is what is seen instead.
    ///
    /// # Errors
    /// After `seconds`, with what was waited for and what was seen last; and whatever `look` itself fails with.
    pub async fn until<T>(
        &self,
        seconds: u64,
        what: &str,
        look: impl AsyncFn() -> Result<std::result::Result<T, String>>,
    ) -> Result<T> {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            let seen = match look().await? {
                Ok(value) => return Ok(value),
                Err(seen) => seen,
            };
            if Instant::now() > end {
                bail!("waited {seconds} s until {what}; last seen: {seen}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Slices of a node that pods have.
#[must_use]
pub fn used(node: &GpuNode) -> usize {
    let gpus = node.status.iter().flat_map(|status| &status.gpus);
    gpus.map(|gpu| oracle::busy(gpu).len()).sum()
}

/// A pod in a line, for a failure message.
#[must_use]
pub fn describe(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let why: Vec<String> = conditions
        .iter()
        .filter(|condition| condition.status != "True")
        .map(|condition| {
            format!(
                "{}: {}",
                condition.type_,
                condition.message.clone().unwrap_or_default()
            )
        })
        .collect();
    let placement = pods::placement(pod)
        .map(|placement| placement.to_string())
        .unwrap_or_default();
    let message = [status.reason, status.message]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ");
    format!(
        "{} {} {message} [{placement}] {}",
        pod.name_any(),
        phase(pod),
        why.join("; ")
    )
}

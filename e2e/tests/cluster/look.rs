//! What the cases look at and wait for, beyond what the demo needs too.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use e2e::pods::{conditions, phase};
use e2e::world::World;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use shared::names::DeviceId;

use crate::Stage;
use crate::process::{AGENT, Process};

/// Waits until the node's agent is ready, nothing idle is left and all counts are true; gives the pods there are.
/// After a few deaths the kubelet waits longer and longer before it starts a container again, so an agent that is
/// down gets a new pod.
pub(crate) async fn calm(world: &World, node: &str) -> Result<BTreeSet<(String, String)>> {
    for pod in world.own_pods().list(&ListParams::default()).await?.items {
        if is_agent(&pod) && node_of(&pod) == node && !is_ready(&pod) {
            world
                .own_pods()
                .delete(&pod.name_any(), &DeleteParams::default())
                .await?;
        }
    }
    world
        .until(120, "the agent is ready", async || {
            let own = world.own_pods().list(&ListParams::default()).await?.items;
            let ready = own
                .iter()
                .any(|pod| node_of(pod) == node && is_agent(pod) && is_ready(pod));
            Ok(if ready && Process::find(AGENT, Some(node)).is_ok() {
                Ok(())
            } else {
                Err("it is not".to_owned())
            })
        })
        .await?;
    world
        .until(60, "no idle slice is left", async || {
            let (slices, used) = slices(world).await?;
            Ok(if slices == used {
                Ok(())
            } else {
                Err(format!("{slices} slices, {used} used"))
            })
        })
        .await?;
    world.counts_are_true(60).await?;
    identities(world).await
}

/// Slices that exist, and those that pods have.
pub(crate) async fn slices(world: &World) -> Result<(usize, usize)> {
    let nodes = world.gpu_nodes().await?;
    let gpus = nodes
        .iter()
        .flat_map(|node| node.status.iter().flat_map(|status| &status.gpus));
    Ok((
        gpus.map(|gpu| gpu.slices.len()).sum(),
        nodes.iter().map(e2e::world::used).sum(),
    ))
}

/// Sets how long a released slice is kept.
pub(crate) async fn keep_idle(world: &World, seconds: u32) -> Result<()> {
    let pools: Api<shared::api::GpuPool> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"spec": {"policy": {"idleSliceSeconds": seconds}}}));
    pools
        .patch(shared::names::DEFAULT_POOL, &PatchParams::default(), &patch)
        .await
        .context("patch the pool")?;
    Ok(())
}

/// Lets every slice take a second and a half to cut, so that what lies between two steps can be seen.
pub(crate) fn slow_cuts(stage: &Stage) -> Result<()> {
    for node in stage.cluster.nodes() {
        node.fake_nvml(&[
            "delay",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "--ms",
            "1500",
        ])?;
    }
    Ok(())
}

/// Whether so many pods run.
pub(crate) fn so_many_run(pods: &[Pod], want: usize) -> std::result::Result<(), String> {
    let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
    if running == want {
        Ok(())
    } else {
        Err(format!("{running} run"))
    }
}

/// Whether a pod of migpool is an agent.
pub(crate) fn is_agent(pod: &Pod) -> bool {
    pod.name_any().starts_with("migpool-device-plugin")
}

fn is_ready(pod: &Pod) -> bool {
    conditions(pod).any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Name and UID of every pod: what a disturbance would change.
pub(crate) async fn identities(world: &World) -> Result<BTreeSet<(String, String)>> {
    let pods = world.all_pods().await?;
    Ok(pods
        .iter()
        .map(|pod| (pod.name_any(), pod.meta().uid.clone().unwrap_or_default()))
        .collect())
}

/// Who holds which place, by the agents' account.
pub(crate) async fn held(world: &World) -> Result<BTreeMap<String, DeviceId>> {
    let mut held = BTreeMap::new();
    for node in world.gpu_nodes().await? {
        for gpu in node.status.iter().flat_map(|status| &status.gpus) {
            for slice in &gpu.slices {
                if let Some(holder) = &slice.holder {
                    held.insert(holder.pod.clone(), DeviceId::new(gpu.uuid.clone(), slice.place));
                }
            }
        }
    }
    Ok(held)
}

pub(crate) fn node_of(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .unwrap_or_default()
}

/// The same Deployment, held to one node.
pub(crate) fn on_node(mut deployment: serde_json::Value, node: &str) -> serde_json::Value {
    deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    deployment
}

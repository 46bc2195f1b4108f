//! Kubelet, agent and node restart: running pods are untouched, and what was there comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::oracle;
use e2e::pods::{deployment, phase, placement, pod};
use e2e::world::{World, describe};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use shared::names::DeviceId;

use crate::Stage;
use crate::placement::no_place_twice;

/// The agent as the kernel names it.
const AGENT: &str = "migpool-device-";
/// Resources are back within this time after a kubelet restart.
const BACK_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn a_kubelet_restart_leaves_pods_alone_and_brings_resources_back(
    stage: &Stage,
) -> Result<()> {
    let world = &stage.world;
    for number in 1..=3 {
        world.submit(pod(&format!("held-{number}"), "2g.20gb", 1)).await?;
    }
    for number in 1..=3 {
        world.running(&format!("held-{number}")).await?;
    }
    world.counts_are_true(20).await?;
    let before = identities(world).await?;
    let node = node_of(&world.pod("held-1").await?);
    stage.cluster.restart_kubelet(&node)?;
    let back = Instant::now();
    world.counts_are_true(30).await?;
    let took = back.elapsed();
    ensure!(took < BACK_WITHIN, "resources came back after {took:?}");
    println!(
        "    resources back {:.1} s after the kubelet listened",
        took.as_secs_f32()
    );
    let after = identities(world).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    world.submit(pod("new", "1g.10gb", 1)).await?;
    world.running("new").await?;
    world.counts_are_true(20).await
}

pub(crate) async fn an_agent_killed_at_any_step_loses_nothing(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    // released slices are removed at once, so that every pod's slice is cut and every release is a removal
    keep_idle(world, 0).await?;
    let result = killed_at_any_step(stage).await;
    keep_idle(world, 600).await?;
    result
}

async fn killed_at_any_step(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    world.submit(pod("bystander", "3g.40gb", 1)).await?;
    let node = node_of(&world.running("bystander").await?);
    let machine = stage.cluster.node(&node)?;
    // each slow call is a step of the journal that the agent dies in
    for step in [
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
    ] {
        let before = calm(world, &node)
            .await
            .with_context(|| format!("before {step}"))?;
        machine.fake_nvml(&["delay", step, "--ms", "3000"])?;
        world
            .deploy(on_node(deployment("round", "2g.20gb", 1), &node))
            .await?;
        let mine = |pod: &&Pod| pod.name_any().starts_with("round");
        world
            .until(30, "the pod of the round is bound", async || {
                let pods = world.all_pods().await?;
                let bound = pods.iter().filter(mine).any(|pod| !node_of(pod).is_empty());
                Ok(if bound {
                    Ok(())
                } else {
                    Err("it is not".to_owned())
                })
            })
            .await?;
        // the call takes 3 s; the agent dies in the middle of it
        tokio::time::sleep(Duration::from_millis(1000)).await;
        let early = world
            .all_pods()
            .await?
            .iter()
            .filter(mine)
            .any(|pod| phase(pod) == "Running");
        ensure!(
            !early,
            "the pod runs although {step} takes 3 s: the step was not taken"
        );
        kill("-KILL", &Process::find(AGENT, Some(&node))?)?;
        machine.fake_nvml(&["clear"])?;
        world
            .until(
                120,
                &format!("a pod runs after the agent died in {step}"),
                async || {
                    let pods = world.all_pods().await?;
                    no_place_twice(&pods)?;
                    let runs = pods.iter().filter(mine).any(|pod| phase(pod) == "Running");
                    let failed: Vec<String> = pods
                        .iter()
                        .filter(|pod| phase(pod) == "Failed")
                        .map(describe)
                        .collect();
                    Ok(if runs && failed.is_empty() {
                        Ok(())
                    } else {
                        Err(format!("runs: {runs}, failed: {failed:?}"))
                    })
                },
            )
            .await?;
        let after = calm(world, &node)
            .await
            .with_context(|| format!("after {step}"))?;
        ensure!(
            before.iter().all(|pod| after.contains(pod)),
            "{step}: {before:?} became {after:?}"
        );
        world.undeploy("round").await?;
    }
    for step in ["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"] {
        calm(world, &node)
            .await
            .with_context(|| format!("before {step}"))?;
        world
            .deploy(on_node(deployment("round", "2g.20gb", 1), &node))
            .await?;
        world
            .until(60, "the pod of the round runs", async || {
                Ok(so_many_run(&world.all_pods().await?, 2))
            })
            .await?;
        machine.fake_nvml(&["delay", step, "--ms", "5000"])?;
        world.undeploy("round").await?;
        world
            .until(20, "the slice is released and not yet removed", async || {
                let (slices, used) = slices(world).await?;
                Ok(if slices == 2 && used == 1 {
                    Ok(())
                } else {
                    Err(format!("{slices} slices, {used} used"))
                })
            })
            .await?;
        kill("-KILL", &Process::find(AGENT, Some(&node))?)?;
        machine.fake_nvml(&["clear"])?;
        let left = calm(world, &node)
            .await
            .with_context(|| format!("after the agent died in {step}"))?;
        ensure!(left.len() == 1, "{step}: {left:?} instead of the bystander");
    }
    Ok(())
}

/// Waits until the node's agent is ready, nothing idle is left and all counts are true; gives the pods there are.
/// After a few deaths the kubelet waits longer and longer before it starts a container again, so an agent that is
/// down gets a new pod.
async fn calm(world: &World, node: &str) -> Result<BTreeSet<(String, String)>> {
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
async fn slices(world: &World) -> Result<(usize, usize)> {
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
async fn keep_idle(world: &World, seconds: u32) -> Result<()> {
    let pools: Api<shared::api::GpuPool> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"spec": {"policy": {"idleSliceSeconds": seconds}}}));
    pools
        .patch(shared::names::DEFAULT_POOL, &PatchParams::default(), &patch)
        .await
        .context("patch the pool")?;
    Ok(())
}

/// Whether so many pods run.
fn so_many_run(pods: &[Pod], want: usize) -> std::result::Result<(), String> {
    let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
    if running == want {
        Ok(())
    } else {
        Err(format!("{running} run"))
    }
}

/// Whether a pod of migpool is an agent.
fn is_agent(pod: &Pod) -> bool {
    pod.name_any().starts_with("migpool-device-plugin")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) async fn an_agent_rollout_disturbs_nothing(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    world.deploy(deployment("steady", "1g.20gb", 5)).await?;
    world
        .until(60, "five pods run", async || {
            Ok(so_many_run(&world.all_pods().await?, 5))
        })
        .await?;
    world.counts_are_true(20).await?;
    let (before, places) = (identities(world).await?, held(world).await?);
    let agents: Api<DaemonSet> = Api::namespaced(world.client.clone(), shared::names::NAMESPACE);
    let agent = agents
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .next()
        .context("no DaemonSet")?;
    let name = agent.name_any();
    let stamp = json!({"spec": {"template": {"metadata": {"annotations": {"migpool.dev/rolled": "e2e"}}}}});
    let rolled = agents
        .patch(&name, &PatchParams::default(), &Patch::Strategic(stamp))
        .await?;
    let generation = rolled.metadata.generation;
    world
        .until(120, "the roll-out is over", async || {
            let status = agents.get(&name).await?.status.unwrap_or_default();
            let new = status.updated_number_scheduled == Some(status.desired_number_scheduled);
            let over = status.observed_generation == generation
                && new
                && status.number_unavailable.unwrap_or(0) == 0;
            Ok(if over { Ok(()) } else { Err(format!("{status:?}")) })
        })
        .await?;
    world.counts_are_true(30).await?;
    ensure!(before == identities(world).await?, "pods changed");
    ensure!(places == held(world).await?, "places changed");
    Ok(())
}

pub(crate) async fn a_node_reboot_returns_pods_to_their_places(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    world.deploy(deployment("steady", "2g.20gb", 5)).await?;
    world
        .until(60, "five pods run", async || {
            Ok(so_many_run(&world.all_pods().await?, 5))
        })
        .await?;
    world.counts_are_true(20).await?;
    let node = node_of(&world.all_pods().await?[0]);
    let (before, places) = (identities(world).await?, held(world).await?);
    stage.cluster.reboot(&node)?;
    world
        .until(
            180,
            "five pods run again, none lingers, and the same places are held",
            async || {
                let pods = world.all_pods().await?;
                no_place_twice(&pods)?;
                let ready = pods
                    .iter()
                    .filter(|pod| phase(pod) == "Running" && restarted_or_new(pod, &node, &before))
                    .count();
                let lingering: Vec<String> = pods
                    .iter()
                    .filter(|pod| phase(pod) == "Failed")
                    .map(describe)
                    .collect();
                let now = held(world).await?;
                let same = now.values().collect::<BTreeSet<_>>() == places.values().collect::<BTreeSet<_>>();
                Ok(if ready == 5 && lingering.is_empty() && same {
                    Ok(())
                } else {
                    Err(format!(
                        "{ready} run, lingering {lingering:?}, held {now:?} (before {places:?})"
                    ))
                })
            },
        )
        .await?;
    let kept = identities(world).await?.intersection(&before).count();
    println!("    {kept} of 5 pods were restarted in place, the others were replaced");
    // who kept its pod kept its place
    for (holder, place) in held(world).await? {
        if let Some(was) = places.get(&holder) {
            ensure!(*was == place, "{holder} moved from {was} to {place}");
        }
    }
    world.counts_are_true(30).await
}

pub(crate) async fn a_refused_pod_leaves_its_place_to_its_replacement_and_does_not_linger(
    stage: &Stage,
) -> Result<()> {
    let world = &stage.world;
    keep_idle(world, 0).await?;
    let result = refused_once(stage).await;
    keep_idle(world, 600).await?;
    result
}

async fn refused_once(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    for node in stage.cluster.nodes() {
        calm(world, node.name()).await?;
    }
    // the driver refuses once, so the kubelet refuses the pod, as it does when it asks before we have registered
    for node in stage.cluster.nodes() {
        node.fake_nvml(&[
            "delay",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "--ms",
            "1500",
        ])?;
        node.fake_nvml(&[
            "fail",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "--on-call",
            "1",
            "--code",
            "999",
        ])?;
    }
    world.deploy(deployment("refused", "3g.40gb", 1)).await?;
    let placed = async || {
        let pods = world.all_pods().await?;
        let placed = pods
            .iter()
            .find_map(|pod| Some((pod.name_any(), placement(pod)?)));
        Ok(placed.ok_or_else(|| "no pod is bound".to_owned()))
    };
    let (first, place) = world.until(30, "a pod is bound", placed).await?;
    world
        .until(60, "another pod runs and the first is gone", async || {
            let pods = world.all_pods().await?;
            let runs = pods.len() == 1 && pods[0].name_any() != first && phase(&pods[0]) == "Running";
            Ok(if runs {
                Ok(())
            } else {
                Err(pods.iter().map(describe).collect::<Vec<_>>().join(" | "))
            })
        })
        .await?;
    for node in stage.cluster.nodes() {
        node.fake_nvml(&["clear"])?;
    }
    let second = world.all_pods().await?.first().and_then(placement);
    ensure!(
        second.as_ref() == Some(&place),
        "{first} was placed at {place}, its replacement at {second:?}"
    );
    let said = world.events(&first, "").await?;
    ensure!(
        said.iter().any(|note| note.contains("3g.40gb")),
        "the refused pod's events do not name the slice: {said:?}"
    );
    world.counts_are_true(20).await
}

/// Whether a pod's container runs in this boot of its node: it was restarted, or the pod is new, or its node is
/// another one.
fn restarted_or_new(pod: &Pod, rebooted: &str, before: &BTreeSet<(String, String)>) -> bool {
    let containers = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let restarted = containers
        .into_iter()
        .all(|container| container.ready && container.restart_count > 0);
    node_of(pod) != rebooted
        || restarted
        || !before.contains(&(pod.name_any(), pod.uid().unwrap_or_default()))
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
async fn held(world: &World) -> Result<BTreeMap<String, DeviceId>> {
    let mut held = BTreeMap::new();
    for node in world.gpu_nodes().await? {
        for gpu in node.status.iter().flat_map(|status| &status.gpus) {
            for slice in &gpu.slices {
                if let Some(holder) = &slice.holder {
                    held.insert(holder.pod.clone(), DeviceId::new(gpu.uuid.clone(), slice.place));
                }
            }
            debug_assert!(
                oracle::busy(gpu).len() >= gpu.slices.iter().filter(|slice| slice.holder.is_some()).count()
            );
        }
    }
    Ok(held)
}

fn node_of(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.clone())
        .unwrap_or_default()
}

/// The same Deployment, held to one node.
fn on_node(mut deployment: serde_json::Value, node: &str) -> serde_json::Value {
    deployment["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    deployment
}

/// A process of ours in a container; the nodes share the machine's process table.
pub(crate) struct Process(String);

impl Process {
    /// The process with this kernel name, and with `NODE_NAME` in its environment where a node is given.
    pub(crate) fn find(name: &str, node: Option<&str>) -> Result<Self> {
        let wanted = node.map(|node| format!("NODE_NAME={node}"));
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            if comm.trim() != name {
                continue;
            }
            let environment = std::fs::read(path.join("environ")).unwrap_or_default();
            let has = |wanted: &str| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|part| part == wanted.as_bytes())
            };
            if wanted.as_deref().is_none_or(has) {
                return Ok(Self(
                    path.file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                ));
            }
        }
        bail!("no process {name} runs (node: {node:?})")
    }
}

/// Sends a signal.
pub(crate) fn kill(signal: &str, process: &Process) -> Result<()> {
    let status = std::process::Command::new("kill")
        .args([signal, &process.0])
        .status()?;
    ensure!(status.success(), "kill {signal} {} failed", process.0);
    Ok(())
}

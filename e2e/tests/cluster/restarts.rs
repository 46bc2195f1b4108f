//! Kubelet, agent and node restart: running pods are untouched, and what was there comes back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{deployment, phase, pod};
use e2e::world::describe;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::Stage;
use crate::look::{held, identities, node_of, so_many_run};
use crate::placement::no_place_twice;

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

//! Agents die in the middle of a change, and kubelets refuse pods: nothing is lost, nothing lingers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{deployment, phase, placement, pod};
use e2e::world::describe;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::Stage;
use crate::look::{calm, keep_idle, node_of, on_node, slices, slow_cuts, so_many_run};
use crate::placement::no_place_twice;
use crate::process::{AGENT, Process, kill};

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
    slow_cuts(stage)?;
    for node in stage.cluster.nodes() {
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

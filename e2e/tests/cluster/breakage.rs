//! The scheduler breaks: pods wait, nothing running is touched, nothing is given twice.

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{deployment, phase, pod};
use e2e::world::describe;

use crate::Stage;
use crate::look::{identities, slow_cuts};
use crate::placement::no_place_twice;
use crate::process::{Process, SCHEDULER, kill};

pub(crate) async fn the_extender_stops_and_pods_wait(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    world.submit(pod("before", "2g.20gb", 1)).await?;
    world.running("before").await?;
    let before = identities(world).await?;

    let stopped = Process::find(SCHEDULER, None)?;
    kill("-STOP", &stopped)?;
    world.submit(pod("during", "1g.10gb", 1)).await?;
    let waits = world
        .until(
            60,
            "the waiting pod carries an event that names the extender",
            async || {
                let events = world.events("during", "").await?;
                let named = events.iter().any(|note| note.contains("127.0.0.1:9401"));
                Ok(if named { Ok(()) } else { Err(events.join(" | ")) })
            },
        )
        .await;
    let untouched = identities(world).await?;
    kill("-CONT", &stopped)?;
    waits?;
    ensure!(
        before.iter().all(|pod| untouched.contains(pod)),
        "{before:?} became {untouched:?}"
    );
    world.running("during").await?;
    world.counts_are_true(20).await
}

pub(crate) async fn the_scheduler_dies_between_binding_and_status(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    // slices take long to cut, so that a pod is bound well before its node's status shows it
    slow_cuts(stage)?;
    let result = async {
        world.deploy(deployment("burst", "1g.10gb", 6)).await?;
        world
            .until(
                60,
                "a pod is bound and its slice is not yet published",
                async || {
                    let bound = world.all_pods().await?.iter().filter(|pod| is_bound(pod)).count();
                    let used: usize = world.gpu_nodes().await?.iter().map(e2e::world::used).sum();
                    Ok(if bound > used {
                        Ok(())
                    } else {
                        Err(format!("{bound} bound, {used} published"))
                    })
                },
            )
            .await?;
        kill("-KILL", &Process::find(SCHEDULER, None)?)?;
        world.deploy(deployment("after", "2g.20gb", 6)).await?;
        world
            .until(120, "twelve pods run", async || {
                let pods = world.all_pods().await?;
                no_place_twice(&pods)?;
                let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
                let waiting = pods.iter().find(|pod| phase(pod) != "Running").map(describe);
                Ok(if running == 12 {
                    Ok(())
                } else {
                    Err(format!("{running} run; {waiting:?}"))
                })
            })
            .await?;
        let failed: Vec<String> = world
            .all_pods()
            .await?
            .iter()
            .filter(|pod| phase(pod) == "Failed")
            .map(kube::ResourceExt::name_any)
            .collect();
        ensure!(failed.is_empty(), "failed: {failed:?}");
        Ok(())
    }
    .await;
    for node in stage.cluster.nodes() {
        node.fake_nvml(&["clear"])?;
    }
    result.context("with slow slices")?;
    world.counts_are_true(30).await
}

fn is_bound(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

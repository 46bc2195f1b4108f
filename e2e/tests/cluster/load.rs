//! Load: agents remember and tell it, the scheduler forecasts it, and a pod keeps away from the node that will be busy.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use e2e::pods::pod;
use e2e::world::World;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use sha2::{Digest as _, Sha256};
use shared::api::GpuPool;
use shared::api::gpu_pool::ForecastStatus;
use shared::names;
use shared::policy::LOAD_MINUTES;

use crate::Stage;
use crate::look::{calm, is_agent, keep_idle, node_of};
use crate::process::{AGENT, Process, SCHEDULER, kill};

/// Where an agent remembers, on its node.
const FILE: &str = "/var/lib/migpool/usage";

pub(crate) async fn a_pod_keeps_away_from_the_node_that_will_be_busy(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    // a slice that is left idle would be used again, whatever the forecast says
    keep_idle(world, 0).await?;
    let result = keeps_away(stage).await;
    result.and(forgets(stage).await)
}

/// As it was before.
async fn forgets(stage: &Stage) -> Result<()> {
    for node in stage.cluster.nodes() {
        remember(stage, node.name(), None).await?;
    }
    kill("-KILL", &Process::find(SCHEDULER, None)?)?;
    keep_idle(&stage.world, 600).await
}

async fn keeps_away(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let nodes = world.gpu_nodes().await?;
    let count = u32::try_from(nodes.len())?;
    forecast(world, "every agent tells its load", |forecast| {
        forecast.nodes == count
    })
    .await?;
    ensure!(
        pool(world).await?.acting == 0,
        "forecasts are acted on after minutes of load"
    );
    let first = lands(world, "before").await?;

    for node in &nodes {
        let name = node.name_any();
        let middle = if name == first { 0.7 } else { 0.25 };
        remember(stage, &name, Some(&file(middle)?)).await?;
    }
    // one that starts anew hears of all that the agents remember
    kill("-KILL", &Process::find(SCHEDULER, None)?)?;
    let status = forecast(world, "the forecasts of every node are acted on", |forecast| {
        forecast.acting == count
    })
    .await?;
    ensure!(
        status.accuracy_percent >= Some(85) && status.error_percent < Some(100),
        "{status:?}"
    );
    let then = lands(world, "after").await?;
    ensure!(
        then != first,
        "a pod still goes to {first}, which will be busy: {status:?}"
    );
    println!(
        "    {first} will be busy, so the pod went to {then}: {}",
        status.message
    );
    Ok(())
}

/// Where a pod of half a GPU lands; it is gone then.
async fn lands(world: &World, name: &str) -> Result<String> {
    world.submit(pod(name, "3g.40gb", 1)).await?;
    let node = node_of(&world.running(name).await?);
    world.delete(name).await?;
    world.counts_are_true(30).await?;
    Ok(node)
}

async fn pool(world: &World) -> Result<ForecastStatus> {
    let pools: Api<GpuPool> = Api::all(world.client.clone());
    let status = pools.get(names::DEFAULT_POOL).await?.status.unwrap_or_default();
    Ok(status.forecast.unwrap_or_default())
}

async fn forecast(world: &World, what: &str, is: impl Fn(&ForecastStatus) -> bool) -> Result<ForecastStatus> {
    world
        .until(120, what, async || {
            let forecast = pool(world).await?;
            Ok(if is(&forecast) {
                Ok(forecast)
            } else {
                Err(format!("{forecast:?}"))
            })
        })
        .await
}

/// Gives a node an agent that remembers this, or nothing.
async fn remember(stage: &Stage, node: &str, file: Option<&[u8]>) -> Result<()> {
    let path = stage.cluster.node(node)?.path(FILE)?;
    // an agent that stands still writes nothing over it
    kill("-STOP", &Process::find(AGENT, Some(node))?)?;
    match file {
        Some(bytes) => std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?,
        None if path.exists() => std::fs::remove_file(&path)?,
        None => {}
    }
    let own = stage.world.own_pods();
    for pod in own.list(&ListParams::default()).await?.items {
        if node_of(&pod) == node && is_agent(&pod) {
            let at_once = DeleteParams::default().grace_period(0);
            own.delete(&pod.name_any(), &at_once).await?;
        }
    }
    kill("-KILL", &Process::find(AGENT, Some(node))?)?;
    calm(&stage.world, node).await.map(drop)
}

/// The file of an agent whose node's load has swung around `middle`, up and down in six hours, up to this minute.
/// Its form: `device-plugin/src/usage/file.rs`.
fn file(middle: f32) -> Result<Vec<u8>> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 60)?;
    let first = now - LOAD_MINUTES as i64;
    let mut bytes = b"migpool\n".to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(first.to_le_bytes());
    for minute in first..now {
        let angle = (minute % 360) as f32 * std::f32::consts::TAU / 360.0;
        bytes.extend((middle + 0.2 * angle.sin()).to_le_bytes());
    }
    let sum = Sha256::digest(&bytes);
    bytes.extend(sum);
    Ok(bytes)
}

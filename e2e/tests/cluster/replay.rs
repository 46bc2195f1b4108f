//! A recorded run of the simulator, played again on the real cluster: the same pods that come and go in the same
//! order are given the same places, because both ask the same functions.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::pods::{IMAGE, pod};
use e2e::world::{World, describe};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use shared::names;

use crate::Stage;
use crate::process::{Process, SCHEDULER, kill};

/// `migpool-sim mig --policy ours --mix uniform --load 1 --seeds 1 --gpus 8 --arrivals 60 --half-life 16000
/// --record e2e/tests/cluster/replay.csv`. A test of the simulator holds it against what the simulator does today.
const RECORD: &str = include_str!("replay.csv");
/// Half-life of the demand mix in that run, minutes: so long that it does not matter how fast the run is played.
const HALF_LIFE_MINUTES: u32 = 9_600;
/// Label by which a node's latest version is told from those before.
const HEARD: &str = "replay-heard";

/// One line of the record.
struct Line {
    pod: String,
    what: String,
    profile: String,
    /// GPU, counted over all nodes, and start.
    seat: Option<(usize, u8)>,
}

/// By (GPU, start): the profile there.
type Layout = BTreeMap<(usize, u8), String>;

pub(crate) async fn sixty_arrivals_of_the_simulator_get_the_same_places(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    // released slices are removed at once, as in the simulator
    set_policy(
        world,
        json!({"idleSliceSeconds": 0, "demandHalfLifeMinutes": HALF_LIFE_MINUTES}),
    )
    .await?;
    // a slice that the case before left idle would be used again, rightly, and not where the simulator cuts
    layout_becomes(world, &Layout::new(), "before the first pod").await?;
    let result = played(world).await;
    set_policy(
        world,
        json!({"idleSliceSeconds": null, "demandHalfLifeMinutes": null}),
    )
    .await?;
    result
}

async fn played(world: &World) -> Result<()> {
    // a scheduler that has seen no demand yet
    kill("-KILL", &Process::find(SCHEDULER, None)?)?;
    let mut expected = Layout::new();
    let (mut arrivals, mut lost) = (0, 0);
    for (at, line) in RECORD.lines().skip(1).enumerate() {
        let line = Line::read(line).with_context(|| format!("line {} of the record", at + 2))?;
        match (line.what.as_str(), line.seat) {
            ("placed", Some(seat)) => {
                arrivals += 1;
                world.submit(pod(&line.pod, &line.profile, 1)).await?;
                world.running(&line.pod).await?;
                expected.insert(seat, line.profile);
            }
            ("lost", None) => {
                arrivals += 1;
                lost += 1;
                world.submit(pod(&line.pod, &line.profile, 1)).await?;
                world
                    .until(
                        30,
                        &format!("{} hears that nothing takes it", line.pod),
                        async || {
                            let told = world.events(&line.pod, "GPUs can take").await?;
                            Ok(if told.is_empty() {
                                Err("nothing".to_owned())
                            } else {
                                Ok(())
                            })
                        },
                    )
                    .await?;
                world.delete(&line.pod).await?;
            }
            ("left", Some(seat)) => {
                world.delete(&line.pod).await?;
                expected.remove(&seat);
                // kube-scheduler offers the node again once its kubelet has counted
                world.counts_are_true(30).await?;
                scheduler_counts(world, expected.len(), &line.pod).await?;
                kube_scheduler_has_heard(world, at).await?;
            }
            (what, _) => bail!("line {} of the record: {what} has no place here", at + 2),
        }
        layout_becomes(world, &expected, &format!("after line {}", at + 2)).await?;
    }
    ensure!(arrivals == 60, "{arrivals} arrivals in the record");
    println!("    60 arrivals, {lost} of them lost in both; every layout was the same");
    Ok(())
}

impl Line {
    /// `time,pod,event,profile,gpu,start`.
    fn read(line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, pod, what, profile, gpu, start] = fields[..] else {
            bail!("{line:?} has {} fields", fields.len())
        };
        let seat = match (gpu, start) {
            ("", "") => None,
            (gpu, start) => Some((gpu.parse()?, start.parse()?)),
        };
        Ok(Self {
            pod: format!("replay-{pod}"),
            what: what.to_owned(),
            profile: profile.to_owned(),
            seat,
        })
    }
}

async fn layout_becomes(world: &World, expected: &Layout, when: &str) -> Result<()> {
    let what = format!("the layout {when} is the simulator's: {expected:?}");
    world
        .until(30, &what, async || {
            let seen = layout(world).await?;
            Ok(if seen == *expected {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            })
        })
        .await
}

/// Waits until our scheduler has heard that a pod left: a decision that comes before that is right too, and another.
async fn scheduler_counts(world: &World, slices: usize, left: &str) -> Result<()> {
    let pools: Api<shared::api::GpuPool> = Api::all(world.client.clone());
    let what = format!("the scheduler counts {slices} slices in use after {left} left");
    world
        .until(30, &what, async || {
            let pool = pools.get(names::DEFAULT_POOL).await?;
            let counted = pool.status.unwrap_or_default().allocated as usize;
            Ok(if counted == slices {
                Ok(())
            } else {
                Err(format!("{counted}"))
            })
        })
        .await
}

/// Waits until kube-scheduler too has heard of all that the API server has, so that it offers the node that a pod left.
/// Shown by a pod that may only go to a node with a label that was put on it just now: pods and nodes come to
/// kube-scheduler in the order in which they changed, and it binds this one when it has come so far with both.
async fn kube_scheduler_has_heard(world: &World, at: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let gpu_nodes = world.gpu_nodes().await?;
    let node = gpu_nodes.first().context("no GpuNode")?.name_any();
    let label = Patch::Merge(json!({"metadata": {"labels": {HEARD: at.to_string()}}}));
    nodes
        .patch(&node, &PatchParams::default(), &label)
        .await
        .context("label a node")?;
    let name = format!("replay-heard-{at}");
    let probe = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": names::SCHEDULER,
            "nodeSelector": {HEARD: at.to_string()},
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["true"]}],
        },
    });
    world.submit(probe).await?;
    world
        .until(30, &format!("kube-scheduler binds {name}"), async || {
            let pod = world.pod(&name).await?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            Ok(node.ok_or_else(|| describe(&pod)))
        })
        .await?;
    world.delete(&name).await
}

/// Every slice there is, GPUs counted over the nodes by name.
async fn layout(world: &World) -> Result<Layout> {
    let mut layout = Layout::new();
    let mut first = 0;
    for node in world.gpu_nodes().await? {
        let gpus = node.status.map(|status| status.gpus).unwrap_or_default();
        for gpu in &gpus {
            for slice in &gpu.slices {
                let seat = (first + gpu.index as usize, slice.place.start);
                layout.insert(seat, slice.place.profile.to_string());
            }
        }
        first += gpus.len();
    }
    Ok(layout)
}

async fn set_policy(world: &World, policy: Value) -> Result<()> {
    let pools: Api<shared::api::GpuPool> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({"spec": {"policy": policy}}));
    pools
        .patch(names::DEFAULT_POOL, &PatchParams::default(), &patch)
        .await
        .context("patch the pool")?;
    Ok(())
}

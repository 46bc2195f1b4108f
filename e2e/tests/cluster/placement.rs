//! Where pods land: starts, counts, reasons.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::oracle;
use e2e::pods::{conditions, phase, placement, pod};
use e2e::world::{World, describe, used};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use shared::mig::Profile;

use crate::Stage;

/// The pod file that the README tells people to apply.
const README_POD: &str = include_str!("../../../manifests/samples/pod-2g.20gb.yaml");

pub(crate) async fn a_pod_from_the_readme_gets_a_slice_that_comes_and_goes(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let kubeconfig = stage.cluster.kubeconfig();
    let file = std::env::temp_dir().join("migpool-readme-pod.yaml");
    std::fs::write(&file, README_POD)?;
    let kubectl = |arguments: &[&str]| -> Result<String> {
        let mut command = std::process::Command::new("kubectl");
        let output = command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .output()
            .context("run kubectl")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "kubectl {arguments:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    };
    let path = file.to_string_lossy().into_owned();
    kubectl(&["apply", "-f", &path])?;
    kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "-f", &path])?;
    world
        .until(10, "the slice shows", async || {
            slices_show(&kubectl(&["get", "gpunodes", "-o", "wide"])?, 1)
        })
        .await?;
    kubectl(&["delete", "-f", &path, "--wait=true"])?;
    world
        .until(10, "the slice is free", async || {
            slices_show(&kubectl(&["get", "gpunodes", "-o", "wide"])?, 0)
        })
        .await
}

/// Whether the table of `kubectl get gpunodes` shows this many used slices in all.
fn slices_show(table: &str, want: usize) -> Result<std::result::Result<(), String>> {
    let mut rows = table.lines();
    let header: Vec<&str> = rows.next().unwrap_or_default().split_whitespace().collect();
    let column = header
        .iter()
        .position(|name| *name == "USED")
        .with_context(|| format!("no USED in {table}"))?;
    let used: usize = rows
        .filter_map(|row| row.split_whitespace().nth(column)?.parse::<usize>().ok())
        .sum();
    Ok(if used == want {
        Ok(())
    } else {
        Err(table.to_owned())
    })
}

pub(crate) async fn seven_small_pods_run_at_seven_starts_and_see_only_their_own_slice(
    stage: &Stage,
) -> Result<()> {
    // one GPU takes work: which one the pool would choose depends on what it has seen asked for
    let nodes = stage.world.gpu_nodes().await?;
    for (at, node) in nodes.iter().enumerate() {
        let gpus = node
            .status
            .iter()
            .flat_map(|status| &status.gpus)
            .skip(usize::from(at == 0));
        let withhold: Vec<_> = gpus
            .map(|gpu| serde_json::json!({"gpu": gpu.uuid, "reason": "test"}))
            .collect();
        set_withhold(&stage.world, &node.name_any(), serde_json::json!(withhold)).await?;
    }
    let result = seven_small_pods(stage).await;
    for node in &nodes {
        set_withhold(&stage.world, &node.name_any(), serde_json::json!([])).await?;
    }
    result
}

async fn seven_small_pods(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let names: Vec<String> = (1..=7).map(|number| format!("small-{number}")).collect();
    for name in &names {
        world.submit(pod(name, "1g.10gb", 1)).await?;
    }
    let mut gpus = BTreeSet::new();
    let mut starts = BTreeSet::new();
    for name in &names {
        world.running(name).await?;
    }
    world.counts_are_true(20).await?;
    let nodes = world.gpu_nodes().await?;
    let mut uuids = BTreeSet::new();
    for name in &names {
        let seen = world.seen(name).await?;
        let mine = nodes
            .iter()
            .flat_map(|node| node.status.iter().flat_map(|status| &status.gpus));
        let mine = mine.flat_map(|gpu| gpu.slices.iter().map(move |slice| (gpu, slice)));
        let mine: Vec<_> = mine
            .filter(|(_, slice)| slice.holder.as_ref().is_some_and(|holder| &holder.pod == name))
            .collect();
        ensure!(
            mine.len() == 1,
            "{name} holds {} slices by GpuNode status",
            mine.len()
        );
        let (gpu, slice) = mine[0];
        gpus.insert(gpu.uuid.clone());
        starts.insert(slice.place.start);
        let visible: Vec<&String> = seen.slices.values().collect();
        ensure!(
            visible == [&slice.mig_uuid],
            "{name} has {} and sees {visible:?}",
            slice.mig_uuid
        );
        ensure!(
            uuids.insert(slice.mig_uuid.clone()),
            "{} is given twice",
            slice.mig_uuid
        );
        ensure!(
            seen.caps.len() == 2,
            "{name} sees {:?}, not one GPU and one compute instance",
            seen.caps
        );
        let cards: Vec<&String> = seen
            .devices
            .iter()
            .filter(|device| device[6..].parse::<u32>().is_ok())
            .collect();
        ensure!(cards.len() == 1, "{name} sees GPUs {cards:?}");
    }
    ensure!(
        gpus.len() == 1 && starts.len() == 7,
        "seven pods sit on {} GPUs at starts {starts:?}",
        gpus.len()
    );
    Ok(())
}

pub(crate) async fn a_pod_that_cannot_fit_says_why_by_gpu_count(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let nodes = world.gpu_nodes().await?;
    // two GPUs of the last node are withheld; the other six get a small slice each
    let last = nodes.last().context("no GpuNode")?;
    let gpus = &last.status.as_ref().context("no status")?.gpus;
    let withhold: Vec<_> = gpus
        .iter()
        .rev()
        .take(2)
        .map(|gpu| serde_json::json!({"gpu": gpu.uuid, "reason": "test"}))
        .collect();
    set_withhold(world, &last.name_any(), serde_json::json!(withhold)).await?;
    let result = async {
        // 4g leaves no room for a second 4g on the same GPU, so six of them take six GPUs
        for number in 1..=6 {
            let name = format!("half-{number}");
            world.submit(pod(&name, "4g.40gb", 1)).await?;
            world.running(&name).await?;
        }
        world.counts_are_true(20).await?;
        world.submit(pod("whole", "7g.80gb", 1)).await?;
        let want = "0/8 GPUs can take 7g.80gb: 6 hold smaller slices, 2 withheld";
        world
            .until(30, &format!("an event on the pod says: {want}"), async || {
                let all = world.events("whole", "").await?;
                Ok(if all.iter().any(|note| note.contains(want)) {
                    Ok(())
                } else {
                    Err(all.join(" | "))
                })
            })
            .await?;
        ensure!(phase(&world.pod("whole").await?) == "Pending");
        // a place opens and the pod takes it
        world.delete("half-3").await?;
        world.running("whole").await?;
        Ok(())
    }
    .await;
    set_withhold(world, &last.name_any(), serde_json::json!([])).await?;
    result
}

async fn set_withhold(world: &World, node: &str, list: serde_json::Value) -> Result<()> {
    let api: kube::Api<shared::api::GpuNode> = kube::Api::all(world.client.clone());
    let patch = kube::api::Patch::Merge(serde_json::json!({"spec": {"withhold": list}}));
    api.patch(node, &kube::api::PatchParams::default(), &patch)
        .await?;
    Ok(())
}

pub(crate) async fn a_pod_that_asks_for_several_slices_gets_them_on_one_gpu(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    world.submit(pod("several", "2g.20gb", 3)).await?;
    let running = world.running("several").await?;
    let placement = placement(&running).context("no placement annotation")?;
    let gpus: BTreeSet<&String> = placement.places().iter().map(|device| &device.gpu).collect();
    ensure!(
        gpus.len() == 1 && placement.places().len() == 3,
        "placed at {placement}"
    );
    let seen = world.seen("several").await?;
    ensure!(seen.slices.len() == 3 && seen.caps.len() == 6, "sees {seen:?}");
    world.counts_are_true(20).await
}

pub(crate) async fn forty_pods_at_once_are_placed_legally(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let profiles = ["1g.10gb", "1g.10gb", "2g.20gb", "1g.20gb", "3g.40gb"];
    for number in 0..40 {
        world
            .submit(pod(
                &format!("many-{number:02}"),
                profiles[number % profiles.len()],
                1,
            ))
            .await?;
    }
    settle(world).await?;
    world.counts_are_true(30).await?;
    let pods = world.all_pods().await?;
    no_place_twice(&pods)?;
    let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
    println!("    {running} of 40 run");
    waiting_pods_do_not_fit(world, &pods).await
}

pub(crate) async fn sixty_random_steps_keep_the_counts_true_and_run_what_fits(stage: &Stage) -> Result<()> {
    let world = &stage.world;
    let mut random = StdRng::seed_from_u64(60);
    let profiles = [
        "1g.10gb",
        "1g.10gb",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        "1g.10gb+me",
    ];
    let mut alive: Vec<String> = Vec::new();
    for step in 0..60 {
        // fills for a while, then turns over
        let create = alive.len() < 3 || random.random_range(0..100) < if step < 30 { 75 } else { 45 };
        if create {
            let profile = profiles[random.random_range(0..profiles.len())];
            let fits = oracle::fits(&world.gpu_nodes().await?, profile.parse::<Profile>()?);
            let name = format!("step-{step:02}");
            world.submit(pod(&name, profile, 1)).await?;
            if fits {
                world
                    .running(&name)
                    .await
                    .with_context(|| format!("step {step}: brute force fits {profile}"))?;
                alive.push(name);
            } else {
                refused(world, &name)
                    .await
                    .with_context(|| format!("step {step}: {profile} fits nowhere"))?;
                world.delete(&name).await?;
            }
        } else {
            let name = alive.swap_remove(random.random_range(0..alive.len()));
            world.delete(&name).await?;
        }
        world
            .counts_are_true(20)
            .await
            .with_context(|| format!("after step {step}"))?;
        let pods = world.all_pods().await?;
        no_place_twice(&pods).with_context(|| format!("after step {step}"))?;
        let bad: Vec<String> = pods
            .iter()
            .filter(|pod| phase(pod) == "Failed")
            .map(describe)
            .collect();
        ensure!(bad.is_empty(), "step {step}: {}", bad.join("; "));
    }
    Ok(())
}

/// Waits until the scheduler has said that a pod fits nowhere.
async fn refused(world: &World, name: &str) -> Result<()> {
    world
        .until(30, &format!("pod {name} is refused"), async || {
            let pod = world.pod(name).await?;
            Ok(if unschedulable(&pod) {
                Ok(())
            } else {
                Err(describe(&pod))
            })
        })
        .await
}

fn unschedulable(pod: &Pod) -> bool {
    conditions(pod).any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}

/// Waits until every pod runs or was refused.
pub(crate) async fn settle(world: &World) -> Result<()> {
    world
        .until(120, "every pod runs or is refused", async || {
            let pods = world.all_pods().await?;
            let open = |pod: &&Pod| phase(pod) != "Running" && !unschedulable(pod);
            let open: Vec<String> = pods.iter().filter(open).take(3).map(describe).collect();
            Ok(if open.is_empty() {
                Ok(())
            } else {
                Err(open.join(" | "))
            })
        })
        .await
}

/// No two living pods were given the same place, nor places that overlap.
pub(crate) fn no_place_twice(pods: &[Pod]) -> Result<()> {
    let mut taken = BTreeSet::new();
    for pod in pods
        .iter()
        .filter(|pod| !matches!(phase(pod), "Failed" | "Succeeded"))
    {
        for device in placement(pod).iter().flat_map(shared::names::Placements::places) {
            ensure!(
                taken.insert(device.clone()),
                "{device} is given twice, also to {}",
                pod.name_any()
            );
        }
    }
    Ok(())
}

/// What waits must not fit by brute force; and once it fits, it must not wait.
async fn waiting_pods_do_not_fit(world: &World, pods: &[Pod]) -> Result<()> {
    for pod in pods.iter().filter(|pod| phase(pod) == "Pending") {
        let request = shared::snapshot::Request::of_pod(pod)?;
        for (profile, _) in request.distinct() {
            let profile = profile.context("a whole GPU")?;
            let fits = oracle::fits(&world.gpu_nodes().await?, profile);
            ensure!(!fits, "{} waits although {profile} fits", describe(pod));
        }
    }
    let total: usize = world.gpu_nodes().await?.iter().map(used).sum();
    let running = pods.iter().filter(|pod| phase(pod) == "Running").count();
    ensure!(total == running, "{running} pods run and {total} slices are used");
    Ok(())
}

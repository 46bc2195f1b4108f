//! A large cluster on paper: Node and GpuNode objects without machines behind them.

use anyhow::{Context as _, Result};
use cluster::Cluster;
use cluster::process::Processes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use shared::api::gpu_node::{BoardStatus, GpuNode};
use shared::mig::{Board, Place, Profile};

use crate::oracle;
use crate::world::World;

/// Requests under way at once.
const AT_ONCE: usize = 16;
/// GPUs of a node.
const GPUS: u32 = 8;
/// Share of a GPU's memory slices that is used at first, percent: drawn for each.
const FULL_PERCENT: std::ops::RangeInclusive<u32> = 40..=100;

/// Stops the cluster's controllers, which would taint nodes that have no kubelet, and its own scheduler, which would
/// follow every pod of the schedulers that are measured.
pub fn stop_controllers(cluster: &Cluster) -> Result<()> {
    let processes = Processes::under(&cluster.plan().root);
    processes.kill("kube-controller-manager")?;
    processes.kill("kube-scheduler")
}

/// Installs our CRDs.
pub async fn crds(world: &World) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for crd in shared::api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let params = PatchParams::apply("migpool-bench").force();
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("install CRD {name}"))?;
        world
            .until(30, &format!("CRD {name} is served"), async || {
                let crd = api.get(&name).await?;
                let conditions = crd
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                let served = conditions
                    .iter()
                    .any(|c| c.type_ == "Established" && c.status == "True");
                Ok(if served {
                    Ok(())
                } else {
                    Err("it is not".to_owned())
                })
            })
            .await?;
    }
    Ok(())
}

/// Creates the nodes, each GPU in a random layout of its own.
pub async fn nodes(world: &World, count: u32) -> Result<()> {
    let board = Board::named("H100-80GB").context("the catalogue lost its H100")?;
    let create = |number: u32| async move {
        let (node, gpu_node) = pair(number, board);
        let nodes: Api<Node> = Api::all(world.client.clone());
        let name = format!("paper-{number:05}");
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node.clone())?)
            .await?;
        let status = json!({"status": node["status"]});
        nodes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        let gpu_nodes: Api<GpuNode> = Api::all(world.client.clone());
        gpu_nodes
            .create(&PostParams::default(), &serde_json::from_value(gpu_node.clone())?)
            .await?;
        let status = json!({"status": gpu_node["status"]});
        gpu_nodes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        anyhow::Ok(())
    };
    stream::iter(0..count)
        .map(create)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// A Node and its GpuNode. No pod stands behind the slices that are used at first, so the Node offers only what there
/// is beside them.
fn pair(number: u32, board: &Board) -> (Value, Value) {
    let mut random = StdRng::seed_from_u64(u64::from(number));
    let name = format!("paper-{number:05}");
    let gpus: Vec<Value> = (0..GPUS)
        .map(|index| {
            let slices: Vec<Value> = fill(board, &mut random)
                .iter()
                .map(|place| json!({"profile": place.profile, "start": place.start, "state": "Allocated"}))
                .collect();
            json!({
                "uuid": format!("GPU-{number:08x}-0000-0000-0000-{index:012x}"), "index": index,
                "model": "NVIDIA H100 80GB HBM3", "board": board.name, "memoryMib": 81_559, "mig": true,
                "health": "Healthy", "slices": slices,
            })
        })
        .collect();
    let now = "2026-01-01T00:00:00Z";
    let gpu_node = json!({
        "apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "spec": {},
        "status": {
            "strategy": "dynamic", "boards": [BoardStatus::from(board)], "gpus": gpus,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "message": "serving",
                            "lastTransitionTime": now}],
        },
    });
    let counts = serde_json::from_value(gpu_node.clone())
        .map(|node| oracle::allocatable(&node))
        .unwrap_or_default();
    let mut resources = json!({"cpu": "96", "memory": "1Ti", "pods": "250"});
    for (profile, count) in counts {
        let used = profile.to_string();
        let used = gpus
            .iter()
            .flat_map(|gpu| gpu["slices"].as_array())
            .flatten()
            .filter(|slice| slice["profile"] == used.as_str())
            .count();
        let count = count.saturating_sub(used);
        resources[shared::names::resource(profile)] = json!(count.to_string());
    }
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "on paper"}],
        },
    });
    (node, gpu_node)
}

/// Random slices until a share of the memory slices is used.
fn fill(board: &Board, random: &mut StdRng) -> Vec<Place> {
    let full = random.random_range(FULL_PERCENT);
    let profiles: Vec<Profile> = shared::mig::layout::plain(board).map(|row| row.profile).collect();
    let mut places: Vec<Place> = Vec::new();
    let size = |place: &Place| board.row(place.profile).map_or(0, |row| u32::from(row.size));
    for _ in 0..50 {
        let used: u32 = places.iter().map(size).sum();
        if used * 100 >= full * u32::from(board.memory_slices) {
            break;
        }
        let profile = profiles[random.random_range(0..profiles.len())];
        let starts = board
            .row(profile)
            .map(|row| row.starts.clone())
            .unwrap_or_default();
        let place = Place::new(profile, starts[random.random_range(0..starts.len())]);
        if oracle::legal(board, places.iter().chain([&place])) {
            places.push(place);
        }
    }
    places
}

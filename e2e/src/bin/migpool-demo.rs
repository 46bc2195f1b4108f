//! `make demo`: the main job of migpool on a real local cluster, as a person would do it by hand. Submits pods of
//! mixed sizes, draws every GPU, shows what a container sees, frees some, and shows a full pool refuse with the
//! reason. Leaves the cluster running.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use e2e::pods::{phase, pod};
use e2e::world::World;
use e2e::{draw, oracle};
use kube::ResourceExt as _;
use shared::api::GpuNode;

/// Shows migpool at work on the cluster of a kubeconfig.
#[derive(Parser)]
struct Args {
    /// Kubeconfig of the cluster.
    #[arg(long)]
    kubeconfig: PathBuf,
}

/// The pods of the demo: a mix that fills a good part of eight GPUs.
const MIX: [(&str, &str); 12] = [
    ("train-a", "3g.40gb"),
    ("notebook-1", "1g.10gb"),
    ("notebook-2", "1g.10gb"),
    ("serve-a", "2g.20gb"),
    ("serve-b", "2g.20gb"),
    ("train-b", "4g.40gb"),
    ("notebook-3", "1g.10gb"),
    ("big", "7g.80gb"),
    ("video", "1g.10gb+me"),
    ("serve-c", "2g.20gb"),
    ("embed", "1g.20gb"),
    ("train-c", "3g.40gb"),
];

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let world = World::connect(&args.kubeconfig).await?;
    let colour = std::io::stdout().is_terminal();
    let kubectl = format!("kubectl --kubeconfig {}", args.kubeconfig.display());

    step("the pool is empty: nothing is cut yet, and every profile shows what could be cut");
    world.clear().await?;
    world.counts_are_true(60).await?;
    show(&world, colour).await?;

    step("a dozen pods of mixed sizes arrive at once; each slice is cut as its pod lands");
    for (name, profile) in MIX {
        world.submit(pod(name, profile, 1)).await?;
    }
    for (name, _) in MIX {
        world.running(name).await?;
    }
    world.counts_are_true(30).await?;
    // where each really is, by the kubelet's account: of equal slices on one node it may swap two
    let places = places(&world.gpu_nodes().await?);
    for (name, profile) in MIX {
        println!(
            "  {name:<12} {profile:<11} {}",
            places.get(name).map_or("nowhere", String::as_str)
        );
    }
    show(&world, colour).await?;

    step("what the container of serve-a sees: its own slice and nothing else");
    let seen = world.seen("serve-a").await?;
    for (name, value) in &seen.slices {
        println!("  {name}={value}");
    }
    println!(
        "  /dev/{{{}}}  /dev/nvidia-caps/{{{}}}",
        seen.devices.join(","),
        seen.caps.join(",")
    );
    ensure!(
        seen.slices.len() == 1 && seen.caps.len() == 2,
        "serve-a sees {seen:?}, not one slice"
    );

    step("three pods leave; their slices are free again, the others are not disturbed");
    for name in ["serve-a", "big", "notebook-2"] {
        world.delete(name).await?;
        println!("  {name} deleted");
    }
    world.counts_are_true(30).await?;
    show(&world, colour).await?;

    step("the pool is filled with 7g.80gb pods until no GPU can take another, and it says why");
    let refused = fill(&world).await?;
    show(&world, colour).await?;
    println!("  pod {} waits: {}", refused.0, refused.1);
    world.delete(&refused.0).await?;

    let faults = oracle::faults(&world.gpu_nodes().await?);
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    println!("\ngo on by hand:\n  {kubectl} get gpunodes -o wide\n  {kubectl} get pods -o wide");
    println!("  {kubectl} delete pod train-a      # and watch its slice go\n  make cluster-down");
    println!("\ndemo: ok");
    Ok(())
}

/// Who holds which place.
fn places(nodes: &[GpuNode]) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for node in nodes {
        for gpu in node.status.iter().flat_map(|status| &status.gpus) {
            for slice in &gpu.slices {
                let Some(holder) = &slice.holder else { continue };
                let place = format!(
                    "{} gpu {} from memory slice {}",
                    node.name_any(),
                    gpu.index,
                    slice.place.start
                );
                places.insert(holder.pod.clone(), place);
            }
        }
    }
    places
}

/// Submits 7g pods until one is refused; returns its name and the reason.
async fn fill(world: &World) -> Result<(String, String)> {
    for number in 1..=8 {
        let name = format!("whole-{number}");
        world.submit(pod(&name, "7g.80gb", 1)).await?;
        let outcome = world
            .until(60, &format!("pod {name} runs or is refused"), async || {
                let pod = world.pod(&name).await?;
                let reasons = world.events(&name, "GPUs can take").await?;
                Ok(match (phase(&pod), reasons.last()) {
                    ("Running", _) => Ok(None),
                    (_, Some(reason)) => Ok(Some(reason.clone())),
                    _ => Err(e2e::world::describe(&pod)),
                })
            })
            .await?;
        match outcome {
            Some(reason) => return Ok((name, reason)),
            None => println!("  {name} runs"),
        }
    }
    bail!("eight whole-GPU pods fit on eight GPUs that hold smaller slices")
}

async fn show(world: &World, colour: bool) -> Result<()> {
    let nodes = world.gpu_nodes().await?;
    print!("{}", draw::nodes(&nodes, colour));
    for node in &nodes {
        let free = node
            .status
            .as_ref()
            .map(|status| status.summary.free.clone())
            .unwrap_or_default();
        println!("  {} can still cut, each profile alone: {free}", node.name_any());
    }
    Ok(())
}

fn step(text: &str) {
    println!("\n== {text}");
}

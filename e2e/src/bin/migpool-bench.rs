//! Pods bound per second by the real kube-scheduler at 5,000 Node objects, with and without migpool, in one run
//! on one machine: only the ratios carry over to others. The set-up is that of a control plane without kubelets:
//! Node and GpuNode objects are plain data, pods are created before the scheduler starts, and what is measured
//! is the time from the first binding to the last.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use cluster::{Cluster, Options};
use e2e::bench::{load, run};
use e2e::world::World;

/// Measures pods bound per second.
#[derive(Parser)]
struct Args {
    /// Node objects.
    #[arg(long, default_value_t = 5_000)]
    nodes: u32,
    /// Pods for each run.
    #[arg(long, default_value_t = 500)]
    pods: u32,
    /// Our scheduler program, built with --release.
    #[arg(long, default_value = "target/release/migpool-scheduler")]
    scheduler: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if let Err(why) = cluster::preflight() {
        println!("skipped: pods per second needs a real control plane: {why}");
        return Ok(());
    }
    let cluster = Cluster::up(&Options {
        nodes: 1,
        gpus_per_node: 0,
        chart: false,
        ..Options::default()
    })?;
    let result = measure(&args, &cluster).await;
    cluster.down()?;
    result
}

async fn measure(args: &Args, cluster: &Cluster) -> Result<()> {
    let world = World::connect(&cluster.kubeconfig()).await?;
    load::stop_controllers(cluster)?;
    eprintln!("creating {} Node and GpuNode objects of 8 GPUs ...", args.nodes);
    load::crds(&world).await?;
    load::nodes(&world, args.nodes).await?;
    let stock_100 = run::stock(cluster, &world, args.pods, Some(100))
        .await
        .context("stock, every node")?;
    let ours = run::ours(cluster, &world, args.pods, &args.scheduler)
        .await
        .context("ours, every node")?;
    let stock = run::stock(cluster, &world, args.pods, None)
        .await
        .context("stock, default sampling")?;
    println!(
        "\npods bound per second, kube-scheduler {}, {} nodes x 8 GPUs, {} pods a run",
        cluster::binaries::KUBERNETES_VERSION,
        args.nodes,
        args.pods
    );
    println!("{:<58} {:>8} {:>18}", "set-up", "pods/s", "÷ stock every node");
    for (name, rate) in [
        ("stock, percentageOfNodesToScore 100", stock_100),
        ("with migpool, percentageOfNodesToScore 100, exact place", ours),
        ("stock, default sampling (about 10 % of the nodes)", stock),
    ] {
        println!("{name:<58} {rate:>8.1} {:>18.2}", rate / stock_100);
    }
    Ok(())
}

//! Pods bound per second by the real kube-scheduler at 5,000 Node objects, with and without migpool, in one run
//! on one machine: only the ratios carry over to others. The set-up is that of a control plane without kubelets:
//! Node and GpuNode objects are plain data, pods are created before the scheduler starts, and what is measured
//! is the time from the first binding to the last. Nominations are planned and written while it works.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use cluster::{Cluster, Options};
use e2e::bench::load;
use e2e::bench::run::{self, Contender};
use e2e::world::World;

/// Measures pods bound per second.
#[derive(Parser)]
struct Args {
    /// Node objects.
    #[arg(long, default_value_t = 5_000)]
    nodes: u32,
    /// Pods for each run.
    #[arg(long, default_value_t = 2_000)]
    pods: u32,
    /// Only the set-up of this name.
    #[arg(long)]
    only: Option<String>,
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
    let ours = Some(args.scheduler.as_path());
    let set_ups = [
        (
            "stock, default sampling (10 % of the nodes)",
            "bench-stock",
            None,
            None,
            false,
        ),
        ("stock, every node", "bench-stock-100", Some(100), None, false),
        (
            "migpool, every node, exact place",
            "bench-migpool",
            Some(100),
            ours,
            false,
        ),
        (
            "migpool with nomination, every node, exact place",
            "bench-nominated",
            Some(100),
            ours,
            true,
        ),
    ];
    let mut rates = Vec::new();
    for (what, name, percentage, program, nominates) in set_ups {
        if args.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let contender = Contender {
            name,
            percentage,
            program,
            nominates,
        };
        let rate = run::rate(cluster, &world, args.pods, contender)
            .await
            .context(what)?;
        rates.push((what, rate));
    }
    println!(
        "\npods bound per second, kube-scheduler {}, {} nodes x 8 GPUs, {} pods a run",
        cluster::binaries::KUBERNETES_VERSION,
        args.nodes,
        args.pods
    );
    println!(
        "{:<50} {:>8} {:>11} {:>14}",
        "set-up", "pods/s", "÷ sampling", "÷ every node"
    );
    let ratio = |rate: f64, at: usize| rates.get(at).map_or(1.0, |(_, of): &(_, f64)| rate / of);
    for (what, rate) in &rates {
        println!(
            "{what:<50} {rate:>8.1} {:>11.2} {:>14.2}",
            ratio(*rate, 0),
            ratio(*rate, 1)
        );
    }
    Ok(())
}

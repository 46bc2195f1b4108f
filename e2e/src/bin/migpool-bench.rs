//! Pods bound per second by the real kube-scheduler at 5,000 Node objects, with and without migpool, in one run
//! on one machine: only the ratios carry over to others. The set-up is that of a control plane without kubelets:
//! Node and GpuNode objects are plain data, pods are created before the scheduler starts, and what is measured
//! is the time from the first binding to the last. Nominations are planned and written while it works.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use cluster::{Cluster, Options};
use e2e::bench::alone::alone;
use e2e::bench::batch::Batch;
use e2e::bench::run::{self, Contender, Outcome};
use e2e::bench::usage::PROGRAMS;
use e2e::bench::{access, load};
use e2e::world::World;

/// Measures pods bound per second.
#[derive(Parser)]
struct Args {
    /// Node objects.
    #[arg(long, default_value_t = 5_000)]
    nodes: u32,
    /// Pods for each run; those that look at every node for every pod get a quarter.
    #[arg(long, default_value_t = 2_000)]
    pods: u32,
    /// How often each set-up runs, in turns.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Which pods come.
    #[arg(long, value_delimiter = ',', default_value = "alike,mixed")]
    batches: Vec<Batch>,
    /// Only the set-ups of these names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Our scheduler program, built with --release.
    #[arg(long, default_value = "target/release/migpool-scheduler")]
    scheduler: PathBuf,
}

/// Who is measured, and how.
struct SetUp {
    /// For the table.
    what: &'static str,
    /// Name of the kube-scheduler's profile.
    name: &'static str,
    /// `percentageOfNodesToScore`.
    percentage: Option<u32>,
    /// Whether our program is asked.
    ours: bool,
    /// Whether it nominates.
    nominates: bool,
}

/// The first two are what the others are compared with.
const SET_UPS: [SetUp; 4] = [
    SetUp {
        what: "stock, default sampling (10 % of the nodes)",
        name: "bench-stock",
        percentage: None,
        ours: false,
        nominates: false,
    },
    SetUp {
        what: "stock, every node",
        name: "bench-stock-100",
        percentage: Some(100),
        ours: false,
        nominates: false,
    },
    SetUp {
        what: "migpool, every node, exact place",
        name: "bench-migpool",
        percentage: Some(100),
        ours: true,
        nominates: false,
    },
    SetUp {
        what: "migpool with nomination, every node, exact place",
        name: "bench-nominated",
        percentage: Some(100),
        ours: true,
        nominates: true,
    },
];

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if let Err(why) = cluster::preflight() {
        println!("skipped: pods per second needs a real control plane: {why}");
        return Ok(());
    }
    let _alone = alone(&std::env::temp_dir().join("migpool-bench.lock"))?;
    let cluster = Cluster::up(&Options {
        nodes: 1,
        gpus_per_node: 0,
        chart: false,
        ..Options::default()
    })?;
    // what was started ends with the future that started it
    let result = tokio::select! {
        result = measure(&args, &cluster) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    cluster.down()?;
    result
}

async fn measure(args: &Args, cluster: &Cluster) -> Result<()> {
    let world = World::connect(&cluster.kubeconfig()).await?;
    load::stop_controllers(cluster)?;
    eprintln!("creating {} Node and GpuNode objects of 8 GPUs ...", args.nodes);
    load::crds(&world).await?;
    load::nodes(&world, args.nodes).await?;
    let access = access::kubeconfig(cluster, &world).await?;
    for batch in &args.batches {
        let mut outcomes = vec![Vec::new(); SET_UPS.len()];
        for round in 1..=args.rounds {
            eprintln!("pods {}: round {round} of {}", batch.what(), args.rounds);
            for (set_up, outcomes) in SET_UPS.iter().zip(&mut outcomes) {
                if args.only.is_empty() || args.only.iter().any(|only| only == set_up.name) {
                    let outcome = run::run(cluster, &access, &world, set_up.contender(args, *batch));
                    outcomes.push(outcome.await.context(set_up.what)?);
                }
            }
        }
        print(args, *batch, outcomes);
    }
    Ok(())
}

fn print(args: &Args, batch: Batch, mut outcomes: Vec<Vec<Outcome>>) {
    println!(
        "\npods bound per second, kube-scheduler {}, {} nodes x 8 GPUs, median of {} rounds; {} pods a run, a quarter\nwhere every node is looked at for every pod; pods {}",
        cluster::binaries::KUBERNETES_VERSION,
        args.nodes,
        args.rounds,
        args.pods,
        batch.what()
    );
    println!(
        "{:<50}{:>8}{:>7}{:>7}{:>12}{:>14}   CPU ms a pod: {}",
        "set-up",
        "pods/s",
        "least",
        "most",
        "÷ sampling",
        "÷ every node",
        PROGRAMS.join("  ")
    );
    for outcomes in &mut outcomes {
        outcomes.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    }
    let median = |at: usize| outcomes[at].get(outcomes[at].len() / 2).copied();
    for (at, set_up) in SET_UPS.iter().enumerate() {
        let (Some(outcome), Some(least), Some(most)) =
            (median(at), outcomes[at].first(), outcomes[at].last())
        else {
            continue;
        };
        let ratio = |to: usize| {
            median(to).map_or_else(|| "-".to_owned(), |of| format!("{:.2}", outcome.rate / of.rate))
        };
        print!(
            "{:<50}{:>8.1}{:>7.1}{:>7.1}{:>12}{:>14}{:>16}",
            set_up.what,
            outcome.rate,
            least.rate,
            most.rate,
            ratio(0),
            ratio(1),
            ""
        );
        for (program, cpu) in PROGRAMS.iter().zip(outcome.cpu) {
            print!("{cpu:>width$.2}  ", width = program.len());
        }
        println!();
    }
}

impl SetUp {
    fn contender<'a>(&self, args: &'a Args, batch: Batch) -> Contender<'a> {
        let looks_at_all = self.percentage.is_some() && !self.nominates;
        Contender {
            name: self.name,
            percentage: self.percentage,
            program: self.ours.then_some(args.scheduler.as_path()),
            nominates: self.nominates,
            batch,
            pods: if looks_at_all {
                args.pods.div_ceil(4)
            } else {
                args.pods
            },
        }
    }
}

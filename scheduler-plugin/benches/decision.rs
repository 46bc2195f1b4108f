//! What one decision costs on one core, without HTTP: filter and prioritize on a snapshot, three ways, and a step of
//! the forecast. The baseline is the walk over all nodes in the same run, so its ratios carry over to other machines.
//!
//! `cargo bench -p scheduler-plugin --bench decision -- [--decisions N]`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench ends where it goes wrong"
)]

#[path = "paper/nodes.rs"]
mod nodes;

use std::collections::{HashSet, VecDeque};
use std::hint::black_box;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use nodes::{FULL, MIX, gpu_node};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use scheduler_plugin::clock::Clock;
use scheduler_plugin::http::node_names::NodeNames;
use scheduler_plugin::index::Index;
use scheduler_plugin::index::sources::Source;
use scheduler_plugin::watch::nodes::NodePart;
use scheduler_plugin::watch::pods::PodPart;
use serde_json::json;
use serve::watch::Change;
use shared::decide::forecast::history::Reading;
use shared::decide::forecast::pool::Pool;
use shared::decide::forecast::series::Series;
use shared::decide::place::{explain, on_node, rank};
use shared::policy::{HAIR_COST, Policy};

/// Nodes of the openb trace with their GPUs; only how many a node has is taken from it.
const OPENB: &str = "../e2e/simulator/data/openb/openb_node_list_gpu_node.csv.gz";
/// Pods of the bench that are there at any time: each decision after that many ends the oldest.
const STAY: usize = 200;
/// Arrivals before the first decision that counts: the mix is known then, and the cost tables stay as they are.
const ARRIVED: usize = 4_000;
/// A refusal takes longest, so one is asked for only every so many decisions.
const REFUSED_EVERY: usize = 5;
/// What 99 of 100 decisions must stay under at the size of openb, and at 5,000 nodes of 8 GPUs.
const LIMITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];
/// What a step of the forecast of one series must stay under.
const STEP_LIMIT: Duration = Duration::from_micros(10);
/// Series of the forecast.
const SERIES: usize = 256;

fn main() {
    let decisions = decisions();
    println!(
        "one decision on one core, no HTTP: {decisions} each, GPUs are H100-80GB, {:.0} % full",
        100.0 * FULL
    );
    println!(
        "walk (the baseline): every node ranked, the places on the best; then the near best ranked again, as prioritize does"
    );
    println!(
        "kept: the same answer from kept standings; since the last one a pod came to a node and one left another"
    );
    println!(
        "refused (every fifth): 8 whole GPUs on one node fit nowhere; every GPU is counted by its reason"
    );
    println!("{ARRIVED} arrivals came before: the mix is known, and the cost tables seldom change");
    println!(
        "\n{:>6} {:>6}  {:<9}{:>10}{:>10}{:>10}{:>12}{:>9}  p99",
        "nodes", "GPUs", "decision", "p50", "p99", "most", "walk's p50", "limit"
    );
    let mut held = true;
    for (sizes, limit) in [openb(), vec![8; 5_000]].iter().zip(LIMITS) {
        held &= measure(sizes, limit, decisions);
    }
    held &= forecast();
    println!("\n{}", if held { "all held" } else { "not all held" });
}

fn decisions() -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != "--decisions").skip(1);
    args.next()
        .map_or(2_000, |count| count.parse().expect("--decisions takes a number"))
}

/// GPUs of each node of the openb trace.
fn openb() -> Vec<u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(OPENB);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let mut lines = text.lines().map(|line| line.split(','));
    let head = lines
        .next()
        .and_then(|mut head| head.position(|name| name == "gpu"));
    let column = head.expect("a column gpu");
    let size = |mut row: std::str::Split<'_, char>| row.nth(column).and_then(|gpus| gpus.parse().ok());
    lines.map(|row| size(row).expect("a number of GPUs")).collect()
}

/// One cluster; whether all its decisions stay under the limit.
fn measure(sizes: &[u32], limit: Duration, decisions: usize) -> bool {
    let mut random = StdRng::seed_from_u64(7);
    let index = Index::new(Clock::of_machine());
    let names: Vec<String> = (0..sizes.len()).map(|at| format!("gpu-node-{at:05}")).collect();
    let node = |name: &String| NodePart {
        name: name.clone(),
        ..NodePart::default()
    };
    index.nodes(Change::Reset(names.iter().map(node).collect()));
    let gpu_nodes = names.iter().zip(sizes);
    index.gpu_nodes(Change::Reset(
        gpu_nodes
            .map(|(name, gpus)| gpu_node(name, *gpus, &mut random))
            .collect(),
    ));
    Source::ALL.into_iter().for_each(|source| index.loaded(source));
    let names: NodeNames = names.iter().collect();

    let mut walk = Times::default();
    let mut kept = Times::default();
    let mut refused = Times::default();
    let large = pod(usize::MAX, Some(("7g.80gb", 8)), &mut random);
    for at in 0..ARRIVED {
        let pod = pod(decisions + STAY + at, None, &mut random);
        index.pods(Change::Apply(pod.clone()));
        index.pods(Change::Delete(pod));
    }
    let mut there: VecDeque<PodPart> = VecDeque::new();
    for at in 0..decisions + STAY {
        let counts = at >= STAY;
        let pod = pod(at, None, &mut random);
        let request = pod.request.as_ref().expect("a request");
        index.pods(Change::Apply(pod.clone()));
        // an old pod ends: the pool stays as full as it is
        if counts && let Some(oldest) = there.pop_front() {
            index.pods(Change::Delete(oldest));
        }
        let held = kept.time(counts, || {
            index.hold_best(&pod.pod, request, &names).expect("room")
        });
        // the same question to the cluster as it is without the answer
        let mut snapshot = index.view().snapshot.clone();
        let tables = index.view().tables.clone();
        let before = index.without(&pod.pod.uid).expect("it is held");
        snapshot.nodes.insert(held.node.as_str().into(), before.into());
        let found = walk.time(counts, || {
            let best = rank(&snapshot, request, names.iter(), &tables).expect("room");
            let chosen = best.best().and_then(|best| on_node(best.node, request, &tables));
            let near = best.within(HAIR_COST);
            let near = rank(
                &snapshot,
                request,
                near.iter().map(|near| &near.node.name),
                &tables,
            );
            black_box(near.is_ok());
            chosen.expect("places")
        });
        assert_eq!(found.placements, held.placements, "both decide the same");
        if at % REFUSED_EVERY == 0 {
            refused.time(counts, || {
                let request = large.request.as_ref().expect("a request");
                assert!(
                    index.hold_best(&large.pod, request, &names).is_none(),
                    "8 whole GPUs fit somewhere"
                );
                let offered: HashSet<&str> = names.iter().collect();
                let refusal = explain(&index.view().snapshot, request, |node| offered.contains(node));
                black_box(refusal.to_string())
            });
        }
        there.push_back(pod);
    }
    let base = walk.at(0.5);
    let gpus: u32 = sizes.iter().sum();
    let mut held = true;
    for (name, times) in [
        ("walk", &mut walk),
        ("kept", &mut kept),
        ("refused", &mut refused),
    ] {
        let (half, most) = (times.at(0.5), times.at(0.99));
        let holds = most <= limit;
        held &= holds;
        println!(
            "{:>6} {gpus:>6}  {name:<9}{:>10}{:>10}{:>10}{:>11.3}x{:>9}  {}",
            sizes.len(),
            shown(half),
            shown(most),
            shown(times.at(1.0)),
            half.as_secs_f64() / base.as_secs_f64(),
            shown(limit),
            verdict(holds)
        );
    }
    held
}

/// A step of the forecast: what came is learnt from and the next quarter of an hour is forecast, by every member but
/// the LSTM.
fn forecast() -> bool {
    let policy = Policy::default();
    let mut random = StdRng::seed_from_u64(11);
    let mut pool = Pool::default();
    let mut all: Vec<Series> = (0..SERIES).map(|_| Series::new(&policy)).collect();
    let mut loads = vec![0.5_f64; SERIES];
    let mut steps = Times::default();
    // two days: the first fills the histories
    for round in 0..192 {
        for load in &mut loads {
            *load = (*load + 0.1 * (random.random::<f64>() - 0.5)).clamp(0.0, 1.0);
        }
        steps.time(round >= 96, || {
            for (series, load) in all.iter_mut().zip(&loads) {
                series.observe(Some(Reading::flat(*load)), &mut pool, &policy);
            }
            pool.close(&policy);
            for series in &all {
                black_box(series.forecast(&pool).is_ok());
            }
        });
    }
    let each = |time: Duration| time / SERIES as u32;
    let (half, most) = (each(steps.at(0.5)), each(steps.at(0.99)));
    let holds = most <= STEP_LIMIT;
    println!(
        "\nforecast without the LSTM, {SERIES} series, a step of one: p50 {}, p99 {} (rounds of all series), limit {}: {}",
        shown(half),
        shown(most),
        shown(STEP_LIMIT),
        verdict(holds)
    );
    holds
}

fn verdict(holds: bool) -> &'static str {
    if holds { "held" } else { "not held" }
}

fn shown(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1_000.0 {
        format!("{micros:.1} us")
    } else {
        format!("{:.2} ms", micros / 1e3)
    }
}

/// How long each took.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn time<T>(&mut self, counts: bool, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        if counts {
            self.0.push(took);
        }
        result
    }

    /// What this share of them stays under.
    fn at(&mut self, share: f64) -> Duration {
        self.0.sort_unstable();
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }
}

/// A pod for a slice of the mix, or for what is asked.
fn pod(at: usize, asked: Option<(&str, u32)>, random: &mut StdRng) -> PodPart {
    let drawn = || {
        (
            MIX.choose_weighted(random, |(_, weight)| *weight)
                .expect("weights")
                .0,
            1,
        )
    };
    let (profile, count) = asked.unwrap_or_else(drawn);
    let limits = json!({format!("nvidia.com/mig-{profile}"): count.to_string()});
    let pod = json!({"metadata": {"name": format!("pod-{at}"), "namespace": "default", "uid": format!("uid-{at}"),
        "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"schedulerName": "migpool-scheduler", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"}});
    PodPart::of(&serde_json::from_value(pod).expect("a pod"))
}

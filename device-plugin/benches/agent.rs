//! What the agent costs: how long the kubelet waits for a slice, and what the process takes while nothing happens
//! and while pods come and go. The real program, between a fake NVML library that takes no time of its own accord
//! and a kubelet and an API server in this process.
//!
//! `cargo bench -p device-plugin --bench agent -- [--quick]`

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "a bench ends where it goes wrong, and uses a part of the node of the tests"
)]

#[path = "../tests/component/api_server.rs"]
mod api_server;
#[path = "../tests/component/kubelet.rs"]
mod kubelet;
#[path = "../tests/component/node.rs"]
mod node;
#[path = "agent/usage.rs"]
mod usage;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use device_plugin::kubelet::proto::v1beta1::device_plugin_client::DevicePluginClient;
use device_plugin::kubelet::proto::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, Empty, PreStartContainerRequest,
};
use node::Node;
use shared::mig::{Board, Profile};
use shared::names::{self, DeviceId};
use tonic::transport::Channel;
use usage::Usage;

/// What the node has.
const BOARD: &str = "H100-80GB";
/// How many of it.
const GPUS: u32 = 8;
/// Pods by profile, as weights: the mix of the scheduler's bench.
const MIX: [(&str, usize); 4] = [("1g.10gb", 50), ("2g.20gb", 25), ("3g.40gb", 20), ("1g.20gb", 5)];
/// Memory slices in use while pods come and go: 60 % of 64. Fuller, and large profiles seldom find room.
const IN_USE: usize = 38;

/// How long each part goes on.
struct Extent {
    cycles: usize,
    /// Cycles that are not counted: connections open, the node fills up.
    warm_up: usize,
    /// The cycles end after this, however many there were: a slow disk must not keep people waiting.
    limit: Duration,
    idle: Duration,
    pods: u32,
}

impl Extent {
    const FULL: Self = Self {
        cycles: 400,
        warm_up: 20,
        limit: Duration::from_secs(22),
        idle: Duration::from_secs(10),
        pods: 20,
    };
    const QUICK: Self = Self {
        cycles: 8,
        warm_up: 0,
        limit: Duration::from_secs(10),
        idle: Duration::from_millis(500),
        pods: 2,
    };
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    // cargo bench says --bench; whoever runs benches as tests does not
    let quick = has("--quick") || has("--test") || !has("--bench");
    let extent = if quick { Extent::QUICK } else { Extent::FULL };

    let mut node = Node::new(BOARD, GPUS).await.with_api().await;
    node.environment.insert("RUST_LOG".to_owned(), "info".to_owned());
    node.start().await;
    node.counts(&[]).await;
    let mut bench = Bench::new(node);

    let process = bench.process(&extent).await;
    let (before, began) = (Usage::of(&bench.node), Instant::now());
    let times = bench.cycles(&extent).await;
    let full = Usage::of(&bench.node).since(&before, began, "pods come and go as fast as they can");
    times.print();
    println!();
    Usage::head();
    process.iter().chain([&full]).for_each(Usage::print);
}

struct Bench {
    node: Node,
    /// One open connection a resource, as the kubelet keeps them.
    clients: BTreeMap<String, DevicePluginClient<Channel>>,
    /// Pods that run: name, device, memory slices.
    pods: Vec<(String, DeviceId, usize)>,
    made: usize,
    seed: u64,
}

impl Bench {
    fn new(node: Node) -> Self {
        let resources = node.kubelet.allocatable().into_keys();
        let clients = resources
            .map(|resource| (resource.clone(), node.kubelet.client(&resource)))
            .collect();
        Self {
            node,
            clients,
            pods: Vec::new(),
            made: 0,
            seed: 0x2545_f491_4f6c_dd1d,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        usize::try_from(self.seed % below as u64).unwrap()
    }

    fn profile(&mut self) -> Profile {
        let mut at = self.random(MIX.iter().map(|(_, weight)| weight).sum());
        let (name, _) = MIX
            .iter()
            .find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            })
            .unwrap();
        name.parse().unwrap()
    }

    /// CPU and memory while nothing happens, and at a pod a second.
    async fn process(&mut self, extent: &Extent) -> Vec<Usage> {
        let (before, began) = (Usage::of(&self.node), Instant::now());
        tokio::time::sleep(extent.idle).await;
        let idle = Usage::of(&self.node).since(&before, began, "idle, no pods");

        let (before, began) = (Usage::of(&self.node), Instant::now());
        let mut second = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..extent.pods {
            second.tick().await;
            self.remove_all().await;
            let profile = self.profile();
            assert!(self.admit(profile).await.is_some(), "no room on an empty node");
        }
        second.tick().await;
        self.remove_all().await;
        let busy = Usage::of(&self.node).since(&before, began, "one pod a second");
        vec![idle, busy]
    }

    /// Allocations on a node where pods come and go.
    async fn cycles(&mut self, extent: &Extent) -> Times {
        let (mut times, began) = (Times::default(), Instant::now());
        for cycle in 0..extent.cycles + extent.warm_up {
            if began.elapsed() > extent.limit {
                break;
            }
            let profile = self.profile();
            let size = usize::from(Board::named(BOARD).unwrap().row(profile).unwrap().size);
            let used =
                |pods: &[(String, DeviceId, usize)]| pods.iter().map(|(_, _, size)| size).sum::<usize>();
            while used(&self.pods) + size > IN_USE {
                self.remove_any().await;
            }
            let took = loop {
                match self.admit(profile).await {
                    Some(took) => break took,
                    None => self.remove_any().await,
                }
            };
            if cycle >= extent.warm_up {
                times.echo.push(took.echo);
                let row = if took.stood {
                    &mut times.reused
                } else {
                    &mut times.cut
                };
                row.push(took.allocate);
            }
        }
        times.synced = synced(self.node.folder.path(), extent.cycles / 4);
        self.remove_all().await;
        times
    }

    /// A pod comes, as the kubelet admits it: choose, allocate, account, check. `None` where nothing is free.
    async fn admit(&mut self, profile: Profile) -> Option<Took> {
        let resource = names::resource(profile);
        let (pod, kubelet) = (format!("p{}", self.made), &self.node.kubelet);
        self.made += 1;
        let id = kubelet.prefer(&resource, 1, &[]).await.pop()?;
        self.node.api().pod(&pod, &format!("main={id}"));
        // again, now that the scheduler has written on it
        let ids = kubelet.prefer(&resource, 1, &[]).await;
        assert_eq!(ids, std::slice::from_ref(&id));
        let device: DeviceId = id.parse().unwrap();
        let stood = self.stands(&device);

        let client = self.clients.get_mut(&resource).unwrap();
        // whatever the agent is still at ends before the clock starts: this call waits for its turn and changes nothing
        let nobody = PreStartContainerRequest {
            devices_ids: vec!["nobody".to_owned()],
        };
        assert!(client.pre_start_container(nobody).await.is_err());
        let start = Instant::now();
        client.get_device_plugin_options(Empty {}).await.unwrap();
        let echo = start.elapsed();
        let asked = ContainerAllocateRequest {
            devices_ids: ids.clone(),
        };
        let request = AllocateRequest {
            container_requests: vec![asked],
        };
        let start = Instant::now();
        client.allocate(request).await.unwrap();
        let allocate = start.elapsed();

        self.node.kubelet.note(&pod, "main", &resource, &ids);
        let request = PreStartContainerRequest { devices_ids: ids };
        client.pre_start_container(request).await.unwrap();
        let row = Board::named(BOARD).unwrap().row(profile).unwrap();
        self.pods.push((pod, device, usize::from(row.size)));
        Some(Took {
            stood,
            echo,
            allocate,
        })
    }

    /// Whether a slice stands at a place already.
    fn stands(&self, device: &DeviceId) -> bool {
        let gpus = self.node.world().state().unwrap();
        let gpu = gpus.gpus.iter().position(|gpu| gpu.uuid == device.gpu).unwrap();
        self.node.instances(gpu).contains(&device.place.to_string())
    }

    async fn remove_any(&mut self) {
        let at = self.random(self.pods.len());
        let (pod, device, _) = self.pods.swap_remove(at);
        self.node.remove(&pod).await;
        let file = format!("migpool.dev-mig_{}.json", device.to_string().replace(':', "_"));
        let file = self.node.cdi().join(file);
        self.node.until("released", |_| !file.exists()).await;
        // and the kubelet is told
        self.node.counts(&self.node.kubelet.held()).await;
    }

    async fn remove_all(&mut self) {
        while !self.pods.is_empty() {
            self.remove_any().await;
        }
    }
}

/// What one admission took.
struct Took {
    stood: bool,
    echo: Duration,
    allocate: Duration,
}

#[derive(Default)]
struct Times {
    reused: Vec<Duration>,
    cut: Vec<Duration>,
    echo: Vec<Duration>,
    synced: Vec<Duration>,
}

impl Times {
    fn print(mut self) {
        println!(
            "Allocate on a node of {GPUS} {BOARD}, up to {IN_USE} of 64 memory slices in use; fake NVML delays 0"
        );
        println!(
            "ratio = p50 over that of GetDevicePluginOptions, an empty gRPC call on the same socket, called before each Allocate"
        );
        println!(
            "{:<38} {:>6} {:>10} {:>10} {:>8}",
            "call", "calls", "p50", "p99", "ratio"
        );
        let base = at(&mut self.echo, 0.5);
        for (call, times) in [
            ("Allocate, an idle slice is reused", &mut self.reused),
            ("Allocate, a slice is cut", &mut self.cut),
            ("GetDevicePluginOptions", &mut self.echo),
            ("(one small file replaced and synced)", &mut self.synced),
        ] {
            let (p50, p99) = (at(times, 0.5), at(times, 0.99));
            let ratio = p50
                .zip(base)
                .map(|(p50, base)| p50.as_secs_f64() / base.as_secs_f64());
            println!(
                "{call:<38} {:>6} {:>10} {:>10} {:>8}",
                times.len(),
                milliseconds(p50),
                milliseconds(p99),
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
            );
        }
    }
}

fn at(times: &mut [Duration], share: f64) -> Option<Duration> {
    times.sort_unstable();
    let last = times.len().checked_sub(1)?;
    times.get((last as f64 * share).round() as usize).copied()
}

fn milliseconds(time: Option<Duration>) -> String {
    time.map_or_else(
        || "-".to_owned(),
        |time| format!("{:.2} ms", time.as_secs_f64() * 1e3),
    )
}

/// What this disk takes for one write as the journal's: an allocation writes some, and waits for each.
fn synced(folder: &Path, writes: usize) -> Vec<Duration> {
    let (half, whole) = (folder.join("synced.tmp"), folder.join("synced"));
    let once = || {
        let start = Instant::now();
        std::fs::write(&half, [b'x'; 4096]).unwrap();
        std::fs::File::open(&half).unwrap().sync_all().unwrap();
        std::fs::rename(&half, &whole).unwrap();
        std::fs::File::open(folder).unwrap().sync_all().unwrap();
        start.elapsed()
    };
    (0..writes).map(|_| once()).collect()
}

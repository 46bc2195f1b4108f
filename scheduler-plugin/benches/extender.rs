//! What an answer costs over HTTP, beside a server that only decodes the same bodies and encodes an answer of the
//! same shape. Everything is in one process, so only the ratios count.
//!
//! `cargo bench -p scheduler-plugin --bench extender -- [--calls N]`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    dead_code,
    reason = "a bench ends where it goes wrong, and uses a part of the API server of the tests"
)]

#[path = "../tests/component/api_server.rs"]
mod api_server;
#[path = "paper/nodes.rs"]
mod nodes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_server::ApiServer;
use axum::body::Bytes;
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use nodes::{MIX, gpu_node};
use prometheus_client::registry::Registry;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use scheduler_plugin::clock::Clock;
use scheduler_plugin::http::router::{Extender, router};
use scheduler_plugin::http::wire::{
    ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult, HostPriority,
};
use scheduler_plugin::index::Index;
use scheduler_plugin::index::sources::Source;
use scheduler_plugin::metrics::Metrics;
use scheduler_plugin::watch::nodes::NodePart;
use scheduler_plugin::watch::pods::PodPart;
use scheduler_plugin::writer::Writer;
use serde_json::{Value, json};
use serve::http::Limits;
use serve::watch::Change;
use tokio_util::sync::CancellationToken;

/// Cluster sizes: a small one, the size of the openb trace, and kube-scheduler's own benchmark.
const NODES: [usize; 3] = [100, 1_213, 5_000];
/// GPUs of a node.
const GPUS: u32 = 8;
/// Calls that are not counted: connections open, caches fill.
const WARM_UP: usize = 20;

#[tokio::main]
async fn main() {
    let mut calls = 300;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--calls" {
            calls = args
                .next()
                .and_then(|count| count.parse().ok())
                .expect("--calls takes a number");
        }
    }
    println!(
        "extender over HTTP, {GPUS} GPUs a node, {calls} calls each; echo = the same bodies decoded and an answer encoded, nothing decided"
    );
    println!("bind includes one Binding written to an API server in this process; echo does not");
    println!(
        "{:>6} {:<22} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "nodes", "call", "p50", "p99", "echo p50", "echo p99", "ratio"
    );
    for nodes in NODES {
        measure(nodes, calls).await;
    }
}

async fn measure(nodes: usize, calls: usize) {
    let mut random = StdRng::seed_from_u64(7);
    let clock = Clock::of_machine();
    let index = Arc::new(Index::new(clock.clone()));
    let names: Vec<String> = (0..nodes).map(|at| format!("gpu-node-{at:05}")).collect();
    let part = |name: &String| NodePart {
        name: name.clone(),
        ..NodePart::default()
    };
    index.nodes(Change::Reset(names.iter().map(part).collect()));
    index.gpu_nodes(Change::Reset(
        names
            .iter()
            .map(|name| gpu_node(name, GPUS, &mut random))
            .collect(),
    ));
    Source::ALL.into_iter().for_each(|source| index.loaded(source));

    let api = ApiServer::start().await;
    let metrics = Metrics::new(&mut Registry::default());
    let writer = Writer::new(
        api.client(),
        Duration::from_secs(4),
        "bench".into(),
        metrics.clone(),
    );
    let extender = Extender {
        index: Arc::clone(&index),
        writer,
        metrics,
        clock,
        body_limit: 64 << 20,
    };
    let token = CancellationToken::new();
    let ours = start(router(extender), token.clone()).await;
    let echo = start(echo_router(), token.clone()).await;
    let caller = Caller {
        client: Client::builder(TokioExecutor::new()).build_http(),
    };

    let mut filter = Pair::default();
    let mut prioritize = Pair::default();
    let mut bind = Pair::default();
    let mut all = Pair::default();
    for call in 0..calls + WARM_UP {
        let pod = pod(call, &mut random);
        api.put("pods", pod.clone());
        index.pods(Change::Apply(PodPart::of(
            &serde_json::from_value(pod.clone()).unwrap(),
        )));
        let body = Bytes::from(json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string());
        let counts = call >= WARM_UP;
        let (answer, a) = caller
            .both(ours, echo, "/filter", &body, counts, &mut filter)
            .await;
        let node = answer["NodeNames"][0]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
        let (_, b) = caller
            .both(ours, echo, "/prioritize", &body, counts, &mut prioritize)
            .await;
        let body = json!({"PodName": pod["metadata"]["name"], "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": node});
        let (answer, c) = caller
            .both(
                ours,
                echo,
                "/bind",
                &Bytes::from(body.to_string()),
                counts,
                &mut bind,
            )
            .await;
        assert_eq!(answer["Error"], "");
        if counts {
            all.push((a.0 + b.0 + c.0, a.1 + b.1 + c.1));
        }
        // the pool stays as full as it was
        let name = pod["metadata"]["name"].as_str().unwrap();
        api.delete("pods", &format!("default/{name}"));
        index.pods(Change::Delete(PodPart::of(&serde_json::from_value(pod).unwrap())));
    }
    filter.print(nodes, "filter");
    prioritize.print(nodes, "prioritize (all nodes)");
    bind.print(nodes, "bind");
    all.print(nodes, "filter+prioritize+bind");
    refuse(nodes, calls, &names, &caller, (ours, echo)).await;
    token.cancel();
    api.stop();
}

/// A pod that fits nowhere: every node is explained.
async fn refuse(
    nodes: usize,
    calls: usize,
    names: &[String],
    caller: &Caller,
    (ours, echo): (SocketAddr, SocketAddr),
) {
    let mut refused = Pair::default();
    let mut pod = pod(0, &mut StdRng::seed_from_u64(1));
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/mig-7g.80gb": "8"}});
    let body = Bytes::from(json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string());
    for call in 0..calls + WARM_UP {
        let (answer, _) = caller
            .both(ours, echo, "/filter", &body, call >= WARM_UP, &mut refused)
            .await;
        assert_eq!(
            answer["FailedNodes"].as_object().map(serde_json::Map::len),
            Some(nodes),
            "something took 8 whole GPUs"
        );
    }
    refused.print(nodes, "filter, nothing fits");
}

struct Caller {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Times of ours and of the echo.
#[derive(Default)]
struct Pair {
    ours: Vec<Duration>,
    echo: Vec<Duration>,
}

impl Caller {
    /// The same body to both; the answer of ours, and both times.
    async fn both(
        &self,
        ours: SocketAddr,
        echo: SocketAddr,
        path: &str,
        body: &Bytes,
        counts: bool,
        pair: &mut Pair,
    ) -> (Value, (Duration, Duration)) {
        let (answer, took) = self.call(ours, path, body).await;
        let (_, echoed) = self.call(echo, path, body).await;
        if counts {
            pair.push((took, echoed));
        }
        (serde_json::from_slice(&answer).unwrap(), (took, echoed))
    }

    async fn call(&self, to: SocketAddr, path: &str, body: &Bytes) -> (Bytes, Duration) {
        let request =
            hyper::Request::post(format!("http://{to}{path}")).header("content-type", "application/json");
        let request = request.body(Full::new(body.clone())).unwrap();
        let start = Instant::now();
        let response = self.client.request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        (answer, start.elapsed())
    }
}

impl Pair {
    fn push(&mut self, (ours, echo): (Duration, Duration)) {
        self.ours.push(ours);
        self.echo.push(echo);
    }

    fn print(&mut self, nodes: usize, call: &str) {
        let at = |times: &mut Vec<Duration>, share: f64| {
            times.sort_unstable();
            times[((times.len() - 1) as f64 * share).round() as usize]
        };
        let (p50, p99) = (at(&mut self.ours, 0.5), at(&mut self.ours, 0.99));
        let (echo50, echo99) = (at(&mut self.echo, 0.5), at(&mut self.echo, 0.99));
        let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        let ratio = p50.as_secs_f64() / echo50.as_secs_f64();
        println!(
            "{nodes:>6} {call:<22} {:>9} {:>9} {:>9} {:>9} {ratio:>6.2}x",
            ms(p50),
            ms(p99),
            ms(echo50),
            ms(echo99)
        );
    }
}

async fn start(router: Router, token: CancellationToken) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connections: 64,
        body: 64 << 20,
        request: Duration::from_secs(60),
        ..Limits::ADMIN
    };
    tokio::spawn(serve::http::serve(listener, router, limits, token));
    address
}

/// Decodes what we decode and encodes what we encode, on the same server.
fn echo_router() -> Router {
    let filter = |body: Bytes| async move {
        let args: ExtenderArgs = serde_json::from_slice(&body).unwrap();
        let names = args.node_names.unwrap_or_default();
        Json(ExtenderFilterResult {
            node_names: names.iter().next().map(|name| [name].into_iter().collect()),
            ..Default::default()
        })
    };
    let prioritize = |body: Bytes| async move {
        let args: ExtenderArgs = serde_json::from_slice(&body).unwrap();
        let names = args.node_names.unwrap_or_default();
        Json(
            names
                .iter()
                .map(|host| HostPriority {
                    host: host.to_owned(),
                    score: 0,
                })
                .collect::<Vec<_>>(),
        )
    };
    let bind = |body: Bytes| async move {
        let args: ExtenderBindingArgs = serde_json::from_slice(&body).unwrap();
        assert!(!args.node.is_empty());
        Json(ExtenderBindingResult::default())
    };
    Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/bind", post(bind))
}

fn pod(at: usize, random: &mut StdRng) -> Value {
    let profile = MIX.choose_weighted(random, |(_, weight)| *weight).unwrap().0;
    let resource = format!("nvidia.com/mig-{profile}");
    json!({"metadata": {"name": format!("pod-{at}"), "namespace": "default", "uid": format!("uid-{at}"),
        "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"schedulerName": "migpool-scheduler", "containers": [{"name": "main", "image": "registry.example/work:1",
            "resources": {"limits": {resource.as_str(): "1", "cpu": "1"}, "requests": {resource.as_str(): "1", "cpu": "1"}}}]},
        "status": {"phase": "Pending"}})
}

//! The load stream over real sockets, with callers as the scheduler is one and as it is not.

use std::sync::Arc;
use std::time::Duration;

use device_plugin::args::Strategy;
use device_plugin::inventory::Inventory;
use device_plugin::metrics::Metrics;
use device_plugin::usage::Load;
use device_plugin::usage::callers::Callers;
use device_plugin::usage::file::File;
use device_plugin::usage::server::Teller;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use serve::usage::certificate::Identity;
use serve::usage::connect::connect;
use serve::usage::proto::WatchResponse;
use serve::usage::proto::usage_client::UsageClient;
use shared::api::gpu_node::Endpoint;
use shared::decide::forecast::minutes::Minutes;
use shared::policy::{LOAD_CALLERS, LOAD_MINUTES};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::api_server::ApiServer;
use crate::node::{Node, PATIENCE};

const ACCOUNT: &str = "system:serviceaccount:migpool-system:migpool-scheduler";

/// The answer of an API server about a token.
fn reviewed(account: &str, audiences: &Value) -> Value {
    json!({"authenticated": true, "user": {"username": account}, "audiences": audiences})
}

fn good() -> Value {
    reviewed(ACCOUNT, &json!(["migpool.dev/usage"]))
}

/// A server of the load in this process.
struct Served {
    api: ApiServer,
    load: Load,
    endpoint: Endpoint,
    registry: Arc<Registry>,
    token: CancellationToken,
    server: JoinHandle<anyhow::Result<()>>,
    _folder: tempfile::TempDir,
}

async fn served(minutes: impl IntoIterator<Item = i64>) -> Served {
    serve::client::install_tls_provider();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let api = ApiServer::start(&kubeconfig).await;
    api.token("good", good());
    let config = Kubeconfig::read_from(&kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(config, &options)
        .await
        .unwrap();
    config.default_retry = false;
    let callers = Callers::new(kube::Client::try_from(config).unwrap(), ACCOUNT);
    let load = Load::default();
    for minute in minutes {
        assert!(load.put(minute, 0.5));
    }
    let (metrics, registry) = Metrics::new(&Inventory::new(Strategy::Dynamic), &load);
    let (any, here) = ("127.0.0.1:0".parse().unwrap(), "127.0.0.1".parse().unwrap());
    let teller = Teller::listen(any, here, load.clone(), callers, metrics)
        .await
        .unwrap();
    let (endpoint, token) = (teller.endpoint(), CancellationToken::new());
    let server = tokio::spawn(teller.serve(token.clone()));
    Served {
        api,
        load,
        endpoint,
        registry,
        token,
        server,
        _folder: folder,
    }
}

impl Served {
    async fn watch(&self, token: Option<&str>, after: i64) -> Result<Stream, Status> {
        watch(&channel(&self.endpoint).await, token, after).await
    }

    fn metrics(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        page
    }
}

async fn channel(endpoint: &Endpoint) -> Channel {
    let (address, fingerprint) = (
        endpoint.address.parse().unwrap(),
        endpoint.fingerprint.parse().unwrap(),
    );
    connect(address, fingerprint, PATIENCE).await.unwrap()
}

/// A stream that is being read.
#[derive(Debug)]
struct Stream {
    stream: Streaming<WatchResponse>,
    read: Vec<(i64, f32)>,
}

async fn watch(channel: &Channel, token: Option<&str>, after: i64) -> Result<Stream, Status> {
    let mut request = Request::new(serve::usage::proto::WatchRequest { after });
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    let stream = UsageClient::new(channel.clone())
        .watch(request)
        .await?
        .into_inner();
    let read = Vec::new();
    Ok(Stream { stream, read })
}

impl Stream {
    /// Reads until so many minutes have come, and takes them.
    async fn minutes(&mut self, count: usize) -> Vec<(i64, f32)> {
        while self.read.len() < count {
            let message = tokio::time::timeout(PATIENCE, self.stream.message()).await;
            let minutes = message.unwrap().unwrap().unwrap().minutes;
            self.read
                .extend(minutes.into_iter().map(|minute| (minute.minute, minute.load)));
        }
        std::mem::take(&mut self.read)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_is_told_and_then_every_minute() {
    let served = served(1..=1000).await;
    let mut all = served.watch(Some("good"), 0).await.unwrap();
    let expected: Vec<_> = (1..=1000).map(|minute| (minute, 0.5)).collect();
    assert_eq!(all.minutes(1000).await, expected);
    let mut new = served.watch(Some("good"), 998).await.unwrap();
    assert_eq!(new.minutes(2).await, [(999, 0.5), (1000, 0.5)]);
    served.load.put(1003, 0.75);
    for stream in [&mut all, &mut new] {
        assert_eq!(stream.minutes(1).await, [(1003, 0.75)]);
    }
    let metrics = served.metrics();
    assert!(metrics.contains("migpool_usage_streams 2"), "{metrics}");
    assert!(
        metrics.contains("migpool_usage_minutes_told_total 1004"),
        "{metrics}"
    );
    assert!(
        metrics.contains("migpool_usage_calls_total{result=\"ok\"} 2"),
        "{metrics}"
    );
    assert_eq!(served.api.requests("tokenreviews"), 1, "a good token is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_nobody_back_and_misses_nothing() {
    let served = served([]).await;
    let mut slow = served.watch(Some("good"), 0).await.unwrap();
    let mut quick = served.watch(Some("good"), 0).await.unwrap();
    let count = i64::try_from(LOAD_MINUTES).unwrap();
    for minute in 1..=count {
        assert!(served.load.put(minute, 0.25));
        if minute % 100 == 0 {
            quick.minutes(1).await;
        }
    }
    let told = slow.minutes(LOAD_MINUTES).await;
    let expected: Vec<_> = (1..=count).map(|minute| (minute, 0.25)).collect();
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_the_scheduler_hears_anything() {
    let served = served([1]).await;
    let ours = json!(["migpool.dev/usage"]);
    served.api.token(
        "expired",
        json!({"authenticated": false, "error": "token has expired"}),
    );
    served
        .api
        .token("elsewhere", reviewed(ACCOUNT, &json!(["https://kubernetes"])));
    served.api.token("unscoped", reviewed(ACCOUNT, &Value::Null));
    served.api.token(
        "pod",
        reviewed("system:serviceaccount:migpool-system:default", &ours),
    );
    for (token, code) in [
        (None, Code::Unauthenticated),
        (Some("made-up"), Code::Unauthenticated),
        (Some("expired"), Code::Unauthenticated),
        (Some("elsewhere"), Code::Unauthenticated),
        (Some("unscoped"), Code::Unauthenticated),
        (Some("pod"), Code::PermissionDenied),
    ] {
        let refused = served.watch(token, 0).await.unwrap_err();
        assert_eq!(refused.code(), code, "{token:?}: {refused}");
        assert!(!refused.message().contains("expired"), "{refused}");
    }
    let long = "x".repeat(64 << 10);
    assert!(served.watch(Some(&long), 0).await.is_err());
    assert_eq!(
        served.api.requests("tokenreviews"),
        5,
        "what is no token is not reviewed"
    );
    let mut stream = served.watch(Some("good"), 0).await.unwrap();
    assert_eq!(stream.minutes(1).await, [(1, 0.5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_with_another_certificate_is_not_listened_to() {
    let served = served([1]).await;
    let (address, other) = (
        served.endpoint.address.parse().unwrap(),
        Identity::new().unwrap().fingerprint,
    );
    assert!(connect(address, other, PATIENCE).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_is_away_only_who_is_known_gets_in() {
    let served = served([1]).await;
    served.watch(Some("good"), 0).await.unwrap();
    served.api.token("next", good());
    served.api.away(true);
    let refused = served.watch(Some("next"), 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    served.watch(Some("good"), 0).await.unwrap();
    served.api.away(false);
    served.watch(Some("next"), 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_no_token_loses_the_place_and_whoever_did_keeps_it() {
    let served = served([1]).await;
    let mut good = served.watch(Some("good"), 0).await.unwrap();
    let address = &served.endpoint.address;
    let (mut silent, mut strange) = (Vec::new(), Vec::new());
    for seat in 1..LOAD_CALLERS {
        match seat % 2 {
            0 => silent.push(TcpStream::connect(address).await.unwrap()),
            _ => strange.push(channel(&served.endpoint).await),
        }
    }
    // waits in the kernel's queue until their time is up
    let mut late = served.watch(Some("good"), 0).await.unwrap();
    served.load.put(2, 1.0);
    for stream in [&mut good, &mut late] {
        assert_eq!(stream.minutes(2).await, [(1, 0.5), (2, 1.0)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_shutdown_every_stream_ends_at_once() {
    let served = served([1]).await;
    let mut stream = served.watch(Some("good"), 0).await.unwrap();
    stream.minutes(1).await;
    let _silent = TcpStream::connect(&served.endpoint.address).await.unwrap();
    served.token.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), async {
        assert!(!matches!(stream.stream.message().await, Ok(Some(_))));
        served.server.await.unwrap().unwrap();
    });
    ended.await.unwrap();
}

/// What an agent published.
fn published(node: &Node) -> Option<Endpoint> {
    let object = node.api().get("gpunodes", "node-a")?;
    serde_json::from_value(object["status"]["endpoint"].clone()).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_publishes_where_it_tells_and_its_history_outlives_it() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    node.api().token("good", good());
    let state = node.folder.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    let now = Timestamp::now().as_second() / 60;
    let mut minutes = Minutes::default();
    for minute in now - 120..now {
        minutes.put(minute, 0.5);
    }
    let (mut file, _) = File::open(&state, Timestamp::now());
    file.write(&minutes);
    node.flags.extend([
        "--usage-address=127.0.0.1:0".to_owned(),
        "--usage-advertise=127.0.0.1".to_owned(),
    ]);
    let mut before: Option<Endpoint> = None;
    for _ in 0..2 {
        node.start().await;
        node.until("published", |node| {
            published(node).is_some_and(|endpoint| Some(endpoint) != before)
        })
        .await;
        let endpoint = published(&node).unwrap();
        let mut stream = watch(&channel(&endpoint).await, Some("good"), 0).await.unwrap();
        let told = stream.minutes(120).await;
        assert_eq!(told[..120], minutes.after(0).collect::<Vec<_>>());
        before = Some(endpoint);
        node.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_an_address_for_others_tells_nobody() {
    let mut node = Node::new("H100-80GB", 1).await.with_api().await;
    std::fs::create_dir_all(node.folder.path().join("state")).unwrap();
    std::fs::write(node.folder.path().join("state/usage"), "nonsense").unwrap();
    node.start().await;
    node.until("written", |node| node.api().get("gpunodes", "node-a").is_some())
        .await;
    assert_eq!(published(&node), None);
    let log = node.log();
    assert!(log.contains("--usage-advertise is not given"), "{log}");
    assert_eq!(log.matches("remembered load set aside").count(), 1, "{log}");
}

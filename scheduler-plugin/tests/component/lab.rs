//! A cluster in a line: objects as they stand in an API server, the extender running against it, and a caller that
//! speaks as kube-scheduler does.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use scheduler_plugin::args::{Flags, Settings};
use scheduler_plugin::clock::Clock;
use scheduler_plugin::run::{Clients, Listeners, run};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::api_server::ApiServer;

/// Placement annotation.
pub const PLACEMENT: &str = "migpool.dev/placement";
/// What the calendar shows when a lab begins: half a minute after a quarter of an hour, when a bin has just been taken in.
const BEGINS: &str = "2026-11-29T12:00:30Z";
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster with an API server.
pub struct Lab {
    /// Its API server.
    pub api: ApiServer,
    /// Seconds that the extenders' steady clock shows; their calendar goes with it.
    pub seconds: Arc<AtomicU64>,
    /// Holds the token that extenders show to agents.
    secrets: tempfile::TempDir,
}

/// An extender that runs.
pub struct Extender {
    /// Where kube-scheduler calls.
    pub address: SocketAddr,
    /// Where metrics and health are.
    pub admin: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
    token: CancellationToken,
}

impl Lab {
    /// A cluster of nodes `n1`, `n2`, ... with empty H100s and the default pool.
    pub async fn new(nodes: u32, gpus: u32) -> Self {
        let lab = Self {
            api: ApiServer::start().await,
            seconds: Arc::default(),
            secrets: tempfile::tempdir().unwrap(),
        };
        lab.put_token("first");
        for node in 1..=nodes {
            lab.api.put("nodes", node_object(&format!("n{node}"), "boot-1"));
            lab.api.put("gpunodes", gpu_node(&format!("n{node}"), gpus, &[]));
        }
        lab.api.put("gpupools", json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default", "generation": 1}, "spec": {}}));
        lab
    }

    /// Starts an extender and waits until it is ready.
    pub async fn extender(&self, identity: &str) -> Extender {
        let extender = self.extender_unready(identity, "4").await;
        until("ready", || async { extender.get("/readyz").await.0 == 200 }).await;
        extender
    }

    /// Starts an extender.
    pub async fn extender_unready(&self, identity: &str, write_timeout: &str) -> Extender {
        let flags = Flags {
            extender_address: Some(([127, 0, 0, 1], 0).into()),
            admin_address: Some(([127, 0, 0, 1], 0).into()),
            write_timeout_seconds: Some(write_timeout.parse().unwrap()),
            nominate_from_nodes: Some(0),
            usage_token_file: Some(self.token_file().to_str().unwrap().to_owned()),
            ..Flags::default()
        };
        let settings = Settings::new(flags, identity).unwrap();
        let listeners = Listeners::open(&settings).await.unwrap();
        let (address, admin) = (
            listeners.extender.local_addr().unwrap(),
            listeners.admin.local_addr().unwrap(),
        );
        let client = self.api.client();
        let clients = Clients {
            watching: client.clone(),
            writing: client,
        };
        let seconds = Arc::clone(&self.seconds);
        let steady = move || Duration::from_secs(seconds.load(Ordering::SeqCst));
        let begins: jiff::Timestamp = BEGINS.parse().unwrap();
        let clock = Clock::new(steady.clone(), move || begins + steady());
        let token = CancellationToken::new();
        let task = tokio::spawn(run(settings, clients, listeners, clock, token.clone()));
        Extender {
            address,
            admin,
            client: Client::builder(TokioExecutor::new()).build_http(),
            task,
            token,
        }
    }

    /// The minute that the extenders' calendar shows, since 1970.
    pub fn minute(&self) -> i64 {
        let begins: jiff::Timestamp = BEGINS.parse().unwrap();
        let seconds = i64::try_from(self.seconds.load(Ordering::SeqCst)).unwrap();
        (begins.as_second() + seconds).div_euclid(60)
    }

    /// Where the token for agents is.
    pub fn token_file(&self) -> PathBuf {
        self.secrets.path().join("token")
    }

    /// Changes the token for agents, as the kubelet does every hour.
    pub fn put_token(&self, token: &str) {
        std::fs::write(self.token_file(), token).unwrap();
    }

    /// Creates a pod that asks for one slice.
    pub fn pod(&self, name: &str, profile: &str) -> Value {
        let pod = pod_object(name, profile);
        self.api.put("pods", pod.clone());
        pod
    }

    /// A pod as the API server has it.
    pub fn pod_now(&self, name: &str) -> Value {
        self.api.get("pods", &format!("default/{name}")).unwrap()
    }

    /// The placement that a pod was bound with.
    pub fn placement(&self, name: &str) -> String {
        self.pod_now(name)["metadata"]["annotations"][PLACEMENT]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Moves the extenders' clock on.
    pub fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Extender {
    /// Posts a body and reads the answer.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
        let request = hyper::Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
        (status, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
    }

    /// Reads a page of the admin server.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let request = hyper::Request::get(format!("http://{}{path}", self.admin))
            .body(Full::default())
            .unwrap();
        let Ok(response) = self.client.request(request).await else {
            return (0, String::new());
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Waits until it leads.
    pub async fn leads(&self) {
        until("leads", || async {
            self.get("/metrics")
                .await
                .1
                .contains("migpool_scheduler_leader 1")
        })
        .await;
    }

    /// Filter as kube-scheduler asks for it.
    pub async fn filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        let (status, answer) = self
            .post(
                "/filter",
                json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string(),
            )
            .await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Bind as kube-scheduler asks for it; gives the error, empty when it was bound.
    pub async fn bind(&self, pod: &Value, node: &str) -> String {
        let meta = &pod["metadata"];
        let args = json!({"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node});
        let (status, answer) = self.post("/bind", args.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        answer["Error"].as_str().unwrap().to_owned()
    }

    /// Filter, then bind to the one node answered; gives the node.
    pub async fn place(&self, pod: &Value, nodes: &[&str]) -> String {
        let answer = self.filter(pod, nodes).await;
        let names = answer["NodeNames"].as_array().unwrap();
        assert_eq!(names.len(), 1, "{answer}");
        let node = names[0].as_str().unwrap();
        assert_eq!(self.bind(pod, node).await, "");
        node.to_owned()
    }

    /// Ends it as SIGKILL would: nothing is given back, nothing is finished.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        // its parts are aborted with it; what they spawned sees the token
        self.token.cancel();
    }
}

/// Polls until something holds.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited too long for: {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A Node.
pub fn node_object(name: &str, boot: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": {"bootID": boot,
        "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
        "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}})
}

/// The UUID of a GPU of [`gpu_node`].
pub fn uuid(node: &str, gpu: u32) -> String {
    format!("GPU-{node}-{gpu}")
}

/// A slice as an agent reports it: (GPU index, place, state, holder pod).
pub type Reported<'a> = (u32, &'a str, &'a str, Option<&'a str>);

/// A GpuNode of H100s whose agent is ready.
pub fn gpu_node(name: &str, gpus: u32, slices: &[Reported<'_>]) -> Value {
    let board = shared::api::gpu_node::BoardStatus::from(shared::mig::Board::named("H100-80GB").unwrap());
    let gpu = |index: u32| {
        let of_gpu = slices.iter().filter(|(gpu, ..)| *gpu == index);
        let slice = |(_, place, state, holder): &Reported<'_>| {
            let (profile, start) = place.rsplit_once(':').unwrap();
            let mut slice =
                json!({"profile": profile, "start": start.parse::<u8>().unwrap(), "state": state});
            if let Some(pod) = holder {
                slice["holder"] = json!({"namespace": "default", "pod": pod, "container": "main"});
            }
            slice
        };
        json!({"uuid": uuid(name, index), "index": index, "model": "H100", "board": "H100-80GB", "memoryMib": 81559,
            "mig": true, "health": "Healthy", "slices": of_gpu.map(slice).collect::<Vec<_>>()})
    };
    json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "spec": {}, "status": {
        "strategy": "dynamic", "bootId": "boot-1", "boards": [board], "gpus": (0..gpus).map(gpu).collect::<Vec<_>>(),
        "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "message": "m", "lastTransitionTime": "2026-11-29T00:00:00Z"}]}})
}

/// A pod that asks for one slice.
pub fn pod_object(name: &str, profile: &str) -> Value {
    let resource = format!("nvidia.com/mig-{profile}");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "creationTimestamp": "2026-11-29T00:00:00Z"},
        "spec": {"schedulerName": "migpool-scheduler", "containers": [{"name": "main", "image": "i",
            "resources": {"limits": {resource.as_str(): "1"}, "requests": {resource.as_str(): "1"}}}]},
        "status": {"phase": "Pending"}})
}

/// The pod as kube-scheduler marshals it: typed structs carry no kind.
pub fn as_sent(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let object = pod.as_object_mut().unwrap();
    object.remove("apiVersion");
    object.remove("kind");
    pod
}

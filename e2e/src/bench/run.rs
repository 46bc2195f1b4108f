//! One run: a batch of pods, one kube-scheduler over it, and the rate at which they are bound.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cluster::Cluster;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::world::World;

/// Where our extender listens in these runs.
const EXTENDER: &str = "127.0.0.1:19401";
/// Where its admin endpoints are.
const ADMIN: &str = "127.0.0.1:19403";
/// Longest that one run may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A program that ends with its guard.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended by itself, which the run has noticed by then
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The stock scheduler.
pub async fn stock(cluster: &Cluster, world: &World, pods: u32, percentage: Option<u32>) -> Result<f64> {
    let name = percentage.map_or("bench-stock".to_owned(), |percent| {
        format!("bench-stock-{percent}")
    });
    batch(cluster, world, pods, &name, percentage, None).await
}

/// The stock scheduler with our extender.
pub async fn ours(cluster: &Cluster, world: &World, pods: u32, program: &Path) -> Result<f64> {
    if !program.exists() {
        bail!(
            "{} is not there; build it with cargo build --release -p scheduler-plugin",
            program.display()
        );
    }
    let mut command = Command::new(program);
    command.args([
        "--extender-address",
        EXTENDER,
        "--admin-address",
        ADMIN,
        "--lease-namespace",
        "default",
    ]);
    command
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("RUST_LOG", "warn")
        .env("POD_NAME", "bench");
    let _extender = Running(
        command
            .stdout(log("migpool-scheduler")?)
            .stderr(Stdio::inherit())
            .spawn()?,
    );
    world
        .until(120, "the extender has its first snapshot", async || {
            Ok(if ready() {
                Ok(())
            } else {
                Err(format!("http://{ADMIN}/readyz does not say 200"))
            })
        })
        .await?;
    batch(cluster, world, pods, "bench-migpool", Some(100), Some(EXTENDER)).await
}

/// Whether the extender says that it is ready.
fn ready() -> bool {
    use std::io::{Read as _, Write as _};
    let ask = || -> std::io::Result<bool> {
        let mut stream = std::net::TcpStream::connect(ADMIN)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET /readyz HTTP/1.0\r\nHost: {ADMIN}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1) == Some("200"))
    };
    ask().unwrap_or(false)
}

/// Creates the pods, starts a kube-scheduler for them, and gives the rate from the first binding to the last.
async fn batch(
    cluster: &Cluster,
    world: &World,
    count: u32,
    scheduler: &str,
    percentage: Option<u32>,
    extender: Option<&str>,
) -> Result<f64> {
    eprintln!("{scheduler}: {count} pods ...");
    let api = world.pods();
    let create = |number: u32| {
        let (api, pod) = (api.clone(), pod(scheduler, number));
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(pod)?)
                .await
                .map_err(anyhow::Error::from)
        }
    };
    stream::iter(0..count)
        .map(create)
        .buffer_unordered(16)
        .try_for_each(async |_| Ok(()))
        .await
        .context("create pods")?;
    let config = config(cluster, scheduler, percentage, extender)?;
    let label = format!("bench={scheduler}");
    let list = api.list(&ListParams::default().labels(&label)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let watch = WatchParams::default().labels(&label).timeout(290);
    let mut events = std::pin::pin!(api.watch(&watch, &version).await?);
    let mut command = Command::new(cluster.binaries().kubernetes.join("kube-scheduler"));
    command
        .arg("--config")
        .arg(&config)
        .args(["--secure-port", "0", "--leader-elect=false"]);
    let running = Running(
        command
            .stdout(log(scheduler)?)
            .stderr(log(scheduler)?)
            .spawn()
            .context("start kube-scheduler")?,
    );
    let started = Instant::now();
    let mut bound = std::collections::BTreeSet::new();
    let (mut first, mut last) = (None, Instant::now());
    while bound.len() < count as usize {
        let left = LIMIT.saturating_sub(started.elapsed());
        let event = tokio::time::timeout(left, events.next()).await;
        let Ok(Some(event)) = event else {
            bail!("{} of {count} pods bound in {LIMIT:?}", bound.len())
        };
        if let WatchEvent::Modified(pod) = event?
            && is_bound(&pod)
            && bound.insert(pod.name_any())
        {
            last = Instant::now();
            first.get_or_insert(last);
        }
    }
    drop(running);
    let seconds = last.duration_since(first.unwrap_or(last)).as_secs_f64().max(1e-3);
    api.delete_collection(
        &DeleteParams::default().grace_period(0),
        &ListParams::default().labels(&label),
    )
    .await?;
    Ok(f64::from(count - 1) / seconds)
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn pod(scheduler: &str, number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{scheduler}-{number:05}"), "labels": {"bench": scheduler}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "main", "image": "none",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/mig-1g.10gb": "1"},
                              "limits": {"nvidia.com/mig-1g.10gb": "1"}},
            }],
        },
    })
}

/// The scheduler's config file, in JSON, which is YAML too.
fn config(
    cluster: &Cluster,
    scheduler: &str,
    percentage: Option<u32>,
    extender: Option<&str>,
) -> Result<PathBuf> {
    let extenders: Vec<Value> = extender
        .map(|address| {
            json!({
                "urlPrefix": format!("http://{address}"), "filterVerb": "filter", "prioritizeVerb": "prioritize",
                "bindVerb": "bind", "weight": 20, "httpTimeout": "5s", "nodeCacheCapable": true,
            })
        })
        .into_iter()
        .collect();
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": cluster.kubeconfig(), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": false},
        "percentageOfNodesToScore": percentage,
        "profiles": [{"schedulerName": scheduler}],
        "extenders": extenders,
    });
    let path = std::env::temp_dir().join(format!("migpool-{scheduler}.yaml"));
    std::fs::write(&path, serde_json::to_vec_pretty(&config)?)?;
    Ok(path)
}

/// A file for what a program says.
fn log(name: &str) -> Result<Stdio> {
    let path = std::env::temp_dir().join(format!("migpool-bench-{name}.log"));
    Ok(std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .into())
}

//! One run: a batch of pods, one kube-scheduler over it, and the rate at which they are bound.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cluster::Cluster;
use cluster::command::wait_until;
use cluster::process::Processes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use shared::api::GpuPool;

use super::batch::Batch;
use super::bound;
use super::usage::{PROGRAMS, Usage};
use crate::world::World;

/// Where our extender listens in these runs.
const EXTENDER: &str = "127.0.0.1:19401";
/// Where its admin endpoints are.
const ADMIN: &str = "127.0.0.1:19403";
/// Longest that a program may take to end once it is asked to; it is killed then.
const GRACE: Duration = Duration::from_secs(10);
/// Longest that one run may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A program that ends with its guard.
struct Running(Child);

impl Running {
    fn pid(&self) -> Option<i32> {
        i32::try_from(self.0.id()).ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // our program gives its lease back, so that the next one need not wait for it; a program may also have ended
        // by itself, which the run has noticed by then
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        if !wait_until(GRACE, || !matches!(self.0.try_wait(), Ok(None))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A scheduler to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// Name of its profile.
    pub name: &'a str,
    /// `percentageOfNodesToScore`; kube-scheduler's own choice where there is none.
    pub percentage: Option<u32>,
    /// Our program, where it is to be asked.
    pub program: Option<&'a Path>,
    /// Whether our program plans ahead and nominates.
    pub nominates: bool,
    /// Which pods it gets.
    pub batch: Batch,
    /// How many.
    pub pods: u32,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Pods bound per second, from the first to the last.
    pub rate: f64,
    /// CPU for each of them by program, milliseconds.
    pub cpu: [f64; PROGRAMS.len()],
}

/// Has one scheduler bind its pods; it and our program log in with the kubeconfig `access`.
pub async fn run(
    cluster: &Cluster,
    access: &Path,
    world: &World,
    contender: Contender<'_>,
) -> Result<Outcome> {
    let extender = match contender.program {
        Some(program) => Some(extender(access, world, program, &contender).await?),
        None => None,
    };
    batch(cluster, access, world, &contender, extender.as_ref()).await
}

/// Our program, ready and leading.
async fn extender(
    access: &Path,
    world: &World,
    program: &Path,
    contender: &Contender<'_>,
) -> Result<Running> {
    if !program.exists() {
        bail!(
            "{} is not there; build it with cargo build --release -p scheduler-plugin",
            program.display()
        );
    }
    let plans_for = if contender.nominates { contender.name } else { "" };
    let mut command = Command::new(program);
    command
        .args(["--extender-address", EXTENDER, "--admin-address", ADMIN])
        .args(["--lease-namespace", "default", "--nominate-for", plans_for])
        // these nodes have no agents that could tell load
        .arg("--usage-token-file=")
        .env("KUBECONFIG", access)
        .env(
            "RUST_LOG",
            std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()),
        )
        .env("POD_NAME", contender.name)
        .stdout(log("migpool-scheduler")?)
        .stderr(Stdio::inherit());
    let running = Running(command.spawn()?);
    // a whole line: the help text of the same page begins alike
    for (path, says) in [
        ("/readyz", "200 OK"),
        ("/metrics", "\nmigpool_scheduler_leader 1\n"),
    ] {
        world
            .until(120, "the extender has its first snapshot and leads", async || {
                Ok(if get(path).contains(says) {
                    Ok(())
                } else {
                    Err(format!("http://{ADMIN}{path} does not say {:?}", says.trim()))
                })
            })
            .await?;
    }
    Ok(running)
}

/// A page of the extender's admin server with its head; empty while there is none.
fn get(path: &str) -> String {
    use std::io::{Read as _, Write as _};
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(ADMIN)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {ADMIN}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().unwrap_or_default()
}

/// Creates the pods, starts a kube-scheduler for them, and measures from the first binding to the last.
///
/// Our program only observes while the pods are created, and begins to plan when the scheduler starts.
async fn batch(
    cluster: &Cluster,
    access: &Path,
    world: &World,
    contender: &Contender<'_>,
    extender: Option<&Running>,
) -> Result<Outcome> {
    let (scheduler, count) = (contender.name, contender.pods);
    eprintln!("{scheduler}: {count} pods ...");
    if extender.is_some() {
        set_mode(world, "Observe").await?;
    }
    let api = world.pods();
    let create = |number: u32| {
        let (api, pod) = (api.clone(), contender.batch.pod(scheduler, number));
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
    let config = config(access, contender)?;
    let label = format!("bench={scheduler}");
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
    if contender.nominates {
        set_mode(world, "Dynamic").await?;
    }
    let processes = Processes::under(&cluster.plan().root);
    let recorded = |name| processes.running(name).map(|identity| identity.pid);
    let pids = [
        running.pid(),
        extender.and_then(Running::pid),
        recorded("kube-apiserver"),
        recorded("etcd"),
    ];
    let started = Instant::now();
    let mut bound = BTreeSet::new();
    let (mut first, mut last) = (None, Instant::now());
    let mut pods = std::pin::pin!(bound::pods(&world.client, &label));
    while bound.len() < count as usize {
        let left = LIMIT.saturating_sub(started.elapsed());
        let Ok(Some(pod)) = tokio::time::timeout(left, pods.next()).await else {
            bail!("{} of {count} pods bound in {LIMIT:?}", bound.len())
        };
        if bound.insert(pod) {
            last = Instant::now();
            first.get_or_insert_with(|| (last, Usage::of(pids)));
        }
    }
    let used = Usage::of(pids);
    drop(running);
    if contender.nominates {
        let written = "migpool_scheduler_writes_total{object=\"nomination\",outcome=\"ok\"}";
        let metrics = get("/metrics");
        let count = metrics.lines().find_map(|line| line.strip_prefix(written));
        eprintln!("  nominations written: {}", count.unwrap_or(" 0").trim());
    }
    let (first, before) = first.unwrap_or((last, used));
    let seconds = last.duration_since(first).as_secs_f64().max(1e-3);
    api.delete_collection(
        &DeleteParams::default().grace_period(0),
        &ListParams::default().labels(&label),
    )
    .await?;
    Ok(Outcome {
        rate: f64::from(count - 1) / seconds,
        cpu: used.since(&before, count - 1),
    })
}

/// Sets the mode of the default pool.
async fn set_mode(world: &World, mode: &str) -> Result<()> {
    let api: Api<GpuPool> = Api::all(world.client.clone());
    let name = shared::names::DEFAULT_POOL;
    let pool = json!({"apiVersion": "migpool.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": name},
        "spec": {"mode": mode}});
    let params = PatchParams::apply("migpool-bench").force();
    api.patch(name, &params, &Patch::Apply(pool)).await?;
    Ok(())
}

/// The scheduler's config file, in JSON, which is YAML too.
fn config(access: &Path, contender: &Contender<'_>) -> Result<PathBuf> {
    let scheduler = contender.name;
    let extenders: Vec<Value> = contender
        .program
        .map(|_| {
            json!({
                "urlPrefix": format!("http://{EXTENDER}"), "filterVerb": "filter", "prioritizeVerb": "prioritize",
                "bindVerb": "bind", "weight": 20, "httpTimeout": "5s", "nodeCacheCapable": true,
            })
        })
        .into_iter()
        .collect();
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": access, "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": false},
        "percentageOfNodesToScore": contender.percentage,
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

//! A node in a temporary folder: fake GPUs, a kubelet, an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nvidia_ml::control::{Setup, World};
use shared::mig::{Board, Layout, Place, Slice, Use};
use shared::names::{self, DeviceId};

use crate::api_server::ApiServer;
use crate::kubelet::Kubelet;

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) kubelet: Kubelet,
    pub(crate) world: Option<World>,
    api: Option<ApiServer>,
    pub(crate) agent: Option<Agent>,
    /// More flags and environment of every agent started here.
    pub(crate) flags: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) log: PathBuf,
}

impl Node {
    /// A node with GPUs in MIG mode and a kubelet, and no agent yet.
    pub(crate) async fn new(board: &str, gpus: u32) -> Self {
        Self::set_up(&Setup::new(board, gpus, 7)).await
    }

    pub(crate) async fn set_up(setup: &Setup) -> Self {
        let mut node = Self::without_driver().await;
        node.install_driver(setup);
        node
    }

    pub(crate) async fn without_driver() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubelet = Kubelet::start(&folder.path().join("k"), &folder.path().join("pr.sock")).await;
        Self {
            folder,
            kubelet,
            world: None,
            api: None,
            agent: None,
            flags: Vec::new(),
            environment: BTreeMap::new(),
        }
    }

    /// The library appears where the agent looks for it, with its GPUs behind it.
    pub(crate) fn install_driver(&mut self, setup: &Setup) {
        let root = self.root();
        let library = root.join("usr/lib64");
        std::fs::create_dir_all(&library).unwrap();
        let world = World::set_up(&library.join("state.json"), setup).unwrap();
        world.device_nodes(&root).unwrap();
        world.library().unwrap();
        self.world = Some(world);
    }

    /// The node in a cluster.
    pub(crate) async fn with_api(mut self) -> Self {
        let kubeconfig = self.folder.path().join("kubeconfig");
        self.api = Some(ApiServer::start(&kubeconfig).await);
        self.environment
            .insert("KUBECONFIG".to_owned(), kubeconfig.display().to_string());
        self
    }

    pub(crate) fn api(&self) -> &ApiServer {
        self.api.as_ref().unwrap()
    }

    /// A pod comes by way of the API server, its place written on it, and is admitted there.
    pub(crate) async fn admit(&self, pod: &str, resource: &str, count: usize) -> Vec<String> {
        let ids = self.kubelet.prefer(resource, count, &[]).await;
        self.api().pod(pod, &format!("main={}", ids.join(",")));
        let admitted = self.kubelet.admit(pod, resource, count).await.unwrap();
        assert_eq!(admitted.iter().collect::<BTreeSet<_>>(), ids.iter().collect());
        ids
    }

    /// A pod is deleted.
    pub(crate) async fn remove(&self, pod: &str) {
        self.kubelet.remove(pod);
        self.api().remove("pods", pod);
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("driver")
    }

    pub(crate) fn cdi(&self) -> PathBuf {
        self.folder.path().join("cdi")
    }

    /// Starts an agent and waits until the kubelet knows every resource.
    pub(crate) async fn start(&mut self) {
        self.spawn();
        let boards = self
            .world
            .as_ref()
            .map(|world| world.state().unwrap().board.clone());
        let profiles = boards.map_or(1, |board| Board::named(&board).unwrap().profiles.len());
        self.until("every resource is registered", |node| {
            node.kubelet.allocatable().len() >= profiles
        })
        .await;
    }

    /// Starts an agent.
    pub(crate) fn spawn(&mut self) {
        let folder = self.folder.path();
        let log = folder.join(format!(
            "agent-{}.log",
            std::fs::read_dir(folder).unwrap().count()
        ));
        let out = std::fs::File::create(&log).unwrap();
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_migpool-device-plugin"));
        command
            .args([
                flag("driver-root", &self.root()),
                flag("dev-root", &self.root()),
                flag("proc-root", &self.root().join("proc")),
                flag("kubelet-dir", &folder.join("k")),
                flag("pod-resources-socket", &folder.join("pr.sock")),
                flag("cdi-dir", &self.cdi()),
                flag("state-dir", &folder.join("state")),
                "--node-name=node-a".to_owned(),
                "--admin-address=127.0.0.1:0".to_owned(),
            ])
            .args(&self.flags)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("POD_IP")
            .env("RUST_LOG", "info,device_plugin=debug")
            .envs(&self.environment)
            .stdout(Stdio::null())
            .stderr(out);
        self.agent = Some(Agent {
            child: command.spawn().unwrap(),
            log,
        });
    }

    /// Ends the agent without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.child.kill().unwrap();
            agent.child.wait().unwrap();
        }
    }

    /// Waits until something holds, and shows the agent's log where it never does.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < PATIENCE, "never: {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the kubelet counts what brute force counts for these held devices.
    pub(crate) async fn counts(&self, held: &[String]) {
        let began = Instant::now();
        loop {
            let (found, expected) = (self.kubelet.allocatable(), self.expected(held));
            if found == expected {
                return;
            }
            if began.elapsed() > PATIENCE {
                assert_eq!(found, expected, "held: {held:#?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        self.agent
            .as_ref()
            .map(|agent| std::fs::read_to_string(&agent.log).unwrap_or_default())
            .unwrap_or_default()
    }

    /// A page of the agent's admin server.
    pub(crate) fn page(&self, path: &str) -> Option<String> {
        use std::io::{Read as _, Write as _};
        let log = self.log();
        let line = log.lines().find(|line| line.contains("admin endpoints"))?;
        let address = line.split("127.0.0.1:").nth(1)?;
        let port: u16 = address
            .chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()?;
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// UUID of a GPU.
    pub(crate) fn gpu(&self, index: usize) -> String {
        self.world().state().unwrap().gpus[index].uuid.clone()
    }

    /// Device id of a place.
    pub(crate) fn id(&self, gpu: usize, place: &str) -> String {
        format!("{}:{place}", self.gpu(gpu))
    }

    /// Places of the GPU instances that NVML has on a GPU.
    pub(crate) fn instances(&self, gpu: usize) -> Vec<String> {
        let state = self.world().state().unwrap();
        let board = Board::named(&state.board).unwrap();
        let place = |instance: &nvidia_ml::state::GpuInstance| {
            let row = board
                .profiles
                .iter()
                .find(|row| row.id == instance.profile)
                .unwrap();
            Place::new(row.profile, u8::try_from(instance.start).unwrap()).to_string()
        };
        let mut places: Vec<String> = state.gpus[gpu].instances.iter().map(place).collect();
        places.sort();
        places
    }

    /// What every resource should count by brute force: what pods hold, and what could be cut beside that.
    pub(crate) fn expected(&self, held: &[String]) -> BTreeMap<String, usize> {
        let state = self.world().state().unwrap();
        let board = Board::named(&state.board).unwrap();
        let mut counts = BTreeMap::new();
        for gpu in &state.gpus {
            let ids = held.iter().filter_map(|id| id.parse::<DeviceId>().ok());
            let mut layout = Layout::default();
            for id in ids.filter(|id| id.gpu == gpu.uuid) {
                layout
                    .add(
                        board,
                        Slice {
                            place: id.place,
                            used: Use::Allocated,
                        },
                    )
                    .unwrap();
            }
            for row in &board.profiles {
                let own = layout
                    .slices()
                    .iter()
                    .filter(|slice| slice.place.profile == row.profile)
                    .count();
                *counts.entry(names::resource(row.profile)).or_default() +=
                    own + most(board, &layout, row.profile);
            }
        }
        counts
    }
}

/// The most slices of a profile that still fit, tried in every order.
fn most(board: &Board, layout: &Layout, profile: shared::mig::Profile) -> usize {
    let starts = &board.row(profile).unwrap().starts;
    let tried = starts.iter().filter_map(|start| {
        let mut next = layout.clone();
        next.add(
            board,
            Slice {
                place: Place::new(profile, *start),
                used: Use::Allocated,
            },
        )
        .ok()?;
        // a higher start next: sets, not orders
        Some(1 + most_above(board, &next, profile, *start))
    });
    tried.max().unwrap_or(0)
}

fn most_above(board: &Board, layout: &Layout, profile: shared::mig::Profile, above: u8) -> usize {
    let starts = board
        .row(profile)
        .unwrap()
        .starts
        .iter()
        .filter(|start| **start > above);
    let tried = starts.filter_map(|start| {
        let mut next = layout.clone();
        next.add(
            board,
            Slice {
                place: Place::new(profile, *start),
                used: Use::Allocated,
            },
        )
        .ok()?;
        Some(1 + most_above(board, &next, profile, *start))
    });
    tried.max().unwrap_or(0)
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent's log:\n{}", self.log());
        }
        self.kill();
    }
}

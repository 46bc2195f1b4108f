//! One node: a kubelet and a containerd of its own, with GPUs; started, entered, rebooted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::api::Api;
use crate::binaries::Binaries;
use crate::command::{run, wait_until};
use crate::images::{self, Archive};
use crate::namespaces::{Mounts, Space, connect_node};
use crate::plan::{API_PORT, CONTROL, CONTROL_ADDRESS, NodePlan, Plan, SERVICE_ADDRESS};
use crate::process::Processes;
use crate::{cgroups, containerd, gpus, kubelet, teardown};

const READY_LIMIT: Duration = Duration::from_secs(90);
const STOP_GRACE: Duration = Duration::from_secs(10);

/// What the kubelet wants of the kernel, for the whole machine. It gets files that already hold it, and so writes
/// nothing.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Folders of the node and where its programs see them.
const FOLDERS: [(&str, &str); 4] = [
    ("kubelet", "/var/lib/kubelet"),
    ("cni-state", "/var/lib/cni"),
    ("log", "/var/log"),
    // the agent's journal: each node has its own, and it survives a reboot
    ("agent", "/var/lib/migpool"),
];

/// One node of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    plan: &'a Plan,
    node: &'a NodePlan,
    binaries: &'a Binaries,
}

impl<'a> Node<'a> {
    /// The node of this plan.
    pub fn new(plan: &'a Plan, node: &'a NodePlan, binaries: &'a Binaries) -> Self {
        Self { plan, node, binaries }
    }

    /// Its Kubernetes name.
    pub fn name(&self) -> &'a str {
        &self.node.name
    }

    /// Its addresses and paths.
    pub fn on_paper(&self) -> &'a NodePlan {
        self.node
    }

    /// Everything up to containerd with the images; the kubelet needs the API server and comes later.
    pub fn boot(&self, control: &Space, archives: &[Archive]) -> Result<()> {
        cgroups::make(&self.node.cgroup)?;
        let space = Space::create(self.plan, &self.node.name, &self.binaries.path(), &self.mounts()?)?;
        connect_node(control, &space, self.node)?;
        reach_api(&space)?;
        containerd::start(self.plan, self.node, &space, self.binaries)?;
        self.load(archives).map(drop)
    }

    /// Starts the kubelet.
    pub fn start_kubelet(&self) -> Result<()> {
        kubelet::start(self.plan, self.node, &self.space()?, self.binaries)
    }

    /// Waits until the API server shows this boot of the node as Ready.
    pub fn await_ready(&self) -> Result<()> {
        let api = Api::admin(self.plan)?;
        let boot = fs::read_to_string(self.boot_file()).unwrap_or_default();
        Processes::under(&self.plan.root).await_ready(&self.node.process("kubelet"), READY_LIMIT, || {
            api.nodes().is_ok_and(|nodes| {
                nodes
                    .iter()
                    .any(|seen| seen.name == self.node.name && seen.ready && seen.boot == boot.trim())
            })
        })
    }

    /// Imports those archives that this node does not have yet; returns their names.
    pub fn load(&self, archives: &[Archive]) -> Result<Vec<String>> {
        let space = self.space()?;
        fs::create_dir_all(self.node.dir.join("images"))?;
        let mut loaded = Vec::new();
        for archive in archives {
            let mark = images::mark(self.node, &archive.reference);
            if fs::read_to_string(&mark).is_ok_and(|have| have == archive.fingerprint) {
                continue;
            }
            containerd::import(&space, self.binaries, self.node, &archive.file)?;
            fs::write(&mark, &archive.fingerprint)?;
            loaded.push(archive.reference.clone());
        }
        Ok(loaded)
    }

    /// Stops the kubelet (containers go on), starts it again and waits until it listens.
    pub fn restart_kubelet(&self) -> Result<()> {
        kubelet::stop(self.plan, self.node)?;
        self.start_kubelet()?;
        kubelet::await_listening(self.plan, self.node)
    }

    /// Stops the kubelet and leaves it stopped.
    pub fn stop_kubelet(&self) -> Result<()> {
        kubelet::stop(self.plan, self.node)
    }

    /// Restarts containerd; its shims keep the containers.
    pub fn restart_containerd(&self) -> Result<()> {
        Processes::under(&self.plan.root).stop(&self.node.process("containerd"), STOP_GRACE)?;
        containerd::start(self.plan, self.node, &self.space()?, self.binaries)
    }

    /// Pulls the plug: kubelet, containerd, every container, `/run` and the network are gone at once. What is on
    /// disk stays: images, containers' metadata, the kubelet's checkpoints.
    pub fn power_off(&self) -> Result<()> {
        teardown::end_space(&self.plan.root, &self.node.name, Some(&self.node.cgroup))?;
        cgroups::remove(&self.node.cgroup, false, Duration::from_secs(20))?;
        // Sockets of plugins are leftovers now; the kubelet's checkpoint beside them is not.
        let plugins = self.node.dir.join("kubelet/device-plugins");
        for entry in fs::read_dir(&plugins).into_iter().flatten().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "sock")
            {
                fs::remove_file(entry.path())?;
            }
        }
        gpus::reboot(self.node, &self.plan.options)
    }

    /// Powers off (if it is on) and starts again, as a machine that rebooted; returns when it is Ready.
    pub fn reboot(&self) -> Result<()> {
        self.power_off()?;
        let control = Space::attach(&self.plan.root, CONTROL, &self.binaries.path())?;
        self.boot(&control, &[])?;
        self.start_kubelet()?;
        self.await_ready()
    }

    /// A command that will run on the node, with a clean environment.
    pub fn command(&self, program: &str) -> Result<Command> {
        Ok(self.space()?.command(program))
    }

    /// Runs a command on the node to its end.
    pub fn exec(&self, argv: &[&str]) -> Result<Output> {
        let Some((program, arguments)) = argv.split_first() else {
            bail!("exec: give a command")
        };
        let mut command = self.command(program)?;
        command
            .args(arguments)
            .output()
            .with_context(|| format!("run {program} on {}", self.node.name))
    }

    /// A path of the node as the machine sees it; good for files and sockets while this boot lasts.
    pub fn path(&self, inside: impl AsRef<Path>) -> Result<PathBuf> {
        Ok(self.space()?.inside(inside))
    }

    /// Runs the fake GPUs' control command for this node, e.g. `["show"]`.
    pub fn fake_nvml(&self, arguments: &[&str]) -> Result<String> {
        if !gpus::present(self.node) {
            bail!(
                "{} has no GPUs: it was made with --gpus-per-node 0",
                self.node.name
            );
        }
        gpus::control(self.node, arguments)
    }

    /// Makes the GPUs; once, before the first boot.
    pub fn make_gpus(&self) -> Result<()> {
        gpus::make(self.node, &self.plan.options)
    }

    fn space(&self) -> Result<Space> {
        Space::attach(&self.plan.root, &self.node.name, &self.binaries.path())
    }

    fn boot_file(&self) -> PathBuf {
        self.node.dir.join("boot_id")
    }

    fn mounts(&self) -> Result<Mounts> {
        let mut mounts = Mounts::private_run();
        for (folder, target) in FOLDERS {
            let folder = self.node.dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
            mounts.bind(&folder, target);
        }
        if gpus::present(self.node) {
            mounts.bind(&gpus::driver(self.node), gpus::DRIVER_ROOT);
            mounts.bind(&gpus::state_folder(self.node), gpus::STATE_FOLDER);
        }
        let values = self.node.dir.join("sysctl");
        fs::create_dir_all(&values)?;
        for (name, value) in SYSCTLS {
            let target = format!("/proc/sys/{name}");
            if Path::new(&target).exists() {
                let file = values.join(name.replace('/', "."));
                fs::write(&file, format!("{value}\n"))?;
                mounts.bind(&file, &target);
            }
        }
        // A boot of its own, so that the kubelet and the API server notice a reboot.
        let boot = fs::read_to_string("/proc/sys/kernel/random/uuid").context("draw a boot id")?;
        fs::write(self.boot_file(), boot)?;
        mounts.bind(&self.boot_file(), "/proc/sys/kernel/random/boot_id");
        if gpus::present(self.node) {
            // containers have a /proc of their own; the agent reads the node's boot where it reads the driver's files
            let random = gpus::driver(self.node).join("proc/sys/kernel/random");
            fs::create_dir_all(&random)?;
            fs::copy(self.boot_file(), random.join("boot_id"))?;
        }
        Ok(mounts)
    }
}

/// Stands in for kube-proxy: programs of the node and of its pods reach the API server at its ClusterIP.
fn reach_api(space: &Space) -> Result<()> {
    for chain in ["OUTPUT", "PREROUTING"] {
        run(space
            .command("iptables")
            .args(["-w", "-t", "nat", "-A", chain])
            .args([
                "-d",
                &format!("{SERVICE_ADDRESS}/32"),
                "-p",
                "tcp",
                "--dport",
                "443",
                "-j",
                "DNAT",
                "--to-destination",
                &format!("{CONTROL_ADDRESS}:{API_PORT}"),
            ]))
        .with_context(|| format!("redirect the API server's ClusterIP on {}", space.name))?;
    }
    Ok(())
}

/// Waits until every one of these nodes is Ready.
pub fn await_all(nodes: &[Node<'_>]) -> Result<()> {
    nodes.iter().try_for_each(Node::await_ready)
}

/// Waits until the API server has made what pods need in the namespace `default`.
pub fn await_service_account(plan: &Plan) -> Result<()> {
    let api = Api::admin(plan)?;
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    if !wait_until(READY_LIMIT, || api.get(path).is_ok()) {
        bail!("no service account in namespace default; see logs kube-controller-manager");
    }
    Ok(())
}

//! The private mount and network namespaces, one pair for the control plane and one for each node.
//!
//! A namespace lives as long as its holder, a sleeping process. Everything enters it with `nsenter -m -n`, never
//! `ip netns exec`, which remounts `/sys` and so loses the cgroups. Each process inside carries [`MARKER`] in its
//! environment, so that it can be found even when all records are lost.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::command::{feed, run, wait_until};
use crate::plan::{CONTROL, CONTROL_ADDRESS, MACHINE_ADDRESS, MACHINE_LINK, NodePlan, Plan, UPLINK};
use crate::process::{Identity, Processes, all_pids};
use crate::programs;

/// Environment variable of everything inside: `<root>:<space>`.
pub const MARKER: &str = "MIGPOOL_CLUSTER_SPACE";

/// One pair of namespaces.
#[derive(Clone, Debug)]
pub struct Space {
    /// `control` or the node's name.
    pub name: String,
    /// The process that keeps it alive.
    pub holder: Identity,
    marker: String,
    path: String,
}

/// A process that belongs to some cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its pid.
    pub pid: i32,
    /// The folder of its cluster.
    pub root: PathBuf,
    /// The space that it runs in.
    pub space: String,
}

impl Space {
    /// Makes the namespaces and mounts what the table says (fstab form, see [`Mounts`]).
    pub fn create(plan: &Plan, name: &str, path: &str, mounts: &Mounts) -> Result<Self> {
        let processes = Processes::under(&plan.root);
        let marker = format!("{}:{name}", plan.root.display());
        let mut command = Command::new(programs::need("setsid")?);
        command
            .env_clear()
            .env("PATH", path)
            .env(MARKER, &marker)
            .arg(programs::need("unshare")?)
            .args([
                "--mount",
                "--net",
                "--propagation",
                "private",
                "--",
                "sleep",
                "infinity",
            ]);
        let holder = processes.start(name, &mut command)?;
        let comm = format!("/proc/{}/comm", holder.pid);
        // setsid and unshare become the sleeper by exec; only then are the namespaces there.
        processes.await_ready(name, Duration::from_secs(10), || {
            fs::read_to_string(&comm).is_ok_and(|comm| comm.trim() == "sleep")
        })?;
        let space = Self {
            name: name.to_owned(),
            holder,
            marker,
            path: path.to_owned(),
        };
        let table = plan.root.join(format!("{name}.fstab"));
        fs::write(&table, mounts.table())?;
        run(space
            .command("mount")
            .args(["--no-mtab", "--all", "--fstab"])
            .arg(&table))
        .context("mount")?;
        // Pods mount host folders with propagation, so everything has to be shared inside.
        run(space.command("mount").args(["--no-mtab", "--make-rshared", "/"]))?;
        space.ip("link set lo up\n")?;
        space.forward_packets()?;
        Ok(space)
    }

    /// The running space of this name.
    pub fn attach(root: &Path, name: &str, path: &str) -> Result<Self> {
        let holder = Processes::under(root)
            .running(name)
            .with_context(|| format!("{name} is not up: migpool-cluster status shows what is"))?;
        Ok(Self {
            name: name.to_owned(),
            holder,
            marker: format!("{}:{name}", root.display()),
            path: path.to_owned(),
        })
    }

    /// A command that will run inside, with a clean environment. The working folder becomes `/`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(programs::find("nsenter").unwrap_or_else(|| "nsenter".into()));
        self.enter(&mut command);
        command.arg(program);
        command
    }

    /// As [`Space::command`], in a session of its own, so that no terminal's signal reaches it.
    pub fn daemon(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(programs::find("setsid").unwrap_or_else(|| "setsid".into()));
        command.arg("nsenter");
        self.enter(&mut command);
        command.arg(program);
        command
    }

    /// A path inside as seen from the machine; also good for sockets.
    pub fn inside(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        PathBuf::from(format!("/proc/{}/root", self.holder.pid)).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Runs one `ip` batch inside.
    pub fn ip(&self, batch: &str) -> Result<()> {
        feed(self.command("ip").args(["-batch", "-"]), batch)
            .map(drop)
            .with_context(|| format!("set up links of {}", self.name))
    }

    fn enter(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", "/root")
            .env(MARKER, &self.marker)
            .args(["-t", &self.holder.pid.to_string(), "-m", "-n", "--"]);
    }

    /// The switch belongs to the network namespace, so the machine's own stays as it is.
    fn forward_packets(&self) -> Result<()> {
        feed(self.command("tee").arg("/proc/sys/net/ipv4/ip_forward"), "1\n").map(drop)
    }
}

/// What is mounted in a space before anything runs there.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    lines: Vec<String>,
}

impl Mounts {
    /// With a fresh `/run`: sockets, locks and network namespaces of the machine are not seen, and none is left behind.
    pub fn private_run() -> Self {
        let run = "migpool-run /run tmpfs mode=755,size=4g".to_owned();
        Self {
            lines: vec![
                run,
                "migpool-lock /run/lock tmpfs mode=1777,size=5m,X-mount.mkdir".to_owned(),
            ],
        }
    }

    /// Shows a folder or file of the cluster at another place inside.
    pub fn bind(&mut self, source: &Path, target: &str) -> &mut Self {
        let make = if source.is_dir() { ",X-mount.mkdir" } else { "" };
        self.lines.push(format!(
            "{} {} none bind{make}",
            escaped(source),
            escaped(Path::new(target))
        ));
        self
    }

    /// In fstab form.
    pub fn table(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Joins the control namespace to the machine, with the routes to nodes and pods.
pub fn connect_machine(control: &Space, plan: &Plan) -> Result<()> {
    let pid = control.holder.pid;
    let mut batch = format!(
        "link add {MACHINE_LINK} type veth peer name {UPLINK} netns {pid}\n\
         addr add {MACHINE_ADDRESS}/24 dev {MACHINE_LINK}\n\
         link set {MACHINE_LINK} up\n"
    );
    for node in &plan.nodes {
        batch += &format!(
            "route add 10.99.{}.0/24 via {CONTROL_ADDRESS} dev {MACHINE_LINK}\n",
            node.index
        );
        batch += &format!(
            "route add {} via {CONTROL_ADDRESS} dev {MACHINE_LINK}\n",
            node.pods
        );
    }
    feed(Command::new(programs::need("ip")?).args(["-batch", "-"]), &batch)
        .context("join the machine's network")?;
    control.ip(&format!(
        "addr add {CONTROL_ADDRESS}/24 dev {UPLINK}\n\
         link set {UPLINK} up\n\
         route add default via {MACHINE_ADDRESS} dev {UPLINK}\n"
    ))
}

/// Joins a node to the control namespace, which routes between nodes, pods and the machine.
pub fn connect_node(control: &Space, space: &Space, node: &NodePlan) -> Result<()> {
    let NodePlan {
        name,
        address,
        gateway,
        pods,
        ..
    } = node;
    let pid = space.holder.pid;
    // After a reboot the kernel may not have collected the old pair yet.
    let _ = control.ip(&format!("link del {name}\n"));
    control.ip(&format!(
        "link add {name} type veth peer name {UPLINK} netns {pid}\n\
         addr add {gateway}/24 dev {name}\n\
         link set {name} up\n\
         route add {pods} via {address} dev {name}\n"
    ))?;
    space.ip(&format!(
        "addr add {address}/24 dev {UPLINK}\n\
         link set {UPLINK} up\n\
         route add default via {gateway} dev {UPLINK}\n"
    ))
}

/// Takes the veth end out of the machine's network, if it is there.
pub fn disconnect_machine() -> Result<()> {
    let there = || Path::new("/sys/class/net").join(MACHINE_LINK).exists();
    if there() {
        let ended = run(Command::new(programs::need("ip")?).args(["link", "del", MACHINE_LINK]));
        // It also vanishes by itself when the other end's namespace is collected.
        if !wait_until(Duration::from_secs(5), || !there()) {
            ended?;
            bail!("link {MACHINE_LINK} does not go away");
        }
    }
    Ok(())
}

/// Every process that carries the marker of any cluster.
pub fn marked() -> Vec<Marked> {
    let prefix = format!("{MARKER}=");
    all_pids()
        .into_iter()
        .filter_map(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let value = environment
                .split(|byte| *byte == 0)
                .find_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix(&prefix))?;
            let (root, space) = value.rsplit_once(':')?;
            Some(Marked {
                pid,
                root: PathBuf::from(root),
                space: space.to_owned(),
            })
        })
        .collect()
}

/// The name of a process's mount namespace.
pub fn mount_namespace(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// Whether this is the name of a space's holder.
pub fn is_space(process: &str) -> bool {
    process == CONTROL || !process.contains('.') && process.starts_with("gpu-")
}

/// fstab separates fields by blanks; a blank inside a path is written in octal.
fn escaped(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_escapes_blanks_and_makes_folders_only() {
        let folder = tempfile::tempdir().unwrap();
        let spaced = folder.path().join("a b");
        fs::create_dir(&spaced).unwrap();
        let file = folder.path().join("value");
        fs::write(&file, "1").unwrap();
        let mut mounts = Mounts::default();
        mounts
            .bind(&spaced, "/var/lib/kubelet")
            .bind(&file, "/proc/sys/kernel/panic");
        let table = mounts.table();
        assert!(
            table.contains("/a\\040b /var/lib/kubelet none bind,X-mount.mkdir\n"),
            "{table}"
        );
        assert!(
            table.ends_with("/value /proc/sys/kernel/panic none bind\n"),
            "{table}"
        );
    }

    #[test]
    fn a_marked_process_is_found() {
        let mut child = Command::new("sleep")
            .arg("600")
            .env(MARKER, "/lab/a:b:gpu-1")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let wanted = Marked {
            pid,
            root: PathBuf::from("/lab/a:b"),
            space: "gpu-1".to_owned(),
        };
        let found = wait_until(Duration::from_secs(5), || marked().contains(&wanted));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
    }

    #[test]
    fn holders_are_told_from_components() {
        assert!(is_space("control") && is_space("gpu-12"));
        assert!(!is_space("gpu-1.kubelet") && !is_space("etcd"));
    }
}

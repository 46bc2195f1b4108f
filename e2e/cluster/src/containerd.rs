//! containerd on one node: its configuration, its CNI network, its start and the import of images.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::binaries::Binaries;
use crate::command::run;
use crate::namespaces::Space;
use crate::plan::{NodePlan, PAUSE_IMAGE, Plan};
use crate::process::Processes;
use crate::programs;

/// containerd's socket inside the node; each node has a `/run` of its own.
pub const SOCKET: &str = "/run/containerd/containerd.sock";

const READY_LIMIT: Duration = Duration::from_secs(60);
/// `statfs` type of overlayfs, which cannot hold overlayfs snapshots itself.
const OVERLAYFS_MAGIC: rustix::fs::FsWord = 0x794c_7630;

/// Writes the configuration, starts it and waits until its socket answers.
pub fn start(plan: &Plan, node: &NodePlan, space: &Space, binaries: &Binaries) -> Result<()> {
    fs::create_dir_all(node.dir.join("cni"))?;
    fs::write(node.dir.join("cni/10-migpool.conflist"), network(node)?)?;
    let config = node.dir.join("containerd.toml");
    let plugins = programs::cni_folder()?;
    fs::write(&config, configuration(node, &plugins, snapshotter(&node.dir)))
        .with_context(|| format!("write {}", config.display()))?;
    let processes = Processes::under(&plan.root);
    let mut command = space.daemon(binaries.containerd.join("containerd"));
    command.arg("--config").arg(&config);
    let name = node.process("containerd");
    processes.start(&name, &mut command)?;
    let socket = space.inside(SOCKET);
    processes.await_ready(&name, READY_LIMIT, || UnixStream::connect(&socket).is_ok())
}

/// Brings one OCI archive into the namespace that the kubelet looks at.
pub fn import(space: &Space, binaries: &Binaries, node: &NodePlan, archive: &Path) -> Result<()> {
    run(space
        .command(binaries.containerd.join("ctr"))
        .args([
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--snapshotter",
            snapshotter(&node.dir),
        ])
        .arg(archive))
    .map(drop)
    .with_context(|| format!("import {} on {}", archive.display(), node.name))
}

fn snapshotter(folder: &Path) -> &'static str {
    match rustix::fs::statfs(folder) {
        Ok(found) if found.f_type == OVERLAYFS_MAGIC => "native",
        _ => "overlayfs",
    }
}

fn configuration(node: &NodePlan, cni_plugins: &Path, snapshotter: &str) -> String {
    let path = |name: &str| quoted(&node.dir.join(name));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "version = 3\n\
         root = {root}\n\
         state = \"/run/containerd\"\n\
         imports = []\n\
         \n\
         [grpc]\n\
         address = \"{SOCKET}\"\n\
         \n\
         [plugins.'io.containerd.internal.v1.opt']\n\
         path = {opt}\n\
         \n\
         [plugins.'io.containerd.nri.v1.nri']\n\
         disable = true\n\
         \n\
         [plugins.'io.containerd.cri.v1.images']\n\
         snapshotter = \"{snapshotter}\"\n\
         [plugins.'io.containerd.cri.v1.images'.pinned_images]\n\
         sandbox = \"{PAUSE_IMAGE}\"\n\
         \n\
         [plugins.'io.containerd.cri.v1.runtime']\n\
         disable_apparmor = true\n\
         # Without CAP_SYS_RESOURCE every sandbox would fail to lower its score.\n\
         restrict_oom_score_adj = true\n\
         cdi_spec_dirs = [\"/etc/cdi\", \"/var/run/cdi\"]\n\
         [plugins.'io.containerd.cri.v1.runtime'.cni]\n\
         bin_dirs = [{plugins}]\n\
         conf_dir = {cni}\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd]\n\
         default_runtime_name = \"runc\"\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n\
         SystemdCgroup = false\n\
         \n\
         [plugins.'io.containerd.grpc.v1.cri']\n\
         stream_server_port = \"0\"\n",
        root = path("containerd"),
        opt = path("opt"),
        cni = path("cni"),
        plugins = quoted(cni_plugins),
    );
    text
}

/// A bridge per node. Leases live in `/run`, so a rebooted node starts with none.
fn network(node: &NodePlan) -> Result<Vec<u8>> {
    let document = json!({
        "cniVersion": "1.0.0",
        "name": "migpool",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni-leases",
                "ranges": [[{"subnet": node.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    Ok(serde_json::to_vec_pretty(&document)?)
}

/// A TOML basic string; Rust's escapes are a subset of TOML's for what a path holds.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Options;

    fn node() -> NodePlan {
        Plan::new(Path::new("/lab"), &Options::default())
            .unwrap()
            .nodes
            .remove(1)
    }

    #[test]
    fn the_traps_are_in_the_configuration() {
        let text = configuration(&node(), Path::new("/usr/lib/cni"), "overlayfs");
        for line in [
            "root = \"/lab/gpu-2/containerd\"",
            "restrict_oom_score_adj = true",
            "sandbox = \"registry.local/pause:1\"",
            "bin_dirs = [\"/usr/lib/cni\"]",
            "conf_dir = \"/lab/gpu-2/cni\"",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no line {line} in\n{text}"
            );
        }
    }

    #[test]
    fn each_node_hands_out_its_own_addresses() {
        let document: serde_json::Value = serde_json::from_slice(&network(&node()).unwrap()).unwrap();
        assert_eq!(
            document["plugins"][0]["ipam"]["ranges"][0][0]["subnet"],
            "10.244.2.0/24"
        );
    }
}

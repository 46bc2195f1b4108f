//! Names, addresses and paths: everything that can be known before the first process starts.
//!
//! Pure: two calls with the same options give the same plan, so a running cluster can be found again.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// Variable that moves the cluster's folder away from [`DEFAULT_ROOT`].
pub const ROOT_VARIABLE: &str = "MIGPOOL_CLUSTER_ROOT";
/// Where the cluster keeps its files.
pub const DEFAULT_ROOT: &str = "/var/lib/migpool-cluster";
/// The veth end in the machine's own network namespace.
pub const MACHINE_LINK: &str = "migpool0";
/// The veth end inside each namespace that leads towards the machine.
pub const UPLINK: &str = "uplink";
/// The machine's address on [`MACHINE_LINK`].
pub const MACHINE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
/// Where the API server listens.
pub const CONTROL_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The API server's port.
pub const API_PORT: u16 = 6443;
/// ClusterIP of the Service `kubernetes`: the first address of [`SERVICE_RANGE`].
pub const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The range of ClusterIPs.
pub const SERVICE_RANGE: &str = "10.96.0.0/24";
/// Name of the namespace that holds the control plane.
pub const CONTROL: &str = "control";
/// Address of the pause image, used by each containerd.
pub const PAUSE_IMAGE: &str = "registry.local/pause:1";
/// Prefix of the cgroups that belong to us, one per node.
pub const CGROUP_PREFIX: &str = "migpool-";

const MAX_NODES: u8 = 16;
const MAX_GPUS: u8 = 16;

/// What the user asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Number of real kubelets.
    pub nodes: u8,
    /// Fake GPUs on each node; 0 makes nodes without a driver.
    pub gpus_per_node: u8,
    /// Board name as the fake NVML knows it.
    pub board: String,
    /// Seed of the GPUs' uuids; node i uses `seed + i`.
    pub seed: u64,
    /// Whether `manifests/chart` is installed.
    pub chart: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 2,
            gpus_per_node: 4,
            board: "H100-80GB".to_owned(),
            seed: 1,
            chart: true,
        }
    }
}

impl Options {
    /// Refuses what no plan can be made for.
    pub fn check(&self) -> Result<()> {
        if self.nodes == 0 || self.nodes > MAX_NODES {
            bail!("--nodes is {}: give a number from 1 to {MAX_NODES}", self.nodes);
        }
        if self.gpus_per_node > MAX_GPUS {
            bail!(
                "--gpus-per-node is {}: give a number from 0 to {MAX_GPUS}",
                self.gpus_per_node
            );
        }
        Ok(())
    }

    /// Whether a cluster made for `other` serves this request too (the chart can be added later).
    pub fn same_machines(&self, other: &Self) -> bool {
        Self {
            chart: other.chart,
            ..self.clone()
        } == *other
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes x {} {} (seed {})",
            self.nodes, self.gpus_per_node, self.board, self.seed
        )
    }
}

/// The whole cluster on paper.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster's folder.
    pub root: PathBuf,
    /// What was asked for.
    pub options: Options,
    /// The nodes, in order.
    pub nodes: Vec<NodePlan>,
}

/// One node on paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Counts from 1; the third byte of its addresses.
    pub index: u8,
    /// `gpu-1`, `gpu-2`, …: Kubernetes node name, folder name and link name.
    pub name: String,
    /// The node's folder.
    pub dir: PathBuf,
    /// The node's own address.
    pub address: Ipv4Addr,
    /// The other end of its uplink, in the control namespace.
    pub gateway: Ipv4Addr,
    /// The addresses of its pods.
    pub pods: String,
    /// Its cgroup in every hierarchy.
    pub cgroup: String,
}

impl Plan {
    /// The plan for these options under this folder.
    pub fn new(root: &Path, options: &Options) -> Result<Self> {
        options.check()?;
        check_root(root)?;
        let nodes = (1..=options.nodes)
            .map(|index| NodePlan::new(root, index))
            .collect();
        Ok(Self {
            root: root.to_owned(),
            options: options.clone(),
            nodes,
        })
    }

    /// Folder of the certificates.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// One certificate or key file.
    pub fn pki_file(&self, name: &str) -> PathBuf {
        self.root.join("pki").join(name)
    }

    /// The administrator's kubeconfig, usable from the machine itself.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The API server's URL.
    pub fn api_url(&self) -> String {
        format!("https://{CONTROL_ADDRESS}:{API_PORT}")
    }
}

impl NodePlan {
    fn new(root: &Path, index: u8) -> Self {
        let name = format!("gpu-{index}");
        Self {
            index,
            dir: root.join(&name),
            address: Ipv4Addr::new(10, 99, index, 2),
            gateway: Ipv4Addr::new(10, 99, index, 1),
            pods: format!("10.244.{index}.0/24"),
            cgroup: format!("{CGROUP_PREFIX}{name}"),
            name,
        }
    }

    /// Name under which one of the node's processes is recorded, e.g. `gpu-1.kubelet`.
    pub fn process(&self, component: &str) -> String {
        format!("{}.{component}", self.name)
    }
}

/// The cluster's folder: the variable if it is set, else the default.
pub fn root_from_environment() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from(DEFAULT_ROOT), PathBuf::from)
}

/// `/run` and `/var/log` are replaced inside the nodes, so a folder below them would not be seen there.
fn check_root(root: &Path) -> Result<()> {
    if !root.is_absolute() {
        bail!("{ROOT_VARIABLE} is {}: give an absolute path", root.display());
    }
    for hidden in [
        "/run",
        "/var/run",
        "/var/log",
        "/proc",
        "/sys",
        "/dev",
        "/var/lib/kubelet",
        "/var/lib/cni",
        "/var/lib/migpool",
    ] {
        if root.starts_with(hidden) || root == Path::new("/") {
            bail!(
                "{ROOT_VARIABLE} is {}: choose a folder outside {hidden}",
                root.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_index_and_never_meet() {
        let plan = Plan::new(
            Path::new("/lab"),
            &Options {
                nodes: 3,
                ..Options::default()
            },
        )
        .unwrap();
        let names: Vec<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["gpu-1", "gpu-2", "gpu-3"]);
        assert_eq!(plan.nodes[2].address, Ipv4Addr::new(10, 99, 3, 2));
        assert_eq!(plan.nodes[2].gateway, Ipv4Addr::new(10, 99, 3, 1));
        assert_eq!(plan.nodes[2].pods, "10.244.3.0/24");
        assert_eq!(plan.nodes[2].process("kubelet"), "gpu-3.kubelet");
        let mut all: Vec<_> = plan
            .nodes
            .iter()
            .flat_map(|node| [node.address, node.gateway])
            .collect();
        all.extend([CONTROL_ADDRESS, MACHINE_ADDRESS]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8, "two nodes share an address");
    }

    #[test]
    fn link_names_fit_the_kernel() {
        let plan = Plan::new(
            Path::new("/lab"),
            &Options {
                nodes: MAX_NODES,
                ..Options::default()
            },
        )
        .unwrap();
        // IFNAMSIZ is 16 with the closing zero.
        assert!(plan.nodes.iter().all(|node| node.name.len() < 16));
    }

    #[test]
    fn impossible_options_name_the_flag() {
        let error = Plan::new(
            Path::new("/lab"),
            &Options {
                nodes: 0,
                ..Options::default()
            },
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "--nodes is 0: give a number from 1 to 16");
        let error = Plan::new(
            Path::new("/lab"),
            &Options {
                gpus_per_node: 17,
                ..Options::default()
            },
        )
        .unwrap_err();
        assert!(error.to_string().starts_with("--gpus-per-node is 17"));
    }

    #[test]
    fn a_root_that_the_nodes_would_hide_is_refused() {
        for bad in ["relative", "/run/lab", "/var/log/lab", "/"] {
            assert!(
                Plan::new(Path::new(bad), &Options::default()).is_err(),
                "{bad} was taken"
            );
        }
    }

    #[test]
    fn the_chart_can_be_added_to_a_running_cluster() {
        let bare = Options {
            chart: false,
            ..Options::default()
        };
        assert!(Options::default().same_machines(&bare));
        assert!(
            !Options {
                nodes: 3,
                ..bare.clone()
            }
            .same_machines(&bare)
        );
    }
}

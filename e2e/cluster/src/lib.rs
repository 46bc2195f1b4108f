//! A real Kubernetes cluster on this machine, for tests and demos.
//!
//! Unmodified etcd, kube-apiserver, kube-controller-manager, kube-scheduler, containerd and kubelets run in
//! private mount and network namespaces; only the GPUs are faked, at `libnvidia-ml.so.1`. Nothing of the
//! machine is changed but one veth link (`migpool0`), which vanishes with the cluster.
//!
//! ```text
//!  machine ── migpool0 10.99.0.254 ── 10.99.0.1 ┌ control: etcd, kube-apiserver, controller-manager, scheduler
//!                                               ├── 10.99.1.1 ── 10.99.1.2 gpu-1: containerd, kubelet, pods 10.244.1.0/24
//!                                               └── 10.99.2.1 ── 10.99.2.2 gpu-2: containerd, kubelet, pods 10.244.2.0/24
//! ```
//!
//! Read [`plan`] for names and addresses, [`Cluster`] for what a test can do, [`teardown`] for how it ends.

pub mod api;
pub mod binaries;
pub mod certs;
pub mod cgroups;
pub mod chart;
pub mod cluster;
pub mod command;
pub mod containerd;
pub mod control_plane;
pub mod gpus;
pub mod images;
pub mod kubeconfig;
pub mod kubelet;
pub mod mount_points;
pub mod namespaces;
pub mod node;
pub mod oci;
pub mod plan;
pub mod preflight;
pub mod process;
pub mod programs;
pub mod progress;
pub mod state;
pub mod status;
pub mod teardown;

pub use cluster::Cluster;
pub use node::Node;
pub use plan::{Options, Plan};
pub use preflight::preflight;
pub use progress::Progress;

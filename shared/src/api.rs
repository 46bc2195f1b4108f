//! The objects in the API server, one file each. The two programs meet here and nowhere else: of a GpuNode the
//! scheduler writes the spec and the agent the status.

pub mod conditions;
pub mod gpu_node;
pub mod gpu_pool;

pub use gpu_node::{GpuNode, GpuNodeSpec, GpuNodeStatus};
pub use gpu_pool::{GpuPool, GpuPoolSpec, GpuPoolStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every custom resource definition of ours, in the order they are installed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![GpuNode::crd(), GpuPool::crd()]
}

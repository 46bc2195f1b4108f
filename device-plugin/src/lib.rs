//! The node agent: cuts, keeps, heals and removes the MIG slices of one node and serves them to the kubelet.
//!
//! In the order a reader needs them:
//!
//! * [`args`] - what can be set; [`run`] - how the parts are put together
//! * [`gpus`] - GPUs through NVML, on one thread of their own
//! * [`inventory`] - the one truth about the node, and how the kubelet counts it
//! * [`carve`] - the hands: adopt, allocate, check, release; with [`journal`], [`device_nodes`] and [`cdi`]
//! * [`kubelet`] - registration and the device plugin interface
//! * [`holders`] and [`pods`] - who still has what
//! * [`health`] - events of the GPUs and the way back
//! * [`node_object`] - the GpuNode object, node labels and events; [`ownership`] - when to stand back;
//!   [`pool`] - the policy that holds here
//! * [`usage`] - the load of the GPUs: read, remembered, told
//! * [`metrics`] - every metric; [`replace`] - files that are never half written

pub mod args;
pub mod carve;
pub mod cdi;
pub mod device_nodes;
pub mod gpus;
pub mod health;
pub mod holders;
pub mod inventory;
pub mod journal;
pub mod kubelet;
pub mod metrics;
pub mod node_object;
pub mod ownership;
pub mod pods;
pub mod pool;
pub mod replace;
pub mod run;
pub mod usage;

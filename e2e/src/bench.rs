//! What the pods-per-second bench needs.
//!
//! * [`load`] - a cluster of plain Node and GpuNode objects
//! * [`run`] - one kube-scheduler over one batch of pods

pub mod load;
pub mod run;

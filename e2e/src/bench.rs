//! What the pods-per-second bench needs.
//!
//! * [`access`] - how the programs log in
//! * [`load`] - a cluster of plain Node and GpuNode objects
//! * [`run`] - one kube-scheduler over one batch of pods

pub mod access;
pub mod load;
pub mod run;

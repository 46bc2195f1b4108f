//! What the pods-per-second bench needs.
//!
//! * [`access`] - how the programs log in
//! * [`alone`] - one bench at a time
//! * [`batch`] - the pods of a run
//! * [`bound`] - who is bound, heard of as cheaply as can be
//! * [`load`] - a cluster of plain Node and GpuNode objects
//! * [`run`] - one kube-scheduler over one batch of pods
//! * [`usage`] - which program spends how much CPU on a pod

pub mod access;
pub mod alone;
pub mod batch;
pub mod bound;
pub mod load;
pub mod run;
pub mod usage;

//! Dynamic against static: how many GPUs a load needs at equal service, and what a cluster's own pods would need.
//! Every saving stands beside the service it was reached at and the most that could be saved.
//!
//! * [`need`], [`heap`] - the least number of GPUs, and what slices without geometry would need
//! * [`steady`], [`loads`] - C1, C2: MIG-100's loads on as few GPUs as will do
//! * [`curve`] - the saving against what is asked for
//! * [`duty`], [`services`], [`shares`] - C3, C4, C5: recorded clusters
//! * [`speed`] - what slices cost in speed
//! * [`still`] - any board and any pod under a static layout; under production's decisions see [`crate::fleet`]
//! * [`trace`] - a user's own pods, and what they need
//! * [`recorded`], [`report`], [`command`] - where traces are, and what comes out

pub mod command;
pub mod curve;
pub mod duty;
pub mod heap;
pub mod loads;
pub mod need;
pub mod recorded;
pub mod report;
pub mod services;
pub mod shares;
pub mod speed;
pub mod steady;
pub mod still;
pub mod trace;

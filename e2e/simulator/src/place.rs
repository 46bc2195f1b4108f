//! openb: pods with CPU, memory and GPUs or shares of one fill a production cluster. Set-up, policies and metrics are
//! those of FGD's artifact (Weng et al., ATC '23), so that its published figures are the yardstick.
//!
//! * [`trace`], [`arrivals`] - nodes, lists of pods, and the order in which they come
//! * [`policy`], [`fill`] - who chooses, and the filling
//! * [`published`], [`experiment`], [`table`], [`command`] - what to beat, grids of runs, and what comes out

pub mod arrivals;
pub mod command;
pub mod experiment;
pub mod fill;
pub mod policy;
pub mod published;
pub mod table;
pub mod trace;

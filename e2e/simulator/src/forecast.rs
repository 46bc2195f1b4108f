//! Load 15 minutes ahead, on traces: the forecaster of `shared` and each of its members alone, against what came.
//!
//! * [`trace`] - the sets of series: what ships, and what is read where it is present
//! * [`training`], [`replay`] - the LSTM beforehand and in parallel, then a set round by round as a pool has it
//! * [`score`] - what is counted
//! * [`splice`] - a calm series that turns wild and calm again: the gate
//! * [`claims`] - what must hold, and whether it does
//! * [`table`], [`picture`], [`command`] - what comes out

pub mod claims;
pub mod command;
pub mod picture;
pub mod replay;
pub mod score;
pub mod splice;
pub mod table;
pub mod trace;
pub mod training;

//! MIG-100: slices of one GPU family come and go; what fits is placed, what does not is lost. Set-up and baselines
//! are those of the reference note; ours runs the production functions.
//!
//! * [`load`], [`shapes`] - what arrives, and the geometry it meets
//! * [`engine`] - the virtual clock, and all counting
//! * [`ours`] - migpool's own decisions
//! * [`rules`], [`rule_fleet`], [`fixed`] - what they are compared with
//! * [`ideal`] - what a pool without geometry would use
//! * [`policy`], [`experiment`], [`table`], [`story`], [`command`] - names, grids of runs, and what comes out

pub mod command;
pub mod engine;
pub mod experiment;
pub mod fixed;
pub mod ideal;
pub mod load;
pub mod ours;
pub mod policy;
pub mod rule_fleet;
pub mod rules;
pub mod shapes;
pub mod story;
pub mod table;

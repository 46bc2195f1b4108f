//! The part of migpool that thinks. Nothing here can read a clock, a file or a socket: every decision is a
//! function of a [`snapshot::Snapshot`], a [`policy::Policy`] and values it is given.
//!
//! In the order a reader needs them:
//!
//! * [`names`] - every label, annotation, resource name and device id, with parsing and printing
//! * [`mig`] - boards, profiles, layouts of one GPU, and plans of single create and destroy steps
//! * [`policy`] - every tunable number
//! * [`api`] - the objects in the API server
//! * [`snapshot`] - the cluster as one value, with what-if and undo
//! * [`decide`] - the decisions, and the reasons they give
#![forbid(unsafe_code)]

pub mod api;
pub mod decide;
pub mod mig;
pub mod names;
pub mod policy;
pub mod snapshot;

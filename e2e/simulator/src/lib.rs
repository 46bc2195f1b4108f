//! Traces in, the same decisions as in production under a virtual clock, tables and pictures out. A run is named by
//! its seed: the same seed gives the same figures on every machine, with any number of threads.
//!
//! * [`fleet`] - pods on GPUs under production's decisions
//! * [`forecast`] - load 15 minutes ahead
//! * [`mig`] - slices that come and go on one GPU family
//! * [`place`] - pods with CPU and GPUs that fill a production cluster
//! * [`pool`] - how many GPUs a load, or a cluster's own pods, need
//! * [`picture`] - SVG and HTML
//! * [`parallel`], [`random`], [`statistics`] - what every run needs

pub mod fleet;
pub mod forecast;
pub mod mig;
pub mod parallel;
pub mod picture;
pub mod place;
pub mod pool;
pub mod random;
pub mod statistics;

//! The decisions. Each is a pure function of a snapshot and what it is given, and says why.
//!
//! * [`score`] - what a placement costs the pool: tables over occupancy masks
//! * [`pack`] - whole GPUs and time-sliced shares: expected fragment, stranded CPU, model pressure, gaps
//! * [`place`] - where a pod goes, in an exact total order
//! * [`nominate`] - where all pods that wait go, planned ahead of kube-scheduler
//! * [`check`] - the independent judge of any placement
//! * [`repair`] - room by one move, when a slice fits nowhere
//! * [`forecast`] - load one horizon ahead, and whether to act on it
//! * [`size`] - from what a pod says about its model to what it asks for
//! * [`reason`] - every "no", with a code and a sentence

pub mod check;
pub mod forecast;
pub mod nominate;
pub mod pack;
pub mod place;
pub mod reason;
pub mod repair;
pub mod score;
pub mod size;
pub mod testing;

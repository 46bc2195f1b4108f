//! The decisions. Each is a pure function of a snapshot and what it is given, and says why.
//!
//! * [`score`] - what a placement costs the pool: tables over occupancy masks
//! * [`pack`] - whole GPUs and time-sliced shares: expected fragment, stranded CPU, model pressure, gaps
//! * [`place`] - where a pod goes, in an exact total order
//! * [`check`] - the independent judge of any placement
//! * [`repair`] - room by one move, when a slice fits nowhere
//! * [`reason`] - every "no", with a code and a sentence

pub mod check;
pub mod pack;
pub mod place;
pub mod reason;
pub mod repair;
pub mod score;
pub mod testing;

//! The whole product on a real cluster: what its tests and its demo share. Everything is seen from outside,
//! through the API server and what a container can see.
//!
//! * [`world`] - a running cluster with migpool installed, and how to wait for it
//! * [`pods`] - pods that ask for slices and report what they see
//! * [`oracle`] - brute force: what must be allocatable, and that no place is given twice
//! * [`mod@bench`] - pods bound per second at 5,000 nodes
//! * [`draw`] - a GPU as its memory slices, in colour and plain

pub mod bench;
pub mod draw;
pub mod oracle;
pub mod pods;
pub mod world;

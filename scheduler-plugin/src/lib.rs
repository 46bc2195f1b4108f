//! The scheduler extender beside an unmodified kube-scheduler: it answers which node a pod of ours goes to, picks
//! the GPU and the exact start, and binds. The decisions are made in `shared`; here is what surrounds them.
//!
//! * [`args`] - every setting
//! * [`run`] - what runs, wired together
//! * [`watch`] - objects of the API server, each turned into a part of the index
//! * [`index`] - the cluster as known here, and what is reserved in it
//! * [`http`] - what kube-scheduler asks, and the answers
//! * [`act`] - what the leader does on its own
//! * [`usage`] - the load that agents tell, and what is expected of nodes from it
//! * [`writer`] - the only file that writes to the API server
//! * [`layout_page`] - the pool drawn as text
//! * [`metrics`], [`clock`]
#![forbid(unsafe_code)]

pub mod act;
pub mod args;
pub mod clock;
pub mod http;
pub mod index;
pub mod layout_page;
pub mod metrics;
pub mod run;
pub mod usage;
pub mod watch;
pub mod writer;

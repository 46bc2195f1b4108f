//! The real extender over real sockets: bodies as kube-scheduler sends them on one side, a scripted API server on
//! the other.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "one test program: its helpers may fail loudly, and the bench uses some that it does not"
)]

mod agent;
mod api_server;
mod binding;
mod cpu;
mod lab;
mod languages;
mod leader;
mod load;
mod nominating;
mod recovery;
mod reports;
mod wire;

//! The real agent, as a program, between a fake NVML library and a kubelet of ours over real unix sockets.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod activity;
mod allocation;
mod api;
mod api_server;
mod crashes;
mod health;
mod kubelet;
mod node;
mod registration;
mod strategies;
mod usage;

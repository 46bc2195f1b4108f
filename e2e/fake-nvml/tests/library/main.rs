//! The library as clients see it: loaded from the file that cargo built, through the wrapper that the agent uses,
//! through raw symbols, through NVIDIA's own Python binding, and by several processes at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(
    unsafe_code,
    reason = "raw NVML symbols are unsafe to call; handles come from the library itself"
)]

mod breakages;
mod command;
mod cycle;
mod events;
mod foreign_client;
mod load;
mod mig_mode;
mod node;
mod refusals;
mod several_processes;
mod symbols;

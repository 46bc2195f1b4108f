//! `libnvidia-ml.so.1` without a GPU.
//!
//! The cdylib exports NVML's functions, so that a program that loads NVIDIA's library loads this one instead and
//! sees any number of GPUs of any board in our catalogue. What it sees is one JSON file, shared under a lock by
//! every process that loads the library: two programs see one node. The rules of MIG (which slice may sit where,
//! what refuses what, with which code) are written here anew and not taken from `shared`: this crate is an
//! oracle. Only the tables of the boards are shared.
//!
//! Where the state file is, in this order: the path written in `<this library's path>.state`, the environment
//! variable `FAKE_NVML_STATE`, `/run/migpool-fake-nvml/state.json`. Without a state file there is no driver.
//!
//! The rlib is for tests: [`control::World`] sets a node up in a file and breaks it, [`library_path`] finds the
//! cdylib that cargo built beside the test. The command `fake-nvml` does the same from a shell.
//!
//! In the order a reader needs them: [`state`] (what a node is), `store` (file and lock), `placement` and `carve`
//! (the rules), `library` (what every call goes through), `abi` (the functions), [`control`] (the other hand).
#![allow(
    unsafe_code,
    reason = "a C library is made of unsafe entry points; each states what it relies on"
)]

mod abi;
mod carve;
mod clock;
pub mod code;
pub mod control;
mod handle;
mod library;
pub mod model;
pub mod naming;
mod placement;
mod resolve;
pub mod state;
mod store;
pub mod utilisation;

pub use library::library_path;

/// Environment variable with the path of the state file.
pub const STATE_ENV: &str = "FAKE_NVML_STATE";

/// Where the state file is looked for when nothing says otherwise.
pub const DEFAULT_STATE: &str = "/run/migpool-fake-nvml/state.json";

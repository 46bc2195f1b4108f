//! What a MIG-capable GPU is: which slices a board can hold and where they may start.
//!
//! * [`profile`] - `1g.10gb` and its kin: names, resource names, NVIDIA's naming formula
//! * [`board`] - placement tables per board, from our catalogue or as NVML reports them
//! * [`layout`] - one GPU's slices at exact starts: what fits, what is left, what a placement costs
//! * [`mod@plan`] - ordered create and destroy steps that never touch a used slice

pub mod board;
pub mod layout;
pub mod plan;
pub mod profile;

pub use board::{Board, ProfileRow};
pub use layout::{Layout, Place, Slice, Use};
pub use plan::{Plan, Step, plan};
pub use profile::Profile;

//! How a node's load travels from its agent to the scheduler: the interface, and a connection that needs no CA. The
//! agent makes a certificate when it starts and publishes its fingerprint in its GpuNode, which nobody else may write;
//! the caller takes a certificate with that fingerprint and no other, and shows the token of its ServiceAccount.
//!
//! * [`proto`] - the interface
//! * [`certificate`] - the agent's side
//! * [`connect`] - the caller's side

pub mod certificate;
pub mod connect;

use std::time::Duration;

/// How often either side tries a connection on which nothing comes.
pub const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long the other side may take to answer that.
pub const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(20);

/// The interface, made from `proto/usage.proto` by `build.rs`.
pub mod proto {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        unused_qualifications,
        reason = "generated"
    )]
    tonic::include_proto!("migpool.usage.v1");
}

//! How a node's load travels from its agent to the scheduler: the interface, and a connection that needs no CA. The
//! agent makes a certificate when it starts and publishes its fingerprint in its GpuNode, which nobody else may write;
//! the caller takes a certificate with that fingerprint and no other, and shows the token of its ServiceAccount.
//!
//! * [`proto`] - the interface
//! * [`certificate`] - the agent's side
//! * [`connect`] - the caller's side

pub mod certificate;
pub mod connect;

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

//! The kubelet: what we tell it and what it asks.
//!
//! * [`register`] - one socket a resource, and registration whenever the kubelet (re)starts
//! * [`server`] - the device plugin interface
//! * [`prefer`] - which devices a pod should get
//! * [`answer`] - how a container is told what it got
//! * [`account`] - who has which device, by the kubelet's own account

pub mod account;
pub mod answer;
pub mod prefer;
pub mod register;
pub mod server;

/// The kubelet's interfaces, made from `proto/` by `build.rs`.
pub mod proto {
    /// Device plugins.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        unused_qualifications,
        reason = "generated"
    )]
    pub mod v1beta1 {
        tonic::include_proto!("v1beta1");
    }

    /// The account of who has which device.
    #[allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        unused_qualifications,
        reason = "generated"
    )]
    pub mod v1 {
        tonic::include_proto!("v1");
    }
}

use std::path::Path;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// A channel to a unix socket. Connects at its first call and again after it was lost.
///
/// # Errors
/// None in practice: the address is a constant.
pub fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect)
}

//! Where an agent tells the load of its GPUs, and by what it is known there.

use std::net::SocketAddr;

use serve::usage::certificate::{BadFingerprint, Fingerprint};
use shared::api::gpu_node;

/// Where an agent tells load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its certificate: that of an agent that starts anew is another.
    pub fingerprint: Fingerprint,
}

/// An endpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// Not an address and a port that somebody can be called at.
    #[error("{0:?} is not an address and a port to call, like 10.0.0.7:9404")]
    Address(String),
    /// Not a fingerprint.
    #[error(transparent)]
    Fingerprint(#[from] BadFingerprint),
}

impl Endpoint {
    /// Reads what a GpuNode says.
    ///
    /// # Errors
    /// [`BadEndpoint`] names what cannot be read.
    pub fn of(told: &gpu_node::Endpoint) -> Result<Self, BadEndpoint> {
        let address: Option<SocketAddr> = told.address.parse().ok();
        // an agent that listens everywhere must still say where it is
        let to_call = |address: &SocketAddr| {
            let ip = address.ip();
            address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
        };
        let address = address.filter(to_call);
        Ok(Self {
            address: address.ok_or_else(|| BadEndpoint::Address(told.address.clone()))?,
            fingerprint: told.fingerprint.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str, fingerprint: &str) -> Result<Endpoint, String> {
        let told = gpu_node::Endpoint {
            address: address.to_owned(),
            fingerprint: fingerprint.to_owned(),
        };
        Endpoint::of(&told).map_err(|bad| bad.to_string())
    }

    #[test]
    fn an_endpoint_is_an_address_to_call_and_a_fingerprint() {
        let fingerprint = format!("sha256:{}", "ab".repeat(32));
        for address in ["10.0.0.7:9404", "[fd00::7]:9404"] {
            let endpoint = read(address, &fingerprint).unwrap();
            assert_eq!(endpoint.address.to_string(), address);
            assert_eq!(endpoint.fingerprint.to_string(), fingerprint);
        }
        for bad in [
            "",
            "node-1:9404",
            "10.0.0.7",
            "10.0.0.7:0",
            "0.0.0.0:9404",
            "[::]:9404",
            "224.0.0.1:9404",
        ] {
            let refused = read(bad, &fingerprint).unwrap_err();
            assert!(
                refused.starts_with(&format!("{bad:?} is not an address")),
                "{refused}"
            );
        }
        let refused = read("10.0.0.7:9404", "sha256:ab").unwrap_err();
        assert!(refused.contains("is not a fingerprint"), "{refused}");
    }
}

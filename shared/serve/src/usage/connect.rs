//! A channel to an agent that is who its GpuNode says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use super::certificate::{Fingerprint, NAME};
use super::{KEEP_ALIVE, KEEP_ALIVE_LIMIT};

/// Connects to an agent that shows a certificate with this fingerprint.
///
/// # Errors
/// Nobody answers within `limit`, or it is somebody else.
pub async fn connect(
    address: SocketAddr,
    fingerprint: Fingerprint,
    limit: Duration,
) -> anyhow::Result<Channel> {
    let tls = TlsConnector::from(Arc::new(trust_only(fingerprint)?));
    let connect = tower::service_fn(move |_: http::Uri| {
        let tls = tls.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
            tls.connect(name, stream).await.map(TokioIo::new)
        }
    });
    // the connector speaks TLS, whatever the scheme says
    let endpoint = Endpoint::from_static("http://agent")
        .connect_timeout(limit)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_LIMIT)
        .keep_alive_while_idle(true);
    // the time for the handshake too
    Ok(tokio::time::timeout(limit, endpoint.connect_with_connector(connect)).await??)
}

fn trust_only(fingerprint: Fingerprint) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let pinned = Pinned {
        fingerprint,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Takes one certificate, whoever signed it, from whoever has its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Fingerprint::of(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

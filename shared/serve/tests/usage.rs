//! A caller takes the certificate that it was told of, and no other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use serve::usage::certificate::{Fingerprint, Identity};
use serve::usage::connect::connect;
use serve::usage::proto::usage_client::UsageClient;
use serve::usage::proto::usage_server::{Usage, UsageServer};
use serve::usage::proto::{Minute, WatchRequest, WatchResponse};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity as Pem, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

const LIMIT: Duration = Duration::from_secs(10);

struct Agent;

#[tonic::async_trait]
impl Usage for Agent {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let after = request.into_inner().after;
        let minute = Minute {
            minute: after + 1,
            load: 0.5,
        };
        let told = WatchResponse {
            minutes: vec![minute],
        };
        Ok(Response::new(Box::pin(futures::stream::iter([Ok(told)]))))
    }
}

async fn agent() -> (SocketAddr, Fingerprint) {
    let identity = Identity::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = ServerTlsConfig::new().identity(Pem::from_pem(&identity.certificate, &identity.key));
    let server = Server::builder()
        .tls_config(tls)
        .unwrap()
        .add_service(UsageServer::new(Agent));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, identity.fingerprint)
}

#[tokio::test]
async fn who_shows_the_certificate_that_was_told_of_is_listened_to() {
    let (address, fingerprint) = agent().await;
    let channel = connect(address, fingerprint, LIMIT).await.unwrap();
    let request = WatchRequest { after: 41 };
    let mut told = UsageClient::new(channel)
        .watch(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(told.message().await.unwrap().unwrap().minutes[0].minute, 42);
}

#[tokio::test]
async fn who_shows_another_certificate_is_not() {
    let (address, _) = agent().await;
    let (_, of_another) = agent().await;
    let refused = connect(address, of_another, LIMIT).await.unwrap_err();
    assert!(format!("{refused:#}").contains("transport error"), "{refused:#}");
}

#[tokio::test]
async fn who_speaks_no_tls_is_given_up_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // takes the connection and says nothing
    let silent = tokio::spawn(async move { listener.accept().await });
    let fingerprint = Identity::new().unwrap().fingerprint;
    assert!(
        connect(address, fingerprint, Duration::from_millis(200))
            .await
            .is_err()
    );
    silent.abort();
}

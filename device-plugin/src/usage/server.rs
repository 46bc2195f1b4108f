//! Tells the load over gRPC with TLS: what is remembered, then each minute when it is over. Every stream reads from what
//! is remembered at its own pace: a slow reader costs memory for one message, holds nobody back and misses nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::Stream;
use futures::stream::unfold;
use serve::usage::certificate::Identity;
use serve::usage::proto::usage_server::{Usage, UsageServer};
use serve::usage::proto::{Minute, WatchRequest, WatchResponse};
use serve::usage::{KEEP_ALIVE, KEEP_ALIVE_LIMIT};
use shared::api::gpu_node::Endpoint;
use shared::decide::forecast::minutes::Minutes;
use shared::policy::{LOAD_CALLERS, LOAD_KNOCK_SECONDS, LOAD_MESSAGE_MINUTES};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TlsConnectInfo;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::Load;
use super::callers::Callers;
use super::connection::{Admitted, connections};
use crate::metrics::Metrics;

/// Bytes of the headers of a call: a token of a ServiceAccount has about 1,500.
const HEADERS: u32 = 16 << 10;
/// Bytes of a call's message, which holds one number.
const REQUEST: usize = 1 << 10;
/// Streams on one connection, of which a caller needs one.
const STREAMS: u32 = 4;
/// How long connections may take to end at shutdown, when every stream has ended.
const DRAIN: Duration = Duration::from_secs(2);

/// A listening server that serves nobody yet.
pub struct Teller {
    listener: TcpListener,
    server: Server,
    service: Service,
    endpoint: Endpoint,
}

impl Teller {
    /// Listens at `address` with a new certificate; others reach it at `advertise`, by the same port.
    ///
    /// # Errors
    /// The address cannot be listened on, or there is no certificate.
    pub async fn listen(
        address: SocketAddr,
        advertise: IpAddr,
        load: Load,
        callers: Callers,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        serve::client::install_tls_provider();
        let address = reachable(address, advertise);
        let cannot = || format!("--usage-address {address} cannot be listened on");
        let listener = TcpListener::bind(address).await.with_context(cannot)?;
        let port = listener.local_addr().with_context(cannot)?.port();
        let identity = Identity::new()?;
        let endpoint = Endpoint {
            address: SocketAddr::new(advertise, port).to_string(),
            fingerprint: identity.fingerprint.to_string(),
        };
        let pem = tonic::transport::Identity::from_pem(identity.certificate, identity.key);
        let tls = ServerTlsConfig::new()
            .identity(pem)
            .timeout(Duration::from_secs(LOAD_KNOCK_SECONDS));
        let server = Server::builder()
            .tls_config(tls)
            .context("TLS of the load stream")?
            .max_concurrent_streams(STREAMS)
            .http2_max_header_list_size(HEADERS)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_LIMIT));
        let listens = SocketAddr::new(address.ip(), port);
        tracing::info!(address = %listens, advertised = endpoint.address, "the load of the GPUs is told");
        let service = Service {
            load,
            callers: Arc::new(callers),
            metrics,
            seats: Arc::new(Semaphore::new(LOAD_CALLERS)),
            token: CancellationToken::new(),
        };
        Ok(Self {
            listener,
            server,
            service,
            endpoint,
        })
    }

    /// Where others reach it, and what they know it by.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Serves until shutdown, and ends every stream then.
    ///
    /// # Errors
    /// What the server says.
    pub async fn serve(mut self, token: CancellationToken) -> anyhow::Result<()> {
        self.service.token = token.clone();
        let service = UsageServer::new(self.service).max_decoding_message_size(REQUEST);
        let served = self
            .server
            .add_service(service)
            .serve_with_incoming_shutdown(connections(self.listener), token.clone().cancelled_owned());
        let drained = async {
            token.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = served => served.context("the load stream"),
            // whoever does not end is cut off when the program ends
            () = drained => Ok(()),
        }
    }
}

/// Where to listen so that the advertised address is reached: on any address of its family, where any will do.
fn reachable(address: SocketAddr, advertise: IpAddr) -> SocketAddr {
    if address.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) && advertise.is_ipv6() {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()))
    } else {
        address
    }
}

struct Service {
    load: Load,
    callers: Arc<Callers>,
    metrics: Metrics,
    /// Streams that there may be.
    seats: Arc<Semaphore>,
    /// Ends its streams.
    token: CancellationToken,
}

type Told = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Usage for Service {
    type WatchStream = Told;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Told>, Status> {
        let checked = self.callers.check(request.metadata(), Instant::now()).await;
        self.metrics
            .usage_called(checked.as_ref().err().map(Status::code));
        checked?;
        if let Some(connection) = request.extensions().get::<TlsConnectInfo<Admitted>>() {
            connection.get_ref().admit();
        }
        let seat = Arc::clone(&self.seats).try_acquire_owned();
        let seat = seat.map_err(|_| Status::resource_exhausted("too many streams"))?;
        let after = request.get_ref().after;
        tracing::info!(after, "load is told to a caller");
        let open = Open {
            metrics: self.metrics.clone(),
            _seat: seat,
        };
        open.metrics.usage_streams(1);
        Ok(Response::new(Box::pin(told(
            self.load.minutes(),
            after,
            open,
            self.token.clone(),
        ))))
    }
}

/// A stream that is open.
struct Open {
    metrics: Metrics,
    _seat: OwnedSemaphorePermit,
}

impl Drop for Open {
    fn drop(&mut self) {
        tracing::info!("load is no longer told to a caller");
        self.metrics.usage_streams(-1);
    }
}

/// What is remembered after a minute, then what comes, until shutdown.
fn told(
    minutes: watch::Receiver<Minutes>,
    after: i64,
    open: Open,
    token: CancellationToken,
) -> impl Stream<Item = Result<WatchResponse, Status>> {
    unfold(
        (minutes, after, open, token),
        |(mut minutes, after, open, token)| async move {
            loop {
                let next = message(&minutes.borrow_and_update(), after);
                if let Some(last) = next.last() {
                    let last = last.minute;
                    open.metrics.told(next.len());
                    let message = WatchResponse { minutes: next };
                    return Some((Ok(message), (minutes, last, open, token)));
                }
                tokio::select! {
                    () = token.cancelled() => return None,
                    changed = minutes.changed() => changed.ok()?,
                }
            }
        },
    )
}

/// The next minutes after one, as many as go in a message.
fn message(minutes: &Minutes, after: i64) -> Vec<Minute> {
    let next = minutes.after(after).take(LOAD_MESSAGE_MINUTES);
    next.map(|(minute, load)| Minute { minute, load }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_goes_in_messages_that_are_not_large_and_misses_nothing() {
        let mut minutes = Minutes::default();
        for minute in 1..=1000 {
            minutes.put(minute * 2, 0.5);
        }
        let (mut after, mut told) = (100, Vec::new());
        loop {
            let next = message(&minutes, after);
            assert!(next.len() <= LOAD_MESSAGE_MINUTES);
            let Some(last) = next.last() else { break };
            after = last.minute;
            told.extend(next.into_iter().map(|minute| (minute.minute, minute.load)));
        }
        assert_eq!(told, minutes.after(100).collect::<Vec<_>>());
        for nothing in [i64::MAX, 2000] {
            assert_eq!(message(&minutes, nothing), []);
        }
        assert_eq!(message(&minutes, i64::MIN).len(), LOAD_MESSAGE_MINUTES);
    }

    #[test]
    fn a_node_with_another_family_is_listened_on_where_it_is_reached() {
        for (address, advertise, expected) in [
            ("0.0.0.0:9404", "10.0.0.7", "0.0.0.0:9404"),
            ("0.0.0.0:9404", "fd00::7", "[::]:9404"),
            ("10.0.0.7:9404", "fd00::7", "10.0.0.7:9404"),
            ("[::1]:9404", "10.0.0.7", "[::1]:9404"),
        ] {
            let reached = reachable(address.parse().unwrap(), advertise.parse().unwrap());
            assert_eq!(reached.to_string(), expected);
        }
    }
}

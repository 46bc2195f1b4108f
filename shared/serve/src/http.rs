//! An HTTP/1 server that outsiders cannot exhaust: bounded connections, a deadline for headers and for each
//! request, a bound on bodies, and an orderly end. The admin endpoints and the extender both run on it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// What one server takes from its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; more wait in the listen queue.
    pub connections: usize,
    /// Time for a request's headers to come in, and for an idle connection to say something.
    pub headers: Duration,
    /// Time for a request, from its headers to the end of its answer's headers.
    pub request: Duration,
    /// Bytes of a request's body.
    pub body: usize,
    /// Time for requests under way to end after shutdown began.
    pub drain: Duration,
}

impl Limits {
    /// For probes and scrapes: few callers, no bodies.
    pub const ADMIN: Self = Self {
        connections: 64,
        headers: Duration::from_secs(90),
        request: Duration::from_secs(10),
        body: 16 * 1024,
        drain: Duration::from_secs(5),
    };
}

/// Serves until the token is cancelled, then lets requests under way end.
///
/// # Errors
/// None today; the type fits [`crate::tasks::Tasks::spawn`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let router = router.layer(DefaultBodyLimit::max(limits.body)).layer(from_fn(
        move |request: Request, next: Next| in_time(limits.request, request, next),
    ));
    let room = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        // Room first: what cannot be served waits in the kernel's queue, not in our memory.
        let seat = tokio::select! {
            () = token.cancelled() => break,
            seat = room.clone().acquire_owned() => seat,
        };
        let accepted = tokio::select! {
            () = token.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, token) = (router.clone(), token.clone());
                connections.spawn(async move {
                    connection(stream, router, limits, token).await;
                    drop(seat);
                });
            }
            Err(error) => {
                // Out of file descriptors, or a caller that left: either passes, and looping hot helps neither.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = tokio::time::timeout(limits.drain, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!(open = connections.len(), "connections were cut at shutdown");
    }
    Ok(())
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, token: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let service = service_fn(move |request: hyper::Request<Incoming>| router.clone().oneshot(request));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers);
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = token.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

async fn in_time(limit: Duration, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let sentence = format!("{path} took longer than {limit:?}\n");
            (StatusCode::SERVICE_UNAVAILABLE, sentence).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const TIGHT: Limits = Limits {
        connections: 2,
        headers: Duration::from_millis(200),
        request: Duration::from_millis(200),
        body: 8,
        drain: Duration::from_millis(200),
    };

    async fn started() -> (
        std::net::SocketAddr,
        CancellationToken,
        tokio::task::JoinHandle<anyhow::Result<()>>,
    ) {
        let router = Router::new()
            .route("/hi", get(|| async { "hi" }))
            .route("/slow", get(std::future::pending::<&'static str>))
            .route("/echo", post(|body: String| async move { body }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap(), CancellationToken::new());
        let served = tokio::spawn(serve(listener, router, TIGHT, token.clone()));
        (address, token, served)
    }

    async fn said(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn limits_answer_and_the_server_goes_on() {
        let (address, token, served) = started().await;
        let slow = said(
            address,
            "GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        )
        .await;
        assert!(
            slow.starts_with("HTTP/1.1 503") && slow.contains("/slow took longer than 200ms"),
            "{slow}"
        );
        let big = said(
            address,
            "POST /echo HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n123456789",
        )
        .await;
        assert!(big.starts_with("HTTP/1.1 413"), "{big}");
        // two callers who never finish their headers hold every seat until their time is up
        let (stuck_a, stuck_b) = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        let hi = said(
            address,
            "GET /hi HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        )
        .await;
        assert!(hi.starts_with("HTTP/1.1 200") && hi.ends_with("hi"), "{hi}");
        drop((stuck_a, stuck_b));
        token.cancel();
        served.await.unwrap().unwrap();
    }
}

//! Connections to the load stream: so many at a time, and a short time for each to show that it may be here. The server
//! under them bounds neither.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use shared::policy::{LOAD_CALLERS, LOAD_KNOCK_SECONDS};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// Rest after a connection that could not be accepted.
const REST: Duration = Duration::from_millis(50);

/// A connection, from the first byte of its TLS handshake on.
pub struct Connection {
    stream: TcpStream,
    admitted: Admitted,
    knocks: Pin<Box<Sleep>>,
    _seat: OwnedSemaphorePermit,
}

/// Whether a connection may stay. Clones are about the same one.
#[derive(Clone, Debug, Default)]
pub struct Admitted(Arc<AtomicBool>);

impl Admitted {
    /// It may.
    pub fn admit(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The connections of a listener; more than [`LOAD_CALLERS`] wait in the kernel's queue.
pub fn connections(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> + Send {
    let seats = Arc::new(Semaphore::new(LOAD_CALLERS));
    Box::pin(unfold((listener, seats), |(listener, seats)| async move {
        let seat = Arc::clone(&seats).acquire_owned().await.ok()?;
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    // out of file descriptors, or a caller that left: either passes, and looping hot helps neither
                    tracing::debug!(%error, "a connection was not accepted");
                    sleep(REST).await;
                }
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let connection = Connection {
            stream,
            admitted: Admitted::default(),
            knocks: Box::pin(sleep(Duration::from_secs(LOAD_KNOCK_SECONDS))),
            _seat: seat,
        };
        Some((Ok(connection), (listener, seats)))
    }))
}

impl Connected for Connection {
    type ConnectInfo = Admitted;

    fn connect_info(&self) -> Admitted {
        self.admitted.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // a connection is always waited on for something to read, so here its time runs out
        if !self.admitted.0.load(Ordering::Acquire) && self.knocks.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

//! An agent that tells load, over TLS as a real one does. It keeps what was asked of it, and by whom.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use serve::usage::certificate::Identity;
use serve::usage::proto::usage_server::{Usage, UsageServer};
use serve::usage::proto::{Minute, WatchRequest, WatchResponse};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// An agent; it ends with this.
pub struct Agent {
    /// Its endpoint, as its GpuNode says it.
    pub endpoint: Value,
    played: Played,
    ends: tokio_util::sync::DropGuard,
    connections: Arc<AtomicUsize>,
}

/// A call that was answered or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was shown.
    pub authorization: String,
    /// The minute after which the caller wants to hear.
    pub after: i64,
}

#[derive(Clone)]
struct Played {
    /// Minutes in a message.
    most: usize,
    calls: Arc<Mutex<Vec<Call>>>,
    minutes: watch::Sender<Vec<Minute>>,
    /// The token that is let in.
    token: Arc<Mutex<String>>,
    /// Ends the streams that are open.
    hangs_up: Arc<Mutex<CancellationToken>>,
}

impl Agent {
    /// One that remembers this and lets in who shows `first`.
    pub async fn start(minutes: Vec<Minute>) -> Self {
        Self::in_messages_of(256, minutes).await
    }

    /// The same, with so many minutes in a message.
    pub async fn in_messages_of(most: usize, minutes: Vec<Minute>) -> Self {
        let identity = Identity::new().unwrap();
        let played = Played {
            most,
            calls: Arc::default(),
            minutes: watch::Sender::new(minutes),
            token: Arc::new(Mutex::new("first".to_owned())),
            hangs_up: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&connections);
        let incoming = TcpListenerStream::new(listener).inspect_ok(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let tls = tonic::transport::Identity::from_pem(&identity.certificate, &identity.key);
        let mut server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(tls))
            .unwrap();
        let ends = CancellationToken::new();
        let router = server.add_service(UsageServer::new(played.clone()));
        let served = router.serve_with_incoming_shutdown(incoming, ends.clone().cancelled_owned());
        tokio::spawn(served);
        Self {
            endpoint: json!({"address": address.to_string(), "fingerprint": identity.fingerprint.to_string()}),
            played,
            ends: ends.drop_guard(),
            connections,
        }
    }

    /// A minute is over.
    pub fn tell(&self, minute: i64, load: f32) {
        self.played
            .minutes
            .send_modify(|minutes| minutes.push(Minute { minute, load }));
    }

    /// What was asked of it.
    pub fn calls(&self) -> Vec<Call> {
        self.played.calls.lock().unwrap().clone()
    }

    /// How often somebody connected.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Lets in who shows this from now on.
    pub fn let_in(&self, token: &str) {
        token.clone_into(&mut self.played.token.lock().unwrap());
    }

    /// Ends every stream that is open.
    pub fn hang_up(&self) {
        std::mem::take(&mut *self.played.hangs_up.lock().unwrap()).cancel();
    }

    /// Ends it.
    pub fn stop(self) {
        self.hang_up();
        drop(self.ends);
    }
}

#[tonic::async_trait]
impl Usage for Played {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let shown = request.metadata().get("authorization");
        let authorization = shown
            .map(|shown| shown.to_str().unwrap().to_owned())
            .unwrap_or_default();
        let after = request.get_ref().after;
        let is_let_in = authorization == format!("Bearer {}", self.token.lock().unwrap());
        self.calls.lock().unwrap().push(Call { authorization, after });
        if !is_let_in {
            return Err(Status::unauthenticated("who are you?"));
        }
        let (start, most) = ((self.minutes.subscribe(), after), self.most);
        let told = futures::stream::unfold(start, move |(mut known, after)| async move {
            loop {
                let minutes: Vec<Minute> = known
                    .borrow_and_update()
                    .iter()
                    .filter(|one| one.minute > after)
                    .take(most)
                    .copied()
                    .collect();
                if let Some(last) = minutes.last() {
                    let after = last.minute;
                    return Some((Ok(WatchResponse { minutes }), (known, after)));
                }
                known.changed().await.ok()?;
            }
        });
        let hangs_up = self.hangs_up.lock().unwrap().clone().cancelled_owned();
        Ok(Response::new(Box::pin(told.take_until(hangs_up))))
    }
}

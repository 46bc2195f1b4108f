//! An API server in this process: lists and watches over one versioned store, Bindings with the checks of the real
//! one, and faults on demand. It keeps what was asked of it, so that a test can say what was *not* asked.

#[path = "api_server/protobuf.rs"]
pub mod protobuf;
#[path = "api_server/store.rs"]
mod store;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::ACCEPT;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use store::{Store, Target, status};

/// What goes wrong with the next Binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this status and not written.
    Status(u16),
    /// It is written, and the answer is lost.
    WrittenInSilence,
    /// It is neither written nor answered.
    Silence,
}

/// The server; clones are the same one.
#[derive(Clone)]
pub struct ApiServer {
    /// Where it listens.
    pub address: SocketAddr,
    store: Arc<Mutex<Store>>,
    moved: watch::Sender<u64>,
    token: CancellationToken,
}

impl ApiServer {
    /// Starts it on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            store: Arc::default(),
            moved: watch::Sender::new(0),
            token: CancellationToken::new(),
        };
        let router = Router::new().fallback(answer).with_state(server.clone());
        let ended = server.token.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(ended).await });
        server
    }

    /// A client of it, without retries.
    pub fn client(&self) -> kube::Client {
        serve::client::install_tls_provider();
        let mut config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// Puts an object there, new or changed.
    pub fn put(&self, plural: &str, object: impl serde::Serialize) {
        let object = serde_json::to_value(object).unwrap();
        self.with(|store| store.put(plural, object));
    }

    /// Puts many objects there, as if all had been there before anyone looked.
    pub fn put_all(&self, plural: &str, objects: impl IntoIterator<Item = Value>) {
        self.with(|store| objects.into_iter().for_each(|object| store.put(plural, object)));
    }

    /// An object.
    pub fn get(&self, plural: &str, key: &str) -> Option<Value> {
        self.with(|store| store.objects.get(&(plural.to_owned(), key.to_owned())).cloned())
    }

    /// All objects of a kind.
    pub fn all(&self, plural: &str) -> Vec<Value> {
        self.with(|store| store.list(plural))
    }

    /// Changes an object in place.
    pub fn edit(&self, plural: &str, key: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(plural, key).unwrap();
        change(&mut object);
        self.put(plural, object);
    }

    /// Takes an object away.
    pub fn delete(&self, plural: &str, key: &str) {
        self.with(|store| store.delete(plural, key));
    }

    /// Lets the next Binding go wrong.
    pub fn fail_next_binding(&self, fault: Fault) {
        self.with(|store| store.faults.push_back(fault));
    }

    /// Answers everything with 503 and ends watches, or stops doing so.
    pub fn set_down(&self, down: bool) {
        self.with(|store| store.down = down);
    }

    /// Requests of a method on paths that contain this.
    pub fn asked(&self, method: &str, part: &str) -> usize {
        let is = |request: &&String| request.starts_with(method) && request.contains(part);
        self.with(|store| store.requests.iter().filter(is).count())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store.lock().unwrap();
        let result = work(&mut store);
        let version = store.version;
        drop(store);
        // also when nothing was written: a watch must notice that the server went down
        self.moved.send_replace(version);
        result
    }

    /// Ends it.
    pub fn stop(&self) {
        self.token.cancel();
    }
}

async fn answer(State(server): State<ApiServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let down = server.with(|store| {
        store.requests.push(format!("{} {}", parts.method, parts.uri));
        store.down
    });
    if down {
        return status(503, "the server is down".to_owned());
    }
    let Some(target) = Target::of(parts.uri.path()) else {
        return status(404, "no such path".to_owned());
    };
    let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let protobuf = accept == Some("application/vnd.kubernetes.protobuf");
    assert!(
        !protobuf || target.plural == "pods",
        "only pods are known in protobuf here"
    );
    match (&parts.method, target.sub.as_deref()) {
        (&Method::POST, Some("binding")) => bind(&server, &target, &body).await,
        (&Method::PATCH, Some("status")) if target.plural == "pods" => {
            let mut pairs = query.split('&');
            let manager = pairs.find_map(|pair| pair.strip_prefix("fieldManager="));
            let patch = serde_json::from_slice(&body).unwrap_or_default();
            server.with(|store| store.nominate(&target.key(), &patch, manager.unwrap_or_default()))
        }
        (&Method::GET, _) if query.contains("watch=true") => watch_from(&server, &target, &query, protobuf),
        (&Method::GET, None) if protobuf && target.name.is_none() => {
            server.with(|store| protobuf::list(store.version, &store.list(&target.plural)).into_response())
        }
        (method, _) => server.with(|store| store.answer(method, &target, &body)),
    }
}

async fn bind(server: &ApiServer, target: &Target, body: &Bytes) -> Response {
    let fault = server.with(|store| store.faults.pop_front());
    if let Some(Fault::Status(code)) = fault {
        return status(code, "refused by the test".to_owned());
    }
    if fault == Some(Fault::Silence) {
        return std::future::pending().await;
    }
    let binding: Value = serde_json::from_slice(body).unwrap_or_default();
    let bound = server.with(|store| store.bind(&target.key(), &binding));
    if fault == Some(Fault::WrittenInSilence) {
        return std::future::pending().await;
    }
    match bound {
        Ok(()) => (StatusCode::CREATED, Json(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))).into_response(),
        Err((code, message)) => status(code, message),
    }
}

/// A watch: every event after a version, one JSON object a line or as protobuf, until the server goes down.
fn watch_from(server: &ApiServer, target: &Target, query: &str, protobuf: bool) -> Response {
    let after = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("resourceVersion=")?.parse().ok())
        .unwrap_or(0);
    let start = (
        server.clone(),
        server.moved.subscribe(),
        target.plural.clone(),
        after,
    );
    let write = if protobuf { protobuf::event } else { store::line };
    let events = futures::stream::unfold(start, move |(server, mut moved, plural, after)| async move {
        loop {
            let (down, events, version) = server
                .store
                .lock()
                .map(|store| store.events(&plural, after, write))
                .unwrap();
            if down {
                return None;
            }
            if !events.is_empty() {
                return Some((Ok::<_, std::io::Error>(events), (server, moved, plural, version)));
            }
            moved.changed().await.ok()?;
        }
    });
    Body::from_stream(events).into_response()
}

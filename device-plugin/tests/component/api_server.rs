//! An API server as far as the agent can tell: objects in memory, lists, watches, patches.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};

/// Objects by plural and by name with namespace.
#[derive(Default)]
struct Objects {
    version: u64,
    all: BTreeMap<(String, String), Value>,
    /// What happened: version, plural, event.
    log: Vec<(u64, String, Value)>,
    /// Every request answers 503.
    away: bool,
    /// What is answered about tokens; all others are unknown.
    tokens: BTreeMap<String, Value>,
    /// Requests by method and path.
    requests: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct ApiServer {
    objects: Arc<Mutex<Objects>>,
}

type Params = BTreeMap<String, String>;

impl ApiServer {
    /// Starts one and writes a kubeconfig for it.
    pub(crate) async fn start(kubeconfig: &std::path::Path) -> Self {
        let server = Self::default();
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        std::fs::write(kubeconfig, config.to_string()).unwrap();
        server.put(
            "nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}),
        );
        server
    }

    /// Makes or replaces an object.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.objects.lock().unwrap().put(plural, object);
    }

    pub(crate) fn remove(&self, plural: &str, name: &str) {
        self.objects.lock().unwrap().remove(plural, name);
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        self.objects
            .lock()
            .unwrap()
            .all
            .get(&(plural.to_owned(), name.to_owned()))
            .cloned()
    }

    pub(crate) fn list(&self, plural: &str) -> Vec<Value> {
        let objects = self.objects.lock().unwrap();
        objects
            .all
            .iter()
            .filter(|((of, _), _)| of == plural)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// From now on a token is reviewed so.
    pub(crate) fn token(&self, token: &str, status: Value) {
        self.objects
            .lock()
            .unwrap()
            .tokens
            .insert(token.to_owned(), status);
    }

    pub(crate) fn away(&self, away: bool) {
        self.objects.lock().unwrap().away = away;
    }

    /// How many requests had this text in them.
    pub(crate) fn requests(&self, text: &str) -> usize {
        self.objects
            .lock()
            .unwrap()
            .requests
            .iter()
            .filter(|request| request.contains(text))
            .count()
    }

    /// Fills a TokenReview in, as for the audiences that it asks about.
    fn review(&self, review: &mut Value) {
        assert_eq!(review["spec"]["audiences"], json!(["migpool.dev/usage"]));
        let token = review["spec"]["token"].as_str().unwrap();
        let known = self.objects.lock().unwrap().tokens.get(token).cloned();
        let unknown = json!({"authenticated": false, "error": "invalid bearer token"});
        review["status"] = known.unwrap_or(unknown);
    }

    /// A pod bound to the node, with its placement.
    pub(crate) fn pod(&self, name: &str, placement: &str) {
        self.put(
            "pods",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "default", "uid": format!("uid-{name}"),
                    "creationTimestamp": "2026-11-29T00:00:00Z",
                    "annotations": {"migpool.dev/placement": placement},
                },
                "spec": {"nodeName": "node-a", "containers": []},
                "status": {"phase": "Pending"},
            }),
        );
    }
}

impl Objects {
    fn put(&mut self, plural: &str, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let known = self
            .all
            .insert((plural.to_owned(), name), object.clone())
            .is_some();
        let kind = if known { "MODIFIED" } else { "ADDED" };
        self.log.push((
            self.version,
            plural.to_owned(),
            json!({"type": kind, "object": object}),
        ));
    }

    fn remove(&mut self, plural: &str, name: &str) {
        if let Some(mut object) = self.all.remove(&(plural.to_owned(), name.to_owned())) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.log.push((
                self.version,
                plural.to_owned(),
                json!({"type": "DELETED", "object": object}),
            ));
        }
    }
}

fn params(query: &str) -> Params {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.replace("%3D", "=")))
        .collect()
}

/// `a=b` over `metadata.name` and `spec.nodeName`.
fn selected(object: &Value, params: &Params) -> bool {
    let Some((field, value)) = params
        .get("fieldSelector")
        .and_then(|selector| selector.split_once('='))
    else {
        return true;
    };
    let found = field.split('.').try_fold(object, |at, key| at.get(key));
    found.and_then(Value::as_str) == Some(value)
}

async fn answer(State(server): State<ApiServer>, method: Method, uri: Uri, body: Bytes) -> Response {
    let params = params(uri.query().unwrap_or_default());
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    // api/v1/... or apis/group/version/..., then perhaps namespaces/x
    let rest = parts
        .get(if parts[0] == "api" { 2 } else { 3 }..)
        .unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") {
        rest.get(2..).unwrap_or_default()
    } else {
        rest
    };
    let (plural, name, sub) = (
        rest.first().copied().unwrap_or_default(),
        rest.get(1),
        rest.get(2),
    );
    {
        let mut objects = server.objects.lock().unwrap();
        objects.requests.push(format!("{method} {}", uri.path()));
        if objects.away {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "away");
        }
    }
    match (method, name) {
        (Method::GET, None)
            if params
                .get("watch")
                .is_some_and(|watch| watch == "true" || watch == "1") =>
        {
            watch(&server, plural, params)
        }
        (Method::GET, None) => {
            let items: Vec<Value> = server
                .list(plural)
                .into_iter()
                .filter(|object| selected(object, &params))
                .collect();
            let version = server.objects.lock().unwrap().version.max(1).to_string();
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items});
            axum::Json(list).into_response()
        }
        (Method::GET, Some(name)) => match server.get(plural, name) {
            Some(object) => axum::Json(object).into_response(),
            None => refuse(StatusCode::NOT_FOUND, "not found"),
        },
        (Method::POST, _) => {
            let mut object: Value = serde_json::from_slice(&body).unwrap();
            if plural == "tokenreviews" {
                server.review(&mut object);
                return (StatusCode::CREATED, axum::Json(object)).into_response();
            }
            server.put(plural, object.clone());
            (StatusCode::CREATED, axum::Json(object)).into_response()
        }
        (Method::PATCH, Some(name)) => {
            let patch: Value = serde_json::from_slice(&body).unwrap();
            let Some(mut object) = server.get(plural, name) else {
                return refuse(StatusCode::NOT_FOUND, "not found");
            };
            if sub == Some(&"status") {
                object["status"] = patch["status"].clone();
            } else {
                merge(&mut object, &patch);
            }
            server.put(plural, object.clone());
            axum::Json(object).into_response()
        }
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "no such thing here"),
    }
}

/// A merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    for (key, change) in changes {
        if change.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key], change);
        }
    }
}

fn watch(server: &ApiServer, plural: &str, params: Params) -> Response {
    let from: u64 = params
        .get("resourceVersion")
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    let start = (server.clone(), plural.to_owned(), params, from);
    let lines = stream::unfold(start, |(server, plural, params, from)| async move {
        loop {
            {
                let objects = server.objects.lock().unwrap();
                if objects.away {
                    return None;
                }
                let mut new = objects
                    .log
                    .iter()
                    .filter(|(version, of, _)| *version > from && *of == plural);
                if let Some((version, _, event)) =
                    new.find(|(_, _, event)| selected(&event["object"], &params))
                {
                    let (line, version) = (format!("{event}\n"), *version);
                    drop(objects);
                    return Some((
                        Ok::<_, std::convert::Infallible>(line),
                        (server, plural, params, version),
                    ));
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    Body::from_stream(lines).into_response()
}

fn refuse(code: StatusCode, message: &str) -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": "", "code": code.as_u16()});
    (code, axum::Json(status)).into_response()
}

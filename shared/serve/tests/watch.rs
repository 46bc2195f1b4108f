//! The watch against a scripted API server: whole lists only, changes in order, recovery from expiry and outage.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::RawQuery;
use axum::response::Response;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use serve::watch::{Change, Freshness, Watch, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One answer of the script, taken by one request.
enum Answer {
    /// A status code and a body.
    Body(u16, serde_json::Value),
    /// Watch events, then the end of the connection.
    Events(Vec<serde_json::Value>),
    /// Watch events, then silence on an open connection.
    Open(Vec<serde_json::Value>),
}

/// An API server that follows a script and notes what it was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            asked: Arc::default(),
        }
    }

    fn watch(&self, token: &CancellationToken) -> Watch<ConfigMap> {
        let script = self.clone();
        let router = Router::new().fallback(move |RawQuery(query): RawQuery| {
            let script = script.clone();
            async move { script.answer(query.unwrap_or_default()).await }
        });
        let config = Config::default().labels("a=b").page_size(2);
        watch(
            Api::default_namespaced(Client::new(router, "default")),
            config,
            token.clone(),
        )
    }

    async fn answer(&self, query: String) -> Response {
        self.asked.lock().unwrap().push(query);
        let next = self.answers.lock().unwrap().pop_front();
        match next {
            None => std::future::pending().await,
            Some(Answer::Body(code, body)) => Response::builder()
                .status(code)
                .body(Body::from(body.to_string()))
                .unwrap(),
            Some(Answer::Events(events)) => Response::new(Body::from_stream(lines(events))),
            Some(Answer::Open(events)) => {
                Response::new(Body::from_stream(lines(events).chain(stream::pending())))
            }
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn lines(events: Vec<serde_json::Value>) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::iter(
        events
            .into_iter()
            .map(|event| Ok(Bytes::from(format!("{event}\n")))),
    )
}

fn object(name: &str, version: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}})
}

fn list(names: &[&str], version: &str, more: &str) -> Answer {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    let metadata = json!({"resourceVersion": version, "continue": more});
    Answer::Body(
        200,
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}),
    )
}

fn event(kind: &str, name: &str, version: &str) -> serde_json::Value {
    json!({"type": kind, "object": object(name, version)})
}

fn refusal(code: u16, message: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "X"})
}

fn told(change: Change<ConfigMap>) -> String {
    match change {
        Change::Reset(all) => format!(
            "reset {}",
            all.iter().map(ConfigMap::name_any).collect::<Vec<_>>().join(" ")
        ),
        Change::Apply(one) => format!("apply {}", one.name_any()),
        Change::Delete(one) => format!("delete {}", one.name_any()),
    }
}

async fn tells(watch: &mut Watch<ConfigMap>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        let day = Duration::from_secs(86_400);
        all.push(told(
            tokio::time::timeout(day, watch.stream.next())
                .await
                .unwrap()
                .unwrap(),
        ));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn pages_come_as_one_list_and_changes_follow_from_its_version() {
    let script = Script::new([
        list(&["a", "b"], "10", "page-2"),
        list(&["c"], "10", ""),
        Answer::Open(vec![
            event("ADDED", "d", "11"),
            event("MODIFIED", "a", "12"),
            event("DELETED", "b", "13"),
        ]),
    ]);
    let mut watch = script.watch(&CancellationToken::new());
    assert_eq!(*watch.freshness.borrow(), Freshness::Starting);
    assert_eq!(
        tells(&mut watch, 4).await,
        ["reset a b c", "apply d", "apply a", "delete b"]
    );
    assert_eq!(*watch.freshness.borrow(), Freshness::Live);
    let asked = script.asked();
    assert!(
        asked[0].contains("limit=2") && asked[0].contains("labelSelector=a%3Db"),
        "{asked:?}"
    );
    assert!(asked[1].contains("continue=page-2"), "{asked:?}");
    assert!(
        asked[2].contains("watch=true") && asked[2].contains("resourceVersion=10"),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_between_its_pages_is_begun_again() {
    let script = Script::new([
        list(&["a", "b"], "10", "page-2"),
        Answer::Body(410, refusal(410, "the continue token has expired")),
        list(&["x"], "20", ""),
    ]);
    let mut watch = script.watch(&CancellationToken::new());
    assert_eq!(tells(&mut watch, 1).await, ["reset x"]);
}

#[tokio::test(start_paused = true)]
async fn a_closed_watch_goes_on_from_the_last_version_heard_of() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "30"}}});
    let script = Script::new([
        list(&[], "10", ""),
        Answer::Events(vec![event("ADDED", "a", "11"), bookmark]),
        Answer::Open(vec![event("ADDED", "b", "31")]),
    ]);
    let mut watch = script.watch(&CancellationToken::new());
    assert_eq!(tells(&mut watch, 3).await, ["reset ", "apply a", "apply b"]);
    assert!(
        script.asked()[2].contains("resourceVersion=30"),
        "{:?}",
        script.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_new_list_in_both_its_forms() {
    let gone = json!({"type": "ERROR", "object": refusal(410, "too old resource version")});
    let script = Script::new([
        list(&["a"], "10", ""),
        Answer::Events(vec![gone]),
        list(&["b"], "20", ""),
        Answer::Body(410, refusal(410, "too old resource version")),
        list(&["c"], "30", ""),
        Answer::Open(vec![event("ADDED", "d", "31")]),
    ]);
    let mut watch = script.watch(&CancellationToken::new());
    assert_eq!(
        tells(&mut watch, 4).await,
        ["reset a", "reset b", "reset c", "apply d"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_from_its_start_and_is_over_when_a_watch_opens_though_nothing_changed() {
    let away = || Answer::Body(503, refusal(503, "etcd is away"));
    let script = Script::new([
        list(&["a"], "10", ""),
        Answer::Events(vec![]),
        away(),
        away(),
        away(),
        away(),
        Answer::Open(vec![]),
    ]);
    // kube's own retry is off in a client made from a service: each answer is one request
    let mut watch = script.watch(&CancellationToken::new());
    let mut freshness = watch.freshness.clone();
    assert_eq!(tells(&mut watch, 1).await, ["reset a"]);
    let began = Instant::now();
    let reads = tokio::spawn(async move { watch.stream.next().await });
    let lost = freshness
        .wait_for(|f| matches!(f, Freshness::Lost { why, .. } if why.contains("etcd is away (503)")));
    let lost_for = lost
        .await
        .unwrap()
        .lost_for(Instant::now() + Duration::from_secs(60))
        .unwrap();
    assert!(lost_for >= Duration::from_secs(60), "{lost_for:?}");
    freshness
        .wait_for(|freshness| *freshness == Freshness::Live)
        .await
        .unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "waited {:?}",
        began.elapsed()
    );
    assert!(freshness.borrow().lost_for(Instant::now()).is_none());
    assert!(
        script.asked()[6].contains("resourceVersion=10"),
        "no new list was needed: {:?}",
        script.asked()
    );
    reads.abort();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_given_up() {
    let script = Script::new([
        list(&["a"], "10", ""),
        Answer::Open(vec![event("ADDED", "b", "11")]),
    ]);
    let mut watch = script.watch(&CancellationToken::new());
    let mut freshness = watch.freshness.clone();
    assert_eq!(tells(&mut watch, 2).await, ["reset a", "apply b"]);
    let reads = tokio::spawn(async move { watch.stream.next().await });
    freshness
        .wait_for(|f| matches!(f, Freshness::Lost { why, .. } if why.contains("nothing heard for 295s")))
        .await
        .unwrap();
    // the script is at its end: the next watch gets no answer at all
    freshness
        .wait_for(|f| matches!(f, Freshness::Lost { why, .. } if why.contains("no answer for 15s")))
        .await
        .unwrap();
    reads.abort();
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_stream_in_the_middle_of_silence() {
    let token = CancellationToken::new();
    let mut watch = Script::new([list(&["a"], "10", ""), Answer::Open(vec![])]).watch(&token);
    assert_eq!(tells(&mut watch, 1).await, ["reset a"]);
    token.cancel();
    assert!(watch.stream.next().await.is_none());
}

//! The watch in protobuf against a scripted API server: the same promises as in JSON, and refusals that can be read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::response::Response;
use futures::{StreamExt as _, stream};
use kube::Client;
use kube::runtime::watcher::Config;
use prost::Message as _;
use serve::watch::protobuf::{Protobuf, Versioned};
use serve::watch::{Change, Freshness, Watch, watch};
use tokio_util::sync::CancellationToken;

/// An object, as the server writes it: with a field that the reader does not know.
#[derive(Clone, PartialEq, prost::Message)]
struct Written {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
    #[prost(string, tag = "2")]
    unknown: String,
}

/// The same, as it is read.
#[derive(Clone, PartialEq, prost::Message)]
struct Thing {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Meta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

/// A message with bytes at 2 and texts around it: enough for every envelope.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "1")]
    first: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    second: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    third: String,
    #[prost(string, tag = "4")]
    fourth: String,
    #[prost(int32, tag = "6")]
    sixth: i32,
}

impl Versioned for Thing {
    const KIND: &'static str = "Thing";

    fn resource_version(&self) -> &str {
        self.metadata.as_ref().map_or("", |meta| &meta.resource_version)
    }
}

/// An answer: a status, and its body in pieces. An answer that stays open says nothing more.
struct Answer {
    code: u16,
    pieces: Vec<Vec<u8>>,
    open: bool,
}

impl Answer {
    fn whole(code: u16, body: Vec<u8>) -> Self {
        Self {
            code,
            pieces: vec![body],
            open: false,
        }
    }

    fn events(events: &[Vec<u8>], open: bool) -> Self {
        // three bytes at a time: no piece ends where an event does
        let pieces = events.concat().chunks(3).map(<[u8]>::to_vec).collect();
        Self {
            code: 200,
            pieces,
            open,
        }
    }
}

fn envelope(raw: Vec<u8>) -> Vec<u8> {
    let unknown = Envelope {
        second: vec![raw],
        ..Envelope::default()
    };
    [b"k8s\0".to_vec(), unknown.encode_to_vec()].concat()
}

fn object(name: &str, version: &str) -> Vec<u8> {
    let metadata = Some(Meta {
        name: name.into(),
        resource_version: version.into(),
    });
    let unknown = "not read".to_owned();
    Written { metadata, unknown }.encode_to_vec()
}

fn list(names: &[&str], version: &str, next: &str) -> Answer {
    let meta = Envelope {
        second: vec![version.as_bytes().to_vec()],
        third: next.into(),
        ..Envelope::default()
    };
    let items = names.iter().map(|name| object(name, "1"));
    let list = Envelope {
        first: meta.encode_to_vec(),
        second: items.collect(),
        ..Envelope::default()
    };
    Answer::whole(200, envelope(list.encode_to_vec()))
}

fn event(kind: &str, object: Vec<u8>) -> Vec<u8> {
    let extension = Envelope {
        first: envelope(object),
        ..Envelope::default()
    };
    let event = Envelope {
        first: kind.as_bytes().to_vec(),
        second: vec![extension.encode_to_vec()],
        ..Envelope::default()
    };
    let event = event.encode_to_vec();
    let length = u32::try_from(event.len()).unwrap();
    [length.to_be_bytes().to_vec(), event].concat()
}

fn refusal(code: i32, message: &str) -> Vec<u8> {
    let status = Envelope {
        third: message.into(),
        fourth: "X".into(),
        sixth: code,
        ..Envelope::default()
    };
    status.encode_to_vec()
}

fn start(answers: impl IntoIterator<Item = Answer>) -> (Watch<Thing>, Arc<Mutex<Vec<String>>>) {
    let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::new(Mutex::new(answers.into_iter().collect()));
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let notes = Arc::clone(&asked);
    let router = Router::new().fallback(move |request: Request| {
        assert_eq!(request.headers()[ACCEPT], "application/vnd.kubernetes.protobuf");
        notes.lock().unwrap().push(request.uri().to_string());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some(answer) = answer else {
                return std::future::pending().await;
            };
            let pieces = stream::iter(answer.pieces.into_iter().map(Ok::<_, std::io::Error>));
            let body = match answer.open {
                true => Body::from_stream(pieces.chain(stream::pending())),
                false => Body::from_stream(pieces),
            };
            Response::builder().status(answer.code).body(body).unwrap()
        }
    });
    let things = Protobuf::<Thing>::new(Client::new(router, "default"), "/api/v1/things");
    let watch = watch(things, Config::default().page_size(2), CancellationToken::new());
    (watch, asked)
}

async fn tells(watch: &mut Watch<Thing>, count: usize) -> Vec<String> {
    let name = |thing: &Thing| thing.metadata.clone().unwrap_or_default().name;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(match watch.stream.next().await.unwrap() {
            Change::Reset(things) => {
                let names: Vec<String> = things.iter().map(name).collect();
                format!("reset {}", names.join(" "))
            }
            Change::Apply(thing) => format!("apply {}", name(&thing)),
            Change::Delete(thing) => format!("delete {}", name(&thing)),
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn pages_and_events_are_read_wherever_the_pieces_end() {
    let (mut watch, asked) = start([
        list(&["a", "b"], "10", "page-2"),
        list(&["c"], "10", ""),
        Answer::events(
            &[
                event("ADDED", object("d", "11")),
                event("MODIFIED", object("a", "12")),
                event("DELETED", object("b", "13")),
                event("BOOKMARK", object("", "30")),
            ],
            false,
        ),
        Answer::events(&[event("ADDED", object("e", "31"))], true),
    ]);
    let told = tells(&mut watch, 5).await;
    assert_eq!(told, ["reset a b c", "apply d", "apply a", "delete b", "apply e"]);
    let asked = asked.lock().unwrap();
    assert!(
        asked[0].starts_with("/api/v1/things?") && asked[0].contains("limit=2"),
        "{asked:?}"
    );
    assert!(asked[1].contains("continue=page-2"), "{asked:?}");
    assert!(
        asked[2].contains("watch=true") && asked[2].contains("resourceVersion=10"),
        "{asked:?}"
    );
    assert!(
        asked[3].contains("resourceVersion=30"),
        "the bookmark's version: {asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_new_list_in_both_its_forms() {
    let (mut watch, _) = start([
        list(&["a"], "10", ""),
        Answer::events(&[event("ERROR", refusal(410, "too old resource version"))], false),
        list(&["b"], "20", ""),
        Answer::whole(410, envelope(refusal(410, "too old resource version"))),
        list(&["c"], "30", ""),
    ]);
    assert_eq!(tells(&mut watch, 3).await, ["reset a", "reset b", "reset c"]);
    assert_eq!(*watch.freshness.borrow(), Freshness::Live);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_told_in_words() {
    let json = br#"{"kind": "Status", "status": "Failure", "message": "pods is forbidden", "code": 403}"#;
    let huge = (u32::MAX).to_be_bytes().to_vec();
    let table: [(&str, Vec<Answer>, &str); 7] = [
        (
            "a refusal",
            vec![Answer::whole(403, envelope(refusal(403, "no")))],
            "list: no (403)",
        ),
        (
            "a refusal in JSON",
            vec![Answer::whole(403, json.to_vec())],
            "list: pods is forbidden (403)",
        ),
        (
            "a proxy's page",
            vec![Answer::whole(502, b"Bad Gateway\n".to_vec())],
            "list: Bad Gateway (502)",
        ),
        (
            "JSON",
            vec![Answer::whole(200, b"{}".to_vec())],
            "does not begin with",
        ),
        (
            "half a list",
            vec![Answer::whole(200, b"k8s\0\x12\x7f".to_vec())],
            "is not the protobuf",
        ),
        (
            "no kind of event",
            vec![
                list(&[], "10", ""),
                Answer::events(&[event("NEWS", object("a", "11"))], true),
            ],
            "an event of type \"NEWS\"",
        ),
        (
            "an event that would not end",
            vec![list(&[], "10", ""), Answer::events(&[huge], true)],
            "watch: ",
        ),
    ];
    for (name, answers, expected) in table {
        let (watch, _) = start(answers);
        let Watch {
            mut stream,
            mut freshness,
        } = watch;
        let reads = tokio::spawn(async move { while stream.next().await.is_some() {} });
        let lost = freshness
            .wait_for(|now| matches!(now, Freshness::Lost { .. }))
            .await;
        let lost = lost.unwrap().clone();
        assert!(
            matches!(&lost, Freshness::Lost { why, .. } if why.contains(expected)),
            "{name}: {lost:?}"
        );
        reads.abort();
    }
}

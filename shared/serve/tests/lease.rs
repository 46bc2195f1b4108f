//! The Lease against an API server in memory that keeps the one rule that matters: a write with an old resource
//! version is a conflict. Time is tokio's, paused: hours pass in milliseconds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use kube::Client;
use serde_json::{Value, json};
use serve::lease::Lease;
use serve::tasks::Tasks;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The API server: one Lease, and ways to break things.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    lease: Option<Value>,
    version: u64,
    away: Option<Away>,
    conflicts: u32,
}

#[derive(Clone, Copy)]
enum Away {
    Refuses,
    Hangs,
}

impl Server {
    fn client(&self, through: &Server) -> Client {
        let router = Router::new()
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/ns/leases",
                axum::routing::post(create),
            )
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader",
                get(read).put(replace),
            )
            .with_state((self.clone(), through.clone()));
        Client::new(router, "ns")
    }

    /// A candidate whose way to the server can be broken on its own by the second value.
    fn candidate(&self, identity: &str) -> Running {
        let way = Server::default();
        let token = CancellationToken::new();
        let mut tasks = Tasks::new(token.clone());
        let leading = Lease::new(self.client(&way), "ns", "leader", identity).run(&mut tasks);
        let ended = tokio::spawn(tasks.join());
        Running {
            leading,
            token,
            ended,
            way,
        }
    }

    fn set_away(&self, away: Option<Away>) {
        self.0.lock().unwrap().away = away;
    }

    fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap()["spec"].clone()
    }

    async fn reach(&self) -> Result<(), Response> {
        let away = self.0.lock().unwrap().away;
        match away {
            None => Ok(()),
            Some(Away::Refuses) => Err(refused(StatusCode::INTERNAL_SERVER_ERROR, "away")),
            Some(Away::Hangs) => std::future::pending().await,
        }
    }

    fn store(&self, mut lease: Value) -> Response {
        let mut inner = self.0.lock().unwrap();
        inner.version += 1;
        lease["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        inner.lease = Some(lease.clone());
        Json(lease).into_response()
    }
}

struct Running {
    leading: Receiver<bool>,
    token: CancellationToken,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
    way: Server,
}

impl Running {
    async fn leads(&mut self, wanted: bool) {
        let day = Duration::from_secs(86_400);
        tokio::time::timeout(day, self.leading.wait_for(|leading| *leading == wanted))
            .await
            .unwrap()
            .unwrap();
    }

    fn is_leading(&self) -> bool {
        *self.leading.borrow()
    }

    async fn end(self) {
        self.token.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

fn refused(code: StatusCode, message: &str) -> Response {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        _ => "InternalError",
    };
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": message, "reason": reason});
    (code, Json(status)).into_response()
}

type Both = State<(Server, Server)>;

async fn read(State((server, way)): Both) -> Result<Response, Response> {
    way.reach().await?;
    server.reach().await?;
    let lease = server.0.lock().unwrap().lease.clone();
    Ok(lease.map_or_else(
        || refused(StatusCode::NOT_FOUND, "no such lease"),
        |lease| Json(lease).into_response(),
    ))
}

async fn create(State((server, way)): Both, Json(lease): Json<Value>) -> Result<Response, Response> {
    way.reach().await?;
    server.reach().await?;
    if server.0.lock().unwrap().lease.is_some() {
        server.0.lock().unwrap().conflicts += 1;
        return Err(refused(StatusCode::CONFLICT, "exists"));
    }
    Ok(server.store(lease))
}

async fn replace(State((server, way)): Both, Json(lease): Json<Value>) -> Result<Response, Response> {
    way.reach().await?;
    server.reach().await?;
    let current = server.0.lock().unwrap().version.to_string();
    if lease["metadata"]["resourceVersion"] != json!(current) {
        server.0.lock().unwrap().conflicts += 1;
        return Err(refused(StatusCode::CONFLICT, "changed meanwhile"));
    }
    Ok(server.store(lease))
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_keeps_the_lease_by_renewing_it() {
    let server = Server::default();
    let mut one = server.candidate("one");
    one.leads(true).await;
    let two = server.candidate("two");
    let first = server.spec();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(one.is_leading() && !two.is_leading());
    let later = server.spec();
    assert_eq!(
        (&later["holderIdentity"], &later["leaseTransitions"]),
        (&json!("one"), &json!(0))
    );
    assert_eq!(later["acquireTime"], first["acquireTime"]);
    assert_eq!(later["leaseDurationSeconds"], json!(15));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_at_shutdown_is_taken_at_once() {
    let server = Server::default();
    let mut one = server.candidate("one");
    one.leads(true).await;
    let mut two = server.candidate("two");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = Instant::now();
    let heard = one.leading.clone();
    one.end().await;
    assert!(!*heard.borrow(), "whoever works for the leader is told");
    two.leads(true).await;
    assert!(
        began.elapsed() <= Duration::from_secs(2),
        "took {:?}",
        began.elapsed()
    );
    assert_eq!(
        server.spec()["leaseTransitions"],
        json!(2),
        "given back, then taken"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_steps_down_before_the_other_takes_over() {
    for away in [Away::Refuses, Away::Hangs] {
        let server = Server::default();
        let mut one = server.candidate("one");
        one.leads(true).await;
        let mut two = server.candidate("two");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let cut = Instant::now();
        one.way.set_away(Some(away));
        one.leads(false).await;
        let down = cut.elapsed();
        assert!(!two.is_leading(), "never two at once");
        two.leads(true).await;
        assert!(down <= Duration::from_secs(10), "stepped down after {down:?}");
        assert!(
            cut.elapsed() >= Duration::from_secs(10) && cut.elapsed() <= Duration::from_secs(18),
            "{:?}",
            cut.elapsed()
        );
        // it comes back as a follower
        one.way.set_away(None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!one.is_leading() && two.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_of_others_do_not_matter_only_what_we_see() {
    // a lease that its holder's clock renewed in the year 2000, and goes on renewing
    let server = Server::default();
    let lease = |renewed: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader", "namespace": "ns"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": renewed}
        })
    };
    server.store(lease("2000-01-01T00:00:00.000000Z"));
    let mut one = server.candidate("one");
    for second in 0..12 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!one.is_leading(), "taken after {second} renewals");
        server.store(lease(&format!("2000-01-01T00:00:{second:02}.000000Z")));
    }
    let silent = Instant::now();
    one.leads(true).await;
    assert!(
        silent.elapsed() >= Duration::from_secs(15),
        "{:?}",
        silent.elapsed()
    );
    assert_eq!(server.spec()["leaseTransitions"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn of_many_that_start_at_once_exactly_one_leads() {
    let server = Server::default();
    let candidates: Vec<Running> = (0..20)
        .map(|at| server.candidate(&format!("candidate-{at}")))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        candidates
            .iter()
            .filter(|candidate| candidate.is_leading())
            .count(),
        1
    );
    assert!(server.0.lock().unwrap().conflicts > 0, "they did meet");
}

#[tokio::test(start_paused = true)]
async fn a_restart_under_the_same_name_goes_on_leading() {
    let server = Server::default();
    let mut one = server.candidate("one");
    one.leads(true).await;
    one.ended.abort();
    let began = Instant::now();
    let mut again = server.candidate("one");
    again.leads(true).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(server.spec()["leaseTransitions"], json!(0));
}

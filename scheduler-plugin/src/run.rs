//! The program, wired together: watches and the agents' load fill the index, the extender answers from it, the
//! leader's turns act on it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use kube::Client;
use prometheus_client::registry::Registry;
use serve::admin::Readiness;
use serve::http::Limits;
use serve::lease::Lease;
use serve::tasks::{Tasks, aside};
use shared::names;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::act::Leader;
use crate::act::nominate::Nominate;
use crate::args::Settings;
use crate::clock::Clock;
use crate::http::router::{Extender, router};
use crate::index::Index;
use crate::layout_page;
use crate::metrics::Metrics;
use crate::usage;
use crate::watch::feed;
use crate::writer::Writer;

/// Connections that kube-scheduler may hold open.
const CONNECTIONS: usize = 4_096;
/// How long an idle connection is kept: Go's client keeps them for 90 s.
const IDLE: Duration = Duration::from_secs(120);
/// How long requests under way may take after shutdown began.
const DRAIN: Duration = Duration::from_secs(10);
/// How often readiness is looked at.
const READINESS_TURN: Duration = Duration::from_millis(200);

/// The two clients of the API server.
#[derive(Clone)]
pub struct Clients {
    /// For watches; may try again by itself.
    pub watching: Client,
    /// For writes; reports the first failure.
    pub writing: Client,
}

/// The two sockets.
pub struct Listeners {
    /// For kube-scheduler.
    pub extender: TcpListener,
    /// For metrics and health.
    pub admin: TcpListener,
}

impl Listeners {
    /// Opens both.
    ///
    /// # Errors
    /// An address is taken or not ours.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let extender = TcpListener::bind(settings.extender_address).await;
        let extender = extender
            .with_context(|| format!("--extender-address {} cannot be used", settings.extender_address))?;
        let admin = TcpListener::bind(settings.admin_address).await;
        let admin =
            admin.with_context(|| format!("--admin-address {} cannot be used", settings.admin_address))?;
        Ok(Self { extender, admin })
    }
}

/// Runs until the token is cancelled.
///
/// # Errors
/// A part of the program failed.
pub async fn run(
    settings: Settings,
    clients: Clients,
    listeners: Listeners,
    clock: Clock,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = Tasks::new(token.clone());
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let index = Arc::new(Index::new(clock.clone()));
    let writer = Writer::new(
        clients.writing.clone(),
        settings.write_timeout,
        settings.identity.clone(),
        metrics.clone(),
    );

    feed::start(&mut tasks, &clients.watching, &index);
    usage::start(
        &mut tasks,
        &index,
        settings.usage_token_file,
        &metrics.load,
        &clock,
    );

    let readiness = Readiness::new();
    tasks.spawn(
        "readiness",
        tell_readiness(Arc::clone(&index), readiness.clone(), token.clone()),
    );
    let page = Router::new().route("/layout", get(layout(&index)));
    tasks.spawn(
        "admin",
        serve::admin::serve(
            listeners.admin,
            Arc::new(registry),
            readiness,
            page,
            token.clone(),
        ),
    );

    let extender = Extender {
        index: Arc::clone(&index),
        writer: writer.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        body_limit: settings.body_limit,
    };
    let limits = Limits {
        connections: CONNECTIONS,
        headers: IDLE,
        request: settings.write_timeout * 3,
        body: settings.body_limit,
        drain: DRAIN,
    };
    tasks.spawn(
        "extender",
        serve::http::serve(listeners.extender, router(extender), limits, token.clone()),
    );

    let lease = Lease::new(
        clients.writing,
        settings.lease_namespace,
        names::LEASE,
        settings.identity,
    );
    let leads = lease.run(&mut tasks);
    let nominate = Nominate::new(
        Arc::clone(&index),
        writer.clone(),
        settings.nominate_for,
        settings.nominate_from_nodes,
    );
    tasks.spawn("nominate", nominate.run(leads.clone(), token.clone()));
    tasks.spawn(
        "leader",
        Leader {
            index,
            writer,
            metrics,
            clock,
        }
        .run(leads, token),
    );
    tasks.join().await
}

/// Keeps `/readyz` true: ready while decisions can be made.
async fn tell_readiness(
    index: Arc<Index>,
    readiness: Readiness,
    token: CancellationToken,
) -> anyhow::Result<()> {
    let mut turn = tokio::time::interval(READINESS_TURN);
    loop {
        readiness.set(
            "snapshot",
            index.available().map_err(|unavailable| unavailable.to_string()),
        );
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            _ = turn.tick() => {}
        }
    }
}

fn layout(index: &Arc<Index>) -> impl Fn() -> std::future::Ready<String> + Clone + Send + Sync + 'static {
    let index = Arc::clone(index);
    move || std::future::ready(aside(|| layout_page::draw(&index.view().snapshot)))
}

//! One stream for each node whose agent says where it tells load. An agent that starts anew has another certificate,
//! and so another endpoint: its old stream gives way at once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use shared::policy::LOAD_FOLLOW_MILLISECONDS;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::stream::{Shared, Stream};
use crate::index::Index;
use crate::index::books::Books;
use crate::watch::endpoint::{BadEndpoint, Endpoint};

/// What a GpuNode says of where load is told.
type Told = Option<Result<Endpoint, BadEndpoint>>;

/// What became of a node.
enum News {
    /// It is new, or something else is said of it.
    Told(Told),
    /// It is there no more.
    Gone,
}

/// The streams of all nodes.
pub struct Streams {
    index: Arc<Index>,
    shared: Arc<Shared>,
    /// By node: what its GpuNode says, and the stream opened for it.
    nodes: BTreeMap<Arc<str>, (Told, Option<AbortHandle>)>,
    running: JoinSet<Infallible>,
    /// As of this many changes of who tells load and where.
    endpoints: u64,
}

impl Streams {
    /// No streams yet.
    #[must_use]
    pub fn new(index: Arc<Index>, shared: Arc<Shared>) -> Self {
        Self {
            index,
            shared,
            nodes: BTreeMap::new(),
            running: JoinSet::new(),
            endpoints: 0,
        }
    }

    /// Follows the index until the token is cancelled.
    ///
    /// # Errors
    /// A stream panicked.
    pub async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        // said at the start, not when the first agent is there
        self.shared.token.bearer().await;
        let mut turn = tokio::time::interval(Duration::from_millis(LOAD_FOLLOW_MILLISECONDS));
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                Some(ended) = self.running.join_next() => was_told_to(ended)?,
                _ = turn.tick() => {
                    let endpoints = self.index.read(Books::endpoints);
                    if std::mem::replace(&mut self.endpoints, endpoints) != endpoints {
                        self.keep_up();
                    }
                }
            }
        }
    }

    /// Opens and ends streams as the index says now.
    fn keep_up(&mut self) {
        for (node, news) in self.news() {
            self.end(&node);
            let told = match news {
                News::Told(told) => told,
                News::Gone => {
                    self.shared.loads.forget(&node);
                    continue;
                }
            };
            let stream = match &told {
                Some(Ok(endpoint)) => Some(self.start(&node, *endpoint)),
                Some(Err(bad)) => {
                    tracing::warn!(node = &*node, error = %bad, "load is not followed");
                    None
                }
                None => None,
            };
            self.nodes.insert(node, (told, stream));
        }
    }

    /// Where the index says something else than before.
    fn news(&self) -> Vec<(Arc<str>, News)> {
        self.index.read(|books| {
            let mut news = Vec::new();
            let mut there = 0;
            for (name, part) in books.gpu_nodes() {
                let known = self.nodes.get(name);
                there += usize::from(known.is_some());
                if known.is_none_or(|(told, _)| *told != part.endpoint) {
                    news.push((Arc::from(name), News::Told(part.endpoint.clone())));
                }
            }
            if there < self.nodes.len() {
                let gone = self.nodes.keys().filter(|name| books.gpu_node(name).is_none());
                news.extend(gone.map(|name| (Arc::clone(name), News::Gone)));
            }
            news
        })
    }

    fn start(&mut self, node: &Arc<str>, endpoint: Endpoint) -> AbortHandle {
        self.shared.loads.called(node);
        let stream = Stream {
            node: Arc::clone(node),
            endpoint,
            shared: Arc::clone(&self.shared),
        };
        self.running.spawn(stream.follow())
    }

    fn end(&mut self, node: &str) {
        if let Some((_, Some(stream))) = self.nodes.remove(node) {
            stream.abort();
            self.shared.loads.closed(node);
        }
    }
}

/// Streams end only because they are told to.
fn was_told_to(ended: Result<Infallible, JoinError>) -> anyhow::Result<()> {
    match ended {
        Ok(never) => match never {},
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(error).context("a load stream"),
    }
}

//! A watch that keeps its promise: whole lists or single changes, never half a list, for as long as the program
//! runs. Expired versions (410) lead to a new list, failures to patient retries, and [`Freshness`] tells at any
//! moment whether what was heard is still the truth.
//!
//! ```text
//! list (all pages) -> Reset -> watch -> Apply / Delete ... -> watch again from the last version
//!   ^                                     |
//!   +---- expired version, lost version --+
//! ```

use std::pin::Pin;
use std::time::Duration;

use backon::BackoffBuilder as _;
use futures::stream::unfold;
use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchParams};
use kube::runtime::watcher::Config;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use objects::{Event, Events, Objects};

pub mod objects;
pub mod protobuf;

/// First wait after a failure, doubled up to [`LONGEST_WAIT`], each with jitter.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait: how late the return of an API server may be noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A watch that lasted this long was a good one: waits start small again.
const GOOD_WATCH: Duration = Duration::from_secs(5);
/// How long the API server keeps a watch open when the config does not say.
const WATCH_SECONDS: u32 = 290;
/// A silent connection is given up this long after the server should have closed it.
const SILENCE: Duration = Duration::from_secs(5);
/// An answer to a list that takes longer is given up.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// A watch whose start takes longer is given up.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// What happened to the objects watched.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// These and no others exist.
    Reset(Vec<K>),
    /// This one is new or changed.
    Apply(K),
    /// This one is gone.
    Delete(K),
}

/// Whether what was heard is still the truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Nothing was heard yet.
    Starting,
    /// A watch is open.
    Live,
    /// The API server does not answer.
    Lost {
        /// Since when.
        since: Instant,
        /// What it or the network said.
        why: String,
    },
}

impl Freshness {
    /// How long the API server has been away at `now`; nothing while a watch is open.
    #[must_use]
    pub fn lost_for(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Lost { since, .. } => Some(now.saturating_duration_since(*since)),
            Self::Starting | Self::Live => None,
        }
    }
}

/// A watch under way.
pub struct Watch<K> {
    /// The changes, a [`Change::Reset`] first; ends only at shutdown.
    pub stream: Pin<Box<dyn Stream<Item = Change<K>> + Send>>,
    /// Whether they are up to date. Moves only while the stream is polled.
    pub freshness: Receiver<Freshness>,
}

/// Watches what `config` selects. Of `config` the selectors, the page size, bookmarks and the timeout count.
#[must_use]
pub fn watch<O: Objects>(objects: O, config: Config, token: CancellationToken) -> Watch<O::Object> {
    let (freshness, receiver) = channel(Freshness::Starting);
    let walker = Walker {
        kind: objects.kind(),
        objects,
        config,
        freshness,
        step: Step::List,
        waits: waits(),
        wait: None,
    };
    let stream = unfold((walker, token), |(mut walker, token)| async {
        let change = tokio::select! {
            biased;
            () = token.cancelled() => return None,
            change = walker.next() => change,
        };
        Some((change, (walker, token)))
    });
    Watch {
        stream: stream.boxed(),
        freshness: receiver,
    }
}

/// The walk through the picture above.
struct Walker<O: Objects> {
    kind: String,
    objects: O,
    config: Config,
    freshness: Sender<Freshness>,
    step: Step<O::Object>,
    waits: backon::ExponentialBackoff,
    wait: Option<Duration>,
}

enum Step<K> {
    List,
    Start {
        version: String,
    },
    Watch {
        version: String,
        opened: Instant,
        events: Events<K>,
    },
}

impl<O: Objects> Walker<O> {
    async fn next(&mut self) -> Change<O::Object> {
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            match std::mem::replace(&mut self.step, Step::List) {
                Step::List => {
                    if let Some(all) = self.list().await {
                        return Change::Reset(all);
                    }
                }
                Step::Start { version } => self.start(version).await,
                Step::Watch {
                    version,
                    opened,
                    events,
                } => {
                    if let Some(change) = self.event(version, opened, events).await {
                        return change;
                    }
                }
            }
        }
    }

    async fn list(&mut self) -> Option<Vec<O::Object>> {
        let mut all = Vec::new();
        let mut params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: self.config.page_size,
            ..ListParams::default()
        };
        loop {
            let page = match in_time(LIST_TIMEOUT, self.objects.list(&params)).await {
                Ok(page) => page,
                Err(why) => {
                    self.failed(format!("list: {why}"));
                    return None;
                }
            };
            all.extend(page.items);
            params.continue_token = Some(page.next).filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                if page.version.is_empty() {
                    self.failed("list: the answer has no resource version".to_owned());
                    return None;
                }
                self.step = Step::Start {
                    version: page.version,
                };
                self.live();
                return Some(all);
            }
        }
    }

    async fn start(&mut self, version: String) {
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(self.config.timeout.unwrap_or(WATCH_SECONDS)),
            bookmarks: self.config.bookmarks,
            ..WatchParams::default()
        };
        match in_time(START_TIMEOUT, self.objects.watch(&params, &version)).await {
            Ok(events) => {
                self.step = Step::Watch {
                    version,
                    opened: Instant::now(),
                    events,
                };
                self.live();
            }
            Err(Failure::Expired(why)) => self.expired(&why),
            Err(why) => {
                self.failed(format!("watch: {why}"));
                self.step = Step::Start { version };
            }
        }
    }

    async fn event(
        &mut self,
        mut version: String,
        opened: Instant,
        mut events: Events<O::Object>,
    ) -> Option<Change<O::Object>> {
        let patience = Duration::from_secs(self.config.timeout.unwrap_or(WATCH_SECONDS).into()) + SILENCE;
        let event = match tokio::time::timeout(patience, events.next()).await {
            Ok(Some(event)) => event.map_err(Failure::from),
            Ok(None) if opened.elapsed() >= GOOD_WATCH => {
                self.waits = waits();
                self.step = Step::Start { version };
                return None;
            }
            Ok(None) => Err(Failure::Other("the API server closed it at once".to_owned())),
            Err(_) => Err(Failure::Other(format!("nothing heard for {patience:?}"))),
        };
        let (change, at) = match event {
            Ok(Event::Apply(object, at)) => (Some(Change::Apply(object)), at),
            Ok(Event::Delete(object, at)) => (Some(Change::Delete(object)), at),
            Ok(Event::Bookmark(at)) => (None, at),
            Ok(Event::Error(status)) => {
                match Failure::from(kube::Error::Api(status)) {
                    Failure::Expired(why) => self.expired(&why),
                    why => {
                        self.failed(format!("watch: {why}"));
                        self.step = Step::Start { version };
                    }
                }
                return None;
            }
            Err(Failure::Expired(why)) => {
                self.expired(&why);
                return None;
            }
            Err(why) => {
                self.failed(format!("watch: {why}"));
                self.step = Step::Start { version };
                return None;
            }
        };
        if !at.is_empty() {
            version = at;
        }
        self.waits = waits();
        self.step = Step::Watch {
            version,
            opened,
            events,
        };
        change
    }

    fn live(&self) {
        self.freshness.send_if_modified(|freshness| {
            if let Freshness::Lost { since, .. } = freshness {
                tracing::info!(kind = self.kind, away = ?since.elapsed(), "watch is back");
            }
            let changed = *freshness != Freshness::Live;
            *freshness = Freshness::Live;
            changed
        });
    }

    fn failed(&mut self, why: String) {
        self.wait = Some(self.waits.next().unwrap_or(LONGEST_WAIT));
        self.freshness.send_if_modified(|freshness| {
            let since = match freshness {
                Freshness::Lost { since, why: before } if *before == why => {
                    tracing::debug!(kind = self.kind, why, "watch still lost");
                    *since
                }
                Freshness::Lost { since, .. } => *since,
                Freshness::Starting | Freshness::Live => Instant::now(),
            };
            let lost = Freshness::Lost { since, why };
            let changed = *freshness != lost;
            if changed && let Freshness::Lost { why, .. } = &lost {
                tracing::warn!(kind = self.kind, why, "watch lost");
            }
            *freshness = lost;
            changed
        });
    }

    /// The version is too old to go on from: ordinary after a long silence, so no failure. The wait keeps an API
    /// server that expires everything from being listed in a hot loop.
    fn expired(&mut self, why: &str) {
        tracing::info!(kind = self.kind, why, "watch expired, listing again");
        self.wait = Some(self.waits.next().unwrap_or(LONGEST_WAIT));
        self.step = Step::List;
    }
}

fn waits() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Why a request failed.
#[derive(Debug)]
enum Failure {
    Expired(String),
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Expired(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired(status.message),
            kube::Error::Api(status) => Self::Other(format!("{} ({})", status.message, status.code)),
            other => Self::Other(other.to_string()),
        }
    }
}

async fn in_time<T>(limit: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => Err(Failure::Other(format!("no answer for {limit:?}"))),
    }
}

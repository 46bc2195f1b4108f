//! The pods of this node as the API server tells them: who lives, and where the scheduler wants whom.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serve::watch::{Change, Freshness};
use shared::names::{self, Placements};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::inventory::PodRef;

/// How long a single look at the API server may take while the kubelet waits.
const LOOK: Duration = Duration::from_secs(2);

/// Namespace and name.
pub type Key = (String, String);

/// The pods of this node. Clones share them.
#[derive(Clone)]
pub struct Pods {
    known: Arc<Mutex<Facts>>,
    changed: Arc<Notify>,
    source: Option<(Api<Pod>, String)>,
}

/// What is known at a moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    trust: Trust,
    /// The pods.
    pub pods: BTreeMap<Key, Fact>,
}

/// Whether what is known can be acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// There is no API server.
    #[default]
    NobodyToAsk,
    /// It was not heard yet, or is away.
    Stale,
    /// A watch is open.
    Fresh,
}

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// UID.
    pub uid: String,
    /// All its containers have ended for good.
    pub terminal: bool,
    /// It is being deleted.
    pub ending: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Where the scheduler wants it.
    pub placements: Placements,
}

/// How a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It exists and has not ended.
    Lives,
    /// It has ended, or does not exist.
    Gone,
    /// The API server is away.
    Unknown,
    /// There is no API server.
    NobodyToAsk,
}

impl Pods {
    /// No pods yet. Without a client there is nobody to ask.
    #[must_use]
    pub fn new(client: Option<Client>, node: &str) -> Self {
        let trust = if client.is_some() {
            Trust::Stale
        } else {
            Trust::NobodyToAsk
        };
        let known = Arc::new(Mutex::new(Facts {
            trust,
            pods: BTreeMap::new(),
        }));
        let source = client.map(|client| (Api::all(client), format!("spec.nodeName={node}")));
        Self {
            known,
            changed: Arc::new(Notify::new()),
            source,
        }
    }

    /// What is known now.
    #[must_use]
    pub fn facts(&self) -> Facts {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for news.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether a pod with places is being deleted.
    #[must_use]
    pub fn any_ending(&self) -> bool {
        let facts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        facts.pods.values().any(|pod| pod.ending && !pod.terminal)
    }

    /// The pod and container that the scheduler wants at a device.
    #[must_use]
    pub fn placed_at(&self, id: &str) -> Option<(PodRef, String)> {
        let facts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let live = facts.pods.iter().filter(|(_, pod)| !pod.terminal);
        live.filter_map(|((namespace, name), pod)| {
            let mut containers = pod.placements.0.iter();
            let (container, _) =
                containers.find(|(_, places)| places.iter().any(|place| place.to_string() == id))?;
            let uid = Some(pod.uid.clone());
            Some((
                PodRef {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    uid,
                },
                container.clone(),
            ))
        })
        .next()
    }

    /// Lists once, for a pod that the watch has not told of yet. A look that fails changes nothing.
    pub async fn look(&self) {
        let Some((api, fields)) = &self.source else { return };
        let params = ListParams::default().fields(fields);
        match tokio::time::timeout(LOOK, api.list(&params)).await {
            Ok(Ok(list)) => self.with(|facts| {
                for pod in list.items {
                    facts.pods.insert(key(&pod), Fact::of(&pod));
                }
            }),
            Ok(Err(error)) => tracing::debug!(%error, "pods of this node not listed"),
            Err(_) => tracing::debug!("pods of this node not listed in time"),
        }
    }

    /// Follows the pods of this node until shutdown.
    ///
    /// # Errors
    /// None: a watch that fails is tried again.
    pub async fn follow(self, token: CancellationToken) -> anyhow::Result<()> {
        let Some((api, fields)) = self.source.clone() else {
            token.cancelled().await;
            return Ok(());
        };
        let mut watch = serve::watch::watch(api, watcher::Config::default().fields(&fields), token);
        let mut listed = false;
        loop {
            tokio::select! {
                // first the pods, then that they are the truth: an empty truth would release everything
                biased;
                change = watch.stream.next() => match change {
                    None => return Ok(()),
                    Some(change) => self.with(|facts| match change {
                        Change::Reset(pods) => {
                            facts.pods = pods.iter().map(|pod| (key(pod), Fact::of(pod))).collect();
                            listed = true;
                        }
                        Change::Apply(pod) => drop(facts.pods.insert(key(&pod), Fact::of(&pod))),
                        Change::Delete(pod) => {
                            let key = key(&pod);
                            // a look may already have shown its successor
                            if facts.pods.get(&key).is_some_and(|fact| Some(&fact.uid) == pod.uid().as_ref()) {
                                facts.pods.remove(&key);
                            }
                        }
                    }),
                },
                Ok(()) = watch.freshness.changed() => {
                    let live = *watch.freshness.borrow_and_update() == Freshness::Live && listed;
                    self.with(|facts| facts.trust = if live { Trust::Fresh } else { Trust::Stale });
                }
            }
        }
    }

    fn with(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

impl Facts {
    /// How a pod stands.
    #[must_use]
    pub fn standing(&self, pod: &PodRef) -> Standing {
        match self.trust {
            Trust::NobodyToAsk => Standing::NobodyToAsk,
            Trust::Stale => Standing::Unknown,
            Trust::Fresh => match self.pods.get(&(pod.namespace.clone(), pod.name.clone())) {
                Some(fact) if fact.terminal || pod.uid.as_ref().is_some_and(|uid| *uid != fact.uid) => {
                    Standing::Gone
                }
                Some(_) => Standing::Lives,
                None => Standing::Gone,
            },
        }
    }

    /// UID of a pod.
    #[must_use]
    pub fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.pods
            .get(&(namespace.to_owned(), name.to_owned()))
            .map(|fact| fact.uid.clone())
    }

    /// Live pods in the order in which the kubelet admits them: oldest first.
    #[must_use]
    pub fn by_age(&self) -> Vec<&Fact> {
        let mut live: Vec<_> = self
            .pods
            .iter()
            .filter(|(_, pod)| !pod.terminal && !pod.ending)
            .collect();
        live.sort_by_key(|(key, pod)| (pod.created, *key));
        live.into_iter().map(|(_, pod)| pod).collect()
    }
}

#[cfg(test)]
impl Facts {
    /// Pods as an open watch tells them.
    pub(crate) fn fresh(pods: impl IntoIterator<Item = (Key, Fact)>) -> Self {
        Self {
            trust: Trust::Fresh,
            pods: pods.into_iter().collect(),
        }
    }

    /// An API server that is away.
    pub(crate) fn stale() -> Self {
        Self {
            trust: Trust::Stale,
            pods: BTreeMap::new(),
        }
    }
}

impl Fact {
    fn of(pod: &Pod) -> Self {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let placement = pod.annotations().get(names::ANNOTATION_PLACEMENT);
        let placements = placement.map(|text| text.parse::<Placements>()).transpose();
        Self {
            uid: pod.uid().unwrap_or_default(),
            terminal: matches!(phase, Some("Succeeded" | "Failed")),
            ending: pod.metadata.deletion_timestamp.is_some(),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            placements: placements
                .inspect_err(
                    |error| tracing::warn!(pod = pod.name_any(), %error, "placement of a pod ignored"),
                )
                .unwrap_or_default()
                .unwrap_or_default(),
        }
    }
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

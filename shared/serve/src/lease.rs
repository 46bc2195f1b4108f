//! Who leads, by a Lease object. The object's resource version is the lock: of two who write at once one gets a
//! conflict. A lease counts as expired when *we* have seen it unchanged for its duration, whatever the clocks of
//! others say. A leader that cannot renew steps down before anyone else may take over.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;

/// A candidate for leadership.
#[derive(Clone)]
pub struct Lease {
    /// To the API server; without retries of its own.
    pub client: Client,
    /// Where the Lease object is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Who we are: unique among the candidates.
    pub identity: String,
    /// How long a lease lasts without renewal.
    pub duration: Duration,
    /// How often it is renewed.
    pub renew: Duration,
}

impl Lease {
    /// A candidate with the usual 15 s lease, renewed each 5 s.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            client,
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(5),
        }
    }

    /// Stands for leadership as a part of the program; the receiver says whether we lead. At shutdown it says
    /// false first, then the lease is given back, so that another leads at once.
    #[must_use]
    pub fn run(self, tasks: &mut Tasks) -> Receiver<bool> {
        let (leading, receiver) = channel(false);
        let token = tasks.token();
        let api = Api::namespaced(self.client.clone(), &self.namespace);
        let candidate = Candidate {
            api,
            lease: self,
            leading,
            seen: None,
            held_until: None,
        };
        tasks.spawn("lease", candidate.stand(token));
        receiver
    }
}

struct Candidate {
    api: Api<Object>,
    lease: Lease,
    leading: Sender<bool>,
    /// The lease of another as last seen, and when it was first seen like this.
    seen: Option<(String, Instant)>,
    /// While we lead: when we stop unless a renewal succeeds.
    held_until: Option<Instant>,
}

/// What a look at the lease came to.
enum Turn {
    Ours,
    Theirs { holder: String },
}

impl Candidate {
    async fn stand(mut self, token: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                () = token.cancelled() => break,
                () = self.turn() => {}
            }
            let pause = if self.held_until.is_some() {
                self.lease.renew
            } else {
                self.lease.renew * 2 / 5
            };
            tokio::select! {
                () = token.cancelled() => break,
                () = self.until_next(pause) => {}
            }
        }
        self.held_until = None;
        self.leading.send_replace(false);
        // Also where we do not lead: a write that shutdown cut short may have made the lease ours.
        if let Err(error) = self.release().await {
            tracing::warn!(%error, lease = self.lease.name, "the lease could not be given back; it will expire");
        }
        Ok(())
    }

    /// Waits, but not beyond the end of what we hold.
    async fn until_next(&mut self, pause: Duration) {
        let next = Instant::now() + pause;
        match self.held_until {
            Some(end) if end < next => {
                tokio::time::sleep_until(end).await;
                self.step_down("it could not be renewed in time");
            }
            _ => sleep(pause).await,
        }
    }

    async fn turn(&mut self) {
        // Counted from before the request: the lease runs from when the server wrote it, which is not earlier.
        let asked = Instant::now();
        let patience = asked + self.lease.renew;
        let deadline = self.held_until.map_or(patience, |end| end.min(patience));
        match timeout_at(deadline, self.look(asked)).await {
            Ok(Ok(Turn::Ours)) => {
                // A renewal in hand before others may take over: their clock starts when they see our last write.
                self.held_until = Some(asked + self.lease.duration.saturating_sub(self.lease.renew));
                self.seen = None;
                if !self.leading.send_replace(true) {
                    tracing::info!(lease = self.lease.name, identity = self.lease.identity, "leading");
                }
            }
            Ok(Ok(Turn::Theirs { holder })) => {
                if self.held_until.is_some() {
                    self.step_down(&format!("{holder} has it"));
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, lease = self.lease.name, "the lease could not be read or written");
            }
            Err(_) => tracing::warn!(lease = self.lease.name, "no answer about the lease"),
        }
        if self.held_until.is_some_and(|end| end <= Instant::now()) {
            self.step_down("it could not be renewed in time");
        }
    }

    async fn look(&mut self, now: Instant) -> kube::Result<Turn> {
        let Some(object) = self.api.get_opt(&self.lease.name).await? else {
            return self.written(
                self.api
                    .create(&PostParams::default(), &self.object(None, &self.lease.identity))
                    .await,
            );
        };
        let spec = object.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder != self.lease.identity && !holder.is_empty() {
            let version = object.metadata.resource_version.clone().unwrap_or_default();
            let first_seen = match &self.seen {
                Some((before, since)) if *before == version => *since,
                _ => now,
            };
            self.seen = Some((version, first_seen));
            let lasts = spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok());
            let lasts = lasts.map_or(self.lease.duration, Duration::from_secs);
            if now < first_seen + lasts {
                return Ok(Turn::Theirs { holder });
            }
            tracing::info!(
                lease = self.lease.name,
                holder,
                "the lease has expired, taking it"
            );
        }
        let wanted = self.object(Some(&object), &self.lease.identity);
        self.written(
            self.api
                .replace(&self.lease.name, &PostParams::default(), &wanted)
                .await,
        )
    }

    /// A conflict means that another wrote first: theirs, until the next look.
    fn written(&self, answer: kube::Result<Object>) -> kube::Result<Turn> {
        match answer {
            Ok(_) => Ok(Turn::Ours),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Turn::Theirs {
                holder: "another candidate".into(),
            }),
            Err(error) => Err(error),
        }
    }

    /// The object as it is to be written; `holder` empty gives it back.
    fn object(&self, old: Option<&Object>, holder: &str) -> Object {
        let before = old.and_then(|old| old.spec.clone()).unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let kept = before.holder_identity.as_deref() == Some(holder);
        let seconds = i32::try_from(self.lease.duration.as_secs()).unwrap_or(i32::MAX);
        Object {
            metadata: ObjectMeta {
                name: Some(self.lease.name.clone()),
                namespace: Some(self.lease.namespace.clone()),
                resource_version: old.and_then(|old| old.metadata.resource_version.clone()),
                ..old.map(|old| old.metadata.clone()).unwrap_or_default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                // one second as other clients write it too: who sees an empty holder need not wait at all
                lease_duration_seconds: Some(if holder.is_empty() { 1 } else { seconds }),
                acquire_time: if kept {
                    before.acquire_time
                } else {
                    Some(now.clone())
                },
                renew_time: Some(now),
                lease_transitions: Some(
                    before.lease_transitions.unwrap_or(0) + i32::from(old.is_some() && !kept),
                ),
                ..before
            }),
        }
    }

    async fn release(&self) -> anyhow::Result<()> {
        tokio::time::timeout(self.lease.renew, async {
            let Some(object) = self.api.get_opt(&self.lease.name).await? else {
                return Ok(());
            };
            let holder = object
                .spec
                .as_ref()
                .and_then(|spec| spec.holder_identity.as_deref());
            if holder == Some(self.lease.identity.as_str()) {
                let given_back = self.object(Some(&object), "");
                self.api
                    .replace(&self.lease.name, &PostParams::default(), &given_back)
                    .await?;
                tracing::info!(lease = self.lease.name, "lease given back");
            }
            anyhow::Ok(())
        })
        .await?
    }

    fn step_down(&mut self, why: &str) {
        self.held_until = None;
        if self.leading.send_replace(false) {
            tracing::warn!(lease = self.lease.name, why, "no longer leading");
        }
    }
}

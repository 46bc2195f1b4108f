//! The long-running parts of a program, bound to one fate: when one dies, all end, so that the kubelet starts the
//! program again instead of leaving half of it running. No part is spawned anywhere else.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// How long parts may take to end after shutdown began. Less than the 30 s that the kubelet grants a pod.
const GRACE: Duration = Duration::from_secs(20);

/// Does work that takes milliseconds; what else waits for this thread goes on elsewhere meanwhile.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // no runtime, or one without other threads
        _ => work(),
    }
}

/// The parts of a program.
pub struct Tasks {
    token: CancellationToken,
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// No parts yet; `token` ends them all.
    #[must_use]
    pub fn new(token: CancellationToken) -> Self {
        Self {
            token,
            set: JoinSet::new(),
            names: HashMap::new(),
        }
    }

    /// The token that ends them all.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Starts a part. It is expected to run until the token is cancelled; ending earlier is a failure.
    pub fn spawn<F>(&mut self, name: &'static str, part: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let handle = self.set.spawn(part);
        self.names.insert(handle.id(), name);
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// The first part that failed, panicked or ended before shutdown, by name. A part that does not end within
    /// the grace period is dropped and reported if nothing else went wrong.
    pub async fn join(mut self) -> anyhow::Result<()> {
        let mut first = Ok(());
        while !self.token.is_cancelled() {
            tokio::select! {
                () = self.token.cancelled() => {}
                ended = self.set.join_next_with_id() => match ended {
                    None => return Ok(()),
                    Some(ended) => first = self.judge(ended),
                },
            }
            if first.is_err() {
                self.token.cancel();
            }
        }
        let rest = tokio::time::timeout(GRACE, async {
            while let Some(ended) = self.set.join_next_with_id().await {
                let judged = self.judge(ended);
                if first.is_ok() {
                    first = judged;
                } else if let Err(error) = judged {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "another part failed while shutting down"
                    );
                }
            }
        });
        if rest.await.is_err() {
            self.set.abort_all();
            let names: Vec<_> = self.names.values().copied().collect();
            first = first.and(Err(anyhow!(
                "did not end within {GRACE:?} of shutdown: {}",
                names.join(", ")
            )));
        }
        first
    }

    fn judge(&mut self, ended: Result<(Id, anyhow::Result<()>), JoinError>) -> anyhow::Result<()> {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(anyhow!(error))),
        };
        let name = self.names.remove(&id).unwrap_or("unnamed");
        match result {
            Ok(()) if self.token.is_cancelled() => Ok(()),
            Ok(()) => Err(anyhow!("{name} ended before shutdown")),
            Err(error) => Err(error).with_context(|| format!("{name} failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part that waits for shutdown and then says so.
    async fn patient(
        token: CancellationToken,
        said: tokio::sync::mpsc::UnboundedSender<()>,
    ) -> anyhow::Result<()> {
        token.cancelled().await;
        said.send(()).context("nobody listens")
    }

    async fn outcome(dying: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> (String, bool) {
        let (said, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("patient", patient(tasks.token(), said));
        tasks.spawn("dying", dying);
        let error = tasks.join().await.unwrap_err();
        (format!("{error:#}"), hears.try_recv().is_ok())
    }

    #[tokio::test]
    async fn a_part_that_fails_ends_the_rest_in_good_order() {
        assert_eq!(
            outcome(async { Err(anyhow!("disk full")) }).await,
            ("dying failed: disk full".into(), true)
        );
    }

    #[tokio::test]
    async fn a_part_that_returns_early_counts_as_failed() {
        assert_eq!(
            outcome(async { Ok(()) }).await,
            ("dying ended before shutdown".into(), true)
        );
    }

    #[tokio::test]
    async fn a_part_that_panics_ends_the_rest_and_is_named() {
        let (error, ended_well) = outcome(async { panic!("bad luck") }).await;
        assert!(
            error.starts_with("dying failed:") && error.contains("bad luck"),
            "{error}"
        );
        assert!(ended_well);
    }

    #[tokio::test]
    async fn shutdown_is_no_failure() {
        let (said, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let token = CancellationToken::new();
        let mut tasks = Tasks::new(token.clone());
        tasks.spawn("patient", patient(token.clone(), said));
        token.cancel();
        tasks.join().await.unwrap();
        hears.try_recv().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_end_is_dropped_and_named() {
        let token = CancellationToken::new();
        let mut tasks = Tasks::new(token.clone());
        tasks.spawn("deaf", std::future::pending());
        token.cancel();
        let error = tasks.join().await.unwrap_err().to_string();
        assert_eq!(error, "did not end within 20s of shutdown: deaf");
    }
}

//! Whether what the index says is still the truth: every watch has delivered its whole list once, and none has been
//! away for longer than the policy allows.

use std::collections::BTreeMap;
use std::time::Duration;

/// A kind of object that the index is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the kinds")]
pub enum Source {
    Pods,
    Nodes,
    GpuNodes,
    GpuPools,
}

impl Source {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Pods, Self::Nodes, Self::GpuNodes, Self::GpuPools];

    /// Its resource name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
            Self::GpuNodes => "gpunodes",
            Self::GpuPools => "gpupools",
        }
    }
}

/// Why no decision can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// Some watch has not delivered its list yet.
    #[error("snapshot not loaded: still waiting for the first list of {0}")]
    NotLoaded(String),
    /// The API server has been away for too long.
    #[error(
        "snapshot too old: the watch of {source_name} has been lost for {lost_seconds} s ({why}), allowed is {allowed_seconds} s (policy.snapshotTtlSeconds)"
    )]
    TooOld {
        /// Which watch.
        source_name: &'static str,
        /// For how long.
        lost_seconds: u64,
        /// What the API server or the network said.
        why: String,
        /// How long is allowed.
        allowed_seconds: u64,
    },
}

impl Unavailable {
    /// Short and stable, for a metric label.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotLoaded(_) => "NotLoaded",
            Self::TooOld { .. } => "TooOld",
        }
    }
}

/// The state of every watch.
#[derive(Debug, Default)]
pub struct Sources {
    states: BTreeMap<Source, State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    loaded: bool,
    lost: Option<(Duration, String)>,
}

impl Sources {
    /// A watch delivered its whole list.
    pub fn loaded(&mut self, source: Source) {
        self.states.entry(source).or_default().loaded = true;
    }

    /// A watch was lost at `now`, or still is.
    pub fn lost(&mut self, source: Source, now: Duration, why: &str) {
        let state = self.states.entry(source).or_default();
        let since = state.lost.as_ref().map_or(now, |(since, _)| *since);
        state.lost = Some((since, why.to_owned()));
    }

    /// A watch is open.
    pub fn live(&mut self, source: Source) {
        self.states.entry(source).or_default().lost = None;
    }

    /// For how long the watch that has been away longest has been away.
    #[must_use]
    pub fn age(&self, now: Duration) -> Duration {
        self.longest_lost()
            .map_or(Duration::ZERO, |(_, since, _)| now.saturating_sub(since))
    }

    /// Whether decisions can be made.
    ///
    /// # Errors
    /// [`Unavailable`] says why not.
    pub fn check(&self, now: Duration, ttl: Duration) -> Result<(), Unavailable> {
        let missing: Vec<&str> = Source::ALL
            .into_iter()
            .filter(|source| !self.states.get(source).is_some_and(|state| state.loaded))
            .map(Source::name)
            .collect();
        if !missing.is_empty() {
            let why = self
                .longest_lost()
                .map(|(_, _, why)| format!(" ({why})"))
                .unwrap_or_default();
            return Err(Unavailable::NotLoaded(missing.join(", ") + &why));
        }
        match self.longest_lost() {
            Some((source, since, why)) if now.saturating_sub(since) > ttl => Err(Unavailable::TooOld {
                source_name: source.name(),
                lost_seconds: now.saturating_sub(since).as_secs(),
                why: why.to_owned(),
                allowed_seconds: ttl.as_secs(),
            }),
            _ => Ok(()),
        }
    }

    fn longest_lost(&self) -> Option<(Source, Duration, &str)> {
        let lost = self.states.iter().filter_map(|(source, state)| {
            state
                .lost
                .as_ref()
                .map(|(since, why)| (*source, *since, why.as_str()))
        });
        lost.min_by_key(|(_, since, _)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn nothing_is_answered_before_every_list_is_there() {
        let mut sources = Sources::default();
        sources.loaded(Source::Pods);
        sources.loaded(Source::GpuNodes);
        let refused = sources.check(at(0), TTL).unwrap_err().to_string();
        assert_eq!(
            refused,
            "snapshot not loaded: still waiting for the first list of nodes, gpupools"
        );
        Source::ALL.into_iter().for_each(|source| sources.loaded(source));
        assert_eq!(sources.check(at(0), TTL), Ok(()));
    }

    #[test]
    fn the_last_snapshot_serves_until_its_time_is_up() {
        let mut sources = Sources::default();
        Source::ALL.into_iter().for_each(|source| sources.loaded(source));
        sources.lost(Source::Pods, at(100), "connection refused");
        sources.lost(Source::Pods, at(150), "still refused");
        assert_eq!(sources.check(at(160), TTL), Ok(()));
        assert_eq!(sources.age(at(160)), at(60));
        let refused = sources.check(at(161), TTL).unwrap_err().to_string();
        assert_eq!(
            refused,
            "snapshot too old: the watch of pods has been lost for 61 s (still refused), allowed is 60 s (policy.snapshotTtlSeconds)"
        );
        sources.live(Source::Pods);
        assert_eq!(sources.check(at(1_000), TTL), Ok(()));
    }
}

//! Every "no": a typed value with a short code and a sentence. Events, extender answers, metrics and the simulator
//! print the same values.

use std::collections::BTreeMap;
use std::fmt;

use crate::snapshot::request::BadRequest;

/// Why one GPU cannot take a request. Ordered as a person wants to read them: first what will pass, then what
/// somebody decided, then what will never fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Smaller slices leave no window for it.
    SmallerSlices,
    /// It is full.
    Full,
    /// Its node runs in static mode and no idle slice of the profile is there.
    NoIdleSlice,
    /// Kept out of placement by `GpuNode.spec.withhold`.
    Withheld,
    /// Its node is paused.
    Paused,
    /// kube-scheduler ruled its node out before it asked us (taints, affinity, CPU, memory).
    RuledOut,
    /// The node's agent is away or not ready.
    AgentAway,
    /// The GPU is suspect, broken or recovering.
    Unhealthy,
    /// MIG mode is off, and a slice is asked.
    MigOff,
    /// MIG mode is on, and a whole GPU is asked.
    MigOn,
    /// This kind of board has no such profile.
    NoSuchProfile,
    /// The request is larger than the GPU or its node.
    TooLarge,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::SmallerSlices,
        Self::Full,
        Self::NoIdleSlice,
        Self::Withheld,
        Self::Paused,
        Self::RuledOut,
        Self::AgentAway,
        Self::Unhealthy,
        Self::MigOff,
        Self::MigOn,
        Self::NoSuchProfile,
        Self::TooLarge,
    ];

    /// Short and stable, for metrics and for looking it up in the README.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::SmallerSlices => "SmallerSlices",
            Self::Full => "Full",
            Self::NoIdleSlice => "NoIdleSlice",
            Self::Withheld => "Withheld",
            Self::Paused => "Paused",
            Self::RuledOut => "RuledOut",
            Self::AgentAway => "AgentAway",
            Self::Unhealthy => "Unhealthy",
            Self::MigOff => "MigOff",
            Self::MigOn => "MigOn",
            Self::NoSuchProfile => "NoSuchProfile",
            Self::TooLarge => "TooLarge",
        }
    }

    /// What it says after a number of GPUs: "6 hold smaller slices".
    #[must_use]
    pub const fn phrase(self, one: bool) -> &'static str {
        match (self, one) {
            (Self::SmallerSlices, true) => "holds smaller slices",
            (Self::SmallerSlices, false) => "hold smaller slices",
            (Self::Full, _) => "full",
            (Self::NoIdleSlice, _) => "static without an idle slice of it",
            (Self::Withheld, _) => "withheld",
            (Self::Paused, _) => "on paused nodes",
            (Self::RuledOut, _) => "on nodes that kube-scheduler ruled out",
            (Self::AgentAway, _) => "on nodes whose agent is not ready",
            (Self::Unhealthy, _) => "unhealthy",
            (Self::MigOff, _) => "not in MIG mode",
            (Self::MigOn, _) => "in MIG mode",
            (Self::NoSuchProfile, true) => "has no such profile",
            (Self::NoSuchProfile, false) => "have no such profile",
            (Self::TooLarge, _) => "too small for the whole request",
        }
    }

    /// Whether room could come back: pods may end, a person may change their mind, an agent may return. If no GPU
    /// has such a reason, waiting and preemption are in vain.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        !matches!(
            self,
            Self::MigOff | Self::MigOn | Self::NoSuchProfile | Self::TooLarge
        )
    }
}

/// Why a pod was placed nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Counted over all GPUs: `0/8 GPUs can take 7g.80gb: 6 hold smaller slices, 2 withheld`.
    NoRoom {
        /// The request in words.
        asked: String,
        /// GPUs by reason.
        gpus: BTreeMap<Reason, usize>,
    },
    /// The request itself is wrong.
    Bad(BadRequest),
}

impl Refusal {
    /// Whether waiting may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            // a pool without any GPU yet may get some
            Self::NoRoom { gpus, .. } => gpus.is_empty() || gpus.keys().any(|reason| reason.may_pass()),
            Self::Bad(_) => false,
        }
    }

    /// The code of the reason that most GPUs have, for a metric label.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoRoom { gpus, .. } => {
                let most = gpus
                    .iter()
                    .max_by_key(|(reason, count)| (**count, std::cmp::Reverse(**reason)));
                most.map_or("NoGpus", |(reason, _)| reason.code())
            }
            Self::Bad(_) => "BadRequest",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(bad) => bad.fmt(f),
            Self::NoRoom { asked, gpus } if gpus.is_empty() => {
                write!(
                    f,
                    "0/0 GPUs can take {asked}: no node with a migpool agent has GPUs"
                )
            }
            Self::NoRoom { asked, gpus } => {
                let total: usize = gpus.values().sum();
                write!(f, "0/{total} GPUs can take {asked}: ")?;
                for (at, (reason, count)) in gpus.iter().enumerate() {
                    write!(
                        f,
                        "{}{count} {}",
                        if at > 0 { ", " } else { "" },
                        reason.phrase(*count == 1)
                    )?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_a_sentence_with_gpu_counts() {
        let gpus = [(Reason::SmallerSlices, 6), (Reason::Withheld, 2)].into();
        let refusal = Refusal::NoRoom {
            asked: "7g.80gb".into(),
            gpus,
        };
        assert_eq!(
            refusal.to_string(),
            "0/8 GPUs can take 7g.80gb: 6 hold smaller slices, 2 withheld"
        );
        assert_eq!(refusal.code(), "SmallerSlices");
        assert!(refusal.may_pass());
    }

    #[test]
    fn waiting_is_in_vain_where_no_board_has_the_profile() {
        let gpus = [(Reason::NoSuchProfile, 8)].into();
        assert!(
            !Refusal::NoRoom {
                asked: "1g.99gb".into(),
                gpus
            }
            .may_pass()
        );
    }

    #[test]
    fn codes_are_one_each() {
        let codes: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
    }
}

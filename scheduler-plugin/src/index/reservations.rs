//! Places held for pods between decision and proof. Keyed by pod UID: a later decision for the same pod replaces
//! the earlier one, and no lock on a node ever waits for somebody who died.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::names::Placements;

use crate::writer::PodRef;

/// A place held for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// For whom.
    pub pod: PodRef,
    /// On which node.
    pub node: String,
    /// Which places; none where only whole GPUs are asked for, which the kubelet chooses.
    pub placements: Placements,
    /// How sure it is.
    pub state: State,
    /// Since when it is in this state, steady time.
    pub since: Duration,
}

/// How sure a reservation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The leader planned it; the nomination is not written yet. Gives way to a pod that kube-scheduler has come to,
    /// and expires.
    Planned,
    /// The nomination is written, and kube-scheduler has not come to the pod yet. Gives way and expires as well.
    Nominated,
    /// Filter answered with the node; nothing is written. Expires.
    Tentative,
    /// The Binding is on its way.
    Binding,
    /// The Binding was sent and nobody knows what became of it. Expires: by then the API server has done it, and
    /// the watch has told, or it never will.
    Unknown,
    /// Its pod was refused by the kubelet; kept for the replacement that its controller makes. Expires.
    Left,
    /// The Binding was accepted; ends when the watch shows the pod on its node.
    Bound,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Planned,
        Self::Nominated,
        Self::Tentative,
        Self::Binding,
        Self::Unknown,
        Self::Left,
        Self::Bound,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Nominated => "nominated",
            Self::Tentative => "tentative",
            Self::Binding => "binding",
            Self::Unknown => "unknown",
            Self::Left => "left",
            Self::Bound => "bound",
        }
    }

    /// Whether it is only a hint, behind a nomination.
    #[must_use]
    pub const fn is_hint(self) -> bool {
        matches!(self, Self::Planned | Self::Nominated)
    }
}

/// All reservations.
#[derive(Debug, Default)]
pub struct Reservations {
    by_uid: BTreeMap<String, Reservation>,
    on: BTreeMap<String, BTreeSet<String>>,
    counts: BTreeMap<State, usize>,
}

impl Reservations {
    /// The reservation of a pod.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Reservation> {
        self.by_uid.get(uid)
    }

    /// All on a node, by UID.
    pub fn on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Reservation> {
        self.on
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|uid| self.by_uid.get(uid))
    }

    /// All hints, by UID.
    pub fn hints(&self) -> impl Iterator<Item = &Reservation> {
        self.by_uid.values().filter(|held| held.state.is_hint())
    }

    /// How many are in a state.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.counts.get(&state).copied().unwrap_or(0)
    }

    /// Holds places for a pod; what was held for it before is free and returned.
    pub fn put(&mut self, reservation: Reservation) -> Option<Reservation> {
        let uid = reservation.pod.uid.clone();
        let before = self.remove(&uid);
        self.on
            .entry(reservation.node.clone())
            .or_default()
            .insert(uid.clone());
        *self.counts.entry(reservation.state).or_default() += 1;
        self.by_uid.insert(uid, reservation);
        before
    }

    /// Frees what is held for a pod.
    pub fn remove(&mut self, uid: &str) -> Option<Reservation> {
        let gone = self.by_uid.remove(uid)?;
        self.uncount(gone.state);
        if let Some(uids) = self.on.get_mut(&gone.node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.on.remove(&gone.node);
            }
        }
        Some(gone)
    }

    /// Changes the state of a pod's reservation, if it has one.
    pub fn set_state(&mut self, uid: &str, state: State, now: Duration) {
        if let Some(reservation) = self.by_uid.get_mut(uid) {
            let before = std::mem::replace(&mut reservation.state, state);
            reservation.since = now;
            self.uncount(before);
            *self.counts.entry(state).or_default() += 1;
        }
    }

    fn uncount(&mut self, state: State) {
        if let Some(count) = self.counts.get_mut(&state) {
            *count -= 1;
        }
    }

    /// Frees those that nobody confirmed and that are older than `ttl`.
    pub fn expire(&mut self, now: Duration, ttl: Duration) -> Vec<Reservation> {
        self.remove_if(|reservation| {
            !matches!(reservation.state, State::Binding | State::Bound)
                && now.saturating_sub(reservation.since) > ttl
        })
    }

    /// Frees those that `gone` picks.
    pub fn remove_if(&mut self, gone: impl Fn(&Reservation) -> bool) -> Vec<Reservation> {
        let uids: Vec<String> = self
            .by_uid
            .iter()
            .filter(|(_, held)| gone(held))
            .map(|(uid, _)| uid.clone())
            .collect();
        uids.iter().filter_map(|uid| self.remove(uid)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(uid: &str, node: &str, state: State, since: u64) -> Reservation {
        Reservation {
            pod: PodRef {
                namespace: "ns".into(),
                name: uid.into(),
                uid: uid.into(),
            },
            node: node.into(),
            placements: Placements::default(),
            state,
            since: Duration::from_secs(since),
        }
    }

    #[test]
    fn a_later_decision_for_a_pod_replaces_the_earlier_one() {
        let mut all = Reservations::default();
        assert_eq!(all.put(held("u", "a", State::Tentative, 0)), None);
        assert_eq!(all.put(held("u", "b", State::Tentative, 1)).unwrap().node, "a");
        assert_eq!((all.on("a").count(), all.on("b").count()), (0, 1));
        assert_eq!(all.remove("u").unwrap().node, "b");
        assert_eq!(all.on("b").count(), 0);
    }

    #[test]
    fn only_what_was_never_confirmed_expires() {
        let mut all = Reservations::default();
        for state in State::ALL {
            all.put(held(state.code(), "a", state, 10));
        }
        let ttl = Duration::from_secs(60);
        assert!(all.expire(Duration::from_secs(70), ttl).is_empty());
        let gone: Vec<_> = all
            .expire(Duration::from_secs(71), ttl)
            .into_iter()
            .map(|held| held.state)
            .collect();
        assert_eq!(
            gone,
            [
                State::Left,
                State::Nominated,
                State::Planned,
                State::Tentative,
                State::Unknown
            ]
        );
        assert_eq!((all.count(State::Binding), all.count(State::Bound)), (1, 1));
    }
}

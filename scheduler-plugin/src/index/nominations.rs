//! What the leader plans for pods that kube-scheduler has not reached yet: who waits, the hold behind a nomination,
//! and how nominations end. A nomination is a hint. Whoever kube-scheduler comes to first gets the room
//! ([`super::holding`]), and a nomination that came to nothing rests, so that a wrong plan is not made over and over.
//! A pod without a nomination costs kube-scheduler a look at every node, so it is held back for a moment when
//! nominations are being written for the pods right before it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shared::decide::nominate::{Pending, Seats};
use shared::policy::{HELD_BACK_MICROSECONDS_PER_NODE, NOMINATION_LEAD, NOMINATION_REST_SECONDS};
use shared::snapshot::Request;

use super::Index;
use super::binding::could_give;
use super::books::Books;
use super::fresh::Without;
use super::reservations::{Reservation, State};
use crate::watch::nominated::Nominated;
use crate::watch::pods::PodPart;
use crate::watch::rules::NodeRules;
use crate::writer::PodRef;

/// How nominations ended.
#[derive(Debug, Default)]
pub struct Nominations {
    /// Nodes that kube-scheduler did not offer to the pod nominated there -> until when nobody is.
    avoided: BTreeMap<String, Duration>,
    /// UIDs of pods whose nomination came to nothing -> until when they are not nominated.
    resting: BTreeMap<String, Duration>,
}

/// A pod that waits for a node and has not been reached.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Which pod.
    pub pod: PodRef,
    /// What it asks, and what is held for it.
    pub pending: Pending,
    /// Where it may go.
    pub rules: NodeRules,
    /// The nomination that is written on it.
    pub nominated: Option<Nominated>,
    /// It may be nominated; else the plan only leaves it room.
    pub may_be_nominated: bool,
}

impl Nominations {
    /// A pod's nomination came to nothing.
    pub fn rest(&mut self, uid: &str, now: Duration) {
        self.resting.insert(uid.to_owned(), until(now));
    }

    /// Forgets what is over.
    pub fn tidy(&mut self, now: Duration) {
        self.avoided.retain(|_, until| *until > now);
        self.resting.retain(|_, until| *until > now);
    }

    /// Forgets a pod that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.resting.remove(uid);
    }

    fn rests(&self, uid: &str, now: Duration) -> bool {
        self.resting.get(uid).is_some_and(|until| *until > now)
    }

    fn avoids(&self, node: &str, now: Duration) -> bool {
        self.avoided.get(node).is_some_and(|until| *until > now)
    }
}

fn until(now: Duration) -> Duration {
    now + Duration::from_secs(NOMINATION_REST_SECONDS)
}

impl Books {
    /// Kube-scheduler did not offer the node that a pod was nominated to: something keeps the pod away that only it
    /// knows, and the next one may fare no better.
    pub fn passed_over(&mut self, held: &Reservation, now: Duration) {
        self.nominations.avoided.insert(held.node.clone(), until(now));
        self.nominations.rest(&held.pod.uid, now);
    }

    fn waiting(&self, uid: &str, turn: u64, schedulers: &[String], now: Duration) -> Option<Waiting> {
        let part = self.pods.get(uid)?;
        let request = part.request.as_ref().ok()?;
        let held = self.reservations.get(uid);
        let reached = held.is_some_and(|held| !held.state.is_hint());
        let waits = !part.deleting && !part.ended && !part.gated && schedulers.contains(&part.scheduler);
        if reached || !waits || !slices_only(request) {
            return None;
        }
        let seats = held.map(|held| Seats {
            node: held.node.as_str().into(),
            placements: held.placements.clone(),
        });
        Some(Waiting {
            pod: part.pod.clone(),
            may_be_nominated: self.may_be_nominated(part, now),
            pending: Pending {
                owner: part.pod.owner(),
                request: request.clone(),
                priority: part.priority,
                turn,
                alike: 0,
                held: seats,
            },
            rules: part.rules.clone(),
            nominated: part.nominated.clone(),
        })
    }

    fn may_be_nominated(&self, part: &PodPart, now: Duration) -> bool {
        let free = part.nominated.as_ref().is_none_or(|nominated| nominated.ours);
        free && !part.rules.soft && !part.rules.beyond && !self.nominations.rests(&part.pod.uid, now)
    }
}

/// Whole GPUs are the kubelet's to choose: there is no place to hold.
fn slices_only(request: &Request) -> bool {
    !request.is_empty() && request.wants.iter().all(|want| want.profile.is_some())
}

impl Index {
    /// The pods that wait for one of these schedulers and have not been reached.
    #[must_use]
    pub fn waiting(&self, schedulers: &[String]) -> Vec<Waiting> {
        let now = self.clock.steady();
        self.read(|books| {
            let queue = books.queue.iter();
            queue
                .filter_map(|(uid, turn)| books.waiting(uid, turn, schedulers, now))
                .collect()
        })
    }

    /// Whether a pod with these rules may be nominated to a node.
    #[must_use]
    pub fn may_go(&self, rules: &NodeRules, node: &str) -> bool {
        let now = self.clock.steady();
        self.read(|books| {
            !books.nominations.avoids(node, now) && books.node(node).is_some_and(|node| rules.allow(node))
        })
    }

    /// Holds the planned places for a pod, if kube-scheduler has not come to it and they are still free.
    pub fn nominate(&self, pod: &PodRef, seats: &Seats) -> bool {
        let mut books = self.books();
        let held = books.reservations.get(&pod.uid).map(|held| held.state);
        let waits = books
            .pods
            .get(&pod.uid)
            .filter(|part| part.node.is_none() && !part.deleting);
        let Some(Ok(request)) = waits.map(|part| part.request.clone()) else {
            return false;
        };
        if held.is_some_and(|state| !state.is_hint()) {
            return false;
        }
        let built = books.built(&seats.node, Without::Pod(&pod.uid));
        let right = built.is_some_and(|built| could_give(built.node, &request, &seats.placements));
        if right {
            books.reserve(Reservation {
                pod: pod.clone(),
                node: seats.node.to_string(),
                placements: seats.placements.clone(),
                state: State::Planned,
                since: self.clock.steady(),
            });
            drop(books);
            self.outdate();
        }
        right
    }

    /// The nomination of a pod is written.
    pub fn announce(&self, uid: &str) {
        let now = self.clock.steady();
        let mut books = self.books();
        let held = books.reservations.get(uid).map(|held| held.state);
        if held == Some(State::Planned) {
            books.reservations.set_state(uid, State::Nominated, now);
            drop(books);
            self.changed.send_modify(|revision| *revision += 1);
        }
    }

    /// The leader makes a plan, or has made it.
    pub fn planning(&self, now: bool) {
        self.planning.store(now, Ordering::Release);
    }

    /// How long kube-scheduler may be held back because it is about to overtake the planner; `None` where it is not.
    #[must_use]
    pub fn close_to_the_planner(&self) -> Option<Duration> {
        let planning = self.planning.load(Ordering::Acquire);
        self.read(|books| {
            let (planned, nominated) = (
                books.reservations.count(State::Planned),
                books.reservations.count(State::Nominated),
            );
            let nodes = u64::try_from(books.nodes.len()).unwrap_or(u64::MAX);
            let longest = Duration::from_micros(nodes.saturating_mul(HELD_BACK_MICROSECONDS_PER_NODE));
            ((planning || planned > 0) && nominated < NOMINATION_LEAD).then_some(longest)
        })
    }

    /// Frees what a nomination holds, and lets the pod rest; one that was reached meanwhile keeps what it has.
    pub fn withdraw(&self, uid: &str) {
        let now = self.clock.steady();
        let mut books = self.books();
        books.nominations.rest(uid, now);
        if books
            .reservations
            .get(uid)
            .is_some_and(|held| held.state.is_hint())
        {
            books.release(uid);
            drop(books);
            self.outdate();
        }
    }

    /// The node on which a nomination still holds something for a pod.
    #[must_use]
    pub fn nominated(&self, uid: &str) -> Option<String> {
        self.read(|books| {
            let held = books.reservations.get(uid)?;
            held.state.is_hint().then(|| held.node.clone())
        })
    }

    /// Whether kube-scheduler has come to a pod, so that its nomination is not ours to change any more.
    #[must_use]
    pub fn is_reached(&self, uid: &str) -> bool {
        self.read(|books| {
            let held = books.reservations.get(uid);
            held.is_some_and(|held| !held.state.is_hint())
                || books.pods.get(uid).is_none_or(|part| part.node.is_some())
        })
    }
}

#[cfg(test)]
mod tests;

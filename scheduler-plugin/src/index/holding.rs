//! Filter's step: what was decided about a pod before, and the choice of a node with the places on it held, under
//! one lock. What is only planned for other pods gives way: kube-scheduler has come to this one.

use std::sync::Arc;

use shared::decide::check::check;
use shared::decide::place::{Rank, on_node};
use shared::names::Placements;
use shared::snapshot::{Node, NodeState, Request};

use super::Index;
use super::binding::{snapshot_of, takes_all};
use super::books::Books;
use super::fresh::Without;
use super::reservations::{Reservation, State};
use crate::http::node_names::NodeNames;
use crate::writer::PodRef;

/// What was decided about a pod before it is filtered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nothing that still counts.
    Nothing,
    /// Its place was planned on this node, which is offered now; it is held for it.
    Planned(String),
    /// It is on this node, or a Binding to it was sent: no other node may be answered.
    On(String),
}

/// A node with the places held on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the node.
    pub node: String,
    /// The places.
    pub placements: Placements,
}

impl Index {
    /// Starts a decision for a pod among nodes: what was held for it tentatively is free again, what was planned for
    /// it holds if it still can, and what cannot be taken back any more is said.
    pub fn begin_filter(&self, pod: &PodRef, request: &Request, names: &NodeNames) -> Earlier {
        let mut books = self.books();
        if let Some(node) = books.pods.get(&pod.uid).and_then(|known| known.node.clone()) {
            return Earlier::On(node);
        }
        let Some(held) = books.reservations.get(&pod.uid).cloned() else {
            return Earlier::Nothing;
        };
        match held.state {
            State::Planned | State::Nominated
                if names.contains(&held.node) && books.still_right(&held, request) =>
            {
                let now = self.clock.steady();
                books.reservations.set_state(&pod.uid, State::Tentative, now);
                Earlier::Planned(held.node)
            }
            State::Planned | State::Nominated | State::Tentative => {
                if held.state.is_hint() && !names.contains(&held.node) {
                    books.passed_over(&held, self.clock.steady());
                }
                books.release(&pod.uid);
                drop(books);
                self.outdate();
                Earlier::Nothing
            }
            State::Binding | State::Unknown | State::Left | State::Bound => Earlier::On(held.node),
        }
    }

    /// Holds for a pod the best places of the best node among those offered; `None` where none has room.
    pub fn hold_best(&self, pod: &PodRef, request: &Request, names: &NodeNames) -> Option<Held> {
        let now = self.clock.steady();
        let mut books = self.books();
        let mut offered = names.offered();
        let best = books.best(request, |node| offered.contains(node));
        let (node, placements) = match best {
            Some((node, tables)) => {
                let placements = on_node(&node, request, &tables)?.placements;
                (node, placements)
            }
            None => books.give_way(request, |node| offered.contains(node))?,
        };
        books.reserve(Reservation {
            pod: pod.clone(),
            node: node.name.clone(),
            placements: placements.clone(),
            state: State::Tentative,
            since: now,
        });
        drop(books);
        self.outdate();
        Some(Held {
            node: node.name.clone(),
            placements,
        })
    }

    /// The node on which something is held for a pod, as it would be without that.
    #[must_use]
    pub fn without(&self, uid: &str) -> Option<Node> {
        let books = self.books();
        let held = books.reservations.get(uid)?;
        Some(books.built(&held.node, Without::Pod(uid))?.node)
    }
}

impl Books {
    /// Whether what is held for a pod could be given to it now.
    fn still_right(&self, held: &Reservation, request: &Request) -> bool {
        let built = self.built(&held.node, Without::Pod(&held.pod.uid));
        let ready = built.filter(|built| built.node.state == NodeState::Ready);
        ready.is_some_and(|built| {
            let alone = snapshot_of(built.node);
            check(&alone, &held.node, request, &held.placements).is_ok()
                && takes_all(&alone, &held.node, &held.placements)
        })
    }

    /// The best node and places that there would be if nothing were planned; the plans in the way are dropped.
    fn give_way(
        &mut self,
        request: &Request,
        mut offered: impl FnMut(&str) -> bool,
    ) -> Option<(Arc<Node>, Placements)> {
        let planned = self.reservations.hints();
        let mut nodes: Vec<String> = planned.map(|held| held.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut best: Option<(Rank, Node, Placements)> = None;
        for name in nodes {
            if !offered(&name) {
                continue;
            }
            let Some(built) = self.built(&name, Without::Nominations) else {
                continue;
            };
            // of equal ranks the first name stays
            if let Some(chosen) = on_node(&built.node, request, &self.tables)
                && best.as_ref().is_none_or(|(rank, _, _)| chosen.rank < *rank)
            {
                best = Some((chosen.rank, built.node, chosen.placements));
            }
        }
        let (_, node, placements) = best?;
        let name = node.name.clone();
        let mut alone = snapshot_of(node);
        let node = Arc::clone(alone.nodes.get(name.as_str())?);
        // what still fits beside the pod stays planned
        let somebody = PodRef::default().owner();
        let _taken = alone.assume(&name, &placements, &somebody).ok()?;
        let planned: Vec<Reservation> = self
            .reservations
            .on(&name)
            .filter(|held| held.state.is_hint())
            .cloned()
            .collect();
        for held in planned {
            if alone.assume(&name, &held.placements, &somebody).is_err() {
                tracing::debug!(pod = %held.pod, node = name, "its nomination gives way");
                self.release(&held.pod.uid);
            }
        }
        Some((node, placements))
    }
}

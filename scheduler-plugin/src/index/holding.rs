//! Filter's step: what was decided about a pod before, and the choice of a node with the places on it held, under
//! one lock. What is only planned for other pods gives way: kube-scheduler has come to this one.

use std::collections::BTreeSet;
use std::sync::Arc;

use shared::decide::place::{on_node, rank};
use shared::names::Placements;
use shared::snapshot::{Node, Request, Snapshot};

use super::Index;
use super::binding::could_give;
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
                // asked about one node alone, which may be an older nomination, it says nothing of the others
                let many = names.only().is_none();
                if held.state.is_hint() && many && !names.contains(&held.node) {
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
        built.is_some_and(|built| could_give(built.node, request, &held.placements))
    }

    /// The best node and places that there would be if nothing were planned; the plans in the way are dropped.
    fn give_way(
        &mut self,
        request: &Request,
        mut offered: impl FnMut(&str) -> bool,
    ) -> Option<(Arc<Node>, Placements)> {
        let planned = self.reservations.hints().map(|held| held.node.as_str());
        let planned: BTreeSet<&str> = planned.filter(|node| offered(node)).collect();
        let without = planned
            .iter()
            .filter_map(|node| Some(self.built(node, Without::Nominations)?.node));
        let mut snapshot = Snapshot {
            nodes: without
                .map(|node| (node.name.as_str().into(), Arc::new(node)))
                .collect(),
        };
        let ranking = rank(&snapshot, request, &planned, &self.tables).ok()?;
        let name: Arc<str> = ranking.best()?.node.name.as_str().into();
        let node = Arc::clone(snapshot.nodes.get(&name)?);
        let placements = on_node(&node, request, &self.tables)?.placements;
        // what still fits beside the pod stays planned
        let somebody = PodRef::default().owner();
        let _taken = snapshot.assume(&name, &placements, &somebody).ok()?;
        let planned: Vec<Reservation> = self
            .reservations
            .on(&name)
            .filter(|held| held.state.is_hint())
            .cloned()
            .collect();
        for held in planned {
            if snapshot.assume(&name, &held.placements, &somebody).is_err() {
                tracing::debug!(pod = %held.pod, node = &*name, "its nomination gives way");
                self.release(&held.pod.uid);
            }
        }
        Some((node, placements))
    }
}

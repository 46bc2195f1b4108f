//! The one step that gives a place away: under the lock the place is picked, judged and held; outside it the
//! Binding is sent; then the outcome is written down. A pod is given one place at a time, however often
//! kube-scheduler asks.

use shared::api::gpu_node::Health;
use shared::api::gpu_pool::Mode;
use shared::decide::check::{Fault, check};
use shared::decide::place::on_node;
use shared::decide::score::Tables;
use shared::names::Placements;
use shared::snapshot::request::BadRequest;
use shared::snapshot::{Node, NodeState, Request, Snapshot};

use super::Index;
use super::books::Books;
use super::fresh::Without;
use super::reservations::{Reservation, State};
use crate::watch::pods::PodPart;
use crate::writer::PodRef;

/// What is to be done for a bind.
#[derive(Debug)]
pub enum Step<'a> {
    /// Nothing: the pod is on that node already.
    Done,
    /// The pod is not known yet; look it up, [`Index::learn`] it and ask again.
    LookUp,
    /// Send this Binding, and tell [`Sending`] how it went.
    Send(Sending<'a>),
}

/// Why a bind is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the sentences say it")]
pub enum BindRefusal {
    #[error("pod {pod} has another UID than {uid}; it was deleted and made again")]
    OtherPod { pod: PodRef, uid: String },
    #[error("pod {pod} is already on node {node}")]
    Elsewhere { pod: PodRef, node: String },
    #[error("pod {pod} is being deleted or has ended")]
    Gone { pod: PodRef },
    #[error(transparent)]
    BadRequest(#[from] BadRequest),
    #[error("an earlier bind of pod {pod} to node {node} is under way; it will be tried again")]
    UnderWay { pod: PodRef, node: String },
    #[error("node {node} has no room for {asked} any more; it will be tried again")]
    NoRoom { node: String, asked: String },
    #[error(
        "the placement for pod {pod} was judged wrong: {fault}; this is a fault of migpool, please report it"
    )]
    Wrong { pod: PodRef, fault: Box<Fault> },
}

impl BindRefusal {
    /// Short and stable, for a metric label.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::OtherPod { .. } => "OtherPod",
            Self::Elsewhere { .. } => "Elsewhere",
            Self::Gone { .. } => "Gone",
            Self::BadRequest(_) => "BadRequest",
            Self::UnderWay { .. } => "UnderWay",
            Self::NoRoom { .. } => "NoRoom",
            Self::Wrong { .. } => "Wrong",
        }
    }
}

/// A Binding to be sent. Dropped without a word on how it went (kube-scheduler hung up), nobody knows.
#[derive(Debug)]
pub struct Sending<'a> {
    index: &'a Index,
    /// Which pod.
    pub pod: PodRef,
    /// Where each container's slices are; none for a pod that asks for none.
    pub placements: Placements,
    told: bool,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").finish_non_exhaustive()
    }
}

impl Sending<'_> {
    /// The Binding was accepted.
    pub fn bound(mut self) {
        self.told = true;
        self.index.settle(&self.pod.uid, Some(State::Bound));
    }

    /// The Binding was refused: what was held is free.
    pub fn failed(mut self) {
        self.told = true;
        self.index.settle(&self.pod.uid, None);
    }

    /// Nobody knows; what was held stays so for a while.
    pub fn unknown(mut self) {
        self.told = true;
        self.index.settle(&self.pod.uid, Some(State::Unknown));
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.index.settle(&self.pod.uid, Some(State::Unknown));
        }
    }
}

impl Index {
    /// Takes in a pod that was looked up because the watch had not shown it yet.
    pub fn learn(&self, pod: PodPart) {
        let known = self.read(|books| books.pods.contains_key(&pod.pod.uid));
        if !known {
            self.pods(serve::watch::Change::Apply(pod));
        }
    }

    /// Picks, judges and holds the places of a pod on the node that kube-scheduler chose.
    ///
    /// # Errors
    /// [`BindRefusal`]; nothing is held for the pod then that was not before.
    pub fn begin_bind(&self, pod: &PodRef, node: &str) -> Result<Step<'_>, BindRefusal> {
        let mut books = self.books();
        let tables = books.tables();
        let Some(known) = books.pods.get(&pod.uid) else {
            return Ok(Step::LookUp);
        };
        if known.pod != *pod {
            return Err(BindRefusal::OtherPod {
                pod: pod.clone(),
                uid: pod.uid.clone(),
            });
        }
        match &known.node {
            Some(on) if on == node => return Ok(Step::Done),
            Some(on) => {
                return Err(BindRefusal::Elsewhere {
                    pod: pod.clone(),
                    node: on.clone(),
                });
            }
            None => {}
        }
        if known.deleting || known.ended {
            return Err(BindRefusal::Gone { pod: pod.clone() });
        }
        let request = known.request.clone()?;
        let held = books.reservations.get(&pod.uid);
        match held {
            Some(held) if held.state == State::Bound && held.node == node => return Ok(Step::Done),
            Some(held) if held.state == State::Bound => {
                return Err(BindRefusal::Elsewhere {
                    pod: pod.clone(),
                    node: held.node.clone(),
                });
            }
            Some(held)
                if held.state == State::Binding || held.state == State::Unknown && held.node != node =>
            {
                return Err(BindRefusal::UnderWay {
                    pod: pod.clone(),
                    node: held.node.clone(),
                });
            }
            _ => {}
        }
        let before = held
            .filter(|held| held.node == node)
            .map(|held| held.placements.clone());
        let placements = if request.is_empty() {
            Placements::default()
        } else {
            pick(&books, &tables, pod, node, &request, before)?
        };
        books.reserve(Reservation {
            pod: pod.clone(),
            node: node.to_owned(),
            placements: placements.clone(),
            state: State::Binding,
            since: self.clock.steady(),
        });
        drop(books);
        self.outdate();
        Ok(Step::Send(Sending {
            index: self,
            pod: pod.clone(),
            placements,
            told: false,
        }))
    }

    fn settle(&self, uid: &str, state: Option<State>) {
        let now = self.clock.steady();
        let mut books = self.books();
        match state {
            Some(state) => books.reservations.set_state(uid, state, now),
            None => books.release(uid),
        }
        drop(books);
        self.outdate();
    }
}

/// The places held before, if they are still right, else the best ones now; judged either way.
fn pick(
    books: &Books,
    tables: &Tables,
    pod: &PodRef,
    node: &str,
    request: &Request,
    before: Option<Placements>,
) -> Result<Placements, BindRefusal> {
    let no_room = || BindRefusal::NoRoom {
        node: node.to_owned(),
        asked: request.in_words(),
    };
    let built = books
        .built(node, Without::Pod(&pod.uid))
        .ok_or_else(no_room)?
        .node;
    // where only idle slices may be given, the one held may be gone by now
    let cuts = built.mode != Mode::Static;
    let best = on_node(&built, request, tables);
    let alone = snapshot_of(built);
    if let Some(before) = before.filter(|_| cuts && best.is_some())
        && check(&alone, node, request, &before).is_ok()
        && takes_all(&alone, node, &before)
    {
        return Ok(before);
    }
    let placements = best.ok_or_else(no_room)?.placements;
    check(&alone, node, request, &placements).map_err(|fault| BindRefusal::Wrong {
        pod: pod.clone(),
        fault: Box::new(fault),
    })?;
    Ok(placements)
}

/// Whether these places of a node could be given to a request as the node is.
#[must_use]
pub fn could_give(node: Node, request: &Request, placements: &Placements) -> bool {
    let (name, ready) = (node.name.clone(), node.state == NodeState::Ready);
    let alone = snapshot_of(node);
    ready && check(&alone, &name, request, placements).is_ok() && takes_all(&alone, &name, placements)
}

/// Whether every GPU of a placement still takes work.
fn takes_all(snapshot: &Snapshot, node: &str, placements: &Placements) -> bool {
    let Some(node) = snapshot.nodes.get(node) else {
        return false;
    };
    placements.places().into_iter().all(|device| {
        let gpu = node.gpu(&device.gpu);
        gpu.is_some_and(|gpu| !gpu.withheld && gpu.health == Health::Healthy)
    })
}

/// One node as a cluster of its own.
#[must_use]
pub fn snapshot_of(node: Node) -> Snapshot {
    Snapshot {
        nodes: [(node.name.as_str().into(), std::sync::Arc::new(node))].into(),
    }
}

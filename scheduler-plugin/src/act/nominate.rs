//! Plans the pods that wait ahead of kube-scheduler and writes `status.nominatedNodeName`. Kube-scheduler then looks
//! at that node alone, so its cost no longer grows with the cluster. Each nomination has a hold behind it, and is
//! cleared when the plan changes. What kube-scheduler or a person nominated stays as it is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serve::tasks::aside;
use shared::api::gpu_pool::Mode;
use shared::decide::nominate::{Pending, Plan, Planned, Planner};
use shared::decide::score::Tables;
use shared::policy::{
    LEADER_TURN_SECONDS, NOMINATION_TURN_MILLISECONDS, NOMINATIONS_AT_ONCE, NOMINATIONS_PER_TURN,
    PLANNED_AHEAD,
};
use shared::snapshot::Node;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use crate::index::Index;
use crate::index::books::Books;
use crate::index::nominations::Waiting;
use crate::watch::rules::NodeRules;
use crate::writer::{PodRef, WriteError, Writer};

/// The leader's nominations.
pub struct Nominate {
    index: Arc<Index>,
    writer: Writer,
    /// Names of the kube-schedulers that ask us.
    schedulers: Vec<String>,
    /// Least number of nodes at which nominations pay.
    from_nodes: usize,
    planner: Planner,
    /// By UID: what was written last, until the watch shows it.
    written: BTreeMap<String, Option<String>>,
}

/// A nomination to be written.
struct Write {
    pod: PodRef,
    node: Option<String>,
}

impl Nominate {
    /// Nominations for the pods of these schedulers, in clusters of so many nodes; none where the list is empty.
    #[must_use]
    pub fn new(index: Arc<Index>, writer: Writer, schedulers: Vec<String>, from_nodes: usize) -> Self {
        Self {
            index,
            writer,
            schedulers,
            from_nodes,
            planner: Planner::default(),
            written: BTreeMap::new(),
        }
    }

    /// Takes turns while this replica leads, until the token is cancelled.
    ///
    /// # Errors
    /// None; the type fits a part of the program.
    pub async fn run(mut self, leads: Receiver<bool>, token: CancellationToken) -> anyhow::Result<()> {
        if self.schedulers.is_empty() {
            token.cancelled().await;
            return Ok(());
        }
        let mut changes = self.index.changes();
        loop {
            // holds expire and rests end without a change
            let tick = Duration::from_secs(LEADER_TURN_SECONDS);
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                _ = tokio::time::timeout(tick, changes.changed()) => {}
            }
            changes.mark_unchanged();
            let leading = *leads.borrow();
            if leading && self.index.available().is_ok() && self.turn().await > 0 {
                continue;
            }
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(NOMINATION_TURN_MILLISECONDS)) => {}
            }
        }
    }

    /// Plans once and writes what is new; says how much it wrote.
    pub async fn turn(&mut self) -> usize {
        let writes = aside(|| self.writes());
        let (index, writer) = (&self.index, &self.writer);
        let write = async |write: Write| send(index, writer, &write).await.then_some(write);
        let writes = futures::stream::iter(writes.into_iter().map(write));
        let done: Vec<Write> = writes
            .buffer_unordered(NOMINATIONS_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let count = done.len();
        let done = done.into_iter().map(|write| (write.pod.uid, write.node));
        self.written.extend(done);
        count
    }

    /// Plans, and says what is to be written.
    fn writes(&mut self) -> Vec<Write> {
        let mut waiting = self.index.waiting(&self.schedulers);
        waiting.sort_by_key(|one| (Reverse(one.pending.priority), one.pending.turn));
        let uids: BTreeSet<&str> = waiting.iter().map(|one| one.pod.uid.as_str()).collect();
        self.written.retain(|uid, _| uids.contains(uid.as_str()));
        self.plan(&waiting);
        let writes = self.due(&waiting);
        self.index.planning(false);
        writes
    }

    /// Holds places for pods that have none, and moves those that must make room for more important ones.
    fn plan(&mut self, waiting: &[Waiting]) {
        if self.index.read(Books::nodes) < self.from_nodes {
            return;
        }
        let fresh: Vec<&Waiting> = waiting.iter().filter(|one| one.pending.held.is_none()).collect();
        if !fresh.iter().any(|one| one.may_be_nominated) {
            return;
        }
        self.index.planning(true);
        let view = self.index.view();
        self.planner.follow(&view.snapshot);
        // one turn's more at least, so that a pod of a high priority never waits for those that are planned; and pods
        // that are only left room do not use up the turn of those that are nominated
        let ahead = waiting.len() - fresh.len();
        let only_left_room = fresh.iter().filter(|one| !one.may_be_nominated).count();
        let most = PLANNED_AHEAD.saturating_sub(ahead).max(NOMINATIONS_PER_TURN) + only_left_room;
        let plan = self.places(&fresh, most, &view.tables);
        let highest = plan.left_out.iter().map(|at| fresh[*at].pending.priority).max();
        let in_the_way = |one: &Waiting| one.pending.held.is_some() && Some(one.pending.priority) < highest;
        if !waiting.iter().any(in_the_way) {
            self.hold(&fresh, plan.planned);
            return;
        }
        // the whole plan anew, the more important first; what is held is kept where it can be
        let all: Vec<&Waiting> = waiting.iter().collect();
        let plan = self.places(&all, usize::MAX, &view.tables);
        for one in plan.left_out.iter().map(|at| all[*at]) {
            if one.pending.held.is_some() {
                self.index.withdraw(&one.pod.uid);
            }
        }
        self.hold(&all, plan.planned);
    }

    fn places<'w>(&mut self, pods: &[&'w Waiting], most: usize, tables: &Arc<Tables>) -> Plan {
        // pods with the same rules are alike
        let mut rules: Vec<&NodeRules> = Vec::new();
        let mut alike = |one: &'w Waiting| {
            rules
                .iter()
                .position(|known| **known == one.rules)
                .unwrap_or_else(|| {
                    rules.push(&one.rules);
                    rules.len() - 1
                })
        };
        let pending = pods.iter().map(|one| Pending {
            alike: alike(one),
            ..one.pending.clone()
        });
        let pending: Vec<Pending> = pending.collect();
        let index = Arc::clone(&self.index);
        let offers = |pod: usize, node: &Node| {
            let one = pods[pod];
            node.mode == Mode::Dynamic
                && node.has_besides(&one.pending.request) != Some(false)
                && index.may_go(&one.rules, &node.name)
        };
        self.planner.plan(&pending, most, tables, offers)
    }

    fn hold(&self, pods: &[&Waiting], plan: Vec<Planned>) {
        for planned in plan {
            let one = pods[planned.pod];
            let is_new = one.pending.held.as_ref() != Some(&planned.seats);
            if one.may_be_nominated && is_new {
                self.index.nominate(&one.pod, &planned.seats);
            }
        }
    }

    /// What is written on each pod and should not be, or the other way round: as much of it as one turn writes, in the
    /// order in which kube-scheduler comes to the pods.
    fn due(&self, waiting: &[Waiting]) -> Vec<Write> {
        let mut writes = Vec::new();
        for one in waiting {
            if writes.len() == NOMINATIONS_PER_TURN {
                break;
            }
            if one.nominated.as_ref().is_some_and(|nominated| !nominated.ours) {
                continue;
            }
            let node = self.index.nominated(&one.pod.uid);
            let shown = one.nominated.as_ref().map(|nominated| nominated.node.clone());
            let there = self.written.get(&one.pod.uid).unwrap_or(&shown);
            if *there == node {
                // as after a restart: what stands there is what is planned
                self.index.announce(&one.pod.uid);
            } else {
                writes.push(Write {
                    pod: one.pod.clone(),
                    node,
                });
            }
        }
        writes
    }
}

/// Writes one nomination, unless kube-scheduler has come to the pod meanwhile. Whether it stands there now.
async fn send(index: &Index, writer: &Writer, write: &Write) -> bool {
    let uid = &write.pod.uid;
    if index.is_reached(uid) || index.nominated(uid) != write.node {
        return false;
    }
    let error = match writer.nominate(&write.pod, write.node.as_deref()).await {
        Ok(()) => {
            tracing::debug!(pod = %write.pod, node = write.node, "nominated");
            index.announce(uid);
            return true;
        }
        Err(error) => error,
    };
    // bound or gone by now
    let late = matches!(
        &error,
        WriteError::Refused {
            code: 404 | 409 | 422,
            ..
        }
    );
    if !late {
        tracing::warn!(pod = %write.pod, node = write.node, %error, "nomination not written");
    }
    index.withdraw(uid);
    false
}

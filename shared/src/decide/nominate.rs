//! Plans all pods that wait, in one go on one snapshot, ahead of kube-scheduler. Who comes first is settled by
//! priority, then age. Pods of one priority may also be placed largest first where that takes in every pod that the
//! plain order takes in, and more or tighter: so a plan of many is never worse than placing them one by one.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::place::{Standings, on_node};
use super::score::{Cost, Tables};
use crate::names::Placements;
use crate::snapshot::{Node, Owner, Request, Snapshot, Undo};

/// A pod that waits for a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// Who it is.
    pub owner: Owner,
    /// What it asks.
    pub request: Request,
    /// Its priority; higher goes first.
    pub priority: i32,
    /// Its turn among pods of its priority: the least goes first.
    pub turn: u64,
    /// Pods of one number may go to the same nodes: where one finds none, another that asks the same is not tried.
    pub alike: usize,
    /// What an earlier plan holds for it in the snapshot. The plan keeps it where it can.
    pub held: Option<Seats>,
}

/// Places on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats {
    /// The node.
    pub node: Arc<str>,
    /// The places, container by container.
    pub placements: Placements,
}

/// A pod with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which of the pending pods.
    pub pod: usize,
    /// Where it goes.
    pub seats: Seats,
}

/// What comes of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Who goes where, in the order in which kube-scheduler will come to them.
    pub planned: Vec<Planned>,
    /// Which of the pending pods fit nowhere. Those that the plan did not come to are in neither list.
    pub left_out: Vec<usize>,
}

/// Plans, and keeps between plans what did not change.
#[derive(Debug, Default)]
pub struct Planner {
    snapshot: Snapshot,
    standings: Standings,
}

/// One way to place the pods, and how the pool looks then.
struct Attempt {
    plan: Plan,
    /// Memory that is given away, GB.
    allocated: u64,
    /// Expected fragments on the nodes of the plan: what each placement added.
    cost: Cost,
}

impl Planner {
    /// Plans on this snapshot from now on.
    pub fn follow(&mut self, now: &Snapshot) {
        let before = std::mem::replace(&mut self.snapshot, now.clone()).nodes;
        let (mut before, mut after) = (before.iter().peekable(), now.nodes.iter().peekable());
        loop {
            // both are in order of names: what stands in one of them only came or went
            let order = match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((one, _)), Some((other, _))) => one.cmp(other),
            };
            let then = before.next_if(|_| order.is_le());
            let now = after.next_if(|_| order.is_ge());
            let same = matches!((then, now), (Some((_, then)), Some((_, now))) if Arc::ptr_eq(then, now));
            if let (false, Some((name, _))) = (same, then.or(now)) {
                self.standings.changed(name);
            }
        }
    }

    /// Places for as many of the pods as can have one; once the first `most` have one, for none that comes after them.
    /// `offers` says whether a pod may go to a node.
    pub fn plan(
        &mut self,
        pending: &[Pending],
        most: usize,
        tables: &Arc<Tables>,
        mut offers: impl FnMut(usize, &Node) -> bool,
    ) -> Plan {
        let freed = self.free_held(pending);
        let mut in_turn = order(pending);
        let mut turn_of = vec![0; pending.len()];
        for (turn, pod) in in_turn.iter().enumerate() {
            turn_of[*pod] = turn;
        }
        // who has a place loses it to a more important pod alone: a plan made again is the same plan
        let first = |pod: &usize| (Reverse(pending[*pod].priority), pending[*pod].held.is_none());
        in_turn.sort_by_key(first);
        let mut best = self.attempt(pending, &in_turn, most, tables, &mut offers);
        // both ways to place them are for the same pods
        in_turn.truncate(best.plan.planned.len() + best.plan.left_out.len());
        let mut largest_first = in_turn.clone();
        largest_first.sort_by_key(|pod| (first(pod), Reverse(memory(&pending[*pod]))));
        if largest_first != in_turn {
            let other = self.attempt(pending, &largest_first, usize::MAX, tables, &mut offers);
            if other.is_better_than(&best) {
                best = other;
            }
        }
        self.take_back(freed);
        let mut plan = best.plan;
        plan.planned.sort_by_key(|planned| turn_of[planned.pod]);
        plan.left_out.sort_by_key(|pod| turn_of[*pod]);
        plan
    }

    /// Frees what is held for these pods, so that the plan decides on it anew.
    fn free_held(&mut self, pending: &[Pending]) -> Vec<(Arc<str>, Arc<Node>)> {
        let mut before = Vec::new();
        for seats in pending.iter().filter_map(|pod| pod.held.as_ref()) {
            let Some(node) = self.snapshot.nodes.get_mut(&seats.node) else {
                continue;
            };
            before.push((Arc::clone(&seats.node), Arc::clone(node)));
            let free = Arc::make_mut(node);
            for device in seats.placements.places() {
                if let Some(gpu) = free.gpus.iter_mut().find(|gpu| gpu.uuid == device.gpu) {
                    gpu.take(device.place);
                }
            }
            self.standings.changed(&seats.node);
        }
        before
    }

    fn take_back(&mut self, before: Vec<(Arc<str>, Arc<Node>)>) {
        for (name, node) in before.into_iter().rev() {
            self.standings.changed(&name);
            self.snapshot.nodes.insert(name, node);
        }
    }

    /// Places the pods one by one in this order until `most` have a place; the snapshot is as it was afterwards.
    fn attempt(
        &mut self,
        pending: &[Pending],
        order: &[usize],
        most: usize,
        tables: &Arc<Tables>,
        offers: &mut impl FnMut(usize, &Node) -> bool,
    ) -> Attempt {
        let mut attempt = Attempt {
            plan: Plan::default(),
            allocated: 0,
            cost: 0,
        };
        let mut undo = Vec::new();
        // room only shrinks, so nobody finds what one alike did not find before
        let mut in_vain: Vec<&Pending> = Vec::new();
        for pod in order {
            if attempt.plan.planned.len() >= most {
                break;
            }
            let this = &pending[*pod];
            let is_alike = |other: &&Pending| other.alike == this.alike && other.request == this.request;
            if this.held.is_none() && in_vain.iter().any(is_alike) {
                attempt.plan.left_out.push(*pod);
                continue;
            }
            let Some((seats, cost, taken)) = self.seat(this, tables, |node| offers(*pod, node)) else {
                if !in_vain.iter().any(is_alike) {
                    in_vain.push(this);
                }
                attempt.plan.left_out.push(*pod);
                continue;
            };
            undo.push((Arc::clone(&seats.node), taken));
            attempt.allocated += memory(this);
            attempt.cost += cost;
            attempt.plan.planned.push(Planned { pod: *pod, seats });
        }
        for (name, taken) in undo.into_iter().rev() {
            taken.undo(&mut self.snapshot);
            self.standings.changed(&name);
        }
        attempt
    }

    /// Gives one pod its place in the snapshot: the one held for it, else the best.
    fn seat(
        &mut self,
        pod: &Pending,
        tables: &Arc<Tables>,
        mut offers: impl FnMut(&Node) -> bool,
    ) -> Option<(Seats, Cost, Undo)> {
        if let Some(seats) = &pod.held
            && self
                .snapshot
                .nodes
                .get(&seats.node)
                .is_some_and(|node| offers(node))
            && let Ok(taken) = self.snapshot.assume(&seats.node, &seats.placements, &pod.owner)
        {
            self.standings.changed(&seats.node);
            return Some((seats.clone(), 0, taken));
        }
        let snapshot = &self.snapshot;
        let offered = |name: &str| snapshot.nodes.get(name).is_some_and(|node| offers(node));
        let node = self.standings.best(snapshot, &pod.request, tables, offered)?;
        let chosen = on_node(self.snapshot.nodes.get(&node)?, &pod.request, tables)?;
        let taken = self.snapshot.assume(&node, &chosen.placements, &pod.owner).ok()?;
        self.standings.changed(&node);
        let seats = Seats {
            node,
            placements: chosen.placements,
        };
        Some((seats, chosen.rank.cost, taken))
    }
}

impl Attempt {
    /// Nobody who has a place in `other` goes without here, and more is given away, or as much at a lower cost.
    fn is_better_than(&self, other: &Self) -> bool {
        let placed = |attempt: &Self| -> BTreeSet<usize> {
            attempt.plan.planned.iter().map(|planned| planned.pod).collect()
        };
        let nobody_loses = placed(self).is_superset(&placed(other));
        nobody_loses && (Reverse(self.allocated), self.cost) < (Reverse(other.allocated), other.cost)
    }
}

/// The order in which kube-scheduler comes to them: by priority, then turn, then UID.
fn order(pending: &[Pending]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pending.len()).collect();
    order.sort_by_key(|pod| {
        let pod = &pending[*pod];
        (Reverse(pod.priority), pod.turn, &pod.owner.uid)
    });
    order
}

/// Memory that a pod's slices take, GB.
fn memory(pod: &Pending) -> u64 {
    let of = |(profile, count): (Option<crate::mig::Profile>, u32)| {
        profile.map_or(0, |profile| u64::from(profile.memory_gb) * u64::from(count))
    };
    pod.request.distinct().into_iter().map(of).sum()
}

#[cfg(test)]
mod tests;

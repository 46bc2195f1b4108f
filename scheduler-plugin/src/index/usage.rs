//! CPU and memory that pods have of their nodes. Every pod on a node counts, whether or not it asks anything of us:
//! a GPU is worth nothing where others took the CPU that goes with it. Of a pod that is not ours only this is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use shared::snapshot::{CpuMemory, Node, Owner};

use super::books::Books;
use super::reservations::Reservation;
use crate::watch::pods::PodPart;

/// What pods have of their nodes.
#[derive(Debug, Default)]
pub struct Usage {
    pods: BTreeMap<Box<str>, (Arc<str>, CpuMemory)>,
    nodes: BTreeMap<Arc<str>, (CpuMemory, usize)>,
}

impl Usage {
    /// Takes in a pod as it is now; gives the nodes on which that changes something.
    pub fn put(&mut self, pod: &PodPart) -> Vec<Arc<str>> {
        let now = pod
            .node
            .as_deref()
            .filter(|_| !pod.ended)
            .map(|node| (node, pod.besides));
        let before = self.pods.get(pod.pod.uid.as_str());
        if before.map(|(node, has)| (&**node, *has)) == now {
            return Vec::new();
        }
        let mut changed: Vec<Arc<str>> = self.remove(&pod.pod.uid).into_iter().collect();
        if let Some((node, has)) = now {
            let node = match self.nodes.get_key_value(node) {
                Some((known, _)) => Arc::clone(known),
                None => node.into(),
            };
            let (sum, pods) = self.nodes.entry(Arc::clone(&node)).or_default();
            (*sum, *pods) = (sum.plus(has), *pods + 1);
            self.pods
                .insert(pod.pod.uid.as_str().into(), (Arc::clone(&node), has));
            changed.push(node);
        }
        changed
    }

    /// A pod is gone; gives the node it was on.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<str>> {
        let (node, has) = self.pods.remove(uid)?;
        if let Some((sum, pods)) = self.nodes.get_mut(&node) {
            (*sum, *pods) = (sum.minus(has), *pods - 1);
            if *pods == 0 {
                self.nodes.remove(&node);
            }
        }
        Some(node)
    }

    /// Whether a pod is on a node.
    #[must_use]
    pub fn counts(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// What all pods on a node have.
    #[must_use]
    pub fn on(&self, node: &str) -> CpuMemory {
        self.nodes.get(node).map(|(sum, _)| *sum).unwrap_or_default()
    }
}

impl Books {
    /// Takes in what a pod has of its node.
    pub(super) fn account(&mut self, pod: &PodPart) {
        for node in self.usage.put(pod) {
            self.outdate_gpus_of(&node);
        }
    }

    /// A pod has nothing any more.
    pub(super) fn close_account(&mut self, uid: &str) {
        if let Some(node) = self.usage.remove(uid) {
            self.outdate_gpus_of(&node);
        }
    }

    fn outdate_gpus_of(&mut self, node: &str) {
        if self.gpu_nodes.contains_key(node) {
            self.stale.insert(node.to_owned());
        }
    }

    /// CPU and memory of a node that nobody has and nobody is promised, where its Node tells what there is.
    pub(super) fn free_on<'a>(
        &self,
        node: &str,
        promised: impl Iterator<Item = &'a Reservation>,
    ) -> Option<CpuMemory> {
        let there = self.nodes.get(node)?.allocatable?;
        let used = promised
            .filter_map(|held| self.on_its_way(held))
            .fold(self.usage.on(node), |sum, pod| sum.plus(pod.besides));
        Some(there.minus(used))
    }

    /// The pod of a reservation, unless it is on a node already.
    fn on_its_way(&self, held: &Reservation) -> Option<&PodPart> {
        let pod = self.pods.get(&held.pod.uid)?;
        (!self.usage.counts(&held.pod.uid) && !pod.ended).then_some(pod)
    }

    /// The models that a pod with whole GPUs may run on by its own rules, as bits; 0 where it may run on any.
    pub(super) fn models_of(&self, pod: &PodPart) -> u64 {
        if pod.rules.goes_anywhere() || !pod.asks_whole_gpus() {
            return 0;
        }
        let (mut allowed, mut refused) = (0, 0);
        for (name, (gpus, _)) in &self.gpu_nodes {
            let bit = 1_u64.checked_shl(self.stock.model(gpus.model()));
            let (Some(bit), Some(node)) = (bit, self.nodes.get(name)) else {
                continue;
            };
            *(if pod.rules.allow(node) {
                &mut allowed
            } else {
                &mut refused
            }) |= bit;
        }
        // where it may run on some node of every model its rules are not about models
        if refused & !allowed == 0 { 0 } else { allowed }
    }

    /// Whole GPUs that pods on a node, or promised to it, asked for: whose, and how many.
    pub(super) fn whole_gpus<'a>(
        &self,
        pods: &[&'a PodPart],
        promised: impl Iterator<Item = &'a Reservation>,
    ) -> Vec<(Owner, u32)> {
        let here = pods.iter().copied().filter(|pod| !pod.ended);
        let here = here.filter_map(|pod| Some((pod.pod.owner(), whole(pod)?)));
        let coming = promised.filter_map(|held| Some((held.pod.owner(), whole(self.on_its_way(held)?)?)));
        here.chain(coming).collect()
    }
}

fn whole(pod: &PodPart) -> Option<u32> {
    let distinct = pod.request.as_ref().ok()?.distinct();
    distinct
        .into_iter()
        .find(|(profile, _)| profile.is_none())
        .map(|(_, count)| count)
}

/// Marks as taken the whole GPUs that an owner was promised and its agent has not reported yet. Which ones the
/// kubelet will choose nobody knows: the first free ones stand for them.
pub(super) fn take_whole(node: &mut Node, owner: &Owner, count: u32) {
    let is_theirs = |held: &Owner| held.namespace == owner.namespace && held.pod == owner.pod;
    let reported = node
        .gpus
        .iter()
        .filter(|gpu| gpu.whole.as_ref().is_some_and(is_theirs))
        .count();
    let free = node
        .gpus
        .iter_mut()
        .filter(|gpu| gpu.board.is_none() && gpu.whole.is_none());
    for gpu in free.take((count as usize).saturating_sub(reported)) {
        gpu.whole = Some(owner.clone());
    }
}

#[cfg(test)]
mod tests;

//! Fills the cluster: pods arrive one by one, one that fits nowhere is dropped, nothing ever leaves. Scores are kept
//! by request and node until the node changes, so the whole cluster is looked at for every pod.

use std::collections::HashMap;

use shared::decide::pack::{Ask, Gpus, Workload};

use super::policy::{Node, Policy, Ties, class};
use super::trace::Cluster;
use crate::random::Random;

/// Percent of the GPUs asked for up to which a run is measured.
pub const MEASURED: usize = 130;

/// What a run gave, by percent of the cluster's GPUs asked for so far: the mean over the moments that round to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Allocated GPUs, percent of all.
    pub allocated: Vec<f64>,
    /// Expected fragment, percent of all GPUs.
    pub fragment: Vec<f64>,
    /// Pods that were dropped.
    pub dropped: usize,
}

/// A score that was kept: the version of the node it is for, and what it was.
#[derive(Clone, Debug, Default)]
struct Kept {
    version: u32,
    score: Option<(i64, Gpus)>,
}

struct Filling<'a> {
    policy: Policy,
    ties: Ties,
    workload: &'a Workload,
    nodes: Vec<Node>,
    /// Rises with every pod put on the node; 0 is never kept.
    versions: Vec<u32>,
    kept: HashMap<Ask, Vec<Kept>>,
    random: Random,
}

/// Runs a policy over the pods in order.
#[must_use]
pub fn fill(
    cluster: &Cluster,
    workload: &Workload,
    pods: &[Ask],
    policy: Policy,
    ties: Ties,
    seed: u64,
) -> Curve {
    let node = |room: &shared::decide::pack::Room| Node {
        fragment: workload.fragment(room),
        classes: 0,
        room: room.clone(),
    };
    let mut random = Random::new(seed ^ 0x7469_6573);
    let mut nodes: Vec<Node> = cluster.rooms.iter().map(node).collect();
    random.shuffle(&mut nodes);
    let mut filling = Filling {
        policy,
        // chance has no other order
        ties: if policy == Policy::Random {
            Ties::Random
        } else {
            ties
        },
        workload,
        versions: vec![1; nodes.len()],
        nodes,
        kept: HashMap::new(),
        random,
    };
    let all = cluster.capacity().iter().sum::<u64>() as f64;
    let mut fragment: f64 = filling.nodes.iter().map(|node| node.fragment).sum();
    let (mut arrived, mut allocated, mut dropped) = (0, 0, 0);
    let mut sums = vec![(0.0, 0.0, 0_u32); MEASURED + 1];
    for ask in pods {
        arrived += ask.gpu_milli();
        match filling.put(ask) {
            Some(grown) => {
                allocated += ask.gpu_milli();
                fragment += grown;
            }
            None => dropped += 1,
        }
        let percent = (100.0 * arrived as f64 / all).round() as usize;
        if let Some((allocations, fragments, count)) = sums.get_mut(percent) {
            *allocations += 100.0 * allocated as f64 / all;
            *fragments += 100.0 * fragment / all;
            *count += 1;
        }
    }
    // a percent that no moment rounds to has the value before it
    let mut curve = Curve {
        allocated: Vec::new(),
        fragment: Vec::new(),
        dropped,
    };
    for (allocations, fragments, count) in sums {
        let mean = |sum: f64, before: &Vec<f64>| {
            if count > 0 {
                sum / f64::from(count)
            } else {
                before.last().copied().unwrap_or(0.0)
            }
        };
        curve.allocated.push(mean(allocations, &curve.allocated));
        curve.fragment.push(mean(fragments, &curve.fragment));
    }
    curve
}

impl Filling<'_> {
    /// Puts a pod on the best node and says by how much the cluster's fragment grew.
    fn put(&mut self, ask: &Ask) -> Option<f64> {
        let (at, gpus) = self.choose(ask)?;
        let gpus = self
            .policy
            .settle(&self.nodes[at].room, ask, gpus, &mut self.random);
        let node = &mut self.nodes[at];
        node.room = node.room.after(ask, &gpus);
        node.classes |= class(ask);
        let before = node.fragment;
        node.fragment = self.workload.fragment(&node.room);
        self.versions[at] += 1;
        Some(node.fragment - before)
    }

    fn choose(&mut self, ask: &Ask) -> Option<(usize, Gpus)> {
        let kept = self
            .kept
            .entry(*ask)
            .or_insert_with(|| vec![Kept::default(); self.nodes.len()]);
        let mut best: Option<(i64, usize)> = None;
        let mut equals = 0;
        for (at, kept) in kept.iter_mut().enumerate() {
            if kept.version != self.versions[at] {
                kept.version = self.versions[at];
                kept.score = self.policy.score(&self.nodes[at], ask, self.workload);
            }
            let Some((score, _)) = kept.score else { continue };
            match best {
                Some((most, _)) if score < most => {}
                // of equals the first in order stays, or each is kept with the same chance
                Some((most, _)) if score == most => {
                    equals += 1;
                    if self.ties == Ties::Random && self.random.below(equals) == 0 {
                        best = Some((score, at));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((score, at));
                }
            }
        }
        let (_, at) = best?;
        let (_, gpus) = kept[at].score.clone()?;
        Some((at, gpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::policy::POLICIES;
    use shared::decide::pack::Room;

    fn cluster(nodes: usize) -> Cluster {
        let room = Room {
            cpu_milli: 64_000,
            memory_mib: 1 << 18,
            model: 0,
            free_milli: vec![1_000; 4],
        };
        Cluster {
            rooms: vec![room; nodes],
            models: vec!["one".to_owned()],
        }
    }

    fn pods(count: usize) -> Vec<Ask> {
        let ask = |at: usize| Ask {
            cpu_milli: 4_000,
            memory_mib: 1_000,
            gpus: if at.is_multiple_of(5) { 2 } else { 1 },
            share_milli: if at.is_multiple_of(5) {
                1_000
            } else {
                [300, 500, 1_000][at % 3]
            },
            models: 0,
        };
        (0..count).map(ask).collect()
    }

    #[test]
    fn no_policy_gives_more_than_there_is_and_all_place_while_there_is_room() {
        let (cluster, pods) = (cluster(20), pods(140));
        let workload = Workload::of(&pods, &cluster.capacity());
        for (name, policy) in POLICIES {
            for ties in [Ties::Order, Ties::Random] {
                let curve = fill(&cluster, &workload, &pods, policy, ties, 1);
                assert_eq!(curve.allocated.len(), MEASURED + 1);
                assert!(curve.allocated.iter().all(|percent| *percent <= 100.0), "{name}");
                // nothing is dropped at a quarter of the load; 25 +- half a percent is asked for then
                assert!(
                    (curve.allocated[25] - 25.0).abs() < 1.3,
                    "{name}: {}",
                    curve.allocated[25]
                );
                assert!(
                    curve.allocated.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9),
                    "{name}"
                );
                assert_eq!(curve, fill(&cluster, &workload, &pods, policy, ties, 1), "{name}");
            }
        }
    }

    #[test]
    fn kept_scores_change_nothing() {
        // the same run with every score made anew: forgetting after each pod
        let (cluster, pods) = (cluster(6), pods(60));
        let workload = Workload::of(&pods, &cluster.capacity());
        let mut seats = Vec::new();
        for forgets in [false, true] {
            let node = |room: &Room| Node {
                fragment: workload.fragment(room),
                classes: 0,
                room: room.clone(),
            };
            let mut filling = Filling {
                policy: Policy::Ours,
                ties: Ties::Order,
                workload: &workload,
                nodes: cluster.rooms.iter().map(node).collect(),
                versions: vec![1; 6],
                kept: HashMap::new(),
                random: Random::new(1),
            };
            let mut placed = Vec::new();
            for ask in &pods {
                placed.push(filling.choose(ask));
                filling.put(ask);
                if forgets {
                    filling.kept.clear();
                }
            }
            seats.push(placed);
        }
        assert_eq!(seats[0], seats[1]);
    }
}

//! The policies, each as it is implemented by FGD's authors: a score for each node where the pod fits, the greatest
//! wins. What breaks ties is a choice of its own, because it decides more than most scores do.

use std::fmt;
use std::str::FromStr;

use shared::decide::pack::{Ask, Gpus, Room, WHOLE, Weights, Workload};

use crate::random::Random;

/// Who chooses the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// Any node with room.
    Random,
    /// The least dot product of what is left and what is asked.
    DotProd,
    /// Nodes that hold pods of the same size class first.
    Clustering,
    /// Used GPUs, then free GPUs of used nodes, then empty nodes.
    Packing,
    /// The least room left.
    BestFit,
    /// The smallest growth of the expected fragment, in a hundred steps.
    Fgd,
    /// migpool's: exact, with CPU ratio and model pressure.
    Ours,
}

/// All policies, in the order of the tables.
pub const POLICIES: [(&str, Policy); 7] = [
    ("random", Policy::Random),
    ("dotprod", Policy::DotProd),
    ("clustering", Policy::Clustering),
    ("packing", Policy::Packing),
    ("bestfit", Policy::BestFit),
    ("fgd", Policy::Fgd),
    ("ours", Policy::Ours),
];

/// What breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// One order of the nodes for the whole run. The authors' kube-scheduler is changed to take the smallest name,
    /// and its results come out with names that have nothing to do with the order of the node file: a random order
    /// gives them, the order of the file does not (RESULTS.md).
    Order,
    /// Chance, as in the stock one.
    Random,
}

/// Cores and GPUs of the largest node, by which the classic scores are normalised.
const MOST_CPU: f64 = 128_000.0;
const MOST_GPU: f64 = 8_000.0;

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let names = POLICIES.map(|(name, _)| name).join(", ");
        let known = POLICIES.into_iter().find(|(known, _)| *known == name);
        known
            .map(|(_, policy)| policy)
            .ok_or_else(|| format!("{name:?} is no policy; choose from {names}"))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = POLICIES.into_iter().find(|(_, policy)| policy == self);
        f.pad(known.map_or("?", |(name, _)| name))
    }
}

impl Policy {
    /// How ties are broken unless something else is asked for: by an order as published, except for ours, which is to
    /// stand without, and for chance itself.
    #[must_use]
    pub const fn usual_ties(self) -> Ties {
        match self {
            Self::Ours | Self::Random => Ties::Random,
            _ => Ties::Order,
        }
    }

    /// The score of a node where the pod fits, greater is better, and the GPUs it would get.
    #[must_use]
    pub fn score(self, node: &Node, ask: &Ask, workload: &Workload) -> Option<(i64, Gpus)> {
        let room = &node.room;
        if !room.fits(ask) {
            return None;
        }
        let tight = || tightest(room, ask);
        Some(match self {
            Self::Random => (0, tight()),
            Self::DotProd => {
                let cpu = room.cpu_milli as f64 / MOST_CPU * ask.cpu_milli as f64 / MOST_CPU;
                let gpu = room.gpu_milli() as f64 / MOST_GPU * ask.gpu_milli() as f64 / MOST_GPU;
                ((100.0 * (1.0 - (cpu + gpu) / 2.0)) as i64, tight())
            }
            Self::Clustering => (clustering(node, ask), tight()),
            Self::Packing => (packing(room, ask), tight()),
            Self::BestFit => {
                let cpu = (room.cpu_milli - ask.cpu_milli) as f64 / MOST_CPU;
                let gpu = (room.gpu_milli() as f64 - ask.gpu_milli() as f64) / MOST_GPU;
                ((100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu)) as i64, tight())
            }
            Self::Fgd => {
                let steps = |gpus: &Gpus| {
                    let shrinks = node.fragment - workload.fragment(&room.after(ask, gpus));
                    (100.0 / (1.0 + (-shrinks / 1e3).exp())) as i64
                };
                // the first of equals, as the authors take it
                let mut best: Option<(i64, Gpus)> = None;
                for gpus in room.ways(ask) {
                    let score = steps(&gpus);
                    if best.as_ref().is_none_or(|(most, _)| score > *most) {
                        best = Some((score, gpus));
                    }
                }
                best?
            }
            Self::Ours => {
                let (cost, gpus) = workload.place(room, node.fragment, ask, &Weights::default())?;
                (-cost, gpus)
            }
        })
    }

    /// The GPUs the pod gets on the chosen node, where chance has a say.
    #[must_use]
    pub fn settle(self, room: &Room, ask: &Ask, gpus: Gpus, random: &mut Random) -> Gpus {
        if self == Self::Random && ask.gpus == 1 && ask.share_milli < WHOLE {
            let enough = |gpu: &usize| room.free_milli[*gpu] >= ask.share_milli;
            let fitting: Vec<usize> = (0..room.free_milli.len()).filter(enough).collect();
            if !fitting.is_empty() {
                return vec![fitting[random.below(fitting.len())]];
            }
        }
        gpus
    }
}

/// A node as policies see it.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is left.
    pub room: Room,
    /// Its expected fragment.
    pub fragment: f64,
    /// Size classes of its pods, as bits.
    pub classes: u32,
}

/// The size class of a pod: shares, one GPU, two, ...
#[must_use]
pub const fn class(ask: &Ask) -> u32 {
    match ask.gpus {
        0 => 0,
        1 if ask.share_milli < WHOLE => 1,
        gpus => 1 << if gpus > 30 { 30 } else { gpus },
    }
}

/// The GPU that a share fills most, the first free ones for whole GPUs.
fn tightest(room: &Room, ask: &Ask) -> Gpus {
    let ways = room.ways(ask);
    let left = |gpus: &Gpus| gpus.iter().map(|gpu| room.free_milli[*gpu]).sum::<u32>();
    ways.into_iter().min_by_key(left).unwrap_or_default()
}

/// A quarter of the scale for each kind of node: holding only this class, this and others, none, only others;
/// within it the fuller one.
fn clustering(node: &Node, ask: &Ask) -> i64 {
    let class = class(ask);
    if class == 0 {
        return 0;
    }
    let fuller = 25 * (MOST_GPU as i64 - node.room.gpu_milli() as i64) / MOST_GPU as i64;
    let kind = match node.classes {
        0 => 25,
        classes if classes == class => 75,
        classes if classes & class != 0 => 50,
        _ => 0,
    };
    kind + fuller
}

/// Shared GPUs from 50 to 100, free GPUs of a used node from 33 to 50, an empty node below.
fn packing(room: &Room, ask: &Ask) -> i64 {
    if ask.gpus == 0 {
        return 0;
    }
    let free = room.free_milli.iter().filter(|free| **free == WHOLE).count() as i64;
    if free == room.free_milli.len() as i64 {
        return (33 - free).max(free);
    }
    let mut left: Vec<u32> = room
        .free_milli
        .iter()
        .copied()
        .filter(|free| *free >= ask.share_milli)
        .collect();
    left.sort_unstable();
    left.truncate(ask.gpus as usize);
    let whole = left.iter().filter(|free| **free == WHOLE).count() as i64;
    if whole > 0 {
        return (50 - whole).max(33);
    }
    let percent: i64 = left.iter().map(|free| i64::from(*free) / 10).sum();
    (100 - percent / 10).max(50)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: u64, free: &[u32]) -> Node {
        Node {
            room: Room {
                cpu_milli: cpu,
                memory_mib: 1 << 20,
                model: 0,
                free_milli: free.to_vec(),
            },
            fragment: 0.0,
            classes: 0,
        }
    }

    fn ask(gpus: u32, share: u32) -> Ask {
        Ask {
            cpu_milli: 8_000,
            gpus,
            share_milli: share,
            ..Ask::default()
        }
    }

    fn score(policy: Policy, node: &Node, ask: &Ask) -> i64 {
        policy.score(node, ask, &Workload::of([ask], &[8_000])).unwrap().0
    }

    #[test]
    fn packing_prefers_shared_gpus_then_used_nodes_then_small_empty_ones() {
        let share = ask(1, 300);
        let shared = score(Policy::Packing, &node(64_000, &[400, 1_000]), &share);
        let used = score(Policy::Packing, &node(64_000, &[200, 1_000]), &share);
        let small = score(Policy::Packing, &node(64_000, &[1_000, 1_000]), &share);
        let large = score(Policy::Packing, &node(64_000, &[1_000; 8]), &share);
        assert_eq!([shared, used, small, large], [96, 49, 31, 25]);
    }

    #[test]
    fn clustering_keeps_size_classes_together() {
        let share = ask(1, 300);
        let with = |classes| Node {
            classes,
            ..node(64_000, &[1_000; 4])
        };
        let same = with(class(&share));
        let mixed = with(class(&share) | class(&ask(2, 1_000)));
        let other = with(class(&ask(2, 1_000)));
        let scores = [&same, &mixed, &with(0), &other].map(|node| score(Policy::Clustering, node, &share));
        assert_eq!(scores, [87, 62, 37, 12]);
    }

    #[test]
    fn best_fit_and_dot_product_are_the_formulas_worked_by_hand() {
        // half of the CPU and half of the GPUs of the largest node
        let half = node(64_000, &[1_000; 4]);
        let pod = ask(2, 1_000);
        // left: 56 of 128 cores and 2 of 8 GPUs
        assert_eq!(
            score(Policy::BestFit, &half, &pod),
            (100.0 * (1.0 - 0.21875 - 0.125)) as i64
        );
        assert_eq!(
            score(Policy::DotProd, &half, &pod),
            (100.0 * (1.0 - (0.5 * 0.0625 + 0.5 * 0.25) / 2.0)) as i64
        );
    }

    #[test]
    fn names_read_back() {
        for (name, policy) in POLICIES {
            assert_eq!(name.parse(), Ok(policy));
            assert_eq!(policy.to_string(), name);
        }
        assert!(
            "best"
                .parse::<Policy>()
                .unwrap_err()
                .contains("bestfit, fgd, ours")
        );
    }
}

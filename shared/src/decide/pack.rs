//! Where whole GPUs and time-sliced shares go. The measure is FGD's expected fragment (Weng et al., ATC '23) taken
//! exactly, plus what it does not see: CPU that runs out before the GPUs do, models that others cannot do without,
//! and gaps that no share to come will fill ([`gaps`]). A tight fit breaks what is left of ties.
//!
//! All of it is a function of one node and the workload, so costs may be kept until the node changes.

pub mod gaps;

use std::collections::BTreeMap;

use super::score::Cost;
use crate::policy::{
    PACK_COVERED, PACK_GAP_WEIGHT, PACK_MODEL_WEIGHT, PACK_STRANDED_WEIGHT, PACK_TIGHT_WEIGHT,
};
use gaps::Gaps;

/// A whole GPU in the unit of shares.
pub const WHOLE: u32 = 1_000;

/// What a pod asks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ask {
    /// CPU, thousandths of a core.
    pub cpu_milli: u64,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// How many GPUs; 0 asks none.
    pub gpus: u32,
    /// Of each GPU, thousandths; less than [`WHOLE`] only where one GPU is asked.
    pub share_milli: u32,
    /// Models it runs on, as bits; 0 is any.
    pub models: u64,
}

/// What a node has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// CPU, thousandths of a core.
    pub cpu_milli: u64,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Number of its GPUs' model.
    pub model: u32,
    /// Of each GPU, thousandths.
    pub free_milli: Vec<u32>,
}

/// What is expected to come.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// The commonest requests with their shares, which add up to 1.
    typical: Vec<(Ask, f64)>,
    /// CPU, in thousandths of a core, that goes with a thousandth of a GPU.
    cpu_per_gpu: f64,
    /// By model: what is asked of it and can run nowhere else, as a share of what there is.
    pressure: Vec<f64>,
    /// What gaps on shared GPUs are worth.
    gaps: Gaps,
}

/// How much each term counts against the fragment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Room left on the node, in GPUs of a node of 8 GPUs and 128 cores.
    pub tight: f64,
    /// GPUs stranded by missing CPU.
    pub stranded: f64,
    /// Use of a model that others cannot do without.
    pub model: f64,
    /// What a share wastes of the gap it goes to.
    pub gap: f64,
}

impl Default for Weights {
    /// One set for all of the 17 openb workloads.
    fn default() -> Self {
        Self {
            tight: PACK_TIGHT_WEIGHT,
            stranded: PACK_STRANDED_WEIGHT,
            model: PACK_MODEL_WEIGHT,
            gap: PACK_GAP_WEIGHT,
        }
    }
}

/// GPUs of a node on which a pod may be put: indexes into [`Room::free_milli`].
pub type Gpus = Vec<usize>;

/// Cores of the node that [`Weights::tight`] measures against.
const CORES: f64 = 128.0;
/// GPUs of it.
const GPUS: f64 = 8.0;

impl Ask {
    /// Thousandths of GPUs in all.
    #[must_use]
    pub fn gpu_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.share_milli)
    }

    /// Whether it asks for a part of one GPU.
    #[must_use]
    pub const fn is_share(&self) -> bool {
        self.gpus == 1 && self.share_milli < WHOLE
    }

    /// Whether it runs on this model.
    #[must_use]
    pub const fn allows(&self, model: u32) -> bool {
        self.models == 0 || self.models >> model & 1 == 1
    }
}

impl Room {
    /// Thousandths of GPUs left in all.
    #[must_use]
    pub fn gpu_milli(&self) -> u64 {
        self.free_milli.iter().map(|free| u64::from(*free)).sum()
    }

    /// Whether a pod fits.
    #[must_use]
    pub fn fits(&self, ask: &Ask) -> bool {
        self.memory_mib >= ask.memory_mib && self.has_gpus_and_cpu(ask)
    }

    fn has_gpus_and_cpu(&self, ask: &Ask) -> bool {
        let enough = |free: &&u32| **free >= ask.share_milli;
        self.cpu_milli >= ask.cpu_milli
            && (ask.gpus == 0
                || ask.allows(self.model)
                    && self.free_milli.iter().filter(enough).count() >= ask.gpus as usize)
    }

    /// What is left when a pod that fits is put on these GPUs.
    #[must_use]
    pub fn after(&self, ask: &Ask, gpus: &[usize]) -> Self {
        let mut after = self.clone();
        after.cpu_milli -= ask.cpu_milli.min(after.cpu_milli);
        after.memory_mib -= ask.memory_mib.min(after.memory_mib);
        for gpu in gpus {
            if let Some(free) = after.free_milli.get_mut(*gpu) {
                *free -= ask.share_milli.min(*free);
            }
        }
        after
    }

    /// The ways to put a pod that fits on its GPUs that differ in anything: each size of gap for a share, the first
    /// free GPUs for whole ones.
    #[must_use]
    pub fn ways(&self, ask: &Ask) -> Vec<Gpus> {
        let enough = |(_, free): &(usize, &u32)| **free >= ask.share_milli;
        let fitting = self.free_milli.iter().enumerate().filter(enough);
        if !ask.is_share() {
            return vec![fitting.map(|(gpu, _)| gpu).take(ask.gpus as usize).collect()];
        }
        let mut sizes: Vec<u32> = Vec::new();
        let mut ways = Vec::new();
        for (gpu, free) in fitting {
            if !sizes.contains(free) {
                sizes.push(*free);
                ways.push(vec![gpu]);
            }
        }
        ways
    }
}

impl Workload {
    /// What these pods tell of those to come. `capacity` is what there is of each model, thousandths of GPUs.
    #[must_use]
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a Ask>, capacity: &[u64]) -> Self {
        Self::of_weighted(pods.into_iter().map(|ask| (*ask, 1.0)), capacity)
    }

    /// The same where some pods tell more than others.
    #[must_use]
    pub fn of_weighted(pods: impl IntoIterator<Item = (Ask, f64)>, capacity: &[u64]) -> Self {
        let mut counts = BTreeMap::<Ask, f64>::new();
        let (mut cpu, mut gpu) = (0.0, 0.0);
        let mut pinned = vec![0.0; capacity.len()];
        for (ask, weight) in pods {
            // memory plays no part in what a fragment is
            *counts.entry(Ask { memory_mib: 0, ..ask }).or_default() += weight;
            if ask.gpus == 0 {
                continue;
            }
            cpu += weight * ask.cpu_milli as f64;
            gpu += weight * ask.gpu_milli() as f64;
            let allowed = |model: &usize| ask.models >> model & 1 == 1;
            let total: u64 = (0..capacity.len())
                .filter(allowed)
                .map(|model| capacity[model])
                .sum();
            for model in (0..capacity.len()).filter(allowed) {
                pinned[model] +=
                    weight * ask.gpu_milli() as f64 * capacity[model] as f64 / total.max(1) as f64;
            }
        }
        let mut shares = BTreeMap::<u32, f64>::new();
        for (ask, count) in counts.iter().filter(|(ask, _)| ask.is_share()) {
            *shares.entry(ask.share_milli).or_default() += count;
        }
        let mut typical: Vec<(Ask, f64)> = counts.into_iter().collect();
        typical.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let all: f64 = typical.iter().map(|(_, count)| count).sum();
        let mut covered = 0.0;
        typical.retain(|(_, count)| {
            let wanted = covered < PACK_COVERED * all;
            covered += if wanted { *count } else { 0.0 };
            wanted
        });
        for (_, share) in &mut typical {
            *share /= covered.max(f64::MIN_POSITIVE);
        }
        Self {
            typical,
            cpu_per_gpu: if gpu > 0.0 { cpu / gpu } else { 0.0 },
            pressure: pinned
                .iter()
                .zip(capacity)
                .map(|(pinned, there)| pinned / (*there).max(1) as f64)
                .collect(),
            gaps: Gaps::of(shares),
        }
    }

    /// The commonest requests with their shares.
    #[must_use]
    pub fn typical(&self) -> &[(Ask, f64)] {
        &self.typical
    }

    /// How much of a model is asked for by pods that cannot run elsewhere, as a share of what there is.
    #[must_use]
    pub fn pressure(&self, model: u32) -> f64 {
        self.pressure.get(model as usize).copied().unwrap_or(0.0)
    }

    /// Thousandths of GPUs that the next pod is expected not to be able to use: all that is left where it cannot
    /// run at all, else what is left on GPUs with too little for it.
    #[must_use]
    pub fn fragment(&self, room: &Room) -> f64 {
        let all = room.gpu_milli();
        if all == 0 {
            return 0.0;
        }
        let lost = |ask: &Ask| {
            if ask.gpus == 0 || !room.has_gpus_and_cpu(ask) {
                return all;
            }
            let small = room.free_milli.iter().filter(|free| **free < ask.share_milli);
            small.map(|free| u64::from(*free)).sum()
        };
        self.typical
            .iter()
            .map(|(ask, share)| share * lost(ask) as f64)
            .sum()
    }

    /// Thousandths of GPUs for which no CPU will be left.
    fn stranded(&self, room: &Room) -> f64 {
        if self.cpu_per_gpu <= 0.0 {
            return 0.0;
        }
        (room.gpu_milli() as f64 - room.cpu_milli as f64 / self.cpu_per_gpu).max(0.0)
    }

    /// Thousandths of a GPU that a share wastes of the gap it goes to.
    fn wasted(&self, room: &Room, ask: &Ask, gpus: &[usize]) -> f64 {
        let gap = gpus.first().and_then(|gpu| room.free_milli.get(*gpu));
        gap.filter(|_| ask.is_share())
            .map_or(0.0, |gap| self.gaps.loss(*gap, ask.share_milli))
    }

    /// The cheapest way to put a pod on a node, where it fits: its cost in millionths of a GPU, and the GPUs.
    /// `fragment` is that of the node as it is.
    #[must_use]
    pub fn place(&self, room: &Room, fragment: f64, ask: &Ask, weights: &Weights) -> Option<(Cost, Gpus)> {
        if !room.fits(ask) {
            return None;
        }
        let stranded = self.stranded(room);
        let model = if ask.gpus == 0 {
            0.0
        } else {
            self.pressure(room.model)
        };
        let cost = |gpus: &Gpus| {
            let after = room.after(ask, gpus);
            let left = 0.5 * (after.cpu_milli as f64 / 1e3).min(CORES) / CORES
                + 0.5 * after.gpu_milli() as f64 / f64::from(WHOLE) / GPUS;
            let milli = self.fragment(&after) - fragment
                + weights.tight * f64::from(WHOLE) * left
                + weights.stranded * (self.stranded(&after) - stranded)
                + weights.model * ask.gpu_milli() as f64 * model
                + weights.gap * self.wasted(room, ask, gpus);
            (milli * 1e3).round() as Cost
        };
        let priced = room.ways(ask).into_iter().map(|gpus| (cost(&gpus), gpus));
        priced.min()
    }
}

#[cfg(test)]
mod tests;

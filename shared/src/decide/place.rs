//! Where a pod goes. Every candidate is ranked by what it costs the pool, in an order without ties: cost, then
//! how much must be cut, then node name, GPU index and the highest start. A rank is a function of the node, what is
//! needed and the tables.
//!
//! * `needs` - what of a request a rank depends on
//! * `terms` - whole GPUs, stranded CPU, racks and the forecast: what a node costs beyond the windows of slices
//! * `combine` - several slices for one pod
//! * [`Standings`] - ranks kept from one decision to the next

mod combine;
mod needs;
mod standings;
mod terms;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use needs::Needs;
pub use standings::Standings;

use super::reason::{Reason, Refusal};
use super::score::{Cost, Tables};
use crate::api::gpu_node::Health;
use crate::api::gpu_pool::Mode;
use crate::mig::layout::window;
use crate::mig::{Place, Profile, Use};
use crate::names::{DeviceId, Placements};
use crate::snapshot::{Gpu, Node, NodeState, Request, Snapshot};

/// A placement on one node and its price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Container by container.
    pub placements: Placements,
    /// Where it stands among others.
    pub rank: Rank,
}

/// Where a placement stands among others of the same request: less is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// What it costs the pool.
    pub cost: Cost,
    /// Slices that must be made: an idle one that is there already is faster.
    pub cuts: u32,
}

/// A node that can take a request.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The node.
    pub node: &'a Node,
    /// Where it stands.
    pub rank: Rank,
}

/// All nodes that can take a request.
#[derive(Clone, Debug)]
pub struct Ranking<'a> {
    candidates: Vec<Candidate<'a>>,
}

impl<'a> Ranking<'a> {
    /// The one best.
    #[must_use]
    pub fn best(&self) -> Option<Candidate<'a>> {
        self.candidates
            .iter()
            .min_by_key(|candidate| candidate.key())
            .copied()
    }

    /// Those whose cost is within `hair` of the best, best first.
    #[must_use]
    pub fn within(&self, hair: Cost) -> Vec<Candidate<'a>> {
        let Some(best) = self.best() else {
            return Vec::new();
        };
        let near = |candidate: &&Candidate<'_>| candidate.rank.cost <= best.rank.cost.saturating_add(hair);
        let mut near: Vec<_> = self.candidates.iter().filter(near).copied().collect();
        near.sort_by(|a, b| a.key().cmp(&b.key()));
        near
    }
}

impl<'a> Candidate<'a> {
    fn key(&self) -> (Rank, &'a str) {
        (self.rank, &self.node.name)
    }
}

/// Ranks the nodes among `candidates` that can take the request.
///
/// # Errors
/// [`Refusal`] counts, over every GPU of the snapshot, why none can.
pub fn rank<'a, N: AsRef<str>>(
    snapshot: &'a Snapshot,
    request: &Request,
    candidates: impl IntoIterator<Item = N>,
    tables: &Tables,
) -> Result<Ranking<'a>, Refusal> {
    let needs = Needs::of(request);
    let mut found = Vec::new();
    let mut refused: Vec<&'a str> = Vec::new();
    for name in candidates {
        let Some(node) = snapshot.nodes.get(name.as_ref()) else {
            continue;
        };
        match rank_on(node, &needs, tables) {
            Some(rank) => found.push(Candidate { node, rank }),
            None => refused.push(&node.name),
        }
    }
    if found.is_empty() {
        refused.sort_unstable();
        return Err(explain(snapshot, request, |node| {
            refused.binary_search(&node).is_ok()
        }));
    }
    Ok(Ranking { candidates: found })
}

/// The best placement of a request on one node, if it has room.
#[must_use]
pub fn on_node(node: &Node, request: &Request, tables: &Tables) -> Option<Chosen> {
    let needs = Needs::of(request);
    let (places, rank) = match needs.items.as_slice() {
        [] => (Vec::new(), Rank::default()),
        [Some(profile)] => {
            let (rank, gpu, start) = single(node, *profile, tables)?;
            let place = Place::new(*profile, start);
            (vec![DeviceId::new(node.gpus[gpu].uuid.clone(), place)], rank)
        }
        _ => combine::search(node, &needs, tables)?,
    };
    Some(Chosen {
        placements: request.assign(&places),
        rank: with_terms(rank, node, &needs, tables)?,
    })
}

/// Why no GPU of the snapshot takes the request, counted by reason. `offered` says whether kube-scheduler left a
/// node for us to choose.
#[must_use]
pub fn explain(snapshot: &Snapshot, request: &Request, offered: impl Fn(&str) -> bool) -> Refusal {
    let distinct = request.distinct();
    let mut gpus: BTreeMap<Reason, usize> = BTreeMap::new();
    for node in snapshot.nodes.values() {
        let offered = offered(&node.name);
        let boards = node.gpus.iter().filter(|gpu| gpu.board.is_some()).count();
        for gpu in &node.gpus {
            let reason = if offered {
                why_not(node, gpu, &distinct, boards)
            } else {
                Reason::RuledOut
            };
            *gpus.entry(reason).or_default() += 1;
        }
    }
    Refusal::NoRoom {
        asked: request.in_words(),
        gpus,
    }
}

fn rank_on(node: &Node, needs: &Needs, tables: &Tables) -> Option<Rank> {
    let rank = match needs.items.as_slice() {
        [] => Rank::default(),
        [Some(profile)] => single(node, *profile, tables)?.0,
        _ => combine::search(node, needs, tables)?.1,
    };
    with_terms(rank, node, needs, tables)
}

/// The rank of the slices with the terms of the node.
fn with_terms(slices: Rank, node: &Node, needs: &Needs, tables: &Tables) -> Option<Rank> {
    if needs.items.is_empty() {
        return Some(slices);
    }
    Some(Rank {
        cost: slices.cost + terms::of(node, needs, tables)?,
        ..slices
    })
}

/// The best GPU and start for one slice on a node.
fn single(node: &Node, profile: Profile, tables: &Tables) -> Option<(Rank, usize, u8)> {
    if node.state != NodeState::Ready {
        return None;
    }
    let best_of = |(at, gpu): (usize, &Gpu)| {
        best_on(gpu, profile, node.mode, tables).map(|(rank, start)| (rank, at, start))
    };
    node.gpus
        .iter()
        .enumerate()
        .filter_map(best_of)
        .min_by_key(|(rank, at, start)| (*rank, *at, Reverse(*start)))
}

/// The best start for one slice on a GPU.
fn best_on(gpu: &Gpu, profile: Profile, mode: Mode, tables: &Tables) -> Option<(Rank, u8)> {
    let board = gpu.board.as_ref().filter(|_| takes_work(gpu))?;
    let table = tables.of(board)?;
    let at = board.profiles.iter().position(|row| row.profile == profile)?;
    let row = &board.profiles[at];
    let pressure = table.pressure(at);
    let rank = |cost, start| {
        let idle = gpu
            .layout()
            .at(Place::new(profile, start))
            .is_some_and(|slice| slice.used == Use::Idle);
        Rank {
            cost: cost + pressure,
            cuts: u32::from(!idle),
        }
    };
    // one look-up serves where the mask tells all: nothing idle to prefer, and no limit besides the windows
    if gpu.all_busy() && mode != Mode::Static && table.window_is_all(at) {
        let best = table.best(at, gpu.busy_mask());
        return best.map(|(cost, start)| {
            let cost = cost + pressure;
            (Rank { cost, cuts: 1 }, start)
        });
    }
    let busy = gpu.layout().busy();
    let priced = busy.offered(board, profile).into_iter().map(|place| {
        let cost = table.cost(gpu.busy_mask(), window(row.size, place.start));
        (rank(cost, place.start), place.start)
    });
    let allowed = priced.filter(|(rank, _)| mode != Mode::Static || rank.cuts == 0);
    allowed.min_by_key(|(rank, start)| (*rank, Reverse(*start)))
}

/// Whether anything new may be placed on a GPU.
fn takes_work(gpu: &Gpu) -> bool {
    !gpu.withheld && gpu.health == Health::Healthy
}

/// The one reason that a person should read first; `boards` of the node's GPUs are in MIG mode.
fn why_not(node: &Node, gpu: &Gpu, distinct: &[(Option<Profile>, u32)], boards: usize) -> Reason {
    match node.state {
        NodeState::Away => return Reason::AgentAway,
        NodeState::Paused => return Reason::Paused,
        NodeState::Ready => {}
    }
    if gpu.withheld {
        return Reason::Withheld;
    }
    if gpu.health != Health::Healthy {
        return Reason::Unhealthy;
    }
    let Some(board) = gpu.board.as_deref() else {
        return if distinct.iter().all(|(profile, _)| profile.is_some()) {
            Reason::MigOff
        } else {
            Reason::Full
        };
    };
    let mut largest = 0;
    for (profile, count) in distinct {
        let Some(profile) = profile else {
            return Reason::MigOn;
        };
        let Some(row) = board.row(*profile) else {
            return Reason::NoSuchProfile;
        };
        if *count as usize > usize::from(row.max) * boards {
            return Reason::TooLarge;
        }
        largest = largest.max(row.size);
    }
    if node.mode == Mode::Static {
        return Reason::NoIdleSlice;
    }
    let size = |place: Place| board.row(place.profile).map_or(0, |row| row.size);
    let mut busy = gpu
        .layout()
        .slices()
        .iter()
        .filter(|slice| slice.used != Use::Idle);
    if busy.all(|slice| size(slice.place) < largest) {
        Reason::SmallerSlices
    } else {
        Reason::Full
    }
}

#[cfg(test)]
mod tests;

//! Room by one move: when a slice fits nowhere, the running slice whose move opens a place for it. The smallest
//! that will do is moved, because its state is the least to carry; of those the one that leaves the pool in the
//! best shape, by the same measure that places pods. A pod with several slices is never moved for one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::score::{BoardTable, Cost, Tables};
use crate::api::gpu_node::Health;
use crate::api::gpu_pool::Mode;
use crate::mig::layout::window;
use crate::mig::{Board, Layout, Place, Profile, Slice, Use};
use crate::names::DeviceId;
use crate::policy::MOVES_FROM_SLICES;
use crate::snapshot::{Gpu, Node, NodeState, Owner, Snapshot};

/// A place on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The node.
    pub node: String,
    /// GPU and place.
    pub device: DeviceId,
}

/// One move and the place it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The pod that moves.
    pub owner: Owner,
    /// Where it is.
    pub from: Seat,
    /// Where it goes; free of what is used now, the place it leaves included.
    pub to: Seat,
    /// The place for the new slice.
    pub opens: Seat,
    /// What it costs.
    pub price: Price,
}

/// What a move costs; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price {
    /// Memory slices of what moves.
    pub size: u8,
    /// Cost of the pool's shape after the move and the new placement, less that before.
    pub cost: Cost,
}

/// What else has a say.
pub trait Rules {
    /// Whether the new slice may go to this node.
    fn offered(&self, node: &Node) -> bool;
    /// Whether this pod may be moved from one node to another, or within one: it is of ours, has no veto, was not
    /// moved lately, and the node takes it.
    fn may_move(&self, owner: &Owner, from: &Node, to: &Node) -> bool;
    /// Whether room for so many memory slices is worth the restart of a pod that has so many: for half a GPU or more,
    /// and where less is moved than let in.
    fn worth(&self, gained: u8, moved: u8) -> bool {
        gained >= MOVES_FROM_SLICES && moved < gained
    }
}

/// Everything may go everywhere, at any price.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Rules for Anywhere {
    fn offered(&self, _: &Node) -> bool {
        true
    }

    fn may_move(&self, _: &Owner, _: &Node, _: &Node) -> bool {
        true
    }

    fn worth(&self, _: u8, _: u8) -> bool {
        true
    }
}

/// The cheapest move that opens a place for one slice of `profile`. To be asked when none is free.
#[must_use]
pub fn one_move(
    snapshot: &Snapshot,
    profile: Profile,
    tables: &Tables,
    rules: &impl Rules,
) -> Option<Repair> {
    let mut openings: BTreeMap<u8, Vec<Opening<'_>>> = BTreeMap::new();
    for node in snapshot
        .nodes
        .values()
        .filter(|node| node.state == NodeState::Ready)
    {
        if node.mode == Mode::Dynamic && rules.offered(node) {
            for gpu in &node.gpus {
                for opening in openings_on(node, gpu, profile, tables, rules) {
                    openings.entry(opening.size).or_default().push(opening);
                }
            }
        }
    }
    let mut ways_out: BTreeMap<Profile, Vec<WayOut<'_>>> = BTreeMap::new();
    // sizes rise, so the first that works is the smallest
    openings.into_values().find_map(|same_size| {
        let repairs = same_size.into_iter().filter_map(|opening| {
            let moved = opening.moved.profile;
            let ways_out = ways_out
                .entry(moved)
                .or_insert_with(|| ways_out_of(snapshot, moved, tables));
            opening.repair(ways_out, rules)
        });
        repairs.min_by(|a, b| a.key().cmp(&b.key()))
    })
}

impl Repair {
    /// Price first, then names, so that there is never a tie.
    fn key(&self) -> (Price, &Seat, &Seat) {
        (self.price, &self.opens, &self.to)
    }
}

/// A window with one slice in it that may move.
struct Opening<'a> {
    node: &'a Node,
    gpu: &'a Gpu,
    board: &'a Board,
    table: &'a BoardTable,
    owner: &'a Owner,
    moved: Place,
    size: u8,
    opens: Place,
    /// The used slices once `moved` is gone and `opens` is there.
    after: Layout,
    /// Cost of that.
    cost: Cost,
}

/// A free place for a slice that moves, with its cost.
struct WayOut<'a> {
    cost: Cost,
    node: &'a Node,
    gpu: &'a Gpu,
    place: Place,
}

/// The windows for `profile` on a GPU that one move opens.
fn openings_on<'a>(
    node: &'a Node,
    gpu: &'a Gpu,
    profile: Profile,
    tables: &'a Tables,
    rules: &impl Rules,
) -> Vec<Opening<'a>> {
    let Some((board, table)) = placing_on(gpu, tables) else {
        return Vec::new();
    };
    let Some(row) = board.row(profile) else {
        return Vec::new();
    };
    let busy = gpu.layout().busy();
    let mask = gpu.busy_mask();
    let mut found = Vec::new();
    for start in &row.starts {
        let wanted = window(row.size, *start);
        let mut blockers = busy
            .slices()
            .iter()
            .filter(|slice| covered(board, slice.place) & wanted != 0);
        let (Some(blocker), None) = (blockers.next(), blockers.next()) else {
            continue;
        };
        let Some(owner) = gpu
            .owner(blocker.place)
            .filter(|owner| has_one_slice(node, owner))
        else {
            continue;
        };
        let freed = covered(board, blocker.place);
        let size = u8::try_from(freed.count_ones()).unwrap_or(u8::MAX);
        let mut after = busy.clone();
        after.remove(blocker.place);
        let opens = Place::new(profile, *start);
        if blocker.used != Use::Allocated || !rules.worth(row.size, size) || !after.fits(board, opens) {
            continue;
        }
        after.insert(Slice {
            place: opens,
            used: Use::Allocated,
        });
        let left = mask & !freed;
        found.push(Opening {
            node,
            gpu,
            board,
            table,
            owner,
            moved: blocker.place,
            size,
            opens,
            after,
            cost: table.fragment(left) - table.fragment(mask) + table.cost(left, wanted),
        });
    }
    found
}

/// All free places for one slice of `profile`, the best of each GPU, cheapest first.
fn ways_out_of<'a>(snapshot: &'a Snapshot, profile: Profile, tables: &Tables) -> Vec<WayOut<'a>> {
    let mut found = Vec::new();
    for node in snapshot.nodes.values() {
        if node.state != NodeState::Ready || node.mode == Mode::Static {
            continue;
        }
        for gpu in &node.gpus {
            let Some((board, table)) = placing_on(gpu, tables) else {
                continue;
            };
            if let Some((cost, place)) = cheapest(board, table, &gpu.layout().busy(), profile) {
                found.push(WayOut {
                    cost,
                    node,
                    gpu,
                    place,
                });
            }
        }
    }
    found.sort_by(|a, b| (a.cost, &a.node.name, a.gpu.index).cmp(&(b.cost, &b.node.name, b.gpu.index)));
    found
}

impl Opening<'_> {
    /// The move to the cheapest way out, or within the GPU where that is cheaper.
    fn repair(self, ways_out: &[WayOut<'_>], rules: &impl Rules) -> Option<Repair> {
        let inside = cheapest(self.board, self.table, &self.after, self.moved.profile)
            .filter(|_| rules.may_move(self.owner, self.node, self.node));
        let outside = ways_out
            .iter()
            .find(|way| way.gpu.uuid != self.gpu.uuid && rules.may_move(self.owner, self.node, way.node));
        let seat = |node: &Node, gpu: &Gpu, place| Seat {
            node: node.name.clone(),
            device: DeviceId::new(gpu.uuid.clone(), place),
        };
        let (cost, to) = match (inside, outside) {
            // at the same cost the move that stays on its GPU
            (Some((cost, place)), way) if way.is_none_or(|way| cost <= way.cost) => {
                (cost, seat(self.node, self.gpu, place))
            }
            (_, Some(way)) => (way.cost, seat(way.node, way.gpu, way.place)),
            _ => return None,
        };
        Some(Repair {
            owner: self.owner.clone(),
            from: seat(self.node, self.gpu, self.moved),
            to,
            opens: seat(self.node, self.gpu, self.opens),
            price: Price {
                size: self.size,
                cost: self.cost + cost,
            },
        })
    }
}

/// The cheapest free place for a slice beside `used`, of equal ones the highest.
fn cheapest(board: &Board, table: &BoardTable, used: &Layout, profile: Profile) -> Option<(Cost, Place)> {
    let mask = used.mask(board);
    let priced = used
        .offered(board, profile)
        .into_iter()
        .map(|place| (table.cost(mask, covered(board, place)), place));
    priced.min_by_key(|(cost, place)| (*cost, Reverse(place.start)))
}

/// Board and costs of a GPU that takes work.
fn placing_on<'a>(gpu: &'a Gpu, tables: &'a Tables) -> Option<(&'a Board, &'a BoardTable)> {
    let board = gpu.board.as_ref()?;
    let takes_work = !gpu.withheld && gpu.health == Health::Healthy;
    takes_work.then_some((&**board, tables.of(board)?))
}

/// The slices a place covers; a place the board does not know covers all.
fn covered(board: &Board, place: Place) -> u16 {
    place.window(board).unwrap_or(u16::MAX)
}

/// Whether a pod has one slice on its node and no more.
fn has_one_slice(node: &Node, owner: &Owner) -> bool {
    let mut owned = node
        .gpus
        .iter()
        .flat_map(Gpu::owners)
        .filter(|(_, other)| *other == owner);
    owned.next().is_some() && owned.next().is_none()
}

#[cfg(test)]
mod tests;

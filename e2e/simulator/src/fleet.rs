//! Any pods on any board under production's decisions: the functions that the extender calls, on the snapshot that
//! it calls them with, under a virtual clock. A pod may ask for several slices and for whole GPUs; all GPUs are in
//! MIG mode, so a whole GPU is the board's largest slice.

use std::sync::Arc;

use shared::decide::place::{on_node, rank};
use shared::decide::repair::{Repair, Rules, one_move};
use shared::decide::score::{Demand, Tables};
use shared::mig::Board;
use shared::mig::layout::plain;
use shared::names::{DeviceId, Placements};
use shared::policy::Policy;
use shared::snapshot::{Gpu, Node, Owner, Request, Snapshot, Want};

/// What a moved pod's slice is entered under, and the container of pods that are made up.
pub const CONTAINER: &str = "main";

/// What the UUIDs of GPUs begin with.
const GPU: &str = "GPU-";

/// Everything may move everywhere, where it is worth it.
struct Unbound;

impl Rules for Unbound {
    fn offered(&self, _: &Node) -> bool {
        true
    }

    fn may_move(&self, _: &Owner, _: &Node, _: &Node) -> bool {
        true
    }
}

/// A pod was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The pod that was moved for it.
    pub moved: Option<usize>,
}

/// How a fleet is made.
#[derive(Clone, Debug)]
pub struct Make {
    /// What all GPUs are.
    pub board: Arc<Board>,
    /// GPUs in a node; the last node has the rest.
    pub gpus_per_node: usize,
    /// Tunable numbers.
    pub policy: Policy,
    /// Whether a running pod may be moved for one that fits nowhere.
    pub repairs: bool,
}

/// GPUs under our decisions.
#[derive(Clone, Debug)]
pub struct Fleet {
    make: Make,
    snapshot: Snapshot,
    /// Where each pod is, by number.
    seats: Vec<Option<Seat>>,
    demand: Demand,
    tables: Tables,
    moves: usize,
}

#[derive(Clone, Debug)]
struct Seat {
    node: usize,
    devices: Vec<DeviceId>,
}

impl Fleet {
    /// So many empty GPUs.
    #[must_use]
    pub fn new(make: Make, gpus: usize) -> Self {
        let per_node = make.gpus_per_node.max(1);
        let node = |at: usize| {
            let name = node_name(at);
            let first = at * per_node;
            let gpus = (first..gpus.min(first + per_node)).map(|gpu| {
                let index = u32::try_from(gpu - first).unwrap_or_default();
                Gpu::new(format!("{GPU}{gpu:06}"), index, Some(Arc::clone(&make.board)))
            });
            let node = Node::new(name.clone(), gpus.collect());
            (name.as_str().into(), Arc::new(node))
        };
        let demand = Demand::default();
        Self {
            snapshot: Snapshot {
                nodes: (0..gpus.div_ceil(per_node)).map(node).collect(),
            },
            seats: Vec::new(),
            tables: Tables::new([&make.board], &demand, &make.policy),
            demand,
            moves: 0,
            make,
        }
    }

    /// Pod number `pod` arrives at `now` seconds; `None` where it is not let in.
    pub fn arrive(&mut self, now: f64, pod: usize, request: &Request) -> Option<Arrived> {
        let request = sliced(request, &self.make.board);
        self.learn(now, &request);
        if self.place(pod, &request) {
            return Some(Arrived { moved: None });
        }
        let moved = self.make.repairs.then(|| self.repair(pod, &request)).flatten()?;
        Some(Arrived { moved: Some(moved) })
    }

    /// What a pod has; nothing where it is not in.
    #[must_use]
    pub fn devices(&self, pod: usize) -> &[DeviceId] {
        let seat = self.seats.get(pod).and_then(Option::as_ref);
        seat.map_or(&[], |seat| &seat.devices)
    }

    /// It leaves; one that never got in changes nothing.
    pub fn depart(&mut self, pod: usize) {
        let Some(seat) = self.seats.get_mut(pod).and_then(Option::take) else {
            return;
        };
        self.free(&seat);
    }

    /// GPUs with anything on them.
    #[must_use]
    pub fn active(&self) -> usize {
        self.snapshot
            .gpus()
            .filter(|(_, gpu)| gpu.busy_mask() != 0)
            .count()
    }

    /// Moves so far.
    #[must_use]
    pub const fn moves(&self) -> usize {
        self.moves
    }

    fn learn(&mut self, now: f64, request: &Request) {
        let half_life = f64::from(self.make.policy.demand_half_life_minutes) * 60.0;
        self.demand.arrive(request, 0, now, half_life);
        if self.tables.is_behind(&self.demand) {
            self.tables = Tables::new([&self.make.board], &self.demand, &self.make.policy);
        }
    }

    fn place(&mut self, pod: usize, request: &Request) -> bool {
        let chosen = rank(&self.snapshot, request, self.snapshot.nodes.keys(), &self.tables)
            .ok()
            .and_then(|ranking| {
                let node = ranking.best()?.node;
                Some((index_of(&node.name), on_node(node, request, &self.tables)?))
            });
        let Some((node, chosen)) = chosen else {
            return false;
        };
        let devices = chosen.placements.places().into_iter().cloned().collect();
        self.put(pod, node, chosen.placements, devices)
    }

    /// Moves a pod for one that fits nowhere; gives the one moved.
    fn repair(&mut self, pod: usize, request: &Request) -> Option<usize> {
        // production moves for a single slice only
        let [(Some(profile), 1)] = request.distinct()[..] else {
            return None;
        };
        let Repair { owner, to, opens, .. } = one_move(&self.snapshot, profile, &self.tables, &Unbound)?;
        let moved = owner.pod.parse().ok()?;
        self.depart(moved);
        self.moves += 1;
        let both = self.put_one(moved, index_of(&to.node), to.device)
            && self.put_one(pod, index_of(&opens.node), opens.device);
        both.then_some(moved)
    }

    /// Enters one slice.
    fn put_one(&mut self, pod: usize, node: usize, device: DeviceId) -> bool {
        let placements = Placements([(CONTAINER.to_owned(), vec![device.clone()])].into());
        self.put(pod, node, placements, vec![device])
    }

    /// Enters a placement; the snapshot judges whether it is legal.
    fn put(&mut self, pod: usize, node: usize, placements: Placements, devices: Vec<DeviceId>) -> bool {
        let owner = Owner {
            namespace: "simulated".to_owned(),
            pod: pod.to_string(),
            uid: String::new(),
        };
        let Ok(stays) = self.snapshot.assume(&node_name(node), &placements, &owner) else {
            return false;
        };
        drop(stays);
        if self.seats.len() <= pod {
            self.seats.resize(pod + 1, None);
        }
        self.seats[pod] = Some(Seat { node, devices });
        true
    }

    fn free(&mut self, seat: &Seat) {
        let name = node_name(seat.node);
        if let Some(node) = self.snapshot.nodes.get_mut(name.as_str()).map(Arc::make_mut) {
            node.version += 1;
            for device in &seat.devices {
                if let Some(gpu) = node.gpus.iter_mut().find(|gpu| gpu.uuid == device.gpu) {
                    gpu.take(device.place);
                }
            }
        }
    }
}

/// The request with whole GPUs as the board's largest slices.
#[must_use]
pub fn sliced(request: &Request, board: &Board) -> Request {
    let largest = plain(board).max_by_key(|row| (row.size, row.profile.compute));
    let want = |want: &Want| Want {
        profile: want.profile.or_else(|| largest.map(|row| row.profile)),
        ..want.clone()
    };
    Request {
        wants: request.wants.iter().map(want).collect(),
        ..request.clone()
    }
}

/// Names sort as numbers do, so that the order of the cluster is that of the indexes.
fn node_name(at: usize) -> String {
    format!("node-{at:06}")
}

/// Index of a GPU over all nodes.
#[must_use]
pub fn gpu_of(device: &DeviceId) -> usize {
    device.gpu.trim_start_matches(GPU).parse().unwrap_or_default()
}

fn index_of(name: &str) -> usize {
    name.trim_start_matches("node-").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests;

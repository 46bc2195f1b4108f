//! The fleet under migpool's own decisions: the very functions that the extender calls, on the very snapshot, under
//! a virtual clock.

use std::sync::Arc;

use shared::decide::place::{on_node, rank};
use shared::decide::repair::{Repair, Rules, Seat as Moves, one_move};
use shared::decide::score::{Demand, Tables};
use shared::names::{DeviceId, Placements};
use shared::policy::MOVES_FROM_SLICES;
use shared::policy::Policy;
use shared::snapshot::{Gpu, Node, Owner, Phase, Request, Snapshot, Want};

use super::engine::{Fleet, Moved, Outcome, Seat};
use super::shapes::Shapes;

/// What one mean lifetime is on the virtual clock, seconds. The half-life of the demand mix is counted against it:
/// an hour makes the default of six hours six lifetimes.
pub const LIFETIME_SECONDS: f64 = 3_600.0;
/// GPUs in a node.
const GPUS_PER_NODE: usize = 4;
/// The one container of every pod.
const CONTAINER: &str = "main";

/// Everything may move everywhere, for requests that are large enough.
struct Worth;

impl Rules for Worth {
    fn offered(&self, _: &Node) -> bool {
        true
    }

    fn may_move(&self, _: &Owner, _: &Node, _: &Node) -> bool {
        true
    }

    fn worth(&self, gained: u8, _: u8) -> bool {
        gained >= MOVES_FROM_SLICES
    }
}

/// GPUs under our decisions.
#[derive(Clone, Debug)]
pub struct OurFleet<'a> {
    shapes: &'a Shapes,
    policy: Policy,
    repairs: bool,
    snapshot: Snapshot,
    /// One request for each profile.
    requests: Vec<Request>,
    /// Where each pod is, by number.
    seats: Vec<Option<(usize, DeviceId)>>,
    demand: Demand,
    tables: Tables,
}

impl<'a> OurFleet<'a> {
    /// Empty GPUs.
    #[must_use]
    pub fn new(shapes: &'a Shapes, policy: Policy, repairs: bool, gpus: usize) -> Self {
        let node = |at: usize| {
            let name = node_name(at);
            let first = at * GPUS_PER_NODE;
            let gpus = (first..gpus.min(first + GPUS_PER_NODE)).map(|gpu| {
                let index = u32::try_from(gpu - first).unwrap_or_default();
                Gpu::new(uuid(gpu), index, Some(Arc::clone(&shapes.board)))
            });
            let node = Node::new(name.clone(), gpus.collect());
            (name.as_str().into(), Arc::new(node))
        };
        let request = |profile| Request {
            wants: vec![Want {
                container: CONTAINER.to_owned(),
                phase: Phase::Main,
                profile: Some(profile),
                count: 1,
            }],
            ..Request::default()
        };
        let demand = Demand::default();
        Self {
            tables: Tables::new([&shapes.board], &demand, &policy),
            shapes,
            policy,
            repairs,
            snapshot: Snapshot {
                nodes: (0..gpus.div_ceil(GPUS_PER_NODE)).map(node).collect(),
            },
            requests: shapes.each().map(|shape| request(shape.profile)).collect(),
            seats: Vec::new(),
            demand,
        }
    }

    /// The cluster as it is.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn learn(&mut self, now: f64, class: usize) {
        let seconds = now * LIFETIME_SECONDS;
        let half_life = f64::from(self.policy.demand_half_life_minutes) * 60.0;
        self.demand
            .record(self.shapes.shape(class).profile, 1, seconds, half_life);
        if self.tables.is_behind(&self.demand) {
            self.tables = Tables::new([&self.shapes.board], &self.demand, &self.policy);
        }
    }

    /// Where the request goes as things are.
    fn place(&self, class: usize) -> Option<(usize, DeviceId)> {
        let request = &self.requests[class];
        let ranking = rank(&self.snapshot, request, self.snapshot.nodes.keys(), &self.tables).ok()?;
        let chosen = on_node(ranking.best()?.node, request, &self.tables)?;
        let device = chosen.placements.0.into_values().flatten().next()?;
        Some((gpu_of(&device), device))
    }

    fn put(&mut self, pod: usize, gpu: usize, device: DeviceId) {
        let placements = Placements([(CONTAINER.to_owned(), vec![device.clone()])].into());
        // the snapshot judges legality; a refusal would show as a request that never got its place
        if let Ok(stays) = self
            .snapshot
            .assume(&node_name(gpu / GPUS_PER_NODE), &placements, &owner(pod))
        {
            drop(stays);
            if self.seats.len() <= pod {
                self.seats.resize(pod + 1, None);
            }
            self.seats[pod] = Some((gpu, device));
        }
    }

    fn take(&mut self, pod: usize) {
        let Some((gpu, device)) = self.seats.get_mut(pod).and_then(Option::take) else {
            return;
        };
        let name = node_name(gpu / GPUS_PER_NODE);
        if let Some(node) = self.snapshot.nodes.get_mut(name.as_str()).map(Arc::make_mut) {
            node.version += 1;
            if let Some(gpu) = node.gpus.get_mut(gpu % GPUS_PER_NODE) {
                gpu.take(device.place);
            }
        }
    }

    fn repair(&mut self, pod: usize, class: usize) -> Option<Outcome> {
        let profile = self.shapes.shape(class).profile;
        let Repair { owner, to, opens, .. } = one_move(&self.snapshot, profile, &self.tables, &Worth)?;
        let moved = owner.pod.parse().ok()?;
        self.take(moved);
        self.put(moved, gpu_of(&to.device), to.device.clone());
        self.put(pod, gpu_of(&opens.device), opens.device.clone());
        Some(Outcome {
            seat: self.seat(pod),
            moved: vec![Moved {
                pod: moved,
                to: seat(&to),
            }],
        })
    }

    fn seat(&self, pod: usize) -> Option<Seat> {
        let (gpu, device) = self.seats.get(pod)?.as_ref()?;
        Some(Seat {
            gpu: *gpu,
            start: device.place.start,
        })
    }
}

impl Fleet for OurFleet<'_> {
    fn arrive(&mut self, now: f64, pod: usize, class: usize) -> Outcome {
        self.learn(now, class);
        if let Some((gpu, device)) = self.place(class) {
            self.put(pod, gpu, device);
            return Outcome {
                seat: self.seat(pod),
                moved: Vec::new(),
            };
        }
        let repaired = if self.repairs {
            self.repair(pod, class)
        } else {
            None
        };
        repaired.unwrap_or_default()
    }

    fn depart(&mut self, _: f64, pod: usize) {
        self.take(pod);
    }

    fn active(&self) -> usize {
        self.snapshot
            .gpus()
            .filter(|(_, gpu)| gpu.busy_mask() != 0)
            .count()
    }
}

fn seat(moves: &Moves) -> Seat {
    Seat {
        gpu: gpu_of(&moves.device),
        start: moves.device.place.start,
    }
}

/// Names sort as numbers do, so that the order of the cluster is that of the indexes.
fn node_name(at: usize) -> String {
    format!("node-{at:05}")
}

fn uuid(gpu: usize) -> String {
    format!("GPU-{gpu:05}")
}

fn gpu_of(device: &DeviceId) -> usize {
    device.gpu.trim_start_matches("GPU-").parse().unwrap_or_default()
}

fn owner(pod: usize) -> Owner {
    Owner {
        namespace: "simulated".to_owned(),
        pod: pod.to_string(),
        uid: String::new(),
    }
}

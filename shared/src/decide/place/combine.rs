//! Several slices for one pod: on one GPU if they can, else on one node. Exact on a node's GPUs by a bounded
//! search that tries the cheapest places first.

use std::cmp::Reverse;

use super::needs::Needs;
use super::{Rank, best_on};
use crate::api::gpu_pool::Mode;
use crate::decide::score::{Cost, Tables};
use crate::mig::layout::window;
use crate::mig::{Place, Profile, Use};
use crate::names::DeviceId;
use crate::snapshot::{Gpu, Node, NodeState, Owner};

/// Steps after which a search settles for what it has: a request of a few slices takes far fewer, and a pod
/// that asks for hundreds must not hold up the others.
const MAX_STEPS: u32 = 20_000;

/// Places for all slices on a node: first on each GPU alone, then over all of them. Whole GPUs are the kubelet's to
/// choose: they are priced by `terms`, which also sees that they are there.
pub(super) fn search(node: &Node, needs: &Needs, tables: &Tables) -> Option<(Vec<DeviceId>, Rank)> {
    if node.state != NodeState::Ready {
        return None;
    }
    let slices: Vec<Profile> = needs.slices().collect();
    if slices.is_empty() {
        return Some((Vec::new(), Rank::default()));
    }
    let on_one = node.gpus.iter().filter_map(|gpu| {
        let mut search = Search {
            mode: node.mode,
            tables,
            steps: 0,
        };
        search
            .run(std::slice::from_ref(gpu), &slices)
            .map(|places| (gpu.index, places))
    });
    let priced = on_one.map(|(index, places)| (price(node, &places, tables), index, places));
    if let Some((rank, _, places)) = priced.min_by_key(|(rank, index, _)| (*rank, *index)) {
        return Some((places, rank));
    }
    let places = Search {
        mode: node.mode,
        tables,
        steps: 0,
    }
    .run(&node.gpus, &slices)?;
    let rank = price(node, &places, tables);
    Some((places, rank))
}

struct Search<'a> {
    mode: Mode,
    tables: &'a Tables,
    steps: u32,
}

impl Search<'_> {
    fn run(&mut self, gpus: &[Gpu], items: &[Profile]) -> Option<Vec<DeviceId>> {
        let mut gpus = gpus.to_vec();
        let mut places = Vec::new();
        self.go(&mut gpus, items, &mut places).then_some(places)
    }

    /// Depth first, cheapest place first; what was tried is taken back before the next.
    fn go(&mut self, gpus: &mut [Gpu], items: &[Profile], places: &mut Vec<DeviceId>) -> bool {
        let Some((profile, rest)) = items.split_first() else {
            return true;
        };
        for (_, at, place) in self.options(gpus, *profile) {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return false;
            }
            let before = gpus[at].clone();
            gpus[at].hold(
                place,
                Owner {
                    namespace: String::new(),
                    pod: String::new(),
                    uid: String::new(),
                },
            );
            places.push(DeviceId::new(before.uuid.clone(), place));
            if self.go(gpus, rest, places) {
                return true;
            }
            places.pop();
            gpus[at] = before;
        }
        false
    }

    /// Every place for one slice, in order.
    fn options(&self, gpus: &[Gpu], profile: Profile) -> Vec<(Rank, usize, Place)> {
        let mut options = Vec::new();
        for (at, gpu) in gpus.iter().enumerate() {
            // asks the same judge as a single slice does, then widens to all its places
            if best_on(gpu, profile, self.mode, self.tables).is_none() {
                continue;
            }
            let Some(board) = &gpu.board else { continue };
            for place in gpu.layout().busy().offered(board, profile) {
                let idle = gpu
                    .layout()
                    .at(place)
                    .is_some_and(|slice| slice.used == Use::Idle);
                if idle || self.mode != Mode::Static {
                    options.push((
                        Rank {
                            cost: step(gpu, place, self.tables),
                            cuts: u32::from(!idle),
                        },
                        at,
                        place,
                    ));
                }
            }
        }
        options.sort_by_key(|(rank, at, place)| (*rank, *at, Reverse(place.start)));
        options
    }
}

/// What one slice costs on a GPU as it is.
fn step(gpu: &Gpu, place: Place, tables: &Tables) -> Cost {
    let priced = gpu.board.as_ref().and_then(|board| {
        let at = board
            .profiles
            .iter()
            .position(|row| row.profile == place.profile)?;
        let (table, row) = (tables.of(board)?, &board.profiles[at]);
        Some(table.cost(gpu.busy_mask(), window(row.size, place.start)) + table.pressure(at))
    });
    priced.unwrap_or(Cost::MAX / 4)
}

/// What all the places cost together, in the order they were found.
fn price(node: &Node, places: &[DeviceId], tables: &Tables) -> Rank {
    let mut gpus = node.gpus.clone();
    let mut rank = Rank::default();
    for device in places {
        let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == device.gpu) else {
            continue;
        };
        rank.cost += step(gpu, device.place, tables);
        rank.cuts += u32::from(gpu.layout().at(device.place).is_none());
        gpu.hold(
            device.place,
            Owner {
                namespace: String::new(),
                pod: String::new(),
                uid: String::new(),
            },
        );
    }
    rank
}

//! What a request costs on a node beyond the windows of its slices, in the same unit. Each term is a function of the
//! node, the needs and the tables alone, so that a rank holds until one of them changes; and each is nothing where
//! what it looks at is not known.
//!
//! * Whole GPUs are priced by [`crate::decide::pack`]: expected fragment, tight fit, stranded CPU, model pressure.
//! * Slices pay for those of the node that its CPU could no longer serve, and are paid for those it could not anyway.
//!   A pod that takes less CPU than usual thus goes where CPU is short, one that takes more goes where it is not.
//! * The first pod in a rack pays for breaking it.
//! * A node that is expected to be busy costs more. Of what costs can differ by, the forecast makes up at most the
//!   policy's share: `span * w / (100 - w)` where a full load is expected, `span` being what the rest can differ by.

use super::needs::Needs;
use super::takes_work;
use crate::decide::pack::{Ask, Room, WHOLE, Weights};
use crate::decide::score::{Cost, Tables};
use crate::mig::Profile;
use crate::policy::{FREE_RACK_COST, SLICES_OF_A_GPU, STRANDED_SLICE_WEIGHT};
use crate::snapshot::{Gpu, Node, Outlook};

/// A memory slice.
const SLICE: Cost = 1_000_000;
/// CPU of a node that has not told: enough for anybody.
const PLENTY: u64 = u64::MAX >> 1;

/// All terms together; `None` where the node has not the whole GPUs that are needed.
pub(super) fn of(node: &Node, needs: &Needs, tables: &Tables) -> Option<Cost> {
    let whole = needs.whole();
    let gpus = if whole == 0 {
        stranded(node, needs, tables)
    } else {
        whole_gpus(node, needs, whole, tables)?
    };
    Some(gpus + rack(node, tables) + outlook(node, needs, tables))
}

/// What whole GPUs cost, with all the CPU of the pod.
fn whole_gpus(node: &Node, needs: &Needs, whole: usize, tables: &Tables) -> Option<Cost> {
    let ask = Ask {
        cpu_milli: needs.cpu_milli,
        memory_mib: 0,
        gpus: u32::try_from(whole).unwrap_or(u32::MAX),
        share_milli: WHOLE,
        models: 0,
    };
    let room = room(node, &ask, tables);
    let workload = tables.workload();
    let (cost, _) = workload.place(&room, workload.fragment(&room), &ask, &Weights::default())?;
    Some(cost * SLICES_OF_A_GPU)
}

/// What a node has for pods with whole GPUs. Kube-scheduler has seen to their CPU, whatever we know of it.
fn room(node: &Node, ask: &Ask, tables: &Tables) -> Room {
    let free = |gpu: &Gpu| if is_free(gpu) { WHOLE } else { 0 };
    Room {
        cpu_milli: node.free.map_or(PLENTY, |free| free.cpu_milli.max(ask.cpu_milli)),
        memory_mib: 0,
        model: tables.model(node.model.as_deref()),
        free_milli: node.gpus.iter().map(free).collect(),
    }
}

/// Whether a pod could have the whole GPU.
fn is_free(gpu: &Gpu) -> bool {
    gpu.board.is_none() && gpu.whole.is_none() && takes_work(gpu)
}

/// What the slices cost by the CPU that goes with them.
fn stranded(node: &Node, needs: &Needs, tables: &Tables) -> Cost {
    let (Some(cpu), Some(each)) = (node.free.map(|free| free.cpu_milli), tables.cpu_of_a_slice()) else {
        return 0;
    };
    let sliced = node.gpus.iter().filter(|gpu| takes_work(gpu));
    let free: Cost = sliced.filter_map(free_slices).sum();
    let taken: Cost = needs.slices().filter_map(|profile| size(node, profile)).sum();
    // slices that CPU of this amount serves
    let served = |cpu: u64| {
        let slices = u128::from(cpu) * SLICE.unsigned_abs() as u128 / u128::from(each);
        Cost::try_from(slices).unwrap_or(Cost::MAX)
    };
    let lost = |free: Cost, cpu: u64| (free * SLICE).saturating_sub(served(cpu)).max(0);
    let after = lost(free - taken, cpu.saturating_sub(needs.cpu_milli));
    STRANDED_SLICE_WEIGHT * (after - lost(free, cpu))
}

fn free_slices(gpu: &Gpu) -> Option<Cost> {
    let board = gpu.board.as_ref()?;
    Some(Cost::from(board.memory_slices) - Cost::from(gpu.busy_mask().count_ones()))
}

/// Memory slices of a profile on the first GPU that offers it.
fn size(node: &Node, profile: Profile) -> Option<Cost> {
    let mut boards = node.gpus.iter().filter_map(|gpu| gpu.board.as_ref());
    boards.find_map(|board| Some(Cost::from(board.row(profile)?.size)))
}

fn rack(node: &Node, tables: &Tables) -> Cost {
    match &node.rack {
        Some(rack) if tables.is_free_rack(rack) => FREE_RACK_COST,
        Some(_) | None => 0,
    }
}

fn outlook(node: &Node, needs: &Needs, tables: &Tables) -> Cost {
    let Some(outlook) = node.outlook else { return 0 };
    let percent = tables.forecast_percent();
    let span: Cost = needs.items.iter().map(|item| span(node, *item, tables)).sum();
    span * percent * Cost::from(outlook.milli()) / ((100 - percent) * Cost::from(Outlook::WHOLE))
}

/// How far apart the costs of one item can be: of a slice on the first GPU that offers it, of a whole GPU all of it.
fn span(node: &Node, item: Option<Profile>, tables: &Tables) -> Cost {
    let Some(profile) = item else {
        return SLICES_OF_A_GPU * SLICE;
    };
    let boards = node.gpus.iter().filter_map(|gpu| gpu.board.as_ref());
    let mut spans = boards.filter_map(|board| {
        let at = board.profiles.iter().position(|row| row.profile == profile)?;
        Some(tables.of(board)?.span(at))
    });
    spans.next().unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! Nodes on paper for the benches: GPUs filled at random.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use scheduler_plugin::watch::gpu_nodes::GpuNodePart;
use shared::api::gpu_node::{BoardStatus, GpuStatus, Health, SliceStatus};
use shared::mig::{Board, Layout, Place, Slice, Use};

/// Share of memory slices in use.
pub(crate) const FULL: f64 = 0.7;
/// Pods by profile, as weights.
pub(crate) const MIX: [(&str, u32); 4] = [("1g.10gb", 50), ("2g.20gb", 25), ("3g.40gb", 20), ("1g.20gb", 5)];

/// A node whose GPUs are filled at random.
pub(crate) fn gpu_node(name: &str, gpus: u32, random: &mut StdRng) -> GpuNodePart {
    let board = Board::named("H100-80GB").expect("it is in the catalogue");
    let gpu = |index: u32| GpuStatus {
        uuid: format!("GPU-{name}-{index}"),
        index,
        model: "NVIDIA H100 80GB HBM3".into(),
        board: board.name.clone(),
        memory_mib: 81_559,
        numa_node: None,
        mig: true,
        health: Health::Healthy,
        message: String::new(),
        holder: None,
        slices: slices(board, random),
    };
    GpuNodePart {
        name: name.to_owned(),
        ready: true,
        boards: vec![Board::from(&BoardStatus::from(board))],
        gpus: (0..gpus).map(gpu).collect(),
        ..GpuNodePart::default()
    }
}

fn slices(board: &Board, random: &mut StdRng) -> Vec<SliceStatus> {
    let wanted = (0..board.memory_slices)
        .filter(|_| random.random_bool(FULL))
        .count() as u32;
    let mut layout = Layout::default();
    for _ in 0..32 {
        let row = board.profiles.choose(random).expect("profiles");
        let place = Place::new(row.profile, *row.starts.choose(random).expect("starts"));
        if layout.mask(board).count_ones() + u32::from(row.size) <= wanted {
            // a place that overlaps is drawn anew
            let _ = layout.add(
                board,
                Slice {
                    place,
                    used: Use::Allocated,
                },
            );
        }
    }
    let slice = |slice: &Slice| SliceStatus {
        place: slice.place,
        mig_uuid: String::new(),
        state: Use::Allocated,
        holder: None,
        message: String::new(),
    };
    layout.slices().iter().map(slice).collect()
}

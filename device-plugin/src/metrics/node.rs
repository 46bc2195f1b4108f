//! What describes the node: a line a slice, a few a GPU, read from the inventory at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use shared::api::gpu_node::Health;
use shared::mig::{Board, Layout, Place, Use};
use shared::names;

use crate::inventory::{Driver, Gpu, Held, Inventory, State};

pub(super) type Labels = Vec<(&'static str, String)>;

/// Reads the inventory.
pub(super) struct Node {
    inventory: Inventory,
}

impl Node {
    pub(super) const fn new(inventory: Inventory) -> Self {
        Self { inventory }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Node")
    }
}

/// A metric with a value for each of some labels.
pub(super) struct Gauge {
    name: &'static str,
    help: &'static str,
    pub(super) values: Vec<(Labels, f64)>,
}

impl Gauge {
    pub(super) const fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            values: Vec::new(),
        }
    }

    pub(super) fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, value) in self.values {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Node {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = gauges(&self.inventory.view().state);
        gauges
            .into_iter()
            .try_for_each(|gauge| gauge.encode(&mut encoder))
    }
}

fn gauges(state: &State) -> Vec<Gauge> {
    let gauge = Gauge::new;
    let mut info = gauge("slice_info", "A slice that exists");
    let mut allocated = gauge("slice_allocated", "Whether a pod has the slice");
    let mut healthy = gauge("slice_healthy", "Whether the slice works");
    let mut memory = gauge("slice_memory_bytes", "Memory of the slice");
    let mut gpu_healthy = gauge("gpu_healthy", "Whether the GPU takes work");
    let mut free_memory = gauge("gpu_free_memory_slices", "Memory slices that no pod has");
    let mut free_compute = gauge("gpu_free_compute_slices", "Compute slices that no pod has");
    let mut creatable = gauge(
        "gpu_creatable_slices",
        "Slices of a profile that could be made, taken alone",
    );
    let mut fragmentation = gauge(
        "gpu_fragmentation",
        "Share of free memory slices out of reach of the largest profile that fits",
    );
    let mut unlike = gauge(
        "gpu_table_unlike_catalogue",
        "Whether NVML's placement table is not our catalogue's",
    );
    let mut driver = gauge("driver_up", "Whether the NVIDIA driver answers");
    let mut stood_back = gauge("stood_back", "Whether another owner of the GPUs was found");
    driver
        .values
        .push((Vec::new(), flag(matches!(state.driver, Driver::Works(_)))));
    let reason = state.stood_back.as_ref().map_or("", |(reason, _)| reason);
    stood_back.values.push((
        vec![("reason", reason.to_owned())],
        flag(state.stood_back.is_some()),
    ));
    for gpu in &state.gpus {
        let labels = of_gpu(gpu);
        gpu_healthy
            .values
            .push((labels.clone(), flag(gpu.health == Health::Healthy)));
        unlike
            .values
            .push((labels.clone(), flag(gpu.info.unlike_catalogue)));
        for (place, slice) in &gpu.slices {
            let row = gpu.info.board.as_ref().and_then(|board| board.row(place.profile));
            let of_slice = of_slice(gpu, *place);
            let mut all = of_slice.clone();
            all.extend([
                ("gi", slice.instance.gi.to_string()),
                (
                    "ci",
                    slice.instance.ci.map(|ci| ci.to_string()).unwrap_or_default(),
                ),
                ("mig_uuid", slice.instance.uuid.clone()),
                ("resource", names::resource(place.profile)),
            ]);
            info.values.push((all, 1.0));
            let held = state.holding(gpu, slice);
            let by = with_holder(of_slice.clone(), held);
            allocated.values.push((by, flag(held.is_some())));
            healthy.values.push((
                of_slice.clone(),
                flag(slice.fault.is_none() && slice.blocked.is_none()),
            ));
            if let Some(mib) = row.and_then(|row| row.memory_mib) {
                memory.values.push((of_slice, (mib << 20) as f64));
            }
        }
        if let Some(board) = gpu.info.board.as_ref().filter(|_| gpu.info.mig) {
            let free = Free::of(state, gpu, board);
            free_memory.values.push((labels.clone(), f64::from(free.memory)));
            free_compute
                .values
                .push((labels.clone(), f64::from(free.compute)));
            fragmentation
                .values
                .push((labels.clone(), free.fragmentation(board)));
            for row in &board.profiles {
                let mut of_profile = labels.clone();
                of_profile.push(("profile", row.profile.to_string()));
                creatable
                    .values
                    .push((of_profile, free.busy.count_free(board, row.profile) as f64));
            }
        }
    }
    vec![
        info,
        allocated,
        healthy,
        memory,
        gpu_healthy,
        free_memory,
        free_compute,
        creatable,
        fragmentation,
        unlike,
        driver,
        stood_back,
    ]
}

/// Labels of a GPU.
pub(super) fn of_gpu(gpu: &Gpu) -> Labels {
    vec![
        ("gpu_uuid", gpu.info.uuid.clone()),
        ("gpu", gpu.info.index.to_string()),
    ]
}

/// Labels of a slice.
pub(super) fn of_slice(gpu: &Gpu, place: Place) -> Labels {
    let mut labels = of_gpu(gpu);
    labels.extend([
        ("profile", place.profile.to_string()),
        ("start", place.start.to_string()),
    ]);
    labels
}

/// Labels with those of whoever holds it; they are empty where nobody does.
pub(super) fn with_holder(mut labels: Labels, held: Option<&Held>) -> Labels {
    let pod = held.and_then(|held| held.pod.as_ref());
    labels.extend([
        (
            "namespace",
            pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
        ),
        ("pod", pod.map(|pod| pod.name.clone()).unwrap_or_default()),
        (
            "container",
            held.and_then(|held| held.container.clone()).unwrap_or_default(),
        ),
    ]);
    labels
}

/// What is free on a GPU.
struct Free {
    busy: Layout,
    memory: u32,
    compute: u32,
}

impl Free {
    fn of(state: &State, gpu: &Gpu, board: &Board) -> Self {
        let busy = state.layout(gpu).busy();
        let used = busy.slices().iter().filter(|slice| slice.used != Use::Idle);
        let compute: u32 = used.map(|slice| u32::from(slice.place.profile.compute)).sum();
        Self {
            memory: u32::from(board.memory_slices).saturating_sub(busy.mask(board).count_ones()),
            compute: u32::from(board.compute_slices).saturating_sub(compute),
            busy,
        }
    }

    /// 0 where one slice could take all that is free, near 1 where only small ones fit.
    fn fragmentation(&self, board: &Board) -> f64 {
        let fits = board
            .profiles
            .iter()
            .filter(|row| !self.busy.free_places(board, row.profile).is_empty());
        let largest = fits.map(|row| row.size).max().unwrap_or(0);
        match self.memory {
            0 => 0.0,
            free => 1.0 - f64::from(u32::from(largest).min(free)) / f64::from(free),
        }
    }
}

fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

//! What was read of the load last: a line a slice or GPU without MIG, and one for the node, at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::node::{Gauge, Labels, of_gpu, of_slice, with_holder};
use crate::gpus::Usage;
use crate::inventory::{Inventory, State};
use crate::usage::{Load, Reading};

/// Reads the inventory and the load.
pub(super) struct Collected {
    inventory: Inventory,
    load: Load,
}

impl Collected {
    pub(super) const fn new(inventory: Inventory, load: Load) -> Self {
        Self { inventory, load }
    }
}

impl fmt::Debug for Collected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collected")
    }
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = gauges(&self.inventory.view().state, &self.load.reading());
        gauges
            .into_iter()
            .try_for_each(|gauge| gauge.encode(&mut encoder))
    }
}

/// What is told of one kind of thing.
struct Told {
    activity: Gauge,
    used: Gauge,
    total: Gauge,
}

impl Told {
    fn of(&mut self, usage: &Usage, labels: &Labels) {
        let memory = usage.memory;
        let values = [
            (&mut self.activity, usage.activity),
            (&mut self.used, memory.map(|memory| memory.used as f64)),
            (&mut self.total, memory.map(|memory| memory.total as f64)),
        ];
        for (gauge, value) in values {
            gauge.values.extend(value.map(|value| (labels.clone(), value)));
        }
    }
}

fn gauges(state: &State, reading: &Reading) -> Vec<Gauge> {
    let mut slices = Told {
        activity: Gauge::new(
            "slice_activity_ratio",
            "What the slice did of what it could, 0 to 1",
        ),
        used: Gauge::new("slice_memory_used_bytes", "Memory in use on the slice"),
        total: Gauge::new(
            "slice_memory_total_bytes",
            "Memory of the slice, as the driver tells it",
        ),
    };
    let mut whole = Told {
        activity: Gauge::new(
            "gpu_activity_ratio",
            "What the GPU, if without MIG, did of what it could, 0 to 1",
        ),
        used: Gauge::new(
            "gpu_memory_used_bytes",
            "Memory in use on the GPU, if without MIG",
        ),
        total: Gauge::new("gpu_memory_total_bytes", "Memory of the GPU, if without MIG"),
    };
    let mut node = Gauge::new(
        "node_load_ratio",
        "What the healthy GPUs did of what they could, 0 to 1; absent where it is not known",
    );
    node.values.extend(reading.load.map(|load| (Vec::new(), load)));
    for gpu in &state.gpus {
        if let Some(usage) = reading.usages.get(&gpu.info.uuid) {
            whole.of(usage, &with_holder(of_gpu(gpu), state.held.get(&gpu.info.uuid)));
        }
        for (place, slice) in &gpu.slices {
            if let Some(usage) = reading.usages.get(&slice.instance.uuid) {
                let labels = with_holder(of_slice(gpu, *place), state.holding(gpu, slice));
                slices.of(usage, &labels);
            }
        }
    }
    vec![
        slices.activity,
        slices.used,
        slices.total,
        whole.activity,
        whole.used,
        whole.total,
        node,
    ]
}

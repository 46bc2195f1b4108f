//! What a new node has, and the state it begins with.

use std::collections::{BTreeMap, VecDeque};

use super::{MAX_GPUS, Refusal};
use crate::model::Model;
use crate::naming::Kind;
use crate::state::{DRIVER_VERSION, Gpu, State};

/// NUMA nodes fit in one word of a node set.
const MAX_NUMA_NODES: u32 = 64;

/// What a new node has.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Board of its GPUs, a name of the catalogue.
    pub board: String,
    /// How many GPUs.
    pub gpus: u32,
    /// Every uuid follows from it; nodes of one cluster need different ones.
    pub seed: u64,
    /// MIG mode of every GPU.
    pub mig: bool,
    /// MIG mode that Hopper and later come back with after a reboot.
    pub mig_at_boot: bool,
    /// Driver version.
    pub driver_version: String,
    /// NUMA nodes that the GPUs are spread over.
    pub numa_nodes: u32,
}

impl Setup {
    /// GPUs in MIG mode, now and after a reboot, on one NUMA node.
    #[must_use]
    pub fn new(board: &str, gpus: u32, seed: u64) -> Self {
        Self {
            board: board.to_owned(),
            gpus,
            seed,
            mig: true,
            mig_at_boot: true,
            driver_version: DRIVER_VERSION.to_owned(),
            numa_nodes: 1,
        }
    }

    /// The state of the new node.
    pub(super) fn node(&self) -> Result<State, Refusal> {
        Model::named(&self.board).ok_or_else(|| Refusal::unknown_board(&self.board))?;
        if !(1..=MAX_GPUS).contains(&self.gpus) {
            return Err(Refusal::GpuCount {
                gpus: self.gpus,
                most: MAX_GPUS,
            });
        }
        if !(1..=MAX_NUMA_NODES).contains(&self.numa_nodes) {
            return Err(Refusal::NumaNodes {
                nodes: self.numa_nodes,
                most: MAX_NUMA_NODES,
            });
        }
        let gpu = |index| Gpu {
            index,
            uuid: Kind::Gpu.uuid(self.seed, index.into()),
            serial: Kind::Serial.digits(self.seed, index.into()),
            numa: index * self.numa_nodes / self.gpus,
            mig: self.mig,
            mig_pending: self.mig,
            persistence: true,
            ..Gpu::default()
        };
        Ok(State {
            generation: 0,
            board: self.board.clone(),
            driver_version: self.driver_version.clone(),
            seed: self.seed,
            mig_at_boot: self.mig_at_boot,
            boots: 0,
            next_serial: 1,
            gpus: (0..self.gpus).map(gpu).collect(),
            events: VecDeque::new(),
            next_event: 1,
            failures: Vec::new(),
            delays: BTreeMap::new(),
        })
    }
}

//! What a GPU of a board is: the tables of `shared` with every unknown figure filled in, and the facts about a
//! product that NVML tells and MIG does not need.

use std::sync::OnceLock;

use shared::mig::board::{Board, ProfileRow, catalogue};

use crate::naming;

/// Generations of GPUs that can do MIG, by what differs for NVML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// A100, A30: MIG mode changes at a reset and survives a reboot; no GPM.
    Ampere = 7,
    /// H100, H200: MIG mode changes at once and is gone after a reboot; GPM.
    Hopper = 9,
    /// B200, GB200 and later: as Hopper.
    Blackwell = 10,
}

/// A board with all its figures.
#[derive(Debug)]
pub struct Model {
    /// Name in the catalogue.
    pub board: &'static str,
    /// What `nvmlDeviceGetName` says.
    pub product: &'static str,
    /// Its generation.
    pub architecture: Architecture,
    /// CUDA compute capability.
    pub compute_capability: (i32, i32),
    /// PCI device id.
    pub pci_device: u32,
    /// Memory of the GPU in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors of the GPU outside MIG mode.
    pub multiprocessors: u32,
    /// Power limit in watts.
    pub power_limit_w: u32,
    /// NVLink links.
    pub nvlinks: u32,
    /// Whether the GPU's memory is a NUMA node of the host (Grace).
    pub coherent: bool,
    /// Memory slices, the unit of starts and sizes.
    pub memory_slices: u32,
    /// Compute slices.
    pub compute_slices: u32,
    /// GPU instance profiles.
    pub profiles: Vec<Profile>,
}

/// A GPU instance profile with all its figures.
#[derive(Debug)]
pub struct Profile {
    /// Name by NVIDIA's formula, as `1g.10gb+me`.
    pub name: String,
    /// Driver profile id.
    pub id: u32,
    /// Value of NVML's enum.
    pub nvml_enum: u32,
    /// Compute slices.
    pub compute: u32,
    /// Memory slices.
    pub size: u32,
    /// Legal first memory slices, ascending.
    pub starts: Vec<u32>,
    /// How many a GPU can hold.
    pub max: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines.
    pub copy_engines: u32,
    /// Decoders.
    pub decoders: u32,
    /// JPEG engines.
    pub jpeg: u32,
    /// Optical-flow accelerators.
    pub ofa: u32,
}

impl Model {
    /// The model of a board of the catalogue.
    #[must_use]
    pub fn named(board: &str) -> Option<&'static Self> {
        all().iter().find(|model| model.board == board)
    }

    /// The profile with this driver id.
    #[must_use]
    pub fn profile(&self, id: u32) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The profile with this value of NVML's enum.
    #[must_use]
    pub fn by_enum(&self, nvml_enum: u32) -> Option<&Profile> {
        self.profiles
            .iter()
            .find(|profile| profile.nvml_enum == nvml_enum)
    }

    /// How many MIG devices a GPU can have at once.
    #[must_use]
    pub fn max_mig_devices(&self) -> u32 {
        self.compute_slices
    }

    /// Whether GPM is there and MIG mode needs no reset.
    #[must_use]
    pub fn is_hopper_or_later(&self) -> bool {
        self.architecture >= Architecture::Hopper
    }

    fn of(board: &'static Board) -> Self {
        let product = PRODUCTS
            .iter()
            .find(|product| product.board == board.name)
            .copied();
        let product = product.unwrap_or_else(|| Product::guessed(board));
        let mut model = Self {
            board: &board.name,
            product: product.name,
            architecture: product.architecture,
            compute_capability: product.capability,
            pci_device: board
                .pci
                .first()
                .and_then(|id| u32::from_str_radix(id, 16).ok())
                .unwrap_or(0),
            memory_mib: product.memory_mib,
            multiprocessors: product.multiprocessors,
            power_limit_w: product.power_limit_w,
            nvlinks: product.nvlinks,
            coherent: product.name.contains("GH200") || product.name.contains("GB"),
            memory_slices: board.memory_slices.into(),
            compute_slices: board.compute_slices.into(),
            profiles: Vec::new(),
        };
        model.profiles = board
            .profiles
            .iter()
            .map(|row| Profile::of(row, &model))
            .collect();
        model
    }
}

impl Profile {
    /// What a row says; what it does not say is the slice's share of the whole GPU.
    fn of(row: &ProfileRow, model: &Model) -> Self {
        let (size, compute) = (u32::from(row.size), u32::from(row.profile.compute));
        let whole = size == model.memory_slices;
        // a share rounded down to 128 MiB, so that it never reaches into the next eighth
        let share = model.memory_mib * u64::from(size) / u64::from(model.memory_slices) / 128 * 128;
        let memory_mib = row.memory_mib.unwrap_or(share);
        let media = takes_media(row.nvml_enum);
        Self {
            name: naming::profile_name(
                compute,
                memory_mib,
                model.memory_mib,
                naming::attribute(row.nvml_enum),
            ),
            id: row.id,
            nvml_enum: row.nvml_enum,
            compute,
            size,
            starts: row.starts.iter().map(|start| u32::from(*start)).collect(),
            max: row.max.into(),
            memory_mib,
            multiprocessors: row
                .multiprocessors
                .unwrap_or(model.multiprocessors * compute / model.compute_slices / 2 * 2),
            copy_engines: row.engines.copy.unwrap_or(compute),
            decoders: row.engines.decoders.unwrap_or(compute),
            jpeg: row.engines.jpeg.unwrap_or(compute),
            ofa: row.engines.ofa.unwrap_or(u32::from(whole || media)),
        }
    }

    /// Whether it takes the GPU's one set of media extensions.
    #[must_use]
    pub fn takes_media(&self) -> bool {
        takes_media(self.nvml_enum)
    }
}

/// REV1 profiles (`+me`) and ALL_ME profiles (`+me.all`).
fn takes_media(nvml_enum: u32) -> bool {
    matches!(nvml_enum, 7 | 8 | 15 | 16)
}

/// All models, in the catalogue's order.
#[must_use]
pub fn all() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(|| catalogue().iter().map(Model::of).collect())
}

/// Facts about a product that are no MIG facts.
#[derive(Clone, Copy)]
struct Product {
    board: &'static str,
    name: &'static str,
    architecture: Architecture,
    capability: (i32, i32),
    memory_mib: u64,
    multiprocessors: u32,
    power_limit_w: u32,
    nvlinks: u32,
}

impl Product {
    /// For a board that is new in the catalogue: memory as its largest profile's name says it, less half a GiB.
    fn guessed(board: &'static Board) -> Self {
        let gigabytes = board
            .profiles
            .iter()
            .map(|row| row.profile.memory_gb)
            .max()
            .unwrap_or(1);
        Self {
            board: &board.name,
            name: &board.name,
            architecture: Architecture::Blackwell,
            capability: (12, 0),
            memory_mib: u64::from(gigabytes) * 1024 - 512,
            multiprocessors: 148,
            power_limit_w: 600,
            nvlinks: 0,
        }
    }
}

/// Writes the table: one line a product.
macro_rules! products {
    ($($board:literal: $name:literal, $architecture:ident $capability:tt, $mib:literal MiB, $sms:literal SMs,
        $watts:literal W, $links:literal links;)*) => {
        &[$(Product {
            board: $board,
            name: $name,
            architecture: Architecture::$architecture,
            capability: $capability,
            memory_mib: $mib,
            multiprocessors: $sms,
            power_limit_w: $watts,
            nvlinks: $links,
        },)*]
    };
}

/// Memory as `nvidia-smi` reports it where known, else from the product's name; the rest from data sheets.
const PRODUCTS: &[Product] = products! {
    "A30-24GB": "NVIDIA A30", Ampere (8, 0), 24576 MiB, 56 SMs, 165 W, 4 links;
    "A100-40GB": "NVIDIA A100-SXM4-40GB", Ampere (8, 0), 40960 MiB, 108 SMs, 400 W, 12 links;
    "A100-80GB": "NVIDIA A100-SXM4-80GB", Ampere (8, 0), 81920 MiB, 108 SMs, 400 W, 12 links;
    "H100-80GB": "NVIDIA H100 80GB HBM3", Hopper (9, 0), 81559 MiB, 132 SMs, 700 W, 18 links;
    "H100-NVL-94GB": "NVIDIA H100 NVL", Hopper (9, 0), 95830 MiB, 132 SMs, 400 W, 12 links;
    "H100-96GB_GH200-96GB_H20_PG506": "NVIDIA GH200 480GB", Hopper (9, 0), 97871 MiB, 132 SMs, 700 W, 18 links;
    "GH200-144GB": "NVIDIA GH200 144G HBM3e", Hopper (9, 0), 146_831 MiB, 132 SMs, 900 W, 18 links;
    "H200-141GB": "NVIDIA H200", Hopper (9, 0), 143_771 MiB, 132 SMs, 700 W, 18 links;
    "B200-180GB": "NVIDIA B200", Blackwell (10, 0), 183_359 MiB, 148 SMs, 1000 W, 18 links;
    "GB200-186GB": "NVIDIA GB200", Blackwell (10, 0), 189_471 MiB, 152 SMs, 1200 W, 18 links;
    "B300": "NVIDIA B300 SXM6 AC", Blackwell (10, 3), 275_040 MiB, 148 SMs, 1100 W, 18 links;
    "GB300": "NVIDIA GB300", Blackwell (10, 3), 284_208 MiB, 152 SMs, 1400 W, 18 links;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_of_the_catalogue_has_a_product_and_formula_names_equal_the_published_ones() {
        for (model, board) in all().iter().zip(catalogue()) {
            assert!(
                PRODUCTS.iter().any(|product| product.board == board.name),
                "{}",
                board.name
            );
            for (profile, row) in model.profiles.iter().zip(&board.profiles) {
                assert_eq!(profile.name, row.profile.to_string(), "{}", board.name);
                assert!(profile.multiprocessors > 0 && profile.memory_mib > 0);
            }
        }
    }
}

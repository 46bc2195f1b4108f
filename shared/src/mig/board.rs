//! Placement tables: which profiles a board offers, at which starts. The catalogue (`boards.json`) serves the
//! fake library, the simulator and profiles named before any GPU was seen; on a node the table comes from NVML
//! and wins where the two disagree.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::profile::Profile;

/// A board: all GPUs with the same table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Board {
    /// Name in the catalogue (`H100-80GB`), or the product name where the board is not in it.
    pub name: String,
    /// Memory slices, the unit of starts and sizes (8; 4 on A30). At most 16.
    pub memory_slices: u8,
    /// Compute slices, the unit of `g` (7; 4 on A30).
    pub compute_slices: u8,
    /// PCI device ids, upper-case hex.
    pub pci: Vec<String>,
    /// One row a profile, smallest first.
    pub profiles: Vec<ProfileRow>,
}

/// One profile of a board.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileRow {
    /// The profile.
    pub profile: Profile,
    /// Driver profile id, which NVML takes when an instance is made.
    pub id: u32,
    /// NVML's enum value, which NVML takes when a profile is asked about.
    pub nvml_enum: u32,
    /// Memory slices it covers.
    pub size: u8,
    /// Legal first memory slices, ascending.
    pub starts: Vec<u8>,
    /// How many fit on an empty GPU.
    pub max: u8,
    /// Memory in MiB, where known.
    pub memory_mib: Option<u64>,
    /// Streaming multiprocessors, where known.
    pub multiprocessors: Option<u32>,
    /// Copy engines, decoders, JPEG engines and optical-flow units, where known.
    pub engines: Engines,
}

/// Fixed-function engines of a profile; `None` where no source tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Engines {
    /// Copy engines.
    pub copy: Option<u32>,
    /// Video decoders.
    pub decoders: Option<u32>,
    /// JPEG decoders.
    pub jpeg: Option<u32>,
    /// Optical-flow accelerators.
    pub ofa: Option<u32>,
}

impl Board {
    /// The row of a profile, if the board has it.
    #[must_use]
    pub fn row(&self, profile: Profile) -> Option<&ProfileRow> {
        self.profiles.iter().find(|row| row.profile == profile)
    }

    /// The board of the catalogue with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        catalogue().iter().find(|board| board.name == name)
    }

    /// The board of the catalogue with this PCI device id (four hex digits, any case).
    #[must_use]
    pub fn by_pci(device: &str) -> Option<&'static Self> {
        catalogue()
            .iter()
            .find(|board| board.pci.iter().any(|id| id.eq_ignore_ascii_case(device)))
    }

    /// Memory of the whole board in MiB: what its largest profile has, or what the name of that profile says.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        let largest = self
            .profiles
            .iter()
            .max_by_key(|row| (row.size, row.profile.compute));
        largest.map_or(0, |row| {
            row.memory_mib.unwrap_or(u64::from(row.profile.memory_gb) * 1024)
        })
    }
}

/// All boards whose starts are known, in the order of `boards.json`.
#[must_use]
pub fn catalogue() -> &'static [Board] {
    static BOARDS: OnceLock<Vec<Board>> = OnceLock::new();
    BOARDS.get_or_init(|| {
        let file: File = match serde_json::from_str(include_str!("boards.json")) {
            Ok(file) => file,
            // the text is part of the program and every test reads it: there is no input to blame here
            Err(error) => unreachable!("shared/src/mig/boards.json: {error}"),
        };
        file.boards
            .iter()
            .filter_map(|entry| entry.board(file.geometries.get(&entry.geometry)?))
            .collect()
    })
}

/// `boards.json`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    geometries: std::collections::BTreeMap<String, Geometry>,
    boards: Vec<Entry>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Geometry {
    memory_slices: u8,
    compute_slices: u8,
    /// Where the starts come from; for the reader of the file.
    source: String,
    profiles: Vec<Shape>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Shape {
    key: String,
    nvml_enum: u32,
    id: u32,
    compute: u8,
    size: u8,
    starts: Vec<u8>,
    max: u8,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    geometry: String,
    pci: Vec<String>,
    /// Where the figures come from; for the reader of the file.
    source: String,
    rows: Vec<Row>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    key: String,
    name: Profile,
    max: u8,
    memory_mib: Option<u64>,
    multiprocessors: Option<u32>,
    copy_engines: Option<u32>,
    decoders: Option<u32>,
    jpeg: Option<u32>,
    ofa: Option<u32>,
}

impl Entry {
    fn board(&self, geometry: &Geometry) -> Option<Board> {
        let mut profiles = self
            .rows
            .iter()
            .map(|row| row.profile(geometry))
            .collect::<Option<Vec<_>>>()?;
        profiles.sort_by_key(|row| (row.size, row.profile));
        Some(Board {
            name: self.name.clone(),
            memory_slices: geometry.memory_slices,
            compute_slices: geometry.compute_slices,
            pci: self.pci.clone(),
            profiles,
        })
    }
}

impl Row {
    fn profile(&self, geometry: &Geometry) -> Option<ProfileRow> {
        let shape = geometry.profiles.iter().find(|shape| shape.key == self.key)?;
        (shape.compute == self.name.compute && shape.max == self.max).then(|| ProfileRow {
            profile: self.name,
            id: shape.id,
            nvml_enum: shape.nvml_enum,
            size: shape.size,
            starts: shape.starts.clone(),
            max: shape.max,
            memory_mib: self.memory_mib,
            multiprocessors: self.multiprocessors,
            engines: Engines {
                copy: self.copy_engines,
                decoders: self.decoders,
                jpeg: self.jpeg,
                ofa: self.ofa,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_file_is_a_profile_of_a_board() {
        let file: File = serde_json::from_str(include_str!("boards.json")).unwrap();
        assert_eq!(catalogue().len(), file.boards.len());
        for (board, entry) in catalogue().iter().zip(&file.boards) {
            assert_eq!(board.profiles.len(), entry.rows.len(), "{}", board.name);
            assert!(board.memory_mib() > 20_000, "{}", board.name);
            for row in &board.profiles {
                assert!(
                    row.starts
                        .iter()
                        .all(|start| start + row.size <= board.memory_slices)
                );
            }
        }
    }

    #[test]
    fn boards_are_found_by_name_and_by_pci_id() {
        assert_eq!(Board::named("H100-80GB").unwrap().memory_mib(), 81152);
        assert_eq!(Board::by_pci("233b").unwrap().name, "H200-141GB");
        assert_eq!(Board::named("T4"), None);
    }
}

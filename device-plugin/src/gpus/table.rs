//! The placement table of a GPU as NVML tells it, named from our catalogue.

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use shared::mig::board::Engines;
use shared::mig::profile::Media;
use shared::mig::{Board, Profile, ProfileRow};

use super::nvml_ext;

/// No header has named this many GPU instance profiles; a driver that knows fewer says "invalid argument" sooner.
const PROFILE_ENUMS: u32 = 32;

/// The placement table of a GPU, and whether it is unlike the catalogue's. A driver that tells no placements
/// while MIG mode is off gets the catalogue's.
pub(super) fn board(
    device: &Device<'_>,
    pci: u32,
    model: &str,
    total_mib: u64,
) -> Result<(Option<Board>, bool), NvmlError> {
    let known = Board::by_pci(&format!("{pci:04X}"));
    let mut profiles = Vec::new();
    for nvml_enum in 0..PROFILE_ENUMS {
        let info = match device.profile_info(nvml_enum) {
            Ok(info) => info,
            Err(NvmlError::InvalidArg) => break,
            // a profile that this board lacks, or any profile on an old driver with MIG mode off
            Err(_) => continue,
        };
        let placements = nvml_ext::possible_placements(device, info.id).unwrap_or_default();
        let Some(size) = placements.first().map(|(_, size)| narrow(*size)) else {
            continue;
        };
        let mut starts: Vec<u8> = placements.iter().map(|(start, _)| narrow(*start)).collect();
        starts.sort_unstable();
        let profile = Profile::by_formula(
            narrow(info.slice_count),
            info.memory_size_mb,
            total_mib,
            media(nvml_enum),
        );
        profiles.push(ProfileRow {
            profile,
            id: info.id,
            nvml_enum,
            size,
            starts,
            max: narrow(info.instance_count),
            memory_mib: Some(info.memory_size_mb),
            multiprocessors: Some(info.multiprocessor_count),
            engines: Engines {
                copy: Some(info.copy_engine_count),
                decoders: Some(info.decoder_count),
                jpeg: Some(info.jpeg_count),
                ofa: Some(info.ofa_count),
            },
        });
    }
    if profiles.is_empty() {
        return Ok((known.cloned(), false));
    }
    profiles.sort_by_key(|row| (row.size, row.profile));
    let ends = profiles
        .iter()
        .flat_map(|row| row.starts.iter().map(|start| start + row.size));
    let found = Board {
        name: known.map_or_else(|| model.to_owned(), |board| board.name.clone()),
        memory_slices: ends.max().unwrap_or(0),
        compute_slices: profiles.iter().map(|row| row.profile.compute).max().unwrap_or(0),
        pci: vec![format!("{pci:04X}")],
        profiles,
    };
    let shape = |board: &Board| -> Vec<(Profile, u32, u8, Vec<u8>, u8)> {
        board
            .profiles
            .iter()
            .map(|row| (row.profile, row.id, row.size, row.starts.clone(), row.max))
            .collect()
    };
    let unlike = known.is_some_and(|known| shape(known) != shape(&found));
    Ok((Some(found), unlike))
}

/// What an NVML profile enum value adds to a plain profile.
fn media(nvml_enum: u32) -> Media {
    match nvml_enum {
        7 | 8 => Media::Me,
        10..=12 | 17 => Media::Gfx,
        13 | 14 => Media::NoMe,
        15 | 16 => Media::MeAll,
        _ => Media::Plain,
    }
}

fn narrow(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

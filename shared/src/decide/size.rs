//! From what a pod says about its model to what it asks for: the table of sizes. A model of fewer parameters than
//! the policy says gets a quarter of a GPU; any other gets the smallest slice that holds it, or as many whole
//! GPUs as it takes. Memory that is said outweighs parameters, which only let it be guessed.
//!
//! A quarter is the cheapest profile with at least a quarter of the memory, compute last: 1g.20gb on a board of
//! 80 GB. Four of them fill it, of 2g.20gb only three fit; who needs the speed of two compute slices asks for them.

mod hints;

use std::cmp::Reverse;
use std::fmt;

pub use hints::{BadHint, Hints};

use crate::mig::board::ProfileRow;
use crate::mig::layout::plain;
use crate::mig::{Board, Profile};
use crate::names::{ANNOTATION_GPU_MEMORY, ANNOTATION_MODEL_PARAMETERS};
use crate::policy::{MODEL_BYTES_PER_PARAMETER, MODEL_MEMORY_PERCENT, NAMED_MEMORY_PERCENT, Policy};
use crate::snapshot::Request;

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
const GIB: f64 = (1_u64 << 30) as f64;

/// What a model gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sized {
    /// The profile; `None` is a whole GPU that is not in MIG mode.
    pub profile: Option<Profile>,
    /// How many, at least 1.
    pub count: u32,
    /// Memory that it has to hold, bytes.
    pub holds: u64,
    /// Why.
    pub why: Why,
}

/// Why a model gets what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has fewer parameters than the policy gives a quarter of a GPU for.
    Quarter {
        /// Parameters.
        parameters: u64,
        /// The policy's bound, billions.
        below_billion: u32,
    },
    /// Its parameters at two bytes each, with what serving needs besides.
    Parameters {
        /// Parameters.
        parameters: u64,
        /// What a quarter of a GPU has to do with it.
        quarter: Quarter,
    },
    /// The memory that it says.
    Memory {
        /// Parameters that it says besides, which count for nothing then.
        besides: Option<u64>,
    },
}

/// What a quarter of a GPU has to do with a size by parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quarter {
    /// Nothing.
    Unrelated,
    /// The parameters are few enough for it, yet on this board the weights are larger.
    TooSmall,
    /// Less would do on this board, but a larger model never gets less than a smaller one.
    AtLeast,
}

/// What a model gets that is larger than one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Several of the largest slices: all GPUs of the pool are in MIG mode.
    LargestSlices,
    /// Whole GPUs that are not in MIG mode. These reach each other over NVLink, which slices do not.
    WholeGpus,
}

/// A model that nothing holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotSize {
    /// It says nothing.
    #[error("neither {ANNOTATION_MODEL_PARAMETERS} nor {ANNOTATION_GPU_MEMORY} is set")]
    NoHint,
    /// More GPUs than a pod may ask for.
    #[error("the model needs {gib:.0} GiB, more than {most} GPUs {board} have; split it into several pods", gib = *.needs as f64 / GIB, most = Request::MAX_COUNT)]
    TooLarge {
        /// Bytes.
        needs: u64,
        /// The board.
        board: String,
    },
    /// A board without profiles.
    #[error("{board} has no MIG profiles")]
    NoProfiles {
        /// The board.
        board: String,
    },
}

/// What a model gets on a board.
///
/// # Errors
/// [`CannotSize`] where nothing is said or nothing is large enough.
pub fn size(hints: Hints, board: &Board, beyond: Beyond, policy: &Policy) -> Result<Sized, CannotSize> {
    if let Some(holds) = hints.memory {
        let (profile, count) = by_memory(holds, board, beyond)?;
        return Ok(Sized {
            profile,
            count,
            holds,
            why: Why::Memory {
                besides: hints.parameters,
            },
        });
    }
    by_parameters(hints.parameters.ok_or(CannotSize::NoHint)?, board, beyond, policy)
}

/// A quarter for few parameters, else at least that, and what holds the weights with what serving needs besides.
fn by_parameters(
    parameters: u64,
    board: &Board,
    beyond: Beyond,
    policy: &Policy,
) -> Result<Sized, CannotSize> {
    let weights = parameters * MODEL_BYTES_PER_PARAMETER;
    let below_billion = policy.quarter_gpu_below_billion_parameters;
    let is_small = parameters < u64::from(below_billion) * 1_000_000_000;
    let quarter = quarter(board);
    if let Some(row) = quarter.filter(|row| is_small && memory_of(row) >= weights) {
        return Ok(Sized {
            profile: Some(row.profile),
            count: 1,
            holds: weights,
            why: Why::Quarter {
                parameters,
                below_billion,
            },
        });
    }
    let holds = (weights * MODEL_MEMORY_PERCENT).div_ceil(100);
    let (profile, count) = by_memory(holds, board, beyond)?;
    let chosen = profile.and_then(|profile| board.row(profile));
    let (profile, quarter) = match (chosen, quarter) {
        (Some(row), Some(quarter)) if price(row) < price(quarter) => {
            (Some(quarter.profile), Quarter::AtLeast)
        }
        _ if is_small => (profile, Quarter::TooSmall),
        _ => (profile, Quarter::Unrelated),
    };
    Ok(Sized {
        profile,
        count,
        holds,
        why: Why::Parameters { parameters, quarter },
    })
}

/// The smallest slice that holds so many bytes, else as many of the largest, or GPUs, as it takes.
fn by_memory(holds: u64, board: &Board, beyond: Beyond) -> Result<(Option<Profile>, u32), CannotSize> {
    let cheapest = plain(board)
        .filter(|row| memory_of(row) >= holds)
        .min_by_key(|row| price(row));
    if let Some(row) = cheapest {
        return Ok((Some(row.profile), 1));
    }
    let largest = plain(board).max_by_key(|row| price(row));
    let largest = largest.ok_or_else(|| CannotSize::NoProfiles {
        board: board.name.clone(),
    })?;
    let count = u32::try_from(holds.div_ceil(memory_of(largest).max(1))).unwrap_or(u32::MAX);
    if count > Request::MAX_COUNT {
        return Err(CannotSize::TooLarge {
            needs: holds,
            board: board.name.clone(),
        });
    }
    Ok(match beyond {
        Beyond::LargestSlices => (Some(largest.profile), count),
        Beyond::WholeGpus => (None, count),
    })
}

/// The cheapest profile with at least a quarter of a board's memory slices.
fn quarter(board: &Board) -> Option<&ProfileRow> {
    plain(board)
        .filter(|row| u16::from(row.size) * 4 >= u16::from(board.memory_slices))
        .min_by_key(|row| price(row))
}

/// What a slice takes from the pool: memory slices, then compute slices. Of equal ones that with more memory.
fn price(row: &ProfileRow) -> (u8, u8, Reverse<u64>) {
    (row.size, row.profile.compute, Reverse(memory_of(row)))
}

/// Memory of a slice in bytes; where only its name tells, what it has at least.
#[must_use]
pub fn memory_of(row: &ProfileRow) -> u64 {
    let named = u64::from(row.profile.memory_gb) * 1_024 * MIB / 100 * NAMED_MEMORY_PERCENT;
    row.memory_mib.map_or(named, |mib| mib * MIB)
}

impl Sized {
    /// It as a request of one container.
    #[must_use]
    pub fn request(&self, container: &str) -> Request {
        Request::of_one(container, self.profile, self.count)
    }
}

impl fmt::Display for Sized {
    /// `3g.40gb: 13B parameters take 29 GiB at 2 bytes each and 20 % more for serving`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .profile
            .map_or_else(|| "whole GPU".to_owned(), |profile| profile.to_string());
        if self.count > 1 {
            write!(f, "{} x ", self.count)?;
        }
        write!(f, "{name}: ")?;
        let gib = self.holds as f64 / GIB;
        match self.why {
            Why::Quarter {
                parameters,
                below_billion,
            } => write!(
                f,
                "{} parameters are fewer than {below_billion}B, which is a quarter of a GPU",
                Parameters(parameters)
            ),
            Why::Parameters { parameters, quarter } => {
                write!(
                    f,
                    "{} parameters take {gib:.1} GiB at {MODEL_BYTES_PER_PARAMETER} bytes each and {} % more for serving",
                    Parameters(parameters),
                    MODEL_MEMORY_PERCENT - 100
                )?;
                f.write_str(match quarter {
                    Quarter::Unrelated => "",
                    Quarter::TooSmall => "; a quarter of this board is too small for the weights",
                    Quarter::AtLeast => "; no less than the quarter that smaller models get",
                })
            }
            Why::Memory { besides: None } => write!(f, "{gib:.1} GiB are asked for"),
            Why::Memory {
                besides: Some(parameters),
            } => write!(
                f,
                "{gib:.1} GiB are asked for, which outweighs the {} parameters",
                Parameters(parameters)
            ),
        }
    }
}

/// Parameters as people write them: `7B`, `1.5B`, `500M`.
struct Parameters(u64);

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "B"), (1_000_000, "M"), (1, "")];
        let (unit, name) = units
            .into_iter()
            .find(|(unit, _)| self.0 >= *unit)
            .unwrap_or((1, ""));
        let tenths = (self.0 as f64 / unit as f64 * 10.0).round() / 10.0;
        write!(f, "{tenths}{name}")
    }
}

#[cfg(test)]
mod tests;

//! What a pod says about its model, in two annotations.

use std::collections::BTreeMap;

use crate::names::{ANNOTATION_GPU_MEMORY, ANNOTATION_MODEL_PARAMETERS};

/// Bytes in a GiB.
const GIB: f64 = (1_u64 << 30) as f64;
/// More parameters than any model has: a hundred trillion.
const MOST_PARAMETERS: f64 = 1e14;
/// More memory than any node has: 64 TiB.
const MOST_MEMORY: f64 = (64_u64 << 40) as f64;

/// What a pod says about its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Parameters.
    pub parameters: Option<u64>,
    /// Memory it needs in all, bytes.
    pub memory: Option<u64>,
}

/// A hint that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHint {
    /// Not a number of parameters.
    #[error(
        "{ANNOTATION_MODEL_PARAMETERS} is {0:?}, not a number of parameters; write it like 7B, 500M or 70e9"
    )]
    Parameters(String),
    /// Not an amount of memory.
    #[error(
        "{ANNOTATION_GPU_MEMORY} is {0:?}, not an amount of memory; write it with its unit, like 18Gi or 18GB"
    )]
    Memory(String),
}

impl Hints {
    /// Reads the values of the two annotations.
    ///
    /// # Errors
    /// [`BadHint`] names the annotation, its value and how to write it.
    pub fn read(parameters: Option<&str>, memory: Option<&str>) -> Result<Self, BadHint> {
        let parameters = parameters.map(|text| {
            amount(text, &PARAMETER_UNITS, MOST_PARAMETERS).ok_or_else(|| BadHint::Parameters(shown(text)))
        });
        let memory = memory
            .map(|text| amount(text, &MEMORY_UNITS, MOST_MEMORY).ok_or_else(|| BadHint::Memory(shown(text))));
        Ok(Self {
            parameters: parameters.transpose()?,
            memory: memory.transpose()?,
        })
    }

    /// Reads them from a pod's annotations.
    ///
    /// # Errors
    /// As [`Hints::read`].
    pub fn of_annotations(annotations: &BTreeMap<String, String>) -> Result<Self, BadHint> {
        let value = |name: &str| annotations.get(name).map(String::as_str);
        Self::read(value(ANNOTATION_MODEL_PARAMETERS), value(ANNOTATION_GPU_MEMORY))
    }

    /// Whether nothing is said.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.parameters.is_none() && self.memory.is_none()
    }
}

/// Units of parameters.
const PARAMETER_UNITS: [(&str, f64); 9] = [
    ("", 1.0),
    ("K", 1e3),
    ("k", 1e3),
    ("M", 1e6),
    ("m", 1e6),
    ("B", 1e9),
    ("b", 1e9),
    ("T", 1e12),
    ("t", 1e12),
];
/// Units of memory. A bare number could be bytes or anything, so there is none without.
const MEMORY_UNITS: [(&str, f64); 12] = [
    ("Mi", 1_048_576.0),
    ("MiB", 1_048_576.0),
    ("Gi", GIB),
    ("GiB", GIB),
    ("Ti", GIB * 1_024.0),
    ("TiB", GIB * 1_024.0),
    ("M", 1e6),
    ("MB", 1e6),
    ("G", 1e9),
    ("GB", 1e9),
    ("T", 1e12),
    ("TB", 1e12),
];

/// A positive number with one of the units, at most `most`.
fn amount(text: &str, units: &[(&str, f64)], most: f64) -> Option<u64> {
    let text = text.trim();
    let written = |number: &str| number.bytes().all(|b| b.is_ascii_digit() || b".eE+".contains(&b));
    // the longest unit that ends the text: `Gi` before `i`, and no unit last
    let (number, unit) = units
        .iter()
        .filter_map(|(unit, worth)| Some((text.strip_suffix(unit)?, worth)))
        .min_by_key(|(number, _)| number.len())?;
    let number: f64 = number.parse().ok().filter(|_| written(number))?;
    let value = number * unit;
    (value >= 1.0 && value <= most).then(|| value.round() as u64)
}

/// A value as it is repeated to its author; a hostile one is cut.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

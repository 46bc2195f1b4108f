//! Recorded clusters: files that are read where they are present. Some may be used for study but not handed on, so
//! they are not here; what needs them says that it is skipped.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

/// The variable that names the folder of all traces.
pub const TRACES_ENV: &str = "MIGPOOL_TRACES";
/// Where it is by default: beside the repository.
pub const TRACES: &str = "../shared/traces";

/// The file `name` of a recorded cluster, or why it is skipped.
///
/// # Errors
/// A sentence that says which file is missing and how to name its folder.
pub fn present(traces: &Path, name: &str) -> Result<PathBuf, String> {
    let path = traces.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!(
        "{} is not there; it may not be handed on with migpool: name the folder that has it with --traces or {TRACES_ENV}",
        path.display()
    ))
}

/// Opens a CSV file, gzipped or not.
///
/// # Errors
/// Where it cannot be opened.
pub fn open(path: &Path) -> Result<csv::Reader<Box<dyn Read>>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let buffered = BufReader::new(file);
    let zipped = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> = if zipped {
        Box::new(GzDecoder::new(buffered))
    } else {
        Box::new(buffered)
    };
    Ok(csv::Reader::from_reader(reader))
}

/// All rows of a CSV file as values of `R`.
///
/// # Errors
/// Where the file cannot be opened or a row not be read; the row is named by its line.
pub fn rows<R: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<R>> {
    let rows: csv::Result<Vec<R>> = open(path)?.into_deserialize().collect();
    // csv says which line and which field
    rows.with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_way_out() {
        let why = present(Path::new("/nowhere"), "a/b.csv.gz").unwrap_err();
        assert!(
            why.starts_with("/nowhere/a/b.csv.gz is not there;")
                && why.contains("--traces or MIGPOOL_TRACES"),
            "{why}"
        );
    }
}

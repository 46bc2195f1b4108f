//! What a slice costs in speed. Slices are slower than their share of the GPU suggests to some jobs and faster to
//! others; a saving in GPUs is no saving where a job must be as fast as before. Measured by the authors of MISO.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::report::{Section, Table};

/// The measurements; `data/miso-slices/README.md` says where they come from.
const MEASURED: &str = include_str!("../../data/miso-slices/mig_slice_iteration_times.csv");

#[derive(Debug, Deserialize)]
struct Row {
    compute_slices: u8,
    speed_relative_to_7g: f64,
}

/// The speed of slices against a whole GPU.
///
/// # Errors
/// Where the table that comes with the simulator is broken.
pub fn table() -> Result<Section> {
    let rows: csv::Result<Vec<Row>> = csv::Reader::from_reader(MEASURED.as_bytes())
        .into_deserialize()
        .collect();
    let rows = rows.context("data/miso-slices/mig_slice_iteration_times.csv")?;
    let mut table = Table::new([
        "slice",
        "jobs",
        "slowest",
        "median",
        "fastest",
        "share of compute",
        "a GPU full of them",
    ]);
    for slices in [1, 2, 3, 4, 7] {
        let of = rows.iter().filter(|row| row.compute_slices == slices);
        let mut speeds: Vec<f64> = of.map(|row| row.speed_relative_to_7g).collect();
        speeds.sort_by(f64::total_cmp);
        let (Some(slowest), Some(fastest)) = (speeds.first(), speeds.last()) else {
            continue;
        };
        let median = median(&speeds);
        table.row([
            format!("{slices}g"),
            speeds.len().to_string(),
            format!("{slowest:.2}"),
            format!("{median:.2}"),
            format!("{fastest:.2}"),
            format!("{:.2}", f64::from(slices) / 7.0),
            format!("{:.1} x", f64::from(7 / slices) * median),
        ]);
    }
    Ok(Section {
        name: "speed".to_owned(),
        title: "what a job in a slice runs at, a whole A100-40GB being 1 (MISO, training, 8 models, several batch sizes)".to_owned(),
        notes: vec![
            "A saving above counts GPUs, not work done: a job that needs the whole GPU's speed has no place in a slice, and one that is moved to a smaller slice gets slower by what stands here. Jobs that did not fit in a slice's memory are not counted for it.".to_owned(),
        ],
        table,
        ..Section::default()
    })
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        sorted[middle - 1].midpoint(sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medians_are_those_of_the_measurements() {
        let section = table().unwrap();
        let medians: Vec<&str> = section.table.rows.iter().map(|row| row[3].as_str()).collect();
        // of an even number of jobs the mean of the two in the middle; the reference takes the upper, .54 and .68
        assert_eq!(medians, ["0.31", "0.52", "0.67", "0.75", "1.00"]);
        assert_eq!(section.table.rows[0][2..5], ["0.08", "0.31", "0.81"]);
    }
}

//! The sets of series. Two ship with the simulator; GenTD26 may not be copied and is read where it is present. Bins
//! are 15 minutes; the part that is scored is the one of `reference/papers-traces.md` 5.3, from `test_from` on.

mod gentd26;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use shared::decide::forecast::history::Reading;
use shared::policy::Policy;

use rows::Rows;

/// Minutes in a bin.
pub const BIN_MINUTES: usize = 15;
/// The variable that names the folder of traces that do not ship.
pub const TRACES_VARIABLE: &str = "MIGPOOL_TRACES";
/// Bins of Philly that are scored.
const PHILLY_TEST: usize = 2_395;
/// Almost empty, and left out by the reference too.
const EARTH_LEFT_OUT: &str = "vcdI0";

/// One series.
#[derive(Clone, Debug)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Its bins; None where nothing was recorded.
    pub bins: Vec<Option<Reading>>,
    /// The first bin that is scored.
    pub test_from: usize,
}

/// Series of one kind, which share a pool.
#[derive(Clone, Debug)]
pub struct Set {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Its series.
    pub tracks: Vec<Track>,
    /// The policy it is forecast under.
    pub policy: Policy,
}

/// The sets that were asked for, and a line for each that is not there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Those that are there.
    pub sets: Vec<Set>,
    /// Why the others are not.
    pub skipped: Vec<String>,
}

/// All sets, in the order of the tables.
pub const NAMES: [&str; 5] = ["earth", "philly", "requests", "duty", "fleet"];

/// Reads the sets of these names.
///
/// # Errors
/// Where a trace that is there cannot be read.
pub fn read(names: &[String], traces: Option<&Path>) -> Result<Found> {
    let mut found = Found::default();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    if wanted("earth") {
        found.sets.push(earth()?);
    }
    if wanted("philly") {
        found.sets.push(philly()?);
    }
    let folder = gentd26_folder(traces);
    for name in NAMES.iter().filter(|name| wanted(name)) {
        if let Some(set) = gentd26::set(name, &folder) {
            match set? {
                Ok(set) => found.sets.push(set),
                Err(missing) => found.skipped.push(format!(
                    "skipped: {name}: {} is not there; it may not be copied, give the folder of traces with --traces or {TRACES_VARIABLE}",
                    missing.display()
                )),
            }
        }
    }
    Ok(found)
}

/// The folder given, else that of the variable, else the one beside the repository.
fn gentd26_folder(given: Option<&Path>) -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let named = || std::env::var_os(TRACES_VARIABLE).map(PathBuf::from);
    let folder = given.map(Path::to_path_buf).or_else(named).unwrap_or_else(beside);
    // the folder of all traces, or that of this one alone
    if folder.join("alibaba-gentd26").is_dir() {
        folder.join("alibaba-gentd26")
    } else {
        folder
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// Occupancy of the 15 virtual clusters of Earth.
fn earth() -> Result<Set> {
    let mut tracks: Vec<Track> = Vec::new();
    let mut rows = Rows::open(&shipped("helios-earth/earth_2020-05_15min.csv.gz"))?;
    while let Some(row) = rows.next()? {
        let name = row.text("vc")?;
        if name == EARTH_LEFT_OUT {
            continue;
        }
        let total: f64 = row.number("total_gpu_num")?;
        let minutes: f64 = row.number("running_gpu_minutes")?;
        let last: f64 = row.number("running_gpu_num_last")?;
        let reading = Reading {
            mean: minutes / BIN_MINUTES as f64 / total,
            last: last / total,
        };
        match tracks.last_mut().filter(|track| track.name == name) {
            Some(track) => track.bins.push(Some(reading)),
            None => tracks.push(Track {
                name: name.to_owned(),
                bins: vec![Some(reading)],
                test_from: 0,
            }),
        }
    }
    for track in &mut tracks {
        track.test_from = track.bins.len() * 66 / 100;
    }
    Ok(Set {
        name: "earth",
        title: "Helios Earth, share of GPUs that run jobs, 15 virtual clusters",
        tracks,
        policy: Policy::default(),
    })
}

/// Nodes in use of Philly. Ten hours are missing in the trace, and stay missing here.
fn philly() -> Result<Set> {
    let path = shipped("philly/philly_nodes_15min.csv.gz");
    let mut bins: Vec<Option<Reading>> = Vec::new();
    let mut first = None;
    let mut rows = Rows::open(&path)?;
    while let Some(row) = rows.next()? {
        let at = row.minute("time")?;
        let bin = (at - *first.get_or_insert(at)) / BIN_MINUTES as i64;
        let bin = usize::try_from(bin)
            .ok()
            .filter(|bin| *bin >= bins.len())
            .with_context(|| row.wrong("the bins are not in the order of time"))?;
        bins.resize(bin, None);
        bins.push(Some(Reading {
            mean: row.number::<f64>("active_node_minutes")? / row.number::<f64>("total_node_minutes")?,
            last: row.number::<f64>("active_nodes_last")? / row.number::<f64>("total_nodes_last")?,
        }));
    }
    let test_from = bins.len().saturating_sub(PHILLY_TEST);
    Ok(Set {
        name: "philly",
        title: "Philly, share of nodes in use",
        tracks: vec![Track {
            name: "nodes".to_owned(),
            bins,
            test_from,
        }],
        policy: Policy::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ships_has_the_length_of_the_reference() {
        let names = ["earth", "philly"].map(ToOwned::to_owned);
        let found = read(&names, None).unwrap();
        let scored = |set: &Set| -> usize {
            let tracks = set.tracks.iter();
            tracks.map(|track| track.bins.len() - track.test_from).sum()
        };
        assert_eq!(found.sets.iter().map(scored).collect::<Vec<_>>(), [15_180, 2_395]);
        assert_eq!(found.sets[0].tracks.len(), 15);
        assert_eq!(
            found.sets[1].tracks[0]
                .bins
                .iter()
                .filter(|bin| bin.is_none())
                .count(),
            39,
            "the hole"
        );
    }

    #[test]
    fn what_is_not_there_is_said_in_one_line() {
        let folder = std::env::temp_dir().join("migpool-sim-no-traces");
        let found = read(&["duty".to_owned()], Some(&folder)).unwrap();
        assert!(found.sets.is_empty());
        assert!(
            found.skipped[0].starts_with("skipped: duty: "),
            "{:?}",
            found.skipped
        );
    }
}

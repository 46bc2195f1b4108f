//! `migpool-sim mig`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::engine::{Length, run};
use super::experiment::{Grid, Results};
use super::load::{Arrivals, MIXES, Mix, Pattern};
use super::policy::{POLICIES, Policy, switching};
use super::shapes::Shapes;
use super::story::Story;
use super::table;
use crate::picture::intervals::Chart;
use crate::picture::layouts;
use crate::picture::page::Page;

/// Places slices of one GPU family that come and go, and counts what is lost.
#[derive(Args, Debug)]
pub struct Mig {
    /// Policies, separated by commas [default: all; with --drift the static layouts and ours].
    #[arg(long, value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Mixes [default: all four].
    #[arg(long, value_delimiter = ',')]
    mix: Vec<Mix>,
    /// Offered loads: memory slices asked for at any time, as a share of those there are [default: .7, .85, 1, 1.2;
    /// with --drift .85].
    #[arg(long, value_delimiter = ',')]
    load: Vec<f64>,
    /// How many seeds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Requests a run.
    #[arg(long, default_value_t = 40_000)]
    arrivals: usize,
    /// Share of the requests, from the first on, that is not counted, percent.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=90))]
    warm_up_percent: u64,
    /// GPUs.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    gpus: u64,
    /// Prints also how much more each policy uses than this one of them, seed by seed.
    #[arg(long)]
    against: Option<Policy>,
    /// Layouts tuned for one mix under the others, and a load whose mix switches every 5 mean lifetimes.
    #[arg(long)]
    drift: bool,
    /// Half-life of the mix that ours learns, in hundredths of a mean lifetime [default: six lifetimes].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=16_000))]
    half_life: Option<u32>,
    /// Weight of "keep empty GPUs empty" in ours, thousandths of a slice.
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    best_fit_weight: Option<u32>,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    threads: u64,
    /// Writes one row a run to this file.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Writes a page with pictures into this folder.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Writes what happened to every slice in the first run of the first policy to this file, as CSV.
    #[arg(long)]
    record: Option<PathBuf>,
}

/// How long each mix lasts where it switches, in mean lifetimes.
const SWITCHES_EVERY: f64 = 5.0;
/// Pictures of layouts show so many GPUs, ...
const PICTURED_GPUS: usize = 10;
/// ... from this time, ...
const PICTURED_FROM: f64 = 10.0;
/// ... to this.
const PICTURED_UNTIL: f64 = 13.0;

impl Mig {
    /// Runs it.
    ///
    /// # Errors
    /// Where numbers make no sense or a file cannot be written.
    pub fn run(&self) -> Result<()> {
        let grid = self.grid()?;
        if let Some(path) = &self.record {
            write(path, &record(&grid))?;
        }
        let results = grid.run(self.threads as usize);
        print!("{}", table::text(&results));
        if let Some(over) = self.against {
            print!("{}", table::gains(&results, over));
        }
        if let Some(path) = &self.csv {
            write(path, &table::csv(&results))?;
        }
        if let Some(folder) = &self.html {
            page(&results).write(folder)?;
        }
        Ok(())
    }

    fn grid(&self) -> Result<Grid> {
        if let Some(load) = self.load.iter().find(|load| !(0.01..=10.0).contains(*load)) {
            bail!("--load {load}: a load is a share of the memory slices there are, from 0.01 to 10");
        }
        if !(10..=100_000_000).contains(&self.arrivals) {
            bail!("--arrivals {}: choose from 10 to 100000000", self.arrivals);
        }
        let or = |given: &[f64], default: &[f64]| {
            if given.is_empty() {
                default.to_vec()
            } else {
                given.to_vec()
            }
        };
        let mixes = if self.mix.is_empty() {
            MIXES.to_vec()
        } else {
            self.mix.clone()
        };
        let mut patterns: Vec<Pattern> = mixes.into_iter().map(Pattern::Steady).collect();
        let default_policies = if self.drift {
            patterns.push(switching(SWITCHES_EVERY));
            drift_policies()
        } else {
            POLICIES.iter().map(|(_, policy)| *policy).collect()
        };
        let policies = if self.policy.is_empty() {
            default_policies
        } else {
            self.policy.clone()
        };
        if let Some(over) = self.against.filter(|over| !policies.contains(over)) {
            bail!("--against {over}: name it in --policy too");
        }
        let mut ours = shared::policy::Policy::default();
        if let Some(hundredths) = self.half_life {
            // a mean lifetime is an hour on our clock
            ours.demand_half_life_minutes = (hundredths * 60).div_ceil(100);
        }
        if let Some(weight) = self.best_fit_weight {
            ours.best_fit_weight_milli = weight;
        }
        Ok(Grid {
            policies,
            patterns,
            loads: or(
                &self.load,
                if self.drift {
                    &[0.85]
                } else {
                    &[0.7, 0.85, 1.0, 1.2]
                },
            ),
            seeds: (self.first_seed..self.first_seed + self.seeds).collect(),
            gpus: self.gpus as usize,
            length: Length {
                arrivals: self.arrivals,
                warm_up: (self.arrivals as u64 * self.warm_up_percent / 100) as usize,
            },
            ours,
        })
    }
}

/// Each mix's layout, the usual ones, none, the best dynamic one of the reference, and ours.
fn drift_policies() -> Vec<Policy> {
    let fixed = MIXES.iter().map(|mix| format!("static:{}", mix.name));
    let others = [
        "static",
        "static:quarters",
        "no-mig",
        "first-fit",
        "ef",
        "ours",
        "ours/m",
    ];
    let names = fixed.chain(others.map(ToOwned::to_owned));
    names.filter_map(|name| name.parse().ok()).collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The events of the first run.
fn record(grid: &Grid) -> String {
    let shapes = Shapes::h100();
    let mut story = Story::default();
    if let (Some(policy), Some(pattern), Some(load)) =
        (grid.policies.first(), grid.patterns.first(), grid.loads.first())
    {
        let mut fleet = policy.fleet(&shapes, pattern, *load, grid.gpus, &grid.ours);
        let seed = grid.seeds.first().copied().unwrap_or_default();
        let arrivals = Arrivals::new(pattern, &shapes, *load, grid.gpus, seed);
        run(&mut *fleet, grid.gpus, &shapes, arrivals, grid.length, &mut story);
    }
    story.csv(&shapes)
}

/// Utilisation by policy for each load, then layouts over time of the first and the last policy.
fn page(results: &Results) -> Page {
    let grid = &results.grid;
    let mut page = Page::new("migpool-sim mig");
    page.say(&format!(
        "{} GPUs of 8 memory slices. Requests for one slice arrive at random, stay for a random time of mean 1 and are lost \
         where they do not fit. {} seeds; bars are 95 % intervals; the dashed line is a pool whose slices have no geometry.",
        grid.gpus,
        grid.seeds.len()
    ));
    for (at, load) in grid.loads.iter().enumerate() {
        let row = |policy: &Policy| {
            let values =
                (0..grid.patterns.len()).map(|pattern| results.cell(*policy, pattern, at).utilisation);
            (
                policy.to_string(),
                matches!(policy, Policy::Ours { .. }),
                values.collect(),
            )
        };
        let panel = |pattern: &Pattern| {
            (
                pattern.name().to_owned(),
                table::ideal_of(pattern, *load, grid.gpus),
            )
        };
        let chart = Chart {
            title: format!("share of memory slices used, load {load}"),
            rows: grid.policies.iter().map(row).collect(),
            panels: grid.patterns.iter().map(panel).collect(),
        };
        page.picture(&format!("utilisation-{load}.svg"), chart.svg());
    }
    let shapes = Shapes::h100();
    let mut shown: Vec<&Policy> = grid
        .policies
        .first()
        .into_iter()
        .chain(grid.policies.last())
        .collect();
    if let Some(ours) = grid
        .policies
        .iter()
        .rfind(|policy| matches!(policy, Policy::Ours { .. }))
    {
        shown.push(ours);
    }
    shown.dedup();
    if let (Some(pattern), Some(load)) = (grid.patterns.first(), grid.loads.last()) {
        for policy in shown {
            let mut fleet = policy.fleet(&shapes, pattern, *load, PICTURED_GPUS, &grid.ours);
            let arrivals = Arrivals::new(pattern, &shapes, *load, PICTURED_GPUS, 1);
            let arrivals = arrivals.take_while(|arrival| arrival.at < PICTURED_UNTIL);
            let mut story = Story::default();
            let length = Length {
                arrivals: usize::MAX,
                warm_up: 0,
            };
            run(&mut *fleet, PICTURED_GPUS, &shapes, arrivals, length, &mut story);
            let title = format!(
                "{policy}: {} mix, load {load}, {PICTURED_GPUS} GPUs",
                pattern.name()
            );
            let svg = layouts::svg(
                &title,
                &story,
                &shapes,
                PICTURED_GPUS,
                PICTURED_FROM,
                PICTURED_UNTIL,
            );
            page.picture(
                &format!("layouts-{}.svg", policy.to_string().replace(['/', ':'], "-")),
                svg,
            );
        }
    }
    page.verbatim(&table::text(results));
    page
}

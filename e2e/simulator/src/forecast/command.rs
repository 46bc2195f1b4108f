//! `migpool-sim forecast`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::replay::{self, Outcome};
use super::trace::{self, NAMES};
use super::{claims, picture, splice, table, training};
use crate::parallel;

/// Forecasts load 15 minutes ahead and holds it against what came. With RAYON_NUM_THREADS=1 the LSTM trains in half
/// the time and says the same.
#[derive(Args, Debug)]
pub struct Forecast {
    /// Sets of series, separated by commas: earth, philly, and of GenTD26, where it is present, requests, duty,
    /// fleet [default: all].
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    set: Vec<String>,
    /// Folder of the traces that do not ship, or of alibaba-gentd26 in it [default: $MIGPOOL_TRACES, else
    /// shared/traces beside the repository].
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Leaves out the LSTM, which takes most of the time.
    #[arg(long)]
    without_lstm: bool,
    /// Seed of the spliced series.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    threads: u64,
    /// Writes one row a series and method to this file.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Writes a page with pictures into this folder.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Fails where something that must hold does not.
    #[arg(long)]
    check: bool,
}

impl Forecast {
    /// Runs it.
    ///
    /// # Errors
    /// Where a trace cannot be read, a file not be written, or with `--check` something does not hold.
    pub fn run(&self) -> Result<()> {
        let found = trace::read(&self.set, self.traces.as_deref())?;
        let threads = self.threads as usize;
        let said = (!self.without_lstm).then(|| training::train(&found.sets, threads));
        let jobs: Vec<usize> = (0..found.sets.len()).collect();
        let outcomes: Vec<Outcome> = parallel::run(&jobs, threads, "replay", |at| {
            replay::run(&found.sets[*at], said.as_ref().map(|said| said[*at].as_slice()))
        });
        let spliced = splice::run(self.seed);
        let claims = claims::of(&outcomes, &spliced);
        for outcome in &outcomes {
            print!("{}", table::text(outcome));
        }
        println!("{}", table::costs(&outcomes));
        for line in &found.skipped {
            println!("{line}");
        }
        for claim in &claims {
            println!("{claim}");
        }
        if let Some(path) = &self.csv {
            write(path, &table::csv(&outcomes))?;
        }
        if let Some(folder) = &self.html {
            picture::page(&outcomes, &spliced, &claims).write(folder)?;
        }
        let broken = claims.iter().filter(|claim| claim.held == Some(false)).count();
        if self.check && broken > 0 {
            bail!("{broken} of {} do not hold", claims.len());
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

//! `migpool-sim`: what placement is worth, on traces anyone can check.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use simulator::forecast::command::Forecast;
use simulator::mig::command::Mig;
use simulator::place::command::Place;
use simulator::pool::command::Pool;

/// Runs migpool's decisions and others' under a virtual clock.
#[derive(Parser)]
#[command(name = "migpool-sim", version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Load 15 minutes ahead: the ensemble and each of its members against what came.
    Forecast(Forecast),
    /// Slices of one GPU family that come and go (MIG-100).
    Mig(Mig),
    /// A production cluster that fills up (openb), against published results.
    Place(Place),
    /// How many GPUs are needed at equal service: dynamic slices against whole GPUs and static layouts.
    Pool(Pool),
}

fn main() -> ExitCode {
    let result = match Args::parse().what {
        What::Forecast(forecast) => forecast.run(),
        What::Mig(mig) => mig.run(),
        What::Place(place) => place.run(),
        What::Pool(pool) => pool.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("migpool-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

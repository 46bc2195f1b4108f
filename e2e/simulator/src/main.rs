//! `migpool-sim`: what placement is worth, on traces anyone can check.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use simulator::mig::command::Mig;
use simulator::place::command::Place;

/// Runs migpool's decisions and others' under a virtual clock.
#[derive(Parser)]
#[command(name = "migpool-sim", version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Slices of one GPU family that come and go (MIG-100).
    Mig(Mig),
    /// A production cluster that fills up (openb), against published results.
    Place(Place),
}

fn main() -> ExitCode {
    let result = match Args::parse().what {
        What::Mig(mig) => mig.run(),
        What::Place(place) => place.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("migpool-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! One line per step, with the time since the start, so that nobody wonders whether it hangs.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Prints steps to standard error, or keeps quiet.
#[derive(Clone, Debug)]
pub struct Progress {
    started: Instant,
    quiet: bool,
}

impl Progress {
    /// Lines on standard error.
    pub fn shown() -> Self {
        Self {
            started: Instant::now(),
            quiet: false,
        }
    }

    /// No lines.
    pub fn quiet() -> Self {
        Self {
            started: Instant::now(),
            quiet: true,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints one line.
    pub fn say(&self, what: impl Display) {
        if !self.quiet {
            eprintln!("{:>7.1} s  {what}", self.elapsed().as_secs_f64());
        }
    }

    /// Does one step and prints how long it took.
    pub fn step<T>(&self, what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let done = work()?;
        self.say(format_args!("{what} ({:.1} s)", started.elapsed().as_secs_f64()));
        Ok(done)
    }
}

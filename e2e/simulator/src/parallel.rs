//! Runs independent jobs on several threads and says on stderr how far it is. Which thread runs a job changes
//! nothing about its result, and results come back in the order of the jobs.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `work` on every job. `what` names the work in the progress line.
pub fn run<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    what: &str,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(jobs.len()));
    let progress = Progress::new(what, jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, job)) = take(&next, jobs) {
                    let result = work(job);
                    // a thread that panicked ends the whole run when the scope ends, so what it held is whole
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results.push((at, result));
                    progress.show(results.len());
                }
            });
        }
    });
    progress.end();
    let mut results = results
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, J>(next: &AtomicUsize, jobs: &'a [J]) -> Option<(usize, &'a J)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    jobs.get(at).map(|job| (at, job))
}

/// A bar on a terminal, elsewhere a line now and then.
struct Progress<'a> {
    what: &'a str,
    total: usize,
    terminal: bool,
    said: Mutex<Instant>,
}

/// Where stderr is no terminal, a line at most this often.
const SPACING: Duration = Duration::from_secs(10);

impl<'a> Progress<'a> {
    fn new(what: &'a str, total: usize) -> Self {
        Self {
            what,
            total,
            terminal: std::io::stderr().is_terminal(),
            said: Mutex::new(Instant::now()),
        }
    }

    fn show(&self, done: usize) {
        let mut to = std::io::stderr().lock();
        // progress is a courtesy: a closed stderr stops nothing
        let _ = if self.terminal {
            let filled = done * 30 / self.total.max(1);
            let bar: String = (0..30).map(|at| if at < filled { '#' } else { '.' }).collect();
            write!(to, "\r{} [{bar}] {done}/{}", self.what, self.total)
        } else if self.due() {
            writeln!(to, "{} {done}/{}", self.what, self.total)
        } else {
            Ok(())
        };
    }

    fn due(&self) -> bool {
        let mut said = self
            .said
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = said.elapsed() >= SPACING;
        if due {
            *said = Instant::now();
        }
        due
    }

    fn end(&self) {
        if self.terminal && self.total > 0 {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs_whatever_the_threads() {
        let jobs: Vec<u64> = (0..50).collect();
        let one = run(&jobs, 1, "test", |job| job * job);
        assert_eq!(one, run(&jobs, 7, "test", |job| job * job));
        assert_eq!(one[7], 49);
        assert!(run(&[], 3, "test", |job: &u64| *job).is_empty());
    }
}

//! Which program spends how much CPU on a pod. On a machine that everything shares, it says what a rate is made of, and
//! what it would be where the scheduler has a core of its own.

use std::fs;
use std::time::Duration;

/// The programs, in the order of the table.
pub const PROGRAMS: [&str; 4] = ["kube-scheduler", "migpool", "kube-apiserver", "etcd"];

/// Process ids of [`PROGRAMS`]; None where one does not run.
pub type Pids = [Option<i32>; PROGRAMS.len()];

/// Clock ticks a second in `/proc/PID/stat`, the same on every machine we build for.
const TICKS: f64 = 100.0;

/// CPU time of each program, user and system, all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage([Duration; PROGRAMS.len()]);

impl Usage {
    /// What they have used until now.
    #[must_use]
    pub fn of(pids: Pids) -> Self {
        let read = |pid| parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
        Self(pids.map(|pid| pid.and_then(read).unwrap_or_default()))
    }

    /// What was used since, in milliseconds for each of `pods`.
    #[must_use]
    pub fn since(&self, before: &Self, pods: u32) -> [f64; PROGRAMS.len()] {
        let mut each = [0.0; PROGRAMS.len()];
        for (at, each) in each.iter_mut().enumerate() {
            let used = self.0[at].saturating_sub(before.0[at]);
            *each = used.as_secs_f64() * 1e3 / f64::from(pods.max(1));
        }
        each
    }
}

/// User and system time of a `/proc/PID/stat`. The name, in brackets, may hold anything.
fn parse(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(Duration::from_secs_f64(f64::from(ticks()? + ticks()?) / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_behind_any_name_and_counted_for_each_pod() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 9 9 20 0 8 0 100 1 1";
        assert_eq!(parse(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse("7 (cut"), None);
        let later = Usage([
            Duration::from_secs(3),
            Duration::ZERO,
            Duration::from_secs(1),
            Duration::ZERO,
        ]);
        let before = Usage([
            Duration::from_secs(1),
            Duration::ZERO,
            Duration::ZERO,
            Duration::ZERO,
        ]);
        assert_eq!(later.since(&before, 1_000), [2.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn this_process_has_used_some() {
        let own = i32::try_from(std::process::id()).unwrap();
        let used = || Usage::of([Some(own), None, None, None]) != Usage::default();
        // a tick is 10 ms; what is worked meanwhile is asking
        let asked = (0..1_000_000).position(|_| used());
        assert!(asked.is_some(), "a million reads of /proc took no time");
    }
}

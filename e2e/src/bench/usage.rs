//! Which program spends how much CPU on a pod. On a machine that everything shares, it says what a rate is made of, and
//! what it would be where the scheduler has a core of its own.

use std::time::Duration;

use cluster::process::cpu_time;

/// The programs, in the order of the table.
pub const PROGRAMS: [&str; 4] = ["kube-scheduler", "migpool", "kube-apiserver", "etcd"];

/// Process ids of [`PROGRAMS`]; None where one does not run.
pub type Pids = [Option<i32>; PROGRAMS.len()];

/// CPU time of each program, user and system, all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage([Duration; PROGRAMS.len()]);

impl Usage {
    /// What they have used until now.
    #[must_use]
    pub fn of(pids: Pids) -> Self {
        Self(pids.map(|pid| pid.and_then(cpu_time).unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_for_each_pod() {
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

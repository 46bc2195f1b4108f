//! Long-running processes: started, recorded on disk, found again and ended by a later call of the program.
//!
//! A pid alone is no identity, because the kernel gives it away again. A process is its pid, its start time and
//! the boot it belongs to; it is signalled through a pidfd, so that nothing else can ever be hit.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use serde::{Deserialize, Serialize};

use crate::command::wait_until;

/// How long a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// One process, and no other that ever gets its pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process id.
    pub pid: i32,
    /// Clock ticks between boot and its start.
    pub start_time: u64,
    /// The kernel's boot id at that time.
    pub boot: String,
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    start_time: u64,
    cpu: Duration,
}

/// Clock ticks a second in `/proc/PID/stat`, the same on every machine we build for.
const TICKS: f64 = 100.0;

/// CPU time that a process has used until now, user and system, all threads, in steps of 10 ms.
#[must_use]
pub fn cpu_time(pid: i32) -> Option<Duration> {
    Stat::of(pid).map(|stat| stat.cpu)
}

/// The recorded processes of one cluster.
#[derive(Clone, Debug)]
pub struct Processes {
    records: PathBuf,
    logs: PathBuf,
}

impl Identity {
    /// The process that has this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Stat::of(pid)?;
        Some(Self {
            pid,
            start_time: stat.start_time,
            boot: boot_id(),
        })
    }

    /// Whether that very process still runs.
    pub fn is_alive(&self) -> bool {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // A child of ours stays a zombie until somebody asks; for any other process this is refused.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        self.matches(Stat::of(self.pid), &boot_id())
    }

    fn matches(&self, stat: Option<Stat>, boot: &str) -> bool {
        stat.is_some_and(|stat| {
            stat.start_time == self.start_time && !matches!(stat.state, 'Z' | 'X') && self.boot == boot
        })
    }

    /// Sends the signal if that very process still runs.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // Open first, compare then: the handle cannot move to another process in between.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if self.is_alive() {
            // It may have ended by itself, which is what we want.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }

    /// SIGKILL, then waits until it is gone.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL);
        if wait_until(KILL_LIMIT, || !self.is_alive()) {
            return Ok(());
        }
        bail!(
            "process {} is still there {} s after SIGKILL",
            self.pid,
            KILL_LIMIT.as_secs()
        )
    }
}

impl Processes {
    /// The processes recorded under the cluster's folder.
    pub fn under(root: &Path) -> Self {
        Self {
            records: root.join("processes"),
            logs: root.join("logs"),
        }
    }

    /// Starts it with its output in a log file of its own, and records it.
    pub fn start(&self, name: &str, command: &mut Command) -> Result<Identity> {
        fs::create_dir_all(&self.records).with_context(|| format!("make {}", self.records.display()))?;
        fs::create_dir_all(&self.logs).with_context(|| format!("make {}", self.logs.display()))?;
        let log = File::options().create(true).append(true).open(self.log(name))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let pid = i32::try_from(child.id()).context("a pid beyond 31 bits")?;
        let identity =
            Identity::of(pid).with_context(|| format!("{name} ended at once: {}", self.last_words(name)))?;
        fs::write(self.record(name), serde_json::to_vec(&identity)?)?;
        Ok(identity)
    }

    /// The recorded process of this name, running or not.
    pub fn recorded(&self, name: &str) -> Option<Identity> {
        serde_json::from_slice(&fs::read(self.record(name)).ok()?).ok()
    }

    /// The process of this name, if it runs.
    pub fn running(&self, name: &str) -> Option<Identity> {
        self.recorded(name).filter(Identity::is_alive)
    }

    /// Names of all recorded processes, sorted.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.records) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".json")
                    .map(str::to_owned)
            })
            .collect();
        names.sort_unstable();
        names
    }

    /// SIGTERM, then SIGKILL if it takes longer than the grace.
    pub fn stop(&self, name: &str, grace: Duration) -> Result<()> {
        if let Some(identity) = self.running(name) {
            identity.signal(Signal::TERM);
            if !wait_until(grace, || !identity.is_alive()) {
                identity.kill().with_context(|| format!("stop {name}"))?;
            }
        }
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&self, name: &str) -> Result<()> {
        self.running(name).map_or(Ok(()), |identity| {
            identity.kill().with_context(|| format!("kill {name}"))
        })
    }

    /// Waits until `ready` says yes; fails early, with the last log lines, when the process ends first.
    pub fn await_ready(&self, name: &str, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut died = false;
        let reached = wait_until(limit, || {
            died = self.running(name).is_none();
            died || ready()
        });
        if died {
            bail!(
                "{name} ended before it was ready; its last lines:\n{}",
                self.last_words(name)
            );
        }
        if !reached {
            let log = self.log(name);
            bail!(
                "{name} is not ready after {} s; see {}",
                limit.as_secs(),
                log.display()
            );
        }
        Ok(())
    }

    /// The log file of this process.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn record(&self, name: &str) -> PathBuf {
        self.records.join(format!("{name}.json"))
    }

    fn last_words(&self, name: &str) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(self.log(name))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok(tail)
        };
        let tail = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }
}

/// The kernel's boot id.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// Every pid on the machine.
pub fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command name may hold spaces and brackets, so the fields are counted from its last bracket.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Field 3 is the state, 14 and 15 are user and system time, 22 is the start time; the bracket closes field 2.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let ticks = number(14)? + number(15)?;
        Some(Self {
            state: fields.first()?.chars().next()?,
            start_time: number(22)?,
            cpu: Duration::from_secs_f64(ticks as f64 / TICKS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 120 0 0 0 1 2 3 4 20 0 7 0 987654 1 2 3";

    #[test]
    fn stat_is_read_past_a_name_with_brackets() {
        assert_eq!(
            Stat::parse(LINE),
            Some(Stat {
                state: 'S',
                start_time: 987_654,
                cpu: Duration::from_millis(30),
            })
        );
        assert_eq!(Stat::parse("4711 (cut"), None);
    }

    #[test]
    fn a_recycled_pid_a_zombie_and_another_boot_are_not_the_process() {
        let identity = Identity {
            pid: 4711,
            start_time: 987_654,
            boot: "b1".into(),
        };
        let stat = Stat::parse(LINE);
        assert!(identity.matches(stat, "b1"));
        assert!(!identity.matches(stat, "b2"));
        assert!(!identity.matches(
            stat.map(|stat| Stat {
                start_time: 1,
                ..stat
            }),
            "b1"
        ));
        assert!(!identity.matches(stat.map(|stat| Stat { state: 'Z', ..stat }), "b1"));
        assert!(!identity.matches(None, "b1"));
    }

    #[test]
    fn a_process_is_started_found_again_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::under(folder.path());
        let started = processes
            .start("sleeper", Command::new("sleep").arg("600"))
            .unwrap();
        assert_eq!(Processes::under(folder.path()).running("sleeper"), Some(started));
        assert_eq!(processes.names(), ["sleeper"]);
        processes.kill("sleeper").unwrap();
        assert_eq!(processes.running("sleeper"), None);
    }

    #[test]
    fn a_process_that_dies_early_leaves_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::under(folder.path());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.2; echo the port is taken; exit 1"]);
        processes.start("loud", &mut command).unwrap();
        let error = processes
            .await_ready("loud", Duration::from_secs(10), || false)
            .unwrap_err();
        assert!(error.to_string().contains("the port is taken"), "{error}");
    }
}

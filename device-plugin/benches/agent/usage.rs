//! Memory and processor time of the agent's process.

use std::time::{Duration, Instant};

use crate::node::Node;

/// Clock ticks a second in `/proc/PID/stat`, the same on every machine we build for.
const TICKS: f64 = 100.0;

/// What the agent's process has used up to a moment, or between two.
pub(crate) struct Usage {
    label: &'static str,
    wall: Duration,
    cpu: Duration,
    resident: u64,
    peak: u64,
}

impl Usage {
    /// Up to now.
    pub(crate) fn of(node: &Node) -> Self {
        let process = format!("/proc/{}", node.agent.as_ref().unwrap().child.id());
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.trim_end_matches("kB").trim().parse::<u64>().unwrap()
        };
        let stat = std::fs::read_to_string(format!("{process}/stat")).unwrap();
        // fields are counted after the name, which may have anything in it
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u32 = fields[11..13]
            .iter()
            .map(|field| field.parse::<u32>().unwrap())
            .sum();
        Self {
            label: "",
            wall: Duration::ZERO,
            cpu: Duration::from_secs_f64(f64::from(ticks) / TICKS),
            resident: kib("VmRSS:"),
            peak: kib("VmHWM:"),
        }
    }

    /// Since an earlier moment.
    pub(crate) fn since(self, before: &Self, began: Instant, label: &'static str) -> Self {
        Self {
            label,
            wall: began.elapsed(),
            cpu: self.cpu.saturating_sub(before.cpu),
            ..self
        }
    }

    /// The table's head.
    pub(crate) fn head() {
        println!(
            "the agent's process; CPU in percent of one core, in steps of one tick of 10 ms; the fake library's work counts as its own"
        );
        println!(
            "{:<38} {:>6} {:>10} {:>10} {:>8}",
            "while", "wall", "RSS", "peak RSS", "CPU"
        );
    }

    /// One row.
    pub(crate) fn print(&self) {
        let cpu = format!(
            "{:.2} %",
            100.0 * self.cpu.as_secs_f64() / self.wall.as_secs_f64()
        );
        let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
        println!(
            "{:<38} {:>4.1} s {:>10} {:>10} {cpu:>8}",
            self.label,
            self.wall.as_secs_f64(),
            mib(self.resident),
            mib(self.peak),
        );
    }
}

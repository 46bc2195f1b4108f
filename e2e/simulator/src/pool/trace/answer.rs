//! What a cluster with these pods would need, in words and figures.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};

use super::replay::{Arm, Demand, Found, Replay};
use super::{Bad, Judge, Trace, read};
use crate::fleet::Make;
use crate::picture::lines::{Chart, Line};
use crate::pool::need::saving;
use crate::pool::report::{Section, Table, number, percent};

/// So many bad rows are listed; the rest is counted.
const LISTED: usize = 200;
/// Points of a curve in a picture, at most.
const POINTS: usize = 4_000;

/// Rows of the table.
const ARMS: [(&str, Arm); 5] = [
    ("one whole GPU each", Arm::Whole),
    ("best static layout", Arm::Still),
    ("dynamic, no moves", Arm::Dynamic { repairs: false }),
    ("dynamic", Arm::Dynamic { repairs: true }),
    ("slices without geometry", Arm::Heap),
];

/// What is asked of a trace.
#[derive(Clone, Debug)]
pub struct Question {
    /// GPUs and nodes.
    pub make: Make,
    /// Share of pods that must be let in.
    pub accept: f64,
    /// Whether a bad row ends everything.
    pub strict: bool,
    /// Threads.
    pub threads: usize,
}

/// Reads a trace and says what it needs.
///
/// # Errors
/// Where the file is no trace, has no pod with GPUs, or, if `strict`, has a bad row.
pub fn answer(path: &Path, question: &Question) -> Result<Vec<Section>> {
    let trace = read(path, &mut Judge::new(question.make.clone()))?;
    if question.strict && !trace.bad.is_empty() {
        bail!(
            "{}: {}, nothing was computed (--strict)\n{}",
            path.display(),
            counted(trace.bad.len(), "bad row"),
            listed(&trace.bad).trim_end()
        );
    }
    if trace.pods.is_empty() {
        bail!(
            "{} has no pod that asks for a GPU ({} without, {})\n{}",
            path.display(),
            trace.without_gpus,
            counted(trace.bad.len(), "bad row"),
            listed(&trace.bad).trim_end()
        );
    }
    let replay = Replay::new(&trace.pods, question.make.clone());
    let mut sections = vec![
        demand(&replay, &trace, question),
        needed(&replay, &trace, question),
    ];
    if !trace.bad.is_empty() {
        sections.push(left_out(&trace));
    }
    Ok(sections)
}

fn demand(replay: &Replay<'_>, trace: &Trace, question: &Question) -> Section {
    let mut table = Table::new(["at any time", "mean", "peak"]);
    let mut row = |name: &str, demand: Demand| {
        table.row([name.to_owned(), number(demand.mean), number(demand.peak)]);
    };
    row("pods with GPUs", replay.running());
    row("GPUs, one whole GPU each", replay.whole());
    row("GPUs that their slices fill without a gap", replay.used());
    let mut notes = vec![format!(
        "{} with GPUs over {} h, {} without, {} left out; {}, {} GPUs a node",
        counted(trace.pods.len(), "pod"),
        number(replay.seconds() / 3_600.0),
        trace.without_gpus,
        counted(trace.bad.len(), "row"),
        question.make.board.name,
        question.make.gpus_per_node
    )];
    if !trace.unused.is_empty() {
        notes.push(format!(
            "columns that mean nothing here: {}",
            trace.unused.join(", ")
        ));
    }
    notes.extend(trace.sized.iter().map(|sized| format!("by its hints: {sized}")));
    Section {
        name: "demand".to_owned(),
        title: "what the pods ask for".to_owned(),
        notes,
        table,
        ..Section::default()
    }
}

fn needed(replay: &Replay<'_>, trace: &Trace, question: &Question) -> Section {
    let arms = ARMS.map(|(_, arm)| arm);
    let found = replay.needs(&arms, question.accept, question.threads);
    let gpus = |at: usize| found[at].map_or(f64::NAN, |found| found.gpus as f64);
    let most = saving(gpus(4), gpus(0));
    let mut table = Table::new([
        "arm",
        "GPUs",
        "let in",
        "moves",
        "saves of GPUs each",
        "ceiling",
        "saves of layout",
    ]);
    for (at, (name, _)) in ARMS.iter().enumerate() {
        let cell = |of: &dyn Fn(Found) -> String| found[at].map_or_else(|| "none will do".to_owned(), of);
        table.row([
            (*name).to_owned(),
            cell(&|found| found.gpus.to_string()),
            cell(&|found| format!("{} of {}", found.let_in, trace.pods.len())),
            cell(&|found| found.moves.to_string()),
            percent(saving(gpus(at), gpus(0))),
            percent(most),
            percent(saving(gpus(at), gpus(1))),
        ]);
    }
    let mut notes = vec![
        format!(
            "service: at least {} of the pods are let in when they come, by count; the rest is lost, nothing waits. One replay, no chance in it.",
            percent(question.accept)
        ),
        "ceiling: what slices without geometry would save at the same service: all compute and memory in one heap. With 1g slices alone it comes to 1 - 1/7 = 85.7 %, with slices of half a GPU to 50 %.".to_owned(),
        "GPUs each: as many whole GPUs as a pod's slices would fill. dynamic: production's placement; a pod is moved at most once for a larger one of half a GPU or more.".to_owned(),
    ];
    if let Some(layout) = found[1] {
        notes.push(format!(
            "the layout, cut by somebody who knew the trace: {}",
            replay.layout(layout.gpus)
        ));
    }
    Section {
        name: "GPUs".to_owned(),
        title: "how many GPUs the pods need".to_owned(),
        notes,
        table,
        pictures: vec![("demand.svg".to_owned(), picture(replay, &found))],
        ..Section::default()
    }
}

/// Demand over time, with what the arms need as level lines.
fn picture(replay: &Replay<'_>, found: &[Option<Found>]) -> String {
    let [whole, used] = replay.series().map(|points| thinned(&points));
    let end = replay.seconds() / 3_600.0;
    let level = |at: usize| {
        found[at].map_or_else(Vec::new, |found| {
            vec![(0.0, found.gpus as f64), (end, found.gpus as f64)]
        })
    };
    let line = |name: &str, ours: bool, points: Vec<(f64, f64)>| Line {
        name: name.to_owned(),
        ours,
        points,
    };
    Chart {
        title: "GPUs wanted over time, and GPUs needed".to_owned(),
        across: "hours".to_owned(),
        lines: vec![
            line("wanted, one each", false, whole),
            line("wanted, slices", false, used),
            line("needed, one each", false, level(0)),
            line("needed, layout", false, level(1)),
            line("needed, dynamic", true, level(3)),
        ],
    }
    .svg()
}

/// A curve with fewer points: the greatest of each stretch, so that no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(POINTS).max(1);
    let greatest = |part: &[(f64, f64)]| part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(stretch).filter_map(greatest).collect()
}

fn left_out(trace: &Trace) -> Section {
    let mut table = Table::new(["row", "why"]);
    for bad in trace.bad.iter().take(LISTED) {
        table.row([bad.at.clone(), bad.why.clone()]);
    }
    Section {
        name: "left out".to_owned(),
        title: format!(
            "{}; --strict refuses a trace that has any",
            counted(trace.bad.len(), "bad row")
        ),
        table,
        ..Section::default()
    }
}

fn listed(bad: &[Bad]) -> String {
    let mut text = String::new();
    for bad in bad.iter().take(LISTED) {
        let _ = writeln!(text, "  {bad}");
    }
    if bad.len() > LISTED {
        let _ = writeln!(text, "  and {} more", bad.len() - LISTED);
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_peak() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|at| (f64::from(at), f64::from(u8::from(at == 77_777))))
            .collect();
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS && thin.contains(&(77_777.0, 1.0)));
        assert_eq!(thinned(&points[..10]), points[..10]);
    }
}

//! Results as text: a table a person reads, and a CSV with one row a run.

use std::fmt::Write as _;

use super::experiment::{Cell, Results};
use super::ideal;
use super::load::Pattern;
use super::policy::Policy;
use super::shapes::Shapes;
use crate::statistics::Summary;

/// Width of the column with the policy's name.
const NAME: usize = 18;

/// One table a load: share of requests let in, share of memory slices used with its 95 % interval, moves per 100
/// requests let in.
#[must_use]
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    let grid = &results.grid;
    for (at, load) in grid.loads.iter().enumerate() {
        let _ = writeln!(
            text,
            "load {load}: {} GPUs, {} requests of which {} not counted, {} seeds; accepted, used, 95 % interval, moves per 100 accepted",
            grid.gpus,
            grid.length.arrivals,
            grid.length.warm_up,
            grid.seeds.len(),
        );
        let columns = grid
            .patterns
            .iter()
            .map(|pattern| format!("{:<24}", pattern.name()))
            .collect::<String>();
        let _ = writeln!(text, "{:NAME$}{}", "policy", columns.trim_end());
        for policy in &grid.policies {
            let cells: String = (0..grid.patterns.len())
                .map(|pattern| format!("{:<24}", cell(&results.cell(*policy, pattern, at))))
                .collect();
            let _ = writeln!(text, "{policy:NAME$}{}", cells.trim_end());
        }
        let offered: String = (0..grid.patterns.len())
            .map(|pattern| format!("{:<24}", format!("     {}", share(offered(results, pattern, at)))))
            .collect();
        let _ = writeln!(text, "{:NAME$}{}", "(asked for)", offered.trim_end());
        let ideals: String = grid
            .patterns
            .iter()
            .map(|pattern| format!("{:<24}", ideal(pattern, *load, grid.gpus)))
            .collect();
        let _ = writeln!(text, "{:NAME$}{}\n", "(no geometry)", ideals.trim_end());
    }
    text
}

/// How much more each policy uses than one of them, seed by seed: the requests are the same, so the interval is much
/// narrower than those of the two figures.
#[must_use]
pub fn gains(results: &Results, over: Policy) -> String {
    let mut text = String::new();
    let grid = &results.grid;
    for (at, load) in grid.loads.iter().enumerate() {
        let _ = writeln!(
            text,
            "load {load}: used more than {over}, same requests; 95 % interval; moves more"
        );
        for policy in grid.policies.iter().filter(|policy| **policy != over) {
            let cells: String = (0..grid.patterns.len())
                .map(|pattern| {
                    let gain = results.gain(*policy, over, pattern, at);
                    let moves = |policy| results.cell(policy, pattern, at).moves.mean;
                    let moves = moves(*policy) - moves(over);
                    format!(
                        "{:<24}",
                        format!("{:+.4} ±{:.4} {moves:+.2}", gain.mean, gain.half)
                    )
                })
                .collect();
            let _ = writeln!(text, "{policy:NAME$}{}", cells.trim_end());
        }
        text.push('\n');
    }
    text
}

/// What the load came to: all policies saw the same, so the first tells.
fn offered(results: &Results, pattern: usize, load: usize) -> f64 {
    let first = results.grid.policies.first();
    let tallies = first
        .into_iter()
        .flat_map(|policy| results.of(*policy, pattern, load));
    Summary::of(tallies.map(|tally| tally.offered)).mean
}

/// What a pool without geometry would use.
#[must_use]
pub fn ideal_of(pattern: &Pattern, load: f64, gpus: usize) -> Option<f64> {
    match pattern {
        Pattern::Steady(mix) => Some(ideal::utilisation(&Shapes::h100(), mix, load, gpus)),
        Pattern::Switching { .. } => None,
    }
}

fn ideal(pattern: &Pattern, load: f64, gpus: usize) -> String {
    ideal_of(pattern, load, gpus).map_or_else(String::new, |used| format!("     {}", share(used)))
}

fn cell(cell: &Cell) -> String {
    let moves = if cell.moves.mean > 0.0 {
        format!(" {:.1}", cell.moves.mean)
    } else {
        String::new()
    };
    format!(
        "{} {} ±{}{moves}",
        share(cell.acceptance.mean),
        share(cell.utilisation.mean),
        share(cell.utilisation.half)
    )
}

/// Three digits without the leading zero: `.838`.
fn share(value: f64) -> String {
    let text = format!("{value:.3}");
    text.strip_prefix('0').map_or(text.clone(), ToOwned::to_owned)
}

/// One row a run.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text = String::from(
        "policy,mix,load,seed,gpus,asked,accepted,acceptance,slice_acceptance,offered,utilisation,active_gpus,moves_per_100\n",
    );
    let grid = &results.grid;
    for run in &results.runs {
        let tally = &run.tally;
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{:.6},{:.6},{:.6},{:.6},{:.3},{:.4}",
            run.policy,
            grid.patterns[run.pattern].name(),
            grid.loads[run.load],
            run.seed,
            grid.gpus,
            tally.asked,
            tally.accepted,
            tally.acceptance(),
            tally.slice_acceptance(),
            tally.offered,
            tally.utilisation,
            tally.active,
            tally.moves_per_hundred()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::engine::Length;
    use crate::mig::experiment::Grid;
    use crate::mig::load::MIXES;

    #[test]
    fn a_table_has_a_line_for_each_policy_and_a_csv_one_for_each_run() {
        let grid = Grid {
            policies: vec!["first-fit".parse().unwrap(), "ours/m".parse().unwrap()],
            patterns: MIXES[..2].iter().map(|mix| Pattern::Steady(*mix)).collect(),
            loads: vec![0.85],
            seeds: vec![1, 2],
            gpus: 4,
            length: Length {
                arrivals: 200,
                warm_up: 50,
            },
            ours: shared::policy::Policy::default(),
        };
        let results = grid.run(1);
        let text = text(&results);
        for word in [
            "uniform",
            "skew-small",
            "first-fit ",
            "ours/m ",
            "(no geometry)",
            "±.",
        ] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
        let gains = gains(&results, results.grid.policies[0]);
        assert!(
            gains.contains("ours/m ") && !gains.contains("first-fit  "),
            "{gains}"
        );
        let csv = csv(&results);
        assert_eq!(csv.lines().count(), 1 + 2 * 2 * 2);
        let columns = |line: &str| line.split(',').count();
        assert!(csv.lines().all(|line| columns(line) == 13), "{csv}");
    }

    #[test]
    fn shares_are_printed_as_in_the_literature() {
        assert_eq!(share(0.8384), ".838");
        assert_eq!(share(1.0), "1.000");
    }
}

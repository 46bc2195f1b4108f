//! Results as text and as CSV.

use std::fmt::Write as _;

use super::experiment::{Entry, Results};
use super::fill::MEASURED;
use super::published;
use crate::statistics::Summary;

/// Where the tables read allocation, percent asked for.
const ALLOCATED_AT: [usize; 4] = [90, 95, 100, 130];
/// Where they read fragments.
const FRAGMENT_AT: [usize; 4] = [50, 80, 90, 100];

/// Allocation at 100 % beside the published figures, list by list; then the other points, policy by policy.
#[must_use]
pub fn text(results: &Results) -> String {
    let grid = &results.grid;
    let mut text = format!(
        "allocated GPUs, percent of all, when 100 % is asked for: mean of {} seeds, standard deviation, published (for ours the target)\n",
        grid.seeds.len()
    );
    let mut head = format!("{:13}", "list");
    for entry in &grid.entries {
        let _ = write!(head, "{:21}", entry.name());
    }
    let _ = writeln!(text, "{}", head.trim_end());
    for (at, list) in grid.lists.iter().enumerate() {
        let mut line = format!("{list:13}");
        for entry in &grid.entries {
            let here = results.cell(*entry, at, |curve| curve.allocated[100]);
            let published = published::at_hundred(entry.policy, list);
            let published = published.map_or_else(String::new, |figure| format!("{figure:.2}"));
            let _ = write!(
                line,
                "{:<21}",
                format!("{:.2} {:.2} ({published})", here.mean, here.sd)
            );
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let mut line = format!("{:13}", "mean");
    for entry in &grid.entries {
        let means =
            (0..grid.lists.len()).map(|list| results.cell(*entry, list, |curve| curve.allocated[100]).mean);
        let _ = write!(line, "{:<21}", format!("{:.2}", Summary::of(means).mean));
    }
    let _ = writeln!(text, "{}\n", line.trim_end());
    for entry in &grid.entries {
        points(&mut text, results, *entry);
    }
    text
}

fn points(text: &mut String, results: &Results, entry: Entry) {
    let columns = |points: &[usize]| {
        points
            .iter()
            .map(|point| format!("{point:>8}"))
            .collect::<String>()
    };
    let _ = writeln!(
        text,
        "{}: allocated % at, fragment % of all GPUs at",
        entry.name()
    );
    let _ = writeln!(
        text,
        "{:13}{} |{}",
        "list",
        columns(&ALLOCATED_AT),
        columns(&FRAGMENT_AT)
    );
    for (at, list) in results.grid.lists.iter().enumerate() {
        let mut line = format!("{list:13}");
        for point in ALLOCATED_AT {
            let _ = write!(
                line,
                "{:>8.2}",
                results.cell(entry, at, |curve| curve.allocated[point]).mean
            );
        }
        line.push_str(" |");
        for point in FRAGMENT_AT {
            let _ = write!(
                line,
                "{:>8.2}",
                results.cell(entry, at, |curve| curve.fragment[point]).mean
            );
        }
        let _ = writeln!(text, "{line}");
    }
    text.push('\n');
}

/// One row a run and percent.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text =
        String::from("list,policy,ties,seed,dropped,asked_percent,allocated_percent,fragment_percent\n");
    for (list, entry, seed, curve) in &results.runs {
        for percent in 0..=MEASURED {
            let _ = writeln!(
                text,
                "{},{},{:?},{seed},{},{percent},{:.4},{:.4}",
                results.grid.lists[*list],
                entry.policy,
                entry.ties,
                curve.dropped,
                curve.allocated[percent],
                curve.fragment[percent]
            );
        }
    }
    text
}

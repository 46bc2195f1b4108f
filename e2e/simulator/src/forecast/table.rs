//! Scores as text and as CSV.

use std::fmt::Write as _;

use super::replay::Outcome;
use super::score::Score;

/// A set with all its methods.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n", outcome.set, outcome.title);
    let _ = writeln!(
        text,
        "  {:15}{:>7}{:>8}{:>8}{:>7}{:>9}{:>9}{:>8}{:>9}{:>11}{:>8}{:>9}",
        "method",
        "n",
        "MAE",
        "WAPE %",
        "MASE",
        "in 10 %",
        "events",
        "MAE",
        "in 10 %",
        "0.9: <=%",
        "< %",
        "pinball"
    );
    for (at, method) in outcome.methods.iter().enumerate() {
        let score = outcome.total(at);
        if score.count == 0 {
            let _ = writeln!(text, "  {method:15}{:>7}", 0);
            continue;
        }
        let _ = writeln!(
            text,
            "  {method:15}{:>7}{:>8.3}{:>8.2}{:>7.3}{:>9.2}{:>9}{:>8.2}{:>9.1}{:>11.1}{:>8.1}{:>9.4}",
            score.count,
            score.mae(),
            score.wape(),
            score.mase(),
            score.accuracy(),
            score.events,
            score.events_mae(),
            score.events_accuracy(),
            score.covered(),
            score.below(),
            score.pinball()
        );
    }
    let (persistence, acted) = outcome.shares;
    let _ = writeln!(
        text,
        "  published: {:.1} % labelled persistence; the gate let {:.1} % be acted on\n",
        100.0 * persistence,
        100.0 * acted
    );
    text
}

/// What each set cost on this machine. These figures alone are not the same in each run.
#[must_use]
pub fn costs(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "cost on this machine, one core\n  {:10}{:>10}{:>12}{:>16}{:>12}{:>15}{:>16}{:>12}\n",
        "set",
        "steps",
        "us a step",
        "bytes a series",
        "trainings",
        "ms a training",
        "LSTM us a step",
        "LSTM bytes"
    );
    for outcome in outcomes {
        let cost = &outcome.cost;
        let steps = f64::from(cost.steps.max(1));
        let training = cost.training.as_secs_f64() * 1e3 / f64::from(cost.trainings.max(1));
        let _ = writeln!(
            text,
            "  {:10}{:>10}{:>12.2}{:>16}{:>12}{:>15.1}{:>16.1}{:>12}",
            outcome.set,
            cost.steps,
            cost.stepping.as_secs_f64() * 1e6 / steps,
            cost.bytes,
            cost.trainings,
            training,
            cost.lstm.as_secs_f64() * 1e6 / steps,
            cost.lstm_bytes
        );
    }
    text
}

/// One row a series and method, and one a set and method with the series `all`.
#[must_use]
pub fn csv(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "set,series,method,n,mae_points,wape_percent,mase,within_10_points_percent,events,events_mae_points,\
         events_within_10_points_percent,at_or_below_upper_percent,below_upper_percent,pinball_points\n",
    );
    for outcome in outcomes {
        for (at, method) in outcome.methods.iter().enumerate() {
            row(&mut text, [outcome.set, "all", method], &outcome.total(at));
            for (name, scores) in &outcome.series {
                row(&mut text, [outcome.set, name, method], &scores[at]);
            }
        }
    }
    text
}

fn row(text: &mut String, names: [&str; 3], score: &Score) {
    let _ = writeln!(
        text,
        "{},{},{:.4},{:.4},{:.4},{:.3},{},{:.4},{:.3},{:.3},{:.3},{:.5}",
        names.join(","),
        score.count,
        score.mae(),
        score.wape(),
        score.mase(),
        score.accuracy(),
        score.events,
        score.events_mae(),
        score.events_accuracy(),
        score.covered(),
        score.below(),
        score.pinball()
    );
}

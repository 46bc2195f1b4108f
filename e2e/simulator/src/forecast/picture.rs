//! Forecast against truth, and the gate on the spliced series.

use super::claims::Claim;
use super::replay::Outcome;
use super::score::Point;
use super::splice::Round;
use super::table;
use crate::picture::lines::{Chart, Line};
use crate::picture::page::Page;

/// The page.
#[must_use]
pub fn page(outcomes: &[Outcome], spliced: &[Round], claims: &[Claim]) -> Page {
    let mut page = Page::new("migpool-sim forecast");
    page.say(
        "Load 15 minutes ahead. Of each set the series that moves most, its last two days: what came, the median and the 0.9 quantile that were published \
         15 minutes before.",
    );
    for outcome in outcomes {
        let (name, points) = &outcome.picture;
        let chart = Chart {
            title: format!("{}: {name}, percent of capacity", outcome.set),
            across: "bins of 15 minutes".to_owned(),
            lines: vec![
                line("truth", false, points, |point| point.truth),
                line("0.9 quantile", false, points, |point| point.upper),
                line("median", true, points, |point| point.median),
            ],
        };
        page.picture(&format!("forecast-{}.svg", outcome.set), chart.svg());
        page.verbatim(&table::text(outcome));
    }
    page.say(
        "A calm series that turns wild and calm again. The gate is at 100 where forecasts may be acted on.",
    );
    page.picture("gate.svg", gate(spliced).svg());
    page.verbatim(
        &claims
            .iter()
            .map(|claim| format!("{claim}\n"))
            .collect::<String>(),
    );
    page
}

fn line(name: &str, ours: bool, points: &[Point], value: impl Fn(&Point) -> f64) -> Line {
    let points = points.iter().enumerate();
    Line {
        name: name.to_owned(),
        ours,
        points: points
            .map(|(at, point)| (at as f64, 100.0 * value(point)))
            .collect(),
    }
}

fn gate(rounds: &[Round]) -> Chart {
    let line = |name: &str, ours: bool, value: &dyn Fn(&Round) -> Option<f64>| Line {
        name: name.to_owned(),
        ours,
        points: rounds
            .iter()
            .enumerate()
            .filter_map(|(at, round)| Some((at as f64, 100.0 * value(round)?)))
            .collect(),
    };
    let open = |round: &Round| Some(f64::from(u8::from(round.verdict.code() == "Act")));
    Chart {
        title: "gate on the spliced series, percent of capacity".to_owned(),
        across: "rounds of 15 minutes".to_owned(),
        lines: vec![
            line("truth", false, &|round| Some(round.truth)),
            line("median", false, &|round| round.said.map(|(median, _)| median)),
            line("gate", true, &open),
        ],
    }
}

//! What must hold, and whether it does.

use std::fmt;

use shared::policy::FALLBACK_QUIET_ROUNDS;

use super::replay::{ENSEMBLE, Outcome};
use super::splice::{self, Round, Turns, WILD_FROM, WILD_UNTIL};

/// How much worse than the best single member the ensemble may be.
pub const WORSE_BY: f64 = 1.02;
/// What the upper quantile may cover, percent.
pub const COVERED: std::ops::RangeInclusive<f64> = 88.0..=92.0;
/// Coverage of fewer bins than this says nothing about two points: of 200 its standard deviation is 2.1.
const LEAST_COUNT: usize = 200;

/// One thing that must hold.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Whether it does. None where there is too little to tell.
    pub held: Option<bool>,
    /// What, with its figures.
    pub what: String,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = match self.held {
            Some(true) => "held",
            Some(false) => "not held",
            None => "too few",
        };
        write!(f, "{held:9} {}", self.what)
    }
}

/// All that can be said of these outcomes.
#[must_use]
pub fn of(outcomes: &[Outcome], spliced: &[Round]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = outcomes.iter().filter_map(best_of_set).collect();
    claims.extend(outcomes.iter().filter_map(skill));
    claims.extend(outcomes.iter().filter_map(coverage));
    claims.push(gate(spliced));
    claims
}

/// The ensemble's error over that of the best member that spoke throughout, with that member's name.
#[must_use]
pub fn against_best(outcome: &Outcome, series: Option<usize>) -> Option<(f64, &'static str)> {
    let score = |method: usize| match series {
        Some(at) => outcome.series[at].1[method],
        None => outcome.total(method),
    };
    let ensemble = score(outcome.method(ENSEMBLE)?);
    let rivals = outcome.members().filter(|at| score(*at).count == ensemble.count);
    let best = rivals.min_by(|a, b| score(*a).error.total_cmp(&score(*b).error))?;
    let error = score(best).error;
    // a series that never moves: both are exact
    let ratio = if ensemble.error <= error {
        ensemble.error / error.max(f64::MIN_POSITIVE)
    } else {
        ensemble.error / error.max(1e-9)
    };
    Some((ratio, outcome.methods[best]))
}

fn best_of_set(outcome: &Outcome) -> Option<Claim> {
    let (ratio, best) = against_best(outcome, None)?;
    let series = outcome.series.iter().enumerate();
    let each: Vec<(f64, &str)> = series
        .filter_map(|(at, (name, _))| Some((against_best(outcome, Some(at))?.0, name.as_str())))
        .collect();
    let worst = each.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let within = each.iter().filter(|(ratio, _)| *ratio <= WORSE_BY).count();
    Some(Claim {
        held: Some(ratio <= WORSE_BY),
        what: format!(
            "{}: MAE {ratio:.3} times that of the best single member ({best}), 1.02 at most; series by series {within} of {} within, worst {:.3} ({})",
            outcome.set,
            each.len(),
            worst.0,
            worst.1
        ),
    })
}

fn skill(outcome: &Outcome) -> Option<Claim> {
    let mase = outcome.total(outcome.method(ENSEMBLE)?).mase();
    (outcome.set == "duty").then(|| Claim {
        held: Some(mase < 1.0),
        what: format!("duty: MASE {mase:.3}, better than persistence"),
    })
}

/// A 0.9 quantile is where at most 90 % lie below and at least 90 % at or below. The two differ where a load stays
/// exactly where it is; no quantile at or above the median can cover less than that.
fn coverage(outcome: &Outcome) -> Option<Claim> {
    let score = outcome.total(outcome.method(ENSEMBLE)?);
    let (below, covered) = (score.below(), score.covered());
    let reaches = below <= *COVERED.end() && covered >= *COVERED.start();
    Some(Claim {
        held: (score.count >= LEAST_COUNT).then_some(reaches),
        what: format!(
            "{}: 0.9 quantile: {below:.1} % of {} bins below, {covered:.1} % at or below, must reach into 88 to 92",
            outcome.set, score.count
        ),
    })
}

fn gate(rounds: &[Round]) -> Claim {
    let turns = splice::turns(rounds);
    let codes: Vec<&str> = rounds.iter().map(|round| round.verdict.code()).collect();
    let as_defined = codes == splice::by_definition(rounds);
    let Turns {
        opened: Some(opened),
        closed: Some(closed),
        fell: Some(fell),
        ended: Some(ended),
        reopened: Some(reopened),
    } = turns
    else {
        return Claim {
            held: Some(false),
            what: format!("gate: it did not open, close and open again: {turns:?}"),
        };
    };
    // 96 judged open it; a day of quiet after the wild part, less the failures that may remain, ends static
    let in_time = opened < WILD_FROM
        && (WILD_FROM..WILD_FROM + 48).contains(&closed)
        && (closed..WILD_UNTIL).contains(&fell)
        && (WILD_UNTIL + FALLBACK_QUIET_ROUNDS as usize..WILD_UNTIL + 96 + 48).contains(&ended)
        && (ended..WILD_UNTIL + 2 * 96).contains(&reopened);
    Claim {
        held: Some(as_defined && in_time),
        what: format!(
            "gate: calm, wild from round {WILD_FROM} to {WILD_UNTIL}, calm: opened {opened}, closed {closed}, static {fell} to {ended}, opened {reopened}; {}",
            if as_defined {
                "each round as defined"
            } else {
                "not each round as defined"
            }
        ),
    }
}

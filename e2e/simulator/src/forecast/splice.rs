//! A calm series, then a wild one, then the calm one again: where the gate opens, closes, falls back to static and
//! comes back. The rounds are held against the definition, worked out again from the errors alone.

use shared::decide::forecast::gate::Verdict;
use shared::decide::forecast::history::Reading;
use shared::decide::forecast::pool::Pool;
use shared::decide::forecast::series::Series;
use shared::policy::{FALLBACK_QUIET_ROUNDS, FORECAST_JUDGED, Policy};

use crate::random::Random;

/// Rounds of the first calm part.
pub const WILD_FROM: usize = 240;
/// Where the wild part ends.
pub const WILD_UNTIL: usize = 336;
/// Rounds in all.
pub const ROUNDS: usize = 720;

/// One round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// What came.
    pub truth: f64,
    /// Median and upper quantile that were forecast of it.
    pub said: Option<(f64, f64)>,
    /// Error of the ensemble and of persistence, where there was a forecast.
    pub errors: Option<(f64, f64)>,
    /// The verdict after it.
    pub verdict: Verdict,
}

/// Where the gate moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// First open.
    pub opened: Option<usize>,
    /// First closed after that.
    pub closed: Option<usize>,
    /// Fell back to static.
    pub fell: Option<usize>,
    /// Static ended.
    pub ended: Option<usize>,
    /// Open again.
    pub reopened: Option<usize>,
}

/// Replays the spliced series of a seed.
#[must_use]
pub fn run(seed: u64) -> Vec<Round> {
    let policy = Policy::default();
    let mut random = Random::new(seed);
    let mut pool = Pool::default();
    let mut series = Series::new(&policy);
    let mut before = None;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let truth = if (WILD_FROM..WILD_UNTIL).contains(&round) {
            random.unit()
        } else {
            // six hours from crest to crest, and half a point of noise
            let wave = (round as f64 * std::f64::consts::TAU / 24.0).sin();
            0.5 + 0.25 * wave + 0.005 * (2.0 * random.unit() - 1.0)
        };
        let said = series.ensemble(&pool);
        let errors = said
            .zip(before)
            .map(|((median, _), before): (_, f64)| ((median - truth).abs(), (before - truth).abs()));
        series.observe(Some(Reading::flat(truth)), &mut pool, &policy);
        pool.close(&policy);
        before = Some(truth);
        rounds.push(Round {
            truth,
            said,
            errors,
            verdict: series.verdict(),
        });
    }
    rounds
}

/// Where the gate moved.
#[must_use]
pub fn turns(rounds: &[Round]) -> Turns {
    let from = |from: Option<usize>, is: &dyn Fn(&Verdict) -> bool| {
        let from = from?;
        let found = rounds[from..].iter().position(|round| is(&round.verdict));
        found.map(|at| from + at)
    };
    let open = |verdict: &Verdict| *verdict == Verdict::Act;
    let still = |verdict: &Verdict| matches!(verdict, Verdict::Static { .. });
    let opened = from(Some(0), &open);
    let closed = from(opened, &|verdict| !open(verdict));
    let fell = from(closed, &still);
    let ended = from(fell, &|verdict| !still(verdict));
    Turns {
        opened,
        closed,
        fell,
        ended,
        reopened: from(ended, &open),
    }
}

/// Codes of the verdicts as they should be: from the errors and the policy, without the gate's code.
#[must_use]
pub fn by_definition(rounds: &[Round]) -> Vec<&'static str> {
    let mut codes = Vec::with_capacity(rounds.len());
    // share of failures at each round, percent, once enough were judged
    let mut failures: Vec<Option<f64>> = Vec::new();
    let mut fallen = false;
    for upto in 1..=rounds.len() {
        let judged: Vec<(f64, f64)> = rounds[..upto].iter().filter_map(|round| round.errors).collect();
        if judged.len() < FORECAST_JUDGED {
            failures.push(None);
            codes.push("Unproven");
            continue;
        }
        let last = &judged[judged.len() - FORECAST_JUDGED..];
        let failed = last.iter().filter(|(error, _)| *error > 0.10).count();
        let percent = failed as f64 * 100.0 / FORECAST_JUDGED as f64;
        failures.push(Some(percent));
        let quiet = failures.iter().rev().take(FALLBACK_QUIET_ROUNDS as usize);
        let quiet = quiet.filter(|percent| percent.is_some_and(|percent| percent < 15.0));
        if percent > 20.0 {
            fallen = true;
        } else if quiet.count() == FALLBACK_QUIET_ROUNDS as usize {
            fallen = false;
        }
        let sum = |of: fn(&(f64, f64)) -> f64| last.iter().map(of).sum::<f64>();
        codes.push(if fallen {
            "Static"
        } else if 100.0 - percent < 85.0 {
            "Inaccurate"
        } else if sum(|errors| errors.0) < sum(|errors| errors.1) {
            "Act"
        } else {
            "NoSkill"
        });
    }
    codes
}

//! Forecasts on loads whose answer is known, gaps and bad readings, and properties that hold whatever is read.

use proptest::prelude::*;

use super::gate::{Gate, Standing, Verdict};
use super::hedge::{self, Hedge, Opinions};
use super::history::{Faults, Reading};
use super::member::{MOST_MEMBERS, untrained};
use super::pool::Pool;
use super::series::Series;
use super::upper::Upper;
use super::{Forecast, Label, NoForecast};
use crate::policy::{FALLBACK_QUIET_ROUNDS, FORECAST_CARRIED_BINS, FORECAST_JUDGED, Policy};

/// A series alone in its pool.
struct Alone {
    series: Series,
    pool: Pool,
    policy: Policy,
}

impl Alone {
    fn new() -> Self {
        let policy = Policy::default();
        Self {
            series: Series::new(&policy),
            pool: Pool::default(),
            policy,
        }
    }

    fn step(&mut self, reading: Option<Reading>) -> Result<Forecast, NoForecast> {
        self.series.observe(reading, &mut self.pool, &self.policy);
        self.pool.close(&self.policy);
        self.series.forecast(&self.pool)
    }

    fn flat(&mut self, value: f64) -> Result<Forecast, NoForecast> {
        self.step(Some(Reading::flat(value)))
    }
}

fn wave(round: u32) -> f64 {
    0.5 + 0.25 * (f64::from(round) * std::f64::consts::TAU / 24.0).sin()
}

#[test]
fn an_hour_must_have_been_seen() {
    let mut alone = Alone::new();
    for have in 1..4 {
        let none = alone.flat(0.5).unwrap_err();
        assert_eq!(none, NoForecast::TooShort { have, need: 4 });
    }
    assert_eq!(
        NoForecast::TooShort { have: 3, need: 4 }.to_string(),
        "3 bins of load were seen, a forecast needs 4"
    );
    assert!(alone.flat(0.5).is_ok());
}

#[test]
fn a_load_that_stands_still_is_met_exactly_and_called_persistence() {
    let mut alone = Alone::new();
    let mut last = None;
    for _ in 0..200 {
        last = alone.flat(0.3).ok();
    }
    let forecast = last.unwrap();
    assert!(
        (forecast.median - 0.3).abs() < 1e-6 && forecast.upper < 0.31,
        "{forecast:?}"
    );
    assert_eq!(forecast.label, Label::Persistence);
    assert_eq!(forecast.verdict, Verdict::NoSkill { mase: None });
}

#[test]
fn a_wave_is_forecast_with_skill_and_acted_on() {
    let mut alone = Alone::new();
    let mut last = None;
    for round in 0..200 {
        last = alone.flat(wave(round)).ok();
    }
    let forecast = last.unwrap();
    assert!((forecast.median - wave(200)).abs() < 0.01, "{forecast:?}");
    assert_eq!(
        (forecast.label, forecast.verdict),
        (Label::Ensemble, Verdict::Act)
    );
}

#[test]
fn a_step_is_followed_at_once_by_the_last_reading() {
    let mut alone = Alone::new();
    // steps in the middle of a bin: the mean lags, the last reading does not
    let mut level = 0.2;
    let mut worst: f64 = 0.0;
    for round in 0..300_u32 {
        let before = level;
        if round % 7 == 3 {
            level = if level < 0.5 { 0.8 } else { 0.2 };
        }
        let forecast = alone.step(Some(Reading {
            mean: f64::midpoint(before, level),
            last: level,
        }));
        if round > 200 && round % 7 != 2 {
            worst = worst.max((forecast.unwrap().median - level).abs());
        }
    }
    assert!(worst < 1e-6, "{worst}");
}

#[test]
fn a_short_gap_is_carried_and_a_long_one_ends_the_forecast_until_something_is_read() {
    let mut alone = Alone::new();
    for round in 0..150 {
        let _ = alone.flat(wave(round));
    }
    for _ in 0..FORECAST_CARRIED_BINS {
        assert!(alone.step(None).is_ok());
    }
    let missing = FORECAST_CARRIED_BINS + 1;
    let none = alone.step(None).unwrap_err();
    assert_eq!(none, NoForecast::Gap { missing, most: 2 });
    assert_eq!(
        none.to_string(),
        "no load was read for 3 bins, it is carried forward for 2 at most"
    );
    let after = alone.flat(0.9).unwrap();
    assert!((after.median - 0.9).abs() < 0.2, "{after:?}");
    assert_eq!(alone.series.faults().missing, 3);
}

#[test]
fn bad_readings_are_counted_and_bounded() {
    let mut alone = Alone::new();
    for _ in 0..10 {
        let _ = alone.flat(0.5);
    }
    let reading = |mean, last| Some(Reading { mean, last });
    let _ = alone.step(reading(f64::NAN, 0.5));
    let _ = alone.step(reading(0.5, f64::NAN));
    let _ = alone.step(reading(f64::INFINITY, 1.0));
    let forecast = alone.step(reading(-3.0, -3.0)).unwrap();
    assert!((0.0..=1.0).contains(&forecast.median));
    assert_eq!(
        alone.series.faults(),
        Faults {
            unreadable: 2,
            clamped: 3,
            missing: 0
        }
    );
}

#[test]
fn a_series_takes_a_few_kilobytes_and_no_more_with_time() {
    let mut alone = Alone::new();
    let before = alone.series.bytes();
    for round in 0..2_000 {
        let _ = alone.flat(wave(round));
    }
    assert_eq!(alone.series.bytes(), before);
    assert!(before < 8_192, "{before}");
}

#[test]
fn what_one_series_learns_helps_the_others() {
    // nine noisy series around one level each: smoothing is right, persistence is not
    let policy = Policy::default();
    let mut pool = Pool::default();
    let mut series: Vec<Series> = (0..10).map(|_| Series::new(&policy)).collect();
    let mut noise = 1_u32;
    let mut draw = || {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(noise >> 8) / f64::from(1_u32 << 24)
    };
    for round in 0..60 {
        for (at, series) in series.iter_mut().enumerate() {
            // the tenth is young
            if at < 9 || round >= 50 {
                series.observe(Some(Reading::flat(0.3 + 0.4 * draw())), &mut pool, &policy);
            }
        }
        pool.close(&policy);
    }
    let weight = |series: &Series, pool: &Pool| {
        let mut members = series.members(pool);
        members.find(|(name, _, _)| *name == "persistence").unwrap().2
    };
    let alone = weight(&series[9], &Pool::default());
    let together = weight(&series[9], &pool);
    assert!(together < 0.01 && alone > 0.02, "{together}, alone {alone}");
}

#[test]
fn sleeping_costs_a_member_nothing_and_brings_it_nothing() {
    let mut hedge = Hedge::default();
    let mut opinions: Opinions = [None; MOST_MEMBERS];
    (opinions[0], opinions[1]) = (Some(0.4), Some(0.6));
    for _ in 0..50 {
        // the third sleeps and is charged the median's loss, between the good and the bad one's
        hedge.learn(&opinions, 3, 0.45, 0.4);
    }
    opinions[2] = Some(0.5);
    let weights = hedge.weights(&opinions, 3, &Pool::default());
    assert!(weights[0] > weights[2] && weights[2] > weights[1], "{weights:?}");
}

#[test]
fn the_upper_quantile_covers_nine_of_ten_of_what_it_has_never_seen() {
    let mut upper = Upper::default();
    let mut noise = 9_u32;
    let (mut covered, mut count) = (0, 0);
    for round in 0..4_000 {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // the spread grows tenfold half way
        let reach = if round < 2_000 { 0.02 } else { 0.2 };
        let truth = 0.5 + reach * (f64::from(noise >> 8) / f64::from(1_u32 << 24) - 0.5);
        let above = upper.above(0.5, 0.0);
        if round >= 96 {
            covered += u32::from(truth <= above);
            count += 1;
        }
        upper.learn(0.5, above, truth);
    }
    let share = f64::from(covered) / f64::from(count);
    assert!((0.88..=0.92).contains(&share), "{share}");
}

#[test]
fn a_gate_that_fell_opens_only_after_quiet_rounds_in_a_row() {
    let policy = Policy::default();
    let mut gate = Gate::default();
    let failed = |share: u32| Standing {
        judged: 100,
        right: 100 - share,
        error: 1.0,
        persistence_error: 2.0,
    };
    assert_eq!(gate.round(&failed(15), &policy), Verdict::Act);
    assert!(matches!(
        gate.round(&failed(16), &policy),
        Verdict::Inaccurate { .. }
    ));
    assert!(matches!(
        gate.round(&failed(20), &policy),
        Verdict::Inaccurate { .. }
    ));
    assert_eq!(gate.round(&failed(21), &policy), Verdict::Static { quiet: 0 });
    assert_eq!(gate.round(&failed(15), &policy), Verdict::Static { quiet: 0 });
    for quiet in 1..FALLBACK_QUIET_ROUNDS {
        assert_eq!(gate.round(&failed(14), &policy), Verdict::Static { quiet });
    }
    // one loud round and it starts again
    assert_eq!(gate.round(&failed(18), &policy), Verdict::Static { quiet: 0 });
    for quiet in 1..FALLBACK_QUIET_ROUNDS {
        assert_eq!(gate.round(&failed(14), &policy), Verdict::Static { quiet });
    }
    assert_eq!(gate.round(&failed(14), &policy), Verdict::Act);
    let even = Standing {
        persistence_error: 1.0,
        ..failed(0)
    };
    assert_eq!(gate.round(&even, &policy), Verdict::NoSkill { mase: Some(1.0) });
    let few = Standing {
        judged: FORECAST_JUDGED as u32 - 1,
        ..even
    };
    assert_eq!(gate.round(&few, &policy).code(), "Unproven");
}

fn reading() -> impl Strategy<Value = Option<Reading>> {
    let value = prop_oneof![
        8 => 0.0..1.0_f64,
        1 => Just(0.0),
        1 => prop::num::f64::ANY,
    ];
    let both = (value.clone(), value).prop_map(|(mean, last)| Reading { mean, last });
    prop_oneof![9 => both.prop_map(Some), 1 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_read_forecasts_are_bounded_and_ordered(
        readings in prop::collection::vec(reading(), 1..260),
        hours in 1_u32..=168,
        minutes in 5_u32..=60,
    ) {
        let policy = Policy {
            forecast_window_hours: hours,
            forecast_horizon_minutes: minutes,
            ..Policy::default()
        };
        let mut alone = Alone { series: Series::new(&policy), pool: Pool::default(), policy };
        let mut missing = 0;
        for reading in readings {
            let read = reading.is_some_and(|reading| !reading.mean.is_nan());
            missing = if read { 0 } else { missing + 1 };
            match alone.step(reading) {
                Ok(forecast) => {
                    prop_assert!(missing <= FORECAST_CARRIED_BINS);
                    prop_assert!((0.0..=1.0).contains(&forecast.median), "{forecast:?}");
                    prop_assert!(forecast.median <= forecast.upper && forecast.upper <= 1.0, "{forecast:?}");
                    let sum: f64 = alone.series.members(&alone.pool).map(|(_, _, weight)| weight).sum();
                    prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
                }
                Err(NoForecast::Gap { .. }) => prop_assert!(missing > FORECAST_CARRIED_BINS),
                Err(NoForecast::TooShort { have, need }) => prop_assert!(have < need),
            }
        }
    }

    #[test]
    fn the_median_is_one_of_the_opinions_and_half_of_the_weight_lies_on_each_side(
        said in prop::collection::vec(prop::option::of(0.0..1.0_f64), MOST_MEMBERS),
        losses in prop::collection::vec(0.0..0.5_f64, MOST_MEMBERS),
    ) {
        let mut opinions: Opinions = [None; MOST_MEMBERS];
        opinions.copy_from_slice(&said);
        let mut hedge = Hedge::default();
        let truths: Opinions = std::array::from_fn(|at| Some(losses[at]));
        hedge.learn(&truths, MOST_MEMBERS, 0.0, 0.0);
        let weights = hedge.weights(&opinions, MOST_MEMBERS, &Pool::default());
        match hedge::median(&opinions, &weights) {
            None => prop_assert!(opinions.iter().all(Option::is_none)),
            Some(median) => {
                let weigh = |is: &dyn Fn(f64) -> bool| -> f64 {
                    let those = opinions.iter().zip(weights).filter(|(said, _)| said.is_some_and(is));
                    those.map(|(_, weight)| weight).sum()
                };
                prop_assert!(opinions.contains(&Some(median)));
                prop_assert!(weigh(&|said| said <= median) >= 0.5 - 1e-9);
                prop_assert!(weigh(&|said| said >= median) >= 0.5 - 1e-9);
            }
        }
    }

    #[test]
    fn fewer_failures_never_close_a_gate_that_more_would_leave_open(
        failures in prop::collection::vec(0_u32..=40, 1..120),
        less in prop::collection::vec(0_u32..=10, 120),
    ) {
        let policy = Policy::default();
        let standing = |failed: u32| Standing {
            judged: 100,
            right: 100 - failed,
            error: 1.0,
            persistence_error: 2.0,
        };
        let (mut worse, mut better) = (Gate::default(), Gate::default());
        for (failed, less) in failures.into_iter().zip(less) {
            let worse = worse.round(&standing(failed), &policy);
            let better = better.round(&standing(failed.saturating_sub(less)), &policy);
            prop_assert!(worse != Verdict::Act || better == Verdict::Act, "{worse:?} {better:?}");
        }
    }

    #[test]
    fn no_member_says_what_is_no_number(values in prop::collection::vec(0.0..=1.0_f64, 1..200)) {
        let mut history = super::history::History::new(&Policy::default());
        let mut members = untrained();
        for value in values {
            history.push(Some(Reading::flat(value)));
            for member in &mut members {
                member.learn(value, &history);
                let said = member.predict(&history);
                prop_assert!(said.is_none_or(f64::is_finite), "{} {said:?}", member.name());
            }
        }
    }
}

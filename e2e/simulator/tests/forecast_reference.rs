//! The forecaster on the traces that ship, without the LSTM but for a short piece: a debug build trains one in
//! seconds. The full run is `migpool-sim forecast --check`.

use simulator::forecast::claims::{self, WORSE_BY, against_best};
use simulator::forecast::replay::{self, ENSEMBLE, Outcome};
use simulator::forecast::trace::{self, Set, Track};
use simulator::forecast::{splice, training};

fn sets(names: &[&str]) -> anyhow::Result<Vec<Set>> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let found = trace::read(&names, None)?;
    for line in &found.skipped {
        eprintln!("{line}");
    }
    Ok(found.sets)
}

fn must_hold(outcomes: &[Outcome]) {
    for claim in claims::of(outcomes, &splice::run(1)) {
        assert_eq!(claim.held, Some(true), "{claim}");
    }
}

#[test]
fn occupancy_is_forecast_as_well_as_by_the_best_member_of_each_series_and_better_than_by_persistence() {
    let outcomes: Vec<Outcome> = sets(&["earth", "philly"])
        .unwrap()
        .iter()
        .map(|set| replay::run(set, None))
        .collect();
    must_hold(&outcomes);
    let [earth, philly] = &outcomes[..] else {
        panic!("both ship");
    };
    for outcome in &outcomes {
        for (at, (name, _)) in outcome.series.iter().enumerate() {
            let (ratio, best) = against_best(outcome, Some(at)).unwrap();
            assert!(
                ratio <= WORSE_BY,
                "{} {name}: {ratio:.3} times {best}",
                outcome.set
            );
        }
    }
    let score = |outcome: &Outcome, method: &str| outcome.total(outcome.method(method).unwrap());
    // persistence is where the reference has it; the last reading is what the reference did not try
    assert!((score(philly, "persistence").mae() - 0.71).abs() < 0.02);
    assert!((score(earth, "persistence").mae() - 1.15).abs() < 0.06);
    assert!((score(earth, "persistence").accuracy() - 96.4).abs() < 0.3);
    assert!(
        score(earth, ENSEMBLE).mase() < 0.78,
        "{:?}",
        score(earth, ENSEMBLE)
    );
    assert!(
        score(philly, ENSEMBLE).mase() < 0.96,
        "{:?}",
        score(philly, ENSEMBLE)
    );
    // acting needs the upper quantile: no member's own is better
    for outcome in &outcomes {
        let ours = score(outcome, ENSEMBLE).pinball();
        let best = outcome
            .members()
            .map(|at| outcome.total(at))
            .filter(|score| score.count > 0);
        let best = best.map(|score| score.pinball()).fold(f64::INFINITY, f64::min);
        assert!(ours <= 1.02 * best, "{}: {ours:.4}, {best:.4}", outcome.set);
    }
}

#[test]
fn duty_cycle_is_forecast_better_than_by_persistence_where_the_trace_is_present() {
    let outcomes: Vec<Outcome> = sets(&["duty", "requests"])
        .unwrap()
        .iter()
        .map(|set| replay::run(set, None))
        .collect();
    must_hold(&outcomes);
}

#[test]
fn the_gate_moves_where_it_should_whatever_the_seed() {
    for seed in 1..=8 {
        let claim = claims::of(&[], &splice::run(seed)).pop().unwrap();
        assert_eq!(claim.held, Some(true), "seed {seed}: {claim}");
    }
}

#[test]
fn an_lstm_among_the_members_says_the_same_each_time_and_spoils_nothing() {
    let mut sets = sets(&["philly"]).unwrap();
    sets[0].tracks = vec![Track {
        name: "beginning".to_owned(),
        bins: sets[0].tracks[0].bins[..140].to_vec(),
        test_from: 100,
    }];
    let said = training::train(&sets, 2);
    let again = training::train(&sets, 1);
    assert_eq!(said[0][0].bins, again[0][0].bins);
    assert_eq!(said[0][0].trainings, 2);
    let with = replay::run(&sets[0], Some(&said[0]));
    let without = replay::run(&sets[0], None);
    let lstm = with.total(with.method("LSTM").unwrap());
    assert_eq!(lstm.count, 40, "it speaks from its first training on");
    let mae = |outcome: &Outcome| outcome.total(outcome.method(ENSEMBLE).unwrap()).mae();
    assert!(
        mae(&with) < 1.1 * mae(&without),
        "{} {}",
        mae(&with),
        mae(&without)
    );
}

//! Every baseline against the reference's table of MIG-100 (papers-traces.md 3.4), in runs short enough for a test.
//!
//! A short run is off by more than the policies differ, but all policies under one seed see the same requests: what
//! one uses more than first fit is steady. That difference is compared. The full runs are in docs/benchmarks.md; they
//! agree with the table within 0.006.

use simulator::mig::engine::Length;
use simulator::mig::experiment::Grid;
use simulator::mig::load::{MIXES, Pattern};
use simulator::mig::policy::{Policy, switching};

/// Share of memory slices used at load 1.0, by mix.
const TABLE: [(&str, [f64; 4]); 12] = [
    ("worst-fit", [0.618, 0.702, 0.670, 0.506]),
    ("round-robin", [0.774, 0.782, 0.821, 0.754]),
    ("best-fit", [0.865, 0.884, 0.869, 0.879]),
    ("bf-bi", [0.899, 0.896, 0.901, 0.890]),
    ("mfi-a", [0.874, 0.899, 0.877, 0.877]),
    ("mfi-b", [0.893, 0.884, 0.901, 0.889]),
    ("mcc", [0.869, 0.877, 0.892, 0.876]),
    ("mecc", [0.869, 0.858, 0.903, 0.878]),
    ("efrag", [0.908, 0.883, 0.903, 0.901]),
    ("ef", [0.907, 0.903, 0.903, 0.898]),
    ("first-fit/m", [0.913, 0.923, 0.906, 0.905]),
    ("ef/m", [0.925, 0.927, 0.919, 0.914]),
];
/// First fit's row.
const FIRST_FIT: [f64; 4] = [0.870, 0.898, 0.870, 0.877];
/// How far a difference in a short run may be from the table's.
const TOLERANCE: f64 = 0.012;

#[test]
fn ours_uses_as_much_as_the_best_of_the_table_with_no_more_moves_and_whatever_the_mix() {
    let policy = |name: &str| name.parse::<Policy>().unwrap();
    let grid = Grid {
        policies: ["ours", "ef", "ours/m", "ef/m", "static"].map(policy).to_vec(),
        patterns: MIXES
            .map(Pattern::Steady)
            .into_iter()
            .chain([switching(1.5)])
            .collect(),
        loads: vec![1.0],
        seeds: vec![1],
        gpus: 100,
        length: Length {
            arrivals: 3_000,
            warm_up: 1_000,
        },
        ours: shared::policy::Policy::default(),
    };
    let results = grid.run(2);
    for pattern in 0..results.grid.patterns.len() {
        let gain = |one, other| results.gain(policy(one), policy(other), pattern, 0).mean;
        let moves = |name| results.cell(policy(name), pattern, 0).moves.mean;
        let name = results.grid.patterns[pattern].name();
        assert!(gain("ours", "ef") > -0.008, "{name}: {}", gain("ours", "ef"));
        assert!(
            gain("ours/m", "ef/m") > -0.006,
            "{name}: {}",
            gain("ours/m", "ef/m")
        );
        assert!(
            moves("ours/m") < moves("ef/m") + 0.8,
            "{name}: {} moves",
            moves("ours/m")
        );
        assert!(
            gain("ours/m", "ours") > 0.005,
            "{name}: {}",
            gain("ours/m", "ours")
        );
    }
    let switching = results.grid.patterns.len() - 1;
    let over_static = results.gain(policy("ours"), policy("static"), switching, 0).mean;
    assert!(
        over_static > 0.08,
        "a layout for the mean of the mixes is left behind where they switch: {over_static}"
    );
}

#[test]
fn baselines_differ_from_first_fit_as_the_table_says() {
    let policy = |name: &str| name.parse::<Policy>().unwrap();
    let grid = Grid {
        policies: TABLE
            .iter()
            .map(|(name, _)| policy(name))
            .chain([policy("first-fit")])
            .collect(),
        patterns: MIXES.map(Pattern::Steady).to_vec(),
        loads: vec![1.0],
        seeds: vec![1, 2],
        gpus: 100,
        length: Length {
            arrivals: 6_000,
            warm_up: 1_500,
        },
        ours: shared::policy::Policy::default(),
    };
    let results = grid.run(2);
    for (name, row) in TABLE {
        for (pattern, mix) in MIXES.iter().enumerate() {
            let gain = results.gain(policy(name), policy("first-fit"), pattern, 0).mean;
            let tabled = row[pattern] - FIRST_FIT[pattern];
            assert!(
                (gain - tabled).abs() < TOLERANCE,
                "{name}, {}: {gain:+.4} over first fit, the table has {tabled:+.4}",
                mix.name
            );
        }
    }
}

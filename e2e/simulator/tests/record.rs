//! The run that is played again on the real cluster (`e2e/tests/cluster/replay.rs`) is what the simulator does today.

use std::process::Command;

#[test]
fn the_recorded_run_is_what_the_simulator_does_today() {
    let file = std::env::temp_dir().join(format!("migpool-record-{}.csv", std::process::id()));
    let status = Command::new(env!("CARGO_BIN_EXE_migpool-sim"))
        .args([
            "mig", "--policy", "ours", "--mix", "uniform", "--load", "1", "--seeds", "1", "--gpus", "8",
        ])
        .args(["--arrivals", "60", "--half-life", "16000", "--record"])
        .arg(&file)
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    let today = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(
        today == include_str!("../../tests/cluster/replay.csv"),
        "record it anew: migpool-sim mig ... --record e2e/tests/cluster/replay.csv, and run the cluster case replay"
    );
}

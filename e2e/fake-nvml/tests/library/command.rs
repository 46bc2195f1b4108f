//! The command: what it prints, and one sentence for each kind of bad input.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use nvidia_ml::control::World;

/// Runs the command; standard output, or standard error when it fails.
fn run(state: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_fake-nvml"))
        .arg("--state")
        .arg(state)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

#[test]
fn a_node_is_made_cut_drawn_and_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("deep/down/state.json");
    run(
        &state,
        &["init", "--board", "H100-80GB", "--gpus", "2", "--seed", "3"],
    )
    .unwrap();
    let id = run(
        &state,
        &[
            "foreign-create",
            "--gpu",
            "1",
            "--profile",
            "3g.40gb",
            "--start",
            "4",
        ],
    )
    .unwrap();
    run(&state, &["delay", "GpuInstanceDestroy", "--ms", "5"]).unwrap();
    run(
        &state,
        &["leftover", "--gpu", "1", "--gi", id.trim(), "--pid", "99"],
    )
    .unwrap();
    let drawn = run(&state, &["show"]).unwrap();
    for part in [
        "- 3g.40gb -",
        "gi 1 3g.40gb@4 ci 0 MIG-",
        "process 99 on gi 1",
        "nvmlGpuInstanceDestroy takes 5 ms",
    ] {
        assert!(drawn.contains(part), "{part} is not in\n{drawn}");
    }
    assert!(
        run(&state, &["show", "--json"])
            .unwrap()
            .contains("\"board\": \"H100-80GB\"")
    );
    let busy = run(&state, &["foreign-destroy", "--gpu", "1", "--gi", "1"]).unwrap_err();
    assert!(busy.contains("IN_USE (19)"), "{busy}");
    run(&state, &["clear"]).unwrap();
    run(&state, &["foreign-destroy", "--gpu", "1", "--gi", "1"]).unwrap();
    assert!(
        World::open(&state).unwrap().state().unwrap().gpus[1]
            .instances
            .is_empty()
    );
}

#[test]
fn bad_input_gets_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let absent = run(&state, &["show"]).unwrap_err();
    assert!(
        absent.contains("no such state file") && absent.contains("init"),
        "{absent}"
    );
    run(&state, &["init", "--board", "A30-24GB", "--gpus", "1"]).unwrap();
    let before = std::fs::read(&state).unwrap();
    for (arguments, part) in [
        (
            &["init", "--board", "H999", "--gpus", "1"][..],
            "known: A30-24GB, A100-40GB",
        ),
        (&["init", "--board", "A30-24GB", "--gpus", "0"], "1 to 32 GPUs"),
        (
            &["foreign-create", "--gpu", "0", "--profile", "3g.40gb"],
            "it has: 1g.6gb",
        ),
        (
            &[
                "foreign-create",
                "--gpu",
                "0",
                "--profile",
                "2g.12gb",
                "--start",
                "1",
            ],
            "INVALID_ARGUMENT (2)",
        ),
        (
            &["foreign-create", "--gpu", "4", "--profile", "1g.6gb"],
            "GPUs 0 to 0",
        ),
        (
            &["xid", "--gpu", "0", "--code", "13", "--gi", "3"],
            "no GPU instance 3",
        ),
        (
            &["fail", "nvmlDeviceGetNam", "--code", "3"],
            "did you mean nvmlDeviceGetName?",
        ),
        (
            &["fail", "nvmlDeviceGetName", "--code", "sorry"],
            "is not an NVML return code",
        ),
        (
            &["fail", "nvmlDeviceGetName", "--code", "3", "--on-call", "0"],
            "from 1",
        ),
        (
            &["utilisation", "--gpu", "0", "--curve", "5:1,2:1"],
            "is not a curve",
        ),
        (&["remove-leftover", "--gpu", "0", "--pid", "1"], "no process 1"),
    ] {
        let message = run(&state, arguments).unwrap_err();
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert!(
            message.trim_end().lines().next().unwrap().len() < 300,
            "{message}"
        );
    }
    assert_eq!(
        std::fs::read(&state).unwrap(),
        before,
        "a refusal changes nothing"
    );
    std::fs::write(&state, "{}").unwrap();
    std::fs::remove_file(folder.path().join("state.json.lock")).unwrap();
    let broken = run(&state, &["show"]).unwrap_err();
    assert!(broken.contains("not a state file of this version"), "{broken}");
}

#[test]
fn the_drivers_files_are_made_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let root = folder.path().join("driver");
    run(&state, &["init", "--board", "H100-80GB", "--gpus", "2"]).unwrap();
    let made = run(&state, &["device-nodes", "--root", root.to_str().unwrap()]);
    if !rustix::process::geteuid().is_root() {
        assert!(made.unwrap_err().contains("only root"));
        return;
    }
    made.unwrap();
    run(&state, &["device-nodes", "--root", root.to_str().unwrap()]).unwrap();
    for name in [
        "nvidia0",
        "nvidia1",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
    ] {
        let node = std::fs::metadata(root.join("dev").join(name)).unwrap();
        assert!(
            node.file_type().is_char_device() && rustix::fs::major(node.rdev()) == 120,
            "{name}"
        );
        assert!(
            rustix::fs::minor(node.rdev()) > 4322,
            "{name} must not be a capability"
        );
    }
    assert!(
        std::fs::read_to_string(root.join("proc/devices"))
            .unwrap()
            .contains("\n120 nvidia-caps\n")
    );
    let minors = std::fs::read_to_string(root.join("proc/driver/nvidia-caps/mig-minors")).unwrap();
    assert!(minors.contains("gpu1/gi0/access 138\n"));
}

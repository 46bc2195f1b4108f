//! NVIDIA's own Python binding (`nvidia-ml-py`) against the library: an independent reading of the interface.
//!
//! The binding is installed once into a virtual environment under `~/.cache/migpool`. Where that cannot be done
//! the test says so and passes, except where `CI` is set.

use std::path::{Path, PathBuf};
use std::process::Command;

use nvidia_ml::control::World;

/// Version of the binding.
const VERSION: &str = "13.615.71";

/// The Python of a virtual environment with the binding, made if need be.
fn python() -> Result<PathBuf, String> {
    let home = std::env::var("HOME").map_err(|_| "HOME is not set".to_owned())?;
    let environment = Path::new(&home).join(".cache/migpool/nvidia-ml-py");
    let python = environment.join("bin/python");
    let check = format!("import importlib.metadata as m; assert m.version('nvidia-ml-py') == '{VERSION}'");
    if succeeds(Command::new(&python).args(["-c", &check])).is_ok() {
        return Ok(python);
    }
    succeeds(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
    )?;
    let wanted = format!("nvidia-ml-py=={VERSION}");
    succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet", &wanted]))?;
    Ok(python)
}

fn succeeds(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!(
            "{}: {}",
            command.get_program().display(),
            text(&output.stderr)
        ))
    }
}

#[test]
fn nvidias_own_binding_runs_a_full_cycle() {
    let python = match python() {
        Ok(python) => python,
        Err(why) if std::env::var_os("CI").is_none() => {
            println!("skipped: {why}");
            return;
        }
        Err(why) => panic!("CI must run the foreign client: {why}"),
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign_client.py");
    for board in ["H100-80GB", "A100-40GB", "A30-24GB", "B200-180GB"] {
        let folder = tempfile::tempdir().unwrap();
        let world = World::create(&folder.path().join("state.json"), board, 2, 11).unwrap();
        world.library().unwrap();
        // the binding loads the library by name only
        let mut command = Command::new(&python);
        command
            .arg(&script)
            .arg(board)
            .env("LD_LIBRARY_PATH", folder.path());
        let output = succeeds(&mut command).unwrap_or_else(|why| panic!("{board}: {why}"));
        assert!(output.contains("cycle: ok"), "{board}: {output}");
        let state = world.state().unwrap();
        assert!(
            state.gpus.iter().all(|gpu| gpu.instances.is_empty()),
            "{board}: it cleans up"
        );
        assert!(state.next_serial > 8, "{board}: it did cut");
    }
}

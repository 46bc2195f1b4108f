//! The fake GPUs of one node: a state file, a driver root with the fake `libnvidia-ml.so.1`, device nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::run;
use crate::plan::{NodePlan, Options};
use crate::programs;

/// Where the node's programs see the driver root.
pub const DRIVER_ROOT: &str = "/run/nvidia/driver";
/// Where the node's programs see the folder of the fake library's state.
pub const STATE_FOLDER: &str = "/run/migpool-fake-nvml";

/// Makes GPUs, library and device nodes; does nothing for a node without GPUs.
pub fn make(node: &NodePlan, options: &Options) -> Result<()> {
    if options.gpus_per_node == 0 {
        return Ok(());
    }
    let library = programs::ours("libnvidia_ml.so", "fake-nvml")?;
    let folder = driver(node).join("usr/lib64");
    for folder in [&folder, &state_folder(node)] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    fs::copy(&library, folder.join("libnvidia-ml.so.1"))
        .with_context(|| format!("copy {}", library.display()))?;
    let seed = options.seed + u64::from(node.index);
    let (gpus, seed) = (options.gpus_per_node.to_string(), seed.to_string());
    control(
        node,
        &[
            "init",
            "--board",
            &options.board,
            "--gpus",
            &gpus,
            "--seed",
            &seed,
            "--mig",
            "on",
        ],
    )?;
    let root = driver(node).display().to_string();
    control(node, &["device-nodes", "--root", &root]).map(drop)
}

/// What happens to GPUs when their machine reboots: the instances are gone.
pub fn reboot(node: &NodePlan, options: &Options) -> Result<()> {
    if options.gpus_per_node == 0 {
        return Ok(());
    }
    control(node, &["reboot"]).map(drop)
}

/// Runs the fake library's control command on this node's state and returns what it prints.
pub fn control(node: &NodePlan, arguments: &[&str]) -> Result<String> {
    let program = programs::ours("fake-nvml", "fake-nvml")?;
    run(Command::new(program)
        .arg("--state")
        .arg(state(node))
        .args(arguments))
    .with_context(|| format!("GPUs of {}", node.name))
}

/// The driver root, as the machine sees it.
pub fn driver(node: &NodePlan) -> PathBuf {
    node.dir.join("driver")
}

/// The folder of the state file, as the machine sees it.
pub fn state_folder(node: &NodePlan) -> PathBuf {
    node.dir.join("fake-nvml")
}

/// The state file, as the machine sees it.
pub fn state(node: &NodePlan) -> PathBuf {
    state_folder(node).join("state.json")
}

/// Whether this node has GPUs at all.
pub fn present(node: &NodePlan) -> bool {
    Path::new(&state(node)).is_file()
}

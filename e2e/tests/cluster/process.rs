//! Processes of ours in containers, found and signalled from outside.

use anyhow::{Result, bail, ensure};

/// The agent as the kernel names it.
pub(crate) const AGENT: &str = "migpool-device-";
/// The scheduler as the kernel names it.
pub(crate) const SCHEDULER: &str = "migpool-schedul";

/// A process of ours in a container; the nodes share the machine's process table.
pub(crate) struct Process(String);

impl Process {
    /// The process with this kernel name, and with `NODE_NAME` in its environment where a node is given.
    pub(crate) fn find(name: &str, node: Option<&str>) -> Result<Self> {
        let wanted = node.map(|node| format!("NODE_NAME={node}"));
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            if comm.trim() != name {
                continue;
            }
            let environment = std::fs::read(path.join("environ")).unwrap_or_default();
            let has = |wanted: &str| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|part| part == wanted.as_bytes())
            };
            if wanted.as_deref().is_none_or(has) {
                return Ok(Self(
                    path.file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                ));
            }
        }
        bail!("no process {name} runs (node: {node:?})")
    }
}

/// Sends a signal.
pub(crate) fn kill(signal: &str, process: &Process) -> Result<()> {
    let status = std::process::Command::new("kill")
        .args([signal, &process.0])
        .status()?;
    ensure!(status.success(), "kill {signal} {} failed", process.0);
    Ok(())
}

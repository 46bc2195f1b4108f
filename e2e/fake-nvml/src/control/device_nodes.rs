//! The driver's files that a node agent looks at: `/dev/nvidia*`, `/proc/devices`, the minors of MIG capabilities.
//!
//! Nodes have the local major 120, behind which there is no driver: they can be seen, given to containers and
//! counted, and opening one answers ENXIO. MIG capabilities take minors from 1 on there, as the real
//! `nvidia-caps` does (the agent makes those nodes itself); all others start far above.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use super::{MAX_GPUS, Refusal};
use crate::state::State;

/// Major number for local and experimental use.
const MAJOR: u32 = 120;

/// Minor numbers below this belong to MIG capabilities.
const FIRST_MINOR: u32 = 0x1_0000;

/// Minors of the control nodes, above [`FIRST_MINOR`].
const CONTROL: [(&str, u32); 3] = [("nvidiactl", 255), ("nvidia-uvm", 256), ("nvidia-uvm-tools", 257)];

/// What `/proc/devices` says.
const PROC_DEVICES: &str = "Character devices:
  1 mem
120 nvidia-caps
195 nvidia-frontend
195 nvidiactl
510 nvidia-uvm

Block devices:
";

/// GPU instances and compute instances that minors are laid out for.
const GPU_INSTANCES: u32 = 15;
const COMPUTE_INSTANCES: u32 = 8;

/// Makes the tree under a folder. What is there already stays.
pub(super) fn make(state: &State, root: &Path) -> Result<(), Refusal> {
    let dev = root.join("dev");
    folder(&dev)?;
    for gpu in &state.gpus {
        node(&dev.join(format!("nvidia{}", gpu.index)), FIRST_MINOR + gpu.index)?;
    }
    for (name, minor) in CONTROL {
        node(&dev.join(name), FIRST_MINOR + minor)?;
    }
    let caps = root.join("proc/driver/nvidia-caps");
    folder(&caps)?;
    file(&caps.join("mig-minors"), &mig_minors())?;
    file(&root.join("proc/devices"), PROC_DEVICES)
}

/// `/proc/driver/nvidia-caps/mig-minors`: the minor of every capability there can be.
fn mig_minors() -> String {
    let mut text = String::from("config 1\nmonitor 2\n");
    for gpu in 0..MAX_GPUS {
        for instance in 0..GPU_INSTANCES {
            let minor =
                3 + gpu * GPU_INSTANCES * (1 + COMPUTE_INSTANCES) + instance * (1 + COMPUTE_INSTANCES);
            let _ = writeln!(text, "gpu{gpu}/gi{instance}/access {minor}");
            for compute in 0..COMPUTE_INSTANCES {
                let _ = writeln!(
                    text,
                    "gpu{gpu}/gi{instance}/ci{compute}/access {}",
                    minor + 1 + compute
                );
            }
        }
    }
    text
}

fn node(path: &Path, minor: u32) -> Result<(), Refusal> {
    let mode = Mode::from_raw_mode(0o666);
    match mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(MAJOR, minor)) {
        Ok(()) => {
            // the mode of mknod is cut by the umask
            rustix::fs::chmod(path, mode).map_err(refused("set the mode of", path))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(Errno::PERM) => Err(Refusal::NotRoot(path.to_owned())),
        Err(error) => Err(refused("make", path)(error)),
    }
}

fn folder(path: &Path) -> Result<(), Refusal> {
    fs::create_dir_all(path).map_err(refused("make the folder", path))
}

fn file(path: &Path, text: &str) -> Result<(), Refusal> {
    fs::write(path, text).map_err(refused("write", path))
}

fn refused<E: Into<std::io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> Refusal {
    let path = path.to_owned();
    move |source| Refusal::Io {
        what,
        path,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minors_end_where_nvidias_table_ends() {
        let text = mig_minors();
        assert!(text.starts_with("config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n"));
        assert!(text.ends_with("gpu31/gi14/ci7/access 4322\n"));
    }
}

//! Device nodes: where a container's GPU and capability nodes are on the host, and the making of those that the
//! driver leaves to user space (`/dev/nvidia-caps/nvidia-capN`).

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Nodes every container with a GPU gets, where the host has them.
const CONTROL: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];

/// Finds and makes device nodes.
#[derive(Clone, Debug)]
pub struct DeviceNodes {
    dev: PathBuf,
    proc: PathBuf,
}

/// A node that a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// Path on the host.
    pub host: PathBuf,
}

/// Why a capability node could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The driver has not registered its capability devices.
    #[error(
        "{0} names no nvidia-caps device; load the NVIDIA driver, or set --proc-root to where its files are"
    )]
    NoMajor(PathBuf),
    /// The file system refused.
    #[error("{path}: {error}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

impl DeviceNodes {
    /// Nodes beneath `dev_root`/dev, numbers from `proc_root`.
    #[must_use]
    pub fn new(dev_root: &Path, proc_root: &Path) -> Self {
        Self {
            dev: dev_root.join("dev"),
            proc: proc_root.to_owned(),
        }
    }

    /// What every container with something of GPU `minor` gets.
    #[must_use]
    pub fn of_gpu(&self, minor: u32) -> Vec<DeviceNode> {
        let control = CONTROL
            .iter()
            .map(|name| self.node(name))
            .filter(|node| node.host.exists());
        std::iter::once(self.node(&format!("nvidia{minor}")))
            .chain(control)
            .collect()
    }

    /// The capability nodes of a slice, made if they are missing or wrong.
    ///
    /// # Errors
    /// [`NodeError`]
    pub fn of_slice(&self, gpu_minor: u32, gi: u32, ci: u32) -> Result<[DeviceNode; 2], NodeError> {
        let (of_gi, of_ci) = self.minors(gpu_minor, gi, ci);
        let major = self.major()?;
        Ok([self.make(major, of_gi)?, self.make(major, of_ci)?])
    }

    fn node(&self, name: &str) -> DeviceNode {
        DeviceNode {
            path: format!("/dev/{name}"),
            host: self.dev.join(name),
        }
    }

    /// Minors of the capabilities of a GPU and a compute instance: as the driver lists them, else by its formula.
    fn minors(&self, gpu: u32, gi: u32, ci: u32) -> (u32, u32) {
        let listed =
            std::fs::read_to_string(self.proc.join("driver/nvidia-caps/mig-minors")).unwrap_or_default();
        let find = |name: &str| {
            let mut lines = listed.lines().filter_map(|line| line.split_once(' '));
            lines
                .find(|(key, _)| *key == name)
                .and_then(|(_, minor)| minor.trim().parse().ok())
        };
        let by_formula = 3 + 135 * gpu + 9 * gi;
        (
            find(&format!("gpu{gpu}/gi{gi}/access")).unwrap_or(by_formula),
            find(&format!("gpu{gpu}/gi{gi}/ci{ci}/access")).unwrap_or(by_formula + 1 + ci),
        )
    }

    fn major(&self) -> Result<u32, NodeError> {
        let path = self.proc.join("devices");
        let listed = std::fs::read_to_string(&path).map_err(|error| NodeError::Io {
            path: path.clone(),
            error,
        })?;
        let mut lines = listed.lines().filter_map(|line| line.trim().split_once(' '));
        let found = lines.find(|(_, name)| name.trim() == "nvidia-caps");
        found
            .and_then(|(major, _)| major.parse().ok())
            .ok_or(NodeError::NoMajor(path))
    }

    fn make(&self, major: u32, minor: u32) -> Result<DeviceNode, NodeError> {
        let node = self.node(&format!("nvidia-caps/nvidia-cap{minor}"));
        let failed = |error: io::Error| NodeError::Io {
            path: node.host.clone(),
            error,
        };
        let number = makedev(major, minor);
        if let Ok(there) = std::fs::symlink_metadata(&node.host) {
            if there.file_type().is_char_device() && there.rdev() == number {
                return Ok(node);
            }
            std::fs::remove_file(&node.host).map_err(failed)?;
        }
        std::fs::create_dir_all(self.dev.join("nvidia-caps")).map_err(failed)?;
        // readable by all, as the driver's own tools make it: the devices cgroup decides who may open it
        let mode = Mode::RUSR | Mode::RGRP | Mode::ROTH;
        mknodat(CWD, &node.host, FileType::CharacterDevice, mode, number)
            .map_err(|error| failed(error.into()))?;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(minors: &str) -> (tempfile::TempDir, DeviceNodes) {
        let root = tempfile::tempdir().unwrap();
        let (dev, proc) = (root.path().join("dev"), root.path().join("proc"));
        std::fs::create_dir_all(&dev).unwrap();
        std::fs::create_dir_all(proc.join("driver/nvidia-caps")).unwrap();
        std::fs::write(dev.join("nvidiactl"), "").unwrap();
        std::fs::write(
            proc.join("devices"),
            "Character devices:\n  1 mem\n120 nvidia-caps\n",
        )
        .unwrap();
        std::fs::write(proc.join("driver/nvidia-caps/mig-minors"), minors).unwrap();
        let nodes = DeviceNodes::new(root.path(), &proc);
        (root, nodes)
    }

    #[test]
    fn minors_come_from_the_driver_and_else_from_the_formula() {
        let (_root, nodes) = tree("config 1\ngpu1/gi2/access 7\ngpu1/gi2/ci0/access 8\n");
        assert_eq!(nodes.minors(1, 2, 0), (7, 8));
        // the last line of the driver's own file
        assert_eq!(nodes.minors(31, 14, 7), (4314, 4322));
    }

    #[test]
    fn a_missing_node_is_made_and_a_wrong_one_is_corrected() {
        let (root, nodes) = tree("");
        let wrong = root.path().join("dev/nvidia-caps");
        std::fs::create_dir_all(&wrong).unwrap();
        std::fs::write(wrong.join("nvidia-cap12"), "not a device").unwrap();
        let made = nodes.of_slice(0, 1, 0).unwrap();
        assert_eq!(made[0].path, "/dev/nvidia-caps/nvidia-cap12");
        let made = std::fs::metadata(&made[0].host).unwrap();
        assert!(made.file_type().is_char_device() && made.rdev() == makedev(120, 12));
        assert!(nodes.of_slice(0, 1, 0).is_ok());
    }

    #[test]
    fn only_control_nodes_that_exist_are_given() {
        let (_root, nodes) = tree("");
        let paths: Vec<String> = nodes.of_gpu(3).into_iter().map(|node| node.path).collect();
        assert_eq!(paths, ["/dev/nvidia3", "/dev/nvidiactl"]);
    }

    #[test]
    fn without_the_driver_the_sentence_names_the_file() {
        let (root, nodes) = tree("");
        std::fs::write(root.path().join("proc/devices"), "  1 mem\n").unwrap();
        let refused = nodes.of_slice(0, 1, 0).unwrap_err().to_string();
        assert!(
            refused.contains("proc/devices") && refused.contains("--proc-root"),
            "{refused}"
        );
    }
}

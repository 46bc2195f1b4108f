//! Ending everything that a cluster started and removing everything that it made, whatever state it is in.
//!
//! Found in three ways, because any of them may be lost: by record, by the marker in the environment, and by
//! mount namespace or cgroup. A process in our own mount namespace is never taken for one of a node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::command::wait_until;
use crate::namespaces::{Marked, disconnect_machine, is_space, marked, mount_namespace};
use crate::process::{Identity, Processes, all_pids};
use crate::progress::Progress;
use crate::state::{LOCK, Record};
use crate::{cgroups, mount_points};

const LIMIT: Duration = Duration::from_secs(30);

/// The folder of a cluster under another root that still runs here: two would fight over links and addresses.
pub fn other_cluster(root: &Path) -> Option<PathBuf> {
    marked()
        .into_iter()
        .map(|process| process.root)
        .find(|other| other != root)
}

/// Whether anything of a cluster under this root is left.
pub fn anything_left(root: &Path) -> bool {
    Record::load(root).is_some() || marked().iter().any(|process| process.root == root)
}

/// Takes the whole cluster away, all but the lock in its folder; `keep_logs` leaves `<root>/logs` too.
pub fn take_down(root: &Path, keep_logs: bool, progress: &Progress) -> Result<()> {
    let processes = Processes::under(root);
    progress.step("processes ended", || {
        // Kubelets first, or they would start again what is ended next.
        for kubelet in processes.names().iter().filter(|name| name.ends_with(".kubelet")) {
            processes.kill(kubelet)?;
        }
        let mut spaces: BTreeSet<String> = processes
            .names()
            .into_iter()
            .filter(|name| is_space(name))
            .collect();
        spaces.extend(
            marked()
                .into_iter()
                .filter(|process| process.root == root)
                .map(|process| process.space),
        );
        for space in spaces {
            end_space(root, &space, None)?;
        }
        Ok(())
    })?;
    if other_cluster(root).is_none() {
        for name in cgroups::ours() {
            end(|| cgroups::pids(&name)).with_context(|| format!("empty cgroup {name}"))?;
            cgroups::remove(&name, false, LIMIT)?;
        }
        disconnect_machine()?;
        mount_points::remove()?;
    }
    progress.step("files removed", || remove_files(root, keep_logs))
}

/// Ends everything in one space, its holder last, and with it the namespaces.
pub fn end_space(root: &Path, space: &str, cgroup: Option<&str>) -> Result<()> {
    let processes = Processes::under(root);
    if cgroup.is_some() {
        processes.kill(&format!("{space}.kubelet"))?;
    }
    let holder = processes.running(space);
    let keep = holder.as_ref().map(|holder| holder.pid);
    let namespace = keep.and_then(mount_namespace);
    end(|| {
        let mut pids: Vec<i32> = marked()
            .into_iter()
            .filter(|process| belongs(process, root, space))
            .map(|process| process.pid)
            .collect();
        pids.extend(inhabitants(namespace.as_deref()));
        pids.extend(cgroup.map(cgroups::pids).unwrap_or_default());
        pids.retain(|pid| Some(*pid) != keep);
        pids
    })
    .with_context(|| format!("end the processes of {space}"))?;
    holder.map_or(Ok(()), |holder| {
        holder.kill().with_context(|| format!("end {space}"))
    })
}

fn belongs(process: &Marked, root: &Path, space: &str) -> bool {
    process.root == root && process.space == space
}

/// Processes in a mount namespace, which must not be our own.
fn inhabitants(namespace: Option<&Path>) -> Vec<i32> {
    let own = mount_namespace(own_pid());
    match namespace {
        Some(namespace) if own.as_deref().is_some_and(|own| own != namespace) => all_pids()
            .into_iter()
            .filter(|pid| mount_namespace(*pid).as_deref() == Some(namespace))
            .collect(),
        _ => Vec::new(),
    }
}

/// Kills what is found until nothing is found any more: a dying parent may still have forked.
fn end(find: impl Fn() -> Vec<i32>) -> Result<()> {
    let mut left = Vec::new();
    let ended = wait_until(LIMIT, || {
        left = find()
            .into_iter()
            .filter(|pid| *pid != own_pid())
            .filter_map(Identity::of)
            .collect();
        left.retain(Identity::is_alive);
        left.iter().for_each(|process| process.signal(Signal::KILL));
        left.is_empty()
    });
    if !ended {
        let pids: Vec<i32> = left.iter().map(|process| process.pid).collect();
        bail!("still there after SIGKILL: processes {pids:?}");
    }
    Ok(())
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(-1)
}

fn remove_files(root: &Path, keep_logs: bool) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mount_below(&mounts, root) {
        bail!(
            "{} is mounted on the machine itself: unmount it, then run down again",
            mount.display()
        );
    }
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.ends_with(LOCK) || keep_logs && path.ends_with("logs") {
            continue;
        }
        let removed = if entry.file_type()?.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// A mount on or below the folder: removing files through it could reach somebody else's.
fn mount_below(mountinfo: &str, root: &Path) -> Option<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .find(|mount| mount.starts_with(root))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::namespaces::MARKER;

    #[test]
    fn our_own_namespace_has_no_inhabitants_to_kill() {
        let own = mount_namespace(own_pid()).unwrap();
        assert!(inhabitants(Some(&own)).is_empty());
        assert!(inhabitants(None).is_empty());
    }

    #[test]
    fn a_space_without_records_is_ended_by_its_marker_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let spawn = |space: &str| {
            Command::new("sleep")
                .arg("600")
                .env(MARKER, format!("{}:{space}", root.display()))
                .spawn()
                .unwrap()
        };
        let (mut lost, mut other) = (spawn("gpu-1"), spawn("gpu-2"));
        let seen = || marked().iter().filter(|process| process.root == root).count() == 2;
        assert!(wait_until(Duration::from_secs(5), seen));
        end_space(root, "gpu-1", None).unwrap();
        assert!(
            other.try_wait().unwrap().is_none(),
            "a process of another space was ended"
        );
        end_space(root, "gpu-2", None).unwrap();
        // They may have been collected already, while it was asked whether they live.
        let _ = (lost.wait(), other.wait());
        assert!(!anything_left(root));
    }

    #[test]
    fn a_folder_with_a_mount_in_it_is_not_removed() {
        let text = "36 25 254:0 / / rw - ext4 /dev/root rw\n37 36 0:5 / /lab/gpu-1/kubelet rw - tmpfs t rw\n";
        assert_eq!(
            mount_below(text, Path::new("/lab")),
            Some(PathBuf::from("/lab/gpu-1/kubelet"))
        );
        assert_eq!(mount_below(text, Path::new("/laboratory")), None);
    }

    #[test]
    fn logs_are_kept_on_request_and_the_lock_always() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for below in ["logs", "gpu-1/kubelet"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        fs::write(root.join(LOCK), "").unwrap();
        remove_files(root, true).unwrap();
        assert!(root.join("logs").is_dir() && !root.join("gpu-1").exists());
        remove_files(root, false).unwrap();
        assert!(!root.join("logs").exists() && root.join(LOCK).exists());
    }
}

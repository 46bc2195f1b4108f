//! The nodes' cgroups: made in every hierarchy, emptied and removed at the end. Works for v1, hybrid and v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::command::wait_until;
use crate::plan::CGROUP_PREFIX;

const V2_CONTROLLERS: [&str; 5] = ["+cpu", "+cpuset", "+memory", "+pids", "+io"];

/// Mount points of all cgroup hierarchies.
pub fn hierarchies() -> Vec<PathBuf> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Makes a node's group in every hierarchy; the kubelet wants its root to be there already.
pub fn make(name: &str) -> Result<()> {
    for hierarchy in hierarchies() {
        if hierarchy.join("cgroup.controllers").is_file() {
            for controller in V2_CONTROLLERS {
                // Most are switched on already; one that this kernel lacks is no loss.
                let _ = fs::write(hierarchy.join("cgroup.subtree_control"), controller);
            }
        }
        let group = hierarchy.join(name);
        fs::create_dir_all(&group).with_context(|| format!("make cgroup {}", group.display()))?;
    }
    Ok(())
}

/// Names of the groups that any cluster of ours has left.
pub fn ours() -> Vec<String> {
    let mut names: Vec<String> = hierarchies()
        .iter()
        .filter_map(|hierarchy| fs::read_dir(hierarchy).ok())
        .flat_map(Iterator::flatten)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(CGROUP_PREFIX))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Every process in the group or below it, in any hierarchy.
pub fn pids(name: &str) -> Vec<i32> {
    let mut pids: Vec<i32> = hierarchies()
        .iter()
        .flat_map(|hierarchy| deepest_first(&hierarchy.join(name)))
        .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Removes what is below the group (`keep_top`) or the group as well; a dying process may hold it for a moment.
pub fn remove(name: &str, keep_top: bool, limit: Duration) -> Result<()> {
    let left = || -> Vec<PathBuf> {
        let mut left = Vec::new();
        for hierarchy in hierarchies() {
            let top = hierarchy.join(name);
            for group in deepest_first(&top) {
                if !(keep_top && group == top) && fs::remove_dir(&group).is_err() && group.exists() {
                    left.push(group);
                }
            }
        }
        left
    };
    let mut last = Vec::new();
    let gone = wait_until(limit, || {
        last = left();
        last.is_empty()
    });
    if let (false, Some(group)) = (gone, last.first()) {
        bail!(
            "cgroup {} cannot be removed; processes in it: {:?}",
            group.display(),
            pids(name)
        );
    }
    Ok(())
}

/// The folder and all folders below it, children before parents.
fn deepest_first(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(entries) = fs::read_dir(top) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.extend(deepest_first(&entry.path()));
            }
        }
        found.push(top.to_owned());
    }
    found
}

fn parse_mounts(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            kind.starts_with("cgroup")
                .then(|| mount.split(' ').nth(4).map(PathBuf::from))?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_hierarchy_are_found() {
        let text = "30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                    31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
                    40 30 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
                    41 25 254:0 / / rw - ext4 /dev/root rw\n";
        let expected = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(parse_mounts(text), expected);
    }

    #[test]
    fn children_come_before_their_parents() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("kubepods/pod1/c1")).unwrap();
        let order = deepest_first(&folder.path().join("kubepods"));
        let names: Vec<_> = order
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["c1", "pod1", "kubepods"]);
        assert!(deepest_first(&folder.path().join("absent")).is_empty());
    }
}

//! The folders of the machine that have to be there so that the nodes can mount their own over them.
//!
//! A folder that the machine lacks is made with a note in it. The note says at the end that it may go, even when
//! every record is lost; a folder without it belongs to somebody else.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Fixed paths of the kubelet, of CNI and of our agent.
pub const MOUNT_POINTS: [&str; 3] = ["/var/lib/kubelet", "/var/lib/cni", "/var/lib/migpool"];

const NOTE: &str = ".made-by-migpool-cluster";

/// Makes those folders that are not there.
pub fn make() -> Result<()> {
    MOUNT_POINTS
        .iter()
        .try_for_each(|folder| make_one(Path::new(folder)))
}

/// Removes those folders that we made, unless something was put there since.
pub fn remove() -> Result<()> {
    MOUNT_POINTS
        .iter()
        .try_for_each(|folder| remove_one(Path::new(folder)))
}

fn make_one(folder: &Path) -> Result<()> {
    if !folder.exists() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let text =
            "migpool-cluster mounts the nodes' own folders here; `migpool-cluster down` removes this one.\n";
        fs::write(folder.join(NOTE), text).with_context(|| format!("write into {}", folder.display()))?;
    }
    Ok(())
}

fn remove_one(folder: &Path) -> Result<()> {
    let note = folder.join(NOTE);
    if note.is_file() {
        fs::remove_file(&note).with_context(|| format!("remove {}", note.display()))?;
        // Not empty means that it is in use by now.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_here_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let (ours, theirs, shared) = (
            top.path().join("ours"),
            top.path().join("theirs"),
            top.path().join("shared"),
        );
        fs::create_dir(&theirs).unwrap();
        for folder in [&ours, &theirs, &shared] {
            make_one(folder).unwrap();
        }
        fs::write(shared.join("config.yaml"), "").unwrap();
        for folder in [&ours, &theirs, &shared] {
            remove_one(folder).unwrap();
        }
        assert!(!ours.exists());
        assert!(theirs.is_dir());
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
    }
}

//! What a running cluster remembers on disk, and the lock that keeps two calls from working on it at once.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::plan::Options;

const RECORD: &str = "cluster.json";
/// Name of the lock file in the cluster's folder.
pub const LOCK: &str = "lock";

/// Written before the first process starts, so that a broken start is seen as one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// What was asked for.
    pub options: Options,
    /// Whether every step was done.
    pub complete: bool,
    /// The programs in use.
    pub binaries: Binaries,
}

impl Record {
    /// For a cluster that is about to be made.
    pub fn new(options: &Options, binaries: &Binaries) -> Self {
        Self {
            options: options.clone(),
            complete: false,
            binaries: binaries.clone(),
        }
    }

    /// The record of the cluster in this folder, if there is one that can be read.
    pub fn load(root: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(root.join(RECORD)).ok()?).ok()
    }

    /// Writes it.
    pub fn save(&self, root: &Path) -> Result<()> {
        let file = root.join(RECORD);
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("write {}", file.display()))
    }
}

/// Waits for the cluster's lock. The lock file goes away with the folder, so it is looked at again once it is held.
pub fn lock(root: &Path) -> Result<File> {
    let path = root.join(LOCK);
    loop {
        fs::create_dir_all(root).with_context(|| format!("make {}", root.display()))?;
        let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        file.lock().with_context(|| format!("lock {}", path.display()))?;
        if fs::metadata(&path).is_ok_and(|there| file.metadata().is_ok_and(|held| held.ino() == there.ino()))
        {
            return Ok(file);
        }
    }
}

/// Removes the lock file, which the caller holds, and the folder if nothing else is in it.
pub fn leave(root: &Path) {
    let _ = fs::remove_file(root.join(LOCK));
    // Logs that are kept on request keep the folder too.
    let _ = fs::remove_dir(root);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Record::load(folder.path()).is_none());
        let binaries = Binaries {
            kubernetes: "/k".into(),
            containerd: "/c".into(),
            helm: "/h".into(),
        };
        let record = Record::new(
            &Options {
                nodes: 3,
                ..Options::default()
            },
            &binaries,
        );
        record.save(folder.path()).unwrap();
        let read = Record::load(folder.path()).unwrap();
        assert_eq!(read.options.nodes, 3);
        assert!(!read.complete);
    }

    #[test]
    fn only_one_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        let other = File::open(folder.path().join(LOCK)).unwrap();
        assert!(other.try_lock().is_err());
        drop(held);
        assert!(other.try_lock().is_ok());
    }
}

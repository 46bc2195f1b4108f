//! What a failed case leaves to read: the logs of every program and container, which would go with the cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cluster::Cluster;

/// Folder of the logs of failed cases; none are kept where it is not set.
const FOLDER: &str = "MIGPOOL_EVIDENCE";
/// A log longer than this is left out, bytes.
const LARGEST: u64 = 64 << 20;

/// Copies all logs of a cluster as they are now; says where they are.
pub(crate) fn keep(cluster: &Cluster, case: &str) -> Result<Option<PathBuf>> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return Ok(None);
    };
    let folder = Path::new(&folder).join(case.replace("::", "-"));
    let root = &cluster.plan().root;
    copy(root, root, &folder).with_context(|| format!("keep the logs in {}", folder.display()))?;
    Ok(Some(folder))
}

fn copy(within: &Path, root: &Path, folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(within)?.flatten() {
        // what vanishes meanwhile is of no use
        let (Ok(kind), path) = (entry.file_type(), entry.path()) else {
            continue;
        };
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if kind.is_dir() {
            // a folder that nobody may look into has no log of ours
            let _ = copy(&path, root, folder);
        } else if kind.is_file() && is_log && entry.metadata().is_ok_and(|file| file.len() <= LARGEST) {
            let to = folder.join(path.strip_prefix(root)?);
            std::fs::create_dir_all(to.parent().unwrap_or(folder))?;
            std::fs::copy(&path, to)?;
        }
    }
    Ok(())
}

//! Files that are replaced whole, so that whoever reads one, also after a crash, reads what was written before or what
//! was written now and never half of it.

use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file beside the old one (`.draft`), syncs it and renames it over the old one; then the folder is synced.
///
/// # Errors
/// What the file system says; the old file is as it was then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = std::fs::File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

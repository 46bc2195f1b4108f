//! The state file: read by many processes without a lock, changed by one at a time under a lock.
//!
//! The lock is a `flock` on a second file, which also holds a counter of writes. A reader compares that counter
//! with the generation of the state it has and reads the file only when the counter is ahead: two system calls on
//! the hot path. A writer, under the lock, counts up first, then replaces the file (temporary file, rename). A
//! writer killed between the two leaves a counter that is ahead of the file, which makes readers read again and
//! again, but never makes them miss a write.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::state::State;

/// Why the state could not be had.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no state file.
    #[error("{0}: no such state file; make one with `fake-nvml --state {0} init --board H100-80GB --gpus 1`")]
    Missing(PathBuf),
    /// The file system refused.
    #[error("{path}: cannot {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is not a state.
    #[error("{path}: not a state file of this version: {source}; make it anew with `init`")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A state file, opened.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    lock: File,
    state: Option<Arc<State>>,
}

impl Store {
    /// Opens an existing state file.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing(path.to_owned()));
        }
        let store = Self {
            path: path.to_owned(),
            seen: Mutex::new(Seen {
                lock: open_lock(path)?,
                state: None,
            }),
        };
        store.read()?;
        Ok(store)
    }

    /// Makes a state file, or makes an existing one anew.
    pub(crate) fn create(path: &Path, state: State) -> Result<Self, StoreError> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(io_error(parent, "make the folder"))?;
        }
        let store = Self {
            path: path.to_owned(),
            seen: Mutex::new(Seen {
                lock: open_lock(path)?,
                state: None,
            }),
        };
        {
            let mut seen = store.seen();
            let _held = Held::take(&seen.lock).map_err(io_error(path, "lock the state of"))?;
            store.replace(&mut seen, state)?;
        }
        Ok(store)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The state as it is now.
    pub(crate) fn read(&self) -> Result<Arc<State>, StoreError> {
        let mut seen = self.seen();
        self.refresh(&mut seen)
    }

    /// Changes the state, alone. An error of `change` leaves the file as it was.
    pub(crate) fn change<T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut seen = self.seen();
        self.reopen_lock(&mut seen)?;
        let _held = Held::take(&seen.lock).map_err(io_error(&self.path, "lock the state of"))?;
        let mut state = State::clone(&*self.refresh(&mut seen)?);
        let result = change(&mut state)?;
        self.replace(&mut seen, state)?;
        Ok(result)
    }

    /// A panic of another thread while it held this leaves a cache at worst one write behind, which is refreshed.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, seen: &mut Seen) -> Result<Arc<State>, StoreError> {
        self.reopen_lock(seen)?;
        let counter = counter(&seen.lock).map_err(io_error(&self.path, "read the write counter of"))?;
        if let Some(state) = seen.state.as_ref().filter(|state| state.generation >= counter) {
            return Ok(Arc::clone(state));
        }
        let text = fs::read(&self.path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::Missing(self.path.clone()),
            _ => io_error(&self.path, "read")(source),
        })?;
        let state = serde_json::from_slice(&text).map_err(|source| StoreError::Broken {
            path: self.path.clone(),
            source,
        })?;
        Ok(Arc::clone(seen.state.insert(Arc::new(state))))
    }

    /// Follows the lock file when its folder was removed and made again.
    fn reopen_lock(&self, seen: &mut Seen) -> Result<(), StoreError> {
        let links = seen
            .lock
            .metadata()
            .map_err(io_error(&self.path, "read the lock of"))?
            .nlink();
        if links == 0 {
            if !self.path.exists() {
                return Err(StoreError::Missing(self.path.clone()));
            }
            *seen = Seen {
                lock: open_lock(&self.path)?,
                state: None,
            };
        }
        Ok(())
    }

    /// Counts up, then puts the new file in the place of the old. The caller holds the lock.
    fn replace(&self, seen: &mut Seen, mut state: State) -> Result<(), StoreError> {
        let failed = |what| io_error(&self.path, what);
        let counter = counter(&seen.lock).map_err(failed("read the write counter of"))?;
        state.generation = counter + 1;
        seen.lock
            .write_all_at(&state.generation.to_le_bytes(), 0)
            .map_err(failed("count a write of"))?;
        let text = serde_json::to_vec(&state).map_err(|source| StoreError::Broken {
            path: self.path.clone(),
            source,
        })?;
        // one writer at a time, so one name is enough
        let temporary = beside(&self.path, ".tmp");
        fs::write(&temporary, text).map_err(failed("write beside"))?;
        fs::rename(&temporary, &self.path).map_err(failed("replace"))?;
        seen.state = Some(Arc::new(state));
        Ok(())
    }
}

/// The lock, until it is dropped.
struct Held(File);

impl Held {
    fn take(file: &File) -> io::Result<Self> {
        // a second descriptor of the same open file: unlocking either unlocks both
        let file = file.try_clone()?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // closing the file would release it too; nothing to do about a failure
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn counter(lock: &File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match lock.read_at(&mut bytes, 0)? {
        8 => Ok(u64::from_le_bytes(bytes)),
        _ => Ok(0),
    }
}

fn open_lock(path: &Path) -> Result<File, StoreError> {
    let lock = beside(path, ".lock");
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock);
    open.map_err(io_error(&lock, "open"))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { path, what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::World;

    fn node() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        World::create(&path, "H100-80GB", 1, 1).unwrap();
        (folder, path)
    }

    #[test]
    fn a_writer_killed_before_the_rename_blinds_no_reader_and_blocks_no_writer() {
        let (_folder, path) = node();
        let (reader, writer) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        let counted = reader.read().unwrap().generation + 1;
        reader
            .seen()
            .lock
            .write_all_at(&counted.to_le_bytes(), 0)
            .unwrap();
        assert_eq!(reader.read().unwrap().boots, 0);
        let reboot = |state: &mut State| -> Result<(), StoreError> {
            state.boots += 1;
            Ok(())
        };
        writer.change(reboot).unwrap();
        assert_eq!(
            (reader.read().unwrap().boots, reader.read().unwrap().generation),
            (1, counted + 1)
        );
    }

    #[test]
    fn a_folder_made_again_is_a_new_node() {
        let (folder, path) = node();
        let reader = Store::open(&path).unwrap();
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(matches!(reader.read(), Err(StoreError::Missing(_))));
        World::create(&path, "A30-24GB", 4, 1).unwrap();
        assert_eq!(reader.read().unwrap().board, "A30-24GB");
    }

    #[test]
    fn a_refused_change_leaves_the_file_as_it_was() {
        let (_folder, path) = node();
        let store = Store::open(&path).unwrap();
        let before = fs::read(&path).unwrap();
        let refused = store.change(|state| -> Result<(), StoreError> {
            state.gpus.clear();
            Err(StoreError::Missing(path.clone()))
        });
        assert!(refused.is_err());
        assert_eq!(
            (fs::read(&path).unwrap(), store.read().unwrap().gpus.len()),
            (before, 1)
        );
    }
}

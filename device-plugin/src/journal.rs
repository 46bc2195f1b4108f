//! What must survive a crash and a reboot: who holds which device, and which step is being taken. One small file,
//! replaced whole, written before each step is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use shared::mig::{Place, Step};
use tokio::time::Instant;

use crate::inventory::{Held, PodRef, State};
use crate::replace::replace;

/// File name in the state folder.
const FILE: &str = "journal.json";
/// Form of the file. A newer agent reads older forms; an older one refuses newer ones.
const VERSION: u32 = 1;

/// The journal of this node.
pub struct Journal {
    path: PathBuf,
    record: Mutex<Record>,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    /// Form of the file.
    pub version: u32,
    /// Boot of the node at which it was written.
    pub boot_id: String,
    /// Resources that we have registered, to know our own allocatable from somebody else's.
    pub served: BTreeSet<String>,
    /// Devices that are held.
    pub held: BTreeMap<String, Holding>,
    /// Steps taken or begun since the last whole change, in order. Empty when nothing is under way.
    pub under_way: Vec<Entry>,
}

/// A held device in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Holding {
    /// Under which resource.
    pub resource: String,
    /// Namespace of the pod; empty where it is not known.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod, where known.
    pub uid: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// UUID that the container was told.
    pub told: String,
}

/// A step in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// UUID of the GPU.
    pub gpu: String,
    /// Whether a slice is made or removed.
    pub create: bool,
    /// Where.
    pub place: Place,
}

impl Journal {
    /// Opens the journal in a folder, which is made if it is missing. A file that cannot be read is set aside:
    /// NVML and the kubelet know the rest.
    ///
    /// # Errors
    /// What the file system says about the folder, or that a newer agent wrote the file.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        let open = || format!("state folder {} (--state-dir)", folder.display());
        std::fs::create_dir_all(folder).with_context(open)?;
        let path = folder.join(FILE);
        let record = match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice::<Record>(&bytes) {
                Ok(record) if record.version > VERSION => {
                    anyhow::bail!(
                        "{} is of a newer agent (form {}); install that one again",
                        path.display(),
                        record.version
                    )
                }
                Ok(record) => record,
                Err(error) => {
                    let aside = path.with_extension("unreadable");
                    tracing::error!(path = %path.display(), aside = %aside.display(), %error, "journal set aside");
                    std::fs::rename(&path, &aside).with_context(open)?;
                    Record::default()
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Record::default(),
            Err(error) => return Err(error).with_context(open),
        };
        Ok(Self {
            path,
            record: Mutex::new(record),
        })
    }

    /// What the journal says.
    #[must_use]
    pub fn record(&self) -> Record {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the journal, and returns when the change is on disk. Nothing is written where nothing changes.
    ///
    /// # Errors
    /// What the file system says; the journal is as before then.
    pub fn change(&self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = record.clone();
        change(&mut next);
        next.version = VERSION;
        if next == *record {
            return Ok(());
        }
        replace(&self.path, &serde_json::to_vec(&next)?)?;
        *record = next;
        Ok(())
    }

    /// Writes down a step that is about to be taken.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn begin(&self, gpu: &str, step: Step) -> io::Result<()> {
        let (create, place) = match step {
            Step::Create(place) => (true, place),
            Step::Destroy(place) => (false, place),
        };
        self.change(|record| {
            record.under_way.push(Entry {
                gpu: gpu.to_owned(),
                create,
                place,
            });
        })
    }

    /// Writes down that everything begun is whole, and who holds what now.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn settle(&self, state: &State) -> io::Result<()> {
        self.change(|record| {
            record.under_way.clear();
            record.held = state
                .held
                .iter()
                .map(|(id, held)| (id.clone(), held.into()))
                .collect();
        })
    }
}

impl From<&Held> for Holding {
    fn from(held: &Held) -> Self {
        let pod = held.pod.as_ref();
        Self {
            resource: held.resource.clone(),
            namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
            pod: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
            uid: pod.and_then(|pod| pod.uid.clone()),
            container: held.container.clone(),
            told: held.told.clone(),
        }
    }
}

impl Holding {
    /// As the inventory has it, at the start of an agent: the kubelet has not shown it yet.
    #[must_use]
    pub fn held(&self, now: Instant) -> Held {
        let pod = (!self.pod.is_empty()).then(|| PodRef {
            namespace: self.namespace.clone(),
            name: self.pod.clone(),
            uid: self.uid.clone(),
        });
        let (container, told) = (self.container.clone(), self.told.clone());
        Held {
            pod,
            container,
            told,
            ..Held::new(&self.resource, 0, now)
        }
    }
}

/// The id of this boot, from the folder of the kernel's files or else from /proc; empty where neither tells.
#[must_use]
pub fn boot_id(proc_root: &Path) -> String {
    let read = |root: &Path| std::fs::read_to_string(root.join("sys/kernel/random/boot_id"));
    let id = read(proc_root).or_else(|_| read(Path::new("/proc")));
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_by_the_next_agent() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("made")).unwrap();
        journal
            .begin("GPU-1", Step::Create("2g.20gb:4".parse().unwrap()))
            .unwrap();
        let again = Journal::open(&dir.path().join("made")).unwrap();
        assert_eq!(again.record(), journal.record());
        assert_eq!(again.record().under_way.len(), 1);
        again.settle(&State::default()).unwrap();
        assert_eq!(
            Journal::open(&dir.path().join("made"))
                .unwrap()
                .record()
                .under_way,
            []
        );
    }

    #[test]
    fn a_torn_file_is_set_aside_and_a_newer_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        std::fs::write(&path, "{\"held\":").unwrap();
        assert_eq!(Journal::open(dir.path()).unwrap().record(), Record::default());
        assert!(dir.path().join("journal.unreadable").exists());
        std::fs::write(&path, "{\"version\": 99}").unwrap();
        assert!(
            Journal::open(dir.path())
                .err()
                .unwrap()
                .to_string()
                .contains("newer agent")
        );
    }
}

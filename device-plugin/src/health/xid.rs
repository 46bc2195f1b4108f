//! What an XID means for us: the table of defaults and what the config file changes in it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What an XID is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// A fault of the program that runs there.
    Ignore,
    /// The slice it names is cut anew when its pod lets go; without a name, as `gpu`.
    Slice,
    /// The GPU takes nothing new until it says that nothing needs to be done.
    Gpu,
    /// The GPU is gone: nothing on it works.
    Lost,
}

/// XID -> action. What is not in it counts as [`Action::Gpu`], as NVIDIA's plugin has it, but with a way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(BTreeMap<u64, Action>);

/// Defaults by NVIDIA's catalogue of XIDs.
const DEFAULTS: [(u64, Action); 20] = [
    // faults of a program: page fault, invalid instruction, preemptive cleanup and the like
    (13, Action::Ignore),
    (31, Action::Ignore),
    (43, Action::Ignore),
    (45, Action::Ignore),
    (68, Action::Ignore),
    // contained memory error: the program dies, the row is remapped at the next reset
    (94, Action::Ignore),
    // context switch timeout, internal halt, class error
    (109, Action::Slice),
    (62, Action::Slice),
    (69, Action::Slice),
    // double bit error, row remapping and its failure, NVLink, memory errors not contained, GSP, unrecovered ECC
    (48, Action::Gpu),
    (63, Action::Gpu),
    (64, Action::Gpu),
    (74, Action::Gpu),
    (92, Action::Gpu),
    (95, Action::Gpu),
    (119, Action::Gpu),
    (120, Action::Gpu),
    (140, Action::Gpu),
    // the recovery action has changed: the GPU is asked
    (154, Action::Gpu),
    // fallen off the bus
    (79, Action::Lost),
];

impl Default for Table {
    fn default() -> Self {
        Self(DEFAULTS.into_iter().collect())
    }
}

impl Table {
    /// The defaults with changes from a config file.
    ///
    /// # Errors
    /// One sentence for a key that is not a number.
    pub fn with(changes: BTreeMap<String, Action>) -> anyhow::Result<Self> {
        let mut table = Self::default();
        for (key, action) in changes {
            let Ok(xid) = key.parse() else {
                anyhow::bail!(
                    "key \"xids\" has {key:?}, which is no XID; write for example xids: {{\"31\": ignore}}"
                );
            };
            table.0.insert(xid, action);
        }
        Ok(table)
    }

    /// What to do about an XID.
    #[must_use]
    pub fn action(&self, xid: u64) -> Action {
        self.0.get(&xid).copied().unwrap_or(Action::Gpu)
    }
}

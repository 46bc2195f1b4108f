//! The other hand: sets a node up, and does to it what hardware, operators and foreign programs do. The command
//! `fake-nvml` is a thin shell around [`World`]; tests of other packages use it directly.

mod breaking;
mod device_nodes;
mod drawing;
mod refusal;
mod setup;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use breaking::Leftover;
pub use drawing::drawing;
pub use refusal::Refusal;
pub use setup::Setup;

use crate::code::Code;
use crate::library::{library_path, sidecar};
use crate::model::{Model, Profile};
use crate::state::{GpuInstance, State};
use crate::store::{Store, StoreError};
use crate::{abi, carve};

/// Minor numbers of capabilities are laid out for this many GPUs.
const MAX_GPUS: u32 = 32;

/// A node with GPUs, in a state file.
#[derive(Debug)]
pub struct World {
    store: Store,
}

impl World {
    /// Makes a node whose GPUs are in MIG mode.
    ///
    /// # Errors
    /// When the board is unknown, there are no or too many GPUs, or the file cannot be written.
    pub fn create(state: &Path, board: &str, gpus: u32, seed: u64) -> Result<Self, Refusal> {
        Self::set_up(state, &Setup::new(board, gpus, seed))
    }

    /// Makes a node, or makes an existing one anew.
    ///
    /// # Errors
    /// As [`World::create`].
    pub fn set_up(state: &Path, setup: &Setup) -> Result<Self, Refusal> {
        Ok(Self {
            store: Store::create(state, setup.node()?)?,
        })
    }

    /// Opens a node that was made before.
    ///
    /// # Errors
    /// When there is no such file, or it is not a state.
    pub fn open(state: &Path) -> Result<Self, Refusal> {
        Ok(Self {
            store: Store::open(state)?,
        })
    }

    /// Where the state file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// The node as it is now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn state(&self) -> Result<Arc<State>, Refusal> {
        Ok(self.store.read()?)
    }

    /// A copy of the library, beside the state file, that uses this node whatever the environment says. Each
    /// world of a process needs its own: the system loads a file once.
    ///
    /// # Errors
    /// When cargo has not built the library beside this program, or it cannot be copied.
    pub fn library(&self) -> Result<PathBuf, Refusal> {
        let built = library_path().ok_or(Refusal::NoLibrary)?;
        let copy = self.path().with_file_name("libnvidia-ml.so.1");
        if !copy.exists() {
            let failed = |source| Refusal::Io {
                what: "copy the library to",
                path: copy.clone(),
                source,
            };
            let path = fs::canonicalize(self.path()).map_err(failed)?;
            let half = copy.with_extension(format!("{}.tmp", std::process::id()));
            fs::copy(built, &half).map_err(failed)?;
            fs::write(sidecar(&copy), path.as_os_str().as_encoded_bytes()).map_err(failed)?;
            fs::rename(&half, &copy).map_err(failed)?;
        }
        Ok(copy)
    }

    /// Makes a GPU instance, with a compute instance that fills it unless `bare`, at a start or at the first that
    /// fits; answers with its id.
    ///
    /// # Errors
    /// When NVML would refuse it.
    pub fn foreign_create(
        &self,
        gpu: u32,
        profile: &str,
        start: Option<u32>,
        bare: bool,
    ) -> Result<u32, Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            let model = state.model()?;
            let profile = find_profile(model, profile)?;
            let what = || format!("{} on GPU {gpu}", profile.name);
            let id = carve::create_gpu_instance(state, index, profile.id, start)
                .map_err(|code| Refusal::Nvml { what: what(), code })?;
            if !bare {
                let whole = crate::placement::compute_profiles(profile.compute).last();
                let whole = whole.ok_or(Code::Unknown)?;
                carve::create_compute_instance(state, index, id, whole.id, None)
                    .map_err(|code| Refusal::Nvml { what: what(), code })?;
            }
            Ok(id)
        })
    }

    /// Destroys a GPU instance and its compute instances.
    ///
    /// # Errors
    /// When NVML would refuse it, as it does while processes run on it.
    pub fn foreign_destroy(&self, gpu: u32, gpu_instance: u32) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            let refused = |code| Refusal::Nvml {
                what: format!("GPU instance {gpu_instance} of GPU {gpu}"),
                code,
            };
            let instance = instance(state, gpu, gpu_instance)?;
            let computes: Vec<u32> = instance.compute_instances.iter().map(|held| held.id).collect();
            for compute in computes {
                carve::destroy_compute_instance(state, index, gpu_instance, compute).map_err(refused)?;
            }
            carve::destroy_gpu_instance(state, index, gpu_instance).map_err(refused)
        })
    }

    /// Turns MIG mode on or off at once, as an operator with a reset at hand does.
    ///
    /// # Errors
    /// When there is no such GPU, or it has instances or processes.
    pub fn mig(&self, gpu: u32, on: bool) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            match carve::set_mig_mode(state, index, on)? {
                None => Ok(()),
                Some(Code::ResetRequired) => {
                    state.reset(index);
                    Ok(())
                }
                Some(code) => Err(Refusal::Nvml {
                    what: format!("MIG mode of GPU {gpu}"),
                    code,
                }),
            }
        })
    }

    /// Resets a GPU: instances, processes and errors are gone, a pending MIG mode holds.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn reset(&self, gpu: u32) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            state.reset(index);
            Ok(())
        })
    }

    /// Reboots the node; see [`State::reboot`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn reboot(&self, mig: Option<bool>) -> Result<(), Refusal> {
        self.change(|state| state.reboot(mig))
    }

    /// Takes away what was broken on purpose; see [`State::clear`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn clear(&self) -> Result<(), Refusal> {
        self.change(State::clear)
    }

    /// Makes a tree of device nodes and proc files for this node; see `fake-nvml device-nodes --help`.
    ///
    /// # Errors
    /// When they cannot be made; device nodes need root.
    pub fn device_nodes(&self, root: &Path) -> Result<(), Refusal> {
        device_nodes::make(&*self.state()?, root)
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> Result<(), Refusal> {
        self.store.change(|state| {
            change(state);
            Ok(())
        })
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The functions of the library that calls can be made to fail or to take long.
#[must_use]
pub fn functions() -> Vec<&'static str> {
    abi::functions().collect()
}

/// A GPU's place in the list.
fn index(state: &State, gpu: u32) -> Result<usize, Refusal> {
    let gpus = state.gpus.len();
    if (gpu as usize) < gpus {
        Ok(gpu as usize)
    } else {
        Err(Refusal::NoGpu {
            gpu,
            last: gpus.saturating_sub(1),
        })
    }
}

fn instance(state: &State, gpu: u32, id: u32) -> Result<&GpuInstance, Refusal> {
    let on = &state.gpus[index(state, gpu)?];
    on.instance(id).ok_or_else(|| {
        let known: Vec<String> = on
            .instances
            .iter()
            .map(|instance| instance.id.to_string())
            .collect();
        Refusal::NoInstance {
            gpu,
            gpu_instance: id,
            known: known.join(", "),
        }
    })
}

fn find_profile(model: &'static Model, name: &str) -> Result<&'static Profile, Refusal> {
    let found = model
        .profiles
        .iter()
        .find(|profile| profile.name == name || profile.name.replace('+', ".") == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = model
            .profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        Refusal::UnknownProfile {
            profile: name.to_owned(),
            board: model.board,
            known: known.join(", "),
        }
    })
}

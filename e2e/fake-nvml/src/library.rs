//! What every call goes through: initialised or not, delays and failures set by the control command, and the
//! wall that no panic crosses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

use crate::abi::{events, gpm};
use crate::code::Code;
use crate::handle::Handle;
use crate::model::Model;
use crate::resolve::{self, Device};
use crate::state::{Gpu, State};
use crate::store::{Store, StoreError};
use crate::{DEFAULT_STATE, STATE_ENV};

/// The answer of an entry point.
pub(crate) type Answer = Result<(), Code>;

/// A call: the state as it was when the call began, and the way to change it.
pub(crate) struct Call {
    pub(crate) store: Arc<Store>,
    pub(crate) state: Arc<State>,
    pub(crate) model: &'static Model,
}

/// This process's use of the library.
struct Library {
    users: u32,
    store: Option<Arc<Store>>,
}

static LIBRARY: Mutex<Library> = Mutex::new(Library {
    users: 0,
    store: None,
});

impl Call {
    fn begin(function: &str) -> Result<Self, Code> {
        let store = library().store.clone().ok_or(Code::Uninitialized)?;
        Self::on(store, function)
    }

    fn on(store: Arc<Store>, function: &str) -> Result<Self, Code> {
        let mut state = store.read()?;
        if let Some(milliseconds) = state.delays.get(function) {
            thread::sleep(Duration::from_millis(*milliseconds));
            state = store.read()?;
        }
        if state.failures.iter().any(|failure| failure.function == function) {
            let failed = store.change(|state| Ok::<_, StoreError>(state.count_call(function)))?;
            if let Some(code) = failed {
                return Err(code);
            }
            state = store.read()?;
        }
        let model = state.model()?;
        Ok(Self { store, state, model })
    }

    /// Changes the state, alone; the closure sees the newest one.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T, Code>) -> Result<T, Code> {
        self.store.change(change)
    }

    /// A GPU or a MIG device.
    pub(crate) fn device(&self, handle: Handle) -> Result<Device<'_>, Code> {
        resolve::device(&self.state, handle)
    }

    /// A GPU, for a function that does not take MIG devices.
    pub(crate) fn gpu(&self, handle: Handle) -> Result<&Gpu, Code> {
        resolve::gpu(&self.state, handle)
    }
}

impl State {
    /// Counts a call of a function against the failures set for it, and says whether this one fails.
    fn count_call(&mut self, function: &str) -> Option<Code> {
        let mut code = None;
        for failure in self
            .failures
            .iter_mut()
            .filter(|failure| failure.function == function)
        {
            failure.seen += 1;
            let first = failure.on_call;
            if (first..first.saturating_add(failure.times)).contains(&failure.seen) {
                code = Some(Code::from_number(failure.code).unwrap_or(Code::Unknown));
            }
        }
        self.failures
            .retain(|failure| failure.seen < failure.on_call.saturating_add(failure.times) - 1);
        code
    }
}

impl From<StoreError> for Code {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Missing(_) => Self::DriverNotLoaded,
            StoreError::Io { .. } | StoreError::Broken { .. } => Self::Unknown,
        }
    }
}

/// Runs an entry point of an initialised library.
pub(crate) fn enter(function: &str, body: impl FnOnce(&Call) -> Answer) -> u32 {
    guarded(|| body(&Call::begin(function)?))
}

/// `nvmlInit_v2` and `nvmlInitWithFlags`. Users are counted, as NVML does.
pub(crate) fn init(function: &str) -> u32 {
    guarded(|| {
        let mut library = library();
        let store = match &library.store {
            Some(store) => Arc::clone(store),
            None => Arc::new(Store::open(&state_path())?),
        };
        Call::on(Arc::clone(&store), function)?;
        library.store = Some(store);
        library.users += 1;
        Ok(())
    })
}

/// `nvmlShutdown`: the last user takes the event sets and samples of the process along.
pub(crate) fn shutdown() -> u32 {
    guarded(|| {
        let mut library = library();
        library.users = library.users.checked_sub(1).ok_or(Code::Uninitialized)?;
        if library.users == 0 {
            library.store = None;
            events::forget();
            gpm::forget();
        }
        Ok(())
    })
}

/// Runs a body behind the wall: a panic answers UNKNOWN and goes no further.
fn guarded(body: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code as u32,
        Err(_) => Code::Unknown as u32,
    }
}

fn library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the state is: beside this copy of the library, or where the environment says, or at the default place.
fn state_path() -> PathBuf {
    let beside = own_path()
        .map(|library| sidecar(&library))
        .and_then(|file| fs::read_to_string(file).ok());
    match beside {
        Some(path) => PathBuf::from(path.trim_end()),
        None => env::var_os(STATE_ENV).map_or_else(|| DEFAULT_STATE.into(), PathBuf::from),
    }
}

/// The file that tells one copy of the library where its state is.
pub(crate) fn sidecar(library: &Path) -> PathBuf {
    let mut name = library.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

/// The file that this code was loaded from: the mapping that holds this function.
fn own_path() -> Option<PathBuf> {
    let own: fn() -> Option<PathBuf> = own_path;
    let address = own as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bound = |text: &str| usize::from_str_radix(text, 16).unwrap_or(0);
        range.is_some_and(|(start, end)| (bound(start)..bound(end)).contains(&address))
    })?;
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

/// The cdylib that cargo built: beside the running program, in its `deps`, or in the folder above.
///
/// For tests of other packages: with `fake-nvml` as a dev-dependency, cargo leaves `libnvidia_ml.so` in the folder
/// of the test binary (`target/debug/deps`), under `cargo test` and `cargo nextest run` alike.
#[must_use]
pub fn library_path() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let folders = [
        Some(folder.to_owned()),
        Some(folder.join("deps")),
        folder.parent().map(Path::to_owned),
    ];
    folders
        .into_iter()
        .flatten()
        .map(|folder| folder.join("libnvidia_ml.so"))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_crosses_the_wall() {
        assert_eq!(
            guarded(|| unreachable!("a bug of the fake, made on purpose by this test")),
            999
        );
        assert_eq!(guarded(|| Err(Code::InUse)), 19);
        assert_eq!(guarded(|| Ok(())), 0);
    }

    #[test]
    fn code_knows_the_file_it_was_loaded_from() {
        assert_eq!(
            own_path().unwrap(),
            fs::canonicalize(env::current_exe().unwrap()).unwrap()
        );
    }
}

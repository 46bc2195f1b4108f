//! Events: sets of this process, each with its own place in the node's queue.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventTypeAll};

use super::{Out, entries};
use crate::code::Code;
use crate::handle::{Handle, Target};
use crate::state::{Event, GPU_RECOVERY_ACTION, MIG_CONFIG_CHANGE, State, XID_CRITICAL_ERROR};

/// How often a waiter looks whether another process has written.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Id of no instance: the event is about the whole GPU.
const WHOLE_GPU: c_uint = c_uint::MAX;

/// Event types that a GPU reports: bit ECC errors, XIDs, layout changes, retirements, poison, unavailable, recovery.
const SUPPORTED: c_ulonglong =
    0x1 | 0x2 | XID_CRITICAL_ERROR | MIG_CONFIG_CHANGE | 0x7e00 | GPU_RECOVERY_ACTION;

/// An event set.
#[derive(Default)]
struct EventSet {
    /// By GPU: event types, and the number of the first event that counts.
    registered: BTreeMap<u32, (c_ulonglong, u64)>,
    /// Number of the next event to look at.
    next: u64,
}

impl EventSet {
    fn take(&mut self, state: &State) -> Option<Event> {
        let wanted = |event: &&Event| {
            let registered = self.registered.get(&event.gpu);
            event.number >= self.next
                && registered.is_some_and(|(types, from)| types & event.kind != 0 && event.number >= *from)
        };
        let event = state.events.iter().find(wanted)?.clone();
        self.next = event.number + 1;
        Some(event)
    }

    /// Whether nothing can ever come: every GPU of the set has fallen off the bus.
    fn is_lost(&self, state: &State) -> bool {
        let lost = |gpu: &u32| state.gpus.get(*gpu as usize).is_some_and(|gpu| gpu.lost);
        !self.registered.is_empty() && self.registered.keys().all(lost)
    }
}

/// The sets of this process, and the number that the next one gets.
static SETS: Mutex<(u64, BTreeMap<u64, EventSet>)> = Mutex::new((1, BTreeMap::new()));

fn sets() -> MutexGuard<'static, (u64, BTreeMap<u64, EventSet>)> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with a set.
fn with_set<T>(set: Handle, action: impl FnOnce(&mut EventSet) -> T) -> Result<T, Code> {
    let Some(Target::EventSet(number)) = set.target() else {
        return Err(Code::InvalidArgument);
    };
    sets().1.get_mut(&number).map(action).ok_or(Code::InvalidArgument)
}

/// Drops all sets.
pub(crate) fn forget() {
    sets().1.clear();
}

entries! {
    fn nvmlEventSetCreate(_, set: Out<Handle>) {
        let number = {
            let mut sets = sets();
            let number = sets.0;
            sets.0 += 1;
            sets.1.insert(number, EventSet::default());
            number
        };
        set.put(Handle::to(Target::EventSet(number)))
    }

    fn nvmlDeviceRegisterEvents(call, device: Handle, types: c_ulonglong, set: Handle) {
        let gpu = call.gpu(device)?.index;
        if types & !c_ulonglong::from(nvmlEventTypeAll) != 0 {
            return Err(Code::InvalidArgument);
        }
        if types & !SUPPORTED != 0 {
            return Err(Code::NotSupported);
        }
        let from = call.state.next_event;
        with_set(set, |set| set.registered.entry(gpu).or_insert((0, from)).0 |= types)
    }

    fn nvmlDeviceGetSupportedEventTypes(call, device: Handle, types: Out<c_ulonglong>) {
        call.gpu(device)?;
        types.put(SUPPORTED)
    }

    fn nvmlEventSetWait_v2(call, set: Handle, data: Out<nvmlEventData_t>, timeout_ms: c_uint) {
        if data.is_null() {
            return Err(Code::InvalidArgument);
        }
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
        loop {
            let state = call.store.read()?;
            if let Some(event) = with_set(set, |set| set.take(&state))? {
                return data.put(nvmlEventData_t {
                    device: Handle::to(Target::Gpu(event.gpu.into())).pointer(),
                    eventType: event.kind,
                    eventData: event.data,
                    gpuInstanceId: event.gpu_instance.unwrap_or(WHOLE_GPU),
                    computeInstanceId: event.compute_instance.unwrap_or(WHOLE_GPU),
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let lost = with_set(set, |set| set.is_lost(&state))?;
                return Err(if lost { Code::GpuIsLost } else { Code::Timeout });
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    fn nvmlEventSetFree(_, set: Handle) {
        let Some(Target::EventSet(number)) = set.target() else { return Err(Code::InvalidArgument) };
        sets().1.remove(&number).map(|_| ()).ok_or(Code::InvalidArgument)
    }
}

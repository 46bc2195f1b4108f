//! Events reach every client that registered, with the ids of the slice.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper_sys::bindings::*;

use crate::node::{Node, raw};

/// Waits on a set; the ids of NVML's safe wrapper are lost, so this is raw.
fn wait(node: &Node, set: nvmlEventSet_t, milliseconds: u32) -> Result<(u64, u64, u32, u32), u32> {
    // SAFETY: plain data, filled by the library; the set is the library's.
    unsafe {
        let mut data: nvmlEventData_t = std::mem::zeroed();
        raw(node
            .nvml
            .lib()
            .nvmlEventSetWait_v2(set, &raw mut data, milliseconds))?;
        Ok((
            data.eventType,
            data.eventData,
            data.gpuInstanceId,
            data.computeInstanceId,
        ))
    }
}

fn set(node: &Node, types: u64, gpus: &[u32]) -> nvmlEventSet_t {
    let lib = node.nvml.lib();
    let mut set = std::ptr::null_mut();
    // SAFETY: the pointer is to a local, the handles are the library's.
    unsafe {
        raw(lib.nvmlEventSetCreate(&raw mut set)).unwrap();
        for gpu in gpus {
            raw(lib.nvmlDeviceRegisterEvents(node.gpu(*gpu).handle(), types, set)).unwrap();
        }
    }
    set
}

const XID: u64 = nvmlEventTypeXidCriticalError as u64;
const TIMEOUT: Result<(u64, u64, u32, u32), u32> = Err(nvmlReturn_enum_NVML_ERROR_TIMEOUT);

#[test]
fn an_xid_carries_its_slice_and_reaches_each_set_once() {
    let node = Node::new("H100-80GB", 2);
    let id = node.world.foreign_create(0, "1g.10gb", Some(6), false).unwrap();
    node.world.xid(0, 31, None, None).unwrap();
    let (one, other) = (set(&node, XID, &[0, 1]), set(&node, XID, &[1]));
    assert_eq!(wait(&node, one, 0), TIMEOUT, "what was before is not told");
    node.world.xid(0, 94, Some(id), Some(0)).unwrap();
    node.world.xid(1, 79, None, None).unwrap();
    assert_eq!(wait(&node, one, 1000), Ok((XID, 94, id, 0)));
    assert_eq!(wait(&node, one, 1000), Ok((XID, 79, u32::MAX, u32::MAX)));
    assert_eq!(wait(&node, other, 1000), Ok((XID, 79, u32::MAX, u32::MAX)));
    assert_eq!(wait(&node, one, 20), TIMEOUT);
    // SAFETY: the sets are the library's.
    unsafe {
        raw(node.nvml.lib().nvmlEventSetFree(one)).unwrap();
        raw(node.nvml.lib().nvmlEventSetFree(other)).unwrap();
    }
    assert_eq!(
        wait(&node, one, 0),
        Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT)
    );
}

#[test]
fn a_waiter_wakes_when_another_program_raises_the_event() {
    let node = Node::new("H100-80GB", 1);
    let set = node.nvml.create_event_set().unwrap();
    let set = node
        .gpu(0)
        .register_events(EventTypes::CRITICAL_XID_ERROR, set)
        .map_err(|error| error.error)
        .unwrap();
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_fake-nvml"))
        .args([
            "--state",
            node.world.path().to_str().unwrap(),
            "xid",
            "--gpu",
            "0",
            "--code",
            "48",
        ])
        .spawn();
    let event = set.wait(10_000).unwrap();
    assert_eq!(event.device.uuid().unwrap(), node.gpu(0).uuid().unwrap());
    assert!(event.event_data.is_some());
    assert!(command.unwrap().wait().unwrap().success());
}

#[test]
fn a_change_of_the_layout_is_an_event_and_a_lost_gpu_ends_the_wait() {
    let node = Node::new("H100-80GB", 1);
    let layout = set(&node, nvmlEventMigConfigChange.into(), &[0]);
    let errors = set(&node, XID, &[0]);
    node.world.foreign_create(0, "1g.10gb", Some(6), true).unwrap();
    assert_eq!(
        wait(&node, layout, 1000).unwrap().0,
        u64::from(nvmlEventMigConfigChange)
    );
    node.world.lose(0, false).unwrap();
    assert_eq!(wait(&node, errors, 1000), Ok((XID, 79, u32::MAX, u32::MAX)));
    assert_eq!(
        wait(&node, errors, 10),
        Err(nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST)
    );
}

//! What the control side breaks, seen by a client.

use std::time::{Duration, Instant};

use nvidia_ml::code::Code;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper_sys::bindings::*;

use crate::node::Node;

#[test]
fn the_nth_call_fails_and_the_next_does_not() {
    let node = Node::new("H100-80GB", 1);
    node.world
        .fail("DeviceCreateGpuInstanceWithPlacement", 2, Code::Unknown, 2)
        .unwrap();
    let codes: Vec<Option<u32>> = (0..5).map(|start| node.create(0, 19, start, 1).err()).collect();
    assert_eq!(codes, [None, Some(999), Some(999), None, None]);
    assert!(
        node.world.state().unwrap().failures.is_empty(),
        "a failure that is used up is gone"
    );
}

#[test]
fn a_failed_init_is_a_driver_that_is_not_there_yet() {
    let node = Node::new("H100-80GB", 1);
    node.world
        .fail("nvmlInit_v2", 1, Code::DriverNotLoaded, 1)
        .unwrap();
    let library = node.world.library().unwrap();
    let init = || nvml_wrapper::Nvml::builder().lib_path(library.as_os_str()).init();
    assert!(matches!(init(), Err(NvmlError::DriverNotLoaded)));
    assert!(init().is_ok());
}

#[test]
fn a_delay_is_a_lower_bound() {
    let node = Node::new("H100-80GB", 1);
    let delay = Duration::from_millis(30);
    node.world.delay("nvmlDeviceGetCount_v2", delay).unwrap();
    let begun = Instant::now();
    node.nvml.device_count().unwrap();
    assert!(begun.elapsed() >= delay);
    node.world.clear().unwrap();
    assert!(node.world.state().unwrap().delays.is_empty());
}

#[test]
fn a_lost_gpu_answers_gpu_is_lost_and_its_neighbour_goes_on() {
    let node = Node::new("H100-80GB", 2);
    let gpu = node.gpu(0);
    let instance = node.create(0, 19, 0, 1).unwrap();
    node.world.lose(0, true).unwrap();
    assert!(matches!(gpu.uuid(), Err(NvmlError::GpuLost)));
    assert!(matches!(node.nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert_eq!(
        node.destroy(instance).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST
    );
    assert!(node.gpu(1).uuid().is_ok());
    node.world.restore(0).unwrap();
    node.destroy(instance).unwrap();
}

#[test]
fn the_recovery_action_is_a_field_value() {
    let node = Node::new("H100-80GB", 1);
    let action = || match node
        .gpu(0)
        .field_values_for(&[FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)])
        .unwrap()
        .remove(0)
        .unwrap()
        .value
        .unwrap()
    {
        SampleValue::U32(action) => action,
        other => panic!("{other:?}"),
    };
    assert_eq!(action(), 0);
    node.world.recovery_action(0, 1).unwrap();
    assert_eq!(action(), 1);
    node.world.reset(0).unwrap();
    assert_eq!(action(), 0);
}

//! What a MIG device does not answer, what null and short buffers get, and life before `nvmlInit`.

use std::ffi::{c_char, c_uint};
use std::ptr;

use nvidia_ml::control::Leftover;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::*;

use crate::node::Node;

#[test]
fn a_mig_device_has_memory_and_processes_and_little_else() {
    let node = Node::new("H100-80GB", 1);
    let id = node.world.foreign_create(0, "2g.20gb", Some(4), false).unwrap();
    node.world
        .leftover(&Leftover {
            gpu: 0,
            gpu_instance: Some(id),
            pid: 4711,
            memory_mib: 512,
        })
        .unwrap();
    let gpu = node.gpu(0);
    let mig = gpu.mig_device_by_index(0).unwrap();

    let processes = mig.running_compute_processes().unwrap();
    assert_eq!(
        (processes.len(), processes[0].pid, processes[0].gpu_instance_id),
        (1, 4711, Some(id))
    );
    assert_eq!(gpu.running_compute_processes().unwrap().len(), 1);
    assert!(mig.running_graphics_processes().unwrap().is_empty());
    assert_eq!(mig.memory_info().unwrap().used >> 20, 512 + 13);
    assert!(mig.bar1_memory_info().is_ok());

    let refused =
        |answer: Result<(), NvmlError>| assert!(matches!(answer, Err(NvmlError::NotSupported)), "{answer:?}");
    refused(mig.utilization_rates().map(|_| ()));
    refused(gpu.utilization_rates().map(|_| ()));
    refused(mig.temperature(TemperatureSensor::Gpu).map(|_| ()));
    refused(mig.power_usage().map(|_| ()));
    refused(mig.clock_info(Clock::SM).map(|_| ()));
    refused(mig.minor_number().map(|_| ()));
    refused(mig.is_ecc_enabled().map(|_| ()));
    refused(mig.mig_mode().map(|_| ()));
    refused(mig.process_utilization_stats(0).map(|_| ()));
    refused(gpu.process_utilization_stats(0).map(|_| ()));
    refused(gpu.attributes().map(|_| ()));
}

#[test]
fn a_slice_with_a_process_cannot_be_destroyed() {
    let node = Node::new("H100-80GB", 1);
    let instance = node.create(0, 14, 0, 2).unwrap();
    let compute = node.create_compute(instance, 1).unwrap();
    let id = node.info(instance).unwrap().id;
    node.world
        .leftover(&Leftover {
            gpu: 0,
            gpu_instance: Some(id),
            pid: 5,
            memory_mib: 1,
        })
        .unwrap();
    assert_eq!(
        node.destroy_compute(compute).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_IN_USE
    );
    node.world.remove_leftover(0, 5).unwrap();
    node.destroy_compute(compute).unwrap();
    node.destroy(instance).unwrap();
}

#[test]
fn null_and_short_buffers_are_refused() {
    let node = Node::new("A30-24GB", 1);
    let lib = node.nvml.lib();
    let invalid = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    let short = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
    node.world
        .leftover(&Leftover {
            gpu: 0,
            gpu_instance: None,
            pid: 1,
            memory_mib: 1,
        })
        .unwrap();
    let mut small: [c_char; 8] = [0; 8];
    let mut count: c_uint = 0;
    let mut memory = nvmlMemory_v2_t {
        version: 1,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: handles are the library's or null, pointers are null or to locals with their lengths.
    unsafe {
        let gpu = node.gpu(0).handle();
        assert_eq!(lib.nvmlDeviceGetName(gpu, small.as_mut_ptr(), 8), short);
        assert_eq!(lib.nvmlDeviceGetName(gpu, ptr::null_mut(), 96), invalid);
        assert_eq!(
            lib.nvmlDeviceGetName(ptr::null_mut(), small.as_mut_ptr(), 8),
            invalid
        );
        assert_eq!(lib.nvmlDeviceGetHandleByIndex_v2(0, ptr::null_mut()), invalid);
        assert_eq!(
            lib.nvmlDeviceGetComputeRunningProcesses_v3(gpu, &raw mut count, ptr::null_mut()),
            short
        );
        assert_eq!(count, 1);
        assert_eq!(
            lib.nvmlDeviceGetMemoryInfo_v2(gpu, &raw mut memory),
            nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        );
        let mut gpu_of_no_one = ptr::null_mut();
        assert_eq!(
            lib.nvmlDeviceGetHandleByIndex_v2(1, &raw mut gpu_of_no_one),
            invalid
        );
    }
    assert!(matches!(
        node.nvml.device_by_uuid("GPU-none"),
        Err(NvmlError::NotFound)
    ));
}

#[test]
#[allow(
    deprecated,
    reason = "the wrapper warns of boards with two GPUs and one serial; ours have one"
)]
fn a_device_is_found_by_every_name_it_has() {
    let node = Node::new("H200-141GB", 3);
    let gpu = node.gpu(2);
    let uuid = gpu.uuid().unwrap();
    let pci = gpu.pci_info().unwrap();
    assert_eq!(pci.pci_device_id, 0x2335_10de);
    for found in [
        node.nvml.device_by_uuid(uuid.clone()).unwrap(),
        node.nvml.device_by_pci_bus_id(pci.bus_id.clone()).unwrap(),
        node.nvml.device_by_pci_bus_id(&pci.bus_id[4..]).unwrap(),
        node.nvml.device_by_serial(gpu.serial().unwrap()).unwrap(),
    ] {
        assert_eq!(
            (
                found.uuid().unwrap(),
                found.index().unwrap(),
                found.minor_number().unwrap()
            ),
            (uuid.clone(), 2, 2)
        );
    }
}

#[test]
fn without_a_state_file_there_is_no_driver_and_before_init_no_answer() {
    let node = Node::new("H100-80GB", 1);
    let library = node.world.library().unwrap();
    std::fs::remove_file(node.world.path()).unwrap();
    let Node { nvml, folder, .. } = node;
    nvml.shutdown().unwrap();
    let refused = Nvml::builder().lib_path(library.as_os_str()).init();
    assert!(matches!(refused, Err(NvmlError::DriverNotLoaded)), "{refused:?}");
    // SAFETY: the file is NVML's interface by construction; the call's pointer is to a local.
    unsafe {
        let lib = NvmlLib::new(&library).unwrap();
        let mut count = 0;
        assert_eq!(
            lib.nvmlDeviceGetCount_v2(&raw mut count),
            nvmlReturn_enum_NVML_ERROR_UNINITIALIZED
        );
        assert_eq!(lib.nvmlShutdown(), nvmlReturn_enum_NVML_ERROR_UNINITIALIZED);
        let text = std::ffi::CStr::from_ptr(lib.nvmlErrorString(23));
        assert_eq!(text.to_str().unwrap(), "Insufficient Resources");
    }
    drop(folder);
}

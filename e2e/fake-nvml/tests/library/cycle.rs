//! Create, list, look at, destroy: what a node agent does all day.

use std::ptr;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::*;

use crate::node::{Node, raw};

/// Driver profile ids of H100.
const ONE: u32 = 19;
const THREE: u32 = 9;
const SEVEN: u32 = 0;

#[test]
fn a_slice_is_made_seen_and_destroyed() {
    let node = Node::new("H100-80GB", 2);
    let gpu = node.gpu(0);
    assert_eq!(node.nvml.device_count().unwrap(), 2);
    assert_eq!(gpu.name().unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(gpu.memory_info().unwrap().total >> 20, 81559);

    let instance = node.create(0, THREE, 4, 4).unwrap();
    let info = node.info(instance).unwrap();
    assert_eq!(
        (info.profileId, info.placement.start, info.placement.size),
        (THREE, 4, 4)
    );
    assert_eq!(node.uuids(0), [""; 0], "a GPU instance alone is no device");

    let compute = node.create_compute(instance, 2).unwrap();
    let mig = gpu.mig_device_by_index(0).unwrap();
    assert!(mig.mig_is_mig_device_handle().unwrap());
    assert_eq!(mig.name().unwrap(), "NVIDIA H100 80GB HBM3 MIG 3g.40gb");
    assert_eq!(
        mig.mig_parent_device().unwrap().uuid().unwrap(),
        gpu.uuid().unwrap()
    );
    let attributes = mig.attributes().unwrap();
    assert_eq!(
        (
            attributes.gpu_instance_slice_count,
            attributes.compute_instance_slice_count
        ),
        (3, 3)
    );
    assert_eq!(
        (attributes.memory_size_mb, attributes.multiprocessor_count),
        (40448, 60)
    );
    assert_eq!(mig.memory_info().unwrap().total >> 20, 40448);
    let mut ids = (0, 0);
    // SAFETY: the handle is the library's, the pointers are to locals.
    unsafe {
        raw(node
            .nvml
            .lib()
            .nvmlDeviceGetGpuInstanceId(mig.handle(), &raw mut ids.0))
        .unwrap();
        raw(node
            .nvml
            .lib()
            .nvmlDeviceGetComputeInstanceId(mig.handle(), &raw mut ids.1))
        .unwrap();
    }
    assert_eq!(ids, (info.id, 0));
    let uuid = mig.uuid().unwrap();
    assert!(uuid.starts_with("MIG-") && uuid.len() == 40);
    assert_eq!(
        node.nvml.device_by_uuid(uuid.clone()).unwrap().uuid().unwrap(),
        uuid
    );

    assert_eq!(node.destroy(instance), Err(nvmlReturn_enum_NVML_ERROR_IN_USE));
    node.destroy_compute(compute).unwrap();
    node.destroy(instance).unwrap();
    assert_eq!(
        node.destroy(instance),
        Err(nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
        "a handle dies with its instance"
    );
    assert!(mig.uuid().is_err());

    let again = node.create(0, THREE, 4, 4).unwrap();
    node.create_compute(again, 2).unwrap();
    assert_eq!(node.info(again).unwrap().id, info.id, "ids are used again");
    assert_ne!(node.uuids(0), [uuid], "uuids are not");
}

#[test]
fn seven_slices_fill_a_gpu_and_the_eighth_is_refused() {
    let node = Node::new("H100-80GB", 1);
    for start in 0..7 {
        let instance = node.create(0, ONE, start, 1).unwrap();
        node.create_compute(instance, 0).unwrap();
    }
    assert_eq!(node.uuids(0).len(), 7);
    let full = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES;
    assert_eq!(node.create(0, ONE, 3, 1).unwrap_err(), full);
    assert_eq!(node.create(0, SEVEN, 0, 8).unwrap_err(), full);
    assert_eq!(
        node.create(0, ONE, 7, 1).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        "no start 7"
    );
    assert_eq!(
        node.create(0, ONE, 3, 2).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        "wrong size"
    );
    assert_eq!(
        node.create(0, 77, 0, 1).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
        "no such profile"
    );
}

#[test]
fn without_a_placement_the_lowest_start_is_taken_and_indexes_have_holes() {
    let node = Node::new("A100-40GB", 1);
    let gpu = node.gpu(0);
    let mut made = Vec::new();
    for _ in 0..3 {
        let mut instance = ptr::null_mut();
        // SAFETY: the handle is the library's, the pointer is to a local.
        raw(unsafe {
            node.nvml
                .lib()
                .nvmlDeviceCreateGpuInstance(gpu.handle(), ONE, &raw mut instance)
        })
        .unwrap();
        made.push((instance, node.create_compute(instance, 0).unwrap()));
    }
    let starts: Vec<u32> = made
        .iter()
        .map(|(instance, _)| node.info(*instance).unwrap().placement.start)
        .collect();
    assert_eq!(starts, [0, 1, 2]);

    node.destroy_compute(made[1].1).unwrap();
    node.destroy(made[1].0).unwrap();
    let found: Vec<bool> = (0..3)
        .map(|index| gpu.mig_device_by_index(index).is_ok())
        .collect();
    assert_eq!(found, [true, false, true]);
    assert!(matches!(
        gpu.mig_device_by_index(1),
        Err(nvml_wrapper::error::NvmlError::NotFound)
    ));
    assert_eq!(gpu.mig_device_by_index(2).unwrap().index().unwrap(), 2);
}

#[test]
fn profiles_are_asked_by_enum_and_placed_by_id() {
    let node = Node::new("H100-80GB", 1);
    let gpu = node.gpu(0);
    let lib = node.nvml.lib();
    let mut seen = Vec::new();
    for nvml_enum in 0..18 {
        // SAFETY: plain data, filled by the library.
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = size_of::<nvmlGpuInstanceProfileInfo_v2_t>() as u32 | 2 << 24;
        // SAFETY: the handle is the library's, the pointer is to a local with its version word.
        match unsafe { lib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu.handle(), nvml_enum, &raw mut info) } {
            0 => {
                let mut starts = [nvmlGpuInstancePlacement_t { start: 0, size: 0 }; 8];
                let mut count = 0;
                // SAFETY: as above; no profile has more than eight places.
                raw(unsafe {
                    lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                        gpu.handle(),
                        info.id,
                        starts.as_mut_ptr(),
                        &raw mut count,
                    )
                })
                .unwrap();
                let name: String = info
                    .name
                    .iter()
                    .take_while(|c| **c != 0)
                    .map(|c| *c as u8 as char)
                    .collect();
                seen.push((
                    name,
                    info.id,
                    info.memorySizeMB,
                    starts[..count as usize]
                        .iter()
                        .map(|p| p.start)
                        .collect::<Vec<_>>(),
                ));
            }
            code => assert_eq!(code, nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
        }
    }
    let all: Vec<u32> = (0..7).collect();
    assert_eq!(
        seen,
        [
            ("MIG 1g.10gb".to_owned(), 19, 9984, all.clone()),
            ("MIG 2g.20gb".to_owned(), 14, 20096, vec![0, 2, 4]),
            ("MIG 3g.40gb".to_owned(), 9, 40448, vec![0, 4]),
            ("MIG 4g.40gb".to_owned(), 5, 40448, vec![0]),
            ("MIG 7g.80gb".to_owned(), 0, 81152, vec![0]),
            ("MIG 1g.10gb+me".to_owned(), 20, 9984, all),
            ("MIG 1g.20gb".to_owned(), 15, 20096, vec![0, 2, 4, 6]),
        ]
    );
    let mut version = nvmlGpuInstanceProfileInfo_v2_t {
        version: 7,
        ..zeroed()
    };
    // SAFETY: as above.
    let code = unsafe { lib.nvmlDeviceGetGpuInstanceProfileInfoV(gpu.handle(), 0, &raw mut version) };
    assert_eq!(code, nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

/// A struct of plain C data, all zero.
fn zeroed<T: Copy>() -> T {
    // SAFETY: used for NVML's structs of numbers and arrays of numbers only.
    unsafe { std::mem::zeroed() }
}

#[test]
fn remaining_capacity_counts_what_still_fits() {
    let node = Node::new("H100-80GB", 1);
    let remaining = |profile| {
        let mut count = 0;
        // SAFETY: the handle is the library's, the pointer is to a local.
        let handle = unsafe { node.gpu(0).handle() };
        // SAFETY: as above.
        raw(unsafe {
            node.nvml
                .lib()
                .nvmlDeviceGetGpuInstanceRemainingCapacity(handle, profile, &raw mut count)
        })
        .unwrap();
        count
    };
    // the loss table of device-plugin.md 2.5: 1g, 1g of double memory, 2g, 3g, 4g, 7g
    let table = |remaining: &dyn Fn(u32) -> u32| [19, 15, 14, 9, 5, 0].map(remaining);
    assert_eq!(table(&remaining), [7, 4, 3, 2, 1, 1]);
    for (profile, start, size, left) in [
        (19, 6, 1, [6, 3, 3, 1, 1, 0]),
        (19, 4, 1, [6, 3, 2, 1, 1, 0]),
        (19, 0, 1, [6, 3, 2, 1, 0, 0]),
        (15, 6, 2, [6, 3, 3, 1, 1, 0]),
        (14, 4, 2, [5, 3, 2, 1, 1, 0]),
        (9, 4, 4, [4, 2, 2, 1, 1, 0]),
        (9, 0, 4, [3, 2, 1, 1, 0, 0]),
        (5, 0, 4, [3, 2, 1, 1, 0, 0]),
    ] {
        let instance = node.create(0, profile, start, size).unwrap();
        assert_eq!(table(&remaining), left, "{profile}@{start}");
        node.destroy(instance).unwrap();
    }
}

#[test]
fn two_libraries_see_one_node() {
    let node = Node::new("H100-80GB", 1);
    let copy = node.folder.path().join("another.so");
    std::fs::copy(node.world.library().unwrap(), &copy).unwrap();
    std::fs::write(
        node.folder.path().join("another.so.state"),
        node.world.path().as_os_str().as_encoded_bytes(),
    )
    .unwrap();
    let other = Nvml::builder().lib_path(copy.as_os_str()).init().unwrap();

    let instance = node.create(0, ONE, 6, 1).unwrap();
    node.create_compute(instance, 0).unwrap();
    let seen = other
        .device_by_index(0)
        .unwrap()
        .mig_device_by_index(0)
        .unwrap()
        .uuid()
        .unwrap();
    assert_eq!([seen], node.uuids(0)[..]);
}

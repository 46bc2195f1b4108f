//! MIG mode: at once on Hopper, after a reset on Ampere; what a reboot leaves.

use nvidia_ml::control::{Leftover, Setup};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::*;

use crate::node::Node;

const RESET_REQUIRED: u32 = nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED;
const IN_USE: u32 = nvmlReturn_enum_NVML_ERROR_IN_USE;

fn off(board: &str) -> Node {
    Node::set_up(&Setup {
        mig: false,
        ..Setup::new(board, 1, 1)
    })
}

fn mode(node: &Node) -> (u32, u32) {
    let mode = node.gpu(0).mig_mode().unwrap();
    (mode.current, mode.pending)
}

#[test]
fn hopper_changes_at_once_unless_in_use() {
    let node = off("H100-80GB");
    assert_eq!(
        node.create(0, 19, 0, 1).unwrap_err(),
        nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        "MIG is off"
    );
    assert_eq!(node.gpu(0).set_mig_mode(true).unwrap(), 0);
    assert_eq!(mode(&node), (1, 1));

    let instance = node.create(0, 19, 0, 1).unwrap();
    assert_eq!(node.gpu(0).set_mig_mode(false).unwrap(), IN_USE);
    assert_eq!(mode(&node), (1, 0));
    node.destroy(instance).unwrap();
    assert_eq!(node.gpu(0).set_mig_mode(false).unwrap(), 0);
    assert_eq!(mode(&node), (0, 0));
}

#[test]
fn ampere_waits_for_a_reset() {
    let node = off("A100-80GB");
    assert_eq!(node.gpu(0).set_mig_mode(true).unwrap(), RESET_REQUIRED);
    assert_eq!(mode(&node), (0, 1));
    node.world.reset(0).unwrap();
    assert_eq!(mode(&node), (1, 1));
    node.world
        .leftover(&Leftover {
            gpu: 0,
            gpu_instance: None,
            pid: 9,
            memory_mib: 1,
        })
        .unwrap();
    assert_eq!(node.gpu(0).set_mig_mode(false).unwrap(), IN_USE);
}

#[test]
fn a_reboot_takes_the_slices_and_their_uuids() {
    for (board, at_boot, after) in [
        ("A100-40GB", false, 1),
        ("H100-80GB", false, 0),
        ("B200-180GB", true, 1),
    ] {
        let node = Node::set_up(&Setup {
            mig_at_boot: at_boot,
            ..Setup::new(board, 1, 1)
        });
        let uuid = node.gpu(0).uuid().unwrap();
        let instance = node.create(0, 19, 6, 1).unwrap();
        node.create_compute(instance, 0).unwrap();
        let before = node.uuids(0);

        node.world.reboot(None).unwrap();
        assert_eq!(node.gpu(0).uuid().unwrap(), uuid, "the GPU keeps its uuid");
        assert_eq!(mode(&node).0, after, "{board}");
        assert_eq!(node.uuids(0), [""; 0]);
        assert_eq!(
            node.destroy(instance).unwrap_err(),
            nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT
        );
        node.world.reboot(Some(true)).unwrap();
        let instance = node.create(0, 19, 6, 1).unwrap();
        node.create_compute(instance, 0).unwrap();
        assert_ne!(node.uuids(0), before);
    }
}

#[test]
fn old_drivers_list_profiles_in_mig_mode_only() {
    let mut setup = Setup {
        mig: false,
        ..Setup::new("H100-80GB", 1, 1)
    };
    assert!(Node::set_up(&setup).gpu(0).profile_info(0).is_ok());
    setup.driver_version = "535.216.01".to_owned();
    assert!(matches!(
        Node::set_up(&setup).gpu(0).profile_info(0),
        Err(NvmlError::NotSupported)
    ));
    setup.mig = true;
    assert_eq!(Node::set_up(&setup).gpu(0).profile_info(0).unwrap().id, 19);
}

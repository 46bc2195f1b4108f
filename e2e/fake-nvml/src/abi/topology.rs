//! Topology: who is near whom. GPUs of one NUMA node share it; all are joined by NVLink where the board has links.

use std::ffi::{c_uint, c_ulong};

use nvml_wrapper_sys::bindings::{
    nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL, nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE,
    nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM, nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED,
    nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK, nvmlPciInfo_t,
};

use super::{Out, entries, fixed, put_counted};
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::state::Gpu;

/// PCI bus of the first NVSwitch, and PCI vendor and device id of an NVSwitch.
const SWITCH_BUS: u32 = 0xe0;
const SWITCH_ID: u32 = 0x22a3_10de;

/// Numbers of NVML's link capabilities and P2P indexes.
const LINK_CAPABILITIES: c_uint = 6;
const P2P_INDEXES: c_uint = 5;

fn ancestor(one: &Gpu, other: &Gpu) -> c_uint {
    match (one.index == other.index, one.numa == other.numa) {
        (true, _) => nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL,
        (false, true) => nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE,
        (false, false) => nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM,
    }
}

/// A GPU that has this link.
fn linked(call: &Call, device: Handle, link: c_uint) -> Result<&Gpu, Code> {
    let gpu = call.gpu(device)?;
    match call.model.nvlinks {
        0 => Err(Code::NotSupported),
        links if link >= links => Err(Code::InvalidArgument),
        _ => Ok(gpu),
    }
}

/// Writes a set of one bit into words.
fn put_bit(set: Out<c_ulong>, words: c_uint, bit: u32) -> Result<(), Code> {
    if words == 0 || bit / c_ulong::BITS >= words {
        return Err(Code::InsufficientSize);
    }
    set.put_all((0..words).map(|word| {
        if word == bit / c_ulong::BITS {
            1 << (bit % c_ulong::BITS)
        } else {
            0
        }
    }))
}

entries! {
    fn nvmlDeviceGetTopologyCommonAncestor(call, one: Handle, other: Handle, level: Out<c_uint>) {
        level.put(ancestor(call.gpu(one)?, call.gpu(other)?))
    }

    fn nvmlDeviceGetTopologyNearestGpus(
        call,
        device: Handle,
        level: c_uint,
        count: Out<c_uint>,
        devices: Out<Handle>,
    ) {
        let gpu = call.gpu(device)?;
        let near = call.state.gpus.iter().filter(|other| other.index != gpu.index && ancestor(gpu, other) == level);
        put_counted(near.map(Gpu::handle).collect(), count, devices)
    }

    /// GPUs in MIG mode have no peers.
    fn nvmlDeviceGetP2PStatus(call, one: Handle, other: Handle, index: c_uint, status: Out<c_uint>) {
        let (one, other) = (call.gpu(one)?, call.gpu(other)?);
        if index >= P2P_INDEXES {
            return Err(Code::InvalidArgument);
        }
        let peers = !one.mig && !other.mig;
        status.put(if peers {
            nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK
        } else {
            nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_NOT_SUPPORTED
        })
    }

    fn nvmlDeviceGetNvLinkState(call, device: Handle, link: c_uint, active: Out<c_uint>) {
        linked(call, device, link)?;
        active.put(1)
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(call, device: Handle, link: c_uint, info: Out<nvmlPciInfo_t>) {
        linked(call, device, link)?;
        // links are spread over four switches
        let bus = SWITCH_BUS + link % 4;
        let bus_id = format!("00000000:{bus:02X}:00.0");
        info.put(nvmlPciInfo_t {
            busIdLegacy: fixed(&bus_id[4..]),
            domain: 0,
            bus,
            device: 0,
            pciDeviceId: SWITCH_ID,
            pciSubSystemId: SWITCH_ID,
            busId: fixed(&bus_id),
        })
    }

    fn nvmlDeviceGetNvLinkCapability(
        call,
        device: Handle,
        link: c_uint,
        capability: c_uint,
        has: Out<c_uint>,
    ) {
        linked(call, device, link)?;
        if capability >= LINK_CAPABILITIES {
            return Err(Code::InvalidArgument);
        }
        // all but the SLI bridge (4)
        has.put((capability != 4).into())
    }

    /// All CPUs of the first word: the fake machine has one socket's worth.
    fn nvmlDeviceGetCpuAffinity(call, device: Handle, words: c_uint, set: Out<c_ulong>) {
        call.gpu(device)?;
        if words == 0 {
            return Err(Code::InvalidArgument);
        }
        set.put_all((0..words).map(|word| if word == 0 { c_ulong::MAX } else { 0 }))
    }

    fn nvmlDeviceGetMemoryAffinity(call, device: Handle, words: c_uint, set: Out<c_ulong>, scope: c_uint) {
        let gpu = call.gpu(device)?;
        if scope > 1 {
            return Err(Code::InvalidArgument);
        }
        put_bit(set, words, gpu.numa)
    }

    /// Only where the GPU's memory is a NUMA node of its own.
    fn nvmlDeviceGetNumaNodeId(call, device: Handle, node: Out<c_uint>) {
        let gpu = call.gpu(device)?;
        if call.model.coherent { node.put(gpu.numa) } else { Err(Code::NotSupported) }
    }
}

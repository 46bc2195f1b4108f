//! Enumeration: from an index, a uuid, a bus id or a serial to a handle, and back.

use std::ffi::{CStr, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlPciInfo_t, nvmlUUID_v1_t, nvmlUUIDType_t_NVML_UUID_TYPE_ASCII, nvmlUUIDType_t_NVML_UUID_TYPE_BINARY,
};

use super::{Out, Text, entries, fixed, version};
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::resolve::{Device, slices};
use crate::state::Gpu;

/// PCI vendor id of NVIDIA.
const NVIDIA: u32 = 0x10de;

/// The handle of the one GPU that fits.
fn find(call: &Call, fits: impl Fn(&Gpu) -> bool) -> Result<Handle, Code> {
    let gpu = call
        .state
        .gpus
        .iter()
        .find(|gpu| fits(gpu))
        .ok_or(Code::NotFound)?;
    Ok(gpu.reached()?.handle())
}

/// The handle of a GPU (`GPU-…`) or a MIG device (`MIG-…`).
fn by_uuid(call: &Call, uuid: &str) -> Result<Handle, Code> {
    match slices(&call.state).find(|slice| slice.compute.uuid == uuid) {
        Some(slice) => {
            slice.gpu.reached()?;
            Ok(slice.compute.mig_handle())
        }
        None => find(call, |gpu| gpu.uuid == uuid),
    }
}

/// Domain and bus of a PCI address; the domain is written with four or eight digits, or left out.
fn bus_address(text: &str) -> Option<(u32, u32)> {
    let parts: Vec<&str> = text.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    matches!(device, "00.0" | "0.0" | "00").then_some((hex(domain)?, hex(bus)?))
}

/// A uuid of 16 bytes as the end of NVML's texts.
fn hyphenated(bytes: [u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| {
        bytes[range]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}

entries! {
    fn nvmlDeviceGetCount_v2(call, count: Out<c_uint>) {
        count.put(call.state.gpus.len() as c_uint)
    }

    fn nvmlDeviceGetHandleByIndex_v2(call, index: c_uint, device: Out<Handle>) {
        let gpu = call.state.gpus.get(index as usize).ok_or(Code::InvalidArgument)?;
        device.put(gpu.reached()?.handle())
    }

    fn nvmlDeviceGetHandleByUUID(call, uuid: Text, device: Out<Handle>) {
        device.put(by_uuid(call, &uuid.get()?)?)
    }

    fn nvmlDeviceGetHandleByUUIDV(call, uuid: Out<nvmlUUID_v1_t>, device: Out<Handle>) {
        let uuid = uuid.get()?;
        if uuid.version != version::<nvmlUUID_v1_t>(1) {
            return Err(Code::ArgumentVersionMismatch);
        }
        #[allow(non_upper_case_globals, reason = "the constants are NVML's")]
        let text = match uuid.type_ {
            nvmlUUIDType_t_NVML_UUID_TYPE_ASCII => {
                // SAFETY: the type word says which member the caller filled; both are plain bytes, so that even a
                // wrong word reads no invalid value.
                let text = unsafe { uuid.value.str_ }.map(|character| character as u8);
                let text = CStr::from_bytes_until_nul(&text).map_err(|_| Code::InvalidArgument)?;
                text.to_string_lossy().into_owned()
            }
            nvmlUUIDType_t_NVML_UUID_TYPE_BINARY => {
                // SAFETY: as above.
                let end = hyphenated(unsafe { uuid.value.bytes });
                return match by_uuid(call, &format!("GPU-{end}")) {
                    Err(Code::NotFound) => device.put(by_uuid(call, &format!("MIG-{end}"))?),
                    found => device.put(found?),
                };
            }
            _ => return Err(Code::InvalidArgument),
        };
        device.put(by_uuid(call, &text)?)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(call, bus_id: Text, device: Out<Handle>) {
        let wanted = bus_address(&bus_id.get()?).ok_or(Code::InvalidArgument)?;
        device.put(find(call, |gpu| (0, gpu.bus()) == wanted)?)
    }

    fn nvmlDeviceGetHandleBySerial(call, serial: Text, device: Out<Handle>) {
        let serial = serial.get()?;
        device.put(find(call, |gpu| gpu.serial == serial)?)
    }

    fn nvmlDeviceGetIndex(call, device: Handle, index: Out<c_uint>) {
        match call.device(device)? {
            Device::Gpu(gpu) => index.put(gpu.index),
            Device::Mig(slice) => index.put(slice.compute.mig_index),
        }
    }

    fn nvmlDeviceGetMinorNumber(call, device: Handle, minor: Out<c_uint>) {
        minor.put(call.gpu(device)?.index)
    }

    fn nvmlDeviceGetPciInfo_v3(call, device: Handle, info: Out<nvmlPciInfo_t>) {
        let gpu = call.device(device)?.parent();
        info.put(nvmlPciInfo_t {
            busIdLegacy: fixed(&gpu.bus_id()[4..]),
            domain: 0,
            bus: gpu.bus(),
            device: 0,
            pciDeviceId: call.model.pci_device << 16 | NVIDIA,
            pciSubSystemId: NVIDIA,
            busId: fixed(&gpu.bus_id()),
        })
    }
}

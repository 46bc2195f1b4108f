//! Identity: names, uuids, generation.

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA;

use super::{Out, entries};
use crate::handle::Handle;
use crate::model::Architecture;
use crate::resolve::Device;

entries! {
    fn nvmlDeviceGetName(call, device: Handle, name: Out<c_char>, length: c_uint) {
        let product = call.model.product;
        match call.device(device)? {
            Device::Gpu(_) => name.put_text(length, product),
            Device::Mig(slice) => {
                let profile = slice.instance.profile(call.model)?;
                name.put_text(length, &format!("{product} MIG {}", slice_name(profile, slice.compute.size)))
            }
        }
    }

    fn nvmlDeviceGetUUID(call, device: Handle, uuid: Out<c_char>, length: c_uint) {
        match call.device(device)? {
            Device::Gpu(gpu) => uuid.put_text(length, &gpu.uuid),
            Device::Mig(slice) => uuid.put_text(length, &slice.compute.uuid),
        }
    }

    fn nvmlDeviceGetSerial(call, device: Handle, serial: Out<c_char>, length: c_uint) {
        serial.put_text(length, &call.gpu(device)?.serial)
    }

    fn nvmlDeviceGetBrand(call, device: Handle, brand: Out<c_uint>) {
        call.device(device)?;
        brand.put(nvmlBrandType_enum_NVML_BRAND_NVIDIA)
    }

    fn nvmlDeviceGetArchitecture(call, device: Handle, architecture: Out<c_uint>) {
        call.device(device)?;
        architecture.put(call.model.architecture as c_uint)
    }

    fn nvmlDeviceGetCudaComputeCapability(call, device: Handle, major: Out<c_int>, minor: Out<c_int>) {
        call.device(device)?;
        major.put(call.model.compute_capability.0)?;
        minor.put(call.model.compute_capability.1)
    }

    fn nvmlDeviceGetBoardPartNumber(call, device: Handle, part: Out<c_char>, length: c_uint) {
        call.gpu(device)?;
        part.put_text(length, &format!("900-{:04X}-0000-000", call.model.pci_device))
    }

    fn nvmlDeviceGetVbiosVersion(call, device: Handle, version: Out<c_char>, length: c_uint) {
        call.gpu(device)?;
        version.put_text(length, "96.00.00.00.01")
    }

    fn nvmlDeviceGetNumGpuCores(call, device: Handle, cores: Out<c_uint>) {
        call.gpu(device)?;
        // FP32 cores of a multiprocessor: 64 on A100 and A30, 128 later
        let each = if call.model.architecture == Architecture::Ampere { 64 } else { 128 };
        cores.put(each * call.model.multiprocessors)
    }

    fn nvmlDeviceGetModuleId(call, device: Handle, id: Out<c_uint>) {
        id.put(call.gpu(device)?.index + 1)
    }
}

/// `1g.10gb` for a compute instance that fills its GPU instance, `1c.2g.20gb` for a smaller one.
pub(crate) fn slice_name(profile: &crate::model::Profile, compute: u32) -> String {
    if compute == profile.compute {
        profile.name.clone()
    } else {
        format!("{compute}c.{}", profile.name)
    }
}

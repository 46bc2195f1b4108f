//! MIG devices: compute instances seen as devices of their own.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::nvmlDeviceAttributes_t;

use super::{Out, entries};
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::resolve::{Device, Slice, slices};

/// A MIG device, for a function that takes nothing else.
fn mig(call: &Call, device: Handle) -> Result<Slice<'_>, Code> {
    match call.device(device)? {
        Device::Gpu(_) => Err(Code::InvalidArgument),
        Device::Mig(slice) => Ok(slice),
    }
}

entries! {
    fn nvmlDeviceIsMigDeviceHandle(call, device: Handle, is_mig: Out<c_uint>) {
        is_mig.put(matches!(call.device(device)?, Device::Mig(_)).into())
    }

    fn nvmlDeviceGetGpuInstanceId(call, device: Handle, id: Out<c_uint>) {
        id.put(mig(call, device)?.instance.id)
    }

    fn nvmlDeviceGetComputeInstanceId(call, device: Handle, id: Out<c_uint>) {
        id.put(mig(call, device)?.compute.id)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(call, device: Handle, count: Out<c_uint>) {
        call.gpu(device)?;
        count.put(call.model.max_mig_devices())
    }

    /// Indexes have holes where a device was destroyed.
    fn nvmlDeviceGetMigDeviceHandleByIndex(call, device: Handle, index: c_uint, found: Out<Handle>) {
        let gpu = call.gpu(device)?;
        if index >= call.model.max_mig_devices() {
            return Err(Code::InvalidArgument);
        }
        let mut slices = slices(&call.state);
        let slice = slices.find(|slice| slice.gpu.index == gpu.index && slice.compute.mig_index == index);
        found.put(slice.ok_or(Code::NotFound)?.compute.mig_handle())
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(call, device: Handle, parent: Out<Handle>) {
        parent.put(mig(call, device)?.gpu.handle())
    }

    fn nvmlDeviceGetAttributes_v2(call, device: Handle, attributes: Out<nvmlDeviceAttributes_t>) {
        let Device::Mig(slice) = call.device(device)? else { return Err(Code::NotSupported) };
        let profile = slice.instance.profile(call.model)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: profile.multiprocessors * slice.compute.size / profile.compute,
            sharedCopyEngineCount: profile.copy_engines,
            sharedDecoderCount: profile.decoders,
            sharedEncoderCount: 0,
            sharedJpegCount: profile.jpeg,
            sharedOfaCount: profile.ofa,
            gpuInstanceSliceCount: profile.compute,
            computeInstanceSliceCount: slice.compute.size,
            memorySizeMB: profile.memory_mib,
        })
    }
}

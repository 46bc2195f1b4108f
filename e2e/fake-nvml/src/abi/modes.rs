//! Modes: persistence and compute mode.

use std::ffi::c_uint;

use super::{Out, entries};
use crate::code::Code;
use crate::handle::Handle;
use crate::resolve;

/// Number of NVML's compute modes.
const COMPUTE_MODES: c_uint = 4;

entries! {
    fn nvmlDeviceGetPersistenceMode(call, device: Handle, mode: Out<c_uint>) {
        mode.put(call.gpu(device)?.persistence.into())
    }

    fn nvmlDeviceSetPersistenceMode(call, device: Handle, mode: c_uint) {
        if mode > 1 {
            return Err(Code::InvalidArgument);
        }
        call.change(|state| {
            let gpu = resolve::gpu(state, device)?.index as usize;
            state.gpus[gpu].persistence = mode == 1;
            Ok(())
        })
    }

    fn nvmlDeviceGetComputeMode(call, device: Handle, mode: Out<c_uint>) {
        mode.put(call.gpu(device)?.compute_mode)
    }

    /// Not in MIG mode.
    fn nvmlDeviceSetComputeMode(call, device: Handle, mode: c_uint) {
        if mode >= COMPUTE_MODES {
            return Err(Code::InvalidArgument);
        }
        call.change(|state| {
            let gpu = resolve::gpu(state, device)?;
            if gpu.mig {
                return Err(Code::NotSupported);
            }
            let index = gpu.index as usize;
            state.gpus[index].compute_mode = mode;
            Ok(())
        })
    }
}

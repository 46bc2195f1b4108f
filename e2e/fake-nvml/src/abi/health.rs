//! Health: ECC, retired pages, remapped rows. All belong to the GPU, none to a slice; nothing of it is ever bad
//! here (errors come as XIDs and recovery actions).

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::nvmlRowRemapperHistogramValues_t;

use super::{Out, entries};
use crate::code::Code;
use crate::handle::Handle;

/// Memory banks that can remap rows.
const BANKS: c_uint = 2560;

/// Numbers of NVML's error types, counter types, memory locations and retirement causes.
const ERROR_TYPES: c_uint = 2;
const COUNTER_TYPES: c_uint = 2;
const LOCATIONS: c_uint = 8;
const CAUSES: c_uint = 2;

entries! {
    fn nvmlDeviceGetEccMode(call, device: Handle, current: Out<c_uint>, pending: Out<c_uint>) {
        call.gpu(device)?;
        current.put(1)?;
        pending.put(1)
    }

    fn nvmlDeviceGetTotalEccErrors(
        call,
        device: Handle,
        error: c_uint,
        counter: c_uint,
        count: Out<c_ulonglong>,
    ) {
        call.gpu(device)?;
        if error >= ERROR_TYPES || counter >= COUNTER_TYPES {
            return Err(Code::InvalidArgument);
        }
        count.put(0)
    }

    fn nvmlDeviceGetMemoryErrorCounter(
        call,
        device: Handle,
        error: c_uint,
        counter: c_uint,
        location: c_uint,
        count: Out<c_ulonglong>,
    ) {
        call.gpu(device)?;
        if error >= ERROR_TYPES || counter >= COUNTER_TYPES || location >= LOCATIONS {
            return Err(Code::InvalidArgument);
        }
        count.put(0)
    }

    /// GPUs that remap rows retire no pages.
    fn nvmlDeviceGetRetiredPages(
        call,
        device: Handle,
        cause: c_uint,
        count: Out<c_uint>,
        _addresses: Out<c_ulonglong>,
    ) {
        call.gpu(device)?;
        if cause >= CAUSES {
            return Err(Code::InvalidArgument);
        }
        count.put(0)
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(call, device: Handle, pending: Out<c_uint>) {
        call.gpu(device)?;
        pending.put(0)
    }

    fn nvmlDeviceGetRemappedRows(
        call,
        device: Handle,
        corrected: Out<c_uint>,
        uncorrected: Out<c_uint>,
        pending: Out<c_uint>,
        failed: Out<c_uint>,
    ) {
        call.gpu(device)?;
        corrected.put(0)?;
        uncorrected.put(0)?;
        pending.put(0)?;
        failed.put(0)
    }

    fn nvmlDeviceGetRowRemapperHistogram(call, device: Handle, banks: Out<nvmlRowRemapperHistogramValues_t>) {
        call.gpu(device)?;
        banks.put(nvmlRowRemapperHistogramValues_t { max: BANKS, high: 0, partial: 0, low: 0, none: 0 })
    }
}

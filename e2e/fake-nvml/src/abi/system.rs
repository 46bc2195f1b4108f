//! System: start and end, versions, error texts.

use std::ffi::{c_char, c_int, c_uint};
use std::fs;

use nvml_wrapper_sys::bindings::nvmlSystemDriverBranchInfo_v1_t;

use super::{Out, entries, fixed, version};
use crate::code::Code;
use crate::library::{init, shutdown};

/// CUDA version that the driver speaks: 13.0.
const CUDA_VERSION: c_int = 13_000;

/// Functions that start the library.
pub(crate) const INITS: &[&str] = &["nvmlInit_v2", "nvmlInitWithFlags"];

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVML's")]
unsafe extern "C" fn nvmlInit_v2() -> c_uint {
    init("nvmlInit_v2")
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVML's")]
unsafe extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    init("nvmlInitWithFlags")
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVML's")]
unsafe extern "C" fn nvmlShutdown() -> c_uint {
    shutdown()
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVML's")]
unsafe extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    let text = match result {
        0 => c"Success",
        number => Code::from_number(number).unwrap_or(Code::Unknown).text(),
    };
    text.as_ptr()
}

entries! {
    fn nvmlSystemGetDriverVersion(call, text: Out<c_char>, length: c_uint) {
        text.put_text(length, &call.state.driver_version)
    }

    fn nvmlSystemGetNVMLVersion(call, text: Out<c_char>, length: c_uint) {
        text.put_text(length, &format!("13.{}", call.state.driver_version))
    }

    fn nvmlSystemGetCudaDriverVersion(_, version: Out<c_int>) {
        version.put(CUDA_VERSION)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(_, version: Out<c_int>) {
        version.put(CUDA_VERSION)
    }

    fn nvmlSystemGetDriverBranch(call, info: Out<nvmlSystemDriverBranchInfo_v1_t>, length: c_uint) {
        let wanted = version::<nvmlSystemDriverBranchInfo_v1_t>(1);
        if info.cast::<c_uint>().get()? != wanted {
            return Err(Code::ArgumentVersionMismatch);
        }
        let branch = format!("r{}_00", call.state.driver_version.split('.').next().unwrap_or("0"));
        if branch.len() >= length as usize {
            return Err(Code::InsufficientSize);
        }
        info.put(nvmlSystemDriverBranchInfo_v1_t { version: wanted, branch: fixed(&branch) })
    }

    fn nvmlSystemGetProcessName(_, pid: c_uint, name: Out<c_char>, length: c_uint) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NotFound)?;
        let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
        name.put_text(length, &String::from_utf8_lossy(program))
    }
}

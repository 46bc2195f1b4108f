//! Field values: many figures in one call, each with its own return code.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    field_id::*, nvmlFieldValue_t, nvmlValue_st, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

use super::load::{activity, energy_mj, power_mw};
use super::{Out, entries};
use crate::clock::now_ms;
use crate::code::Code;
use crate::handle::Handle;
use crate::library::Call;
use crate::state::Gpu;

/// A field's value.
enum Value {
    Int(c_uint),
    Long(c_ulonglong),
}

fn value(call: &Call, gpu: &Gpu, field: c_uint) -> Result<Value, Code> {
    let limit_mw = call.model.power_limit_w * 1000;
    Ok(match field {
        NVML_FI_DEV_ECC_CURRENT | NVML_FI_DEV_ECC_PENDING => Value::Int(1),
        NVML_FI_DEV_ECC_SBE_VOL_TOTAL..=NVML_FI_DEV_ECC_DBE_AGG_TOTAL => Value::Long(0),
        NVML_FI_DEV_RETIRED_PENDING | NVML_FI_DEV_RETIRED_SBE | NVML_FI_DEV_RETIRED_DBE => Value::Int(0),
        NVML_FI_DEV_REMAPPED_COR
        | NVML_FI_DEV_REMAPPED_UNC
        | NVML_FI_DEV_REMAPPED_PENDING
        | NVML_FI_DEV_REMAPPED_FAILURE => Value::Int(0),
        NVML_FI_DEV_MEMORY_TEMP => Value::Int((40.0 + 45.0 * activity(call, gpu)) as c_uint),
        NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION => Value::Long(energy_mj(call)),
        NVML_FI_DEV_PCIE_REPLAY_COUNTER => Value::Int(0),
        NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED => Value::Int(call.model.is_hopper_or_later().into()),
        NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE => Value::Int(1),
        NVML_FI_DEV_POWER_AVERAGE | NVML_FI_DEV_POWER_INSTANT => Value::Int(power_mw(call, gpu)),
        NVML_FI_DEV_POWER_CURRENT_LIMIT | NVML_FI_DEV_POWER_DEFAULT_LIMIT => Value::Int(limit_mw),
        NVML_FI_DEV_GET_GPU_RECOVERY_ACTION => Value::Int(gpu.recovery_action),
        _ => return Err(Code::NotSupported),
    })
}

entries! {
    fn nvmlDeviceGetFieldValues(call, device: Handle, count: c_int, values: Out<nvmlFieldValue_t>) {
        let gpu = call.gpu(device)?;
        let count = usize::try_from(count).map_err(|_| Code::InvalidArgument)?;
        for index in 0..count {
            let mut field = values.element(index).get()?;
            field.timestamp = (now_ms() * 1000) as i64;
            field.latencyUsec = 0;
            match value(call, gpu, field.fieldId) {
                Ok(Value::Int(number)) => {
                    field.nvmlReturn = 0;
                    field.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
                    field.value = nvmlValue_st { ullVal: number.into() };
                }
                Ok(Value::Long(number)) => {
                    field.nvmlReturn = 0;
                    field.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
                    field.value = nvmlValue_st { ullVal: number };
                }
                Err(code) => field.nvmlReturn = code as c_uint,
            }
            values.element(index).put(field)?;
        }
        Ok(())
    }
}

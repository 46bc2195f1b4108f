//! NVML's return codes: numbers, names and the text of `nvmlErrorString`.

use std::ffi::CStr;
use std::fmt;
use std::str::FromStr;

/// Writes the enum, its names and its texts from one table.
macro_rules! codes {
    ($($variant:ident = $number:literal, $name:literal, $text:literal;)*) => {
        /// Why a call was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the names are NVML's own")]
        pub enum Code { $($variant = $number,)* }

        impl Code {
            /// All codes, in NVML's order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name without `NVML_ERROR_`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What `nvmlErrorString` says.
            #[must_use]
            pub fn text(self) -> &'static CStr {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

codes! {
    Uninitialized = 1, "UNINITIALIZED", c"Uninitialized";
    InvalidArgument = 2, "INVALID_ARGUMENT", c"Invalid Argument";
    NotSupported = 3, "NOT_SUPPORTED", c"Not Supported";
    NoPermission = 4, "NO_PERMISSION", c"Insufficient Permissions";
    AlreadyInitialized = 5, "ALREADY_INITIALIZED", c"Already Initialized";
    NotFound = 6, "NOT_FOUND", c"Not Found";
    InsufficientSize = 7, "INSUFFICIENT_SIZE", c"Insufficient Size";
    InsufficientPower = 8, "INSUFFICIENT_POWER", c"Insufficient External Power";
    DriverNotLoaded = 9, "DRIVER_NOT_LOADED", c"Driver Not Loaded";
    Timeout = 10, "TIMEOUT", c"Timeout";
    IrqIssue = 11, "IRQ_ISSUE", c"Interrupt Request Issue";
    LibraryNotFound = 12, "LIBRARY_NOT_FOUND", c"NVML Shared Library Not Found";
    FunctionNotFound = 13, "FUNCTION_NOT_FOUND", c"Function Not Found";
    CorruptedInforom = 14, "CORRUPTED_INFOROM", c"Corrupted infoROM";
    GpuIsLost = 15, "GPU_IS_LOST", c"GPU is lost";
    ResetRequired = 16, "RESET_REQUIRED", c"GPU requires reset";
    OperatingSystem = 17, "OPERATING_SYSTEM", c"The operating system has blocked the request.";
    LibRmVersionMismatch = 18, "LIB_RM_VERSION_MISMATCH", c"RM has detected an NVML/RM version mismatch.";
    InUse = 19, "IN_USE", c"In use by another client";
    Memory = 20, "MEMORY", c"Insufficient Memory";
    NoData = 21, "NO_DATA", c"No data";
    VgpuEccNotSupported = 22, "VGPU_ECC_NOT_SUPPORTED", c"The requested vgpu operation is not available on the target device because ECC is enabled";
    InsufficientResources = 23, "INSUFFICIENT_RESOURCES", c"Insufficient Resources";
    FreqNotSupported = 24, "FREQ_NOT_SUPPORTED", c"Frequency Not Supported";
    ArgumentVersionMismatch = 25, "ARGUMENT_VERSION_MISMATCH", c"Argument version mismatch";
    Deprecated = 26, "DEPRECATED", c"Deprecated";
    NotReady = 27, "NOT_READY", c"Not Ready";
    GpuNotFound = 28, "GPU_NOT_FOUND", c"GPU Not Found";
    InvalidState = 29, "INVALID_STATE", c"Invalid State";
    ResetTypeNotSupported = 30, "RESET_TYPE_NOT_SUPPORTED", c"Reset Type Not Supported";
    Unknown = 999, "UNKNOWN", c"Unknown Error";
}

/// A text that is no return code.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an NVML return code; give its number (19) or its name (IN_USE)")]
pub struct BadCode(String);

impl Code {
    /// The code with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| *code as u32 == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), *self as u32)
    }
}

impl FromStr for Code {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        if let Ok(number) = text.parse() {
            return Self::from_number(number).ok_or_else(|| BadCode(text.to_owned()));
        }
        let name = text.to_ascii_uppercase().replace('-', "_");
        let name = name.strip_prefix("NVML_ERROR_").unwrap_or(&name);
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.name() == name)
            .ok_or_else(|| BadCode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_by_number_and_by_name() {
        assert_eq!("19".parse::<Code>().unwrap(), Code::InUse);
        assert_eq!("gpu-is-lost".parse::<Code>().unwrap(), Code::GpuIsLost);
        assert_eq!(
            "NVML_ERROR_INSUFFICIENT_RESOURCES".parse::<Code>().unwrap() as u32,
            23
        );
        assert!("31".parse::<Code>().unwrap_err().to_string().contains("\"31\""));
        assert!("broken".parse::<Code>().is_err());
    }
}

//! Opaque handles: what NVML calls pointers are numbers here, a kind in the top byte and an index or serial below.
//! A serial is never used twice, so the handle of a destroyed instance stays invalid for ever.

/// A handle as it crosses the C interface, for any of NVML's handle types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(*mut std::ffi::c_void);

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A GPU, by index.
    Gpu(u64),
    /// A MIG device, by the serial of its compute instance.
    Mig(u64),
    /// A GPU instance, by serial.
    GpuInstance(u64),
    /// A compute instance, by serial.
    ComputeInstance(u64),
    /// An event set of this process.
    EventSet(u64),
    /// A GPM sample of this process.
    Sample(u64),
}

/// Bits of the number below the kind.
const NUMBER_BITS: u32 = 56;

impl Handle {
    /// The handle of something.
    pub(crate) fn to(target: Target) -> Self {
        let (kind, number) = match target {
            Target::Gpu(number) => (0x11, number),
            Target::Mig(number) => (0x12, number),
            Target::GpuInstance(number) => (0x13, number),
            Target::ComputeInstance(number) => (0x14, number),
            Target::EventSet(number) => (0x15, number),
            Target::Sample(number) => (0x16, number),
        };
        Self(std::ptr::without_provenance_mut(
            (kind << NUMBER_BITS | number) as usize,
        ))
    }

    /// What it stands for, if it is a handle of ours.
    pub(crate) fn target(self) -> Option<Target> {
        let bits = self.0.addr() as u64;
        let number = bits & ((1 << NUMBER_BITS) - 1);
        Some(match bits >> NUMBER_BITS {
            0x11 => Target::Gpu(number),
            0x12 => Target::Mig(number),
            0x13 => Target::GpuInstance(number),
            0x14 => Target::ComputeInstance(number),
            0x15 => Target::EventSet(number),
            0x16 => Target::Sample(number),
            _ => return None,
        })
    }

    /// The pointer, for a field of one of NVML's structs.
    pub(crate) fn pointer<T>(self) -> *mut T {
        self.0.cast()
    }
}

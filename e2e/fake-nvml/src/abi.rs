//! NVML's functions, one file a subject, and what they are made with: a macro for entry points, and wrappers for
//! the pointers that C callers give.

pub(crate) mod compute_instances;
pub(crate) mod enumeration;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod gpm;
pub(crate) mod gpu_instances;
pub(crate) mod health;
pub(crate) mod identity;
pub(crate) mod load;
pub(crate) mod mig_devices;
pub(crate) mod modes;
pub(crate) mod processes;
pub(crate) mod profiles;
pub(crate) mod system;
pub(crate) mod topology;

use std::ffi::{CStr, c_char, c_uint};

use crate::code::Code;
use crate::library::Answer;

/// Defines exported functions. A body sees the call and the arguments and answers `Ok(())` or a code.
///
/// The contract, for all of them: a pointer argument is null, or points to memory of its type that nobody else
/// uses during the call; an array is as long as the count beside it says, or, where NVML's interface has no count
/// going in, as long as NVML's documentation asks for; a string ends with a NUL. That is NVML's own contract, and
/// what [`Out`] and [`Text`] rely on. Handles are never followed.
macro_rules! entries {
    ($($(#[$doc:meta])* fn $name:ident($call:pat $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the name is NVML's")]
            unsafe extern "C" fn $name($($arg: $type),*) -> ::std::ffi::c_uint {
                $crate::library::enter(stringify!($name), |$call| $body)
            }
        )*

        /// The functions of this file.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
pub(crate) use entries;

/// All exported functions that go through the call path (delays and failures can be set for them).
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    let files = [
        system::NAMES,
        system::INITS,
        enumeration::NAMES,
        identity::NAMES,
        profiles::NAMES,
        gpu_instances::NAMES,
        compute_instances::NAMES,
        mig_devices::NAMES,
        events::NAMES,
        gpm::NAMES,
        load::NAMES,
        fields::NAMES,
        processes::NAMES,
        health::NAMES,
        topology::NAMES,
        modes::NAMES,
    ];
    files.into_iter().flatten().copied()
}

/// A pointer that a caller gave for an answer (or for an answer that begins as a question: counts, versions).
/// Exists only as an argument of an entry point, under the contract of [`entries`].
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether the caller gave nothing.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same memory as another type. Only for types that NVML gives one pointer type for (versioned structs).
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Writes the answer.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by the contract it points to memory of type T that is ours for this call.
        // Unaligned, because an array inside a caller's packed struct may be.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes an array of answers.
    pub(crate) fn put_all(self, values: impl IntoIterator<Item = T>) -> Answer {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        for (index, value) in values.into_iter().enumerate() {
            // SAFETY: not null, so by the contract an array that is long enough for what is put into it: every
            // caller of `put_all` has checked the count, or NVML documents how long the array must be.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
        Ok(())
    }

    /// The place of one element of an array of answers.
    pub(crate) fn element(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Reads what the caller put there.
    pub(crate) fn get(self) -> Result<T, Code>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by the contract it points to a value of type T; all T read here are plain C data
        // without invalid bit patterns.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

impl Out<c_char> {
    /// Writes a text with its NUL into a buffer of this length.
    pub(crate) fn put_text(self, length: c_uint, text: &str) -> Answer {
        if self.is_null() {
            return Err(Code::InvalidArgument);
        }
        if text.len() >= length as usize {
            return Err(Code::InsufficientSize);
        }
        self.put_all(text.bytes().chain([0]).map(|byte| byte as c_char))
    }
}

/// A text that a caller gave.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text.
    pub(crate) fn get(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by the contract a string that ends with a NUL and does not change during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str()
            .map(str::to_owned)
            .map_err(|_| Code::InvalidArgument)
    }
}

/// A text as a fixed C array.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte as c_char;
    }
    array
}

/// NVML's version word of a struct: its size and a number.
pub(crate) const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// Puts a list in NVML's way with a count that goes in and out: too small (or no array) answers
/// INSUFFICIENT_SIZE and the count that is needed.
pub(crate) fn put_counted<T>(values: Vec<T>, count: Out<c_uint>, array: Out<T>) -> Answer {
    let room = count.get()? as usize;
    count.put(values.len() as c_uint)?;
    if values.is_empty() {
        return Ok(());
    }
    if array.is_null() || room < values.len() {
        return Err(Code::InsufficientSize);
    }
    array.put_all(values)
}

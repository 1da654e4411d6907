//! The structures and numbers of PMIx's C interface that cross the border: as they have been since PMIx 2.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
/// The scope of what is put: all processes of the job.
pub(crate) const GLOBAL: u8 = 3;
/// Stands for all processes of a job.
pub(crate) const RANK_WILDCARD: u32 = u32::MAX - 1;
/// Types of values.
pub(crate) const STRING: u16 = 3;
const INT: u16 = 6;
pub(crate) const UINT32: u16 = 14;
const BYTES: u16 = 27;
/// A long text, as PMIx 5.0 was seen to give it back.
const COMPRESSED: u16 = 42;
/// A key's bytes, at most, without the zero at its end.
pub(crate) const KEY_MAX: usize = 511;
const NAMESPACE_BYTES: usize = 256;

/// `pmix_proc_t`: a process by its job and number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    pub(crate) rank: u32,
}

impl Default for Proc {
    fn default() -> Proc {
        Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 }
    }
}

impl std::fmt::Debug for Proc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Proc {
    /// Another process of the same job.
    pub(crate) fn fellow(&self, rank: u32) -> Proc {
        Proc { rank, ..*self }
    }

    /// The number, or what it stands for.
    pub(crate) fn name(&self) -> String {
        if self.rank == RANK_WILDCARD { "the job".to_owned() } else { format!("rank {}", self.rank) }
    }
}

/// What a `pmix_value_t` holds. The largest of the many members have three words.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Data {
    string: *const c_char,
    integer: c_int,
    uint32: u32,
    _room: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
pub(crate) struct Value {
    kind: u16,
    data: Data,
}

impl Value {
    /// A text, for as long as `text` lives.
    pub(crate) fn string(text: &CStr) -> Value {
        let mut data = Data { _room: [0; 3] };
        data.string = text.as_ptr();
        Value { kind: STRING, data }
    }

    fn int(value: c_int) -> Value {
        let mut data = Data { _room: [0; 3] };
        data.integer = value;
        Value { kind: INT, data }
    }

    /// The number, or the type that there is and the one that there should be.
    pub(crate) fn as_u32(&self) -> Result<u32, (u16, u16)> {
        // SAFETY: the type says which member was written, and any bits are a number.
        if self.kind == UINT32 { Ok(unsafe { self.data.uint32 }) } else { Err((self.kind, UINT32)) }
    }

    /// Where the text is, or the type that there is and the one that there should be.
    pub(crate) fn as_string(&self) -> Result<*const c_char, (u16, u16)> {
        if self.kind != STRING {
            return Err((self.kind, STRING));
        }
        // SAFETY: the type says which member was written, and an address is read as an address.
        let text = unsafe { self.data.string };
        if text.is_null() { Err((0, STRING)) } else { Ok(text) }
    }
}

/// Gives a value back that the library made, whatever it holds.
///
/// # Safety
/// `value` comes from `PMIx_Get`, and is not used any more. `destruct` is the same library's, where it has
/// one.
pub(crate) unsafe fn release(value: *mut Value, destruct: Option<Destruct>) {
    if let Some(destruct) = destruct {
        // SAFETY: the caller's word that the value is live and this library's, which knows each type of its
        // own and frees what the value holds, not the value itself.
        unsafe { destruct(value) };
    } else {
        // SAFETY: the caller's word that it is a live value.
        let held = unsafe { &*value };
        if let STRING | BYTES | COMPRESSED = held.kind {
            // SAFETY: a text or the bytes in a value that the library made is from the C library's allocator,
            // and in no other hands; the address of either is the first word.
            unsafe { libc::free(held.data.string.cast_mut().cast::<c_void>()) };
        }
    }
    // SAFETY: so is the value itself, which nothing holds any more.
    unsafe { libc::free(value.cast::<c_void>()) };
}

/// `pmix_info_t`: a wish that goes with a call.
#[repr(C)]
pub(crate) struct Info {
    key: [c_char; KEY_MAX + 1],
    flags: u32,
    value: Value,
}

impl Info {
    /// That the call gives up after so long: whole seconds, one at least.
    pub(crate) fn timeout(within: Duration) -> Info {
        let seconds = c_int::try_from(within.as_secs().max(1)).unwrap_or(c_int::MAX);
        let mut key = [0; KEY_MAX + 1];
        for (to, from) in key.iter_mut().zip(b"pmix.timeout") {
            *to = *from as c_char;
        }
        Info { key, flags: 0, value: Value::int(seconds) }
    }
}

pub(crate) type Init = unsafe extern "C" fn(*mut Proc, *const Info, usize) -> Status;
pub(crate) type Finalize = unsafe extern "C" fn(*const Info, usize) -> Status;
pub(crate) type Put = unsafe extern "C" fn(u8, *const c_char, *const Value) -> Status;
pub(crate) type Commit = unsafe extern "C" fn() -> Status;
pub(crate) type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> Status;
pub(crate) type Get =
    unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> Status;
pub(crate) type Destruct = unsafe extern "C" fn(*mut Value);
pub(crate) type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;

// As a C compiler lays them out from PMIx's own headers on 64-bit machines.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Proc>() == 260 && offset_of!(Proc, rank) == 256);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
    assert!(size_of::<Info>() == 552 && offset_of!(Info, flags) == 512 && offset_of!(Info, value) == 520);
};

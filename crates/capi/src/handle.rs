//! Handles: what C has of a value of this library's.
//!
//! Each begins with a word that tells its kind, so that a handle of another kind, or memory that is none, is
//! refused in words. A handle that is freed gets another word first; that finds mistakes, and promises
//! nothing.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;

/// A kind of handles.
pub trait Kind {
    /// Its name in the header, without `sp_`.
    const NAME: &'static str;
    /// The word that its handles begin with.
    const WORD: u64;
}

/// The word of a kind: letters, so that a debugger shows them.
pub(crate) const fn word(letters: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*letters)
}

/// The word of a handle that was freed.
const FREED: u64 = word(b"sp freed");

/// A value that C has a pointer to.
#[repr(C)]
pub struct Handle<T> {
    word: AtomicU64,
    value: T,
}

impl<T: Kind> Handle<T> {
    /// Makes a handle, which C frees by another function.
    pub(crate) fn give(value: T) -> *mut Handle<T> {
        Box::into_raw(Box::new(Handle { word: AtomicU64::new(T::WORD), value }))
    }

    /// The value behind a handle.
    ///
    /// # Safety
    /// `handle` is null, or points to at least eight readable bytes. If these are those of such a handle, it
    /// is one that was given and not freed, and stays so for `'a`.
    pub(crate) unsafe fn get<'a>(handle: *const Handle<T>) -> Result<&'a T, Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        Ok(unsafe { &checked(handle.cast_mut())?.as_ref().value })
    }

    /// As [`Handle::get`], to change it.
    ///
    /// # Safety
    /// As for [`Handle::get`]; besides, no other thread uses the handle for `'a`.
    pub(crate) unsafe fn get_mut<'a>(handle: *mut Handle<T>) -> Result<&'a mut T, Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        Ok(unsafe { &mut checked(handle)?.as_mut().value })
    }

    /// Takes the value out, and frees the handle.
    ///
    /// # Safety
    /// As for [`Handle::get_mut`]; nobody uses the handle any more.
    pub(crate) unsafe fn take(handle: *mut Handle<T>) -> Result<T, Failure> {
        // SAFETY: the caller has promised what the header asks of these pointers.
        let handle = unsafe { checked(handle)? };
        // SAFETY: it was given by `give`, and nobody uses it any more.
        let handle = unsafe { Box::from_raw(handle.as_ptr()) };
        handle.word.store(FREED, Ordering::Relaxed);
        Ok(handle.value)
    }
}

/// A handle that begins as one of its kind does.
///
/// # Safety
/// It is null, or points to at least eight readable bytes.
#[inline(always)]
unsafe fn checked<T: Kind>(handle: *mut Handle<T>) -> Result<NonNull<Handle<T>>, Failure> {
    // SAFETY: the caller's promise; words of handles are only touched as atomics.
    let begins = || unsafe { handle.cast::<AtomicU64>().as_ref() }.map(|word| word.load(Ordering::Relaxed));
    match NonNull::new(handle) {
        Some(right) if handle.is_aligned() && begins() == Some(T::WORD) => Ok(right),
        _ => Err(refused(T::NAME, handle.addr(), if handle.is_aligned() { begins() } else { None })),
    }
}

/// A handle that is none of its kind: where it is, and what it begins with.
#[cold]
#[inline(never)]
fn refused(name: &str, handle: usize, begins: Option<u64>) -> Failure {
    let begins = begins.map(u64::to_ne_bytes);
    let kind = begins.as_ref().and_then(|word| word.strip_prefix(b"sp "));
    Failure::argument(match (handle, begins, kind) {
        (0, ..) => format!("the {name} is NULL"),
        (_, None, _) => format!("the {name} is no handle: {handle:#x}"),
        (_, _, Some(kind)) => {
            let kind = String::from_utf8_lossy(kind);
            let kind = kind.trim_end();
            format!("an sp_{name} was expected at {handle:#x}, and there is an sp_{kind}")
        }
        _ => format!("an sp_{name} was expected at {handle:#x}, and there is no handle"),
    })
}

//! The border that all functions share. A status comes back whatever happens, and the thread remembers the
//! error in words.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use standpipe::Code;

use crate::call::Inside;
use crate::failure::{Failure, NO_PEER, status};
use crate::handle::{Handle, Kind};
use crate::pointer;

/// The last error of a thread; its text as C reads it.
struct Last {
    failure: Failure,
    text: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Notes a failure as this thread's last. Returns its status.
pub(crate) fn note(failure: Failure) -> c_int {
    let status = status(failure.code);
    let mut text = failure.text.clone().into_bytes();
    text.retain(|byte| *byte != 0);
    text.push(0);
    // A thread that is ending has nobody to tell.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Last { failure, text }));
    status
}

/// Runs a function's body. A panic becomes a status, errors are noted, and `errno` stays as it was.
pub(crate) fn call(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    or(note, body)
}

/// As [`call`], for functions that return something else than a status.
pub(crate) fn or<R>(failed: impl FnOnce(Failure) -> R, body: impl FnOnce() -> Result<R, Failure>) -> R {
    // SAFETY: any thread may ask where its own number lies.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the number is there as long as the thread is.
    let before = unsafe { errno.read() };
    let _inside = Inside::enter();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    // SAFETY: as above: this is still the same thread.
    unsafe { errno.write(before) };
    result.unwrap_or_else(failed)
}

/// Frees any handle but null; a mistake is noted.
pub(crate) fn free<T: Kind>(handle: *mut Handle<T>) {
    let noted = |failure| {
        note(failure);
    };
    or(noted, || {
        if !handle.is_null() {
            // SAFETY: the header asks for a handle that nobody uses any more, and that was not freed.
            drop(unsafe { Handle::take(handle)? });
        }
        Ok(())
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let what = said.unwrap_or("it said nothing");
    Failure::new(
        Code::Panicked,
        format!("a function that the library ran, or the library, broke off: {what}"),
    )
}

/// `sp_error` of the header.
#[repr(C)]
pub struct LastError {
    size: usize,
    status: i32,
    peer: u32,
    addr: u64,
    len: u64,
    given: u64,
    expected: u64,
    memory: u32,
    rights: u32,
    text: [u8; 512],
}

exported! {
    /// `sp_error_text` of the header.
    fn sp_error_text() -> *const c_char {
        let said = LAST.try_with(|last| last.borrow().as_ref().map(|last| last.text.as_ptr().cast()));
        said.ok().flatten().unwrap_or(c"".as_ptr())
    }
}

exported! {
    /// `sp_last_error` of the header.
    fn sp_last_error(error: *mut LastError) -> c_int {
        // The call must not change what it tells.
        or(
            |failure| status(failure.code),
            || {
                let plain = LastError {
                    size: size_of::<LastError>(),
                    status: 0,
                    peer: NO_PEER,
                    addr: 0,
                    len: 0,
                    given: 0,
                    expected: 0,
                    memory: 0,
                    rights: 0,
                    text: [0; 512],
                };
                let said = LAST.with(|last| {
                    let last = last.borrow();
                    let Some(Last { failure, text }) = last.as_ref() else { return plain };
                    let mut shown = [0; 512];
                    let most = cut(text, shown.len() - 1);
                    shown[..most].copy_from_slice(&text[..most]);
                    LastError {
                        status: status(failure.code),
                        peer: failure.peer,
                        addr: failure.addr,
                        len: failure.len,
                        given: failure.given,
                        expected: failure.expected,
                        memory: failure.memory,
                        rights: failure.rights,
                        text: shown,
                        ..plain
                    }
                });
                let given = said.status;
                // SAFETY: the caller has promised what the header asks of these pointers.
                unsafe { pointer::write_sized(error, said, "error")? };
                Ok(given)
            },
        )
    }
}

/// How many bytes of a text of characters there are, at most so many, without a part of a character.
fn cut(text: &[u8], most: usize) -> usize {
    let len = text.len().saturating_sub(1).min(most);
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (0..=len).rev().find(|at| !is_inside(*at)).unwrap_or(0)
}

/// A status's name and meaning, as one text that C reads.
struct Words(Vec<(c_int, std::ffi::CString)>);

exported! {
    /// `sp_strerror` of the header.
    fn sp_strerror(given: c_int) -> *const c_char {
        static WORDS: std::sync::OnceLock<Words> = std::sync::OnceLock::new();
        const NONE: &CStr = c"unknown: this version of the library has no such status";
        let said = |code: &Code| {
            let text = format!("{code}: {}", code.meaning());
            (status(*code), std::ffi::CString::new(text).unwrap_or_default())
        };
        or(
            |_| NONE.as_ptr(),
            || {
                let words = WORDS.get_or_init(|| {
                    let ok = (0, c"ok: Nothing has gone wrong.".to_owned());
                    Words(Code::ALL.iter().map(said).chain([ok]).collect())
                });
                let found = words.0.iter().find(|(status, _)| *status == given);
                Ok(found.map_or(NONE.as_ptr(), |(_, text)| text.as_ptr()))
            },
        )
    }
}

exported! {
    /// `sp_version` of the header.
    fn sp_version() -> u32 {
        let mut numbers = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        next() * 1_000_000 + next() * 1000 + next()
    }
}

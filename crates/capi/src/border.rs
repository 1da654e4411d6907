//! What all functions share: a status comes back whatever happens, and the thread remembers the error in words.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use standpipe::{
    CloseError, Code, ConfigError, ConnectError, DirectoryError, Error, GrantError, HeapError, Memory,
    OpenError, PinError, Rights, rendezvous,
};

use crate::call::Inside;
use crate::pointer;

/// No one peer.
pub(crate) const NO_PEER: u32 = u32::MAX;

/// A status as C sees it.
pub(crate) const fn status(code: Code) -> c_int {
    -(code.number() as c_int)
}

/// What went wrong, as `sp_last_error` tells it.
#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    text: String,
    peer: u32,
    addr: u64,
    len: u64,
    given: u64,
    expected: u64,
    memory: u32,
    rights: u32,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into(),
            peer: NO_PEER,
            addr: 0,
            len: 0,
            given: 0,
            expected: 0,
            memory: 0,
            rights: 0,
        }
    }

    /// An argument that the call does not take.
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Code::Argument, text)
    }

    /// A number that is none of those that an argument may be.
    pub(crate) fn value(what: &str, given: i64, range: &str) -> Failure {
        Failure { given: given as u64, ..Failure::argument(format!("{what} is {given}, and may be {range}")) }
    }

    /// Room that is too small.
    pub(crate) fn room(given: usize, expected: usize) -> Failure {
        let text = format!("the room has {given} bytes, and {expected} are needed");
        Failure { given: given as u64, expected: expected as u64, ..Failure::new(Code::Length, text) }
    }
}

/// Bits of the rights, as C sees them.
pub(crate) fn rights_bits(rights: Rights) -> u32 {
    match rights {
        Rights::Read => 1,
        Rights::Write => 2,
        Rights::ReadWrite => 3,
    }
}

/// The number of a memory, as C sees it.
fn memory_number(memory: Memory) -> u32 {
    match memory {
        Memory::Heap => 1,
        Memory::Granted => 3,
        _ => 0,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let plain = Failure::new(error.code(), error.to_string());
        match error {
            Error::PeerLost { peer }
            | Error::Timeout { peer, .. }
            | Error::Cancelled { peer }
            | Error::NotConnected { peer }
            | Error::HandlersDiffer { peer, .. }
            | Error::NoSuchHandler { peer, .. }
            | Error::Protocol { peer, .. }
            | Error::Team { peer, .. } => Failure { peer, ..plain },
            Error::Fault { peer, memory, addr, len } => {
                Failure { peer, memory: memory_number(memory), addr, len, ..plain }
            }
            Error::NotExposed { peer, addr, len, rights } => {
                Failure { peer, addr, len, rights: rights_bits(rights), ..plain }
            }
            Error::Revoked { peer, offset, len, .. } => {
                Failure { peer, memory: memory_number(Memory::Granted), addr: offset, len, ..plain }
            }
            Error::NotGranted { peer, rights, offset, len, .. } => {
                let (memory, rights) = (memory_number(Memory::Granted), rights_bits(rights));
                Failure { peer, memory, rights, addr: offset, len, ..plain }
            }
            Error::LocalFault { addr, len } => Failure { addr, len, ..plain },
            Error::NoSuchPeer { peer, size } => Failure { peer, expected: size.into(), ..plain },
            Error::NoSuchRoot { root, size } => {
                Failure { given: root.into(), expected: size.into(), ..plain }
            }
            Error::Length { given, expected, .. } => Failure { given, expected, ..plain },
            Error::PayloadTooLong { given, most } => Failure { given, expected: most, ..plain },
            Error::QueueFull { capacity } => Failure { expected: capacity, ..plain },
            Error::PayloadsKept { most } | Error::HandlersFull { most } | Error::TeamsFull { most } => {
                Failure { expected: most, ..plain }
            }
            Error::Unaligned { peer, offset, size } => {
                Failure { peer, memory: memory_number(Memory::Heap), addr: offset, len: size, ..plain }
            }
            Error::Overlap { start, end } => Failure { given: start, expected: end, ..plain },
            Error::Elsewhere { peer, expected } => {
                Failure { peer, given: peer.into(), expected: expected.into(), ..plain }
            }
            Error::PartOfElement { given, each, .. } => Failure { given, expected: each, ..plain },
            Error::Versions { peer, ours, theirs, .. } => {
                Failure { peer, given: theirs.into(), expected: ours.into(), ..plain }
            }
            _ => plain,
        }
    }
}

/// Errors of which the text says all.
macro_rules! by_text {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(error.code(), error.to_string())
            }
        })*
    };
}

by_text!(
    ConfigError,
    ConnectError,
    DirectoryError,
    HeapError,
    OpenError,
    PinError,
    rendezvous::RendezvousError
);

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Failure {
        match error {
            CloseError::Refused(inner) | CloseError::Undone(inner) => {
                let text = CloseError::Undone(inner.clone()).to_string();
                Failure { text, ..Failure::from(inner) }
            }
            other => Failure::new(other.code(), other.to_string()),
        }
    }
}

impl From<GrantError> for Failure {
    fn from(error: GrantError) -> Failure {
        let plain = Failure::new(error.code(), error.to_string());
        match error {
            GrantError::StillInUse { peer, .. } => Failure { peer, ..plain },
            _ => plain,
        }
    }
}

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
    let errno = errno();
    let _inside = Inside::enter();
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    set_errno(errno);
    result.unwrap_or_else(failed)
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

fn errno() -> c_int {
    // SAFETY: it is this thread's own number, which is there as long as the thread is.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
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

/// `sp_error_text` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn sp_error_text() -> *const c_char {
    let said = LAST.try_with(|last| last.borrow().as_ref().map(|last| last.text.as_ptr().cast()));
    said.ok().flatten().unwrap_or(c"".as_ptr())
}

/// `sp_last_error` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_last_error(error: *mut LastError) -> c_int {
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
            // SAFETY: the caller's promise.
            unsafe { pointer::write_sized(error, said, "error")? };
            Ok(given)
        },
    )
}

/// How many bytes of a text of characters there are, at most so many, without a part of a character.
fn cut(text: &[u8], most: usize) -> usize {
    let len = text.len().saturating_sub(1).min(most);
    let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (0..=len).rev().find(|at| !is_inside(*at)).unwrap_or(0)
}

/// A status's name and meaning, as one text that C reads.
struct Words(Vec<(c_int, std::ffi::CString)>);

/// `sp_strerror` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn sp_strerror(given: c_int) -> *const c_char {
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

/// `sp_version` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn sp_version() -> u32 {
    let mut numbers = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    next() * 1_000_000 + next() * 1000 + next()
}

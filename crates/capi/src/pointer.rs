//! Pointers that C passes: read and written here, after they were looked at.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use standpipe::{AllMemory, Remote};

use crate::failure::Failure;

/// The promise of a program that calls this interface: it vouches for the addresses that it passes.
pub(crate) fn memory() -> AllMemory {
    // SAFETY: it is used for the addresses alone that a C program passes, here and at its peers. The header
    // says which memory those must be, and for how long.
    unsafe { AllMemory::promised() }
}

/// `sp_remote` of the header.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CRemote {
    pub(crate) peer: u32,
    pub(crate) memory: u32,
    pub(crate) at: u64,
}

impl CRemote {
    pub(crate) fn of(remote: Remote) -> CRemote {
        let [peer, at] = remote.to_words();
        CRemote { peer: peer as u32, memory: (peer >> 32) as u32, at }
    }

    /// The place that it names.
    #[inline]
    pub(crate) fn remote(self) -> Result<Remote, Failure> {
        let words = [u64::from(self.peer) | u64::from(self.memory) << 32, self.at];
        // SAFETY: whoever calls this interface vouches for the addresses of its peers.
        let remote = unsafe { Remote::from_words(words) };
        remote.ok_or_else(|| no_place(self.memory))
    }
}

#[cold]
#[inline(never)]
fn no_place(memory: u32) -> Failure {
    Failure::argument(format!("an sp_remote's memory is {memory:#x}, which is that of no place"))
}

/// A time that a call may take.
pub(crate) fn duration(nanos: u64) -> Duration {
    match nanos {
        u64::MAX => Duration::MAX,
        nanos => Duration::from_nanos(nanos),
    }
}

/// A text.
///
/// # Safety
/// `text` is null, or points to bytes that end with a zero, and stay as they are for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: the caller has promised what the header asks of these pointers.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Failure::argument(format!("{what} is no UTF-8: {bytes:?}")))
}

/// Bytes that are read. Of none, the pointer may be anything.
///
/// # Safety
/// There are `len` values from `start` on, which stay as they are for `'a`; or `start` is null.
pub(crate) unsafe fn slice<'a, T>(start: *const T, len: usize, what: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    is_there(start, len, what)?;
    // SAFETY: the caller has promised what the header asks of these pointers.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// Bytes that are written.
///
/// # Safety
/// As for [`slice()`]; they may be written, and nobody else uses them for `'a`.
pub(crate) unsafe fn slice_mut<'a, T>(start: *mut T, len: usize, what: &str) -> Result<&'a mut [T], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    is_there(start, len, what)?;
    // SAFETY: the caller has promised what the header asks of these pointers.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

/// Refuses what can be no array of so many values.
#[inline]
pub(crate) fn is_there<T>(start: *const T, len: usize, what: &str) -> Result<(), Failure> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    let fits = bytes.is_some_and(|bytes| start.addr().checked_add(bytes).is_some());
    if len == 0 || (fits && !start.is_null() && start.is_aligned()) {
        return Ok(());
    }
    Err(not_there(start.addr(), start.is_aligned(), len, what))
}

#[cold]
#[inline(never)]
fn not_there(start: usize, is_aligned: bool, len: usize, what: &str) -> Failure {
    Failure::argument(match start {
        0 => format!("{what} is NULL, with a length of {len}"),
        _ if !is_aligned => format!("{what} is not aligned: {start:#x}"),
        _ => format!("{what} has {len} entries, more than memory has room for"),
    })
}

/// Writes an output.
///
/// # Safety
/// `into` is null, or a `T` may be written there.
pub(crate) unsafe fn put<T>(into: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if into.is_null() {
        return Err(Failure::argument(format!("{what}, where the result goes, is NULL")));
    }
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { into.write_unaligned(value) };
    Ok(())
}

/// Writes an output that the caller may leave out.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn put_if<T>(into: *mut T, value: T) {
    if !into.is_null() {
        // SAFETY: the caller has promised what the header asks of these pointers.
        unsafe { into.write_unaligned(value) };
    }
}

/// Refuses a place for a result before anything is done for it.
pub(crate) fn needs<T>(into: *mut T, what: &str) -> Result<(), Failure> {
    if into.is_null() {
        return Err(Failure::argument(format!("{what}, where the result goes, is NULL")));
    }
    Ok(())
}

/// Gives bytes to a caller that has room for some, and says how many there are. With a zero byte behind them
/// where they are a text.
///
/// # Safety
/// `into` may be written for `room` bytes, and `len` is null or may be written.
pub(crate) unsafe fn give(
    bytes: &[u8],
    is_text: bool,
    into: *mut u8,
    room: usize,
    len: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { put_if(len, bytes.len()) };
    let needed = bytes.len() + usize::from(is_text);
    if room < needed {
        return Err(Failure::room(room, needed));
    }
    // SAFETY: the caller has promised what the header asks of these pointers.
    let into = unsafe { slice_mut(into, needed, "the room")? };
    into[..bytes.len()].copy_from_slice(bytes);
    if let Some(end) = into.get_mut(bytes.len()) {
        *end = 0;
    }
    Ok(())
}

/// A struct of parameters that begins with its size: as many of its fields as the caller has, the others 0.
///
/// # Safety
/// `given` is null, or points to a size and as many bytes as that says, all in all.
pub(crate) unsafe fn sized<T: Params>(given: *const T) -> Result<Option<T>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    let name = T::NAME;
    if !given.is_aligned() {
        return Err(Failure::argument(format!("{name} is not aligned: {given:p}")));
    }
    // SAFETY: the caller has promised what the header asks of these pointers.
    let size = unsafe { given.cast::<usize>().read() };
    // A caller that forgot it mostly has 0, or anything, there.
    if !(T::LEAST..=4096).contains(&size) {
        let text = format!("{name}.size is {size}: set it to sizeof({name}), {}", size_of::<T>());
        return Err(Failure::argument(text));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller has promised what the header asks of these pointers. A later version's fields lie
    // beyond, and ask for nothing if they are 0.
    let beyond = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(known), size - known) };
    if beyond.iter().any(|byte| *byte != 0) {
        let text =
            format!("{name} has a field that this version of the library does not know: its size is {size}");
        return Err(Failure::argument(text));
    }
    // SAFETY: all bytes being 0 is a value of each such struct, and so are those that the caller has.
    Ok(Some(unsafe {
        let mut read = std::mem::zeroed::<T>();
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut read).cast::<u8>(), known);
        read
    }))
}

/// As [`sized`], where there must be one.
///
/// # Safety
/// As for [`sized`].
pub(crate) unsafe fn sized_or_refused<T: Params>(given: *const T) -> Result<T, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    unsafe { sized(given)? }.ok_or_else(|| Failure::argument(format!("the {} is NULL", T::NAME)))
}

/// Structs of the header that begin with their size, of integers and pointers alone.
///
/// # Safety
/// All bytes being 0 is a value of it, and so is any in integers and pointers.
pub(crate) unsafe trait Params: Copy {
    /// Its name in the header.
    const NAME: &'static str;
    /// The size that its first version had.
    const LEAST: usize;
}

/// Writes a struct of results as far as the size says that it has in front.
///
/// # Safety
/// `into` is null, or points to a size and as many bytes as that says, all in all.
pub(crate) unsafe fn write_sized<T>(into: *mut T, value: T, what: &str) -> Result<(), Failure> {
    needs(into, what)?;
    // SAFETY: the caller has promised what the header asks of these pointers.
    let size = unsafe { into.cast::<usize>().read_unaligned() };
    if size < 2 * size_of::<usize>() || size > 4096 {
        let text = format!("{what}->size is {size}: set it to the struct's sizeof, {}", size_of::<T>());
        return Err(Failure::argument(text));
    }
    let known = size.min(size_of::<T>());
    let from = (&raw const value).cast::<u8>();
    let head = size_of::<usize>();
    // SAFETY: the caller has promised what the header asks of these pointers. The size stays as the caller
    // has it.
    unsafe { std::ptr::copy_nonoverlapping(from.add(head), into.cast::<u8>().add(head), known - head) };
    Ok(())
}

//! The same layer in Berkeley's spelling: `gam.h`. Words are as wide as pointers, so that programs may send
//! those as the ints that they once were. Numbers of processes are unsigned in that header; an int tells of
//! those below 0 as they were written.

use std::ffi::{c_char, c_double, c_int, c_long, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use layers::gam::{Arguments, Gam, GamError};
use standpipe::MEDIUM_MAX;

use super::forms::words_forms;
use super::layer::{Called, FAILED, at, close, enable, get, has_been_open, is_open, number, reply};
use super::layer::{reply_xfer, request, store, store_async, with_layer, words};
use super::own;
use super::program::Pointer;
use crate::border::{complain, end};

/// The most bytes of a call. Programs cut by it what they send by `gam_request`, too, which carries no more
/// over a network: so a store in this spelling moves no more, either.
const MOST: c_int = MEDIUM_MAX as c_int;

words_forms! { request, c_int:
    gam_request_0();
    gam_request_1(a);
    gam_request_2(a, b);
    gam_request_3(a, b, c);
    gam_request_4(a, b, c, d);
}

words_forms! { reply, c_int:
    gam_reply_0();
    gam_reply_1(a);
    gam_reply_2(a, b);
    gam_reply_3(a, b, c);
    gam_reply_4(a, b, c, d);
}

/// Opens the layer; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_enable() -> c_int {
    if has_been_open("gam_enable") {
        return FAILED;
    }
    match enable("gam_enable", None, own::addresses()) {
        Ok(()) => 0,
        Err(error) => end("gam_enable", error),
    }
}

/// Leaves; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_disable() -> c_int {
    close("gam_disable")
}

/// Leaves, and ends the process; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_exit(status: c_int) {
    // A program that fails ends for all others, which then find it lost.
    if status == 0 && is_open() {
        close("gam_exit");
    }
    std::process::exit(status)
}

/// Runs handlers; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_poll() -> c_int {
    with_layer("gam_poll", Gam::poll)
}

/// How many processes there are; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_procs() -> c_int {
    number("gam_procs", Gam::procs)
}

/// This process's number; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_my_proc() -> c_int {
    number("gam_my_proc", Gam::my_proc)
}

/// The most bytes of a store or get; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_max_size() -> c_int {
    MOST
}

/// Waits for all processes; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_barrier() -> c_int {
    with_layer("gam_barrier", Gam::barrier)
}

/// The same, by the name of Berkeley's library for Myrinet; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn lam_sync_all() -> c_int {
    match with_layer("lam_sync_all", Gam::barrier) {
        0 => 1,
        failed => failed,
    }
}

/// Waits a little, and runs handlers; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_sleep() -> c_int {
    with_layer("gam_sleep", Gam::poll_idle)
}

/// As [`gam_wait`]; see the header.
///
/// # Safety
/// As for [`gam_wait`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gam_poll_wait(flag: *mut c_int, count: c_int) -> c_int {
    // SAFETY: the caller promises that `flag` is an int of the program's, which handlers and this call alone
    // change, as gam_wait wants it.
    unsafe { gam_wait(flag, count) }
}

/// Waits until a counter is at least so much, and takes that much off it; see the header.
///
/// # Safety
/// `flag` is the address of an int of the program's, which its handlers and this call alone change.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gam_wait(flag: *mut c_int, count: c_int) -> c_int {
    if flag.is_null() || count < 0 {
        complain(
            "gam_wait",
            format_args!("{count} at {flag:?}: a count of 0 or more, of a counter, is needed"),
        );
        return FAILED;
    }
    // SAFETY: the caller promises an int that lives as long as this call, and that handlers alone change
    // meanwhile. They count it up, on this thread in the poll below, or on one that calls another layer.
    let flag = unsafe { AtomicI32::from_ptr(flag) };
    while flag.load(Ordering::Acquire) < count {
        let polled = with_layer("gam_wait", Gam::poll_idle);
        if polled != 0 {
            return polled;
        }
    }
    flag.fetch_sub(count, Ordering::AcqRel);
    0
}

/// A request with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_request_fd(dest: c_int, function: Pointer, d: c_double, a: c_long, b: c_long) -> c_int {
    let arguments = Arguments::DoubleWords(d, a.cast_unsigned(), b.cast_unsigned());
    with_layer("gam_request_fd", |layer| layer.request(dest.into(), at(layer, function), &arguments))
}

/// A reply with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_reply_fd(dest: c_int, function: Pointer, d: c_double, a: c_long, b: c_long) -> c_int {
    let arguments = Arguments::DoubleWords(d, a.cast_unsigned(), b.cast_unsigned());
    with_layer("gam_reply_fd", |layer| layer.reply(dest.into(), at(layer, function), &arguments))
}

/// Says that there are no bytes where some are to be sent from.
fn is_null(name: &str, buffer: *const c_char, len: c_int) -> bool {
    let missing = buffer.is_null() && len > 0;
    if missing {
        complain(name, format_args!("{len} bytes at NULL"));
    }
    missing
}

/// Says that a call would move more bytes than [`gam_max_size`] says.
fn is_too_long(name: &str, len: c_int) -> bool {
    let is_so = len > MOST;
    if is_so {
        let bytes = len.into();
        complain(name, GamError::Size { bytes, most: MEDIUM_MAX });
    }
    is_so
}

/// A request with bytes in a buffer of the system; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_request(
    dest: c_int,
    function: Pointer,
    buffer: *const c_char,
    len: c_int,
    a: c_long,
    b: c_long,
) -> c_int {
    if is_null("gam_request", buffer, len) {
        return FAILED;
    }
    let (bytes, words) = ((buffer.cast(), len.into()), words([a, b]));
    with_layer("gam_request", |layer| layer.request_bytes(dest.into(), at(layer, function), bytes, words))
}

/// A reply with bytes in a buffer of the system; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_reply(
    dest: c_int,
    function: Pointer,
    buffer: *const c_char,
    len: c_int,
    a: c_long,
    b: c_long,
) -> c_int {
    if is_null("gam_reply", buffer, len) {
        return FAILED;
    }
    let (bytes, words) = ((buffer.cast(), len.into()), words([a, b]));
    with_layer("gam_reply", |layer| layer.reply_bytes(dest.into(), at(layer, function), bytes, words))
}

/// Replies with bytes for an address of the requester; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_reply_xfer(
    dest: c_int,
    local: *const c_void,
    remote: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
) -> c_int {
    if is_too_long("gam_reply_xfer", len) {
        return FAILED;
    }
    reply_xfer("gam_reply_xfer", dest.into(), (local, remote, len), (function, arg))
}

/// Stores, and runs a handler at the receiver; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_store(
    dest: c_int,
    local: *const c_void,
    remote: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
) -> c_int {
    if is_too_long("gam_store", len) {
        return FAILED;
    }
    store("gam_store", dest.into(), (local, remote, len), (function, arg))
}

/// Stores, and runs another function here when the source is free; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_store_async(
    dest: c_int,
    local: *const c_void,
    remote: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
    end_function: Pointer,
    end_arg: *mut c_void,
) -> c_int {
    if is_too_long("gam_store_async", len) {
        return FAILED;
    }
    let end: Called = (end_function, end_arg);
    store_async("gam_store_async", dest.into(), (local, remote, len), (function, arg), end)
}

/// Gets, and runs a handler here; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_get(
    dest: c_int,
    remote: *const c_void,
    local: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
) -> c_int {
    if is_too_long("gam_get", len) {
        return FAILED;
    }
    get("gam_get", dest.into(), (remote, local, len), (function, arg))
}

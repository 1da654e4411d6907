//! The layer in ICSI's spelling: `am.h`.

use std::ffi::{c_char, c_double, c_int, c_long, c_uint, c_void};
use std::time::Duration;

use layers::gam::{Arguments, Gam, GamError, MAX_SIZE};

use super::forms::words_forms;
use super::layer::{at, poll_of_wait, store, store_async, with_layer};
use super::layer::{close, enable, get, has_been_open, is_open, number, reply, request};
use super::own;
use super::program::Pointer;
use crate::border::end;

words_forms! { request, c_int:
    am_request_0();
    am_request_1(a);
    am_request_2(a, b);
    am_request_3(a, b, c);
    am_request_4(a, b, c, d);
}

words_forms! { reply, c_int:
    am_reply_0();
    am_reply_1(a);
    am_reply_2(a, b);
    am_reply_3(a, b, c);
    am_reply_4(a, b, c, d);
}

/// Threads of a process that take part; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_my_cluster_size() -> c_int {
    1
}

/// Opens the layer; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_enable(procs: c_int, _argc: c_int, _argv: *mut *mut c_char) {
    if has_been_open("am_enable") {
        return;
    }
    if let Err(error) = enable("am_enable", Some(procs), own::addresses()) {
        end("am_enable", error);
    }
}

/// Leaves; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_disable() {
    close("am_disable");
}

/// This process's number; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_my_proc() -> c_int {
    number("am_my_proc", Gam::my_proc)
}

/// How many processes there are; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_procs() -> c_int {
    number("am_procs", Gam::procs)
}

/// The most bytes of a store or get; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_max_size() -> c_int {
    MAX_SIZE as c_int
}

/// Runs handlers; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_poll() {
    with_layer("am_poll", Gam::poll);
}

/// A poll of a loop that waits; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_thread_poll() {
    poll_of_wait("am_wait_for");
}

/// Runs handlers for so many seconds; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_sleep(seconds: c_uint) -> c_uint {
    let mut in_handler = false;
    let sleep = |layer: &Gam<_>| {
        let slept = layer.sleep(Duration::from_secs(seconds.into()));
        in_handler = matches!(slept, Err(GamError::InHandler { .. }));
        slept
    };
    if is_open() && with_layer("am_sleep", sleep) == 0 {
        return 0;
    }
    if in_handler {
        return seconds;
    }
    // The header gives programs this for the system's, so that it sleeps also where no handlers can run.
    // SAFETY: the call takes a number, gives a number, and touches no memory of the program.
    unsafe { libc::sleep(seconds) }
}

/// A request with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_request_df(dest: c_int, function: Pointer, a: c_long, b: c_long, d: c_double) -> c_int {
    let arguments = Arguments::WordsDouble(a.cast_unsigned(), b.cast_unsigned(), d);
    with_layer("am_request_df", |layer| layer.request(dest.into(), at(layer, function), &arguments))
}

/// A reply with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_reply_df(dest: c_int, function: Pointer, a: c_long, b: c_long, d: c_double) -> c_int {
    let arguments = Arguments::WordsDouble(a.cast_unsigned(), b.cast_unsigned(), d);
    with_layer("am_reply_df", |layer| layer.reply(dest.into(), at(layer, function), &arguments))
}

/// Stores, and runs a handler at the receiver; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_store(
    dest: c_int,
    local: *const c_void,
    remote: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
) -> c_int {
    store("am_store", dest.into(), (local, remote, len), (function, arg))
}

/// Stores, and runs another function here when the source is free; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_store_async(
    dest: c_int,
    local: *const c_void,
    remote: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
    end_function: Pointer,
    end_arg: *mut c_void,
) -> c_int {
    let moved = (local, remote, len);
    store_async("am_store_async", dest.into(), moved, (function, arg), (end_function, end_arg))
}

/// Gets, and runs a handler here; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_get(
    dest: c_int,
    remote: *const c_void,
    local: *mut c_void,
    len: c_int,
    function: Pointer,
    arg: *mut c_void,
) -> c_int {
    get("am_get", dest.into(), (remote, local, len), (function, arg))
}

//! The layer as both headers see it: opened once, called with pointers, left once.

use std::ffi::{c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use layers::gam::{Arguments, Function, Gam, GamError};
use standpipe::Node;
use standpipe::bootstrap::{RANKS_MAX, launched_by};

use super::layout::Agreed;
use super::processes;
use super::program::{CProgram, Pointer};
use super::variables;
use crate::border::{complain, end, has_opened, memory, open_node};

/// The layer, from the first `am_enable` on.
static LAYER: OnceLock<Gam<CProgram>> = OnceLock::new();

/// Whether `am_disable` has been called.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The process that has opened it. One that is forked later has a copy that it cannot use.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// A call that fails returns this; the manuals name no other value than 0.
pub(super) const FAILED: c_int = -1;

/// Opens the layer, in a job of `procs` processes, or of as many as there are for `None`. `own` are the
/// addresses of the library's own handlers.
pub(super) fn enable(function: &'static str, procs: Option<c_int>, own: Vec<usize>) -> Result<(), String> {
    let wanted = procs.map(number_of_processes).transpose()?;
    if let Some(procs) = wanted
        && procs > 1
        && !is_launched()
    {
        if has_opened() {
            return Err("another layer is open, and an open process cannot be forked: call am_enable first, or start the program by `standpipe run --same-addresses`".into());
        }
        processes::fork(procs, abandon)?;
    }
    let node = open_node()?;
    if let Some(procs) = wanted
        && procs != node.size()
    {
        return Err(format!("{procs} processes, and the job has {}: start as many", node.size()));
    }
    let layer = open_layer(function, node, own)?;
    variables::set(layer.my_proc(), layer.procs());
    OPENED_BY.store(std::process::id(), Ordering::SeqCst);
    LAYER.set(layer).map_err(|_| "two threads at once: one opens the layer".to_owned())?;
    LAYER.get().map_or(Ok(()), Gam::join).map_err(|error| error.to_string())
}

fn number_of_processes(procs: c_int) -> Result<u32, String> {
    let number = u32::try_from(procs).ok().filter(|procs| (1..=RANKS_MAX).contains(procs));
    number.ok_or_else(|| format!("{procs} processes: a job has 1 to {RANKS_MAX}"))
}

/// Whether a launcher has started this process, as one of a job.
fn is_launched() -> bool {
    std::env::var_os("STANDPIPE_JOB").is_some() || !matches!(launched_by(), Ok(None))
}

/// Whether the layer is open already, or has been: it opens once.
pub(super) fn has_been_open(function: &str) -> bool {
    if LAYER.get().is_none() {
        return false;
    }
    let state = if IS_CLOSED.load(Ordering::SeqCst) { "has been closed" } else { "is open" };
    complain(function, format_args!("the layer {state}: a process opens it once"));
    true
}

/// Leaves without the others, at the end of a program that has not called `am_disable`.
fn abandon() {
    if let Some(layer) = LAYER.get() {
        layer.abandon();
    }
}

fn open_layer(function: &'static str, node: Node, own: Vec<usize>) -> Result<Gam<CProgram>, String> {
    let agreed = Agreed::find(&node, function)?;
    Gam::new(node, memory(), CProgram::new(agreed, own)).map_err(|error| error.to_string())
}

/// Whether calls of the layer have something to work with: in a forked child they have not.
pub(super) fn is_open() -> bool {
    let is_open = LAYER.get().is_some() && !IS_CLOSED.load(Ordering::Relaxed);
    is_open && OPENED_BY.load(Ordering::Relaxed) == std::process::id()
}

/// Has the layer do something, and says what it refuses.
pub(super) fn with_layer(
    function: &'static str,
    act: impl FnOnce(&Gam<CProgram>) -> Result<(), GamError>,
) -> c_int {
    let layer = match LAYER.get() {
        Some(layer) if !IS_CLOSED.load(Ordering::Relaxed) => layer,
        Some(_) => {
            complain(function, format_args!("called after {}", spelt(function, "disable")));
            return FAILED;
        }
        None => {
            complain(function, format_args!("called before {}", spelt(function, "enable")));
            return FAILED;
        }
    };
    match act(layer) {
        Ok(()) => 0,
        // A program that waits for a handler that will not run learns of it no other way.
        Err(error @ (GamError::Lost { .. } | GamError::Left | GamError::Failed(_))) => end(function, error),
        Err(error) => {
            complain(function, error);
            FAILED
        }
    }
}

/// A poll of a loop that waits for what a handler does.
pub(super) fn poll_of_wait(function: &'static str) {
    if with_layer(function, Gam::poll_idle) != 0 {
        end(function, "no handler can run any more, so that the wait would not end");
    }
}

pub(super) fn close(function: &'static str) -> c_int {
    with_layer(function, |layer| {
        let closed = layer.close();
        if !matches!(closed, Err(GamError::InHandler { .. } | GamError::Lost { .. } | GamError::Failed(_))) {
            IS_CLOSED.store(true, Ordering::SeqCst);
            processes::part_is_over();
        }
        closed
    })
}

/// What the layer calls a function.
pub(super) fn at(layer: &Gam<CProgram>, function: Pointer) -> Function {
    layer.program().name_of(function)
}

/// The program's arguments as words.
pub(super) fn words<const N: usize>(args: [c_long; N]) -> [u64; N] {
    args.map(c_long::cast_unsigned)
}

pub(super) fn request<const N: usize>(
    name: &'static str,
    dest: i64,
    function: Pointer,
    args: [c_long; N],
) -> c_int {
    with_layer(name, |layer| layer.request(dest, at(layer, function), &Arguments::Words(&words(args))))
}

pub(super) fn reply<const N: usize>(
    name: &'static str,
    dest: i64,
    function: Pointer,
    args: [c_long; N],
) -> c_int {
    with_layer(name, |layer| layer.reply(dest, at(layer, function), &Arguments::Words(&words(args))))
}

fn word(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// A number that the layer keeps once it has been open: programs ask for it after they have left, too.
pub(super) fn number(name: &'static str, ask: impl FnOnce(&Gam<CProgram>) -> u32) -> c_int {
    match LAYER.get() {
        Some(layer) => ask(layer).cast_signed(),
        None => with_layer(name, |_| Ok(())),
    }
}

/// What a store moves: from where, to where at the receiver, and how many bytes.
pub(super) type Moved = (*const c_void, *mut c_void, c_int);

/// A function of the program, and what it is called with.
pub(super) type Called = (Pointer, *mut c_void);

pub(super) fn store(
    name: &'static str,
    dest: i64,
    (local, remote, len): Moved,
    (function, arg): Called,
) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    with_layer(name, |layer| {
        layer.store(dest, local.cast(), word(remote), len.into(), (at(layer, function), word(arg)))
    })
}

pub(super) fn store_async(
    name: &'static str,
    dest: i64,
    (local, remote, len): Moved,
    (function, arg): Called,
    (end_function, end_arg): Called,
) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    with_layer(name, |layer| {
        let (there, here) = ((at(layer, function), word(arg)), (at(layer, end_function), word(end_arg)));
        layer.store_async(dest, local.cast(), word(remote), len.into(), there, here)
    })
}

pub(super) fn reply_xfer(
    name: &'static str,
    dest: i64,
    (local, remote, len): Moved,
    (function, arg): Called,
) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    let bytes = (local.cast(), len.into());
    with_layer(name, |layer| layer.reply_xfer(dest, bytes, word(remote), (at(layer, function), word(arg))))
}

pub(super) fn get(
    name: &'static str,
    dest: i64,
    (remote, local, len): Moved,
    (function, arg): Called,
) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    with_layer(name, |layer| {
        layer.get(dest, word(remote), local.cast(), len.into(), (at(layer, function), word(arg)))
    })
}

/// Says that there is no memory where some is to be moved.
fn is_missing(name: &str, local: *const c_void, remote: *const c_void, len: c_int) -> bool {
    // Peers may reach it by its address.
    let missing_here = local.expose_provenance() == 0;
    if len > 0 && missing_here {
        complain(name, format_args!("{len} bytes at NULL of this process"));
    } else if len > 0 && remote.is_null() {
        complain(name, format_args!("{len} bytes at NULL of the other process"));
    } else {
        return false;
    }
    true
}

/// A function's name as a program of this spelling calls it.
fn spelt(function: &str, name: &str) -> String {
    let prefix = if function.starts_with("gam_") { "gam" } else { "am" };
    format!("{prefix}_{name}")
}

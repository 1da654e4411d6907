//! Generic Active Messages: `am.h` (ICSI's spelling) and `gam.h` (Berkeley's).

pub mod berkeley;
mod layout;
mod processes;

use std::ffi::{c_char, c_double, c_int, c_long, c_uint, c_void};
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use layers::gam::{Arguments, Function, Gam, GamError, MAX_SIZE, Program};
use standpipe::bootstrap::{RANKS_MAX, launched_by};
use standpipe::{Node, Rank};

use self::layout::Agreed;
use crate::border::{complain, end, has_opened, memory, open_node};

/// The layer, from the first `am_enable` on.
static LAYER: OnceLock<Gam<CProgram>> = OnceLock::new();

/// Whether `am_disable` has been called.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// What is sent for this library's functions that do nothing, as a peer may have them elsewhere. No function
/// lies there.
const DUMMY: Function = 1;

/// What all calls of this interface that fail return; the manuals name no other value than 0.
const FAILED: c_int = -1;

/// The program that this library is linked with.
#[derive(Debug)]
struct CProgram {
    agreed: Agreed,
}

type Words = unsafe extern "C" fn(c_int, c_long, c_long, c_long, c_long);

impl Program for CProgram {
    fn has_function(&self, function: Function) -> bool {
        function == DUMMY || self.agreed.has(function)
    }

    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>) {
        if function == DUMMY {
            return;
        }
        let (at, from) = (function as usize as *const c_void, from.cast_signed());
        // SAFETY: code lies at the address, in this process as in the sender's. That it takes what the message
        // brings is the promise of the program, which names it in the call that sends such messages. A function
        // that takes fewer words than these is not disturbed by the rest: they come in registers.
        unsafe {
            match arguments {
                Arguments::Words(words) => {
                    let mut all = [0; 4];
                    words.iter().zip(&mut all).for_each(|(word, place)| *place = word.cast_signed());
                    let [a, b, c, d] = all;
                    transmute::<*const c_void, Words>(at)(from, a, b, c, d);
                }
                Arguments::WordsDouble(a, b, value) => {
                    type Handler = unsafe extern "C" fn(c_int, c_long, c_long, c_double);
                    transmute::<*const c_void, Handler>(at)(from, a.cast_signed(), b.cast_signed(), value);
                }
                Arguments::DoubleWords(value, a, b) => {
                    type Handler = unsafe extern "C" fn(c_int, c_double, c_long, c_long);
                    transmute::<*const c_void, Handler>(at)(from, value, a.cast_signed(), b.cast_signed());
                }
                Arguments::Medium(bytes, a, b) => {
                    type Handler = unsafe extern "C" fn(c_int, *const u8, c_int, c_long, c_long);
                    let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
                    let (a, b) = (a.cast_signed(), b.cast_signed());
                    transmute::<*const c_void, Handler>(at)(from, bytes.as_ptr(), len, a, b);
                }
                Arguments::Memory { addr, len, arg } => {
                    type Handler = unsafe extern "C" fn(c_int, *mut c_void, c_int, *mut c_void);
                    let pointer = |word: u64| std::ptr::with_exposed_provenance_mut(word as usize);
                    let len = c_int::try_from(len).unwrap_or(c_int::MAX);
                    transmute::<*const c_void, Handler>(at)(from, pointer(addr), len, pointer(arg));
                }
                _ => complain("am", "a message that this version of the library has no handler for"),
            }
        }
    }
}

/// Opens the layer, in a job of `procs` processes, or of as many as there are for `None`.
fn enable(function: &'static str, procs: Option<c_int>) -> Result<(), String> {
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
    let layer = open_layer(function, node)?;
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
fn has_been_open(function: &str) -> bool {
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

fn open_layer(function: &'static str, node: Node) -> Result<Gam<CProgram>, String> {
    let agreed = Agreed::find(&node, function)?;
    Gam::new(node, memory(), CProgram { agreed }).map_err(|error| error.to_string())
}

/// Whether calls of the layer have something to work with.
fn is_open() -> bool {
    LAYER.get().is_some() && !IS_CLOSED.load(Ordering::Relaxed)
}

/// Has the layer do something, and says what it refuses.
fn with_layer(function: &'static str, act: impl FnOnce(&Gam<CProgram>) -> Result<(), GamError>) -> c_int {
    let layer = match LAYER.get() {
        Some(layer) if !IS_CLOSED.load(Ordering::Relaxed) => layer,
        Some(_) => {
            complain(function, "called after am_disable");
            return FAILED;
        }
        None => {
            complain(function, "called before am_enable");
            return FAILED;
        }
    };
    match act(layer) {
        Ok(()) => 0,
        // A program that waits for a handler that will not run learns of it no other way.
        Err(error @ (GamError::Lost { .. } | GamError::Failed(_))) => end(function, error),
        Err(error) => {
            complain(function, error);
            FAILED
        }
    }
}

fn close(function: &'static str) -> c_int {
    with_layer(function, |layer| {
        let closed = layer.close();
        if !matches!(closed, Err(GamError::InHandler { .. } | GamError::Lost { .. } | GamError::Failed(_))) {
            IS_CLOSED.store(true, Ordering::SeqCst);
            processes::part_is_over();
        }
        closed
    })
}

/// A function of the program, or a null pointer, which is none.
type Pointer = *const c_void;

fn at(function: Pointer) -> Function {
    let is_dummy = [am_dummy, berkeley::gam_dummy].iter().any(|dummy| *dummy as Pointer == function);
    if is_dummy { DUMMY } else { function.expose_provenance() as Function }
}

/// The program's arguments as words.
fn words<const N: usize>(args: [c_long; N]) -> [u64; N] {
    args.map(c_long::cast_unsigned)
}

fn request<const N: usize>(name: &'static str, dest: i64, function: Pointer, args: [c_long; N]) -> c_int {
    with_layer(name, |layer| layer.request(dest, at(function), &Arguments::Words(&words(args))))
}

fn reply<const N: usize>(name: &'static str, dest: i64, function: Pointer, args: [c_long; N]) -> c_int {
    with_layer(name, |layer| layer.reply(dest, at(function), &Arguments::Words(&words(args))))
}

fn word(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// Exports the forms of one to four words of a request or a reply.
macro_rules! words_forms {
    ($send:ident, $dest:ty: $($name:ident($($arg:ident),*);)*) => {
        $(
            /// Sends so many words; see the header.
            // SAFETY: no other symbol of this library has that name.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(dest: $dest, function: Pointer $(, $arg: c_long)*) -> c_int {
                $send(stringify!($name), i64::from(dest), function, [$($arg),*])
            }
        )*
    };
}
use words_forms;

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

/// Opens the layer; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_enable(procs: c_int, _argc: c_int, _argv: *mut *mut c_char) {
    if has_been_open("am_enable") {
        return;
    }
    if let Err(error) = enable("am_enable", Some(procs)) {
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

fn number(name: &'static str, ask: impl FnOnce(&Gam<CProgram>) -> u32) -> c_int {
    let mut number = FAILED;
    with_layer(name, |layer| {
        number = ask(layer).cast_signed();
        Ok(())
    });
    number
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
pub extern "C" fn am_poll_wait() {
    if with_layer("am_wait_for", Gam::poll_idle) != 0 {
        // The condition of the loop that this is called in comes true by a handler, and none will run.
        end("am_wait_for", "no handler can run any more, so that the wait would not end");
    }
}

/// Runs handlers for so many seconds; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_sleep(seconds: c_uint) -> c_uint {
    if !is_open() {
        // The header gives programs this for the system's.
        // SAFETY: the call takes and gives numbers alone.
        return unsafe { libc::sleep(seconds) };
    }
    let slept = with_layer("am_sleep", |layer| layer.sleep(Duration::from_secs(seconds.into())));
    if slept == 0 { 0 } else { seconds }
}

/// A handler that does nothing.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_dummy() {}

/// A request with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_request_df(dest: c_int, function: Pointer, a: c_long, b: c_long, d: c_double) -> c_int {
    let arguments = Arguments::WordsDouble(a.cast_unsigned(), b.cast_unsigned(), d);
    with_layer("am_request_df", |layer| layer.request(dest.into(), at(function), &arguments))
}

/// A reply with a double; see the header.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_reply_df(dest: c_int, function: Pointer, a: c_long, b: c_long, d: c_double) -> c_int {
    let arguments = Arguments::WordsDouble(a.cast_unsigned(), b.cast_unsigned(), d);
    with_layer("am_reply_df", |layer| layer.reply(dest.into(), at(function), &arguments))
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

/// What a store moves: from where, to where at the receiver, and how many bytes.
type Moved = (*const c_void, *mut c_void, c_int);

/// A function of the program, and what it is called with.
type Called = (Pointer, *mut c_void);

fn store(name: &'static str, dest: i64, (local, remote, len): Moved, (function, arg): Called) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    with_layer(name, |layer| {
        layer.store(dest, local.cast(), word(remote), len.into(), (at(function), word(arg)))
    })
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

fn store_async(
    name: &'static str,
    dest: i64,
    (local, remote, len): Moved,
    (function, arg): Called,
    (end_function, end_arg): Called,
) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    let (there, here) = ((at(function), word(arg)), (at(end_function), word(end_arg)));
    with_layer(name, |layer| layer.store_async(dest, local.cast(), word(remote), len.into(), there, here))
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

fn get(name: &'static str, dest: i64, (remote, local, len): Moved, (function, arg): Called) -> c_int {
    if is_missing(name, local, remote, len) {
        return FAILED;
    }
    with_layer(name, |layer| {
        layer.get(dest, word(remote), local.cast(), len.into(), (at(function), word(arg)))
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

//! `fm.h`: Fast Messages 2.x.
#![allow(non_snake_case, non_upper_case_globals)] // C names them.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::border::{complain, end, memory, open_node};
use layers::fm::{Done, Fm, HANDLERS, HANDLERS_MAX, Incoming, Sending, Table};

/// A handler of a program's.
type Handler = extern "C" fn(*mut c_void, c_uint) -> c_int;

/// Its name in C.
const FM_ANY_ID: c_ulong = c_ulong::MAX;
const FM_QUIT: c_int = 0;
const FM_MAX_HANDLERS: c_int = 2;
/// The parameters' names are 1 to this.
const PARAMETERS: c_int = 12;

/// This process's number.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) static mut FM_nodeid: c_ulong = 0;
/// Processes in the job.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) static mut FM_numnodes: c_ulong = 0;
/// The handlers by number, in which programs write.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) static mut FM_handler_table: *mut *mut c_void = SLOTS.as_ptr().cast_mut().cast();

/// The table, unless the program has asked for another number of handlers.
static SLOTS: [AtomicPtr<()>; HANDLERS] = [const { AtomicPtr::new(null_mut()) }; HANDLERS];
static TABLE: AtomicPtr<AtomicPtr<()>> = AtomicPtr::new(SLOTS.as_ptr().cast_mut());
static TABLE_LEN: AtomicUsize = AtomicUsize::new(HANDLERS);

static LAYER: OnceLock<Fm> = OnceLock::new();
static STATE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const OPEN: u8 = 1;
const ENDED: u8 = 2;
/// Held by whoever initializes, finalizes or sets a parameter.
static CHANGES: Mutex<()> = Mutex::new(());

/// Why the layer is not open.
fn not_open() -> &'static str {
    match STATE.load(Ordering::Acquire) {
        ENDED => "after FM_finalize: nothing can be called any more",
        _ => "before FM_initialize: call that first",
    }
}

fn layer(function: &str) -> &'static Fm {
    let open = LAYER.get().filter(|_| STATE.load(Ordering::Acquire) == OPEN);
    open.unwrap_or_else(|| end(function, not_open()))
}

/// Says what the layer has noticed.
#[inline]
fn tell(layer: &Fm, function: &str) {
    for notice in layer.take_notices() {
        complain(function, notice);
    }
}

fn table() -> Table<'static> {
    let (start, len) = (TABLE.load(Ordering::Acquire), TABLE_LEN.load(Ordering::Acquire));
    // SAFETY: the two name a static array, or one that `resize` has leaked and set before any thread of the
    // layer's reads them. Programs write whole pointers there, as the header says.
    Table(unsafe { std::slice::from_raw_parts(start, len) })
}

/// Runs a message's handler, if there is one.
fn dispatch(incoming: &Incoming<'_>) -> Option<Done> {
    let handler = table().get(incoming.handler())?;
    // SAFETY: what the program has put into the table are handlers, of this type.
    let handler = unsafe { std::mem::transmute::<NonNull<()>, Handler>(handler) };
    let stream = std::ptr::from_ref(incoming).cast_mut().cast();
    Some(if handler(stream, incoming.sender()) == FM_QUIT { Done::Quit } else { Done::Continue })
}

/// Joins the job.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_initialize() {
    const NAME: &str = "FM_initialize";
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    match STATE.load(Ordering::Acquire) {
        NEW => {}
        ENDED => end(NAME, not_open()),
        _ => return complain(NAME, "called a second time: nothing changes"),
    }
    let opened = open().unwrap_or_else(|why| end(NAME, why));
    // SAFETY: the program reads them only once this function has returned, as the header says.
    unsafe {
        FM_nodeid = opened.node_id().into();
        FM_numnodes = opened.nodes().into();
    }
    if LAYER.set(opened).is_ok() {
        STATE.store(OPEN, Ordering::Release);
    }
}

fn open() -> Result<Fm, String> {
    Fm::open(open_node()?, dispatch).map_err(|error| error.to_string())
}

/// Leaves the job.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_finalize() {
    const NAME: &str = "FM_finalize";
    let Some(layer) = LAYER.get().filter(|_| STATE.load(Ordering::Acquire) == OPEN) else {
        return complain(NAME, not_open());
    };
    if layer.in_handler() {
        return complain(NAME, "called in a handler: nothing changes; return first");
    }
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if STATE.swap(ENDED, Ordering::AcqRel) != OPEN {
        return complain(NAME, not_open());
    }
    let finalized = layer.finalize();
    tell(layer, NAME);
    if let Err(error) = finalized {
        complain(NAME, error);
    }
}

/// Sets a parameter. C declares it with any arguments. On the processors and systems that this library is
/// built for, an integer or a pointer that is passed so comes where the second argument of this comes.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_set_parameter(name: c_int, value: c_ulong) {
    const NAME: &str = "FM_set_parameter";
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    if STATE.load(Ordering::Acquire) != NEW {
        return complain(NAME, format_args!("parameter {name} after FM_initialize: it stays as it is"));
    }
    if !(1..=PARAMETERS).contains(&name) {
        return complain(NAME, format_args!("there is no parameter {name}: fm.h names those that there are"));
    }
    if name == FM_MAX_HANDLERS {
        // An `int`: the upper half of what comes is anything.
        let len = value as c_int;
        match usize::try_from(len).ok().filter(|len| (1..=HANDLERS_MAX).contains(len)) {
            Some(len) => resize(len),
            None => {
                complain(NAME, format_args!("{len} handlers, where 1 to {HANDLERS_MAX} can be asked for"))
            }
        }
    }
}

/// Makes another table, with the handlers of this one.
fn resize(len: usize) {
    let grown: &'static [AtomicPtr<()>] = Box::leak(table().grown(len));
    // In this order, so that who reads both never reads beyond the end of either.
    TABLE_LEN.store(len.min(TABLE_LEN.load(Ordering::Acquire)), Ordering::Release);
    TABLE.store(grown.as_ptr().cast_mut(), Ordering::Release);
    TABLE_LEN.store(len, Ordering::Release);
    // SAFETY: nothing runs yet that reads the variable but the program's thread that calls this.
    unsafe { FM_handler_table = grown.as_ptr().cast_mut().cast() };
}

/// Registers a handler.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_register_handler(id: c_ulong, handler: *mut c_void) -> c_ulong {
    const NAME: &str = "FM_register_handler";
    let Some(handler) = NonNull::new(handler.cast()) else {
        complain(NAME, "NULL is no handler");
        return FM_ANY_ID;
    };
    let registered = table().register((id != FM_ANY_ID).then_some(id), handler);
    registered.map_or_else(
        |error| {
            complain(
                NAME,
                format_args!("{error}: FM_set_parameter(FM_MAX_HANDLERS, ...) gives room for more"),
            );
            FM_ANY_ID
        },
        |id| id as c_ulong,
    )
}

/// Begins a message.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_begin_message(
    recipient: c_ulong,
    length: c_ulong,
    handler: c_ulong,
) -> *mut c_void {
    const NAME: &str = "FM_begin_message";
    let layer = layer(NAME);
    let Some(handler) = u32::try_from(handler).ok().filter(|handler| (*handler as usize) < HANDLERS_MAX)
    else {
        end(NAME, format_args!("handler {}, where {} is the last", handler.cast_signed(), HANDLERS_MAX - 1))
    };
    let begun = layer.begin(recipient, length, handler).unwrap_or_else(|error| end(NAME, error));
    tell(layer, NAME);
    begun.map_or(null_mut(), |message| std::ptr::without_provenance_mut(message.to_bits() as usize))
}

fn sending(stream: *mut c_void) -> Sending {
    Sending::from_bits(stream.addr() as u64)
}

/// Sends a piece.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_send_piece(stream: *mut c_void, buffer: *const c_void, length: c_ulong) {
    const NAME: &str = "FM_send_piece";
    let layer = layer(NAME);
    let len = match usize::try_from(length) {
        Ok(len) if len <= isize::MAX as usize && (len == 0 || !buffer.is_null()) => len,
        _ => {
            return complain(
                NAME,
                format_args!("{} bytes at {buffer:?} are no piece: nothing is sent", length.cast_signed()),
            );
        }
    };
    let (message, mut done) = (sending(stream), 0);
    loop {
        let rest = if done == len {
            &[]
        } else {
            // SAFETY: the program has so many bytes there, which it leaves alone until it ends the message.
            // The reference lives for one call, which runs no code of the program's.
            unsafe { std::slice::from_raw_parts(buffer.cast::<u8>().add(done), len - done) }
        };
        match layer.offer(message, rest) {
            Ok(bytes) => done += bytes,
            Err(error) => {
                complain(NAME, format_args!("{error}: nothing is sent"));
                break;
            }
        }
        if done == len {
            break;
        }
        layer.wait_for_room(message);
    }
    tell(layer, NAME);
}

/// Ends a message.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_end_message(stream: *mut c_void) {
    const NAME: &str = "FM_end_message";
    let layer = layer(NAME);
    if let Err(error) = layer.end(sending(stream)) {
        complain(NAME, error);
    }
    tell(layer, NAME);
}

/// Receives bytes of the handler's message.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_receive(buffer: *mut c_void, stream: *mut c_void, length: c_uint) {
    const NAME: &str = "FM_receive";
    let layer = layer(NAME);
    if stream.is_null() || layer.running() != Some(stream.addr()) {
        let why =
            if layer.in_handler() { "not the stream of this handler" } else { "called outside handlers" };
        return complain(NAME, format_args!("{why}: nothing is received"));
    }
    if length > 0 && buffer.is_null() {
        return complain(NAME, format_args!("{length} bytes to NULL: nothing is received"));
    }
    // SAFETY: the layer says that this is where the message of the handler lies that runs on this thread, and
    // it stays there until that handler has returned, which is the caller.
    let incoming = unsafe { &*stream.cast_const().cast::<Incoming<'_>>() };
    let mut to = buffer.cast::<u8>();
    let got = incoming.receive_with(length.into(), &mut |bytes| {
        memory().write(to, bytes);
        to = to.wrapping_add(bytes.len());
    });
    if got < u64::from(length) {
        let from = incoming.sender();
        complain(
            NAME,
            format_args!(
                "{length} bytes of a message of node {from} that has {got} left: these are received"
            ),
        );
    }
}

/// Takes what has arrived, and runs handlers.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_extract(maxbytes: c_uint) -> c_int {
    const NAME: &str = "FM_extract";
    let layer = layer(NAME);
    let most = if maxbytes == c_uint::MAX { u64::MAX } else { maxbytes.into() };
    let bytes = layer.extract(most);
    tell(layer, NAME);
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// Deals the room anew, which has been dealt to all.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn FM_reallocate_credit() {
    if STATE.load(Ordering::Acquire) != OPEN {
        complain("FM_reallocate_credit", not_open());
    }
}

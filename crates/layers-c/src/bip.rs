//! `bip.h`: BIP 0.92.
//!
//! The layer detects faults and recovers from none. For every error, one line on standard error says so, and
//! the process ends with status 1.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use layers::bip::{Bip, BipError, Received, TagBuffers};

use crate::border::{end, memory, open_node};

/// This process's number, once `bip_init` has returned; -1 before.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub static mut bip_mynode: c_int = -1;

/// How many processes there are, once `bip_init` has returned; 0 before.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub static mut bip_numnodes: c_int = 0;

static LAYER: OnceLock<Bip> = OnceLock::new();
/// Tags that the program declares before the layer opens; `None` from then on.
static DECLARED: Mutex<Option<Vec<TagBuffers>>> = Mutex::new(Some(Vec::new()));

// SAFETY: the C library of Linux declares it so, with these types.
unsafe extern "C" {
    /// Has a function called when the process ends by `exit`, or by returning from `main`, with its status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

fn layer(function: &str) -> &'static Bip {
    match LAYER.get() {
        Some(layer) => layer,
        None => end(function, "bip_init has not been called: call it before everything but bip_taginit"),
    }
}

fn or_end<T>(function: &str, result: Result<T, BipError>) -> T {
    result.unwrap_or_else(|error| end(function, error))
}

/// A length as C programs have it: it was checked to be one.
fn as_int(words: u32) -> c_int {
    c_int::try_from(words).unwrap_or(c_int::MAX)
}

/// Writes what a function gives by a pointer. NULL was refused before.
fn give(to: *mut c_int, value: u32) {
    // SAFETY: the program vouches for the pointer, as bip.h asks it to, and it is not NULL.
    unsafe { to.write(as_int(value)) }
}

fn expect(function: &str, pointer: *mut c_int, what: &'static str) {
    if pointer.is_null() {
        end(function, BipError::Null { what });
    }
}

/// Declares `nbufs` buffers of `size` words for a tag, before `bip_init`. Of two declarations of a tag the
/// later counts. Gives 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_taginit(tag: c_int, nbufs: c_int, size: c_int) -> c_int {
    const NAME: &str = "bip_taginit";
    let buffers = or_end(NAME, TagBuffers::new(tag, nbufs, size));
    let is_declared = {
        let mut declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
        declared.as_mut().map(|declared| declared.push(buffers)).is_some()
    };
    if !is_declared {
        end(NAME, format_args!("tag {tag} was declared after bip_init: declare it before"));
    }
    0
}

/// Opens the layer, in all processes of the job; waits until they have. Sets [`bip_mynode`] and
/// [`bip_numnodes`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_init() {
    const NAME: &str = "bip_init";
    let declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(declared) = declared else { end(NAME, "it has been called before: call it once") };
    let node = open_node().unwrap_or_else(|error| end(NAME, error));
    let layer = or_end(NAME, Bip::open(node, memory(), &declared));
    let (mynode, numnodes) = (as_int(layer.mynode()), as_int(layer.numnodes()));
    // SAFETY: the layer is not open yet, so that no other thread of the program may look at them.
    unsafe {
        bip_mynode = mynode;
        bip_numnodes = numnodes;
    }
    // Only this call, which took what was declared, ever comes here.
    let _ = LAYER.set(layer);
    // SAFETY: the function stays in memory as long as the process, as the library is never unloaded.
    unsafe { on_exit(leave, std::ptr::without_provenance_mut(std::process::id() as usize)) };
}

/// Stays with the others when the process ends well, so that they receive what it has sent. A process that
/// fails goes at once, and its loss ends their waits.
extern "C" fn leave(status: c_int, opened_by: *mut c_void) {
    // A child made by `fork` has no part in the job.
    let is_it = opened_by.addr() == std::process::id() as usize;
    if let (0, true, Some(layer)) = (status, is_it, LAYER.get()) {
        layer.leave();
    }
}

/// Sends `words` words to node `dst` with a tag, and gives `words`.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tsend(dst: c_int, tag: c_int, buf: *const c_int, words: c_int) -> c_int {
    send("bip_tsend", dst, tag, buf, words)
}

/// [`bip_tsend`] with tag 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_send(dst: c_int, buf: *const c_int, words: c_int) -> c_int {
    send("bip_send", dst, 0, buf, words)
}

#[inline]
fn send(function: &str, dst: c_int, tag: c_int, buf: *const c_int, words: c_int) -> c_int {
    or_end(function, layer(function).send(dst, tag, buf.cast(), words));
    words
}

/// Starts to send, and gives the send's number.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tisend(dst: c_int, tag: c_int, buf: *const c_int, words: c_int) -> c_int {
    or_end("bip_tisend", layer("bip_tisend").isend(dst, tag, buf.cast(), words))
}

/// [`bip_tisend`] with tag 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_isend(dst: c_int, buf: *const c_int, words: c_int) -> c_int {
    or_end("bip_isend", layer("bip_isend").isend(dst, 0, buf.cast(), words))
}

/// Waits until a send has ended.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_swait(id: c_int) {
    or_end("bip_swait", layer("bip_swait").swait(id));
}

/// 1 if a send has ended, 0 if not.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_stest(id: c_int) -> c_int {
    or_end("bip_stest", layer("bip_stest").stest(id)).into()
}

/// Receives a message with a tag into room for `words` words, and gives its length.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_trecv(tag: c_int, buf: *mut c_int, words: c_int) -> c_int {
    recv("bip_trecv", tag, buf, words)
}

/// [`bip_trecv`] with tag 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_recv(buf: *mut c_int, words: c_int) -> c_int {
    recv("bip_recv", 0, buf, words)
}

#[inline]
fn recv(function: &str, tag: c_int, buf: *mut c_int, words: c_int) -> c_int {
    as_int(or_end(function, layer(function).recv(tag, buf.cast(), words)).words)
}

/// As [`bip_trecv`], and says who sent the message.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_trecvx(tag: c_int, buf: *mut c_int, words: c_int, src: *mut c_int) -> c_int {
    recvx("bip_trecvx", tag, (buf, words), src)
}

/// [`bip_trecvx`] with tag 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_recvx(buf: *mut c_int, words: c_int, src: *mut c_int) -> c_int {
    recvx("bip_recvx", 0, (buf, words), src)
}

fn recvx(function: &str, tag: c_int, (buf, words): (*mut c_int, c_int), src: *mut c_int) -> c_int {
    let layer = layer(function);
    expect(function, src, SOURCE);
    with_source(or_end(function, layer.recv(tag, buf.cast(), words)), src)
}

const SOURCE: &str = "pointer for the source";

fn with_source(received: Received, src: *mut c_int) -> c_int {
    give(src, received.from);
    as_int(received.words)
}

/// Posts a receive, and gives its number.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tirecv(tag: c_int, buf: *mut c_int, words: c_int) -> c_int {
    or_end("bip_tirecv", layer("bip_tirecv").irecv(tag, buf.cast(), words))
}

/// [`bip_tirecv`] with tag 0.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_irecv(buf: *mut c_int, words: c_int) -> c_int {
    or_end("bip_irecv", layer("bip_irecv").irecv(0, buf.cast(), words))
}

/// Waits until a receive has ended, and gives the message's length.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rwait(id: c_int) -> c_int {
    as_int(or_end("bip_rwait", layer("bip_rwait").rwait(id)).words)
}

/// As [`bip_rwait`], and says who sent the message.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rwaitx(id: c_int, src: *mut c_int) -> c_int {
    let layer = layer("bip_rwaitx");
    expect("bip_rwaitx", src, SOURCE);
    with_source(or_end("bip_rwaitx", layer.rwait(id)), src)
}

/// The length of what a receive gave, -1 if it has not ended.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rtest(id: c_int) -> c_int {
    let received = or_end("bip_rtest", layer("bip_rtest").rtest(id));
    received.map_or(-1, |received| as_int(received.words))
}

/// As [`bip_rtest`], and says who sent the message, if one was received.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rtestx(id: c_int, src: *mut c_int) -> c_int {
    let layer = layer("bip_rtestx");
    expect("bip_rtestx", src, SOURCE);
    or_end("bip_rtestx", layer.rtest(id)).map_or(-1, |received| with_source(received, src))
}

/// Receives a short message if one is next; else gives -1.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tnrecv(tag: c_int, buf: *mut c_int, words: c_int) -> c_int {
    let received = or_end("bip_tnrecv", layer("bip_tnrecv").recv_short(tag, buf.cast(), words));
    received.map_or(-1, |received| as_int(received.words))
}

/// As [`bip_tnrecv`], and says who sent the message, if one was received.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tnrecvx(tag: c_int, buf: *mut c_int, words: c_int, src: *mut c_int) -> c_int {
    let layer = layer("bip_tnrecvx");
    expect("bip_tnrecvx", src, SOURCE);
    let received = or_end("bip_tnrecvx", layer.recv_short(tag, buf.cast(), words));
    received.map_or(-1, |received| with_source(received, src))
}

/// Waits for a message, and gives it in place; says its length and who sent it.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tgetmsg(tag: c_int, words: *mut c_int, src: *mut c_int) -> *mut c_int {
    const NAME: &str = "bip_tgetmsg";
    let layer = expect_places(NAME, words, src);
    in_place(or_end(NAME, layer.get_message(tag)), words, src)
}

/// As [`bip_tgetmsg`], if a message is there; else gives NULL.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tngetmsg(tag: c_int, words: *mut c_int, src: *mut c_int) -> *mut c_int {
    const NAME: &str = "bip_tngetmsg";
    let layer = expect_places(NAME, words, src);
    let message = or_end(NAME, layer.try_get_message(tag));
    message.map_or(std::ptr::null_mut(), |message| in_place(message, words, src))
}

fn expect_places(function: &str, words: *mut c_int, src: *mut c_int) -> &'static Bip {
    let layer = layer(function);
    expect(function, words, "pointer for the length");
    expect(function, src, SOURCE);
    layer
}

fn in_place((start, received): (*const u8, Received), words: *mut c_int, src: *mut c_int) -> *mut c_int {
    give(words, received.words);
    give(src, received.from);
    start.cast_mut().cast()
}

/// Frees the message that is read in place.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tfreemsg(tag: c_int) {
    or_end("bip_tfreemsg", layer("bip_tfreemsg").free_message(tag));
}

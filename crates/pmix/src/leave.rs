//! Leaving: once for each time that this process has joined, at its `exit` at the latest. To PMIx's servers a
//! process that ends without it has crashed, whatever its status is, and they end all others of the job.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::library::{Library, loaded};

/// How often this process has joined and not left.
static JOINED: AtomicU32 = AtomicU32::new(0);
/// Which process that was: its children made by `fork` have joined nothing.
static BY: AtomicU32 = AtomicU32::new(0);
static AT_EXIT: Once = Once::new();

/// Notes that this process has joined.
pub(crate) fn joined() {
    BY.store(std::process::id(), Ordering::SeqCst);
    JOINED.fetch_add(1, Ordering::SeqCst);
    AT_EXIT.call_once(|| {
        // SAFETY: the function takes nothing, never unwinds, and stays as long as the process: a library that
        // has it is kept loaded once it has opened a node.
        let refused = unsafe { libc::atexit(at_exit) };
        // Then only a client that is dropped leaves.
        let _ = refused;
    });
}

/// Leaves once, unless there is nothing left to leave.
pub(crate) fn leave(library: &Library) {
    let is_ours = BY.load(Ordering::SeqCst) == std::process::id();
    let one_less = |joined: u32| joined.checked_sub(1);
    if is_ours && JOINED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
        // SAFETY: pairs with one successful `PMIx_Init` of this process, as the counter has just said; no
        // infos are given.
        let status = unsafe { (library.finalize)(std::ptr::null(), 0) };
        // There is nobody left to tell: the launcher notices by itself.
        let _ = status;
    }
}

extern "C" fn at_exit() {
    let Some(library) = loaded() else { return };
    for _ in 0..JOINED.load(Ordering::SeqCst) {
        leave(library);
    }
}

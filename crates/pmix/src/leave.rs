//! Leaving: once for each time that this process has joined, at its `exit` at the latest. To PMIx's servers a
//! process that ends without it has crashed, whatever its status is, and they end all others of the job.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::library::{Library, loaded};

/// Makes a call on a thread of its own, and waits until it ends, for so long at most.
pub type Aside = fn(call: Box<dyn FnOnce() + Send>, within: Duration);

/// How long an `exit` waits for what is under way, and for the leave.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// How often this process has joined and not left. It is held during each call of the library: no leave runs
/// beside another call, and the process does not end in the middle of one.
static JOINED: Mutex<u32> = Mutex::new(0);
/// Which process that was: its children made by `fork` have joined nothing.
static BY: AtomicU32 = AtomicU32::new(0);
/// Set once the leave at the process's `exit` is arranged.
static AT_EXIT: OnceLock<Aside> = OnceLock::new();

/// Waits until this process makes no other call of the library, and keeps others away.
pub(crate) fn one_call() -> MutexGuard<'static, u32> {
    JOINED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that this process has joined, by the call that is being made.
pub(crate) fn joined(joined: &mut u32, aside: Aside) {
    let own = std::process::id();
    let before = if BY.swap(own, Ordering::SeqCst) == own { *joined } else { 0 };
    *joined = before + 1;
    AT_EXIT.get_or_init(|| {
        // SAFETY: the function takes nothing, never unwinds, and stays as long as the process: a library that
        // has it is kept loaded once it has opened a node.
        let refused = unsafe { libc::atexit(at_exit) };
        // Then only a client that is dropped leaves.
        let _ = refused;
        aside
    });
}

/// Leaves once, unless there is nothing left to leave.
pub(crate) fn leave(library: &Library) {
    if is_ours() {
        leave_once(library, &mut one_call());
    }
}

/// Whether this process has joined, and no parent of its.
fn is_ours() -> bool {
    BY.load(Ordering::SeqCst) == std::process::id()
}

fn leave_once(library: &Library, joined: &mut u32) {
    let Some(left) = joined.checked_sub(1) else { return };
    *joined = left;
    // SAFETY: pairs with one successful `PMIx_Init` of this process, as the counter has just said; no infos
    // are given.
    let status = unsafe { (library.finalize)(std::ptr::null(), 0) };
    // There is nobody left to tell: the launcher notices by itself.
    let _ = status;
}

/// A call that is late, or a server that does not answer, keeps the process for no longer than that.
extern "C" fn at_exit() {
    let (Some(library), Some(aside)) = (loaded(), AT_EXIT.get()) else { return };
    if !is_ours() || JOINED.try_lock().is_ok_and(|joined| *joined == 0) {
        return;
    }
    let deadline = Instant::now() + EXIT_WITHIN;
    let leave_all = move || {
        let mut joined = one_call();
        while *joined > 0 && Instant::now() < deadline {
            leave_once(library, &mut joined);
        }
    };
    aside(Box::new(leave_all), EXIT_WITHIN);
}

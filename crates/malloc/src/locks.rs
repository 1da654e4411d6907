//! Counts the locks that threads have of mimalloc's. A child made by `fork` would have them locked for ever,
//! as the threads that have them are not in it. So `fork` waits for a moment in which nobody has any.
//!
//! The linker leads mimalloc's calls here (`build.rs`); all of Rust's locks are futexes. The functions are
//! assembly, as Rust would export them.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// Locks that somebody has or is about to take.
static HELD: AtomicU32 = AtomicU32::new(0);

/// Whether some thread may have a lock. Any thread.
pub(crate) fn are_held() -> bool {
    HELD.load(Ordering::SeqCst) != 0
}

// SAFETY: the linker gives these names to the C library's functions, whose type this is.
unsafe extern "C" {
    fn __real_pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn __real_pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    fn __real_pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
}

/// # Safety
/// As the C library's function wants it.
unsafe extern "C" fn lock(mutex: *mut c_void) -> c_int {
    HELD.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's promise is that of the function that it means.
    counted(unsafe { __real_pthread_mutex_lock(mutex) })
}

/// # Safety
/// As the C library's function wants it.
unsafe extern "C" fn try_lock(mutex: *mut c_void) -> c_int {
    HELD.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's promise is that of the function that it means.
    counted(unsafe { __real_pthread_mutex_trylock(mutex) })
}

/// Takes back what was counted of a lock that was not to be had.
fn counted(status: c_int) -> c_int {
    if status != 0 {
        HELD.fetch_sub(1, Ordering::SeqCst);
    }
    status
}

/// # Safety
/// As the C library's function wants it.
unsafe extern "C" fn unlock(mutex: *mut c_void) -> c_int {
    // SAFETY: the caller's promise is that of the function that it means.
    let status = unsafe { __real_pthread_mutex_unlock(mutex) };
    HELD.fetch_sub(1, Ordering::SeqCst);
    status
}

macro_rules! leads_to {
    ($name:literal, $function:path) => {
        #[cfg(target_arch = "x86_64")]
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "jmp {function}",
            function = sym $function,
        );
        #[cfg(target_arch = "aarch64")]
        global_asm!(
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            "b {function}",
            function = sym $function,
        );
    };
}

leads_to!("__wrap_pthread_mutex_lock", lock);
leads_to!("__wrap_pthread_mutex_trylock", try_lock);
leads_to!("__wrap_pthread_mutex_unlock", unlock);

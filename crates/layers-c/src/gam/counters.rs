//! Wait counters and throw-away semaphores of `am.h`: words of the program, which handlers change.

use std::ffi::{c_int, c_long, c_ulong, c_void};

use super::layer::{poll_of_wait, reply};
use super::program::Pointer;

/// A counter, or a semaphore: 1 until it is signalled, and then 0.
type Counter = *mut c_ulong;

fn at(word: c_long) -> Counter {
    std::ptr::with_exposed_provenance_mut(word.cast_unsigned() as usize)
}

/// Changes a counter.
///
/// # Safety
/// It is the address of an unsigned long of the program's, which handlers and this call alone change: they
/// run on this thread.
unsafe fn change(counter: Counter, change: impl FnOnce(c_ulong) -> c_ulong) {
    // SAFETY: the caller promises a word that no other thread changes meanwhile.
    unsafe { counter.write_volatile(change(counter.read_volatile())) }
}

/// Exports functions that change a counter, with and without a count, as calls and as handlers.
macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*): $counter:expr, $change:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The counter is the address of an unsigned long of the program's, which handlers and such calls
            /// alone change.
            // SAFETY: no other symbol of this library has that name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) {
                // SAFETY: the caller promises such a word; handlers run on the thread that makes such calls.
                unsafe { change($counter, $change) }
            }
        )*
    };
}

changes! {
    /// Counts one up; see the header.
    cntr_incr(counter: Counter): counter, |count| count.wrapping_add(1);
    /// Counts one down; see the header.
    cntr_decr(counter: Counter): counter, |count| count.wrapping_sub(1);
    /// Counts up; see the header.
    cntr_incr_by(counter: Counter, by: c_long): counter, |count| count.wrapping_add_signed(by);
    /// Counts down; see the header.
    cntr_decr_by(counter: Counter, by: c_long): counter, |count| count.wrapping_sub(by.cast_unsigned());
    /// A handler that counts up; see the header.
    r_cntr_incr(_from: c_int, counter: c_long): at(counter), |count| count.wrapping_add(1);
    /// A handler that counts down; see the header.
    r_cntr_decr(_from: c_int, counter: c_long): at(counter), |count| count.wrapping_sub(1);
    /// The same of stores and gets; see the header.
    r_cntr_incr_mem(_from: c_int, _addr: *mut c_void, _n: c_int, counter: *mut c_void):
        counter.cast(), |count| count.wrapping_add(1);
    /// The same of stores and gets; see the header.
    r_cntr_decr_mem(_from: c_int, _addr: *mut c_void, _n: c_int, counter: *mut c_void):
        counter.cast(), |count| count.wrapping_sub(1);
    /// Signals; see the header.
    ta_sema_signal(semaphore: Counter): semaphore, |_| 0;
    /// A handler that signals; see the header.
    r_ta_sema_signal(_from: c_int, semaphore: c_long): at(semaphore), |_| 0;
    /// The same of stores and gets; see the header.
    r_ta_sema_signal_mem(_from: c_int, _addr: *mut c_void, _n: c_int, semaphore: *mut c_void):
        semaphore.cast(), |_| 0;
}

/// Exports handlers of stores that have a handler of a word run where the store came from.
macro_rules! replies {
    ($($name:ident: $handler:ident;)*) => {
        $(
            /// A store's handler, whose sender has the counter; see the header.
            // SAFETY: no other symbol of this library has that name.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(from: c_int, _addr: *mut c_void, _n: c_int, counter: *mut c_void) {
                let word = counter.expose_provenance() as c_long;
                reply(stringify!($name), from.into(), $handler as Pointer, [word]);
            }
        )*
    };
}

replies! {
    r_cntr_incr_reply_mem: r_cntr_incr;
    r_cntr_decr_reply_mem: r_cntr_decr;
    r_ta_sema_signal_reply_mem: r_ta_sema_signal;
}

/// The count; see the header.
///
/// # Safety
/// The counter is the address of an unsigned long of the program's.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cntr_is_zero(counter: Counter) -> c_int {
    // SAFETY: the caller promises the address of an unsigned long of the program's, which lives as long as
    // this call, and that no other thread changes it.
    let count = unsafe { counter.read_volatile() };
    // As the macro of that name: whoever asks for truth gets whether it is not 0.
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// Runs handlers until the counter is 0; see the header.
///
/// # Safety
/// The counter is the address of an unsigned long of the program's, which handlers alone change meanwhile.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cntr_wait_for_zero(counter: Counter) {
    // SAFETY: the caller promises such a word, and handlers run on this thread, in the call below.
    while unsafe { counter.read_volatile() } != 0 {
        poll_of_wait("cntr_wait_for_zero");
    }
}

/// Runs handlers until the semaphore is signalled; see the header.
///
/// # Safety
/// As for [`cntr_wait_for_zero`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ta_sema_wait(semaphore: Counter) {
    // SAFETY: the caller promises for a semaphore what is wanted of a counter.
    unsafe { cntr_wait_for_zero(semaphore) }
}

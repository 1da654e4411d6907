//! Wait counters and throw-away semaphores of `am.h`: words of the program, which handlers change.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::layer::{poll_of_wait, reply};
use super::program::Pointer;
use crate::border::complain;

/// A counter, or a semaphore: 1 until it is signalled, and then 0. Handlers may run on another thread than
/// the one that waits. An unsigned long of Linux is as wide as an address.
type Counter = *mut usize;

const _: () = assert!(size_of::<usize>() == size_of::<std::ffi::c_ulong>());

fn at(word: c_long) -> Counter {
    std::ptr::with_exposed_provenance_mut(word.cast_unsigned() as usize)
}

/// Exports functions that change a counter, as calls and as handlers.
macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*): $counter:expr, $change:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The counter is the address of an aligned unsigned long of the program's, which such calls and
            /// handlers alone change meanwhile.
            // SAFETY: no other symbol of this library has that name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) {
                let counter: Counter = $counter;
                if counter.is_null() {
                    return complain(stringify!($name), "NULL is no counter and no semaphore");
                }
                // SAFETY: the caller promises an aligned word that lives as long as this call, and that only
                // such calls and handlers, all of which change it in one step, change meanwhile.
                let counter = unsafe { AtomicUsize::from_ptr(counter) };
                $change(counter);
            }
        )*
    };
}

fn up(counter: &AtomicUsize, by: c_long) {
    counter.fetch_add(by.cast_unsigned() as usize, Ordering::AcqRel);
}

fn signal(semaphore: &AtomicUsize) {
    semaphore.store(0, Ordering::Release);
}

changes! {
    /// Counts one up; see the header.
    cntr_incr(counter: Counter): counter, |counter| up(counter, 1);
    /// Counts one down; see the header.
    cntr_decr(counter: Counter): counter, |counter| up(counter, -1);
    /// Counts up; see the header.
    cntr_incr_by(counter: Counter, by: c_long): counter, |counter| up(counter, by);
    /// Counts down; see the header.
    cntr_decr_by(counter: Counter, by: c_long): counter, |counter| up(counter, by.wrapping_neg());
    /// A handler that counts up; see the header.
    r_cntr_incr(_from: c_int, counter: c_long): at(counter), |counter| up(counter, 1);
    /// A handler that counts down; see the header.
    r_cntr_decr(_from: c_int, counter: c_long): at(counter), |counter| up(counter, -1);
    /// The same of stores and gets; see the header.
    r_cntr_incr_mem(_from: c_int, _addr: *mut c_void, _n: c_int, counter: *mut c_void):
        counter.cast(), |counter| up(counter, 1);
    /// The same of stores and gets; see the header.
    r_cntr_decr_mem(_from: c_int, _addr: *mut c_void, _n: c_int, counter: *mut c_void):
        counter.cast(), |counter| up(counter, -1);
    /// Signals; see the header.
    ta_sema_signal(semaphore: Counter): semaphore, signal;
    /// A handler that signals; see the header.
    r_ta_sema_signal(_from: c_int, semaphore: c_long): at(semaphore), signal;
    /// The same of stores and gets; see the header.
    r_ta_sema_signal_mem(_from: c_int, _addr: *mut c_void, _n: c_int, semaphore: *mut c_void):
        semaphore.cast(), signal;
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

/// The count; 0 of NULL, which a line tells of.
///
/// # Safety
/// As for [`cntr_incr`].
unsafe fn count(function: &str, counter: Counter) -> usize {
    if counter.is_null() {
        complain(function, "NULL is no counter and no semaphore");
        return 0;
    }
    // SAFETY: the caller promises an aligned word that lives as long as this call, and that only calls and
    // handlers of this file, all of which change it in one step, change meanwhile.
    unsafe { AtomicUsize::from_ptr(counter) }.load(Ordering::Acquire)
}

/// The count; see the header.
///
/// # Safety
/// As for [`cntr_incr`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cntr_is_zero(counter: Counter) -> c_int {
    // SAFETY: the caller promises a word as it is wanted there.
    // As the macro of that name: whoever asks for truth gets whether it is not 0.
    c_int::try_from(unsafe { count("cntr_is_zero", counter) }).unwrap_or(c_int::MAX)
}

/// Runs handlers until the counter is 0; see the header.
///
/// # Safety
/// As for [`cntr_incr`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cntr_wait_for_zero(counter: Counter) {
    // SAFETY: the caller promises that the address is a counter, which lives until this call returns, and
    // which only such calls and handlers change.
    while unsafe { count("cntr_wait_for_zero", counter) } != 0 {
        poll_of_wait("cntr_wait_for_zero");
    }
}

/// Runs handlers until the semaphore is signalled; see the header.
///
/// # Safety
/// As for [`cntr_incr`].
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ta_sema_wait(semaphore: Counter) {
    // SAFETY: the caller promises for a semaphore what is wanted of a counter, of which it is one: 1 until it
    // is signalled.
    unsafe { cntr_wait_for_zero(semaphore) }
}

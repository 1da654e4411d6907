//! Functions of this library that programs send as handlers.

use std::ffi::{c_int, c_long, c_void};

use super::counters;
use super::program::Pointer;

/// A handler that does nothing, of `am.h`.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn am_dummy() {}

/// The same, of `gam.h`.
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub extern "C" fn gam_dummy() {}

/// A handler that takes one word.
type OfWord = unsafe extern "C" fn(c_int, c_long);

/// A handler of stores and gets.
type OfMemory = unsafe extern "C" fn(c_int, *mut c_void, c_int, *mut c_void);

const OF_WORD: [OfWord; 3] = [counters::r_cntr_incr, counters::r_cntr_decr, counters::r_ta_sema_signal];

const OF_MEMORY: [OfMemory; 6] = [
    counters::r_cntr_incr_mem,
    counters::r_cntr_decr_mem,
    counters::r_cntr_incr_reply_mem,
    counters::r_cntr_decr_reply_mem,
    counters::r_ta_sema_signal_mem,
    counters::r_ta_sema_signal_reply_mem,
];

/// Where they lie in this process, in the order of their numbers.
pub(super) fn addresses() -> Vec<usize> {
    let dummies = [am_dummy as Pointer, gam_dummy as Pointer];
    let of_words = OF_WORD.map(|handler| handler as Pointer);
    let all = dummies.into_iter().chain(of_words).chain(OF_MEMORY.map(|handler| handler as Pointer));
    all.map(Pointer::expose_provenance).collect()
}

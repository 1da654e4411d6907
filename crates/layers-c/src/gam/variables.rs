//! The variables of `am.h`.

use std::ffi::c_int;

/// This process's number; see the header.
#[allow(non_upper_case_globals, reason = "its name in am.h")]
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub static mut am_my_cluster_id: c_int = -1;

/// How many processes there are; see the header.
#[allow(non_upper_case_globals, reason = "its name in am.h")]
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub static mut am_clusters: c_int = 0;

/// Threads of a process that take part; see the header.
#[allow(non_upper_case_globals, reason = "its name in am.h")]
// SAFETY: no other symbol of this library has that name.
#[unsafe(no_mangle)]
pub static mut am_cluster_size: c_int = 1;

/// Sets them, before the layer opens.
pub(super) fn set(my_proc: u32, procs: u32) {
    // SAFETY: nothing of the program runs meanwhile that reads them, as the header says of am_enable.
    unsafe {
        am_my_cluster_id = my_proc.cast_signed();
        am_clusters = procs.cast_signed();
    }
}

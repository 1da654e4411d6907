//! Staying where the code is: a library that is unloaded takes its code from under its own threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keeps the library that this code is part of in memory until the process ends, whoever unloads it: threads
/// and destructors of threads go on running its code. In a program's own file, which nobody unloads, it does
/// nothing. Any thread; the first call asks the dynamic linker.
pub fn keep_loaded() {
    static KEPT: AtomicBool = AtomicBool::new(false);
    if KEPT.swap(true, Ordering::Relaxed) {
        return;
    }
    let code = keep_loaded as fn() as *const c_void;
    // SAFETY: the linker looks up which library an address lies in, and writes its answer to a value of this
    // frame, which nulls are valid for.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(code, &raw mut info) != 0).then_some(info)
    };
    if let Some(info) = info
        && !info.dli_fname.is_null()
    {
        let flags = libc::RTLD_NOLOAD | libc::RTLD_NODELETE | libc::RTLD_LAZY;
        // SAFETY: the name is the linker's own, and lives as long as the library. Nothing is loaded that is
        // not there already, so that no code runs. The handle is for nobody to close.
        unsafe { libc::dlopen(info.dli_fname, flags) };
    }
}

//! Finding the library: `libpmix.so.2`, as the dynamic linker finds it.

use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

use crate::ffi::{Commit, ErrorString, Fence, Finalize, Get, Init, Put};

/// The variable of the environment that names the library to use.
const NAMED: &str = "STANDPIPE_PMIX";
/// The name under which every PMIx from 2 to 5 is installed.
const USUAL: &str = "libpmix.so.2";

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is none here, or it cannot be loaded.
    #[error(
        "the launcher offers PMIx, but its library cannot be loaded: {reason}; \
         name it by {NAMED}, or set STANDPIPE_LAUNCHER=none"
    )]
    Missing {
        /// What the dynamic linker said.
        reason: String,
    },
    /// The library lacks a function that every version has.
    #[error("this PMIx library has no {name}")]
    Symbol {
        /// Name of the function.
        name: String,
    },
}

/// PMIx, loaded. There is one for the whole process, and it is never unloaded.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) init: Init,
    pub(crate) finalize: Finalize,
    pub(crate) put: Put,
    pub(crate) commit: Commit,
    pub(crate) fence: Fence,
    pub(crate) get: Get,
    pub(crate) error_string: ErrorString,
}

static LOADED: OnceLock<Result<Library, LoadError>> = OnceLock::new();

/// The library, found and loaded at the first call.
pub(crate) fn library() -> Result<&'static Library, LoadError> {
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Library, LoadError> {
    let named = std::env::var_os(NAMED)
        .map_or_else(|| USUAL.to_owned(), |named| named.to_string_lossy().into_owned());
    let missing = |reason: String| LoadError::Missing { reason };
    let name = CString::new(named).map_err(|_| missing(format!("{NAMED} holds a zero byte")))?;
    // SAFETY: the name ends with a zero. What the library does when it is loaded is what the launcher's own
    // programs have it do; it is never unloaded, so nothing that it starts can be left without its code.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(missing(last_error()));
    }
    // SAFETY: each symbol is taken for the function of that name in PMIx's interface, which the types follow;
    // they have not changed since PMIx 2, and a library of that file name keeps to it.
    unsafe {
        Ok(Library {
            init: std::mem::transmute::<*mut c_void, Init>(symbol(handle, c"PMIx_Init")?),
            finalize: std::mem::transmute::<*mut c_void, Finalize>(symbol(handle, c"PMIx_Finalize")?),
            put: std::mem::transmute::<*mut c_void, Put>(symbol(handle, c"PMIx_Put")?),
            commit: std::mem::transmute::<*mut c_void, Commit>(symbol(handle, c"PMIx_Commit")?),
            fence: std::mem::transmute::<*mut c_void, Fence>(symbol(handle, c"PMIx_Fence")?),
            get: std::mem::transmute::<*mut c_void, Get>(symbol(handle, c"PMIx_Get")?),
            error_string: std::mem::transmute::<*mut c_void, ErrorString>(symbol(
                handle,
                c"PMIx_Error_string",
            )?),
        })
    }
}

/// The address of a function, which is not null.
fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: the handle is that of a library that is never unloaded, and the name ends with a zero.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() {
        return Err(LoadError::Symbol { name: name.to_string_lossy().into_owned() });
    }
    Ok(found)
}

/// What the dynamic linker last said on this thread.
fn last_error() -> String {
    // SAFETY: takes nothing; what it gives is null or a text that lives until the thread's next call of this
    // kind.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".to_owned();
    }
    // SAFETY: not null, as was just seen, and nobody calls the linker in between on this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

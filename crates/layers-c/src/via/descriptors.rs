//! Descriptors: posted, and taken when they have ended.

use std::ffi::{c_int, c_ulong, c_void};

use layers::via::{Ended, Side, ViaError};

use super::resources::Context;
use super::state::{time, via};
use super::types::{Handle, SUCCESS, VIP_VI_CALLBACK, check, code, handle, number, store};

/// An address of a descriptor's.
type Descriptor = *mut c_void;

fn pointer(at: u64) -> Descriptor {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

fn post(vi: Handle, side: Side, descriptor: Descriptor, memory: u32) -> c_int {
    let at = descriptor.expose_provenance() as u64;
    code(number(vi).and_then(|vi| via()?.post(vi, side, at, memory)))
}

/// Gives the program a descriptor that has ended, or NULL.
fn give(into: *mut Descriptor, ended: Result<Ended, ViaError>) -> c_int {
    match ended {
        Ok(Ended { at, is_well }) => {
            store(into, pointer(at));
            if is_well { SUCCESS } else { code(Err(ViaError::Descriptor)) }
        }
        Err(error) => {
            store(into, std::ptr::null_mut());
            code(Err(error))
        }
    }
}

fn done(vi: Handle, side: Side, into: *mut Descriptor) -> c_int {
    give(into, check(into).and_then(|()| via()?.done(number(vi)?, side)))
}

fn wait(vi: Handle, side: Side, timeout: c_ulong, into: *mut Descriptor) -> c_int {
    give(into, check(into).and_then(|()| via()?.wait_done(number(vi)?, side, time(timeout))))
}

fn notify(vi: Handle, side: Side, context: *mut c_void, callback: VIP_VI_CALLBACK) -> c_int {
    let context = Context::new(context);
    let asked = || {
        let (via, id) = (via()?, number(vi)?);
        let callback = callback.ok_or(ViaError::InvalidParameter)?;
        let nic = via.nic_of_vi(id)?;
        via.notify(
            id,
            side,
            Box::new(move |at| {
                callback(context.word(), handle(nic), handle(id), pointer(at));
            }),
        )
    };
    code(asked())
}

/// `VipPostSend`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipPostSend(vi: Handle, descriptor: *mut c_void, memory: u32) -> c_int {
    post(vi, Side::Send, descriptor, memory)
}

/// `VipPostRecv`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipPostRecv(vi: Handle, descriptor: *mut c_void, memory: u32) -> c_int {
    post(vi, Side::Receive, descriptor, memory)
}

/// `VipSendDone`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSendDone(vi: Handle, descriptor: *mut *mut c_void) -> c_int {
    done(vi, Side::Send, descriptor)
}

/// `VipRecvDone`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipRecvDone(vi: Handle, descriptor: *mut *mut c_void) -> c_int {
    done(vi, Side::Receive, descriptor)
}

/// `VipSendWait`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSendWait(vi: Handle, timeout: c_ulong, descriptor: *mut *mut c_void) -> c_int {
    wait(vi, Side::Send, timeout, descriptor)
}

/// `VipRecvWait`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipRecvWait(vi: Handle, timeout: c_ulong, descriptor: *mut *mut c_void) -> c_int {
    wait(vi, Side::Receive, timeout, descriptor)
}

/// `VipSendNotify`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipSendNotify(vi: Handle, context: *mut c_void, callback: VIP_VI_CALLBACK) -> c_int {
    notify(vi, Side::Send, context, callback)
}

/// `VipRecvNotify`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipRecvNotify(vi: Handle, context: *mut c_void, callback: VIP_VI_CALLBACK) -> c_int {
    notify(vi, Side::Receive, context, callback)
}

/// `VipPostDeferredSends`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipPostDeferredSends(vi: Handle, _enable_interrupt: c_int, _deferred: *mut c_int) -> c_int {
    code(number(vi).and_then(|vi| via()?.query_vi(vi)).and(Err(ViaError::NotSupported)))
}

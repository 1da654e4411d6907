//! Completion queues.

use std::ffi::{c_int, c_ulong, c_void};

use layers::via::{Side, ViaError};

use super::resources::Context;
use super::state::{time, via};
use super::types::{Handle, VIP_CQ_CALLBACK, check, code, handle, number, store};

/// Tells the program of an entry.
fn give(vi: *mut Handle, is_receive: *mut c_int, entry: Result<(u32, Side), ViaError>) -> c_int {
    code(entry.map(|(of, side)| {
        store(vi, handle(of));
        store(is_receive, (side == Side::Receive).into());
    }))
}

fn check_places(vi: *mut Handle, is_receive: *mut c_int) -> Result<(), ViaError> {
    check(vi).and(check(is_receive))
}

/// `VipCreateCQ`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCreateCQ(nic: Handle, entries: c_ulong, cq: *mut Handle) -> c_int {
    let made = || {
        check(cq)?;
        store(cq, handle(via()?.create_cq(number(nic)?, entries)?));
        Ok(())
    };
    code(made())
}

/// `VipDestroyCQ`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyCQ(cq: Handle) -> c_int {
    code(number(cq).and_then(|cq| via()?.destroy_cq(cq)))
}

/// `VipResizeCQ`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipResizeCQ(cq: Handle, entries: c_ulong) -> c_int {
    code(number(cq).and_then(|cq| via()?.resize_cq(cq, entries)))
}

/// `VipCQDone`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCQDone(cq: Handle, vi: *mut Handle, is_receive: *mut c_int) -> c_int {
    give(vi, is_receive, check_places(vi, is_receive).and_then(|()| via()?.cq_done(number(cq)?)))
}

/// `VipCQWait`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCQWait(cq: Handle, timeout: c_ulong, vi: *mut Handle, is_receive: *mut c_int) -> c_int {
    let waited = check_places(vi, is_receive).and_then(|()| via()?.cq_wait(number(cq)?, time(timeout)));
    give(vi, is_receive, waited)
}

/// `VipCQNotify`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipCQNotify(cq: Handle, context: *mut c_void, callback: VIP_CQ_CALLBACK) -> c_int {
    let context = Context::new(context);
    let asked = || {
        let (via, number) = (via()?, number(cq)?);
        let callback = callback.ok_or(ViaError::InvalidParameter)?;
        let nic = via.nic_of_cq(number)?;
        via.notify_cq(
            number,
            Box::new(move |vi, side| {
                callback(context.word(), handle(nic), handle(vi), (side == Side::Receive).into());
            }),
        )
    };
    code(asked())
}

/// `VipAddTagCQ`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipAddTagCQ(
    cq: Handle,
    _event: *mut *mut c_void,
    _tag: c_ulong,
    _priority: c_ulong,
) -> c_int {
    code(number(cq).and_then(|cq| via()?.nic_of_cq(cq)).and(Err(ViaError::NotSupported)))
}

/// `VipRemoveTagCQ`: see vipl.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of VIPL.
#[unsafe(no_mangle)]
pub extern "C" fn VipRemoveTagCQ(cq: Handle, _event: *mut c_void, _tag: c_ulong) -> c_int {
    code(number(cq).and_then(|cq| via()?.nic_of_cq(cq)).and(Err(ViaError::NotSupported)))
}

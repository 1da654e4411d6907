//! The modes of registration that no provider here asks for, against a scripted one; and closing that fails.

use super::*;
use crate::errno::Errno;
use crate::ffi::{fi_ops, fi_ops_mr, fid};
use libc::c_int;
use std::cell::RefCell;

/// What a scripted provider was asked to do, and how its next close ends.
#[derive(Default)]
struct Script {
    calls: Vec<&'static str>,
    close_returns: c_int,
    mr: Option<Box<fid_mr>>,
}

thread_local! {
    static SCRIPT: RefCell<Script> = RefCell::default();
}

const NULL: *mut c_void = std::ptr::null_mut();

fn note(call: &'static str) {
    SCRIPT.with_borrow_mut(|script| script.calls.push(call));
}

fn calls() -> Vec<&'static str> {
    SCRIPT.with_borrow_mut(|script| std::mem::take(&mut script.calls))
}

extern "C" fn close(_: *mut fid) -> c_int {
    note("close");
    SCRIPT.with_borrow(|script| script.close_returns)
}

extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    note("bind");
    0
}

extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command as u64 != ffi::FI_ENABLE {
        return -libc::ENOSYS;
    }
    note("enable");
    SCRIPT.with_borrow_mut(|script| script.mr.as_mut().expect("registered").key = 4711);
    0
}

extern "C" fn reg(
    _: *mut fid,
    _: *const c_void,
    _: usize,
    access: u64,
    _: u64,
    key: u64,
    _: u64,
    mr: *mut *mut fid_mr,
    _: *mut c_void,
) -> c_int {
    note("reg");
    assert_ne!(access & ffi::FI_REMOTE_WRITE, 0);
    let made = Box::new(fid_mr { fid: head(), mem_desc: NULL.wrapping_byte_add(99), key });
    SCRIPT.with_borrow_mut(|script| {
        let made = script.mr.insert(made);
        // SAFETY: the caller gave a place for the pointer; what it points to stays in the script.
        unsafe { *mr = &raw mut **made };
    });
    0
}

fn head() -> fid {
    let ops =
        fi_ops { size: size_of::<fi_ops>(), close: Some(close), bind: Some(bind), control: Some(control) };
    fid { fclass: 0, context: NULL, ops: Box::leak(Box::new(ops)) }
}

/// A domain and an endpoint of the scripted provider.
fn scripted() -> (Owned<fid_domain>, Owned<fid_ep>) {
    let table = fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(reg) };
    let mr = Box::leak(Box::new(table));
    let domain = Box::leak(Box::new(fid_domain { fid: head(), ops: std::ptr::null_mut(), mr }));
    let none = NULL;
    let ep = fid_ep { fid: head(), ops: NULL, cm: none.cast(), msg: none.cast(), rma: none.cast() };
    let ep = Box::leak(Box::new(ep));
    // SAFETY: both are leaked, and so are their tables.
    unsafe {
        (
            Owned::made("fi_domain", |made| {
                *made = domain;
                0
            })
            .expect("made"),
            Owned::made("fi_endpoint", |made| {
                *made = ep;
                0
            })
            .expect("made"),
        )
    }
}

fn memory() -> Memory {
    Memory { addr: 0x5000 as *mut u8, len: 100, access: Access::ALL, wanted_key: 5 }
}

#[test]
fn the_key_of_a_mode_that_needs_nothing_is_the_one_wanted() {
    let (domain, ep) = scripted();
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let region = unsafe { Regions::default().register(&domain, &ep, MrMode::default(), memory()) };
    let region = region.expect("registered");
    assert_eq!((region.key, region.remote_addr), (5, 0));
    assert_eq!(region.desc, Desc(NULL.wrapping_byte_add(99)));
    assert_eq!(calls(), ["reg", "close"]);
}

#[test]
fn a_registration_of_an_endpoint_is_bound_and_enabled_before_its_key_is_read() {
    let (domain, ep) = scripted();
    let mode = MrMode { endpoint: true, prov_key: true, virt_addr: true, ..MrMode::default() };
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let region = unsafe { Regions::default().register(&domain, &ep, mode, memory()) }.expect("registered");
    assert_eq!((region.key, region.remote_addr), (4711, 0x5000));
    assert_eq!(calls(), ["reg", "bind", "enable", "close"]);
}

#[test]
fn a_mode_of_longer_keys_is_refused() {
    let (domain, ep) = scripted();
    let mode = MrMode { raw: true, ..MrMode::default() };
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let refused = unsafe { Regions::default().register(&domain, &ep, mode, memory()) };
    assert_eq!(refused, Err(Error::Absent { call: "a key of 64 bits" }));
    assert!(calls().is_empty());
}

#[test]
fn a_close_that_fails_is_told_and_can_be_tried_again() {
    let (domain, ep) = scripted();
    let mut regions = Regions::default();
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let mut register = || unsafe { regions.register(&domain, &ep, MrMode::default(), memory()) };
    let id = register().expect("registered").id;
    SCRIPT.with_borrow_mut(|script| script.close_returns = -libc::EBUSY);
    assert_eq!(regions.close(id), Err(Error::Call { call: "fi_close", errno: Errno::EBUSY }));
    assert_eq!(regions.close_all(), Err(Error::Call { call: "fi_close", errno: Errno::EBUSY }));
    SCRIPT.with_borrow_mut(|script| script.close_returns = 0);
    assert_eq!(regions.close(id), Ok(()));
    assert_eq!(regions.close(id), Err(Error::NoRegion { index: 0 }));
    assert_eq!(calls(), ["reg", "close", "close", "close"]);
}

#[test]
fn a_number_that_is_used_again_does_not_stand_for_what_it_stood_for() {
    let (domain, ep) = scripted();
    let mut regions = Regions::default();
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let first =
        unsafe { regions.register(&domain, &ep, MrMode::default(), memory()) }.expect("registered").id;
    regions.close(first).expect("open");
    // SAFETY: the scripted provider touches no memory, so that any address will do.
    let second =
        unsafe { regions.register(&domain, &ep, MrMode::default(), memory()) }.expect("registered").id;
    assert_ne!(first, second);
    assert_eq!(regions.close(first), Err(Error::NoRegion { index: 0 }));
    assert_eq!(regions.close(second), Ok(()));
}

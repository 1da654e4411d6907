//! The functions of libfabric that are symbols; all others are found in tables.

use crate::ffi::{fi_fabric_attr, fi_info, fid_fabric};
use libc::{c_char, c_int};
use std::ffi::c_void;

pub(crate) type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;
pub(crate) type FreeInfo = unsafe extern "C" fn(*mut fi_info);
pub(crate) type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
pub(crate) type OpenFabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
pub(crate) type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
pub(crate) type GetVersion = unsafe extern "C" fn() -> u32;

/// One library's.
pub(crate) struct Symbols {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: FreeInfo,
    pub(crate) dupinfo: DupInfo,
    pub(crate) fabric: OpenFabric,
    pub(crate) strerror: StrError,
    pub(crate) version: GetVersion,
}

//! The functions of the libfabric that is compiled in. It has no versions of symbols: there is only the
//! newest of each, whose structures begin as those of the versions that `library` asks others for.

use crate::ffi::{fi_fabric_attr, fi_info, fid_fabric};
use crate::symbols::Symbols;
use libc::{c_char, c_int};
use std::ffi::c_void;

// SAFETY: these are the declarations of the headers that the library is compiled with, under the names that
// the structures have here.
unsafe extern "C" {
    fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int;
    fn fi_freeinfo(info: *mut fi_info);
    fn fi_dupinfo(info: *const fi_info) -> *mut fi_info;
    fn fi_fabric(attr: *mut fi_fabric_attr, fabric: *mut *mut fid_fabric, context: *mut c_void) -> c_int;
    fn fi_strerror(errnum: c_int) -> *const c_char;
    fn fi_version() -> u32;
}

pub(crate) const SYMBOLS: Symbols = Symbols {
    getinfo: fi_getinfo,
    freeinfo: fi_freeinfo,
    dupinfo: fi_dupinfo,
    fabric: fi_fabric,
    strerror: fi_strerror,
    version: fi_version,
};

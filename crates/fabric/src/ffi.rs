//! libfabric's binary interface: only what is used of it, under the names it has in C.
//!
//! Structures that the library makes are declared up to the last field used; they may go on behind it, and
//! newer versions do. Tables of functions begin with their size in bytes, and a function may be called only
//! if the table reaches that far ([`offers`]). Layouts are as of libfabric 1.17, which every later version
//! keeps for callers that ask for that version of the interface and take the symbols at the versions named in
//! `library`.

#![allow(non_camel_case_types, missing_docs)]

use libc::{c_char, c_int, iovec, size_t, ssize_t};
use std::ffi::c_void;

/// The version of the interface that is asked for, as `FI_VERSION(1, 17)` says it.
pub(crate) const API_VERSION: u32 = (1 << 16) | 17;

/// Declares structures of C, and lists their fields for the test of layouts. Fields with a leading underscore
/// have no counterpart of that name.
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name { $(pub(crate) $field: $kind,)* }
        )*

        #[cfg(test)]
        pub(crate) fn layouts() -> Vec<tests::Layout> {
            vec![$(tests::Layout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            },)*]
        }
    };
}

/// A slot of a table that is not used.
type Skip = *const c_void;
type Fid = *mut fid;

// Functions in tables, each named after its table and its place there.
type fi_ops_close = Option<unsafe extern "C" fn(Fid) -> c_int>;
type fi_ops_bind = Option<unsafe extern "C" fn(Fid, Fid, u64) -> c_int>;
type fi_ops_control = Option<unsafe extern "C" fn(Fid, c_int, *mut c_void) -> c_int>;
type fi_ops_fabric_domain =
    Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int>;
type fi_ops_fabric_trywait = Option<unsafe extern "C" fn(*mut fid_fabric, *mut Fid, c_int) -> c_int>;
type fi_ops_domain_av_open =
    Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int>;
type fi_ops_domain_cq_open =
    Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int>;
type fi_ops_domain_endpoint =
    Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int>;
type fi_ops_mr_reg = Option<
    unsafe extern "C" fn(
        Fid,
        *const c_void,
        size_t,
        u64,
        u64,
        u64,
        u64,
        *mut *mut fid_mr,
        *mut c_void,
    ) -> c_int,
>;
type fi_ops_av_insert =
    Option<unsafe extern "C" fn(*mut fid_av, *const c_void, size_t, *mut u64, u64, *mut c_void) -> c_int>;
type fi_ops_av_remove = Option<unsafe extern "C" fn(*mut fid_av, *mut u64, size_t, u64) -> c_int>;
type fi_ops_cq_read = Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, size_t) -> ssize_t>;
type fi_ops_cq_readerr = Option<unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t>;
type fi_ops_cq_strerror =
    Option<unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, size_t) -> *const c_char>;
type fi_ops_cm_getname = Option<unsafe extern "C" fn(Fid, *mut c_void, *mut size_t) -> c_int>;
type fi_ops_msg_recv =
    Option<unsafe extern "C" fn(*mut fid_ep, *mut c_void, size_t, *mut c_void, u64, *mut c_void) -> ssize_t>;
type fi_ops_msg_send = Option<
    unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, *mut c_void, u64, *mut c_void) -> ssize_t,
>;
type fi_ops_rma_read = Option<
    unsafe extern "C" fn(
        *mut fid_ep,
        *mut c_void,
        size_t,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
>;
type fi_ops_rma_readmsg = Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>;
type fi_ops_rma_write = Option<
    unsafe extern "C" fn(
        *mut fid_ep,
        *const c_void,
        size_t,
        *mut c_void,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> ssize_t,
>;
type fi_ops_rma_writemsg = Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>;
type fi_ops_rma_inject =
    Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, size_t, u64, u64, u64) -> ssize_t>;

c_structs! {
    struct fi_tx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64,
        inject_size: size_t, size: size_t, iov_limit: size_t, rma_iov_limit: size_t,
    }

    struct fi_rx_attr {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64,
        total_buffered_recv: size_t, size: size_t, iov_limit: size_t,
    }

    struct fi_ep_attr {
        r#type: u32, protocol: u32, protocol_version: u32, max_msg_size: size_t, msg_prefix_size: size_t,
        max_order_raw_size: size_t,
    }

    struct fi_domain_attr {
        domain: *mut fid_domain, name: *mut c_char, threading: u32, control_progress: u32, data_progress: u32,
        resource_mgmt: u32, av_type: u32, mr_mode: c_int, mr_key_size: size_t, cq_data_size: size_t,
        cq_cnt: size_t, ep_cnt: size_t, tx_ctx_cnt: size_t, rx_ctx_cnt: size_t, max_ep_tx_ctx: size_t,
        max_ep_rx_ctx: size_t, max_ep_stx_ctx: size_t, max_ep_srx_ctx: size_t, cntr_cnt: size_t,
        mr_iov_limit: size_t, caps: u64, mode: u64, auth_key: *mut u8, auth_key_size: size_t,
        max_err_data: size_t, mr_cnt: size_t,
    }

    struct fi_fabric_attr {
        fabric: *mut fid_fabric, name: *mut c_char, prov_name: *mut c_char, prov_version: u32, api_version: u32,
    }

    struct fi_info {
        next: *mut fi_info, caps: u64, mode: u64, addr_format: u32, src_addrlen: size_t, dest_addrlen: size_t,
        src_addr: *mut c_void, dest_addr: *mut c_void, handle: Fid, tx_attr: *mut fi_tx_attr,
        rx_attr: *mut fi_rx_attr, ep_attr: *mut fi_ep_attr, domain_attr: *mut fi_domain_attr,
        fabric_attr: *mut fi_fabric_attr, nic: *mut c_void,
    }

    struct fi_ops {
        size: size_t,
        close: fi_ops_close,
        bind: fi_ops_bind,
        control: fi_ops_control,
    }

    /// The head of every object of the library.
    struct fid { fclass: size_t, context: *mut c_void, ops: *mut fi_ops, }

    struct fi_ops_fabric {
        size: size_t,
        domain: fi_ops_fabric_domain,
        passive_ep: Skip, eq_open: Skip, wait_open: Skip,
        trywait: fi_ops_fabric_trywait,
    }

    struct fid_fabric { fid: fid, ops: *mut fi_ops_fabric, }

    struct fi_cq_attr {
        size: size_t, flags: u64, format: u32, wait_obj: u32, signaling_vector: c_int, wait_cond: u32,
        wait_set: *mut c_void,
    }

    struct fi_av_attr {
        r#type: u32, rx_ctx_bits: c_int, count: size_t, ep_per_node: size_t, name: *const c_char,
        map_addr: *mut c_void, flags: u64,
    }

    struct fi_ops_domain {
        size: size_t,
        av_open: fi_ops_domain_av_open,
        cq_open: fi_ops_domain_cq_open,
        endpoint: fi_ops_domain_endpoint,
    }

    struct fi_ops_mr {
        size: size_t,
        reg: fi_ops_mr_reg,
    }

    struct fid_domain { fid: fid, ops: *mut fi_ops_domain, mr: *mut fi_ops_mr, }

    struct fid_mr { fid: fid, mem_desc: *mut c_void, key: u64, }

    struct fi_ops_av {
        size: size_t,
        insert: fi_ops_av_insert,
        insertsvc: Skip, insertsym: Skip,
        remove: fi_ops_av_remove,
    }

    struct fid_av { fid: fid, ops: *mut fi_ops_av, }

    struct fi_cq_data_entry {
        op_context: *mut c_void, flags: u64, len: size_t, buf: *mut c_void, data: u64,
    }

    struct fi_cq_err_entry {
        op_context: *mut c_void, flags: u64, len: size_t, buf: *mut c_void, data: u64, tag: u64, olen: size_t,
        err: c_int, prov_errno: c_int, err_data: *mut c_void, err_data_size: size_t,
    }

    struct fi_ops_cq {
        size: size_t,
        read: fi_ops_cq_read,
        readfrom: Skip,
        readerr: fi_ops_cq_readerr,
        sread: Skip, sreadfrom: Skip, signal: Skip,
        strerror: fi_ops_cq_strerror,
    }

    struct fid_cq { fid: fid, ops: *mut fi_ops_cq, }

    struct fi_ops_cm {
        size: size_t,
        setname: Skip,
        getname: fi_ops_cm_getname,
    }

    struct fi_ops_msg {
        size: size_t,
        recv: fi_ops_msg_recv,
        recvv: Skip, recvmsg: Skip,
        send: fi_ops_msg_send,
    }

    struct fi_rma_iov { addr: u64, len: size_t, key: u64, }

    struct fi_msg_rma {
        msg_iov: *const iovec, desc: *mut *mut c_void, iov_count: size_t, addr: u64, rma_iov: *const fi_rma_iov,
        rma_iov_count: size_t, context: *mut c_void, data: u64,
    }

    struct fi_ops_rma {
        size: size_t,
        read: fi_ops_rma_read,
        readv: Skip,
        readmsg: fi_ops_rma_readmsg,
        write: fi_ops_rma_write,
        writev: Skip,
        writemsg: fi_ops_rma_writemsg,
        inject: fi_ops_rma_inject,
    }

    struct fid_ep {
        fid: fid, ops: *mut c_void, cm: *mut fi_ops_cm, msg: *mut fi_ops_msg, rma: *mut fi_ops_rma,
    }

    /// Room that a provider may ask for with each operation, in memory that the caller gives.
    struct fi_context2 { internal: [*mut c_void; 8], }
}

/// Declares numbers of C, and lists them for the test.
macro_rules! c_numbers {
    ($($name:ident = $value:expr;)*) => {
        $(pub(crate) const $name: u64 = $value;)*

        #[cfg(test)]
        pub(crate) fn numbers() -> Vec<(&'static str, u64)> {
            vec![$((stringify!($name), $name),)*]
        }
    };
}

c_numbers! {
    FI_MSG = 1 << 1;
    FI_RMA = 1 << 2;
    FI_READ = 1 << 8;
    FI_WRITE = 1 << 9;
    FI_RECV = 1 << 10;
    FI_SEND = 1 << 11;
    FI_TRANSMIT = FI_SEND;
    FI_REMOTE_READ = 1 << 12;
    FI_REMOTE_WRITE = 1 << 13;
    FI_COMPLETION = 1 << 24;
    FI_DELIVERY_COMPLETE = 1 << 28;
    FI_SOURCE = 1 << 57;
    FI_CONTEXT = 1 << 59;
    FI_CONTEXT2 = 1 << 52;

    FI_MR_LOCAL = 1 << 2;
    FI_MR_RAW = 1 << 3;
    FI_MR_VIRT_ADDR = 1 << 4;
    FI_MR_ALLOCATED = 1 << 5;
    FI_MR_PROV_KEY = 1 << 6;
    FI_MR_ENDPOINT = 1 << 9;

    FI_ORDER_RAW = 1 << 1;
    FI_ORDER_RMA_RAW = 1 << 33;
    FI_ORDER_SAS = 1 << 8;

    FI_EP_RDM = 3;
    FI_THREAD_SAFE = 1;
    FI_THREAD_FID = 2;
    FI_THREAD_DOMAIN = 3;
    FI_THREAD_COMPLETION = 4;
    FI_THREAD_ENDPOINT = 5;
    FI_PROGRESS_AUTO = 1;
    FI_PROGRESS_MANUAL = 2;
    FI_RM_ENABLED = 2;

    FI_SOCKADDR = 1;
    FI_SOCKADDR_IN = 2;
    FI_SOCKADDR_IN6 = 3;
    FI_SOCKADDR_IB = 4;
    FI_ADDR_STR = 9;
    FI_ADDR_IB_UD = 11;
    FI_ADDR_EFA = 12;
    FI_ADDR_CXI = 15;

    FI_CQ_FORMAT_DATA = 3;
    FI_WAIT_NONE = 0;
    FI_WAIT_FD = 3;

    FI_GETWAIT = 5;
    FI_ENABLE = 6;


    FI_ADDR_UNSPEC = u64::MAX;
}

/// An error entry with room behind it for what later versions append.
#[repr(C)]
pub(crate) struct ErrEntry {
    pub(crate) entry: fi_cq_err_entry,
    _appended: [u64; 16],
}

impl ErrEntry {
    /// An entry that asks for the provider's own error data by reference.
    pub(crate) fn empty() -> ErrEntry {
        let null = std::ptr::null_mut();
        let entry = fi_cq_err_entry {
            op_context: null,
            flags: 0,
            len: 0,
            buf: null,
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: null,
            err_data_size: 0,
        };
        ErrEntry { entry, _appended: [0; 16] }
    }
}

/// Copies a function out of a table, if the table is there, is long enough to have it, and has it. Reads
/// nothing behind the table's end.
///
/// To be used inside `unsafe`: `$table` must be null or point to a table of the type `$kind` made by the
/// library.
macro_rules! offers {
    ($table:expr, $kind:ident, $function:ident) => {{
        let table: *const $crate::ffi::$kind = $table;
        if table.is_null() || (*table).size <= std::mem::offset_of!($crate::ffi::$kind, $function) {
            None
        } else {
            (*table).$function
        }
    }};
}
pub(crate) use offers;

#[cfg(test)]
#[path = "ffi_tests.rs"]
mod tests;

//! One endpoint of the library's with its completion queue, and the operations in flight there.

use crate::error::Error;
use crate::ffi::{self, fi_cq_attr, fi_cq_data_entry, fid_av, fid_cq, fid_domain, fid_ep, offers};
use crate::info::Info;
use crate::library::Version;
use crate::object::Owned;
use crate::persistent_table::Messages;
use crate::slots::{Op, Slots};
use libc::c_int;
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, RawFd};

/// How an endpoint is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Operations in flight at once, buffers that wait for messages included. Memory: 88 bytes each.
    pub depth: u32,
    /// Whether a thread wants to sleep until something happens: then there is a
    /// [descriptor](crate::Endpoint::wait_fd) to wait on.
    pub wait: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { depth: 1024, wait: false }
    }
}

/// Completions read at once.
pub(crate) const BATCH: usize = 16;

/// See the module.
pub(crate) struct QueuedEndpoint {
    /// Closing it kills the process while it has reads under way: see [`dies_of_reads`].
    dies_of_reads: bool,
    pub(crate) ep: Owned<fid_ep>,
    pub(crate) slots: Slots,
    pub(crate) prepared: Messages,
    pub(crate) cq: Owned<fid_cq>,
    pub(crate) batch: [fi_cq_data_entry; BATCH],
    /// The part of the batch that nobody has seen yet.
    pub(crate) unseen: std::ops::Range<usize>,
    wait_fd: Option<RawFd>,
}

impl QueuedEndpoint {
    /// Opens and enables one.
    pub(crate) fn open(
        domain: &Owned<fid_domain>,
        info: &Info,
        av: &Owned<fid_av>,
        options: &Options,
    ) -> Result<QueuedEndpoint, Error> {
        let (cq, wait_fd) = open_cq(domain, options)?;
        let ep = open_ep(domain, info)?;
        ep.bind("fi_ep_bind", av, 0)?;
        ep.bind("fi_ep_bind", &cq, ffi::FI_TRANSMIT | ffi::FI_RECV)?;
        // SAFETY: this command takes no argument: nothing is read or written through it.
        unsafe { ep.control("fi_enable", ffi::FI_ENABLE, std::ptr::null_mut()) }?;
        check_tables(&ep, &cq)?;
        let slots = Slots::new(options.depth);
        let [provider, ..] = info.names();
        let dies_of_reads = dies_of_reads(&provider, info.version());
        let (prepared, batch) = (Messages::new(), [EMPTY; BATCH]);
        Ok(QueuedEndpoint { dies_of_reads, ep, slots, prepared, cq, batch, unseen: 0..0, wait_fd })
    }

    pub(crate) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the completion queue, which is open as long as `self` is
        // borrowed.
        self.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The operation of this address has ended: what it was, and what the caller calls it. `None`: none is
    /// under way there.
    pub(crate) fn ended(&mut self, context: *mut c_void) -> Option<(Op, u64)> {
        self.prepared.ended(context).or_else(|| self.slots.release(context))
    }

    /// Whether closing would kill the process now.
    pub(crate) fn cannot_close(&self) -> bool {
        let reads = || self.slots.has(Op::Read) || self.prepared.under_way().any(|op| op == Op::Read);
        self.dies_of_reads && reads()
    }

    /// Closes in the order that every provider accepts: nothing touches memory that was lent to it any more.
    /// `false`: it was left to the process as it is instead, which has the same effect as nobody polls it
    /// again.
    pub(crate) fn close(&mut self) -> Result<bool, Error> {
        if self.cannot_close() {
            self.leak();
            return Ok(false);
        }
        self.ep.close()?;
        self.cq.close()?;
        Ok(true)
    }

    /// Closes nothing that is open still, as something may use it.
    pub(crate) fn leak(&mut self) {
        self.ep.leak();
        self.cq.leak();
        self.slots.leak();
        self.prepared.leak();
    }
}

/// Whether an endpoint of this provider kills the process when it is closed while an answer to a read has
/// arrived in part. In libfabric 1.17, the layer that gives TCP its endpoints then follows the null that
/// stands in an operation that is freed already. Bytes move there only while the endpoint is polled, so one
/// that is left open and not polled touches nothing. In later versions they move with those of any endpoint
/// of the domain.
fn dies_of_reads(provider: &str, version: Version) -> bool {
    provider == "tcp;ofi_rxm" && version <= Version { major: 1, minor: 17 }
}

const EMPTY: fi_cq_data_entry = fi_cq_data_entry {
    op_context: std::ptr::null_mut(),
    flags: 0,
    len: 0,
    buf: std::ptr::null_mut(),
    data: 0,
};

fn open_cq(domain: &Owned<fid_domain>, options: &Options) -> Result<(Owned<fid_cq>, Option<RawFd>), Error> {
    const CALL: &str = "fi_cq_open";
    let mut attr = fi_cq_attr {
        size: options.depth as usize,
        flags: 0,
        format: ffi::FI_CQ_FORMAT_DATA as u32,
        wait_obj: if options.wait { ffi::FI_WAIT_FD } else { ffi::FI_WAIT_NONE } as u32,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: std::ptr::null_mut(),
    };
    // SAFETY: the domain is open, so its table is alive.
    let open = unsafe { offers!((*domain.as_ptr()).ops, fi_ops_domain, cq_open) };
    let open = open.ok_or(Error::Absent { call: CALL })?;
    // SAFETY: the domain is open, the attribute a local value; it writes a queue that is ours.
    let cq: Owned<fid_cq> =
        unsafe { Owned::made(CALL, |cq| open(domain.as_ptr(), &mut attr, cq, std::ptr::null_mut())) }?;
    if !options.wait {
        return Ok((cq, None));
    }
    let mut fd: c_int = -1;
    // SAFETY: of a queue that waits by descriptor this command writes the descriptor.
    unsafe { cq.control("fi_control(FI_GETWAIT)", ffi::FI_GETWAIT, (&raw mut fd).cast()) }?;
    if fd < 0 { Err(Error::Absent { call: "fi_control(FI_GETWAIT)" }) } else { Ok((cq, Some(fd))) }
}

fn open_ep(domain: &Owned<fid_domain>, info: &Info) -> Result<Owned<fid_ep>, Error> {
    const CALL: &str = "fi_endpoint";
    // SAFETY: the domain is open, so its table is alive.
    let open = unsafe { offers!((*domain.as_ptr()).ops, fi_ops_domain, endpoint) };
    let open = open.ok_or(Error::Absent { call: CALL })?;
    // SAFETY: the domain is open, the info is the one it was opened from; it writes an endpoint that is ours.
    unsafe { Owned::made(CALL, |ep| open(domain.as_ptr(), info.as_ptr(), ep, std::ptr::null_mut())) }
}

/// Makes sure once that all functions are there that posts and polls then call without looking.
fn check_tables(ep: &Owned<fid_ep>, cq: &Owned<fid_cq>) -> Result<(), Error> {
    // SAFETY: both objects are open, so their tables are alive.
    let there = unsafe {
        let (msg, rma) = ((*ep.as_ptr()).msg, (*ep.as_ptr()).rma);
        [
            ("fi_recv", offers!(msg, fi_ops_msg, recv).is_some()),
            ("fi_send", offers!(msg, fi_ops_msg, send).is_some()),
            ("fi_read", offers!(rma, fi_ops_rma, read).is_some()),
            ("fi_readmsg", offers!(rma, fi_ops_rma, readmsg).is_some()),
            ("fi_write", offers!(rma, fi_ops_rma, write).is_some()),
            ("fi_writemsg", offers!(rma, fi_ops_rma, writemsg).is_some()),
            ("fi_inject_write", offers!(rma, fi_ops_rma, inject).is_some()),
            ("fi_cq_read", offers!((*cq.as_ptr()).ops, fi_ops_cq, read).is_some()),
            ("fi_cq_readerr", offers!((*cq.as_ptr()).ops, fi_ops_cq, readerr).is_some()),
        ]
    };
    let missing = there.iter().find(|(_, there)| !there);
    missing.map_or(Ok(()), |(call, _)| Err(Error::Absent { call }))
}

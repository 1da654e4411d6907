//! Hearing how operations ended, and sleeping until some do.

use crate::aux_endpoint::AuxEndpoint;
use crate::endpoint::Endpoint;
use crate::errno::Errno;
use crate::error::{Error, check};
use crate::ffi::{ErrEntry, fi_cq_data_entry, fi_cq_err_entry, offers};
use crate::queued_endpoint::{BATCH, QueuedEndpoint};
use crate::slots::Op;
use libc::c_char;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::os::fd::BorrowedFd;

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Well.
    Done {
        /// The caller's value from posting.
        token: u64,
        /// The kind of operation.
        op: Op,
        /// Bytes received; of other operations nothing.
        len: usize,
    },
    /// Not well. Its buffers are the caller's again all the same; memory that was to be written holds
    /// anything.
    Failed {
        /// The caller's value from posting, and the kind of operation; `None` for inline operations.
        operation: Option<(u64, Op)>,
        /// Why.
        failure: Failure,
    },
}

/// Why an operation failed that had been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub errno: Errno,
    /// The provider's own number for it.
    pub provider_errno: i32,
    /// The provider's own words for it, if it has any.
    pub provider_text: Option<Box<str>>,
    /// Bytes of a message that did not fit, for `FI_ETRUNC`.
    pub excess_bytes: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno)?;
        match &self.provider_text {
            Some(text) => write!(f, " (the provider: {}, {text})", self.provider_errno),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// The result of a [look](Endpoint::look) at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing has ended.
    Nothing,
    /// An operation has ended well.
    Done {
        /// The caller's value from posting.
        token: u64,
        /// Bytes received; of other operations nothing.
        len: usize,
    },
    /// There is something else, which [`Endpoint::poll`] tells.
    Other,
}

/// Whether to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The descriptor will become readable when something happens.
    Now,
    /// Something has happened already: poll first.
    NotYet,
}

impl Endpoint {
    /// Makes progress, and returns the next operation that has ended; `None` if there is none. Nothing is
    /// allocated, unless an operation has failed.
    ///
    /// # Errors
    /// [`Error::Call`] for `fi_cq_read` if the queue itself is broken; [`Error::Stray`].
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        self.main.poll()
    }

    /// As [`Endpoint::poll`], for what nearly always comes: little more than the provider's own call.
    #[inline(always)]
    pub fn look(&mut self) -> Look {
        self.main.look()
    }

    /// Asks before sleeping on the [descriptor](Endpoint::wait_fd), or on those of auxiliary endpoints
    /// together with it, whether something has happened already. The protocol: poll until there is nothing,
    /// and call this. If it says [`Sleep::Now`], sleep on the descriptor, which another thread may do that
    /// does not have the endpoint. Then poll again, whatever woke it.
    ///
    /// # Errors
    /// [`Error::Absent`] if the endpoint was not opened for waiting; [`Error::Call`] for `fi_trywait`.
    pub fn try_wait(&mut self) -> Result<Sleep, Error> {
        const CALL: &str = "fi_trywait";
        let fabric = self.fabric.as_ptr();
        // SAFETY: the fabric is open, so its table is alive.
        let trywait = unsafe { offers!((*fabric).ops, fi_ops_fabric, trywait) };
        let trywait = trywait.filter(|_| self.wait_fd().is_some()).ok_or(Error::Absent { call: CALL })?;
        for queued in [&self.main].into_iter().chain(self.aux_endpoints.open()) {
            if !queued.unseen.is_empty() {
                return Ok(Sleep::NotYet);
            }
            let mut queues = [queued.cq.fid()];
            // SAFETY: one queue of this fabric is named, which is open.
            let returned = unsafe { trywait(fabric, queues.as_mut_ptr(), 1) };
            match check(CALL, returned.into()) {
                Err(Error::Call { errno: Errno::EAGAIN, .. }) => return Ok(Sleep::NotYet),
                other => other?,
            };
        }
        Ok(Sleep::Now)
    }
}

impl AuxEndpoint<'_> {
    /// As [`Endpoint::poll`], for what was started from here.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        self.queued.poll()
    }

    /// The address by which peers write to and read from memory that is registered with the endpoint, for
    /// [`Endpoint::add_peer`] there.
    ///
    /// # Errors
    /// [`Error::Call`] for `fi_getname`, [`Error::Absent`].
    pub fn address(&self) -> Result<Box<[u8]>, Error> {
        crate::endpoint::address(&self.queued.ep)
    }

    /// As [`Endpoint::wait_fd`]: [`Endpoint::try_wait`] asks about all auxiliary endpoints, too.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queued.wait_fd()
    }
}

impl QueuedEndpoint {
    /// As [`Endpoint::look`].
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Look {
        if self.unseen.is_empty() {
            let returned = self.read();
            if returned <= 0 {
                let nothing = returned == 0 || returned == -i64::from(libc::EAGAIN);
                return if nothing { Look::Nothing } else { Look::Other };
            }
            if returned == 1
                && let Some(done) = self.take(0)
            {
                // Nothing is left to be seen, as before.
                return done;
            }
            self.unseen = 0..(returned as usize).min(BATCH);
        }
        let Some(done) = self.take(self.unseen.start) else { return Look::Other };
        self.unseen.start += 1;
        done
    }

    /// Operations that have ended well by this entry of the batch. `None`: it is of nothing that is under
    /// way, and stays in the batch for who asks what is wrong with it.
    #[inline(always)]
    fn take(&mut self, at: usize) -> Option<Look> {
        let context = self.batch.get(at)?.op_context;
        if let Some((_, token)) = self.prepared.ended(context) {
            return Some(Look::Done { token, len: 0 });
        }
        let (op, token) = self.slots.release(context)?;
        let len = if op == Op::Receive { self.batch[at].len } else { 0 };
        Some(Look::Done { token, len })
    }

    /// As [`Endpoint::poll`].
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, Error> {
        if self.unseen.is_empty() && !self.refill()? {
            return Ok(None);
        }
        match self.unseen.next() {
            None => self.failed().map(Some),
            Some(at) => {
                let entry = self.batch[at];
                let (op, token) = self.ended(entry.op_context).ok_or(Error::Stray)?;
                let len = if op == Op::Receive { entry.len } else { 0 };
                Ok(Some(Completion::Done { token, op, len }))
            }
        }
    }

    /// Reads completions into the batch; whether there is anything: completions, or, if the batch is still
    /// empty, a failure.
    fn refill(&mut self) -> Result<bool, Error> {
        let returned = self.read();
        if returned > 0 {
            self.unseen = 0..(returned as usize).min(BATCH);
            return Ok(true);
        }
        match Errno::returned(returned) {
            _ if returned == 0 => Ok(false),
            Errno::EAGAIN => Ok(false),
            Errno::EAVAIL => Ok(true),
            errno => Err(Error::Call { call: "fi_cq_read", errno }),
        }
    }

    /// Has the library write completions into the batch: how many, or a failure's number below 0.
    #[inline(always)]
    fn read(&mut self) -> i64 {
        let cq = self.cq.as_ptr();
        let batch: *mut [fi_cq_data_entry; BATCH] = &mut self.batch;
        // SAFETY: the queue is open, had this function when it was opened, and has entries of this type; at
        // most as many are written as the batch has room for.
        unsafe {
            match (*(*cq).ops).read {
                Some(read) => read(cq, batch.cast(), BATCH) as i64,
                None => -i64::from(libc::ENOSYS),
            }
        }
    }

    /// Takes the failure that waits at the head of the queue.
    #[cold]
    fn failed(&mut self) -> Result<Completion, Error> {
        const CALL: &str = "fi_cq_readerr";
        let cq = self.cq.as_ptr();
        let mut room = ErrEntry::empty();
        // SAFETY: the queue is open and had this function when it was opened; one entry is written to a local
        // value, which has room behind it for what later versions append.
        let returned = unsafe {
            let readerr = (*(*cq).ops).readerr.ok_or(Error::Absent { call: CALL })?;
            readerr(cq, (&raw mut room).cast(), 0)
        };
        if check(CALL, returned as i64)? != 1 {
            return Err(Error::Stray);
        }
        let entry = room.entry;
        let operation = self.ended(entry.op_context).map(|(op, token)| (token, op));
        let failure = Failure {
            errno: Errno::of_entry(entry.err),
            provider_errno: entry.prov_errno,
            provider_text: self.provider_text(&entry),
            excess_bytes: entry.olen,
        };
        Ok(Completion::Failed { operation, failure })
    }

    fn provider_text(&self, entry: &fi_cq_err_entry) -> Option<Box<str>> {
        let cq = self.cq.as_ptr();
        let mut room = [0 as c_char; 256];
        // SAFETY: the queue is open, so its table is alive. The error data are the provider's, valid until
        // the queue is read again. The text is null, a constant, or in `room`, whose length is given.
        let text = unsafe {
            let strerror = offers!((*cq).ops, fi_ops_cq, strerror)?;
            let text = strerror(cq, entry.prov_errno as c_int, entry.err_data, room.as_mut_ptr(), room.len());
            if text.is_null() {
                return None;
            }
            CStr::from_ptr(text).to_string_lossy()
        };
        (!text.is_empty()).then(|| text.into())
    }
}

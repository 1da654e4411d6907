//! Real pins without a network card: io_uring's fixed buffers hold the very pages that they were registered
//! with, as a card does, whatever is mapped at their addresses later.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

/// Buffers at a time.
const SLOTS: u32 = 512;

/// Pinned ranges, by slot.
pub(crate) struct Pins {
    ring: IoUring,
    free: Vec<u16>,
    /// What is read from pinned pages passes through here. (A file in memory would need a thread of the
    /// kernel's, which stays: nobody could say that it removes no pages.)
    into_sink: UnixStream,
    sink: UnixStream,
}

impl Pins {
    /// `None` where io_uring is not to be had, after saying so.
    pub(crate) fn new() -> Option<Pins> {
        let ring = IoUring::new(8).and_then(|ring| {
            ring.submitter().register_buffers_sparse(SLOTS)?;
            Ok(ring)
        });
        let ring =
            ring.inspect_err(|error| testbed::skip(format_args!("no io_uring to pin with: {error}"))).ok()?;
        let (into_sink, sink) = UnixStream::pair().expect("two descriptors");
        Some(Pins { ring, free: (0..SLOTS as u16).rev().collect(), into_sink, sink })
    }

    /// Pins what is mapped there now; `None` if that cannot be pinned.
    pub(crate) fn pin(&mut self, addr: u64, len: u64) -> Option<u16> {
        let slot = self.free.pop().expect("fewer are pinned than there are slots");
        let pinned = self.fill(slot, addr, len);
        if !pinned {
            self.free.push(slot);
        }
        pinned.then_some(slot)
    }

    pub(crate) fn unpin(&mut self, slot: u16) {
        assert!(self.fill(slot, 0, 0), "a slot can always be emptied");
        self.free.push(slot);
    }

    /// What the pinned pages hold, which `addr` named when they were pinned.
    pub(crate) fn read(&mut self, slot: u16, addr: u64, into: &mut [u8]) {
        let fd = Fd(self.into_sink.as_raw_fd());
        let write = opcode::WriteFixed::new(fd, addr as *const u8, into.len() as u32, slot);
        assert_eq!(self.run(&write.offset(0).build()), into.len() as i32, "a fixed write");
        self.sink.read_exact(into).expect("written above");
    }

    /// Does one operation, and returns what became of it.
    pub(crate) fn run(&mut self, entry: &squeue::Entry) -> i32 {
        // SAFETY: the queue is empty; the entry names pinned pages or addresses that the kernel checks, and
        // has ended when this returns.
        unsafe { self.ring.submission().push(entry) }.expect("there is room");
        self.ring.submit_and_wait(1).expect("a submission");
        self.ring.completion().next().expect("waited for").result()
    }

    fn fill(&mut self, slot: u16, addr: u64, len: u64) -> bool {
        let buffer = libc::iovec { iov_base: addr as *mut _, iov_len: len as usize };
        // SAFETY: the kernel checks the range, and pins its pages until the slot is filled anew; only what is
        // pinned is reached by it, by `read`, never written.
        unsafe { self.ring.submitter().register_buffers_update(slot.into(), &[buffer], None) }.is_ok()
    }
}

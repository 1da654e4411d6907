//! The thread that reads what the kernel tells.
//!
//! A thread that changes watched memory waits until this thread has read of it, and may hold any lock
//! meanwhile, malloc's among them. So it allocates nothing, takes no lock, logs nothing, changes no mapping,
//! and never panics.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use super::removals::{self, RANGES, Removal};
use super::shared::Shared;
use super::uffd::{Event, Message};

/// Messages read at a time.
const BATCH: usize = 16;

pub(super) struct Watcher {
    shared: Arc<Shared>,
    messages: [Message; BATCH],
    removals: Vec<Removal>,
}

impl Watcher {
    pub(super) fn new(shared: Arc<Shared>) -> Watcher {
        let removals = Vec::with_capacity(RANGES);
        Watcher { shared, messages: [Message::default(); BATCH], removals }
    }

    /// Reads until it is told to stop.
    pub(super) fn run(mut self) {
        self.shared.thread.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        while !self.wait() {
            self.read();
        }
    }

    /// Waits for a message. Whether it is to stop instead.
    fn wait(&self) -> bool {
        let (uffd, stop) = (self.shared.uffd.as_fd(), self.shared.stop.as_fd());
        let mut polled =
            [PollFd::from_borrowed_fd(uffd, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        // An interrupted wait has nothing to report, and to read when there is nothing does no harm.
        let _ = poll(&mut polled, None);
        polled[1].revents().contains(PollFlags::IN)
    }

    /// Nobody may rely on what was before from the moment that it is read until it is written down.
    fn read(&mut self) {
        self.shared.changes.open();
        let count = self.shared.uffd.read(&mut self.messages);
        for at in 0..count {
            self.take_in(self.messages[at].event());
        }
        self.shared.in_doubt.show(&self.removals);
        self.shared.changes.close();
    }

    fn take_in(&mut self, event: Event) {
        let Shared { changes, in_doubt, counts, .. } = &*self.shared;
        match event {
            Event::Unmap { start, end } => {
                changes.record(start, end);
                count(&counts.unmapped);
            }
            Event::Remap { from, to, len } => {
                changes.record(from, from.saturating_add(len));
                changes.record(to, to.saturating_add(len));
                count(&counts.moved);
            }
            Event::Remove { start, end } => {
                changes.record(start, end);
                let last = count(&counts.removed);
                removals::add(&mut self.removals, Removal { start, end, last }, in_doubt.over());
            }
            Event::Other => {}
        }
    }
}

/// A thread that sees the new number knows that this many have been announced.
fn count(counter: &AtomicU64) -> u64 {
    let number = counter.load(Ordering::Relaxed) + 1;
    counter.store(number, Ordering::Release);
    number
}

//! The thread that reads what the kernel tells.
//!
//! Whoever changes watched memory waits until this thread has read of it, and may hold any lock meanwhile, malloc's
//! among them. So it allocates nothing, takes no lock, logs nothing, changes no mapping, and never panics.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::removals::{self, RANGES, Removal, WITNESSES};
use super::shared::Shared;
use super::uffd::{Event, Message};

/// Messages read at a time.
const BATCH: usize = 16;

/// Looks at pages under removal without a pause: most removals are over within microseconds.
const QUICK_LOOKS: u32 = 16;
/// Looks with pauses, each twice as long as the one before.
const SLOW_LOOKS: u32 = 15;
/// The first pause: the last one is then a second and a half.
const PAUSE_NS: i64 = 50_000;

pub(super) struct Watcher {
    shared: Arc<Shared>,
    messages: [Message; BATCH],
    removals: Vec<Removal>,
    /// Looks since the last message.
    looks: u32,
}

impl Watcher {
    pub(super) fn new(shared: Arc<Shared>) -> Watcher {
        let removals = Vec::with_capacity(RANGES);
        Watcher { shared, messages: [Message::default(); BATCH], removals, looks: 0 }
    }

    /// Reads until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            let (news, stop) = self.wait();
            if stop {
                return;
            }
            if news {
                self.read();
                self.looks = 0;
            } else {
                self.looks += 1;
            }
            self.settle();
        }
    }

    /// Waits for a message, or until it is time to look at pages again.
    fn wait(&self) -> (bool, bool) {
        let pause = match self.looks {
            _ if !self.removals.iter().any(|removal| !removal.witnesses().is_empty()) => None,
            looks if looks < QUICK_LOOKS => {
                // Who removes may be waiting for this processor.
                rustix::thread::sched_yield();
                Some(0)
            }
            looks if looks < QUICK_LOOKS + SLOW_LOOKS => Some(PAUSE_NS << (looks - QUICK_LOOKS)),
            _ => None,
        };
        let pause = pause.map(|ns| Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 });
        let (uffd, stop) = (self.shared.uffd.as_fd(), self.shared.stop.as_fd());
        let mut polled =
            [PollFd::from_borrowed_fd(uffd, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        // An interrupted wait has nothing to report.
        let _ = poll(&mut polled, pause.as_ref());
        let ready = |at: usize| polled[at].revents().contains(PollFlags::IN);
        (ready(0), ready(1))
    }

    /// Nobody may rely on what was before from the moment that it is read until it is written down.
    fn read(&mut self) {
        self.shared.told.begin();
        let count = self.shared.uffd.read(&mut self.messages);
        for at in 0..count {
            self.take_in(self.messages[at].event());
        }
        self.shared.in_doubt.show(&self.removals);
        self.shared.told.end();
    }

    fn take_in(&mut self, event: Event) {
        let Shared { told, pages, counts, .. } = &*self.shared;
        match event {
            Event::Unmap { start, end } => {
                told.tell(start, end);
                count(&counts.unmapped);
            }
            Event::Remap { from, to, len } => {
                told.tell(from, from.saturating_add(len));
                told.tell(to, to.saturating_add(len));
                count(&counts.moved);
            }
            Event::Remove { start, end } => {
                let mut witnesses = [0; WITNESSES];
                let there = pages.last_present(start, end, &mut witnesses);
                told.tell(start, end);
                removals::add(&mut self.removals, Removal::new(start, end, witnesses, there));
                count(&counts.removed);
            }
            Event::Other => {}
        }
    }

    /// Forgets removals that can be seen to be over.
    fn settle(&mut self) {
        let before = self.removals.len();
        let shared = Arc::clone(&self.shared);
        self.removals.retain(|removal| !is_over(&shared, removal));
        let over = before - self.removals.len();
        if over > 0 {
            shared.counts.removals_over.fetch_add(over as u64, Ordering::Relaxed);
            shared.told.begin();
            shared.in_doubt.show(&self.removals);
            shared.told.end();
        }
    }
}

fn is_over(shared: &Shared, removal: &Removal) -> bool {
    if removal.witnesses().iter().any(|page| shared.pages.is_empty(*page)) {
        shared.uffd.wait_for_mappings();
        return true;
    }
    shared.maps.is_hole(removal.start, removal.end)
}

fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

//! The node's contract ([`NodeTransport`]), kept by shared memory: the launcher tells of lost peers, and the
//! doorbell wakes.

use std::os::fd::BorrowedFd;

use engine::{Counters, Rank};

use super::ShmTransport;
use crate::transport::contract::{NodeTransport, Outsider, Rest};
use crate::transport::mr_invalidation::{CachesRegistrations, ChangeSource};

impl CachesRegistrations for ShmTransport {
    fn memory(&mut self) -> Option<&mut ChangeSource> {
        None
    }
}

impl NodeTransport for ShmTransport {
    fn provider(&self) -> Option<&str> {
        None
    }

    /// A thread sleeps on the doorbell.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Near peers are known by their segments.
    fn meet(&mut self, _: Rank, _: &Outsider) -> bool {
        false
    }

    fn is_linked(&self, _: Rank) -> bool {
        false
    }

    #[inline(always)]
    fn spin_for_message(&mut self, looks: u32) {
        self.spin(looks);
    }

    fn prepare_sleep(&mut self) -> Rest {
        self.arm_doorbell()
    }

    fn look_at_clock_soon(&mut self) {}

    fn bytes_on_the_way(&self) -> u64 {
        0
    }

    fn add_to(&self, counters: &mut Counters) {
        self.add_copied_to(counters);
    }

    fn take_signalled(&mut self) -> bool {
        false
    }

    fn take_gathering(&mut self) -> bool {
        false
    }

    fn send_gathered(&mut self) {}

    fn has_lost(&self) -> bool {
        false
    }

    fn take_lost(&mut self) -> Vec<Rank> {
        Vec::new()
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn take_leave(&mut self, _: Rank) {}

    fn has_left(&self, _: Rank) -> bool {
        false
    }

    fn watch(&mut self, _: Rank) {}
}

//! A share of the memory that may be locked, and those who wait for some of it.

use std::collections::VecDeque;

/// The share of one direction. Sends and receives have one each: pins of one never wait for those of the
/// other, so that at least one of each goes on whatever the other processes do.
pub(super) struct Pool {
    limit_bytes: u64,
    used_bytes: u64,
    /// The delayed queue: operations that have not locked yet, in their order.
    waiting: VecDeque<u64>,
    /// How many of them, from the first on, are counted as delayed.
    counted: usize,
}

impl Pool {
    pub(super) fn new(limit_bytes: u64) -> Pool {
        Pool { limit_bytes: limit_bytes.max(1), used_bytes: 0, waiting: VecDeque::new(), counted: 0 }
    }

    /// Has an operation lock when its turn comes.
    pub(super) fn queue(&mut self, id: u64) {
        self.waiting.push_back(id);
    }

    /// The operation whose turn it is.
    pub(super) fn first(&self) -> Option<u64> {
        self.waiting.front().copied()
    }

    /// The first one need not wait any more.
    pub(super) fn pass(&mut self) {
        self.waiting.pop_front();
        self.counted = self.counted.saturating_sub(1);
    }

    /// The first one cannot lock now: how many wait that did not wait before.
    pub(super) fn delay(&mut self) -> u64 {
        let new = self.waiting.len() - self.counted;
        self.counted = self.waiting.len();
        new as u64
    }

    /// As much of `bytes` as the share ever has.
    pub(super) fn most_of(&self, bytes: u64) -> u64 {
        bytes.min(self.limit_bytes)
    }

    /// Takes so much, if it is there now.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit_bytes - self.used_bytes;
        self.used_bytes += if fits { bytes } else { 0 };
        fits
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        assert!(bytes <= self.used_bytes, "it was taken before");
        self.used_bytes -= bytes;
    }

    /// Whether nobody has any of it: waiting would bring nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.used_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_its_limit_and_what_is_longer_goes_in_parts() {
        let mut pool = Pool::new(100);
        assert_eq!((pool.most_of(100), pool.most_of(101), pool.is_idle()), (100, 100, true));
        assert!(pool.take(60) && !pool.take(41) && pool.take(40) && !pool.take(1));
        pool.give_back(60);
        assert!(!pool.is_idle() && pool.take(60));
        pool.give_back(100);
        assert!(pool.is_idle());
    }

    #[test]
    fn each_operation_is_counted_once_for_each_time_that_it_waits() {
        let mut pool = Pool::new(1);
        assert_eq!((pool.first(), pool.delay()), (None, 0));
        pool.queue(7);
        pool.queue(8);
        assert_eq!([pool.delay(), pool.delay()], [2, 0]);
        pool.queue(9);
        pool.pass();
        assert_eq!((pool.first(), pool.delay(), pool.delay()), (Some(8), 1, 0));
        for _ in 0..3 {
            pool.pass();
        }
        pool.queue(7);
        assert_eq!((pool.first(), pool.delay()), (Some(7), 1), "it waits anew");
    }
}

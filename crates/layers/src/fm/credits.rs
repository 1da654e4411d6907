//! How many packets may be under way between two processes, so that what nobody extracts is bounded.
//!
//! Every process keeps room for [`window`] packets of each other one. A sender pays one credit a packet; the
//! receiver gives it back once the packet's last byte has been received or thrown away.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Packets that a process keeps room for, of all others together.
const ROOM: u32 = 1024;

/// The most that it keeps room for of one other.
const WINDOW_MAX: u32 = 128;

/// Packets that may be under way from one of `nodes` processes to another.
pub(crate) fn window(nodes: u32) -> u32 {
    (ROOM / nodes.max(1)).clamp(2, WINDOW_MAX)
}

/// What stands between this process and one other, in packets.
#[derive(Debug)]
pub(crate) struct Credits {
    window: u32,
    /// May be sent there.
    left: AtomicU32,
    /// Came from there, and somebody has yet to consume them.
    unread: AtomicU32,
    /// Were consumed, and the other one has yet to be told.
    owed: AtomicU32,
}

impl Credits {
    pub(crate) fn new(window: u32) -> Credits {
        Credits { window, left: window.into(), unread: 0.into(), owed: 0.into() }
    }

    /// Credits that are owed are given back from this many on.
    fn batch(&self) -> u32 {
        self.window / 2
    }

    /// The largest number of packets for which [`Credits::take`] is sure to succeed some day, if all that was
    /// sent is consumed.
    pub(crate) fn most_at_once(&self) -> u32 {
        self.window - self.batch() + 1
    }

    /// Takes so many credits, or none where there are fewer.
    #[inline]
    pub(crate) fn take(&self, packets: u32) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(packets)).is_ok()
    }

    /// Gives back what was taken and not used.
    pub(crate) fn untake(&self, packets: u32) {
        self.left.fetch_add(packets, Relaxed);
    }

    pub(crate) fn has_any(&self) -> bool {
        self.left.load(Relaxed) > 0
    }

    /// Takes credits that the other one gives back: `false`, and nothing changes, where it had not so many.
    #[inline]
    pub(crate) fn returned(&self, packets: u32) -> bool {
        let add = |left: u32| left.checked_add(packets).filter(|left| *left <= self.window);
        packets == 0 || self.left.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Notes a packet from there: `false`, and it is not noted, where the other one had no credit for it.
    #[inline]
    pub(crate) fn arrived(&self) -> bool {
        let add = |unread: u32| (unread < self.window).then(|| unread + 1);
        self.unread.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    /// Notes that a packet from there was consumed: whether a message of their own is due from this one on.
    #[inline]
    pub(crate) fn consumed(&self) -> bool {
        let unread = self.unread.fetch_sub(1, Relaxed);
        debug_assert!(unread > 0, "what is consumed has arrived");
        self.owed.fetch_add(1, Relaxed) + 1 == self.batch()
    }

    /// Whether so many are owed that a message of their own is due.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.owed.load(Relaxed) >= self.batch()
    }

    /// All that are owed, which the caller gives back.
    #[inline]
    pub(crate) fn take_owed(&self) -> u16 {
        if self.owed.load(Relaxed) == 0 { 0 } else { self.owed.swap(0, Relaxed) as u16 }
    }

    /// Notes that they could not be given back yet.
    pub(crate) fn still_owed(&self, packets: u16) {
        self.owed.fetch_add(u32::from(packets), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_dealt_to_all() {
        assert_eq!([1, 2, 8, 9, 100, 512, 100_000].map(window), [128, 128, 128, 113, 10, 2, 2]);
    }

    #[test]
    fn no_more_is_sent_than_was_dealt() {
        let credits = Credits::new(4);
        assert!(credits.take(3) && !credits.take(2) && credits.take(1) && !credits.has_any());
        assert!(!credits.returned(5) && credits.returned(4) && !credits.returned(1) && credits.returned(0));
        assert!(!credits.returned(u32::MAX));
        assert!(credits.take(4));
        credits.untake(2);
        assert!(credits.take(2) && !credits.take(1));
    }

    #[test]
    fn no_more_arrives_than_was_dealt_and_halves_are_given_back() {
        let credits = Credits::new(4);
        assert!((0..4).all(|_| credits.arrived()) && !credits.arrived());
        assert!(!credits.consumed() && !credits.are_due());
        assert!(credits.consumed() && credits.are_due() && credits.arrived());
        assert!(!credits.consumed() && credits.are_due() && credits.arrived());
        assert_eq!((credits.take_owed(), credits.take_owed()), (3, 0));
        credits.still_owed(3);
        assert_eq!((credits.take_owed(), credits.are_due()), (3, false));
        // With one credit short of a batch still owed, this many can be had.
        assert_eq!(credits.most_at_once(), 3);
    }
}

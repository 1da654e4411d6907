//! How many packets may be under way between two processes, so that what nobody extracts is bounded.
//!
//! Every process keeps room for [`window`] packets of each other one. A sender pays one credit a packet; the
//! receiver gives it back once the packet's last byte has been received or thrown away.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Packets that a process keeps room for, of all others together.
const ROOM: u32 = 1024;

/// The most that it keeps room for of one other.
const WINDOW_MAX: u32 = 128;

/// Packets that may be under way from one of `nodes` processes to another.
pub(crate) fn window(nodes: u32) -> u32 {
    (ROOM / nodes.max(1)).clamp(2, WINDOW_MAX)
}

/// The credits between this process and one other. Each count is of packets since the opening; it wraps.
#[derive(Debug)]
pub(crate) struct Credits {
    window: u32,
    /// Credits that were taken: whoever has the message to that process open counts.
    taken: AtomicU32,
    /// Credits that came back: the handler of Active Messages counts, of which one runs at a time.
    returned: AtomicU32,
    /// Packets that came from there: the same handler counts.
    arrived: AtomicU32,
    /// Arrived packets that were consumed: any thread counts.
    consumed: AtomicU32,
    /// Consumed packets that the other process has been told of: any thread counts.
    told: AtomicU32,
}

impl Credits {
    pub(crate) fn new(window: u32) -> Credits {
        let none = || AtomicU32::new(0);
        Credits { window, taken: none(), returned: none(), arrived: none(), consumed: none(), told: none() }
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

    /// Packets that are under way there, or that the other process has not given back. A hostile one may
    /// give back credits that were reserved and then not used: a negative difference counts as none.
    fn out(&self) -> u32 {
        let out = self.taken.load(Relaxed).wrapping_sub(self.returned.load(Relaxed));
        out.cast_signed().max(0).cast_unsigned()
    }

    /// Takes so many credits, or none where there are fewer. For whoever has the message open.
    #[inline]
    pub(crate) fn take(&self, packets: u32) -> bool {
        let is_enough = packets <= self.window.saturating_sub(self.out());
        if is_enough {
            self.taken.store(self.taken.load(Relaxed).wrapping_add(packets), Relaxed);
        }
        is_enough
    }

    /// Gives back what was taken and not used. For whoever has the message open.
    pub(crate) fn untake(&self, packets: u32) {
        self.taken.store(self.taken.load(Relaxed).wrapping_sub(packets), Relaxed);
    }

    pub(crate) fn has_any(&self) -> bool {
        self.out() < self.window
    }

    /// Takes credits that the other one gives back: `false`, and nothing changes, where it had not so many.
    /// For the handler.
    #[inline]
    pub(crate) fn returned(&self, packets: u32) -> bool {
        if packets > 0 {
            if packets > self.out() {
                return false;
            }
            self.returned.store(self.returned.load(Relaxed).wrapping_add(packets), Relaxed);
        }
        true
    }

    /// Notes a packet from there: `false`, and it is not noted, where the other one had no credit for it. For
    /// the handler.
    #[inline]
    pub(crate) fn arrived(&self) -> bool {
        let arrived = self.arrived.load(Relaxed);
        let has_room = arrived.wrapping_sub(self.consumed.load(Relaxed)) < self.window;
        if has_room {
            self.arrived.store(arrived.wrapping_add(1), Relaxed);
        }
        has_room
    }

    /// Notes that a packet from there was consumed: whether a message of their own is due.
    #[inline]
    pub(crate) fn consumed(&self) -> bool {
        let consumed = self.consumed.fetch_add(1, Relaxed).wrapping_add(1);
        consumed.wrapping_sub(self.told.load(Relaxed)) >= self.batch()
    }

    /// Consumed, and not told of.
    #[inline]
    fn owed(&self) -> u32 {
        self.consumed.load(Relaxed).wrapping_sub(self.told.load(Relaxed))
    }

    /// Whether so many are owed that a message of their own is due.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.owed() >= self.batch()
    }

    /// All that are owed, which the caller gives back.
    #[inline]
    pub(crate) fn take_owed(&self) -> u16 {
        // Acquire: a thread that sees what another has told sees the packets that this was for.
        let mut told = self.told.load(Acquire);
        loop {
            let consumed = self.consumed.load(Relaxed);
            let owed = consumed.wrapping_sub(told);
            if owed == 0 || owed > self.window {
                return 0;
            }
            match self.told.compare_exchange_weak(told, consumed, AcqRel, Acquire) {
                Ok(_) => return owed as u16,
                Err(other) => told = other,
            }
        }
    }

    /// Notes that they could not be given back yet.
    pub(crate) fn still_owed(&self, packets: u16) {
        self.told.fetch_sub(u32::from(packets), AcqRel);
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
    fn a_peer_that_gives_back_what_was_not_used_takes_no_credit_away() {
        let credits = Credits::new(4);
        assert!(credits.take(3) && credits.returned(3));
        credits.untake(3);
        assert!(credits.has_any() && !credits.returned(1) && credits.take(4));
    }

    #[test]
    fn no_more_arrives_than_was_dealt_and_halves_are_given_back() {
        let credits = Credits::new(4);
        assert!((0..4).all(|_| credits.arrived()) && !credits.arrived());
        assert!(!credits.consumed() && !credits.are_due());
        assert!(credits.consumed() && credits.are_due() && credits.arrived());
        assert!(credits.consumed() && credits.are_due() && credits.arrived(), "it stays due");
        assert_eq!((credits.take_owed(), credits.take_owed()), (3, 0));
        credits.still_owed(3);
        assert_eq!((credits.take_owed(), credits.are_due()), (3, false));
        // With one credit short of a batch still owed, this many can be had.
        assert_eq!(credits.most_at_once(), 3);
    }
}

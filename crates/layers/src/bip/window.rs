//! How many short messages may wait unreceived at a peer.
//!
//! BIP has no flow control: what finds no buffer is lost there. Here nothing is lost. A sender counts what it
//! has sent and what the receiver says it has taken out of its queues, and holds a message back when the
//! difference is the receiver's window.

/// Short messages of one sender that a receiver keeps in any case, in all its tags together. To these come
/// the buffers that its program has declared, so that a program that keeps to them is never held back.
pub(super) const BASE: u32 = 1024;

/// The sender's side of one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outflow {
    window: u32,
    sent: u64,
    taken: u64,
}

impl Outflow {
    /// For a peer that keeps so many.
    pub(super) fn new(window: u32) -> Outflow {
        Outflow { window, sent: 0, taken: 0 }
    }

    /// Whether one more may be sent.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.sent - self.taken < u64::from(self.window)
    }

    /// Counts one that was sent.
    #[inline]
    pub(super) fn send(&mut self) {
        self.sent += 1;
    }

    /// Takes note of how many the peer has taken since the beginning. `false`: it says what cannot be.
    pub(super) fn heard(&mut self, total: u64) -> bool {
        let can_be = total <= self.sent && total >= self.taken;
        if can_be {
            self.taken = total;
        }
        can_be
    }
}

/// The receiver's side of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inflow {
    arrived: u64,
    taken: u64,
    told: u64,
}

impl Inflow {
    /// Counts one that came. `false`: the peer has sent more than it may, and it is refused.
    #[inline]
    pub(super) fn arrive(&mut self, window: u32) -> bool {
        let may = self.arrived - self.told < u64::from(window);
        self.arrived += u64::from(may);
        may
    }

    /// Counts one that was taken out of its queue: whether the peer is to be told now. A quarter of the
    /// window at a time, so that few messages of this kind are sent.
    #[inline]
    pub(super) fn take(&mut self, window: u32) -> bool {
        self.taken += 1;
        self.taken - self.told == u64::from(window / 4).max(1)
    }

    /// What the peer is to be told.
    pub(super) fn total(&self) -> u64 {
        self.taken
    }

    /// Takes note that the peer was told so.
    pub(super) fn tell(&mut self, total: u64) {
        self.told = total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_stops_at_the_window_and_goes_on_when_it_hears() {
        let mut outflow = Outflow::new(3);
        for _ in 0..3 {
            assert!(outflow.has_room());
            outflow.send();
        }
        assert!(!outflow.has_room());
        assert!(outflow.heard(1) && outflow.has_room());
        outflow.send();
        assert!(!outflow.has_room());
        assert!(!outflow.heard(5), "more than were sent");
        assert!(!outflow.heard(0), "fewer than before");
        assert!(!outflow.heard(u64::MAX));
        assert!(!outflow.has_room(), "what cannot be changes nothing");
        assert!(outflow.heard(4) && outflow.has_room());
    }

    #[test]
    fn a_receiver_tells_in_time_and_refuses_beyond_the_window() {
        let window = 8;
        let (mut outflow, mut inflow) = (Outflow::new(window), Inflow::default());
        let mut told = 0;
        for round in 0..1000_u64 {
            while outflow.has_room() {
                outflow.send();
                assert!(inflow.arrive(window), "round {round}");
            }
            assert!(!inflow.arrive(window), "one more than may be");
            while !inflow.take(window) {}
            let total = inflow.total();
            inflow.tell(total);
            assert!(outflow.heard(total));
            told += 1;
        }
        assert_eq!((told, inflow.total()), (1000, 2000), "a quarter of the window at a time");
    }

    #[test]
    fn the_smallest_window_works() {
        let mut inflow = Inflow::default();
        assert!(inflow.arrive(1) && inflow.take(1));
        inflow.tell(inflow.total());
        assert!(inflow.arrive(1));
    }
}

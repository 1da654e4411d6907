//! Flow control and order of one lane between two processes.
//!
//! A sender has so many *credits*, each for one message that its receiver keeps until the engine takes it;
//! the receiver gives them back with messages of its own. Messages are numbered, and handed on in the order
//! of their numbers: none is expected of the network. A message that cannot be kept was sent without a
//! credit, which no correct sender does.

use engine::{Header, Inbox};

use crate::base::limits::CREDITS;

const _: () = assert!(CREDITS.is_power_of_two(), "numbers wrap where the slots do");

/// Credits owed that are worth a message of their own.
const HALF: u16 = CREDITS / 2;

/// The peer broke the rules of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foul;

/// The sender's end of a lane.
#[derive(Debug)]
pub(super) struct Outgoing {
    next: u32,
    credits: u16,
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing { next: 0, credits: CREDITS }
    }

    pub(super) fn has_room(&self) -> bool {
        self.credits > 0
    }

    /// Takes a credit: the next message's number.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.credits = self.credits.checked_sub(1)?;
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        Some(sequence)
    }

    /// Takes credits back. No receiver can owe more than were taken.
    pub(super) fn give(&mut self, credits: u16) -> Result<(), Foul> {
        let credits = self.credits.checked_add(credits).filter(|credits| *credits <= CREDITS).ok_or(Foul)?;
        self.credits = credits;
        Ok(())
    }
}

/// A message that waits.
#[derive(Debug, Default)]
struct Slot {
    filled: bool,
    header: [u64; Header::WORDS],
    payload: Vec<u8>,
}

/// The receiver's end of a lane: what has arrived, in order or not.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// The number of the next message to hand on.
    next: u32,
    /// Messages handed on whose credits have not gone back.
    owed: u16,
    /// By number, modulo their count.
    slots: Box<[Slot]>,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals { next: 0, owed: 0, slots: (0..CREDITS).map(|_| Slot::default()).collect() }
    }

    /// Keeps a message; `payload` writes it into a vector of `len` bytes.
    pub(super) fn store(
        &mut self,
        sequence: u32,
        header: [u64; Header::WORDS],
        len: usize,
        payload: impl FnOnce(&mut [u8]),
    ) -> Result<(), Foul> {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead >= u32::from(CREDITS - self.owed) {
            return Err(Foul);
        }
        let slot = &mut self.slots[(sequence % u32::from(CREDITS)) as usize];
        if slot.filled {
            return Err(Foul);
        }
        slot.filled = true;
        slot.header = header;
        slot.payload.resize(len, 0);
        payload(&mut slot.payload);
        Ok(())
    }

    /// Whether the next message is there.
    pub(super) fn ready(&self) -> bool {
        self.slots[(self.next % u32::from(CREDITS)) as usize].filled
    }

    /// Hands the next message on; `false` if it is not there.
    pub(super) fn take(&mut self, inbox: &mut Inbox) -> bool {
        let slot = &mut self.slots[(self.next % u32::from(CREDITS)) as usize];
        if !std::mem::take(&mut slot.filled) {
            return false;
        }
        inbox.header = slot.header;
        std::mem::swap(&mut inbox.payload, &mut slot.payload);
        self.next = self.next.wrapping_add(1);
        self.owed += 1;
        true
    }

    /// Whether what is owed should not wait for a message to go with.
    pub(super) fn owes_much(&self) -> bool {
        self.owed >= HALF
    }

    /// All that is owed, which from now on is the sender's again.
    pub(super) fn pay(&mut self) -> u16 {
        std::mem::take(&mut self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn store(lane: &mut Arrivals, sequence: u32) -> Result<(), Foul> {
        lane.store(sequence, [u64::from(sequence); 7], 3, |payload| payload.fill(sequence as u8))
    }

    #[test]
    fn what_exceeds_the_credits_or_comes_twice_is_foul() {
        let mut lane = Arrivals::new();
        let last = u32::from(CREDITS) - 1;
        assert_eq!(store(&mut lane, last + 1), Err(Foul));
        assert_eq!(store(&mut lane, u32::MAX), Err(Foul));
        assert_eq!(store(&mut lane, last), Ok(()));
        assert_eq!(store(&mut lane, last), Err(Foul));
        assert!(!lane.ready() && !lane.take(&mut Inbox::default()));
        assert_eq!(store(&mut lane, 0), Ok(()));
        assert!(lane.take(&mut Inbox::default()));
        assert_eq!(store(&mut lane, 0), Err(Foul), "it has been handed on");
        assert_eq!(store(&mut lane, last + 1), Err(Foul), "its credit has not gone back");
        assert_eq!(lane.pay(), 1);
        assert_eq!(store(&mut lane, last + 1), Ok(()));
    }

    #[test]
    fn nobody_gives_back_more_than_was_taken() {
        let mut lane = Outgoing::new();
        assert_eq!(lane.give(1), Err(Foul));
        assert_eq!((lane.take(), lane.take()), (Some(0), Some(1)));
        assert_eq!(lane.give(3), Err(Foul));
        assert_eq!(lane.give(u16::MAX), Err(Foul));
        assert_eq!(lane.give(2), Ok(()));
        let taken = std::iter::from_fn(|| lane.take()).count();
        assert_eq!((taken, lane.has_room()), (usize::from(CREDITS), false));
    }

    proptest! {
        /// Whatever the network's order, messages are handed on in the sender's, and none is refused.
        #[test]
        fn any_order_of_arrival_is_put_right(dice in proptest::collection::vec((0_u8..4, any::<usize>()), 1..400)) {
            // The numbers wrap on the way.
            const FIRST: u32 = u32::MAX - 20;
            let (mut out, mut lane) = (Outgoing { next: FIRST, credits: CREDITS }, Arrivals::new());
            lane.next = FIRST;
            let (mut network, mut expected) = (VecDeque::new(), FIRST);
            let mut inbox = Inbox::default();
            for (what, which) in dice {
                match what {
                    0 => network.extend(out.take()),
                    1 if !network.is_empty() => {
                        let sequence = network.remove(which % network.len()).expect("there are as many");
                        prop_assert_eq!(store(&mut lane, sequence), Ok(()));
                    }
                    2 if lane.take(&mut inbox) => {
                        prop_assert_eq!((inbox.header[0], inbox.payload[0]), (u64::from(expected), expected as u8));
                        expected = expected.wrapping_add(1);
                    }
                    _ => prop_assert_eq!(out.give(lane.pay()), Ok(())),
                }
            }
        }

        #[test]
        fn no_number_is_kept_twice_or_lost(numbers: Vec<u32>, near in proptest::collection::vec(0_u32..40, 0..100)) {
            let mut lane = Arrivals::new();
            let mut kept = std::collections::BTreeSet::new();
            for number in numbers.into_iter().chain(near) {
                let fits = number < u32::from(CREDITS) && !kept.contains(&number);
                prop_assert_eq!(store(&mut lane, number).is_ok(), fits);
                if fits {
                    kept.insert(number);
                }
            }
            let mut inbox = Inbox::default();
            let handed_on = std::iter::from_fn(|| lane.take(&mut inbox).then_some(())).count() as u32;
            prop_assert!((0..handed_on).all(|number| kept.contains(&number)) && !kept.contains(&handed_on));
        }
    }
}

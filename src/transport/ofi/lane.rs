//! Flow control and order of one lane between two processes.
//!
//! A sender has so many *credits*, each for so many bytes of messages that its receiver keeps until the
//! engine takes them; the receiver gives them back with what it sends. Messages are numbered, and handed on
//! in the order of their numbers: none is expected of the network. A message that cannot be kept was sent
//! without credits, which no correct sender does.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use engine::{Header, Inbox};

use super::frame::Letter;
use crate::base::limits::CREDITS;

/// Bytes of a message that take one credit. Each takes one at least, so that a lane holds no more messages
/// than it has credits.
const CREDIT_BYTES: usize = 128;

/// Credits owed that are worth a frame of their own.
const HALF: u16 = CREDITS / 2;

/// Empty payloads that keep their memory for messages to come.
const SPARE_MAX: usize = 32;

/// Bytes of memory that such a payload has. Shorter ones are made anew: otherwise short messages that wait
/// would take the memory of long ones.
const SPARE_BYTES: RangeInclusive<usize> = 1 << 10..=8 << 10;

/// The peer broke the rules of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foul;

/// Credits that a message with so many bytes of payload takes.
pub(super) const fn credits(payload: usize) -> u16 {
    Letter::bytes(payload).div_ceil(CREDIT_BYTES) as u16
}

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

    /// Whether there is room for a message with so many bytes of payload.
    pub(super) fn has_room(&self, payload: usize) -> bool {
        self.credits >= credits(payload)
    }

    /// Takes the credits of a message with so many bytes of payload: its number.
    pub(super) fn take(&mut self, payload: usize) -> Option<u32> {
        self.credits = self.credits.checked_sub(credits(payload))?;
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
#[derive(Debug)]
struct Slot {
    header: [u64; Header::WORDS],
    payload: Vec<u8>,
}

/// The receiver's end of a lane: what has arrived, in order or not.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The number of the next message to hand on.
    next: u32,
    /// Credits of messages that wait, and of those handed on whose credits have not gone back.
    kept: u16,
    owed: u16,
    /// From the next message on; `None`: it has not come.
    slots: VecDeque<Option<Slot>>,
    spare: Vec<Vec<u8>>,
}

impl Arrivals {
    /// Keeps a message; `payload` writes it into a vector of `len` bytes.
    pub(super) fn store(
        &mut self,
        sequence: u32,
        header: [u64; Header::WORDS],
        len: usize,
        payload: impl FnOnce(&mut [u8]),
    ) -> Result<(), Foul> {
        let ahead = sequence.wrapping_sub(self.next) as usize;
        let taken = self.kept + self.owed + credits(len);
        if ahead >= usize::from(CREDITS) || taken > CREDITS {
            return Err(Foul);
        }
        let mut slot = Slot { header, payload: Vec::new() };
        if len > 0 {
            if SPARE_BYTES.contains(&len) {
                slot.payload = self.spare.pop().unwrap_or_default();
            }
            slot.payload.resize(len, 0);
            payload(&mut slot.payload);
        }
        match self.slots.get_mut(ahead) {
            Some(Some(_)) => return Err(Foul),
            Some(place) => *place = Some(slot),
            None => {
                self.slots.resize_with(ahead, || None);
                self.slots.push_back(Some(slot));
            }
        }
        self.kept += credits(len);
        Ok(())
    }

    /// Whether the next message is there.
    pub(super) fn ready(&self) -> bool {
        matches!(self.slots.front(), Some(Some(_)))
    }

    /// Hands the next message on; `false` if it is not there.
    pub(super) fn take(&mut self, inbox: &mut Inbox) -> bool {
        if !self.ready() {
            return false;
        }
        let Some(Some(Slot { header, payload })) = self.slots.pop_front() else { return false };
        let taken = credits(payload.len());
        inbox.header = header;
        let mut before = std::mem::replace(&mut inbox.payload, payload);
        if SPARE_BYTES.contains(&before.capacity()) && self.spare.len() < SPARE_MAX {
            before.clear();
            self.spare.push(before);
        }
        self.next = self.next.wrapping_add(1);
        self.kept -= taken;
        self.owed += taken;
        true
    }

    /// Whether what is owed should not wait for a frame to go with.
    pub(super) fn owes_much(&self) -> bool {
        self.owed >= HALF
    }

    /// Credits that are owed.
    pub(super) fn owed(&self) -> u16 {
        self.owed
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

    /// A payload that takes as many credits as nobody has for a second one.
    const LONG: usize = CREDITS as usize / 2 * CREDIT_BYTES;

    fn store(lane: &mut Arrivals, sequence: u32, len: usize) -> Result<(), Foul> {
        lane.store(sequence, [u64::from(sequence); 7], len, |payload| payload.fill(sequence as u8))
    }

    #[test]
    fn what_exceeds_the_credits_or_comes_twice_is_foul() {
        let mut lane = Arrivals::default();
        let last = u32::from(CREDITS) - 1;
        assert_eq!(store(&mut lane, last + 1, 0), Err(Foul));
        assert_eq!(store(&mut lane, u32::MAX, 0), Err(Foul));
        assert_eq!(store(&mut lane, last, 0), Ok(()));
        assert_eq!(store(&mut lane, last, 0), Err(Foul));
        assert!(!lane.ready() && !lane.take(&mut Inbox::default()));
        assert_eq!(store(&mut lane, 1, LONG), Ok(()));
        assert_eq!(store(&mut lane, 0, LONG), Err(Foul), "there are no credits for two of them");
        assert_eq!(store(&mut lane, 0, 0), Ok(()));
        assert!(lane.take(&mut Inbox::default()));
        assert_eq!(store(&mut lane, 0, 0), Err(Foul), "it has been handed on");
        assert!(lane.take(&mut Inbox::default()));
        assert_eq!(store(&mut lane, 2, LONG), Err(Foul), "its credits have not gone back");
        assert_eq!(lane.pay(), credits(LONG) + 1);
        assert_eq!(store(&mut lane, 2, LONG), Ok(()));
    }

    #[test]
    fn nobody_gives_back_more_than_was_taken() {
        let mut lane = Outgoing::new();
        assert_eq!(lane.give(1), Err(Foul));
        assert_eq!((lane.take(0), lane.take(128)), (Some(0), Some(1)));
        assert_eq!(lane.give(4), Err(Foul));
        assert_eq!(lane.give(u16::MAX), Err(Foul));
        assert_eq!(lane.give(3), Ok(()));
        let taken = std::iter::from_fn(|| lane.take(0)).count();
        assert_eq!((taken, lane.has_room(0)), (usize::from(CREDITS), false));
        assert_eq!(lane.give(CREDITS / 2), Ok(()));
        assert_eq!((lane.has_room(LONG), lane.has_room(LONG / 2), lane.take(LONG)), (false, true, None));
    }

    #[test]
    fn a_long_payload_leaves_no_memory_but_that_of_a_few() {
        let (mut lane, mut inbox) = (Arrivals::default(), Inbox::default());
        for sequence in 0..2 * u32::from(CREDITS) {
            assert_eq!(store(&mut lane, sequence, 1024), Ok(()));
            assert!(lane.take(&mut inbox));
            lane.pay();
        }
        assert!(lane.spare.len() <= SPARE_MAX && lane.slots.is_empty());
    }

    proptest! {
        /// Whatever the network's order, messages are handed on in the sender's, and none is refused.
        #[test]
        fn any_order_of_arrival_is_put_right(dice in proptest::collection::vec((0_u8..4, any::<usize>()), 1..400)) {
            // The numbers wrap on the way.
            const FIRST: u32 = u32::MAX - 20;
            let (mut out, mut lane) = (Outgoing { next: FIRST, credits: CREDITS }, Arrivals::default());
            lane.next = FIRST;
            let (mut network, mut expected) = (VecDeque::new(), FIRST);
            let mut inbox = Inbox::default();
            for (what, which) in dice {
                let len = which % 5000;
                match what {
                    0 => network.extend(out.take(len).map(|sequence| (sequence, len))),
                    1 if !network.is_empty() => {
                        let (sequence, len) = network.remove(which % network.len()).expect("there are as many");
                        prop_assert_eq!(store(&mut lane, sequence, len), Ok(()));
                    }
                    2 if lane.take(&mut inbox) => {
                        prop_assert_eq!(inbox.header[0], u64::from(expected));
                        prop_assert!(inbox.payload.iter().all(|byte| *byte == expected as u8));
                        expected = expected.wrapping_add(1);
                    }
                    _ => prop_assert_eq!(out.give(lane.pay()), Ok(())),
                }
            }
        }

        #[test]
        fn no_number_is_kept_twice_or_lost(numbers: Vec<u32>, near in proptest::collection::vec(0_u32..40, 0..100)) {
            let mut lane = Arrivals::default();
            let mut kept = std::collections::BTreeSet::new();
            for number in numbers.into_iter().chain(near) {
                let fits = number < u32::from(CREDITS) && !kept.contains(&number);
                prop_assert_eq!(store(&mut lane, number, 3).is_ok(), fits);
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

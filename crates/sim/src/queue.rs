//! What is going to happen, in order of time; what is due at the same time happens in the order it was
//! planned in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::{Nanos, Rank, RegId};
use slab::Slab;

/// Something that happens by itself at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A message reaches its receiver's card.
    Arrive(u32),
    /// A get reaches the card that has the bytes.
    Fetch(u32),
    /// A one-sided operation's bytes reach the card that they are for.
    Land(u32),
    /// The initiator's card learns that a one-sided operation is complete.
    Report(u32),
    /// A slow registration is over.
    Registered { rank: Rank, incarnation: u32, reg: RegId, fails: bool },
    /// A slow deregistration is over.
    Deregistered { rank: Rank, incarnation: u32, reg: RegId },
    /// A process has the processor, and something to look at.
    Wake(Rank),
    /// A process has an operation's deadline to look at.
    Alarm(Rank),
    /// A process learns that another is gone.
    Lose { to: Rank, lost: Rank, incarnation: u32 },
    /// A process learns that another, which still runs, has given it up.
    HangUp { to: Rank, to_incarnation: u32, by: Rank, incarnation: u32 },
    /// A process learns that another has a rank that was lost.
    Introduce { to: Rank, rank: Rank },
    /// A rank that has ended is another process's from now on.
    Restart(Rank),
    /// A process polls again.
    Unmute(Rank),
    /// Memory that was unmapped is mapped again.
    Remap { rank: Rank, offset: u64, pages: u32 },
}

/// Bits of a key that say where its event is; as many may be planned at a time.
const SLOT_BITS: u32 = 24;

/// Events and their times.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The time, above how many events were planned before, above where the event is: one comparison of two
    /// words orders by time and turn, and two words are all that is moved about.
    heap: BinaryHeap<Reverse<u128>>,
    events: Slab<Event>,
    planned: u64,
}

fn at(key: u128) -> Nanos {
    (key >> 64) as Nanos
}

impl Queue {
    /// Plans an event.
    pub(crate) fn push(&mut self, at: Nanos, event: Event) {
        self.planned += 1;
        let slot = self.events.insert(event) as u64;
        assert!(slot >> SLOT_BITS == 0, "{slot} events are planned");
        self.heap.push(Reverse(u128::from(at) << 64 | u128::from(self.planned << SLOT_BITS | slot)));
    }

    /// When the next event is.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(key)| at(*key))
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(Nanos, Event)> {
        let Reverse(key) = self.heap.pop()?;
        let slot = key as usize & ((1 << SLOT_BITS) - 1);
        Some((at(key), self.events.remove(slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_planned() {
        let mut queue = Queue::default();
        for (at, rank) in [(5, 0), (3, 1), (5, 2), (3, 9), (3, 4)] {
            queue.push(at, Event::Wake(rank));
        }
        assert_eq!(queue.next_at(), Some(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let wanted = [(3, 1), (3, 9), (3, 4), (5, 0), (5, 2)].map(|(at, rank)| (at, Event::Wake(rank)));
        assert_eq!(order, wanted);
    }
}

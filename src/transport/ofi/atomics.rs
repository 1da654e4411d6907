//! Atomics, by message: their owner's processor does them, whoever asks. So are peers asked for the keys of
//! their [heaps](super::heaps).
//!
//! An ask is the words (its number, memory, offset, what to do, two values); its answer (its number, status,
//! the old word; or, of a heap, its live bytes, key and first byte). A process asks no peer for more than
//! [`ASKS`] at a time, so answers need no credits.

use engine::{Atomic, Event, Header, MemId, OpError, OpId, Place, Rank, Submit};

use super::envelope::Kind;
use super::lane::Foul;
use super::pending_requests::{Answer, PendingRequest, Reach, Wanted};
use super::transport::OfiTransport;
use crate::base::limits::{ANSWERS, ASKS};
use crate::transport::shm::atomic::atomic_at;

/// No atomic: the key of the heap.
const HEAP: u64 = 1 << 17;
const DONE: u64 = 0;
const FAULT: u64 = 1;

impl OfiTransport {
    pub(super) fn start_atomic(&mut self, op: OpId, peer: Rank, word: Place, atomic: Atomic) -> Submit {
        if peer == self.members.own.rank {
            return atomic_at(self.own.itself(), word, atomic).map_or_else(Submit::Failed, Submit::Done);
        }
        if let Err(error) = self.link(peer) {
            return Submit::Failed(error);
        }
        self.ask(peer, Wanted::Atomic { op, word, atomic });
        Submit::Pending
    }

    /// Asks a peer that there is a link to, as soon as it may be asked for more.
    pub(super) fn ask(&mut self, peer: Rank, wanted: Wanted) {
        let number = self.asked.insert(PendingRequest { wanted, peer, sent: false });
        let atomic = match wanted {
            Wanted::Atomic { word, atomic, .. } => Some((word, atomic)),
            Wanted::Heap => None,
        };
        let words = ask(number as u64, atomic);
        if let Some(link) = self.links.get_mut(peer) {
            link.asks.push_back(words);
        }
        self.send_asks(peer);
    }

    /// Asks a peer for as many atomics as it may be asked for.
    fn send_asks(&mut self, peer: Rank) {
        while let Some(link) = self.links.get_mut(peer).filter(|link| link.asked < ASKS) {
            let Some(words) = link.asks.pop_front() else { return };
            link.asked += 1;
            if let Some(asked) = self.asked.get_mut(words[0] as usize) {
                asked.sent = true;
            }
            if self.post(peer, Kind::Ask, 0, words, &[]).is_err() {
                return self.lose(peer);
            }
        }
    }

    /// Does what a peer asks for.
    pub(super) fn on_ask(&mut self, peer: Rank, words: &[u64; Header::WORDS]) -> Result<(), Foul> {
        let link = self.links.get(peer).ok_or(Foul)?;
        if link.unanswered >= ANSWERS {
            return Err(Foul);
        }
        let answer = match asked(words).ok_or(Foul)? {
            Some((word, atomic)) => {
                self.signalled |= atomic.signals;
                atomic_at(self.own.itself(), word, atomic).ok().map(|old| [old, 0, 0])
            }
            None => self.give_heap(peer).map(|Reach { key, base, live }| [live, key.0, base]),
        };
        let status = if answer.is_some() { DONE } else { FAULT };
        let [first, second, third] = answer.unwrap_or_default();
        if self.post(peer, Kind::Answer, 0, [words[0], status, first, second, third, 0, 0], &[]).is_err() {
            self.lose(peer);
        }
        Ok(())
    }

    /// Takes an answer, if it is to what that very peer was asked for.
    pub(super) fn on_answer(&mut self, peer: Rank, words: &[u64; Header::WORDS]) -> Result<(), Foul> {
        let [number, status, first, second, third, ..] = *words;
        let number = usize::try_from(number).map_err(|_| Foul)?;
        self.asked.get(number).filter(|asked| asked.sent && asked.peer == peer).ok_or(Foul)?;
        let link = self.links.get_mut(peer).ok_or(Foul)?;
        link.asked -= 1;
        let answer = match status {
            DONE => Answer::Done([first, second, third]),
            FAULT => Answer::Fault,
            _ => return Err(Foul),
        };
        match self.asked.remove(number).wanted {
            Wanted::Heap => self.on_heap(peer, answer),
            Wanted::Atomic { op, word, atomic } => {
                let result = match answer {
                    Answer::Done([old, ..]) => Ok(old),
                    Answer::Fault => {
                        let (mem, addr, len) = (word.mem, word.offset, atomic.size());
                        Err(OpError::Fault { peer, mem, addr, len })
                    }
                };
                self.events.push_back(Event::Completed { op, result });
            }
        }
        self.send_asks(peer);
        Ok(())
    }
}

/// The words that ask for an atomic, or for the heap.
fn ask(number: u64, atomic: Option<(Place, Atomic)>) -> [u64; Header::WORDS] {
    let Some((word, atomic)) = atomic else { return [number, 0, 0, HEAP, 0, 0, 0] };
    let [what, first, second] = atomic.to_wire();
    [number, word.mem.to_wire(), word.offset, what, first, second, 0]
}

/// The atomic that a peer asks for; within, `None` where that is the heap. `None` where nobody would ask so.
fn asked(words: &[u64; Header::WORDS]) -> Option<Option<(Place, Atomic)>> {
    let [_, mem, offset, what, first, second, _] = *words;
    if what == HEAP {
        return Some(None);
    }
    let atomic = Atomic::from_wire([what, first, second])?;
    Some(Some((Place::new(MemId::from_wire(mem)?, offset), atomic)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn asks_survive_the_network(number: u64, offset: u64, first: u64, second: u64, swaps: bool, mem in 0_usize..3) {
            let place = Place::new([MemId::Space, MemId::Heap, MemId::Control][mem], offset);
            let atomic = if swaps { Atomic::compare_swap(first, second) } else { Atomic::fetch_add(first) };
            prop_assert_eq!(asked(&ask(number, Some((place, atomic)))), Some(Some((place, atomic))));
            prop_assert_eq!(asked(&ask(number, None)), Some(None));
        }

        #[test]
        fn any_words_ask_for_something_or_nothing(words: [u64; 7]) {
            let _ = asked(&words);
        }
    }
}

//! Atomics, by message: their owner's processor does them, whoever asks.
//!
//! An ask is the words (its number, memory, offset, what to do, two operands); its answer (its number, status, the old
//! word). A process asks no peer for more than [`ASKS`] at a time, so answers need no credits.

use engine::{Atomic, Event, Header, MemId, OpError, OpId, Place, Rank, Submit};

use super::envelope::Kind;
use super::lane::Foul;
use super::link::{ANSWERS, ASKS};
use super::transport::{Asked, OfiTransport};
use crate::transport::shm::rings::atomic_at;

const ADD: u64 = 0;
const SWAP: u64 = 1;
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
        let number = self.asked.insert(Asked { op, peer, word, sent: false });
        let words = ask(number as u64, word, atomic);
        if let Some(link) = self.links.get_mut(peer) {
            link.asks.push_back(words);
        }
        self.send_asks(peer);
        Submit::Pending
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
        let (word, atomic) = asked(words).ok_or(Foul)?;
        let (status, old) = match atomic_at(self.own.itself(), word, atomic) {
            Ok(old) => (DONE, old),
            Err(_) => (FAULT, 0),
        };
        if self.post(peer, Kind::Answer, 0, [words[0], status, old, 0, 0, 0, 0], &[]).is_err() {
            self.lose(peer);
        }
        Ok(())
    }

    /// Takes an answer, if it is to what that very peer was asked for.
    pub(super) fn on_answer(&mut self, peer: Rank, words: &[u64; Header::WORDS]) -> Result<(), Foul> {
        let [number, status, old, ..] = *words;
        let number = usize::try_from(number).map_err(|_| Foul)?;
        self.asked.get(number).filter(|asked| asked.sent && asked.peer == peer).ok_or(Foul)?;
        let link = self.links.get_mut(peer).ok_or(Foul)?;
        link.asked -= 1;
        let Asked { op, word, .. } = self.asked.remove(number);
        let result = match status {
            DONE => Ok(old),
            FAULT => Err(OpError::Fault { peer, mem: word.mem, addr: word.offset, len: 8 }),
            _ => Err(OpError::Protocol { peer, what: "unknown status of an atomic" }),
        };
        self.events.push_back(Event::Completed { op, result });
        self.send_asks(peer);
        Ok(())
    }
}

fn ask(number: u64, word: Place, atomic: Atomic) -> [u64; Header::WORDS] {
    let (what, first, second) = match atomic {
        Atomic::FetchAdd(value) => (ADD, value, 0),
        Atomic::CompareSwap { expected, new } => (SWAP, expected, new),
    };
    [number, word.mem.to_wire(), word.offset, what, first, second, 0]
}

/// What a peer asks for; `None` where nobody would.
fn asked(words: &[u64; Header::WORDS]) -> Option<(Place, Atomic)> {
    let [_, mem, offset, what, first, second, _] = *words;
    let atomic = match what {
        ADD => Atomic::FetchAdd(first),
        SWAP => Atomic::CompareSwap { expected: first, new: second },
        _ => return None,
    };
    Some((Place::new(MemId::from_wire(mem)?, offset), atomic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn asks_survive_the_network(number: u64, offset: u64, first: u64, second: u64, swaps: bool, mem in 0_usize..3) {
            let place = Place::new([MemId::Space, MemId::Heap, MemId::Control][mem], offset);
            let swap = Atomic::CompareSwap { expected: first, new: second };
            let atomic = if swaps { swap } else { Atomic::FetchAdd(first) };
            prop_assert_eq!(asked(&ask(number, place, atomic)), Some((place, atomic)));
        }

        #[test]
        fn any_words_ask_for_something_or_nothing(words: [u64; 7]) {
            let _ = asked(&words);
        }
    }
}

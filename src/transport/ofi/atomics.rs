//! Atomics, by message: their owner's processor does them, whoever asks. So are peers asked for the keys of
//! their [heaps](super::heaps), and for endpoints for [long puts](super::landings).
//!
//! An ask is the words (its number, memory, offset, what to do, two values); its answer (its number, status,
//! and five words more: the old word; of a heap, its live bytes, key and first byte; of an endpoint, the
//! length of its address and the address). A process asks no peer for more than
//! [`ASKS`] at a time, so answers need no credits.

use std::time::Duration;

use engine::{Atomic, Event, Header, MemId, OpError, OpId, Place, Rank, Submit};
use fabric::Peer;

use super::buffers::Size;
use super::frame::Kind;
use super::landings::{ASK_AGAIN, Landing};
use super::lane::Foul;
use super::link::{DIRECT, Link};
use super::pending_requests::{Answer, PendingRequest, Reach, Wanted};
use super::transport::OfiTransport;
use crate::base::limits::{ANSWERS, ASKS};
use crate::transport::shm::atomic::atomic_at;

/// No atomics: the key of the heap, an endpoint for long puts, and that this is closed.
const HEAP: u64 = 1 << 17;
const LANDING: u64 = HEAP + 1;
const LANDING_CLOSED: u64 = HEAP + 2;
/// Bytes of an address that fit in an answer.
const ADDRESS_BYTES: usize = 8 * (Header::WORDS - 3);

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
        self.ask_later(peer, wanted);
        self.send_asks(peer);
        // Nobody is told that these gather.
        if !matches!(wanted, Wanted::Atomic { .. }) {
            self.flush(peer);
        }
    }

    /// The same with the next progress: for who is at something with the peer that its loss would end.
    fn ask_later(&mut self, peer: Rank, wanted: Wanted) {
        let number = self.asked.insert(PendingRequest { wanted, peer, sent: false });
        let words = ask(number as u64, wanted);
        if let Some(link) = self.links.get_mut(peer) {
            link.asks.queue.push_back(words);
        }
        self.try_again(peer);
    }

    /// Asks a peer for as many atomics as it may be asked for.
    pub(super) fn send_asks(&mut self, peer: Rank) {
        while let Some(link) = self.links.get_mut(peer).filter(|link| link.asks.asked < ASKS) {
            let Some(words) = link.asks.queue.pop_front() else { return };
            link.asks.asked += 1;
            if let Some(asked) = self.asked.get_mut(words[0] as usize) {
                asked.sent = true;
            }
            if self.say(peer, Kind::Ask, words).is_err() {
                return self.lose(peer);
            }
        }
    }

    /// Does what a peer asks for.
    pub(super) fn on_ask(&mut self, peer: Rank, words: &[u64; Header::WORDS]) -> Result<(), Foul> {
        let link = self.links.get(peer).ok_or(Foul)?;
        if link.asks.unanswered >= ANSWERS {
            return Err(Foul);
        }
        let answer = match asked(words).ok_or(Foul)? {
            Wanted::Atomic { word, atomic, .. } => {
                self.signalled |= atomic.signals;
                atomic_at(self.own.itself(), word, atomic).ok().map(|old| [old, 0, 0, 0, 0])
            }
            Wanted::Heap => self.give_heap(peer).map(|Reach { key, base, live }| [live, key.0, base, 0, 0]),
            Wanted::Landing => self.give_landing(peer),
            Wanted::LandingClosed => self.close_landing(peer).then_some([0; 5]),
        };
        let status = if answer.is_some() { DONE } else { FAULT };
        let [first, second, third, fourth, fifth] = answer.unwrap_or_default();
        let words = [words[0], status, first, second, third, fourth, fifth];
        if self.say(peer, Kind::Answer, words).is_err() {
            self.lose(peer);
        }
        Ok(())
    }

    /// Gives an atomic up that this process has asked for. Returns whether the peer may still do it: it is
    /// reported then.
    pub(super) fn abandon_atomic(&mut self, op: OpId) -> bool {
        let is_it =
            |asked: &PendingRequest| matches!(asked.wanted, Wanted::Atomic { op: of, .. } if of == op);
        let found = self.asked.iter().find(|(_, asked)| is_it(asked));
        let Some((number, peer, sent)) = found.map(|(number, asked)| (number, asked.peer, asked.sent)) else {
            return false;
        };
        if !sent {
            self.asked.remove(number);
            if let Some(link) = self.links.get_mut(peer) {
                link.asks.queue.retain(|words| words[0] != number as u64);
            }
        }
        sent
    }

    /// Takes an answer, if it is to what that very peer was asked for.
    pub(super) fn on_answer(&mut self, peer: Rank, words: &[u64; Header::WORDS]) -> Result<(), Foul> {
        let [number, status, said @ ..] = *words;
        let number = usize::try_from(number).map_err(|_| Foul)?;
        self.asked.get(number).filter(|asked| asked.sent && asked.peer == peer).ok_or(Foul)?;
        let link = self.links.get_mut(peer).ok_or(Foul)?;
        assert!(link.asks.asked > 0, "an ask is answered once");
        link.asks.asked -= 1;
        let answer = match status {
            DONE => Answer::Done(said),
            FAULT => Answer::Fault,
            _ => return Err(Foul),
        };
        match self.asked.remove(number).wanted {
            Wanted::Heap => self.on_heap(peer, answer),
            Wanted::Landing => self.on_landing(peer, answer),
            Wanted::LandingClosed => self.on_landing_closed(peer, answer),
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

/// Landings: endpoints by which long puts of one peer come in.
impl OfiTransport {
    /// Whether a put of so many bytes may go to a landing at a peer. If none is open, it is asked for where
    /// that pays: an endpoint at either end for what one buffer holds does not.
    pub(super) fn has_landing(&mut self, rank: Rank, bytes: u64) -> bool {
        match self.links.get(rank).map(|link| &link.copying.landing) {
            Some(Landing::Open(_)) => true,
            Some(Landing::Nothing) if bytes > Size::Large.bytes() as u64 => self.landing(rank).is_some(),
            _ => false,
        }
    }

    /// The landing at a peer. If none is open, it is asked for.
    pub(super) fn landing(&mut self, rank: Rank) -> Option<Peer> {
        match self.links.get_mut(rank)?.copying.landing {
            Landing::Open(peer) => Some(peer),
            Landing::Nothing => {
                self.ask_for_landing(rank);
                None
            }
            Landing::Asked | Landing::Closing(_) | Landing::Refused(_) => None,
        }
    }

    /// Whether a peer is closing its landing: puts wait for that.
    #[cold]
    pub(super) fn is_landing_closing(&self, rank: Rank) -> bool {
        self.links.get(rank).is_some_and(|link| matches!(link.copying.landing, Landing::Closing(_)))
    }

    #[cold]
    fn ask_for_landing(&mut self, rank: Rank) {
        if let Some(link) = self.links.get_mut(rank) {
            link.copying.landing = Landing::Asked;
            self.ask_later(rank, Wanted::Landing);
        }
    }

    /// A peer has opened a landing, or has no room for one.
    #[cold]
    fn on_landing(&mut self, rank: Rank, answer: Answer) {
        let met = self.links.get(rank).and_then(|link: &Link| link.life.listens_at);
        let opened = match answer {
            Answer::Done([len, address @ ..]) => {
                let bytes = address.map(u64::to_le_bytes).concat();
                let len = usize::try_from(len).ok();
                let address = len.filter(|len| *len > 0).and_then(|len| bytes.get(..len));
                address.and_then(|address| self.endpoint.add_peer(address, met))
            }
            Answer::Fault => None,
        };
        let Some(link) = self.links.get_mut(rank) else { return };
        link.copying.landing = opened.map_or(Landing::Refused(ASK_AGAIN), Landing::Open);
        if opened.is_none() {
            self.carry_no_puts(rank);
        }
        self.go_on_with_copies(rank, DIRECT);
    }

    /// Has a peer close its landing, as the endpoint is closed from which puts went there.
    #[cold]
    pub(super) fn quit_landing(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        if let Landing::Open(peer) = link.copying.landing {
            link.copying.landing = Landing::Closing(Duration::ZERO);
            self.endpoint.forget_peer(peer);
            if !self.gone.has(rank) {
                self.ask_later(rank, Wanted::LandingClosed);
            }
        }
    }

    /// A peer is gone, and its landing with it.
    #[cold]
    pub(super) fn forget_landing(&mut self, rank: Rank) {
        let landing = self.links.get_mut(rank).map(|link| std::mem::take(&mut link.copying.landing));
        if let Some(Landing::Open(peer)) = landing {
            self.endpoint.forget_peer(peer);
        }
    }

    /// A peer has closed its landing: nothing that was on its way there ever arrives. If it cannot close it,
    /// nobody can say that, and the peer is lost.
    #[cold]
    fn on_landing_closed(&mut self, rank: Rank, answer: Answer) {
        if answer == Answer::Fault {
            tracing::warn!(peer = rank, "the peer cannot close the endpoint that long puts went to");
            self.say_bye(rank);
            return self.lose(rank);
        }
        if let Some(link) = self.links.get_mut(rank) {
            link.copying.landing = Landing::Nothing;
        }
        self.settle_copies(rank);
        self.go_on_with_copies(rank, DIRECT);
    }

    /// Opens a landing for a peer that has asked for it. `None`: there is no room.
    #[cold]
    fn give_landing(&mut self, rank: Rank) -> Option<[u64; 5]> {
        // A peer that asks twice has lost its end. Where addresses are long, none fits in an answer.
        if !self.close_landing(rank) || self.endpoint.address().len() > ADDRESS_BYTES {
            return None;
        }
        let were = self.landings.are_polled();
        let landing = self.landings.open(rank, &mut self.endpoint)?;
        self.endpoint_pool.note_landings(were, self.landings.are_polled());
        let Some(address) = self.endpoint.aux_address(landing).filter(|it| it.len() <= ADDRESS_BYTES) else {
            self.close_landing(rank);
            return None;
        };
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..address.len()].copy_from_slice(&address);
        let mut said = [address.len() as u64, 0, 0, 0, 0];
        for (word, bytes) in said[1..].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
        }
        Some(said)
    }

    /// Closes the landing of a peer, if it has one. Once this has returned true, nothing comes in by it.
    #[cold]
    pub(super) fn close_landing(&mut self, rank: Rank) -> bool {
        let were = self.landings.are_polled();
        let is_closed = self.landings.close(rank, &mut self.endpoint);
        self.endpoint_pool.note_landings(were, self.landings.are_polled());
        is_closed
    }
}

/// The words that ask for something.
fn ask(number: u64, wanted: Wanted) -> [u64; Header::WORDS] {
    let alone = |what| [number, 0, 0, what, 0, 0, 0];
    match wanted {
        Wanted::Heap => alone(HEAP),
        Wanted::Landing => alone(LANDING),
        Wanted::LandingClosed => alone(LANDING_CLOSED),
        Wanted::Atomic { word, atomic, .. } => {
            let [what, first, second] = atomic.to_wire();
            [number, word.mem.to_wire(), word.offset, what, first, second, 0]
        }
    }
}

/// A peer's request, an atomic without its operation's name. `None` where nobody would ask so.
fn asked(words: &[u64; Header::WORDS]) -> Option<Wanted> {
    let [_, mem, offset, what, first, second, _] = *words;
    match what {
        HEAP => Some(Wanted::Heap),
        LANDING => Some(Wanted::Landing),
        LANDING_CLOSED => Some(Wanted::LandingClosed),
        _ => {
            let atomic = Atomic::from_wire([what, first, second])?;
            let word = Place::new(MemId::from_wire(mem)?, offset);
            Some(Wanted::Atomic { op: OpId::NONE, word, atomic })
        }
    }
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
            let wanted = Wanted::Atomic { op: OpId::NONE, word: place, atomic };
            for wanted in [wanted, Wanted::Heap, Wanted::Landing, Wanted::LandingClosed] {
                prop_assert_eq!(asked(&ask(number, wanted)), Some(wanted));
            }
        }

        #[test]
        fn any_words_ask_for_something_or_nothing(words: [u64; 7]) {
            let _ = asked(&words);
        }
    }
}

//! Both directions between two processes: a ring each way, and a line of memory that the two write in turn.
//!
//! A message through a ring costs two transfers of a cache line. The consumer polls the slot, so it has a
//! copy, which the producer must first take away to write, and the consumer then fetches the line again. A
//! line that both sides write in turn costs one. The side that has just read it from the other's cache is the
//! next to write it, and the other's poll is already on its way. Asking and answering over such a line takes
//! half the time.
//!
//! So there is one, the *baton*: the side that received the last message in it may put the next one there, if
//! it is small and there is one to send. Everything else goes through the rings. Messages are numbered by
//! direction over both ways, and come out in the order they were put in.
//!
//! It stays one transfer only while the answer comes within some 20 ns. Later, the asker has looked in
//! between, which leaves a copy with it that the answerer must first have taken away. With 40 ns of software
//! on each side a round trip of two 60-ns transfers takes 330 ns and more, not 200
//! (`examples/ring_pingpong.rs` shows it). So whoever has written the baton hands it over to the cache that
//! both share, from where the reader takes it without leaving a copy behind.

use std::ops::Deref;

use crate::payload::{self, Mapped};
use crate::ring::{
    Attention, BadLayout, Consumer, Corrupt, HEAD_WORDS, LINE_WORDS, Producer, PushError, Pushed, load_body,
    store_body,
};
use crate::sync::{AtomicU64, Ordering, hand_over};

/// The longest payload that goes with a baton, in bytes: beyond, a ring's copying costs more than its extra
/// transfer.
pub const BATON_PAYLOAD_BYTES: usize = 448;

/// Words of a baton: a cache line for the message, those of its payload, and an even number of lines in all,
/// since processors fetch them in pairs. They must be zero at the start, and should begin a pair.
pub const BATON_WORDS: usize = 8 + BATON_PAYLOAD_BYTES / 8;
const _: () = assert!(BATON_WORDS.is_multiple_of(16));

/// Where the payload starts.
const PAYLOAD: usize = 8;

/// Bits of a baton's first word that say who wrote it; above them is the payload's length, in the high half
/// the message's number.
const MARK_BITS: u32 = 2;
const MARK: u64 = (1 << MARK_BITS) - 1;

/// The difference of the first words of two messages, of which one comes next after the other.
const NEXT: u64 = 1 << 32;

/// Which end of a link this is: the two ends must differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that may write the baton first.
    First,
    /// The other one.
    Second,
}

impl Side {
    /// How this side signs the baton.
    fn mark(self) -> u64 {
        match self {
            Side::First => 1,
            Side::Second => 2,
        }
    }

    fn other(self) -> Side {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// One process's end of the two directions. One thread at a time.
#[derive(Debug)]
pub struct Duplex<M> {
    baton: M,
    outward: Producer<M>,
    inward: Consumer<M>,
    /// The first word of our next message, and of the other side's, if it goes by the baton and has no
    /// payload: number and mark. Nothing else needs to be known of such a word, and one comparison says all
    /// of it.
    sends: u64,
    expects: u64,
    /// The baton is ours to write: what the other side put there is taken out.
    ours: bool,
    /// One thread has both ends, so there is nobody to hand the baton to.
    alone: bool,
}

impl<M: Deref<Target = [AtomicU64]>> Duplex<M> {
    /// Joins two fresh rings and a fresh baton; `None` if it has fewer than [`BATON_WORDS`]. The other
    /// process joins the other ends of the same.
    pub fn new(side: Side, baton: M, outward: Producer<M>, inward: Consumer<M>) -> Option<Duplex<M>> {
        let ours = side == Side::First;
        (baton.len() >= BATON_WORDS).then_some(Duplex {
            baton,
            outward,
            inward,
            sends: NEXT | side.mark(),
            expects: NEXT | side.other().mark(),
            ours,
            alone: false,
        })
    }

    /// The link, for a thread that has the other end too.
    pub fn with_oneself(self) -> Duplex<M> {
        Duplex { alone: true, ..self }
    }

    /// Gives the outgoing ring its spill area, as [`Producer::give_spill`] does.
    ///
    /// # Errors
    /// As there.
    pub fn give_outward_spill(&mut self, spill: M) -> Result<(), BadLayout> {
        self.outward.give_spill(spill)
    }

    /// Whether the outgoing ring has that.
    pub fn has_outward_spill(&self) -> bool {
        self.outward.has_spill()
    }

    /// Gives the incoming ring its spill area, as [`Consumer::give_spill`] does.
    ///
    /// # Errors
    /// As there.
    pub fn give_inward_spill(&mut self, spill: M) -> Result<(), BadLayout> {
        self.inward.give_spill(spill)
    }

    /// Sends a message and says whether to ring the other side's doorbell.
    ///
    /// # Errors
    /// [`PushError`]; then nothing was sent.
    #[inline(always)]
    pub fn push(&mut self, body: &[u64; 7], payload: &[u8]) -> Result<Pushed, PushError> {
        match self.push_in_baton(body, payload) {
            Some(pushed) => Ok(pushed),
            None => self.push_in_ring(body, payload),
        }
    }

    /// Sends a message by the baton, as [`push`](Duplex::push) does. `None`: it can go by the ring only.
    #[inline(always)]
    pub fn push_in_baton(&mut self, body: &[u64; 7], payload: &[u8]) -> Option<Pushed> {
        if !self.ours || payload.len() > BATON_PAYLOAD_BYTES {
            return None;
        }
        self.ours = false;
        if !payload.is_empty() {
            self.store_payload(payload);
        }
        let line = self.line();
        store_body(line, body);
        line[0].store(self.sends | (payload.len() as u64) << MARK_BITS, Ordering::Release);
        self.sends = self.sends.wrapping_add(NEXT);
        if !self.alone {
            hand_over(&self.baton[..PAYLOAD + payload.len().div_ceil(8)]);
        }
        Some(Pushed { doorbell: self.outward.wants_doorbell() })
    }

    /// Sends a message by the ring, as [`push`](Duplex::push) does where
    /// [`push_in_baton`](Duplex::push_in_baton) cannot.
    ///
    /// # Errors
    /// As for [`push`](Duplex::push).
    #[inline]
    pub fn push_in_ring(&mut self, body: &[u64; 7], payload: &[u8]) -> Result<Pushed, PushError> {
        let pushed = self.outward.push(body, payload)?;
        self.sends = self.sends.wrapping_add(NEXT);
        Ok(pushed)
    }

    /// Whether a message with a payload of `payload_len` bytes could be sent now: `false` means that
    /// [`push`](Duplex::push) would say [`PushError::Full`] or [`PushError::NoSpill`].
    #[inline]
    pub fn room(&mut self, payload_len: usize) -> bool {
        (self.ours && payload_len <= BATON_PAYLOAD_BYTES) || self.outward.room(payload_len)
    }

    /// Whether there is a message: a look at two words at most.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        self.baton().is_some() || self.inward.ready()
    }

    /// Takes the next message out, as [`Consumer::pop`] does.
    ///
    /// A caller that polls should pause between two calls ([`std::hint::spin_loop`], once): polling without
    /// one takes the line away from the other side while it writes.
    ///
    /// # Errors
    /// [`Corrupt`] if the other side broke the protocol; the same again if called again.
    #[inline(always)]
    pub fn pop(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let popped = self.pop_held(body, payload)?;
        if let Some(len @ 1..) = popped {
            payload.resize(len, 0);
            self.inward.read_held(0, payload);
            self.inward.release();
        }
        Ok(popped.is_some())
    }

    /// As [`pop`](Duplex::pop), but leaves a long payload in the ring, as [`Consumer::pop_held`] does.
    ///
    /// # Errors
    /// As for [`pop`](Duplex::pop).
    #[inline(always)]
    pub fn pop_held(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<Option<usize>, Corrupt> {
        if self.pop_short(body) {
            payload.clear();
            return Ok(Some(0));
        }
        match self.baton() {
            None if !self.inward.ready() => {
                // Not by asking the ring to pop: a message that came just now may have one before it in the
                // baton.
                self.inward.note_idle();
                Ok(None)
            }
            _ => self.pop_in_order(body, payload),
        }
    }

    /// Takes the next message out if it is in the baton and has no payload, as most are that somebody waits
    /// for. `false` says nothing: [`pop`](Duplex::pop) finds what else there may be.
    #[inline(always)]
    pub fn pop_short(&mut self, body: &mut [u64; 7]) -> bool {
        let line = self.line();
        if line[0].load(Ordering::Acquire) != self.expects || self.ours {
            return false;
        }
        load_body(line, body);
        self.take_over();
        true
    }

    /// Takes the next message out if it came through the ring, has no payload and begins like this, and
    /// returns the rest of it. `None` says nothing: [`pop`](Duplex::pop) finds what else there may be.
    #[inline]
    pub fn pop_like(&mut self, head: &[u64; HEAD_WORDS]) -> Option<[u64; 7 - HEAD_WORDS]> {
        // In this order: what was sent before the ring's message came to sight before that.
        if !self.inward.ready() || self.baton().is_some() {
            return None;
        }
        let rest = self.inward.pop_like(head)?;
        self.expects = self.expects.wrapping_add(NEXT);
        Some(rest)
    }

    /// Takes the next message out where one is there: one with a payload, or one through the ring, or of
    /// several by both ways the first. Out of line, as is all that has to do with payloads and rings, so that
    /// what surrounds a baton's message stays small.
    #[inline(never)]
    fn pop_in_order(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<Option<usize>, Corrupt> {
        // Also where there was nothing a moment ago: what was sent before the ring's message came to sight
        // before that.
        if let Some(word) = self.baton() {
            let (number, expected) = ((word >> 32) as u32, (self.expects >> 32) as u32);
            if number == expected {
                self.load_payload(word as u32 as usize >> MARK_BITS, payload)?;
                load_body(self.line(), body);
                self.take_over();
                return Ok(Some(0));
            }
            // The message that was sent before it went through the ring, and has been there at least as long.
            if !self.inward.ready() {
                return Err(Corrupt::Order { number, expected });
            }
        }
        let popped = self.inward.pop_held(body, payload)?;
        if popped.is_some() {
            self.expects = self.expects.wrapping_add(NEXT);
        }
        Ok(popped)
    }

    /// Reads of a payload that was left in the ring, as [`Consumer::read_held`] does.
    pub fn read_held(&self, at: usize, into: &mut [u8]) -> bool {
        self.inward.read_held(at, into)
    }

    /// Where bytes of it lie in this process, as [`Consumer::held_at`] says.
    pub fn held_at(&self, at: usize, len: usize) -> Option<Mapped<'_>> {
        self.inward.held_at(at, len)
    }

    /// Gives its room back, as [`Consumer::release`] does.
    #[inline]
    pub fn release(&mut self) {
        self.inward.release();
    }

    /// Counts a poll that found nothing without a call of [`pop`](Duplex::pop). After many of them in turn
    /// the other side is told which slots are free again.
    #[inline(always)]
    pub fn note_idle(&mut self) {
        self.inward.note_idle();
    }

    /// Tells the other side about every slot of its ring that is free again, as [`Consumer::flush_credits`]
    /// does.
    pub fn flush_credits(&mut self) -> bool {
        self.inward.flush_credits()
    }

    /// Tells the other side whether to ring the doorbell; what [`Consumer::set_attention`] says holds here.
    pub fn set_attention(&mut self, attention: Attention) {
        self.inward.set_attention(attention);
    }

    /// The first word of what the baton holds that we have not taken out yet. While it is ours nothing there
    /// counts: the other side has no business there.
    #[inline(always)]
    fn baton(&self) -> Option<u64> {
        if self.ours {
            return None;
        }
        let word = self.line()[0].load(Ordering::Acquire);
        (word & MARK == self.expects & MARK).then_some(word)
    }

    /// The baton's message.
    #[inline(always)]
    fn line(&self) -> &[AtomicU64; LINE_WORDS] {
        self.baton.first_chunk().expect("a baton is longer, as was checked when the link was made")
    }

    /// The baton's message is taken out, and the baton is ours.
    #[inline(always)]
    fn take_over(&mut self) {
        self.ours = true;
        self.expects = self.expects.wrapping_add(NEXT);
    }

    #[inline(never)]
    fn store_payload(&self, payload: &[u8]) {
        payload::store([&self.baton[PAYLOAD..], &[]], payload);
    }

    fn load_payload(&self, len: usize, payload: &mut Vec<u8>) -> Result<(), Corrupt> {
        if len > BATON_PAYLOAD_BYTES {
            return Err(Corrupt::Length { len, max: BATON_PAYLOAD_BYTES });
        }
        payload::load([&self.baton[PAYLOAD..], &[]], len, payload);
        Ok(())
    }
}

#[cfg(test)]
#[path = "duplex_tests.rs"]
mod tests;

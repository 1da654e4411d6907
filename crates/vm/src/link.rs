//! Both directions between two processes: a ring each way, and a line of memory that the two write in turn.
//!
//! A message through a ring costs two transfers of a cache line: the consumer polls the slot, so it has a copy, which
//! the producer must first take away to write, and the consumer then fetches the line again. A line that both sides
//! write in turn costs one: whoever has just read it from the other's cache is the next to write it, and the other's
//! poll is already on its way. Asking and answering over such a line takes half the time.
//!
//! So there is one, the *baton*: the side that received the last message in it may put the next one there, if it
//! is small and there is one to send. Everything else goes through the rings. Messages are numbered by direction over
//! both ways, and come out in the order they were put in.
//!
//! It stays one transfer only while the answer comes within some 20 ns. Later, the asker has looked in between, which
//! leaves a copy with it that the answerer must first have taken away: with 40 ns of software on each side a round trip
//! of two 60-ns transfers takes 330 ns and more, not 200 (`examples/ring_pingpong.rs` shows it). So whoever has written
//! the baton hands it over to the cache that both share, from where the reader takes it without leaving a copy behind.

use std::ops::Deref;

use crate::ring::{
    Attention, Consumer, Corrupt, LINE_WORDS, Producer, PushError, Pushed, load_body, load_bytes, store_body,
    store_bytes,
};
use crate::sync::{AtomicU64, Ordering, hand_over};

/// The longest payload that goes with a baton, in bytes: beyond, a ring's copying costs more than its extra transfer.
pub const BATON_PAYLOAD_BYTES: usize = 448;

/// Words of a baton: a cache line for the message, those of its payload, and an even number of lines in all, since
/// processors fetch them in pairs. They must be zero at the start, and should begin a pair.
pub const BATON_WORDS: usize = 8 + BATON_PAYLOAD_BYTES / 8;
const _: () = assert!(BATON_WORDS.is_multiple_of(16));

/// Where the payload starts.
const PAYLOAD: usize = 8;

/// Bits of a baton's first word that say who wrote it; above them is the payload's length, in the high half the
/// message's number.
const MARK_BITS: u32 = 2;

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
    fn mark(self) -> u32 {
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
pub struct Link<M> {
    baton: M,
    outward: Producer<M>,
    inward: Consumer<M>,
    side: Side,
    /// The baton is ours to write: what the other side put there is taken out.
    ours: bool,
    /// One thread has both ends, so there is nobody to hand the baton to.
    alone: bool,
    /// Messages through the baton, each way.
    pushed: u64,
    taken: u64,
}

impl<M: Deref<Target = [AtomicU64]>> Link<M> {
    /// Joins two fresh rings and a fresh baton; `None` if it has fewer than [`BATON_WORDS`]. The other process joins
    /// the other ends of the same.
    pub fn new(side: Side, baton: M, outward: Producer<M>, inward: Consumer<M>) -> Option<Link<M>> {
        let ours = side == Side::First;
        (baton.len() >= BATON_WORDS).then_some(Link {
            baton,
            outward,
            inward,
            side,
            ours,
            alone: false,
            pushed: 0,
            taken: 0,
        })
    }

    /// The link, for a thread that has the other end too.
    pub fn with_oneself(self) -> Link<M> {
        Link { alone: true, ..self }
    }

    /// Sends a message and says whether to ring the other side's doorbell.
    ///
    /// # Errors
    /// [`PushError`]; then nothing was sent.
    #[inline(always)]
    pub fn push(&mut self, body: &[u64; 7], payload: &[u8]) -> Result<Pushed, PushError> {
        if !self.ours || payload.len() > BATON_PAYLOAD_BYTES {
            return self.push_in_ring(body, payload);
        }
        self.ours = false;
        self.pushed += 1;
        let number = (self.outward.pushed() + self.pushed) as u32;
        if !payload.is_empty() {
            self.store_payload(payload);
        }
        let line = self.line();
        store_body(line, body);
        let low = (payload.len() as u32) << MARK_BITS | self.side.mark();
        line[0].store(u64::from(number) << 32 | u64::from(low), Ordering::Release);
        if !self.alone {
            hand_over(&self.baton[..PAYLOAD + payload.len().div_ceil(8)]);
        }
        Ok(Pushed { doorbell: self.outward.wants_doorbell() })
    }

    /// Whether a message with a payload of `payload_len` bytes could be sent now: `false` means that
    /// [`push`](Link::push) would say [`PushError::Full`].
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
    /// A caller that polls should pause between two calls ([`std::hint::spin_loop`], twice): polling without one
    /// takes the line away from the other side while it writes.
    ///
    /// # Errors
    /// [`Corrupt`] if the other side broke the protocol; the same again if called again.
    #[inline(always)]
    pub fn pop(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<bool, Corrupt> {
        if let Some(baton) = self.baton() {
            let expected = self.expected();
            if baton.number == expected {
                return self.take_baton(baton, body, payload);
            }
            // What was sent before it went through the ring, and has been there at least as long.
            if !self.inward.ready() {
                return Err(Corrupt::Order { number: baton.number, expected });
            }
        } else if !self.inward.ready() {
            // Not by asking the ring to pop: a message that came just now may have one before it in the baton.
            self.inward.note_idle();
            return Ok(false);
        } else if let Some(baton) = self.baton().filter(|baton| baton.number == self.expected()) {
            // It was sent before what the ring holds, but came to sight between our two looks.
            return self.take_baton(baton, body, payload);
        }
        self.pop_from_ring(body, payload)
    }

    // Out of line, so that what surrounds a baton's message stays small.
    #[inline(never)]
    fn push_in_ring(&mut self, body: &[u64; 7], payload: &[u8]) -> Result<Pushed, PushError> {
        self.outward.push(body, payload)
    }

    #[inline(never)]
    fn pop_from_ring(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<bool, Corrupt> {
        self.inward.pop(body, payload)
    }

    /// Tells the other side about every slot of its ring that is free again, as [`Consumer::flush_credits`] does.
    pub fn flush_credits(&mut self) -> bool {
        self.inward.flush_credits()
    }

    /// Tells the other side whether to ring the doorbell; what [`Consumer::set_attention`] says holds here.
    pub fn set_attention(&mut self, attention: Attention) {
        self.inward.set_attention(attention);
    }

    /// How many messages were sent, in all.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.outward.pushed() + self.pushed
    }

    /// How many messages were taken out, in all.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.inward.taken() + self.taken
    }

    /// What the baton holds that we have not taken out yet. While it is ours it is not looked at: the other side has
    /// no business there.
    #[inline(always)]
    fn baton(&self) -> Option<Baton> {
        if self.ours {
            return None;
        }
        let word = self.line()[0].load(Ordering::Acquire);
        let low = word as u32;
        let theirs = low & ((1 << MARK_BITS) - 1) == self.side.other().mark();
        theirs.then_some(Baton { number: (word >> 32) as u32, len: (low >> MARK_BITS) as usize })
    }

    /// The baton's message.
    #[inline(always)]
    fn line(&self) -> &[AtomicU64; LINE_WORDS] {
        self.baton.first_chunk().expect("a baton is longer, as was checked when the link was made")
    }

    /// The number of the next message to take out.
    #[inline(always)]
    fn expected(&self) -> u32 {
        (self.taken() + 1) as u32
    }

    #[inline(always)]
    fn take_baton(
        &mut self,
        baton: Baton,
        body: &mut [u64; 7],
        payload: &mut Vec<u8>,
    ) -> Result<bool, Corrupt> {
        if baton.len == 0 {
            payload.clear();
        } else {
            self.load_payload(baton.len, payload)?;
        }
        load_body(self.line(), body);
        self.ours = true;
        self.taken += 1;
        Ok(true)
    }

    // Out of line, so that the loop around `pop` stays small.
    #[inline(never)]
    fn store_payload(&self, payload: &[u8]) {
        store_bytes(self.baton[PAYLOAD..].iter(), payload);
    }

    #[inline(never)]
    fn load_payload(&self, len: usize, payload: &mut Vec<u8>) -> Result<(), Corrupt> {
        if len > BATON_PAYLOAD_BYTES {
            return Err(Corrupt::Length { len, max: BATON_PAYLOAD_BYTES });
        }
        load_bytes(self.baton[PAYLOAD..].iter(), len, payload);
        Ok(())
    }
}

/// What the first word of a baton says.
#[derive(Clone, Copy)]
struct Baton {
    /// The message's number in its direction, modulo 2³².
    number: u32,
    /// Its payload's length in bytes, as claimed.
    len: usize,
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;

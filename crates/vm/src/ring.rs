//! A ring of messages from one producer to one consumer, in memory that both processes map.
//!
//! A message is seven words and a payload. Its *slot* is one cache line: word 0 holds the message's sequence
//! number and the payload's length, words 1 to 7 the body. The consumer polls word 0 of the very slot that
//! comes next, the producer writes it last, so a short message costs the transfer of one cache line and
//! nothing else. Sequence numbers differ from lap to lap, so slots need no clearing. A payload goes into an
//! area of its own, cut into cache lines and used round and round; where it starts, each side computes from
//! the lengths so far.
//!
//! The consumer's own line tells the producer how many slots are free again, in batches of a quarter ring,
//! and whether the producer should ring the doorbell ([`Attention`]). The rest of the line is never read, so
//! in a steady exchange it rarely moves.
//!
//! Neither side trusts the other. Every content of the ring gives a message (of the right size, saying
//! anything), or [`Corrupt`], and never a panic, an endless loop or an access elsewhere.

use std::ops::Deref;

use crate::payload::{self, Mapped, Runs};
use crate::sync::{AtomicU64, Ordering, fence, light_fence};

/// Words of a cache line, which is also a slot.
pub(crate) const LINE_WORDS: usize = 8;
const LINE_BYTES: usize = LINE_WORDS * 8;
/// Word of the consumer's line: how many messages it has taken out, in all.
const FREED: usize = 0;
/// Word of the consumer's line: its [`Attention`].
const ATTENTION: usize = 1;
/// Two lines: processors fetch them in pairs, and the first slot is written by the other side.
const HEADER_WORDS: usize = 2 * LINE_WORDS;
/// Empty polls after which the consumer publishes what it has freed: it has the time, and the producer may
/// wait.
const IDLE_POLLS: u32 = 1024;

/// The sizes of a ring: what its two ends must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// How many messages it holds: a power of two.
    pub slots: usize,
    /// Size of the payload area in bytes; rounded up to whole cache lines of 64.
    pub payload_bytes: usize,
}

impl RingLayout {
    /// How many 64-bit words the ring takes. They must be zero at the start, and should begin a cache line.
    pub const fn words(&self) -> usize {
        HEADER_WORDS + self.slots * LINE_WORDS + self.lines() * LINE_WORDS
    }

    /// The longest payload that a message can have, in bytes.
    pub const fn payload_bytes_max(&self) -> usize {
        self.lines() * LINE_BYTES
    }

    const fn lines(&self) -> usize {
        self.payload_bytes.div_ceil(LINE_BYTES)
    }

    fn check(&self, words: usize) -> Result<(), BadLayout> {
        // With this the sizes below neither overflow nor outgrow the 32 bits of a length or a sequence
        // number.
        let sane = self.slots.is_power_of_two() && self.slots <= 1 << 24 && self.payload_bytes <= 1 << 30;
        if !sane || words < self.words() {
            return Err(BadLayout { layout: *self, words });
        }
        Ok(())
    }
}

/// A layout that cannot be, or does not fit the memory given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layout:?} does not make a ring in {words} words")]
pub struct BadLayout {
    /// The layout asked for.
    pub layout: RingLayout,
    /// The size of the memory in 64-bit words.
    pub words: usize,
}

/// The consumer's use of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Cold: it looks when the doorbell rings. A new ring is cold, since its consumer need not know of it
    /// yet.
    Doorbell,
    /// Hot: it polls, and the doorbell may stay still.
    Polled,
}

const POLLED: u64 = 1;

/// How the producer keeps "publish, then look whether the consumer sleeps" in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceMode {
    /// With nothing: the consumer calls [`heavy_fence`](crate::membarrier::heavy_fence) when it turns a ring
    /// cold. Only between processes that have both [registered](crate::membarrier::register).
    Asymmetric,
    /// With a full fence for every message.
    Symmetric,
}

/// The other side wrote words that make no sense. It breaks the protocol by accident or design: leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The producer announces a payload that the ring cannot hold.
    #[error("a payload of {len} bytes in a ring for {max} at most")]
    Length {
        /// The length announced, in bytes.
        len: usize,
        /// The longest possible, in bytes.
        max: usize,
    },
    /// The consumer claims to have taken out messages that were not there, or fewer than before.
    #[error("{freed} messages taken out, where {lowest} to {highest} are possible")]
    Freed {
        /// The count claimed.
        freed: u64,
        /// The count it claimed before.
        lowest: u64,
        /// How many were put in.
        highest: u64,
    },
    /// A message of a link has a number that does not come next, and what should come before is not there.
    #[error("message {number} where {expected} comes next")]
    Order {
        /// The number it has, modulo 2³².
        number: u32,
        /// The number that comes next.
        expected: u32,
    },
}

/// Why a message did not go into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no room now; there will be when the consumer has gone on.
    #[error("the ring is full")]
    Full,
    /// There will never be room.
    #[error("a payload of {len} bytes, where {max} is the most")]
    TooLarge {
        /// The payload's length in bytes.
        len: usize,
        /// The longest possible, in bytes.
        max: usize,
    },
    /// The consumer broke the protocol.
    #[error("the consumer broke the protocol: {0}")]
    Corrupt(#[from] Corrupt),
}

/// A message is in the ring.
#[must_use = "the consumer may wait for its doorbell"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The consumer does not poll this ring: its doorbell must be rung.
    pub doorbell: bool,
}

/// How many lines of the payload area a payload takes.
#[inline(always)]
const fn lines_of(len: usize) -> u64 {
    len.div_ceil(LINE_BYTES) as u64
}

/// Writes a message's words behind the first of its line.
#[inline(always)]
pub(crate) fn store_body(line: &[AtomicU64; LINE_WORDS], body: &[u64; LINE_WORDS - 1]) {
    // Written out by index over a constant length, so that it becomes eight moves and no loop.
    for index in 0..LINE_WORDS - 1 {
        line[index + 1].store(body[index], Ordering::Relaxed);
    }
}

/// Reads a message's words from behind the first of its line.
#[inline(always)]
pub(crate) fn load_body(line: &[AtomicU64; LINE_WORDS], body: &mut [u64; LINE_WORDS - 1]) {
    for index in 0..LINE_WORDS - 1 {
        body[index] = line[index + 1].load(Ordering::Relaxed);
    }
}

/// Where things are in the words of a ring.
#[derive(Clone, Copy, Debug)]
struct Places {
    slot_mask: u64,
    payload_start: usize,
    payload_words: usize,
}

impl Places {
    fn new(layout: RingLayout) -> Places {
        Places {
            slot_mask: layout.slots as u64 - 1,
            payload_start: HEADER_WORDS + layout.slots * LINE_WORDS,
            payload_words: layout.lines() * LINE_WORDS,
        }
    }

    #[inline(always)]
    fn slot<'a>(&self, words: &'a [AtomicU64], position: u64) -> &'a [AtomicU64; LINE_WORDS] {
        let start = HEADER_WORDS + (position & self.slot_mask) as usize * LINE_WORDS;
        words[start..].first_chunk().expect("the layout was checked against the words")
    }

    /// The first word of a slot.
    #[inline(always)]
    fn first_of<'a>(&self, words: &'a [AtomicU64], position: u64) -> &'a AtomicU64 {
        &words[HEADER_WORDS + (position & self.slot_mask) as usize * LINE_WORDS]
    }

    /// The words of a payload of `len` bytes that starts at line `line`, counted from the ring's first: the
    /// second run is what goes on at the start of the area. `len` must have been checked against the area.
    #[inline(always)]
    fn payload<'a>(&self, words: &'a [AtomicU64], line: u64, len: usize) -> Runs<'a> {
        let area = &words[self.payload_start..self.payload_start + self.payload_words];
        let start = (line % (self.payload_words / LINE_WORDS) as u64) as usize * LINE_WORDS;
        let count = len.div_ceil(8);
        let straight = count.min(self.payload_words - start);
        [&area[start..start + straight], &area[..count - straight]]
    }

    fn slots(&self) -> u64 {
        self.slot_mask + 1
    }

    fn lines(&self) -> u64 {
        (self.payload_words / LINE_WORDS) as u64
    }

    fn len_max(&self) -> usize {
        self.payload_words * 8
    }
}

/// The sending end. One thread at a time.
#[derive(Debug)]
pub struct Producer<M> {
    words: M,
    places: Places,
    fence: FenceMode,
    /// Messages put in, in all, and how many they can be before we look again how many the consumer has taken
    /// out.
    pushed: u64,
    pushed_max: u64,
    /// Payload lines put in, and how many they can be, likewise.
    line: u64,
    line_max: u64,
    /// For every slot, `line` after its message: what is free again follows from `freed`, with nothing to
    /// trust.
    line_after: Box<[u64]>,
}

impl<M: Deref<Target = [AtomicU64]>> Producer<M> {
    /// The sending end of the ring in `words`, which must be fresh: zero, with no producer before.
    ///
    /// # Errors
    /// [`BadLayout`] if the words are too few or the layout is impossible.
    pub fn new(words: M, layout: RingLayout, fence: FenceMode) -> Result<Producer<M>, BadLayout> {
        layout.check(words.len())?;
        let line_after = vec![0; layout.slots].into_boxed_slice();
        let places = Places::new(layout);
        let (pushed_max, line_max) = (places.slots(), places.lines());
        Ok(Producer { words, places, fence, pushed: 0, pushed_max, line: 0, line_max, line_after })
    }

    /// Puts a message in and says whether to ring the consumer's doorbell.
    ///
    /// # Errors
    /// [`PushError`]; then nothing was put in.
    #[inline]
    pub fn push(&mut self, body: &[u64; 7], payload: &[u8]) -> Result<Pushed, PushError> {
        let lines = lines_of(payload.len());
        if !self.fits(lines) {
            self.make_room(payload.len())?;
        }
        if !payload.is_empty() {
            self.write_payload(payload);
        }
        self.line += lines;
        self.line_after[(self.pushed & self.places.slot_mask) as usize] = self.line;
        let slot = self.places.slot(&self.words, self.pushed);
        self.pushed += 1;
        store_body(slot, body);
        let sequence = self.pushed as u32;
        slot[0].store(u64::from(sequence) << 32 | payload.len() as u64, Ordering::Release);
        Ok(Pushed { doorbell: self.wants_doorbell() })
    }

    /// Whether a message with a payload of `payload_len` bytes would go in now: `false` means that
    /// [`push`](Producer::push) would say [`PushError::Full`].
    #[inline]
    pub fn room(&mut self, payload_len: usize) -> bool {
        self.fits(lines_of(payload_len)) || self.make_room(payload_len) != Err(PushError::Full)
    }

    /// How many messages were put in, in all.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    #[inline(always)]
    fn fits(&self, lines: u64) -> bool {
        self.pushed < self.pushed_max && self.line + lines <= self.line_max
    }

    /// Looks how far the consumer has got.
    #[cold]
    fn make_room(&mut self, payload_len: usize) -> Result<(), PushError> {
        if payload_len > self.places.len_max() {
            return Err(PushError::TooLarge { len: payload_len, max: self.places.len_max() });
        }
        let freed = self.words[FREED].load(Ordering::Acquire);
        let freed_before = self.pushed_max - self.places.slots();
        if freed < freed_before || freed > self.pushed {
            return Err(Corrupt::Freed { freed, lowest: freed_before, highest: self.pushed }.into());
        }
        if freed > freed_before {
            let line_freed = self.line_after[((freed - 1) & self.places.slot_mask) as usize];
            self.pushed_max = freed + self.places.slots();
            self.line_max = line_freed + self.places.lines();
        }
        if self.fits(lines_of(payload_len)) { Ok(()) } else { Err(PushError::Full) }
    }

    fn write_payload(&self, payload: &[u8]) {
        payload::store(self.places.payload(&self.words, self.line, payload.len()), payload);
    }

    /// After publishing. The fence is against the one between the consumer's turning cold and its last look:
    /// either it sees the message, or we see that it wants the doorbell.
    #[inline(always)]
    pub(crate) fn wants_doorbell(&self) -> bool {
        match self.fence {
            FenceMode::Asymmetric => light_fence(),
            FenceMode::Symmetric => fence(Ordering::SeqCst),
        }
        self.words[ATTENTION].load(Ordering::Relaxed) != POLLED
    }
}

/// The receiving end. One thread at a time.
#[derive(Debug)]
pub struct Consumer<M> {
    words: M,
    places: Places,
    /// Messages taken out, in all, and of these, how many the producer has been told.
    taken: u64,
    published: u64,
    /// Payload lines taken out, and told, likewise.
    line: u64,
    line_published: u64,
    idle_polls: u32,
    /// A payload of the message taken out last that is still to be read.
    held: Option<Held>,
}

/// Bytes of a payload from which on [`Consumer::pop_held`] leaves it in the ring: reading less at once costs
/// less than coming back for it.
pub const HELD_MIN: usize = 512;

/// A payload that was not copied out yet: its first line, its bytes, and the messages taken out before its.
#[derive(Clone, Copy, Debug)]
struct Held {
    line: u64,
    len: usize,
    taken_before: u64,
}

/// Words of a message's body by which [`Duplex::pop_like`](crate::Duplex::pop_like) knows it.
pub const HEAD_WORDS: usize = 5;

impl<M: Deref<Target = [AtomicU64]>> Consumer<M> {
    /// The receiving end of the ring in `words`, which has had no consumer before.
    ///
    /// # Errors
    /// [`BadLayout`] if the words are too few or the layout is impossible.
    pub fn new(words: M, layout: RingLayout) -> Result<Consumer<M>, BadLayout> {
        layout.check(words.len())?;
        let places = Places::new(layout);
        Ok(Consumer {
            words,
            places,
            taken: 0,
            published: 0,
            line: 0,
            line_published: 0,
            idle_polls: 0,
            held: None,
        })
    }

    /// Whether there is a message: one look at one word.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        let word = self.places.first_of(&self.words, self.taken).load(Ordering::Acquire);
        (word >> 32) as u32 == (self.taken + 1) as u32
    }

    /// Takes the next message out, or says `false` if there is none. `payload` becomes the payload; it
    /// allocates only while it has not grown to the longest one yet. Without a message both are left as they
    /// are.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer broke the protocol; the same again if called again.
    #[inline]
    pub fn pop(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let popped = self.pop_held(body, payload)?;
        if let Some(len @ 1..) = popped {
            payload.resize(len, 0);
            self.read_held(0, payload);
            self.release();
        }
        Ok(popped.is_some())
    }

    /// As [`pop`](Consumer::pop), but leaves a payload of [`HELD_MIN`] bytes or more in the ring and says how
    /// many it has. [`read_held`](Consumer::read_held) reads it, until [`release`](Consumer::release) or the
    /// next message gives its room back; `payload` stays as it was. `Some(0)`: there was a message, and
    /// `payload` is its payload.
    ///
    /// # Errors
    /// As for [`pop`](Consumer::pop).
    #[inline]
    pub fn pop_held(&mut self, body: &mut [u64; 7], payload: &mut Vec<u8>) -> Result<Option<usize>, Corrupt> {
        self.release();
        let slot = self.places.slot(&self.words, self.taken);
        let word = slot[0].load(Ordering::Acquire);
        if (word >> 32) as u32 != (self.taken + 1) as u32 {
            self.note_idle();
            return Ok(None);
        }
        // The whole slot, and the payload, were written before word 0. Words that a hostile producer writes
        // after it only change what the message says.
        load_body(slot, body);
        let len = word as u32 as usize;
        let mut left = 0;
        if len == 0 {
            payload.clear();
        } else {
            left = self.take_payload(len, payload)?;
            self.line += lines_of(len);
        }
        self.taken += 1;
        self.idle_polls = 0;
        self.tell_if_due();
        Ok(Some(left))
    }

    /// Reads of the payload that was left in the ring, from byte `at` on. Whether it has so many: if not, or
    /// if none is left there, nothing is read.
    ///
    /// A hostile producer may write there meanwhile: then two reads of the same bytes may differ.
    pub fn read_held(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(held) = self.held.filter(|held| at <= held.len && into.len() <= held.len - at) else {
            return false;
        };
        payload::read(self.places.payload(&self.words, held.line, held.len), at, into);
        true
    }

    /// Where so many bytes of the payload that was left in the ring lie, from byte `at` on. `None` where it
    /// has not so many.
    pub fn held_at(&self, at: usize, len: usize) -> Option<Mapped<'_>> {
        let held = self.held.filter(|held| at <= held.len && len <= held.len - at)?;
        Some(Mapped::new(self.places.payload(&self.words, held.line, held.len), at, len))
    }

    /// Gives the room of what was left in the ring back, if anything was.
    #[inline]
    pub fn release(&mut self) {
        if self.held.take().is_some() {
            self.tell_if_due();
        }
    }

    /// How many messages and lines the producer may be told of as free: none of a payload that is still to be
    /// read, and none that came after it.
    #[inline(always)]
    fn free(&self) -> (u64, u64) {
        self.held.map_or((self.taken, self.line), |held| (held.taken_before, held.line))
    }

    /// Tells the producer of a quarter ring.
    #[inline(always)]
    fn tell_if_due(&mut self) {
        let (taken, line) = self.free();
        if taken - self.published > self.places.slot_mask / 4
            || line - self.line_published > self.places.lines() / 4
        {
            self.flush_credits();
        }
    }

    /// Takes the next message out if it has no payload and its body begins like this, and returns the rest of
    /// it. `None` says nothing else.
    #[inline]
    pub(crate) fn pop_like(&mut self, head: &[u64; HEAD_WORDS]) -> Option<[u64; 7 - HEAD_WORDS]> {
        let slot = self.places.slot(&self.words, self.taken);
        // The message's number, and no length.
        if slot[0].load(Ordering::Acquire) != u64::from((self.taken + 1) as u32) << 32 {
            return None;
        }
        let word = |index: usize| slot[1 + index].load(Ordering::Relaxed);
        // No comparison of arrays, which is a call.
        if (0..HEAD_WORDS).fold(0, |differs, index| differs | (word(index) ^ head[index])) != 0 {
            return None;
        }
        let rest = std::array::from_fn(|index| word(HEAD_WORDS + index));
        self.taken += 1;
        self.idle_polls = 0;
        self.tell_if_due();
        Some(rest)
    }

    /// Tells the producer about every slot that is free again. Needed before this end stops polling with
    /// [`pop`](Consumer::pop), which does it by itself after a quarter ring or many polls that found nothing;
    /// turning cold does it too. Says whether there was anything to tell.
    pub fn flush_credits(&mut self) -> bool {
        let (taken, line) = self.free();
        let news = self.published != taken;
        if news {
            self.words[FREED].store(taken, Ordering::Release);
            self.published = taken;
            self.line_published = line;
        }
        news
    }

    /// Tells the producer whether to ring the doorbell from now on.
    ///
    /// After turning to [`Attention::Doorbell`], and before sleeping, call
    /// [`heavy_fence`](crate::membarrier::heavy_fence) (once for any number of rings) and then look at
    /// [`ready`](Consumer::ready) again: a message that came meanwhile may have come without a doorbell.
    pub fn set_attention(&mut self, attention: Attention) {
        let value = match attention {
            Attention::Polled => POLLED,
            Attention::Doorbell => {
                self.flush_credits();
                0
            }
        };
        self.words[ATTENTION].store(value, Ordering::Relaxed);
    }

    /// How many messages were taken out, in all.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Copies a short payload out, and notes where a long one lies. Returns how many bytes are left there.
    fn take_payload(&mut self, len: usize, payload: &mut Vec<u8>) -> Result<usize, Corrupt> {
        if len > self.places.len_max() {
            return Err(Corrupt::Length { len, max: self.places.len_max() });
        }
        if len >= HELD_MIN {
            let (line, taken_before) = (self.line, self.taken);
            self.held = Some(Held { line, len, taken_before });
            return Ok(len);
        }
        payload::load(self.places.payload(&self.words, self.line, len), len, payload);
        Ok(0)
    }

    /// Counts a poll that found nothing.
    #[inline(always)]
    pub(crate) fn note_idle(&mut self) {
        if self.published != self.free().0 {
            self.idle_polls += 1;
            if self.idle_polls >= IDLE_POLLS {
                self.idle_polls = 0;
                self.flush_credits();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "ring_loom.rs"]
mod loom_tests;

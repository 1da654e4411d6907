//! A ring of messages from one producer to one consumer, in memory that both processes map.
//!
//! A message is seven words and a payload. Its *slot* is one cache line: word 0 holds the message's sequence
//! number and the payload's length, words 1 to 7 the body. The consumer polls word 0 of the very slot that
//! comes next, the producer writes it last, so a short message costs the transfer of one cache line and
//! nothing else. Sequence numbers differ from lap to lap, so slots need no clearing. A payload goes into an
//! area of its own, cut into cache lines and used round and round; where it starts, each side computes from
//! the lengths so far.
//!
//! While that area has no room, payloads go into a second, longer one, the *spill area*. It is memory apart
//! from the ring's. Either end has it once it was given, so that nobody touches it before. A bit beside the
//! length says in which of the two a payload lies.
//!
//! The consumer's own line tells the producer how many slots are free again, in batches of a quarter ring,
//! and whether the producer should ring the doorbell ([`Attention`]). The rest of the line is never read, so
//! in a steady exchange it rarely moves.
//!
//! Neither side trusts the other. Every content of the ring gives a message (of the right size, saying
//! anything), or [`Corrupt`], and never a panic, an endless loop or an access elsewhere.

mod consumer;
mod producer;

pub use consumer::Consumer;
pub use producer::Producer;

use crate::payload::Runs;
use crate::sync::{AtomicU64, Ordering};

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
    /// Size of the spill area in bytes, likewise; 0 where there is none.
    pub spill_bytes: usize,
}

impl RingLayout {
    /// How many 64-bit words the ring takes, without its spill area. They must be zero at the start, and
    /// should begin a cache line.
    pub const fn words(&self) -> usize {
        HEADER_WORDS + self.slots * LINE_WORDS + self.lines() * LINE_WORDS
    }

    /// How many 64-bit words the spill area takes. They may be anything, and should begin a cache line.
    pub const fn spill_words(&self) -> usize {
        self.spill_bytes.div_ceil(LINE_BYTES) * LINE_WORDS
    }

    /// The longest payload that a message can have, in bytes.
    pub const fn payload_bytes_max(&self) -> usize {
        let (payload, spill) = (self.lines() * LINE_BYTES, self.spill_words() * 8);
        if payload > spill { payload } else { spill }
    }

    const fn lines(&self) -> usize {
        self.payload_bytes.div_ceil(LINE_BYTES)
    }

    fn check(&self, words: usize) -> Result<(), BadLayout> {
        // With this the sizes below neither overflow nor outgrow the 32 bits of a length or a sequence
        // number.
        let sane = self.slots.is_power_of_two()
            && self.slots <= 1 << 24
            && self.payload_bytes <= 1 << 30
            && self.spill_bytes <= 1 << 30;
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
    /// The payload lies in the spill area, and the consumer was not given that yet: then it is to be, and the
    /// message is still there.
    #[error("a payload in the spill area, which the consumer was not given")]
    Spilled,
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
    /// There is no room now, and there is in the spill area, once the producer is given that.
    #[error("the payload area is full, and the producer was not given the spill area")]
    NoSpill,
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
    spill_words: usize,
}

/// The bit of a slot's first word that says that the payload lies in the spill area. No length reaches it.
const SPILLED: u32 = 1 << 31;

/// The words of a payload of `len` bytes that starts at line `line` of an area, counted on from lap to lap.
/// The second run is what goes on at the start of the area. `len` must have been checked against the area.
#[inline(always)]
fn runs_in(area: &[AtomicU64], line: u64, len: usize) -> Runs<'_> {
    let start = (line % (area.len() / LINE_WORDS) as u64) as usize * LINE_WORDS;
    let count = len.div_ceil(8);
    let straight = count.min(area.len() - start);
    [&area[start..start + straight], &area[..count - straight]]
}

impl Places {
    fn new(layout: RingLayout) -> Places {
        Places {
            slot_mask: layout.slots as u64 - 1,
            payload_start: HEADER_WORDS + layout.slots * LINE_WORDS,
            payload_words: layout.lines() * LINE_WORDS,
            spill_words: layout.spill_words(),
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

    /// The area that payloads go into first.
    #[inline(always)]
    fn payload_area<'a>(&self, words: &'a [AtomicU64]) -> &'a [AtomicU64] {
        &words[self.payload_start..self.payload_start + self.payload_words]
    }

    /// The spill area, which must have been given.
    fn spill_area<'a>(&self, spill: Option<&'a [AtomicU64]>) -> &'a [AtomicU64] {
        &spill.expect("nothing was spilled before it was given")[..self.spill_words]
    }

    /// Whether these words are enough for a spill area.
    fn check_spill(&self, words: usize) -> Result<(), BadLayout> {
        if words >= self.spill_words {
            return Ok(());
        }
        let (slots, payload_bytes) = (self.slots() as usize, self.payload_words * 8);
        let layout = RingLayout { slots, payload_bytes, spill_bytes: self.spill_words * 8 };
        Err(BadLayout { layout, words })
    }

    fn slots(&self) -> u64 {
        self.slot_mask + 1
    }

    fn lines(&self) -> u64 {
        (self.payload_words / LINE_WORDS) as u64
    }

    fn spill_lines(&self) -> u64 {
        (self.spill_words / LINE_WORDS) as u64
    }

    fn len_max(&self) -> usize {
        self.payload_words.max(self.spill_words) * 8
    }
}

/// Bytes of a payload from which on [`Consumer::pop_held`] leaves it in the ring: reading less at once costs
/// less than coming back for it.
pub const HELD_MIN: usize = 512;

/// Words of a message's body by which [`Duplex::pop_like`](crate::Duplex::pop_like) knows it.
pub const HEAD_WORDS: usize = 5;

#[cfg(all(test, not(loom)))]
#[path = "ring_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "ring_loom.rs"]
mod loom_tests;

//! The receiving end of a ring.

use std::ops::Deref;

use super::{
    ATTENTION, Attention, BadLayout, Corrupt, FREED, HEAD_WORDS, HELD_MIN, IDLE_POLLS, POLLED, Places,
    RingLayout, SPILLED, lines_of, load_body, runs_in,
};
use crate::payload::{self, Mapped, Runs};
use crate::sync::{AtomicU64, Ordering};

/// The receiving end. One thread at a time.
#[derive(Debug)]
pub struct Consumer<M> {
    words: M,
    places: Places,
    /// Messages taken out, in all, and of these, how many the producer has been told.
    pub(super) taken: u64,
    pub(super) published: u64,
    /// Payload lines taken out, of either area, and how many of both are free that the producer has not been
    /// told of.
    line: u64,
    spill_line: u64,
    lines_untold: u64,
    /// The spill area, once it was given.
    spill: Option<M>,
    idle_polls: u32,
    /// A payload of the message taken out last that is still to be read.
    held: Option<Held>,
}

/// A payload that was not copied out yet: its first line, its bytes, and the messages taken out before its.
#[derive(Clone, Copy, Debug)]
struct Held {
    line: u64,
    is_spilled: bool,
    len: usize,
    taken_before: u64,
}

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
            spill_line: 0,
            lines_untold: 0,
            spill: None,
            idle_polls: 0,
            held: None,
        })
    }

    /// Gives it the spill area, once: see [`Corrupt::Spilled`].
    ///
    /// # Errors
    /// [`BadLayout`] if the words are too few.
    pub fn give_spill(&mut self, spill: M) -> Result<(), BadLayout> {
        self.places.check_spill(spill.len())?;
        self.spill = Some(spill);
        Ok(())
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
        let mut left = 0;
        match word as u32 {
            0 => payload.clear(),
            word => left = self.take_payload(word, payload)?,
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
        payload::read(self.runs_of(held), at, into);
        true
    }

    /// Where so many bytes of the payload that was left in the ring lie, from byte `at` on. `None` where it
    /// has not so many.
    pub fn held_at(&self, at: usize, len: usize) -> Option<Mapped<'_>> {
        let held = self.held.filter(|held| at <= held.len && len <= held.len - at)?;
        Some(Mapped::new(self.runs_of(held), at, len))
    }

    /// Gives the room of what was left in the ring back, if anything was.
    #[inline]
    pub fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.lines_untold += lines_of(held.len);
            self.tell_if_due();
        }
    }

    /// How many messages the producer may be told of as free: not that whose payload is still to be read, and
    /// none that came after it.
    #[inline(always)]
    fn free(&self) -> u64 {
        self.held.map_or(self.taken, |held| held.taken_before)
    }

    /// Tells the producer of a quarter ring.
    #[inline(always)]
    fn tell_if_due(&mut self) {
        if self.free() - self.published > self.places.slot_mask / 4
            || self.lines_untold > self.places.lines() / 4
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
        let taken = self.free();
        let news = self.published != taken;
        if news {
            self.words[FREED].store(taken, Ordering::Release);
            self.published = taken;
            self.lines_untold = 0;
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

    /// Copies a short payload out, and notes where a long one lies; both as the lower half of the slot's
    /// first word says. Returns how many bytes are left there.
    fn take_payload(&mut self, word: u32, payload: &mut Vec<u8>) -> Result<usize, Corrupt> {
        let (len, is_spilled) = ((word & !SPILLED) as usize, word & SPILLED != 0);
        let max = if is_spilled { self.places.spill_words * 8 } else { self.places.payload_words * 8 };
        if len > max || max == 0 {
            return Err(Corrupt::Length { len, max });
        }
        if is_spilled && self.spill.is_none() {
            return Err(Corrupt::Spilled);
        }
        let line = if is_spilled { &mut self.spill_line } else { &mut self.line };
        let held = Held { line: *line, is_spilled, len, taken_before: self.taken };
        *line += lines_of(len);
        if len >= HELD_MIN {
            self.held = Some(held);
            return Ok(len);
        }
        payload::load(self.runs_of(held), len, payload);
        self.lines_untold += lines_of(len);
        Ok(0)
    }

    /// The words of a payload.
    fn runs_of(&self, held: Held) -> Runs<'_> {
        let area = match held.is_spilled {
            false => self.places.payload_area(&self.words),
            true => self.places.spill_area(self.spill.as_deref()),
        };
        runs_in(area, held.line, held.len)
    }

    /// Counts a poll that found nothing.
    #[inline(always)]
    pub(crate) fn note_idle(&mut self) {
        if self.published != self.free() {
            self.idle_polls += 1;
            if self.idle_polls >= IDLE_POLLS {
                self.idle_polls = 0;
                self.flush_credits();
            }
        }
    }
}

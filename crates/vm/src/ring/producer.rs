//! The sending end of a ring.

use std::ops::Deref;

use super::{
    ATTENTION, BadLayout, Corrupt, FREED, FenceMode, POLLED, Places, PushError, Pushed, RingLayout, SPILLED,
    lines_of, runs_in, store_body,
};
use crate::payload;
use crate::sync::{AtomicU64, Ordering, fence, light_fence};

/// The sending end. One thread at a time.
#[derive(Debug)]
pub struct Producer<M> {
    words: M,
    places: Places,
    fence: FenceMode,
    /// Messages put in, in all, and how many they can be before we look again how many the consumer has taken
    /// out.
    pub(super) pushed: u64,
    pub(super) pushed_max: u64,
    /// Payload lines put in, and how many they can be, likewise.
    line: u64,
    line_max: u64,
    /// The spill area, once it was given, and its lines likewise.
    spill: Option<M>,
    spill_line: u64,
    spill_line_max: u64,
    /// For every slot, `line` and `spill_line` after its message: what is free again follows from `freed`,
    /// with nothing to trust.
    line_after: Box<[[u32; 2]]>,
}

/// A count as it was, whose lower half was kept, and which has not grown by more than that holds since.
fn count_then(now: u64, then: u32) -> u64 {
    now - u64::from((now as u32).wrapping_sub(then))
}

impl<M: Deref<Target = [AtomicU64]>> Producer<M> {
    /// The sending end of the ring in `words`, which must be fresh: zero, with no producer before.
    ///
    /// # Errors
    /// [`BadLayout`] if the words are too few or the layout is impossible.
    pub fn new(words: M, layout: RingLayout, fence: FenceMode) -> Result<Producer<M>, BadLayout> {
        layout.check(words.len())?;
        let places = Places::new(layout);
        Ok(Producer {
            words,
            places,
            fence,
            pushed: 0,
            pushed_max: places.slots(),
            line: 0,
            line_max: places.lines(),
            spill: None,
            spill_line: 0,
            spill_line_max: 0,
            line_after: vec![[0; 2]; layout.slots].into_boxed_slice(),
        })
    }

    /// Gives it the spill area, once: from now on payloads may go there.
    ///
    /// # Errors
    /// [`BadLayout`] if the words are too few.
    pub fn give_spill(&mut self, spill: M) -> Result<(), BadLayout> {
        self.places.check_spill(spill.len())?;
        self.spill_line_max = self.places.spill_lines();
        self.spill = Some(spill);
        Ok(())
    }

    /// Whether it has the spill area.
    pub fn has_spill(&self) -> bool {
        self.spill.is_some()
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
        let place = if payload.is_empty() { 0 } else { self.write_payload(payload) };
        let lines_now = [self.line as u32, self.spill_line as u32];
        self.line_after[(self.pushed & self.places.slot_mask) as usize] = lines_now;
        let slot = self.places.slot(&self.words, self.pushed);
        self.pushed += 1;
        store_body(slot, body);
        let sequence = self.pushed as u32;
        let word = u64::from(sequence) << 32 | u64::from(place) | payload.len() as u64;
        slot[0].store(word, Ordering::Release);
        Ok(Pushed { doorbell: self.wants_doorbell() })
    }

    /// Whether a message with a payload of `payload_len` bytes would go in now: `false` means that
    /// [`push`](Producer::push) would say [`PushError::Full`] or [`PushError::NoSpill`].
    #[inline]
    pub fn room(&mut self, payload_len: usize) -> bool {
        let is_full = |error| matches!(error, PushError::Full | PushError::NoSpill);
        self.fits(lines_of(payload_len)) || !self.make_room(payload_len).is_err_and(is_full)
    }

    /// How many messages were put in, in all.
    #[inline]
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    #[inline(always)]
    fn fits(&self, lines: u64) -> bool {
        self.pushed < self.pushed_max
            && (self.line + lines <= self.line_max || self.spill_line + lines <= self.spill_line_max)
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
            let [line, spill_line] = self.line_after[((freed - 1) & self.places.slot_mask) as usize];
            self.pushed_max = freed + self.places.slots();
            self.line_max = count_then(self.line, line) + self.places.lines();
            if self.spill.is_some() {
                self.spill_line_max = count_then(self.spill_line, spill_line) + self.places.spill_lines();
            }
        }
        let would_spill = self.spill.is_none() && self.places.spill_words > 0;
        match self.fits(lines_of(payload_len)) {
            true => Ok(()),
            false if would_spill && self.pushed < self.pushed_max => Err(PushError::NoSpill),
            false => Err(PushError::Full),
        }
    }

    /// Writes a payload where there is room for it, and says by a bit where that is.
    fn write_payload(&mut self, payload: &[u8]) -> u32 {
        let lines = lines_of(payload.len());
        if self.line + lines <= self.line_max {
            let area = self.places.payload_area(&self.words);
            payload::store(runs_in(area, self.line, payload.len()), payload);
            self.line += lines;
            return 0;
        }
        let area = self.places.spill_area(self.spill.as_deref());
        payload::store(runs_in(area, self.spill_line, payload.len()), payload);
        self.spill_line += lines;
        SPILLED
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

//! Which payload was left in a ring when its message was handed on.

use engine::{Inbox, Lane, Rank};
use vm::Mapped;

use super::pair::Pair;

/// The sender and the lane whose ring still has the payload of the message that was handed on last.
#[derive(Default)]
pub(super) struct HeldPayload(Option<(Rank, Lane)>);

impl HeldPayload {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Takes note of a message that was taken out into that inbox.
    pub(super) fn note(&mut self, rank: Rank, lane: Lane, inbox: &Inbox) {
        self.0 = (inbox.held() > 0).then_some((rank, lane));
    }

    /// Reads of it from byte `at` on.
    ///
    /// # Panics
    /// Where it has not so many bytes, or none is there.
    pub(super) fn read(&self, pairs: &[Option<Box<Pair>>], at: usize, into: &mut [u8]) {
        let read = self.pair(pairs).is_some_and(|(pair, lane)| pair.read_held(lane, at, into));
        assert!(read, "{} bytes from byte {at} on are held of no message", into.len());
    }

    /// Where bytes of it lie in this process.
    ///
    /// # Panics
    /// As [`HeldPayload::read`].
    pub(super) fn mapped<'a>(&self, pairs: &'a [Option<Box<Pair>>], at: usize, len: usize) -> Mapped<'a> {
        let mapped = self.pair(pairs).and_then(|(pair, lane)| pair.held_at(lane, at, len));
        mapped.unwrap_or_else(|| panic!("{len} bytes from byte {at} on are held of no message"))
    }

    /// Gives its room in the ring back.
    #[inline(never)]
    pub(super) fn release(&mut self, pairs: &mut [Option<Box<Pair>>]) {
        if let Some((rank, lane)) = self.0.take()
            && let Some(pair) = &mut pairs[rank as usize]
        {
            pair.release(lane);
        }
    }

    fn pair<'a>(&self, pairs: &'a [Option<Box<Pair>>]) -> Option<(&'a Pair, Lane)> {
        let (rank, lane) = self.0?;
        Some((pairs[rank as usize].as_deref()?, lane))
    }
}

//! The message that this process sends to a peer: one at a time.
//!
//! The thread that begins a message owns this until the message has ended. Nobody else changes it, so a lock
//! guards only bytes that wait for their packet to be full. Two threads that go on with one message at the
//! same time make one that its receiver refuses.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::credits::Credits;
use super::lock::lock;

/// Bits of the word that say how things stand; above them is the number of the last message.
const STATE_BITS: u32 = 2;
/// No message is open.
const IDLE: u64 = 0;
/// The numbered message is open.
const OPEN: u64 = 1;
/// It was given up, and its receiver has not been told.
const CUT_DUE: u64 = 2;
/// A thread tells the receiver.
const TELLING: u64 = 3;
const STATE: u64 = (1 << STATE_BITS) - 1;

#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    word: AtomicU64,
    handler: AtomicU32,
    announced: AtomicU64,
    /// Bytes that have left.
    sent: AtomicU64,
    /// Credits that were taken for it at its beginning.
    reserved: AtomicU32,
    /// Whether its first packet has left.
    has_begun: AtomicBool,
    /// Whether its last packet has left.
    is_over: AtomicBool,
    /// The run of the handler that began it; 0 where none did.
    opener: AtomicU64,
    /// Bytes that wait for the packet to be full.
    staged: Mutex<Vec<u8>>,
    staged_len: AtomicUsize,
}

/// The values that a message is begun with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) handler: u32,
    pub(crate) announced: u64,
    pub(crate) opener: u64,
}

impl Outgoing {
    /// Opens the next message, whose number has so many bits: its number. `None` while another is open, or
    /// was given up and its receiver has yet to be told.
    #[inline]
    pub(crate) fn open(&self, begun: Begun, serial_bits: u32) -> Option<u64> {
        let word = self.word.load(Relaxed);
        if word & STATE != IDLE {
            return None;
        }
        let serial = ((word >> STATE_BITS) + 1) & ((1 << serial_bits) - 1);
        let next = serial << STATE_BITS | OPEN;
        self.word.compare_exchange(word, next, Ordering::Acquire, Relaxed).ok()?;
        self.handler.store(begun.handler, Relaxed);
        self.announced.store(begun.announced, Relaxed);
        self.opener.store(begun.opener, Relaxed);
        self.sent.store(0, Relaxed);
        self.has_begun.store(false, Relaxed);
        self.is_over.store(false, Relaxed);
        Some(serial)
    }

    /// Whether a message is open.
    pub(crate) fn is_open(&self) -> bool {
        self.word.load(Relaxed) & STATE == OPEN
    }

    /// Whether the message of that number is.
    #[inline]
    pub(crate) fn is_open_as(&self, serial: u64) -> bool {
        self.word.load(Ordering::Acquire) == serial << STATE_BITS | OPEN
    }

    /// Whether the handler of that run began the message that is open.
    pub(crate) fn is_open_by(&self, run: u64) -> bool {
        // Acquire: whoever sees a message open sees that the one before has no opener any more.
        self.word.load(Ordering::Acquire) & STATE == OPEN && self.opener.load(Relaxed) == run
    }

    pub(crate) fn announced(&self) -> u64 {
        self.announced.load(Relaxed)
    }

    /// Bytes of the message so far.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.sent.load(Relaxed) + self.staged_len() as u64
    }

    #[inline]
    pub(crate) fn staged_len(&self) -> usize {
        self.staged_len.load(Relaxed)
    }

    /// Keeps bytes until the packet is full.
    pub(crate) fn stage(&self, bytes: &[u8]) {
        let mut staged = lock(&self.staged);
        staged.extend_from_slice(bytes);
        self.staged_len.store(staged.len(), Relaxed);
    }

    /// Forgets bytes that were kept, all but so many.
    pub(crate) fn unstage(&self, left: usize) {
        let mut staged = lock(&self.staged);
        staged.truncate(left);
        self.staged_len.store(staged.len(), Relaxed);
    }

    /// The bytes that are kept.
    pub(crate) fn staged(&self) -> MutexGuard<'_, Vec<u8>> {
        lock(&self.staged)
    }

    /// Keeps credits for the whole message.
    pub(crate) fn reserve(&self, packets: u32) {
        self.reserved.store(packets, Relaxed);
    }

    /// Whether there is a credit that was kept.
    #[inline]
    pub(crate) fn has_reserved(&self) -> bool {
        self.reserved.load(Relaxed) > 0
    }

    /// The next packet's handler, of a message's first one, and its place: the announced length, of a first
    /// one; else the bytes that went before.
    #[inline]
    pub(crate) fn place(&self) -> (Option<u32>, u64) {
        match self.has_begun.load(Relaxed) {
            true => (None, self.sent.load(Relaxed)),
            false => (Some(self.handler.load(Relaxed)), self.announced()),
        }
    }

    /// Notes that a packet has left.
    #[inline]
    pub(crate) fn packet_left(&self, bytes: usize, is_last: bool) {
        let reserved = self.reserved.load(Relaxed);
        self.reserved.store(reserved.saturating_sub(1), Relaxed);
        self.has_begun.store(true, Relaxed);
        self.is_over.store(is_last, Relaxed);
        self.throw_away(bytes as u64);
    }

    /// Counts bytes as sent.
    pub(crate) fn throw_away(&self, bytes: u64) {
        self.sent.store(self.sent.load(Relaxed) + bytes, Relaxed);
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Whether its receiver knows of it, and waits for more.
    pub(crate) fn is_half_sent(&self) -> bool {
        self.has_begun.load(Relaxed) && !self.is_over()
    }

    /// Ends the open message, and gives back the credits that it has not used.
    #[inline]
    pub(crate) fn close(&self, credits: &Credits) {
        self.close_as(IDLE, credits);
    }

    /// As [`Outgoing::close`]; its receiver is to be told that it was given up.
    pub(crate) fn give_up(&self, credits: &Credits) {
        self.close_as(CUT_DUE, credits);
    }

    #[inline]
    fn close_as(&self, state: u64, credits: &Credits) {
        let reserved = self.reserved.load(Relaxed);
        if reserved > 0 {
            self.reserved.store(0, Relaxed);
            credits.untake(reserved);
        }
        if self.staged_len() > 0 {
            self.unstage(0);
        }
        // The next message is seen as open before it has an opener.
        self.opener.store(0, Relaxed);
        self.enter(state);
    }

    #[inline]
    fn enter(&self, state: u64) {
        let word = self.word.load(Relaxed);
        self.word.store(word & !STATE | state, Ordering::Release);
    }

    /// The right to tell the receiver of a message that was given up, if it is to be told: for one thread,
    /// which says afterwards [whether it has](Outgoing::told).
    pub(crate) fn begin_to_tell(&self) -> bool {
        let word = self.word.load(Relaxed);
        word & STATE == CUT_DUE
            && self.word.compare_exchange(word, word | TELLING, Ordering::Acquire, Relaxed).is_ok()
    }

    pub(crate) fn told(&self, is_told: bool) {
        self.enter(if is_told { IDLE } else { CUT_DUE });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Begun = Begun { handler: 3, announced: 40, opener: 7 };

    #[test]
    fn one_message_is_open_at_a_time() {
        let (outgoing, credits) = (Outgoing::default(), Credits::new(4));
        let first = outgoing.open(BEGUN, 43).expect("none is open");
        assert!(outgoing.is_open_as(first) && outgoing.is_open_by(7) && !outgoing.is_open_by(8));
        assert_eq!(outgoing.open(BEGUN, 43), None);
        assert_eq!(outgoing.place(), (Some(3), 40));
        outgoing.stage(&[1; 30]);
        assert_eq!((outgoing.total(), outgoing.staged().len()), (30, 30));
        outgoing.unstage(0);
        outgoing.packet_left(30, false);
        assert_eq!((outgoing.place(), outgoing.is_half_sent()), ((None, 30), true));
        outgoing.packet_left(10, true);
        assert!(outgoing.is_over() && !outgoing.is_half_sent());
        outgoing.close(&credits);
        assert!(!outgoing.is_open_as(first));
        // As another thread sees the next message in the middle of `open`.
        outgoing.word.store(first << STATE_BITS | OPEN, Relaxed);
        assert!(!outgoing.is_open_by(7));
        outgoing.close(&credits);
        assert_eq!(outgoing.open(BEGUN, 43), Some(first + 1));
        assert_eq!((outgoing.total(), outgoing.is_over()), (0, false));
    }

    #[test]
    fn numbers_begin_again_where_they_have_no_more_bits() {
        let (outgoing, credits) = (Outgoing::default(), Credits::new(4));
        let numbers: Vec<_> = (0..4)
            .map(|_| {
                let serial = outgoing.open(BEGUN, 2).expect("none is open");
                outgoing.close(&credits);
                serial
            })
            .collect();
        assert_eq!(numbers, [1, 2, 3, 0]);
    }

    #[test]
    fn what_was_given_up_is_told_by_one_thread_before_another_message() {
        let (outgoing, credits) = (Outgoing::default(), Credits::new(4));
        assert!(!outgoing.begin_to_tell());
        outgoing.open(BEGUN, 43).expect("none is open");
        assert!(credits.take(3));
        outgoing.reserve(3);
        outgoing.packet_left(5, false);
        outgoing.give_up(&credits);
        assert!(credits.take(3) && !credits.take(1), "two were not used, and one was left");
        assert!(!outgoing.is_open() && outgoing.open(BEGUN, 43).is_none());
        assert!(outgoing.begin_to_tell() && !outgoing.begin_to_tell());
        outgoing.told(false);
        assert!(outgoing.begin_to_tell());
        outgoing.told(true);
        assert!(!outgoing.has_reserved() && outgoing.open(BEGUN, 43).is_some());
    }
}

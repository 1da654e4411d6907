//! Messages of a process that gather before they leave.
//!
//! A message leaves at once if, as far as the process knows, none of its messages to that peer is on its way
//! out of the card. The process learns that when it asks the network for news. Otherwise it gathers with
//! those that come after it. Their frame leaves when it is full, or when the process asks the network.

use engine::{Header, Nanos, Rank};
use rustc_hash::FxHashMap;

/// Bytes of messages that a frame holds, if it holds more than one.
const FRAME_BYTES: u64 = 8 << 10;

/// Messages that came before and are handed on in turn, at most, before the network is asked again.
const HANDED_MAX: u32 = 16;

/// Messages to one peer that leave together.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) to: Rank,
    /// Their places in the world.
    pub(crate) messages: Vec<u32>,
    /// Bytes of payload.
    pub(crate) payload: u64,
}

impl Frame {
    /// Bytes with so much more payload, and one header more.
    fn bytes_with(&self, payload: u64) -> u64 {
        let header = (Header::WORDS * size_of::<u64>()) as u64;
        (self.messages.len() as u64 + 1) * header + self.payload + payload
    }
}

/// Frames of one process.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// One a peer at most, in the order that they were begun.
    frames: Vec<Frame>,
    /// By peer: when the last byte of the last frame leaves the card. Never iterated over.
    left: FxHashMap<Rank, Nanos>,
    /// When the network was asked last, and messages handed on since.
    asked: Nanos,
    handed: u32,
}

impl Outbox {
    /// Whether nothing gathers.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether a message to `to` must wait for others, by the last news of the network: that of `asked` if it
    /// is given.
    pub(crate) fn is_leaving(&self, to: Rank, asked: Option<Nanos>) -> bool {
        let asked = asked.unwrap_or(self.asked);
        self.frame_at(to).is_some() || self.left.get(&to).is_some_and(|left| *left > asked)
    }

    /// Whether the peer's frame has no room for so much more payload.
    pub(crate) fn is_full(&self, to: Rank, payload: u64) -> bool {
        self.frame_at(to).is_some_and(|at| self.frames[at].bytes_with(payload) > FRAME_BYTES)
    }

    /// Adds a message to the peer's frame.
    pub(crate) fn add(&mut self, to: Rank, message: u32, payload: u64) {
        match self.frame_at(to) {
            Some(at) => {
                self.frames[at].messages.push(message);
                self.frames[at].payload += payload;
            }
            None => self.frames.push(Frame { to, messages: vec![message], payload }),
        }
    }

    /// Takes the peer's frame.
    pub(crate) fn take(&mut self, to: Rank) -> Option<Frame> {
        self.frame_at(to).map(|at| self.frames.remove(at))
    }

    /// Takes all frames.
    pub(crate) fn take_all(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.frames)
    }

    /// Notes when a frame's last byte leaves.
    pub(crate) fn note_left(&mut self, to: Rank, at: Nanos) {
        self.left.insert(to, at);
    }

    /// Notes when the network was asked for news.
    pub(crate) fn note_asked(&mut self, at: Nanos) {
        (self.asked, self.handed) = (at, 0);
    }

    /// Notes that a poll hands on a message that came before. Returns whether more may gather, as the network
    /// need not be asked yet.
    pub(crate) fn may_wait(&mut self) -> bool {
        self.handed += 1;
        self.handed < HANDED_MAX
    }

    fn frame_at(&self, to: Rank) -> Option<usize> {
        self.frames.iter().position(|frame| frame.to == to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_gather_while_one_leaves() {
        let mut outbox = Outbox::default();
        assert!(!outbox.is_leaving(1, None));
        outbox.note_left(1, 100);
        assert_eq!([1, 2].map(|to| outbox.is_leaving(to, Some(99))), [true, false]);
        assert!(!outbox.is_leaving(1, Some(100)) && outbox.is_leaving(1, None));
        outbox.note_asked(100);
        assert!(!outbox.is_leaving(1, None), "the process knows");
        outbox.add(1, 7, 10);
        outbox.add(2, 8, 0);
        outbox.add(1, 9, 20);
        assert!(outbox.is_leaving(1, None), "what gathers has not left");
        let Frame { messages, payload, .. } = outbox.take(1).expect("two messages have gathered");
        assert_eq!((messages, payload), (vec![7, 9], 30));
        assert!(outbox.take(1).is_none() && !outbox.is_empty());
        assert_eq!(outbox.take_all().len(), 1);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_frame_is_full_at_8_kib_and_a_message_may_be_longer() {
        let mut outbox = Outbox::default();
        assert!(!outbox.is_full(1, 1 << 20), "there is no frame");
        (0..100).for_each(|message| outbox.add(1, message, 0));
        assert!(!outbox.is_full(1, FRAME_BYTES - 101 * 56));
        assert!(outbox.is_full(1, FRAME_BYTES - 101 * 56 + 1));
    }

    #[test]
    fn the_network_is_asked_after_some_messages() {
        let mut outbox = Outbox::default();
        let mut waited = || (0..100).take_while(|_| outbox.may_wait()).count();
        assert_eq!(waited() as u32 + 1, HANDED_MAX);
        assert_eq!(waited(), 0);
        outbox.note_asked(0);
        assert!(outbox.may_wait());
    }
}

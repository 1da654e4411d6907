//! The format of what goes over the network: frames of messages.
//!
//! ```text
//! 0    token of the pair (16 bytes)
//! 16   sender's number at the receiver: its rank, or what one from outside was given (4 bytes)
//! 20   credits given back: of requests, of replies (2 bytes each)
//! 24   zero (8 bytes)
//! 32   messages, one after the other, to the end; each
//!      0   kind (1 byte), zero (1 byte)
//!      2   bytes of payload (2 bytes)
//!      4   sequence number in its lane (4 bytes)
//!      8   the engine's header, or the words of an atomic (7 × 8 bytes)
//!      64  payload, of requests and replies, and zeros up to a multiple of 8 bytes
//! ```
//! Numbers are little-endian. Of every arrival, [`FrameHead::decode`] and [`Letter::decode`] return messages
//! of known kinds that lie within it, or nothing.

use engine::{Header, Lane, Rank};

use super::token::TOKEN_BYTES;
pub(super) use crate::base::limits::FRAME_HEAD_BYTES;
use crate::base::limits::FRAME_MESSAGE_BYTES;

/// Bytes of a message before its payload.
pub(super) const LETTER_BYTES: usize = FRAME_MESSAGE_BYTES;

const _: () = assert!(LETTER_BYTES == 8 + 8 * Header::WORDS, "the words are all that it has");

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of the engine's.
    Engine(Lane),
    /// An atomic on a word of the receiver's.
    Ask,
    /// The old word.
    Answer,
    /// The sender has given the receiver up.
    Bye,
}

const KINDS: [Kind; 5] =
    [Kind::Engine(Lane::Request), Kind::Engine(Lane::Reply), Kind::Ask, Kind::Answer, Kind::Bye];

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        KINDS.get(usize::from(number)).copied()
    }

    fn number(self) -> u8 {
        KINDS.iter().position(|kind| *kind == self).expect("every kind is in the table") as u8
    }

    /// Bytes of payload that a message of this kind has, at most.
    const fn payload_max(self, payload_max: usize) -> usize {
        match self {
            Kind::Engine(_) => payload_max,
            Kind::Ask | Kind::Answer | Kind::Bye => 0,
        }
    }
}

/// The lane's place in lists of two.
pub(super) fn index(lane: Lane) -> usize {
    usize::from(lane == Lane::Reply)
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) token: [u8; TOKEN_BYTES],
    pub(super) sender: Rank,
    /// By lane.
    pub(super) credits: [u16; 2],
}

impl FrameHead {
    /// Where the credits stand.
    pub(super) const CREDITS_AT: usize = 20;

    pub(super) fn encode(&self) -> [u8; FRAME_HEAD_BYTES] {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        bytes[..16].copy_from_slice(&self.token);
        bytes[16..20].copy_from_slice(&self.sender.to_le_bytes());
        bytes[20..24].copy_from_slice(&FrameHead::encode_credits(self.credits));
        bytes
    }

    pub(super) fn encode_credits([requests, replies]: [u16; 2]) -> [u8; 4] {
        let ([a, b], [c, d]) = (requests.to_le_bytes(), replies.to_le_bytes());
        [a, b, c, d]
    }

    /// The beginning of a frame of `len` bytes; `bytes` are its first ones, as many as there are of so many.
    pub(super) fn decode(bytes: &[u8; FRAME_HEAD_BYTES], len: usize) -> Option<FrameHead> {
        if len < FRAME_HEAD_BYTES || bytes[24..] != [0; 8] {
            return None;
        }
        Some(FrameHead {
            token: part(bytes, 0),
            sender: u32::from_le_bytes(part(bytes, 16)),
            credits: [u16::from_le_bytes(part(bytes, 20)), u16::from_le_bytes(part(bytes, 22))],
        })
    }
}

/// A message in a frame, but for its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) kind: Kind,
    /// Bytes of the payload.
    pub(super) len: usize,
    pub(super) sequence: u32,
    pub(super) words: [u64; Header::WORDS],
}

impl Letter {
    /// Bytes of a message with so much payload, with all.
    pub(super) const fn bytes(payload: usize) -> usize {
        LETTER_BYTES + payload.next_multiple_of(8)
    }

    pub(super) fn encode(&self) -> [u8; LETTER_BYTES] {
        let mut bytes = [0; LETTER_BYTES];
        bytes[0] = self.kind.number();
        bytes[2..4].copy_from_slice(&(self.len as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        for (bytes, word) in bytes[8..].chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The message that begins `bytes`, where `left` bytes of the frame are left: `None` if that is none, or
    /// does not end with the frame at the latest.
    pub(super) fn decode(bytes: &[u8; LETTER_BYTES], left: usize, payload_max: usize) -> Option<Letter> {
        let kind = Kind::from_number(bytes[0]).filter(|_| bytes[1] == 0)?;
        let len = usize::from(u16::from_le_bytes(part(bytes, 2)));
        if len > kind.payload_max(payload_max) || Letter::bytes(len) > left {
            return None;
        }
        let mut words = [0; Header::WORDS];
        for (word, at) in words.iter_mut().zip((8..).step_by(8)) {
            *word = u64::from_le_bytes(part(bytes, at));
        }
        Some(Letter { kind, len, sequence: u32::from_le_bytes(part(bytes, 4)), words })
    }
}

fn part<const N: usize, const ALL: usize>(bytes: &[u8; ALL], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("every part of the layout lies before its end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAYLOAD_MAX: usize = 100;

    /// The page that draws it.
    const PAGE: &str = include_str!("../../../docs/WIRE.md");

    /// Fields of ones, but for the kind and for zeros, as the page has them in its rows.
    fn fields(bytes: &[u8], has: &impl Fn(String)) {
        let mut at = 0;
        for run in bytes.chunk_by(|one, next| one == next) {
            match (run[0], run.len()) {
                (0, 1) => has(format!("| {at} | zero |")),
                (0, len) => has(format!("| {at}–{} | zero |", at + len - 1)),
                (0xff, _) => {}
                (kind, len) => {
                    assert_eq!((kind, len), (Kind::Bye.number(), 1));
                    has(format!("| {at} | kind |"));
                }
            }
            at += run.len();
        }
    }

    #[test]
    fn the_page_draws_frames_as_they_are() {
        let page = PAGE.split("## Far: frames").nth(1).expect("the page has a section");
        let has = |start: String| assert!(page.contains(&format!("\n{start}")), "docs/WIRE.md lacks {start}");
        let head = FrameHead { token: [0xff; TOKEN_BYTES], sender: u32::MAX, credits: [u16::MAX; 2] };
        fields(&head.encode(), &has);
        has(format!("| 0–{} | token", TOKEN_BYTES - 1));
        has(format!("| {FRAME_HEAD_BYTES}– | messages"));
        let letter = Letter {
            kind: Kind::Bye,
            len: usize::from(u16::MAX),
            sequence: u32::MAX,
            words: [u64::MAX; Header::WORDS],
        };
        fields(&letter.encode(), &has);
        has(format!("| 8–{} | the header", LETTER_BYTES - 1));
        has(format!("| {LETTER_BYTES}– | the payload"));
        for kind in KINDS {
            let what = match kind {
                Kind::Engine(Lane::Request) => "the engine's message, as a request",
                Kind::Engine(Lane::Reply) => "the engine's message, as a reply",
                Kind::Ask => "an atomic on the receiver's word",
                Kind::Answer => "the old word",
                Kind::Bye => "the sender has given the receiver up",
            };
            has(format!("| {} | {what} |", kind.number()));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_the_network(
            token: [u8; 16], sender: u32, credits: [u16; 2], kind in 0_usize..5, sequence: u32, words: [u64; 7],
            payload in 0..=PAYLOAD_MAX, more in 0_usize..99,
        ) {
            let head = FrameHead { token, sender, credits };
            prop_assert_eq!(FrameHead::decode(&head.encode(), FRAME_HEAD_BYTES + more), Some(head));
            let kind = KINDS[kind];
            let letter = Letter { kind, len: payload.min(kind.payload_max(PAYLOAD_MAX)), sequence, words };
            let left = Letter::bytes(letter.len) + more;
            prop_assert_eq!(Letter::decode(&letter.encode(), left, PAYLOAD_MAX), Some(letter));
            prop_assert_eq!(Letter::decode(&letter.encode(), left - more - 1, PAYLOAD_MAX), None);
        }

        #[test]
        fn whatever_arrives_is_a_message_within_the_frame_or_nothing(
            bytes in proptest::collection::vec(any::<u8>(), LETTER_BYTES), kind: u8, len in 0..200_u16, left in 0_usize..300,
        ) {
            let mut bytes: [u8; LETTER_BYTES] = bytes.try_into().expect("as many");
            (bytes[0], bytes[1]) = (kind % 8, 0);
            bytes[2..4].copy_from_slice(&len.to_le_bytes());
            let known = Kind::from_number(bytes[0]).map(|kind| kind.payload_max(PAYLOAD_MAX));
            let fits = known.is_some_and(|max| usize::from(len) <= max && Letter::bytes(usize::from(len)) <= left);
            let letter = Letter::decode(&bytes, left, PAYLOAD_MAX);
            prop_assert_eq!(letter.map(|letter| letter.len), fits.then_some(usize::from(len)));
        }
    }
}

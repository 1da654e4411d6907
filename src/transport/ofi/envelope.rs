//! The format of messages on the network.
//!
//! ```text
//! 0    token of the pair (16 bytes)
//! 16   sender's number at the receiver: its rank, or what one from outside was given (4 bytes)
//! 20   kind (1 byte), zero (1 byte)
//! 22   credits given back: of requests, of replies (2 bytes each)
//! 26   zero (2 bytes)
//! 28   sequence number in its lane (4 bytes)
//! 32   the engine's header, or the words of an atomic (7 × 8 bytes), unless the kind has none
//! 88   payload, of requests and replies
//! ```
//! Numbers are little-endian. For every arrival, [`Envelope::decode`] returns an envelope of a known kind
//! with a body of that kind's shape, or nothing.

use engine::{Header, Lane, Rank};

use super::token::TOKEN_BYTES;

/// Bytes before the header.
pub(super) const BARE_BYTES: usize = 32;
/// Bytes before the payload.
pub(super) const HEAD_BYTES: usize = BARE_BYTES + 8 * Header::WORDS;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of the engine's.
    Engine(Lane),
    /// Nothing but what every message carries.
    Credits,
    /// An atomic on a word of the receiver's.
    Ask,
    /// The old word.
    Answer,
    /// The sender has given the receiver up.
    Bye,
}

const KINDS: [Kind; 6] = [
    Kind::Engine(Lane::Request),
    Kind::Engine(Lane::Reply),
    Kind::Credits,
    Kind::Ask,
    Kind::Answer,
    Kind::Bye,
];

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        KINDS.get(usize::from(number)).copied()
    }

    fn number(self) -> u8 {
        KINDS.iter().position(|kind| *kind == self).expect("every kind is in the table") as u8
    }

    /// Bytes of a message of this kind, at least and at most.
    pub(super) fn bytes(self, payload_max: usize) -> (usize, usize) {
        match self {
            Kind::Engine(_) => (HEAD_BYTES, HEAD_BYTES + payload_max),
            Kind::Ask | Kind::Answer => (HEAD_BYTES, HEAD_BYTES),
            Kind::Credits | Kind::Bye => (BARE_BYTES, BARE_BYTES),
        }
    }
}

/// The lane's place in lists of two.
pub(super) fn index(lane: Lane) -> usize {
    usize::from(lane == Lane::Reply)
}

/// The words before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) token: [u8; TOKEN_BYTES],
    pub(super) sender: Rank,
    pub(super) kind: Kind,
    /// By lane.
    pub(super) credits: [u16; 2],
    pub(super) sequence: u32,
    /// Zero where the kind has none.
    pub(super) words: [u64; Header::WORDS],
}

impl Envelope {
    /// The bytes to send before the payload: all of them, or only the first [`BARE_BYTES`] where the kind has
    /// no header.
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(&self.token);
        bytes[16..20].copy_from_slice(&self.sender.to_le_bytes());
        bytes[20] = self.kind.number();
        bytes[22..24].copy_from_slice(&self.credits[0].to_le_bytes());
        bytes[24..26].copy_from_slice(&self.credits[1].to_le_bytes());
        bytes[28..32].copy_from_slice(&self.sequence.to_le_bytes());
        for (bytes, word) in bytes[BARE_BYTES..].chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The beginning of a message of `len` bytes; `bytes` are its first ones, as many as there are of
    /// [`HEAD_BYTES`].
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES], len: usize, payload_max: usize) -> Option<Envelope> {
        let zeros = [bytes[21], bytes[26], bytes[27]];
        let kind = Kind::from_number(bytes[20]).filter(|_| len >= BARE_BYTES && zeros == [0; 3])?;
        let (least, most) = kind.bytes(payload_max);
        if !(least..=most).contains(&len) {
            return None;
        }
        let mut words = [0; Header::WORDS];
        if least == HEAD_BYTES {
            for (word, at) in words.iter_mut().zip((BARE_BYTES..).step_by(8)) {
                *word = u64::from_le_bytes(part(bytes, at));
            }
        }
        Some(Envelope {
            token: part(bytes, 0),
            sender: u32::from_le_bytes(part(bytes, 16)),
            kind,
            credits: [u16::from_le_bytes(part(bytes, 22)), u16::from_le_bytes(part(bytes, 24))],
            sequence: u32::from_le_bytes(part(bytes, 28)),
            words,
        })
    }
}

fn part<const N: usize>(bytes: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("every part of the layout lies before its end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAYLOAD_MAX: usize = 100;

    /// The page that draws it.
    const PAGE: &str = include_str!("../../../docs/WIRE.md");

    #[test]
    fn the_page_draws_the_envelope_as_it_is() {
        let page = PAGE.split("## Far: an envelope").nth(1).expect("the page has a section");
        let has = |start: String| assert!(page.contains(&format!("\n{start}")), "docs/WIRE.md lacks {start}");
        let envelope = |kind| Envelope {
            token: [0xff; TOKEN_BYTES],
            sender: u32::MAX,
            kind,
            credits: [u16::MAX; 2],
            sequence: u32::MAX,
            words: [u64::MAX; Header::WORDS],
        };
        // Fields are of ones, but for the kind and for zeros.
        let mut at = 0;
        for run in envelope(Kind::Bye).encode().chunk_by(|one, next| one == next) {
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
        has(format!("| 0–{} | token", TOKEN_BYTES - 1));
        has(format!("| {BARE_BYTES}–{} | the header", HEAD_BYTES - 1));
        has(format!("| {HEAD_BYTES}– | the payload"));
        for kind in KINDS {
            let what = match kind {
                Kind::Engine(Lane::Request) => "the engine's message, as a request",
                Kind::Engine(Lane::Reply) => "the engine's message, as a reply",
                Kind::Credits => "credits alone",
                Kind::Ask => "an atomic on the receiver's word",
                Kind::Answer => "the old word",
                Kind::Bye => "the sender has given the receiver up",
            };
            has(format!("| {} | {what} | {}", kind.number(), kind.bytes(0).0));
        }
    }

    proptest! {
        #[test]
        fn envelopes_survive_the_network(
            token: [u8; 16], sender: u32, kind in 0_usize..6, credits: [u16; 2], sequence: u32, words: [u64; 7],
            payload in 0..=PAYLOAD_MAX,
        ) {
            let kind = KINDS[kind];
            let (least, most) = kind.bytes(PAYLOAD_MAX);
            let words = if least == HEAD_BYTES { words } else { [0; 7] };
            let envelope = Envelope { token, sender, kind, credits, sequence, words };
            let len = (least + payload).min(most);
            prop_assert_eq!(Envelope::decode(&envelope.encode(), len, PAYLOAD_MAX), Some(envelope));
        }

        #[test]
        fn whatever_arrives_is_an_envelope_or_nothing(
            bytes in proptest::collection::vec(any::<u8>(), HEAD_BYTES), kind: u8, len in 0_usize..300,
        ) {
            let mut bytes: [u8; HEAD_BYTES] = bytes.try_into().expect("as many");
            bytes[20] = kind % 8;
            (bytes[21], bytes[26], bytes[27]) = (0, 0, 0);
            match Envelope::decode(&bytes, len, PAYLOAD_MAX) {
                Some(envelope) => {
                    let (least, most) = envelope.kind.bytes(PAYLOAD_MAX);
                    prop_assert!(least <= len && len <= most);
                }
                None => {
                    let known = Kind::from_number(bytes[20]).map(|kind| kind.bytes(PAYLOAD_MAX));
                    prop_assert!(known.is_none_or(|(least, most)| len < least || len > most));
                }
            }
        }
    }
}

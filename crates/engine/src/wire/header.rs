//! A message's header: seven 64-bit words.
//!
//! ```text
//! word 0 kind (8 bits) | client (8 bits, from bit 8) | small number (16 bits, from bit 16) | length (32
//! bits, from bit 32) word 1 token: what the answer echoes, or the team word 2-5 arguments word 6 place:
//! mostly an offset in some memory
//! ```
//! Seven words and a transport's own sequence word fill one cache line. For all that a peer sends,
//! [`Header::decode`] returns a header of a known kind or an error.

/// Words of a header by which [`Transport::take_like`](crate::Transport::take_like) knows a message.
pub const HEAD_WORDS: usize = 5;

/// A message's kind. [`Message`](super::Message) tells what it says, and what its fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An Active Message without payload.
    AmShort,
    /// An Active Message with its payload inside.
    AmMedium,
    /// An Active Message whose payload already lies at the receiver.
    AmLong,
    /// A put's chunk.
    PutChunk,
    /// A get's chunk.
    GetChunk,
    /// The answer to a [`Kind::PutChunk`] or a [`Kind::PutSignal`].
    PutDone,
    /// The answer to a [`Kind::GetChunk`], with the bytes as payload.
    GetData,
    /// Everyone has arrived at a barrier.
    BarrierOpen,
    /// The sender has given up a rank.
    BarrierBroken,
    /// Attach and detach firehoses.
    Move,
    /// The answer to a [`Kind::Move`].
    Moved,
    /// Give back a firehose.
    Revoke,
    /// Give back firehoses that are idle.
    Recall,
    /// Firehoses are given back.
    Release,
    /// Lend a bounce buffer. Answered by [`Kind::Bounced`], as are the next two.
    BounceTake,
    /// Fill a bounce buffer.
    BounceFill,
    /// Drain a bounce buffer.
    BounceDrain,
    /// A bounce buffer is given back.
    BounceGive,
    /// The answer about a bounce buffer.
    Bounced,
    /// A step of a collective, with at most 8 bytes in the header.
    TeamWord,
    /// A step of a collective, with its bytes as payload.
    TeamData,
    /// A step of a collective, whose bytes the receiver gets.
    TeamOffer,
    /// The receiver of a [`Kind::TeamOffer`] has got the bytes.
    TeamTaken,
    /// The offered memory lay there until now.
    TeamConfirmed,
    /// The offered memory could not be reached.
    TeamDoubted,
    /// The sender still is in the collective.
    TeamUpheld,
    /// How far the sender has come.
    TeamPace,
    /// The team's collectives are over.
    TeamBroken,
    /// The handler of an Active Message has run, and has not replied.
    AmDone,
    /// A put's chunk, after which a word changes.
    PutSignal,
    /// Has the receiver this handler?
    HandlerAsk,
    /// The answer to a [`Kind::HandlerAsk`].
    HandlerIs,
    /// The receiver of an Active Message had no such handler.
    AmRefused,
    /// Which grant covers this memory?
    GrantAsk,
    /// The answer to a [`Kind::GrantAsk`].
    GrantIs,
    /// Give the key of a grant, and detach firehoses.
    KeyAsk,
    /// The answer to a [`Kind::KeyAsk`].
    KeyIs,
    /// Change a word of a grant.
    AtomicAsk,
    /// The answer to a [`Kind::AtomicAsk`].
    AtomicDone,
}

const KINDS: [Kind; 39] = [
    Kind::AmShort,
    Kind::AmMedium,
    Kind::AmLong,
    Kind::PutChunk,
    Kind::GetChunk,
    Kind::PutDone,
    Kind::GetData,
    Kind::BarrierOpen,
    Kind::BarrierBroken,
    Kind::Move,
    Kind::Moved,
    Kind::Revoke,
    Kind::Recall,
    Kind::Release,
    Kind::BounceTake,
    Kind::BounceFill,
    Kind::BounceDrain,
    Kind::BounceGive,
    Kind::Bounced,
    Kind::TeamWord,
    Kind::TeamData,
    Kind::TeamOffer,
    Kind::TeamTaken,
    Kind::TeamConfirmed,
    Kind::TeamDoubted,
    Kind::TeamUpheld,
    Kind::TeamPace,
    Kind::TeamBroken,
    Kind::AmDone,
    Kind::PutSignal,
    Kind::HandlerAsk,
    Kind::HandlerIs,
    Kind::AmRefused,
    Kind::GrantAsk,
    Kind::GrantIs,
    Kind::KeyAsk,
    Kind::KeyIs,
    Kind::AtomicAsk,
    Kind::AtomicDone,
];

/// A message's header: its fields by where they stand. Their meaning depends on the kind, and is for
/// [`Message`](super::Message) to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's kind.
    pub kind: Kind,
    /// Of an Active Message, the client of the sender's node that sent it.
    pub client: u8,
    /// A small number: of an Active Message, the lower half of its handler's.
    pub small: u16,
    /// Bytes: of the payload, where there is one, or of the memory at `place`.
    pub len: u32,
    /// The initiator's operation, which answers echo, or the team.
    pub token: u64,
    /// Arguments.
    pub args: [u64; 4],
    /// An offset in some memory, or another number.
    pub place: u64,
}

/// Why a header was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No message kind has this number.
    #[error("no message kind {0}")]
    Kind(u8),
    /// The header's length is not the payload's.
    #[error("the header says {header} bytes of payload, and {payload} came")]
    Length {
        /// The bytes of payload that the header says.
        header: u32,
        /// The bytes of payload that came.
        payload: usize,
    },
    /// No memory has this number.
    #[error("no memory {0}")]
    Memory(u64),
}

impl Header {
    /// Words of a header.
    pub const WORDS: usize = 7;

    /// A header of `kind` with nothing else in it.
    pub const fn new(kind: Kind) -> Header {
        Header { kind, client: 0, small: 0, len: 0, token: 0, args: [0; 4], place: 0 }
    }

    /// The header as words.
    #[inline(always)]
    pub const fn encode(&self) -> [u64; Header::WORDS] {
        let first = self.kind as u64
            | (self.client as u64) << 8
            | (self.small as u64) << 16
            | (self.len as u64) << 32;
        let [a, b, c, d] = self.args;
        [first, self.token, a, b, c, d, self.place]
    }

    /// The header that `words` stand for, checked against the payload that came with it.
    #[inline(always)]
    pub const fn decode(words: &[u64; Header::WORDS], payload: usize) -> Result<Header, WireError> {
        let [first, token, a, b, c, d, place] = *words;
        let number = first as u8;
        if number as usize >= KINDS.len() {
            return Err(WireError::Kind(number));
        }
        let kind = KINDS[number as usize];
        let (client, small, len) = ((first >> 8) as u8, (first >> 16) as u16, (first >> 32) as u32);
        let has_payload = match kind {
            Kind::AmMedium | Kind::PutChunk | Kind::PutSignal | Kind::Move | Kind::Moved => true,
            Kind::TeamData | Kind::KeyAsk => true,
            Kind::GetData => b == 0,
            Kind::AmShort | Kind::AmLong | Kind::GetChunk | Kind::PutDone => false,
            Kind::BarrierOpen | Kind::BarrierBroken => false,
            Kind::Revoke | Kind::Recall | Kind::Release => false,
            Kind::BounceTake | Kind::BounceFill | Kind::BounceDrain | Kind::BounceGive | Kind::Bounced => {
                false
            }
            Kind::TeamWord | Kind::TeamOffer | Kind::TeamTaken | Kind::TeamConfirmed => false,
            Kind::TeamDoubted | Kind::TeamUpheld => false,
            Kind::TeamPace | Kind::TeamBroken | Kind::AmDone => false,
            Kind::HandlerAsk | Kind::HandlerIs | Kind::AmRefused => false,
            Kind::GrantAsk | Kind::GrantIs | Kind::KeyIs => false,
            Kind::AtomicAsk | Kind::AtomicDone => false,
        };
        if (if has_payload { len as usize } else { 0 }) != payload {
            return Err(WireError::Length { header: len, payload });
        }
        Ok(Header { kind, client, small, len, token, args: [a, b, c, d], place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        assert!(KINDS.iter().enumerate().all(|(i, kind)| *kind as usize == i));
    }

    #[test]
    fn a_wrong_length_is_told_with_both_numbers() {
        let words = Header { len: 9, ..Header::new(Kind::AmMedium) }.encode();
        assert_eq!(Header::decode(&words, 8), Err(WireError::Length { header: 9, payload: 8 }));
        assert_eq!(Header::decode(&words, 9).map(|h| h.len), Ok(9));
    }

    proptest! {
        #[test]
        fn headers_survive_the_wire(
            kind in 0usize..KINDS.len(), client: u8, small: u16, len in 0u32..1 << 20, token: u64, args: [u64; 4], place: u64,
        ) {
            let header = Header { kind: KINDS[kind], client, small, len, token, args, place };
            let has = match header.kind {
                Kind::AmMedium | Kind::PutChunk | Kind::PutSignal | Kind::Move | Kind::Moved => true,
                Kind::TeamData | Kind::KeyAsk => true,
                Kind::GetData => args[1] == 0,
                _ => false,
            };
            let payload = if has { len as usize } else { 0 };
            prop_assert_eq!(Header::decode(&header.encode(), payload), Ok(header));
        }

        #[test]
        fn any_words_give_a_header_or_an_error(words: [u64; 7], payload in 0usize..1 << 16) {
            if let Ok(header) = Header::decode(&words, payload) {
                prop_assert!((header.kind as usize) < KINDS.len());
            }
        }
    }
}

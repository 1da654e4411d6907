//! A message's header: seven 64-bit words.
//!
//! ```text
//! word 0   kind (8 bits) | handler (16 bits, from bit 16) | length (32 bits, from bit 32)
//! word 1   token: the initiator's operation, echoed by the answer; of an Active Message the memory that it landed in (8 bits),
//!          and a stamp that the answer echoes (56 bits, from bit 8)
//! word 2-5 arguments
//! word 6   place: an offset in the memory that argument 0 names, or an Active Message's landing address
//! ```
//! Seven words and a transport's own sequence word fill one cache line. Whatever a peer sends, [`Header::decode`]
//! returns a header of a known kind or an error.

/// Words of a header by which [`Transport::take_like`](crate::Transport::take_like) knows a message.
pub const HEAD_WORDS: usize = 5;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An Active Message without payload.
    AmShort,
    /// An Active Message with its payload inside.
    AmMedium,
    /// An Active Message whose payload already lies at `place`, `len` bytes.
    AmLong,
    /// Store the payload at `place`; answered by [`Kind::PutDone`].
    PutChunk,
    /// Send `len` bytes from `place`; answered by [`Kind::GetData`].
    GetChunk,
    /// The answer to a [`Kind::PutChunk`] or a [`Kind::PutSignal`].
    PutDone,
    /// The answer to a [`Kind::GetChunk`], with the bytes as payload.
    GetData,
    /// Everyone has arrived at the barrier numbered by argument 0.
    BarrierOpen,
    /// The sender has given up the rank that argument 0 names, and waits at no barrier with it any more.
    BarrierBroken,
    /// Attach and detach firehoses: the payload lists both; a put's data may follow. Answered by [`Kind::Moved`].
    Move,
    /// The answer to a [`Kind::Move`]: the payload lists what was attached.
    Moved,
    /// Give back the firehose that argument 0 names: its memory is not what it was.
    Revoke,
    /// Give back so many bytes as argument 0 says, of firehoses that are idle.
    Recall,
    /// The firehoses that the arguments name are given back.
    Release,
    /// Lend the sender a stage: a part of the receiver's heap that transfers by message go through. Answered by [`Kind::Staged`],
    /// as are the next two.
    StageTake,
    /// Copy `len` bytes from `place` into the stage that argument 0 names, or into one that is lent for it.
    StageFill,
    /// Copy `len` bytes from the stage that argument 0 names to `place`.
    StageDrain,
    /// The stage that argument 0 names is given back.
    StageGive,
    /// The answer about a stage: argument 0 says how it went, argument 1 which stage it is.
    Staged,
    /// A step of a collective of the team that the token names: argument 0 is its number and the step's tag, 1 and 2 say
    /// which collective, and argument 3 holds the step's `len` bytes, at most 8.
    TeamWord,
    /// The same with the bytes as payload.
    TeamData,
    /// The same with the bytes, as many as argument 3 says, still at `place` in the memory that `handler` names: the
    /// receiver gets them. `len` says how often the sender has given up what it offered so far, as near peers see it.
    TeamOffer,
    /// The receiver of a [`Kind::TeamOffer`] has got the bytes. If argument 1 is 0, it is to be told whether they still lay there then;
    /// otherwise it has seen that.
    TeamTaken,
    /// They did: what was offered lay there until now.
    TeamConfirmed,
    /// Bytes that the receiver has [offered](Kind::TeamOffer) could not be reached: whether it still is in the collective of the
    /// number in argument 0, above its low 16 bits.
    TeamDoubted,
    /// It is.
    TeamUpheld,
    /// The sender has come to the team's collective of the number in argument 0; it waits for something of the receiver's, and
    /// wants to be told when the receiver
    /// may be sent something of that in argument 1, unless it is 0.
    TeamPace,
    /// The team's collectives from that of the number in argument 0, above its low 16 bits, on are over, for the reason that
    /// those say, which lies with the rank in argument 1. Where two differ, both ranks are there, one in each half; and the same
    /// for what each called, in the place, and for the bytes, in arguments 2 and 3.
    TeamBroken,
    /// The handler of an Active Message has run, and has not replied: the answer to one that carried a
    /// [stamp](crate::Inbox::stamp), which the token echoes.
    AmDone,
    /// A [`Kind::PutChunk`] after which the aligned word of the receiver's heap at argument 2 changes as `handler` says, with
    /// the value in argument 3. The answer says in argument 2 what the word was.
    PutSignal,
}

const KINDS: [Kind; 30] = [
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
    Kind::StageTake,
    Kind::StageFill,
    Kind::StageDrain,
    Kind::StageGive,
    Kind::Staged,
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
];

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the message is for.
    pub kind: Kind,
    /// The handler's index, for Active Messages.
    pub handler: u16,
    /// Bytes: of the payload, or of the memory at `place`.
    pub len: u32,
    /// The initiator's operation, echoed by answers.
    pub token: u64,
    /// Arguments; their meaning depends on the kind.
    pub args: [u64; 4],
    /// An offset in the peer's memory.
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
        /// What the header says.
        header: u32,
        /// What came.
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
        Header { kind, handler: 0, len: 0, token: 0, args: [0; 4], place: 0 }
    }

    /// The header as words.
    #[inline(always)]
    pub const fn encode(&self) -> [u64; Header::WORDS] {
        let first = self.kind as u64 | (self.handler as u64) << 16 | (self.len as u64) << 32;
        let [a, b, c, d] = self.args;
        [first, self.token, a, b, c, d, self.place]
    }

    /// The header that `words` stand for, checked against the payload that came with it.
    pub const fn decode(words: &[u64; Header::WORDS], payload: usize) -> Result<Header, WireError> {
        let [first, token, a, b, c, d, place] = *words;
        let number = first as u8;
        if number as usize >= KINDS.len() {
            return Err(WireError::Kind(number));
        }
        let kind = KINDS[number as usize];
        let (handler, len) = ((first >> 16) as u16, (first >> 32) as u32);
        let has_payload = match kind {
            Kind::AmMedium | Kind::PutChunk | Kind::PutSignal | Kind::Move | Kind::Moved | Kind::TeamData => {
                true
            }
            Kind::GetData => b == 0,
            Kind::AmShort | Kind::AmLong | Kind::GetChunk | Kind::PutDone => false,
            Kind::BarrierOpen | Kind::BarrierBroken => false,
            Kind::Revoke | Kind::Recall | Kind::Release => false,
            Kind::StageTake | Kind::StageFill | Kind::StageDrain | Kind::StageGive | Kind::Staged => false,
            Kind::TeamWord | Kind::TeamOffer | Kind::TeamTaken | Kind::TeamConfirmed => false,
            Kind::TeamDoubted | Kind::TeamUpheld => false,
            Kind::TeamPace | Kind::TeamBroken | Kind::AmDone => false,
        };
        if (if has_payload { len as usize } else { 0 }) != payload {
            return Err(WireError::Length { header: len, payload });
        }
        Ok(Header { kind, handler, len, token, args: [a, b, c, d], place })
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
            kind in 0usize..KINDS.len(), handler: u16, len in 0u32..1 << 20, token: u64, args: [u64; 4], place: u64,
        ) {
            let header = Header { kind: KINDS[kind], handler, len, token, args, place };
            let has = match header.kind {
                Kind::AmMedium | Kind::PutChunk | Kind::PutSignal | Kind::Move | Kind::Moved | Kind::TeamData => true,
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

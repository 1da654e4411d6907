//! The messages that members of a team send each other.

use super::header::{HEAD_WORDS, Header, Kind};
use crate::collective::{Difference, Function, Signature, TeamId};
use crate::{MemId, Place, Rank};

/// Bits of the word that names a step which say its tag; above them is the collective's number.
const TAG_BITS: u32 = 16;

/// Bytes of the data of a step that stand in its header, at most.
const WORD_BYTES: u32 = 8;

/// A message between members of a team. Each names the collective that it is about by its number among the
/// team's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamMessage {
    /// A step of a collective.
    Step(Step),
    /// The receiver of what was [offered](StepData::Offer) has got the bytes.
    Taken {
        /// Which collective.
        number: u64,
        /// The step's tag.
        tag: u16,
        /// Whether the receiver has seen that they still lay there then; otherwise it is to be told so.
        is_seen: bool,
    },
    /// They did: what was offered lay there until now.
    Confirmed {
        /// Which collective.
        number: u64,
        /// The step's tag.
        tag: u16,
    },
    /// Bytes that the receiver has offered could not be reached: whether it still is in the collective.
    Doubted {
        /// Which collective.
        number: u64,
    },
    /// It is.
    Upheld {
        /// Which collective.
        number: u64,
    },
    /// How far the sender has come.
    Pace(Pace),
    /// The team's collectives are over.
    Broken(TeamBroken),
}

/// A step of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which collective.
    pub number: u64,
    /// Which step of it.
    pub tag: u16,
    /// Which collective it is, as its sender has called it.
    pub signature: Signature,
    /// Its bytes. `None`: there can be no such.
    pub data: Option<StepData>,
}

/// The bytes of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepData {
    /// The first `len` of these.
    Word {
        /// How many bytes; at most 8.
        len: u32,
        /// The bytes.
        bytes: [u8; 8],
    },
    /// The message's payload.
    Payload,
    /// They lie in the sender's memory: the receiver gets them.
    Offer {
        /// Where; a member's memory is private.
        at: Place,
        /// How many bytes.
        len: u64,
        /// How often the sender has given up what it offered so far, as near peers see it.
        given_up: u32,
    },
}

/// The sender has come to a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Which.
    pub come_to: u64,
    /// It wants to be told when the receiver may be sent something of this one; of none, if 0.
    pub wants: u64,
    /// It waits in this collective for something of the receiver's, and has called it so.
    pub waits_in: Option<(u64, Signature)>,
}

/// The team's collectives from some number on are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamBroken {
    /// From that number on.
    pub from: u64,
    /// Why. `None`: for no reason that is known.
    pub why: Option<BreakReason>,
    /// Whose fault it is, as the first of two ranks. Where two members differ, both, and what they called.
    pub of: Difference,
}

/// Why a team's collectives are over. Its number is the variant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakReason {
    /// A member is lost.
    Lost = 0,
    /// Two members called different collectives.
    Differs = 1,
    /// A member has given one of them up.
    GivenUp = 2,
    /// A member has the team no more.
    Dropped = 3,
    /// A member could not do its part.
    Failed = 4,
}

const REASONS: [BreakReason; 5] = [
    BreakReason::Lost,
    BreakReason::Differs,
    BreakReason::GivenUp,
    BreakReason::Dropped,
    BreakReason::Failed,
];

/// The bits of what combines elements, of which a message has two.
const FUNCTION: u32 = (1 << Function::BITS) - 1;

/// The number of no [`BreakReason`].
const NO_REASON: u64 = (1 << TAG_BITS) - 1;

impl TeamMessage {
    #[inline]
    pub(super) fn header(&self, team: TeamId, payload: usize) -> Header {
        let about = |kind, number, tag, more| Header {
            args: [step_to_wire(number, tag), more, 0, 0],
            ..Header::new(kind)
        };
        let header = match *self {
            TeamMessage::Step(step) => step.header(payload),
            TeamMessage::Taken { number, tag, is_seen } => {
                about(Kind::TeamTaken, number, tag, u64::from(is_seen))
            }
            TeamMessage::Confirmed { number, tag } => about(Kind::TeamConfirmed, number, tag, 0),
            TeamMessage::Doubted { number } => about(Kind::TeamDoubted, number, 0, 0),
            TeamMessage::Upheld { number } => about(Kind::TeamUpheld, number, 0, 0),
            TeamMessage::Pace(pace) => pace.header(),
            TeamMessage::Broken(broken) => broken.header(),
        };
        Header { token: team.0, ..header }
    }

    #[inline]
    pub(super) fn of(header: &Header) -> TeamMessage {
        let (number, tag) = step_from_wire(header.args[0]);
        match header.kind {
            Kind::TeamTaken => TeamMessage::Taken { number, tag, is_seen: header.args[1] != 0 },
            Kind::TeamConfirmed => TeamMessage::Confirmed { number, tag },
            Kind::TeamDoubted => TeamMessage::Doubted { number },
            Kind::TeamUpheld => TeamMessage::Upheld { number },
            Kind::TeamPace => TeamMessage::Pace(Pace::of(header)),
            Kind::TeamBroken => TeamMessage::Broken(TeamBroken::of(header)),
            _ => TeamMessage::Step(Step::of(header)),
        }
    }
}

impl Step {
    fn header(&self, payload: usize) -> Header {
        let Signature { what, bytes } = self.signature;
        let args = [step_to_wire(self.number, self.tag), what, bytes, 0];
        let header = Header { args, ..Header::new(Kind::TeamWord) };
        let last = |last| [args[0], what, bytes, last];
        match self.data {
            None => Header { len: u32::MAX, ..header },
            Some(StepData::Word { len, bytes }) => {
                Header { len, args: last(u64::from_le_bytes(bytes)), ..header }
            }
            Some(StepData::Payload) => Header { kind: Kind::TeamData, len: payload as u32, ..header },
            Some(StepData::Offer { at, len, given_up }) => Header {
                kind: Kind::TeamOffer,
                small: at.mem.to_wire() as u16,
                len: given_up,
                args: last(len),
                place: at.offset,
                ..header
            },
        }
    }

    fn of(header: &Header) -> Step {
        let [word, what, bytes, last] = header.args;
        let (number, tag) = step_from_wire(word);
        let data = match header.kind {
            Kind::TeamWord if header.len <= WORD_BYTES => {
                Some(StepData::Word { len: header.len, bytes: last.to_le_bytes() })
            }
            Kind::TeamData => Some(StepData::Payload),
            // Members' memory is private, whatever a hostile one says.
            Kind::TeamOffer if u64::from(header.small) == MemId::Space.to_wire() => {
                let at = Place::new(MemId::Space, header.place);
                Some(StepData::Offer { at, len: last, given_up: header.len })
            }
            _ => None,
        };
        Step { number, tag, signature: Signature { what, bytes }, data }
    }
}

impl Pace {
    fn header(&self) -> Header {
        let (place, Signature { what, bytes }) = self.waits_in.unwrap_or_default();
        Header { args: [self.come_to, self.wants, what, bytes], place, ..Header::new(Kind::TeamPace) }
    }

    fn of(header: &Header) -> Pace {
        let [come_to, wants, what, bytes] = header.args;
        let waits_in = (header.place != 0).then_some((header.place, Signature { what, bytes }));
        Pace { come_to, wants, waits_in }
    }
}

impl TeamBroken {
    fn header(&self) -> Header {
        let pair = |[low, high]: [u32; 2]| u64::from(low) | u64::from(high) << 32;
        let why = self.why.map_or(NO_REASON, |why| why as u64);
        let Difference { ranks, words, functions, bytes: [one, other] } = self.of;
        let args = [why | self.from << TAG_BITS, pair(ranks), one, other];
        // The two fill what is left.
        let [low, high] = functions.map(|function| u64::from(function & FUNCTION));
        let functions = low | high << Function::BITS;
        let (small, len) = (functions as u16, (functions >> u16::BITS) as u32);
        Header { small, len, args, place: pair(words), ..Header::new(Kind::TeamBroken) }
    }

    fn of(header: &Header) -> TeamBroken {
        let pair = |word: u64| [word as u32, (word >> 32) as Rank];
        let [word, ranks, one, other] = header.args;
        let (from, number) = step_from_wire(word);
        let functions = u64::from(header.small) | u64::from(header.len) << u16::BITS;
        let of = Difference {
            ranks: pair(ranks),
            words: pair(header.place),
            functions: [functions as u32 & FUNCTION, (functions >> Function::BITS) as u32],
            bytes: [one, other],
        };
        TeamBroken { from, why: REASONS.get(usize::from(number)).copied(), of }
    }
}

const fn step_to_wire(number: u64, tag: u16) -> u64 {
    number << TAG_BITS | tag as u64
}

const fn step_from_wire(word: u64) -> (u64, u16) {
    (word >> TAG_BITS, word as u16)
}

/// How the message of a step begins whose bytes stand in its header: it is all but those. For a member that
/// sends, or waits for, one after another, and looks for nothing else.
#[derive(Clone, Copy, Default)]
pub(crate) struct WordHead([u64; HEAD_WORDS]);

impl WordHead {
    /// Of a step with so many bytes.
    pub(crate) fn new(team: TeamId, number: u64, tag: u16, signature: Signature, len: u32) -> WordHead {
        let data = Some(StepData::Word { len, bytes: [0; 8] });
        let step = TeamMessage::Step(Step { number, tag, signature, data });
        WordHead(*head(&step.header(team, 0).encode()))
    }

    /// The words by which such a message is known.
    #[inline(always)]
    pub(crate) const fn words(&self) -> &[u64; HEAD_WORDS] {
        &self.0
    }

    /// The whole header, with these bytes.
    #[inline(always)]
    pub(crate) const fn with(&self, bytes: [u8; 8]) -> [u64; Header::WORDS] {
        let [a, b, c, d, e] = self.0;
        [a, b, c, d, e, u64::from_le_bytes(bytes), 0]
    }

    /// The bytes as a word, out of the rest of a header.
    #[inline(always)]
    pub(crate) const fn word([word, _]: [u64; Header::WORDS - HEAD_WORDS]) -> u64 {
        word
    }
}

/// The words by which a message without payload is known.
#[inline(always)]
pub(crate) fn head(words: &[u64; Header::WORDS]) -> &[u64; HEAD_WORDS] {
    words.first_chunk().expect("a header is longer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_numbers() {
        assert!(REASONS.iter().enumerate().all(|(at, why)| *why as usize == at));
    }
}

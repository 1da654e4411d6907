//! VIA's messages: four words, and of some a payload.
//!
//! ```text
//! word 0   kind (8 bits) | flags (8) | 0 (16) | an outcome or a cause (32)
//! word 1   the receiver's end of the connection: its VI (32) | the attempt to connect (32)
//! word 2   ticket of the sender's descriptor (32) | immediate data (32)
//! word 3   the sender's end, as word 1; of messages that carry data, bytes
//! ```

/// One end of a connection: a VI of a process, and which of its attempts to connect this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The VI's number in its process.
    pub vi: u32,
    /// Counts the VI's attempts.
    pub attempt: u32,
}

impl Link {
    const fn word(self) -> u64 {
        self.vi as u64 | (self.attempt as u64) << 32
    }

    const fn of(word: u64) -> Link {
        Link { vi: word as u32, attempt: (word >> 32) as u32 }
    }
}

/// The end of a descriptor at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes lie in the receiver's memory.
    Done = 0,
    /// No receive was posted.
    NoDescriptor = 1,
    /// The receive that was posted is too short, malformed or names memory that it may not.
    BadDescriptor = 2,
    /// The connection is none any more.
    Closed = 3,
    /// The memory may not be read or written.
    Protection = 4,
    /// The bytes could not be moved.
    Transport = 5,
}

/// Why one end breaks a connection, as the other end is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A descriptor failed.
    Descriptor = 0,
    /// Memory of the one that is told was not there to be written.
    WriteData = 1,
    /// A remote write ended in its middle, as its source was not there.
    WriteAborted = 2,
    /// Memory of the one that is told was not there to be read.
    ReadData = 3,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A client asks for a connection; a greeting follows. Answered by [`Message::NoMatch`], if at once.
    Connect { from: Link },
    /// Nobody waits for that address.
    NoMatch { to: Link },
    /// The server takes the client's connection; a greeting follows. Answered by [`Message::Accepted`].
    Accept { to: Link, from: Link },
    /// Whether the client still wants to be connected.
    Accepted { to: Link, is_wanted: bool },
    /// The server does not want the connection.
    Reject { to: Link },
    /// The client waits no more.
    Withdraw { from: Link },
    /// A peer asks for a connection between equals; a greeting follows.
    PeerConnect { from: Link },
    /// The connection is taken down.
    Disconnect { to: Link },
    /// The connection is broken.
    Broke { to: Link, cause: Cause },
    /// A send; its bytes follow. Answered by [`Message::Outcome`] where `is_answered`.
    Data { to: Link, ticket: u32, immediate: Option<u32>, is_answered: bool },
    /// A long send, for the receiver to fetch; [pieces](piece_words) follow. Answered in time.
    Offer { to: Link, ticket: u32, immediate: Option<u32>, bytes: u32 },
    /// The end of the descriptor of that ticket.
    Outcome { to: Link, ticket: u32, outcome: Outcome },
    /// Asks for the name of memory; a [range](Range) follows. Answered by [`Message::Found`].
    Find { to: Link, ticket: u32, immediate: Option<u32>, is_write: bool },
    /// The memory's name, a [piece](piece_words), follows unless it may not be had.
    Found { to: Link, ticket: u32, is_there: bool },
    /// A remote write is done, which takes a receive. Answered by [`Message::Outcome`] where `is_answered`.
    Written { to: Link, ticket: u32, immediate: u32, bytes: u32, is_answered: bool },
}

/// Why words are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message of VIA")]
pub struct Malformed;

const HAS_IMMEDIATE: u64 = 1;
const IS_SET: u64 = 2;

/// Bytes of a segment of an offer, and of a name that is found: name, and bytes or first address.
pub const PIECE_BYTES: usize = 24;
/// Bytes of the question for memory.
pub const RANGE_BYTES: usize = 24;

const fn head(kind: u64, flags: u64, detail: u32) -> u64 {
    kind | flags << 8 | (detail as u64) << 32
}

const fn immediate_flag(immediate: Option<u32>) -> u64 {
    if immediate.is_some() { HAS_IMMEDIATE } else { 0 }
}

const fn set_flag(is_set: bool) -> u64 {
    if is_set { IS_SET } else { 0 }
}

const fn pair(low: u32, high: Option<u32>) -> u64 {
    low as u64
        | match high {
            Some(high) => (high as u64) << 32,
            None => 0,
        }
}

impl Message {
    /// The message's words.
    #[must_use]
    pub const fn words(self) -> [u64; 4] {
        match self {
            Message::Connect { from } => [head(1, 0, 0), 0, 0, from.word()],
            Message::NoMatch { to } => [head(2, 0, 0), to.word(), 0, 0],
            Message::Accept { to, from } => [head(3, 0, 0), to.word(), 0, from.word()],
            Message::Accepted { to, is_wanted } => [head(4, set_flag(is_wanted), 0), to.word(), 0, 0],
            Message::Reject { to } => [head(5, 0, 0), to.word(), 0, 0],
            Message::Withdraw { from } => [head(6, 0, 0), 0, 0, from.word()],
            Message::PeerConnect { from } => [head(7, 0, 0), 0, 0, from.word()],
            Message::Disconnect { to } => [head(8, 0, 0), to.word(), 0, 0],
            Message::Broke { to, cause } => [head(9, 0, cause as u32), to.word(), 0, 0],
            Message::Data { to, ticket, immediate, is_answered } => {
                let flags = immediate_flag(immediate) | set_flag(is_answered);
                [head(10, flags, 0), to.word(), pair(ticket, immediate), 0]
            }
            Message::Offer { to, ticket, immediate, bytes } => {
                [head(11, immediate_flag(immediate), 0), to.word(), pair(ticket, immediate), bytes as u64]
            }
            Message::Outcome { to, ticket, outcome } => {
                [head(12, 0, outcome as u32), to.word(), pair(ticket, None), 0]
            }
            Message::Find { to, ticket, immediate, is_write } => {
                let flags = immediate_flag(immediate) | set_flag(is_write);
                [head(13, flags, 0), to.word(), pair(ticket, immediate), 0]
            }
            Message::Found { to, ticket, is_there } => {
                [head(14, set_flag(is_there), 0), to.word(), pair(ticket, None), 0]
            }
            Message::Written { to, ticket, immediate, bytes, is_answered } => {
                let words = pair(ticket, Some(immediate));
                [head(15, set_flag(is_answered), 0), to.word(), words, bytes as u64]
            }
        }
    }
}

/// Reads a message, which some process has sent.
///
/// # Errors
/// [`Malformed`] for words that no message has, and a payload of a length that it does not have.
pub fn parse(words: [u64; 4], payload: usize) -> Result<Message, Malformed> {
    let (kind, flags, detail) = (words[0] & 0xff, words[0] >> 8 & 0xff, (words[0] >> 32) as u32);
    let (to, from) = (Link::of(words[1]), Link::of(words[3]));
    let (ticket, bytes) = (words[2] as u32, words[3] as u32);
    let immediate = (flags & HAS_IMMEDIATE != 0).then_some((words[2] >> 32) as u32);
    let is_set = flags & IS_SET != 0;
    let message = match kind {
        1 => Message::Connect { from },
        2 => Message::NoMatch { to },
        3 => Message::Accept { to, from },
        4 => Message::Accepted { to, is_wanted: is_set },
        5 => Message::Reject { to },
        6 => Message::Withdraw { from },
        7 => Message::PeerConnect { from },
        8 => Message::Disconnect { to },
        9 => Message::Broke { to, cause: cause_of(detail)? },
        10 => Message::Data { to, ticket, immediate, is_answered: is_set },
        11 => Message::Offer { to, ticket, immediate, bytes },
        12 => Message::Outcome { to, ticket, outcome: outcome_of(detail)? },
        13 => Message::Find { to, ticket, immediate, is_write: is_set },
        14 => Message::Found { to, ticket, is_there: is_set },
        15 => {
            let immediate = (words[2] >> 32) as u32;
            Message::Written { to, ticket, immediate, bytes, is_answered: is_set }
        }
        _ => return Err(Malformed),
    };
    // The message says again the words that were read: no bit is left over.
    let fits = match message {
        Message::Connect { .. } | Message::Accept { .. } | Message::PeerConnect { .. } => payload > 0,
        Message::Data { .. } => true,
        Message::Offer { .. } => payload > 0 && payload.is_multiple_of(PIECE_BYTES),
        Message::Find { .. } => payload == RANGE_BYTES,
        Message::Found { is_there, .. } => payload == if is_there { PIECE_BYTES } else { 0 },
        _ => payload == 0,
    };
    if fits && message.words() == words { Ok(message) } else { Err(Malformed) }
}

fn cause_of(word: u32) -> Result<Cause, Malformed> {
    let all = [Cause::Descriptor, Cause::WriteData, Cause::WriteAborted, Cause::ReadData];
    all.get(word as usize).copied().ok_or(Malformed)
}

fn outcome_of(word: u32) -> Result<Outcome, Malformed> {
    let all = [
        Outcome::Done,
        Outcome::NoDescriptor,
        Outcome::BadDescriptor,
        Outcome::Closed,
        Outcome::Protection,
        Outcome::Transport,
    ];
    all.get(word as usize).copied().ok_or(Malformed)
}

/// A VI's attributes, as the other end learns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The reliability level's bit.
    pub reliability: u16,
    /// Bytes that a descriptor may move.
    pub max_transfer: u64,
    /// The program's own word.
    pub qos: u64,
    /// Whether the other end may write remotely.
    pub allows_write: bool,
    /// Whether the other end may read remotely.
    pub allows_read: bool,
}

/// The words of both ends when they connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The VI that is to be connected.
    pub terms: Terms,
    /// The number of the process that sends it, where nobody has launched that; 0 otherwise.
    pub process: u32,
    /// The discriminator of the one that sends it.
    pub own: Vec<u8>,
    /// The discriminator that it wants to be connected with.
    pub wanted: Vec<u8>,
}

/// Bytes of a discriminator, at most.
pub const DISCRIMINATOR_MAX: usize = 64;

const TERMS_BYTES: usize = 20;
/// Before the discriminators: terms, process, and both lengths.
const FIXED_BYTES: usize = TERMS_BYTES + 6;

impl Greeting {
    /// The greeting's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.own.len() + self.wanted.len());
        bytes.extend(self.terms.reliability.to_le_bytes());
        bytes.extend(self.terms.max_transfer.to_le_bytes());
        bytes.extend(self.terms.qos.to_le_bytes());
        bytes.extend([u8::from(self.terms.allows_write), u8::from(self.terms.allows_read)]);
        bytes.extend(self.process.to_le_bytes());
        bytes.extend([self.own.len() as u8, self.wanted.len() as u8]);
        bytes.extend(&self.own);
        bytes.extend(&self.wanted);
        bytes
    }

    /// Reads what some process has sent.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that are no greeting.
    pub fn from_bytes(bytes: &[u8]) -> Result<Greeting, Malformed> {
        let (fixed, rest) = bytes.split_at_checked(FIXED_BYTES).ok_or(Malformed)?;
        let (own, wanted) = (usize::from(fixed[FIXED_BYTES - 2]), usize::from(fixed[FIXED_BYTES - 1]));
        if own.max(wanted) > DISCRIMINATOR_MAX || own + wanted != rest.len() || fixed[18].max(fixed[19]) > 1 {
            return Err(Malformed);
        }
        let terms = Terms {
            reliability: u16::from_le_bytes([fixed[0], fixed[1]]),
            max_transfer: word_at(fixed, 2),
            qos: word_at(fixed, 10),
            allows_write: fixed[18] == 1,
            allows_read: fixed[19] == 1,
        };
        let process = u32::from_le_bytes([fixed[20], fixed[21], fixed[22], fixed[23]]);
        Ok(Greeting { terms, process, own: rest[..own].to_vec(), wanted: rest[own..].to_vec() })
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The memory that a remote write or read names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The region's handle.
    pub handle: u32,
    /// The first byte's address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

impl Range {
    /// The range's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RANGE_BYTES] {
        to_piece([self.handle.into(), self.addr, self.len])
    }

    /// Reads what some process has sent.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that are no range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Range, Malformed> {
        let [handle, addr, len] = piece_words(bytes).next().ok_or(Malformed)?;
        Ok(Range { handle: u32::try_from(handle).map_err(|_| Malformed)?, addr, len })
    }
}

/// Three words as bytes.
#[must_use]
pub fn to_piece(words: [u64; 3]) -> [u8; PIECE_BYTES] {
    let mut bytes = [0; PIECE_BYTES];
    for (at, word) in bytes.chunks_exact_mut(8).zip(words) {
        at.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The pieces of a payload, as three words each: a grant's name, and how many bytes it has or where it
/// begins.
pub fn piece_words(bytes: &[u8]) -> impl Iterator<Item = [u64; 3]> + '_ {
    bytes.chunks_exact(PIECE_BYTES).map(|piece| [word_at(piece, 0), word_at(piece, 8), word_at(piece, 16)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Link = Link { vi: 7, attempt: u32::MAX };
    const FROM: Link = Link { vi: u32::MAX, attempt: 3 };

    /// Each kind, with a length of payload that it has.
    fn all() -> Vec<(Message, usize)> {
        let (ticket, immediate, bytes) = (u32::MAX, Some(0xfeed_beef), 1 << 30);
        vec![
            (Message::Connect { from: FROM }, 30),
            (Message::NoMatch { to: TO }, 0),
            (Message::Accept { to: TO, from: FROM }, 30),
            (Message::Accepted { to: TO, is_wanted: true }, 0),
            (Message::Reject { to: TO }, 0),
            (Message::Withdraw { from: FROM }, 0),
            (Message::PeerConnect { from: FROM }, 30),
            (Message::Disconnect { to: TO }, 0),
            (Message::Broke { to: TO, cause: Cause::ReadData }, 0),
            (Message::Data { to: TO, ticket, immediate, is_answered: true }, 5),
            (Message::Data { to: TO, ticket, immediate: None, is_answered: false }, 0),
            (Message::Offer { to: TO, ticket, immediate, bytes }, 2 * PIECE_BYTES),
            (Message::Outcome { to: TO, ticket, outcome: Outcome::Transport }, 0),
            (Message::Find { to: TO, ticket, immediate, is_write: true }, RANGE_BYTES),
            (Message::Found { to: TO, ticket, is_there: true }, PIECE_BYTES),
            (Message::Found { to: TO, ticket, is_there: false }, 0),
            (Message::Written { to: TO, ticket, immediate: 0, bytes, is_answered: true }, 0),
        ]
    }

    #[test]
    fn each_message_is_read_as_it_was_sent() {
        for (message, payload) in all() {
            assert_eq!(parse(message.words(), payload), Ok(message));
        }
    }

    #[test]
    fn words_with_a_bit_too_many_and_other_payloads_are_malformed() {
        for (message, payload) in all() {
            let mut words = message.words();
            words[0] |= 1 << 20;
            assert_eq!(parse(words, payload), Err(Malformed), "{message:?}");
            let has_any_length = matches!(message, Message::Data { .. });
            let has_some = matches!(
                message,
                Message::Connect { .. } | Message::Accept { .. } | Message::PeerConnect { .. }
            );
            let other = if has_some { 0 } else { payload + 1 };
            assert_eq!(parse(message.words(), other).is_err(), !has_any_length, "{message:?}");
        }
        for kind in [0, 16, 255] {
            assert_eq!(parse([kind, 0, 0, 0], 0), Err(Malformed));
        }
        assert_eq!(parse([9 | 4 << 32, 0, 0, 0], 0), Err(Malformed));
        assert_eq!(parse([12 | 6 << 32, 0, 0, 0], 0), Err(Malformed));
    }

    #[test]
    fn greetings_and_ranges_are_read_as_they_were_sent() {
        let terms = Terms {
            reliability: 4,
            max_transfer: 1 << 40,
            qos: u64::MAX,
            allows_write: true,
            allows_read: false,
        };
        for (own, wanted) in [(0, 0), (0, DISCRIMINATOR_MAX), (DISCRIMINATOR_MAX, 1)] {
            let greeting = Greeting { terms, process: 77, own: vec![1; own], wanted: vec![2; wanted] };
            let bytes = greeting.to_bytes();
            assert_eq!(Greeting::from_bytes(&bytes), Ok(greeting));
            assert_eq!(Greeting::from_bytes(&bytes[..bytes.len() - 1]), Err(Malformed));
        }
        let range = Range { handle: u32::MAX, addr: 4096, len: u64::MAX };
        assert_eq!(Range::from_bytes(&range.to_bytes()), Ok(range));
        assert_eq!(Range::from_bytes(&to_piece([1 << 32, 0, 0])), Err(Malformed));
    }
}

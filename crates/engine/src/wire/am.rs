//! Active Messages on the wire. They are the hottest messages, so each side has its short cut. The sender
//! encodes an [`Am`] without a [`Message`](super::Message) around it, and the receiver of a short one looks
//! at [`AmHead`] alone.

use super::header::{Header, Kind, WireError};
use crate::{MemId, Place};

/// The token of an Active Message: which memory a long one landed in (8 bits), the upper half of its
/// handler's number (16 bits), and its stamp.
const NUMBER_SHIFT: u32 = 8;
const STAMP_SHIFT: u32 = 24;
const MEMORY_MASK: u64 = (1 << NUMBER_SHIFT) - 1;
const NUMBER_MASK: u64 = 0xffff << NUMBER_SHIFT;

/// Bits that a stamp has.
pub const STAMP_BITS: u32 = u64::BITS - STAMP_SHIFT;

/// An Active Message: a request or a reply that names a handler at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Am {
    /// The handler's number.
    pub handler: u32,
    /// The client of the sender's node that sent it.
    pub client: u8,
    /// The handler's arguments.
    pub args: [u64; 4],
    /// A number of [`STAMP_BITS`] bits that the answer echoes; 0 is none.
    pub stamp: u64,
    /// Where its payload is.
    pub form: AmForm,
}

/// Where the payload of an Active Message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmForm {
    /// It has none.
    Short,
    /// Inside the message.
    Medium,
    /// It already lies at this place in the receiver's memory, so many bytes. Only the lower 4 bits of a
    /// grant's generation are told: the receiver knows the others.
    Long(Place, u32),
}

impl Am {
    /// The header's words, with so many bytes of payload inside the message.
    #[inline(always)]
    pub(crate) const fn encode(&self, payload: usize) -> [u64; Header::WORDS] {
        self.header(payload).encode()
    }

    #[inline(always)]
    pub(super) const fn header(&self, payload: usize) -> Header {
        let upper = (self.handler as u64 >> 16) << NUMBER_SHIFT;
        let token = stamp_to_token(self.stamp) | upper;
        let (client, small) = (self.client, self.handler as u16);
        let header = Header { client, small, args: self.args, token, ..Header::new(Kind::AmShort) };
        match self.form {
            AmForm::Short => header,
            AmForm::Medium => Header { kind: Kind::AmMedium, len: payload as u32, ..header },
            AmForm::Long(place, len) => {
                let token = token | place.mem.to_wire() & MEMORY_MASK;
                Header { kind: Kind::AmLong, len, token, place: place.offset, ..header }
            }
        }
    }

    /// The Active Message of a header that is one's.
    #[inline(always)]
    pub(super) fn of(header: &Header) -> Result<Am, WireError> {
        let form = match header.kind {
            Kind::AmLong => {
                let number = header.token & MEMORY_MASK;
                let mem = MemId::from_wire(number).ok_or(WireError::Memory(number))?;
                AmForm::Long(Place::new(mem, header.place), header.len)
            }
            Kind::AmMedium => AmForm::Medium,
            _ => AmForm::Short,
        };
        let handler = number_of(header.small as u64, header.token);
        let (client, args, stamp) = (header.client, header.args, stamp_of_token(header.token));
        Ok(Am { handler, client, args, stamp, form })
    }
}

/// A handler's number, from its lower half and a token.
#[inline(always)]
const fn number_of(lower: u64, token: u64) -> u32 {
    (lower & 0xffff | (token & NUMBER_MASK) << (16 - NUMBER_SHIFT)) as u32
}

/// The token of an [`AmDone`](super::Message::AmDone).
pub(super) const fn stamp_to_token(stamp: u64) -> u64 {
    stamp << STAMP_SHIFT
}

/// The stamp in a token.
pub(super) const fn stamp_of_token(token: u64) -> u64 {
    token >> STAMP_SHIFT
}

/// The arguments of a header that is an Active Message's.
#[inline(always)]
pub(crate) const fn am_args(words: &[u64; Header::WORDS]) -> [u64; 4] {
    [words[2], words[3], words[4], words[5]]
}

/// The stamp of a header that is an Active Message's, or an [`AmDone`](super::Message::AmDone)'s.
#[inline(always)]
pub(crate) const fn am_stamp(words: &[u64; Header::WORDS]) -> u64 {
    stamp_of_token(words[1])
}

/// The first two words of a header: a short Active Message's receiver looks at nothing else. Its fields are
/// taken out of the words one by one where they are needed: packed into a value and unpacked again they would
/// cost more than all else here.
#[derive(Clone, Copy)]
pub(crate) struct AmHead(u64, u64);

impl AmHead {
    #[inline(always)]
    pub(crate) const fn of(words: &[u64; Header::WORDS]) -> AmHead {
        AmHead(words[0], words[1])
    }

    /// Whether it is an Active Message's, that is to have no payload.
    #[inline(always)]
    pub(crate) const fn is_short(self) -> bool {
        self.0 as u8 == Kind::AmShort as u8
    }

    /// The handler's number.
    #[inline(always)]
    pub(crate) const fn handler(self) -> u32 {
        number_of(self.0 >> 16, self.1)
    }

    /// The client that sent it.
    #[inline(always)]
    pub(crate) const fn client(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_messages_are_those_whose_headers_say_so(
            kind in 0u64..4, client: u8, lower: u16, len: u32, rest: [u64; 6],
        ) {
            let first = kind | u64::from(client) << 8 | u64::from(lower) << 16 | u64::from(len) << 32;
            let words = [first, rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]];
            let header = Header::decode(&words, 0).ok().filter(|header| header.kind == Kind::AmShort);
            let am = header.map(|header| Am::of(&header).expect("it is short"));
            let head = Some(AmHead::of(&words)).filter(|head| head.is_short());
            prop_assert_eq!(head.map(|head| (head.handler(), head.client())), am.map(|am| (am.handler, am.client)));
        }
    }
}

//! The messages by which a node learns which grant of a peer's covers memory that it knows by address.

use super::header::{Header, Kind};
use crate::{Direction, GrantId};

/// Asks which of the receiver's grants covers memory, for such an access by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantAsk {
    /// The first byte's address there.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The access. `None`: none that there is.
    pub direction: Option<Direction>,
}

/// The answer to a [`GrantAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantIs {
    /// The question.
    pub ask: GrantAsk,
    /// The grant that covers all of the memory, where that begins, and how many bytes it has. `None`: none
    /// does.
    pub found: Option<(GrantId, u64, u64)>,
}

/// The word of no grant.
const NO_GRANT: u64 = u64::MAX;

impl GrantAsk {
    pub(super) const fn header(&self) -> Header {
        let small = match self.direction {
            Some(Direction::Put) => 1,
            Some(Direction::Get) => 2,
            None => u16::MAX,
        };
        Header { small, args: [self.len, 0, 0, 0], place: self.addr, ..Header::new(Kind::GrantAsk) }
    }

    pub(super) const fn of(header: &Header) -> GrantAsk {
        let direction = match header.small {
            1 => Some(Direction::Put),
            2 => Some(Direction::Get),
            _ => None,
        };
        GrantAsk { addr: header.place, len: header.args[0], direction }
    }
}

impl GrantIs {
    pub(super) const fn header(&self) -> Header {
        let (word, start, len) = match self.found {
            Some((grant, start, len)) => (grant.to_word(), start, len),
            None => (NO_GRANT, 0, 0),
        };
        Header { kind: Kind::GrantIs, args: [self.ask.len, word, start, len], ..self.ask.header() }
    }

    pub(super) const fn of(header: &Header) -> GrantIs {
        let [_, word, start, len] = header.args;
        let found = match GrantId::from_word(word) {
            Some(grant) => Some((grant, start, len)),
            None => None,
        };
        GrantIs { ask: GrantAsk::of(header), found }
    }
}

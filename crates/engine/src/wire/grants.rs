//! The messages about grants: by which a node learns which grant of a peer's covers memory that it knows by
//! address, and by which it asks for the key of one.

use super::header::{Header, Kind};
use super::moves::MoveId;
use crate::registration::Key;
use crate::registration::table::HolderId;
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

/// Give the key of a grant's registration, and detach firehoses: the payload lists them. Answered by
/// [`KeyIs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAsk {
    /// Which question it is: one of the asker's moves.
    pub id: MoveId,
    /// The grant. `None`: none that there can be.
    pub grant: Option<GrantId>,
    /// Firehoses to detach.
    pub detach: u64,
}

/// The answer to a [`KeyAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyIs {
    /// Which question it answers.
    pub id: MoveId,
    /// Bytes that the asker may hold of the owner's.
    pub limit: u64,
    /// Bytes of the grant; 0 where it has no key for the asker, whatever room there is.
    pub len: u64,
    /// The firehose that the asker is given. `None`: none now.
    pub given: Option<GivenKey>,
}

/// A firehose for the memory of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenKey {
    /// The owner's name for it.
    pub holder: HolderId,
    /// The key.
    pub key: Key,
    /// Where the memory begins in the owner's space.
    pub start: u64,
}

impl KeyAsk {
    pub(super) const fn header(&self, payload: usize) -> Header {
        let word = match self.grant {
            Some(grant) => grant.to_word(),
            None => NO_GRANT,
        };
        let args = [word, self.detach, 0, 0];
        Header { token: self.id.token(), len: payload as u32, args, ..Header::new(Kind::KeyAsk) }
    }

    pub(super) const fn of(header: &Header) -> KeyAsk {
        let [word, detach, ..] = header.args;
        KeyAsk { id: MoveId::of_token(header.token), grant: GrantId::from_word(word), detach }
    }
}

impl KeyIs {
    pub(super) const fn header(&self) -> Header {
        // The name of no firehose stands beyond those of 32 bits.
        let (place, key, start) = match self.given {
            Some(GivenKey { holder, key, start }) => (holder.0 as u64, key.0, start),
            None => (u64::MAX, 0, 0),
        };
        let args = [self.limit, self.len, key, start];
        Header { token: self.id.token(), args, place, ..Header::new(Kind::KeyIs) }
    }

    pub(super) const fn of(header: &Header) -> KeyIs {
        let [limit, len, key, start] = header.args;
        let given = if header.place <= u32::MAX as u64 {
            Some(GivenKey { holder: HolderId(header.place as u32), key: Key(key), start })
        } else {
            None
        };
        KeyIs { id: MoveId::of_token(header.token), limit, len, given }
    }
}

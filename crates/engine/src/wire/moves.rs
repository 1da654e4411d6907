//! The messages by which peers ask each other for registrations and take them back. The lists in their
//! payloads are in `registration/message.rs`.

use super::header::{Header, Kind};
use super::status::Status;
use crate::registration::table::HolderId;

/// Firehoses, at most, that one [`Release`] names.
pub(crate) const RELEASE_MAX: usize = 6;

/// Names a move: which one of the asker's it is. The owner echoes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveId {
    /// Its place in the asker's table.
    pub at: u32,
    /// Tells it from other moves that had the place.
    pub serial: u32,
}

impl MoveId {
    pub(super) const fn token(self) -> u64 {
        self.at as u64 | (self.serial as u64) << 32
    }

    pub(super) const fn of_token(token: u64) -> MoveId {
        MoveId { at: token as u32, serial: (token >> 32) as u32 }
    }
}

/// Attach and detach firehoses: the payload lists both, and a put's data may follow. Answered by [`Moved`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which move it is.
    pub id: MoveId,
    /// Runs of buckets to attach.
    pub attach: u64,
    /// Firehoses to detach.
    pub detach: u64,
    /// Where in the owner's private memory the put's data goes, if there is one.
    pub rider: Option<u64>,
}

impl Move {
    pub(super) const fn header(&self, payload: usize) -> Header {
        let (rides, place) = match self.rider {
            Some(place) => (1, place),
            None => (0, 0),
        };
        Header {
            token: self.id.token(),
            len: payload as u32,
            args: [self.attach, self.detach, rides, 0],
            place,
            ..Header::new(Kind::Move)
        }
    }

    pub(super) fn of(header: &Header) -> Move {
        let [attach, detach, rides, _] = header.args;
        let rider = (rides != 0).then_some(header.place);
        Move { id: MoveId::of_token(header.token), attach, detach, rider }
    }
}

/// The answer to a [`Move`]: the payload lists what was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which move it answers.
    pub id: MoveId,
    /// Bytes that the asker may hold of the owner's.
    pub limit: u64,
    /// How the put fared whose data came with the move; [`Status::Ok`] where none did.
    pub status: Option<Status>,
}

impl Moved {
    pub(super) const fn header(&self, payload: usize) -> Header {
        let args = [self.limit, Status::to_wire(self.status), 0, 0];
        Header { token: self.id.token(), len: payload as u32, args, ..Header::new(Kind::Moved) }
    }

    pub(super) const fn of(header: &Header) -> Moved {
        let [limit, status, ..] = header.args;
        Moved { id: MoveId::of_token(header.token), limit, status: Status::from_wire(status) }
    }
}

/// Why firehoses are given back. The number on the wire is the variant's; any other means the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// Nothing is kept.
    Unneeded = 0,
    /// They were revoked.
    Revoked = 1,
    /// The owner asked for as much as is not in use.
    Recalled = 2,
}

/// Firehoses are given back to their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Why.
    pub because: Because,
    count: usize,
    /// Those beyond `count` are 0.
    names: [HolderId; RELEASE_MAX],
}

impl Release {
    /// Gives back the firehoses that the owner knows by these names.
    ///
    /// # Panics
    /// With more than one message names.
    pub(crate) fn new(because: Because, holders: &[HolderId]) -> Release {
        let mut names = [HolderId(0); RELEASE_MAX];
        names[..holders.len()].copy_from_slice(holders);
        Release { because, count: holders.len(), names }
    }

    /// The firehoses, by the owner's names for them.
    pub fn holders(&self) -> &[HolderId] {
        &self.names[..self.count]
    }

    pub(super) fn header(&self) -> Header {
        let [a, b, c, d, e, f] = self.names.map(|name| u64::from(name.0));
        let first = self.count as u64 | (self.because as u64) << 32;
        Header { args: [first, a | b << 32, c | d << 32, e | f << 32], ..Header::new(Kind::Release) }
    }

    pub(super) fn of(header: &Header) -> Release {
        let [first, words @ ..] = header.args;
        let because = match first >> 32 {
            1 => Because::Revoked,
            2 => Because::Recalled,
            _ => Because::Unneeded,
        };
        let names = words.map(|word| [HolderId(word as u32), HolderId((word >> 32) as u32)]);
        // A hostile peer may say that there are more.
        let count = (first as u32 as usize).min(RELEASE_MAX);
        Release::new(because, &names.as_flattened()[..count])
    }
}

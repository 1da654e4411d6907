//! How something went at the target, as answers say it.

use crate::{Atomic, Direction, OpError, Place, Rank};

/// How a chunk, or something with a bounce buffer, went at the target. Its number is the variant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Ok = 0,
    /// The memory cannot be accessed, or is none.
    Fault = 1,
    /// There is no bounce buffer for the peer now.
    NoBuffer = 2,
    /// The owner does not expose that memory.
    NotExposed = 3,
    /// The owner has no bounce buffers at all.
    NeverBuffer = 4,
    /// The chunk's bytes are in place, and the word that was to change then is nowhere.
    NoWord = 5,
    /// The owner has no such grant, or has revoked it.
    Revoked = 6,
    /// The owner's grant is not for that peer, or not for that.
    NotGranted = 7,
    /// The word that was to change in a grant does not lie at a multiple of its size.
    Unaligned = 8,
}

pub(super) const ALL: [Status; 9] = [
    Status::Ok,
    Status::Fault,
    Status::NoBuffer,
    Status::NotExposed,
    Status::NeverBuffer,
    Status::NoWord,
    Status::Revoked,
    Status::NotGranted,
    Status::Unaligned,
];

impl Status {
    /// The status for the result of a chunk, or of an atomic, at the target.
    #[inline]
    pub(crate) const fn of(result: &Result<(), OpError>) -> Status {
        match result {
            Ok(()) => Status::Ok,
            Err(OpError::NotExposed { .. }) => Status::NotExposed,
            Err(OpError::Revoked { .. }) => Status::Revoked,
            Err(OpError::NotGranted { .. }) => Status::NotGranted,
            Err(OpError::Unaligned { .. }) => Status::Unaligned,
            Err(_) => Status::Fault,
        }
    }

    /// The number of a status, or of none.
    #[inline(always)]
    pub(super) const fn to_wire(status: Option<Status>) -> u64 {
        match status {
            Some(status) => status as u64,
            None => u64::MAX,
        }
    }

    /// The status with that number; `None` where none has it.
    #[inline(always)]
    pub(super) const fn from_wire(number: u64) -> Option<Status> {
        if number < ALL.len() as u64 { Some(ALL[number as usize]) } else { None }
    }
}

/// The meaning of an answer's status for the chunk at `place`, which went in that direction.
pub(crate) fn chunk_result(
    status: Option<Status>,
    peer: Rank,
    direction: Direction,
    place: Place,
    len: u64,
) -> Result<(), OpError> {
    match (status, place.in_grant()) {
        (Some(Status::Ok), _) => Ok(()),
        (Some(Status::Fault), _) => Err(OpError::Fault { peer, mem: place.mem, addr: place.offset, len }),
        (Some(Status::NotExposed), _) => {
            Err(OpError::NotExposed { peer, direction, addr: place.offset, len })
        }
        (Some(Status::Revoked), Some((grant, offset))) => Err(OpError::Revoked { peer, grant, offset, len }),
        (Some(Status::NotGranted), Some((grant, offset))) => {
            Err(OpError::NotGranted { peer, grant, rights: direction.into(), offset, len })
        }
        _ => Err(OpError::Protocol { peer, what: "unknown chunk status" }),
    }
}

/// The meaning of an answer's status for an atomic on a word at `place`, which is in a grant.
pub(crate) fn atomic_result(
    status: Option<Status>,
    peer: Rank,
    place: Place,
    atomic: Atomic,
) -> Result<(), OpError> {
    let (len, rights) = (atomic.size(), atomic.rights());
    match (status, place.in_grant()) {
        (Some(Status::Unaligned), Some((grant, offset))) => {
            Err(OpError::Unaligned { peer, grant, offset, size: len })
        }
        (Some(Status::NotGranted), Some((grant, offset))) => {
            Err(OpError::NotGranted { peer, grant, rights, offset, len })
        }
        (Some(Status::Ok | Status::Fault | Status::Revoked), _) => {
            chunk_result(status, peer, Direction::Put, place, len)
        }
        _ => Err(OpError::Protocol { peer, what: "unknown status of an atomic" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_stand_at_their_numbers() {
        assert!(ALL.iter().enumerate().all(|(at, status)| *status as usize == at));
        assert_eq!(Status::from_wire(ALL.len() as u64), None);
        assert_eq!(Status::from_wire(Status::to_wire(None)), None);
    }
}

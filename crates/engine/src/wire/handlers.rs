//! The messages by which a node learns whether a peer has a handler.

use super::header::{Header, Kind};
use crate::{HandlerKey, OpId};

/// Asks for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerAsk {
    /// The asker's operation, which the answer echoes.
    pub op: OpId,
    /// The handler.
    pub key: HandlerKey,
}

/// The answer to a [`HandlerAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlerIs {
    /// The asker's operation.
    pub op: OpId,
    /// Whether the handler is there. `None`: in a way that no peer says.
    pub found: Option<Found>,
}

/// The handler under a number of a node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No handler.
    Nothing = 0,
    /// The handler that was asked for.
    It = 1,
    /// Another one: two names have one number.
    Another = 2,
}

const FOUND: [Found; 3] = [Found::Nothing, Found::It, Found::Another];

/// The number of no [`Found`].
const NEITHER: u16 = u16::MAX;

impl HandlerAsk {
    pub(super) const fn header(&self) -> Header {
        let HandlerKey { number, check } = self.key;
        let args = [number as u64 | (check as u64) << 32, 0, 0, 0];
        Header { token: self.op.token(), args, ..Header::new(Kind::HandlerAsk) }
    }

    pub(super) const fn of(header: &Header) -> HandlerAsk {
        let word = header.args[0];
        let key = HandlerKey { number: word as u32, check: (word >> 32) as u32 };
        HandlerAsk { op: OpId::from_token(header.token), key }
    }
}

impl HandlerIs {
    pub(super) fn header(&self) -> Header {
        let small = self.found.map_or(NEITHER, |found| found as u16);
        Header { token: self.op.token(), small, ..Header::new(Kind::HandlerIs) }
    }

    pub(super) fn of(header: &Header) -> HandlerIs {
        let found = FOUND.get(usize::from(header.small)).copied();
        HandlerIs { op: OpId::from_token(header.token), found }
    }
}

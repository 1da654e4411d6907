//! Long messages that are under way, at both ends.

use standpipe::Rank;

use crate::pm::Handle;

/// A long message that is not done.
pub(super) struct Send {
    pub(super) dest: Rank,
    pub(super) tag: u32,
    pub(super) start: *mut u8,
    pub(super) len: usize,
    pub(super) sent: usize,
    pub(super) part: Part,
}

/// How it stands with the part that its receiver has asked for.
pub(super) enum Part {
    /// It has not asked yet.
    None,
    /// It has, and the sender's memory is to be locked.
    Asked {
        receive: u64,
        handle: Handle,
        len: usize,
    },
    Writing {
        receive: u64,
        len: usize,
    },
    /// So many bytes of it are left to be sent in pieces.
    Pieces {
        receive: u64,
        left: usize,
    },
}

/// A receive that has not ended.
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) source: Option<Rank>,
    pub(super) tag: Option<u32>,
    pub(super) start: *mut u8,
    pub(super) room: usize,
    pub(super) matched: Option<Matched>,
}

/// The long message that it gets.
pub(super) struct Matched {
    pub(super) from: Rank,
    pub(super) tag: u32,
    pub(super) send: u64,
    pub(super) len: usize,
    pub(super) got: usize,
    /// Bytes that its sender was asked for, and has not delivered; and whether memory is locked for them.
    pub(super) asked: usize,
    pub(super) locked: Option<usize>,
}

/// A message that came before a receive for it.
pub(super) struct Unexpected {
    pub(super) from: Rank,
    pub(super) tag: u32,
    pub(super) what: Came,
}

pub(super) enum Came {
    Eager(Vec<u8>),
    Request { send: u64, len: usize },
}

impl Receive {
    pub(super) fn fits(&self, from: Rank, tag: u32) -> bool {
        self.matched.is_none()
            && self.source.is_none_or(|source| source == from)
            && self.tag.is_none_or(|wanted| wanted == tag)
    }
}

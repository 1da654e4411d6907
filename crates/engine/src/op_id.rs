//! How operations are named.

use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// An operation's place in the table, with a generation that makes old places recognisable.
    pub(crate) struct OpKey;
}

/// Names an operation of one node. Never reused while anything may still refer to it: it carries a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(u64);

impl OpId {
    pub(crate) fn of(key: OpKey) -> OpId {
        OpId(key.data().as_ffi())
    }

    pub(crate) fn key(self) -> OpKey {
        KeyData::from_ffi(self.0).into()
    }

    /// The operation as a wire token.
    pub(crate) const fn token(self) -> u64 {
        self.0
    }

    /// The operation that a wire token claims to name.
    pub(crate) const fn from_token(token: u64) -> OpId {
        OpId(token)
    }
}

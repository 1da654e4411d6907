//! How operations are named.

use slotmap::{Key, KeyData, new_key_type};

new_key_type! {
    /// An operation's place in the table, with a generation that makes old places recognisable.
    pub(crate) struct OpKey;
}

/// The place of a fast transfer, in the table of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastId {
    pub(crate) at: u32,
    /// Even, where those of other operations are odd: so that a name tells which table it is of.
    pub(crate) generation: u32,
}

impl FastId {
    /// A place's first generation.
    pub(crate) const FIRST: u32 = 0;

    /// The generation that follows.
    #[inline]
    pub(crate) const fn after(generation: u32) -> u32 {
        generation.wrapping_add(2)
    }
}

/// Names an operation of one node. Never reused while anything may still refer to it: it carries a
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(u64);

impl OpId {
    /// No operation's.
    pub const NONE: OpId = OpId(u64::MAX);

    pub(crate) fn of(key: OpKey) -> OpId {
        OpId(key.data().as_ffi())
    }

    #[inline]
    pub(crate) const fn of_fast(id: FastId) -> OpId {
        OpId((id.generation as u64) << 32 | id.at as u64)
    }

    /// The fast transfer that this names, if it is one.
    #[inline]
    pub(crate) const fn fast(self) -> Option<FastId> {
        let (at, generation) = (self.0 as u32, (self.0 >> 32) as u32);
        if generation.is_multiple_of(2) { Some(FastId { at, generation }) } else { None }
    }

    /// The place of any other operation; of a fast transfer, none that is ever used.
    pub(crate) fn key(self) -> OpKey {
        if self.fast().is_some() { OpKey::null() } else { KeyData::from_ffi(self.0).into() }
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

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn no_name_is_of_both_tables() {
        let mut ops: SlotMap<OpKey, ()> = SlotMap::with_key();
        let mut generation = FastId::FIRST;
        for _ in 0..100 {
            let key = ops.insert(());
            assert_eq!((OpId::of(key).fast(), OpId::of(key).key()), (None, key));
            ops.remove(key);
            let fast = FastId { at: 0, generation };
            assert_eq!((OpId::of_fast(fast).fast(), OpId::of_fast(fast).key()), (Some(fast), OpKey::null()));
            generation = FastId::after(generation);
        }
    }
}

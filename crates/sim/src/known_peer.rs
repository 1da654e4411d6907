//! What a process knows of which process has another's rank.

/// Which process of a rank somebody talks to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownPeer {
    /// How many had the rank before.
    pub(crate) incarnation: u32,
    /// Those before this one are known to have ended, or were given up: nothing is let in that comes from
    /// them.
    pub(crate) void: u32,
}

/// What becomes of something that reaches a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It goes on.
    Granted,
    /// It waits there, and will happen anew.
    Waits,
    /// Nothing comes of it: its sender is known to have ended, or was given up.
    Refused,
}

//! What must come of a message, and what its words say.

use engine::{Atomic, GrantId, Header, Lane};

/// The number of the handler that an Active Message names.
pub(super) fn number(header: &Header) -> u32 {
    let upper = (header.token >> 8 & 0xffff) as u32;
    u32::from(header.small) | upper << 16
}

/// Whether it says a change of a word that puts may bring with them.
pub(super) fn signals(header: &Header) -> bool {
    let atomic = Atomic::from_wire([u64::from(header.small), header.args[3], 0]);
    atomic.is_some_and(|atomic| matches!(atomic.change, engine::Change::Apply(..)))
}

/// Whether it names a grant that there could be, and as many firehoses as it says.
pub(super) fn asks_for_key(header: &Header, payload: usize) -> bool {
    GrantId::from_word(header.args[0]).is_some() && header.args[1].checked_mul(4) == Some(payload as u64)
}

/// What a message may cause.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Counted as malformed, and nothing else.
    Malformed,
    /// An answer that comes too late: nothing.
    Late,
    /// A handler runs.
    Deliver,
    /// Bytes land in this range.
    Write(std::ops::Range<u64>),
    /// The sender left no room for its answer: that may be counted.
    Unanswerable,
    /// A team that no collective of this process is of: that may be counted, and nothing is written.
    OfTeam,
    Nothing,
}

impl Verdict {
    pub(super) fn unless_room(self, room: usize) -> Verdict {
        if room > 0 { Verdict::Nothing } else { self }
    }

    pub(super) fn unless_full(self, room: usize) -> Verdict {
        if room > 0 { self } else { Verdict::Unanswerable }
    }
}

pub(super) fn lane_of(reply: bool) -> Lane {
    if reply { Lane::Reply } else { Lane::Request }
}

pub(super) fn drop_deadline(next: Option<u64>) {
    assert_eq!(next, None, "the only deadline there is, is 0");
}

//! Whether it pays to ask a peer for registration where something else must be given up for it.
//!
//! To give up one registration for another can take as long as many messages. Never to do it keeps what was
//! used first; always to do it is slow where no use comes back in time. So it is done when [`PATIENCE`] times
//! as much time has gone into messages, for want of room, as it takes more than a message. Where it never
//! pays, it then adds a part in [`PATIENCE`] to what messages alone would take. A program that moves on has
//! its new working set registered after as many messages. This is the rule for renting skis (Karlin, Manasse,
//! Rudolph, Sleator, 1988) with more patience: there, with 1, either way costs at most twice the best. Memory
//! that is used oftener is wanted oftener when it is time, and so comes first.

use crate::Nanos;

/// How much more time goes into messages than into what may save them.
const PATIENCE: Nanos = 5;

/// For how much a new time counts in what is expected: one part in so many, where it is more than that and
/// where it is less. The work of moves is what keeps an owner from answering messages as a rule, also of
/// moves that it answered at once.
const MESSAGE: Weights = Weights { more: 16, less: 2 };
const MOVE: Weights = Weights { more: 4, less: 8 };

struct Weights {
    more: Nanos,
    less: Nanos,
}

impl Weights {
    fn learn(&self, expected: &mut Option<Nanos>, took: Nanos) -> Nanos {
        let known = expected.unwrap_or(took);
        let known = match took.checked_sub(known) {
            Some(more) => known + more / self.more,
            None => known - (known - took) / self.less,
        };
        *expected.insert(known)
    }
}

/// The times of small messages to one peer, and of moves that asked for little and gave something up for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MissPolicy {
    message: Option<Nanos>,
    moved: Option<Nanos>,
    /// The time that has gone into messages for want of room since a right was last given up for another.
    spent: Nanos,
}

impl MissPolicy {
    /// A piece for which there was no room went by message, and took so long.
    pub(crate) fn on_message(&mut self, took: Nanos) {
        self.spent = self.spent.saturating_add(MESSAGE.learn(&mut self.message, took));
    }

    /// A move that gave something up and asked for little was answered with it, and took so long.
    pub(crate) fn on_move(&mut self, took: Nanos) {
        MOVE.learn(&mut self.moved, took);
    }

    /// Something is given up for something else.
    pub(super) fn on_replacement(&mut self) {
        self.spent = 0;
    }

    /// Whether something should be given up for what is wanted now. Where what a move takes is unknown it
    /// should, so that it becomes known, and where what a message takes is, it should not.
    pub(super) fn pays(&self) -> bool {
        match (self.moved, self.message) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(moved), Some(message)) => self.spent >= PATIENCE * moved.saturating_sub(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `uses` of memory for which there is never room take, and how many of them made room.
    fn at_random(uses: u32, message: Nanos, moved: Nanos) -> (Nanos, u32) {
        let (mut miss_policy, mut took, mut replacements) = (MissPolicy::default(), 0, 0);
        miss_policy.on_move(moved);
        for _ in 0..uses {
            if miss_policy.pays() {
                miss_policy.on_replacement();
                miss_policy.on_move(moved);
                (took, replacements) = (took + moved, replacements + 1);
            } else {
                miss_policy.on_message(message);
                took += message;
            }
        }
        (took, replacements)
    }

    /// Under Miri, which takes a thousand times as long, hardly more than make room for something new once in
    /// the dearest case.
    const USES: u32 = if cfg!(miri) { 5_000 } else { 100_000 };

    #[test]
    fn what_never_pays_adds_a_part_to_messages_alone() {
        for (message, moved) in [(250_000, 2_000_000), (3_000, 13_000), (12_000, 15_000), (7_000, 6_000_000)]
        {
            let (took, replacements) = at_random(USES, message, moved);
            assert!(
                replacements > 0,
                "{message} and {moved} ns: what a program does next is registered at last"
            );
            let alone = u64::from(USES) * message;
            assert!(took * 10 <= alone * 13, "{took} ns instead of {alone}");
        }
    }

    #[test]
    fn what_costs_no_more_than_a_message_is_done_at_once() {
        assert_eq!(at_random(1000, 10_000, 10_000).1, 999, "all but the message that told what one takes");
        assert_eq!(at_random(1000, 10_000, 9_000).1, 999);
    }

    #[test]
    fn what_takes_long_now_and_then_counts_in_moves_and_hardly_in_messages() {
        let mut miss_policy = MissPolicy::default();
        miss_policy.on_move(0);
        for turn in 0..800 {
            let took = if turn % 2 == 0 { 9_000 } else { 0 };
            miss_policy.on_move(took);
            miss_policy.on_message(took);
        }
        let (moved, message) = (miss_policy.moved.expect("learnt"), miss_policy.message.expect("learnt"));
        assert!((5_000..8_000).contains(&moved) && message < 1_000, "{miss_policy:?}");
    }
}

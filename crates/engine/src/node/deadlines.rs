//! Deadlines: of operations, and of peers that are to answer.

use super::Node;
use crate::{Nanos, OpError, Transport};

impl<T: Transport> Node<T> {
    /// Whether peers are waited for since some time that nobody has said: those that hold what this process
    /// wants back. Ask after each poll, and after [`Node::invalidate`]; then call [`Node::expire`].
    pub fn wants_time(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.wants_time)
    }

    /// Fails every operation whose deadline is not after `now` with [`OpError::Timeout`]; its buffers are
    /// touched no more. Loses every peer that was told to give something back, and has not answered within
    /// [`Settings::recall_within`], which counts from the next call on. Asks the members that a collective
    /// has waited for in vain what they called. Returns the earliest deadline that is left, or when to ask or
    /// look next; or earlier, where what was due then has ended since.
    ///
    /// To be called when polling finds nothing, as answers may lie there until then; and now and then where
    /// it always finds something.
    ///
    /// [`Settings::recall_within`]: crate::registration::Settings::recall_within
    pub fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        self.expire_where(now, true)
    }

    /// The same for who does not poll, as somebody else is at it, and may be long: no peer's time to answer
    /// passes.
    pub fn expire_unpolled(&mut self, now: Nanos) -> Option<Nanos> {
        self.expire_where(now, false)
    }

    fn expire_where(&mut self, now: Nanos, polled: bool) -> Option<Nanos> {
        let fast = self.expire_fast(now);
        let ops = self.expire_ops(now);
        let (teams, _, mut lent) = self.teams_lent();
        let asks = teams.ask_the_awaited(&mut lent, now);
        let holders = self.expire_holders(now, polled);
        self.work();
        [fast, ops, asks, holders].into_iter().flatten().min()
    }

    /// Looks at all operations only where one may be late.
    fn expire_ops(&mut self, now: Nanos) -> Option<Nanos> {
        let none_before = self.ops.none_due_before();
        if none_before.is_none_or(|at| now < at) {
            return none_before;
        }
        let (mut late, mut due) = (Vec::new(), None);
        for (key, op) in self.ops.iter().filter(|(_, op)| op.outcome.is_none()) {
            let Some(deadline) = op.deadline else { continue };
            if deadline <= now {
                late.push((key, self.awaited_by(key, &op.kind)));
            } else {
                due = Some(due.map_or(deadline, |due: Nanos| due.min(deadline)));
            }
        }
        self.ops.are_not_due_before(due);
        for (key, peer) in late {
            self.give_up(key, OpError::Timeout { peer });
        }
        due
    }
}

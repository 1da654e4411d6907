//! The loop: hands on what ended, and does what the parts want done, until nothing is left.
//!
//! Every call of the node by which anything may end comes here last. Within a call nobody is told of an end:
//! so no part is entered while it is at something.

use super::Node;
use super::operations::End;
use super::operations::op::OpKind;
use super::operations::settling::Awaited;
use super::teams::wants::Wanted;
use crate::op_id::{OpId, OpKey};
use crate::wire::Message;
use crate::{Direction, OpError, Rank, Transport};

/// Pieces in the lists of a transfer whose memory is kept for later ones, at most.
const SPARE_PIECES_MAX: usize = 1024;

impl<T: Transport> Node<T> {
    /// Hands on and does what there is. Mostly that is nothing: then this touches no more than it must.
    #[inline(never)]
    pub(super) fn work(&mut self) {
        if !self.is_idle() {
            self.work_on();
        }
    }

    #[inline(never)]
    fn work_on(&mut self) {
        loop {
            if let Some(end) = self.ops.next_end() {
                self.hand_on(end);
            } else if let Some(wanted) = self.teams.next_wanted() {
                self.satisfy(wanted);
            } else if let Some(peer) = self.core.next_to_lose() {
                self.lose_and_tell(peer, false);
            } else {
                return;
            }
        }
    }

    /// Tells the transfer or collective that an operation was part of how that ended.
    #[inline(never)]
    fn hand_on(&mut self, End { key, parent, outcome, kind }: End) {
        self.keep_lists(key, kind);
        let Some((parent, of)) = parent.and_then(|parent| Some((parent, self.ops.get(parent)?))) else {
            return;
        };
        match of.kind {
            OpKind::Collective => {
                let (teams, _, mut lent) = self.teams_lent();
                teams.on_read(&mut lent, (parent, key), outcome.map(drop));
            }
            OpKind::ByMessage(_) => self.on_bounce_over(parent, outcome),
            _ => self.on_child(parent, outcome),
        }
    }

    /// Keeps the lists of an operation that is over for others.
    pub(super) fn keep_lists(&mut self, key: OpKey, kind: OpKind) {
        // A list of thousands is one program's one transfer: it need not stay for good.
        match kind {
            OpKind::Collective => self.teams.forget_run(key),
            OpKind::Keyed(keyed) if keyed.todo.capacity().max(keyed.pins.capacity()) <= SPARE_PIECES_MAX => {
                self.spare_keyed.push(keyed);
            }
            OpKind::ByMessage(transfer) if transfer.rest.capacity() <= SPARE_PIECES_MAX => {
                self.spare_transfers.push(transfer);
            }
            _ => {}
        }
    }

    /// Does what a collective wants done.
    #[inline(never)]
    fn satisfy(&mut self, wanted: Wanted) {
        match wanted {
            Wanted::Get(key, from, piece) => self.start_as(key, (from, Direction::Get), &[piece], None),
            Wanted::GiveUp(key, error) => self.give_up(key, error),
        }
    }

    /// The peer that an operation waits for.
    pub(super) fn awaited_by(&self, key: OpKey, kind: &OpKind) -> Rank {
        if matches!(kind, OpKind::Collective) { self.teams.awaits(key) } else { kind.peer() }
    }

    /// Ends an operation that the transport or the peer may still be at.
    pub(super) fn give_up(&mut self, key: OpKey, error: OpError) {
        let mut awaited: Vec<Awaited> = Vec::new();
        let whose = self.ops.get(key).map(|op| (op.client, op.kind.peer()));
        match self.ops.get(key).map(|op| &op.kind) {
            Some(OpKind::OneSided { .. }) => {
                let writes = self.core.transport.abandon(OpId::of(key));
                awaited.extend(writes.then_some(Awaited::Report(OpId::of(key))));
            }
            // Nobody asks for its outcome, and it would lie in the table for ever.
            Some(OpKind::BarrierCount) => drop(self.ops.remove(key)),
            Some(OpKind::Keyed(_)) => self.abandon_keyed(key, &mut awaited),
            Some(OpKind::Collective) => {
                let (teams, _, mut lent) = self.teams_lent();
                return teams.give_up(&mut lent, key, error);
            }
            Some(OpKind::ByMessage(_)) => self.abandon_transfer(key, &mut awaited),
            Some(OpKind::Bounce(_)) => return self.drop_bounce(key, error),
            Some(OpKind::Atomic(_)) => self.abandon_atomic(key, &mut awaited),
            Some(OpKind::HandlerAsk { .. }) => {
                let is_its = |message: &Message| matches!(message, Message::HandlerAsk(ask) if ask.op == OpId::of(key));
                self.mail.take_back(is_its);
            }
            Some(OpKind::Part(_) | OpKind::BarrierWait) | None => {}
        }
        self.ops.finish(key, Err(error));
        if let Some((client, peer)) = whose {
            self.ops.begin_to_settle(&mut self.core, (OpId::of(key), client), peer, &awaited);
        }
    }

    /// Whether there is nothing to hand on or to do: so it is between calls.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.ops.have_all_ends_gone() && self.teams.want_nothing() && !self.core.is_to_lose()
    }
}

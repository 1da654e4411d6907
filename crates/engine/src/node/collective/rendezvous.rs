//! What members of a team offer each other, and get: all of it at once, or part by part.

use super::protocol::NOT_OFFERED;
use super::runner::StepOutcome;
use super::state::{CollectiveRun, Pulling, Received, Receiving};
use crate::collective::Span;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::op_id::OpKey;
use crate::wire::{Message, TeamMessage};
use crate::{Direction, Lane, OpError, Piece, Place, Rank, Transport};

impl<T: Transport> Node<T> {
    /// The offered bytes that the transfer `get` was getting are here, or not. Returns whether `parent` is a
    /// collective.
    pub(in crate::node) fn on_read(
        &mut self,
        parent: OpKey,
        get: OpKey,
        result: Result<(), OpError>,
    ) -> bool {
        let Some(OpKind::Collective(_)) = self.ops.get(parent).map(|op| &op.kind) else { return false };
        let Some(mut run) = self.take_run(parent) else {
            if self.ops.get(parent).is_some_and(|op| op.outcome.is_none()) {
                self.teams.missed.push((parent, get, result));
            }
            return true;
        };
        let result = self.take_read(&mut run, get, result);
        self.put_run(parent, run, result);
        self.go_on_with(parent);
        true
    }

    /// Begins to get a part of what has been offered.
    pub(in crate::node) fn pull(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        (from, tag, at): (u32, u16, u64),
        into: Span,
    ) -> Result<StepOutcome, OpError> {
        let from = self.member_rank(run.team, from).expect("plans name members");
        let awaited = run.receives.iter().find(|receive| (receive.from, receive.tag) == (from, tag));
        let Received::Known(offered) = awaited.expect("plans await what they pull").state else {
            return Ok(StepOutcome::Blocked);
        };
        let part = offered.offset.checked_add(at).map(|offset| Place { offset, ..offered });
        let part = part.ok_or(OpError::Protocol { peer: from, what: NOT_OFFERED })?;
        match self.get_part(key, run, from, part, into) {
            Ok(Some(get)) => {
                run.pulls.push(Pulling { get, into });
                run.open += 1;
            }
            Ok(None) => {}
            Err(error) => self.doubt(run, error)?,
        }
        Ok(StepOutcome::Advanced)
    }

    /// All of what was awaited is here.
    pub(in crate::node) fn release(
        &mut self,
        run: &mut CollectiveRun,
        from: u32,
        tag: u16,
    ) -> Result<(), OpError> {
        let from = self.member_rank(run.team, from).expect("plans name members");
        let awaited = |receive: &Receiving| (receive.from, receive.tag) == (from, tag);
        let at = run.receives.iter().position(awaited).expect("plans await what they release");
        run.open += 1;
        self.took(run, at)
    }

    /// A transfer of offered bytes has ended.
    pub(in crate::node) fn take_read(
        &mut self,
        run: &mut CollectiveRun,
        get: OpKey,
        result: Result<(), OpError>,
    ) -> Result<(), OpError> {
        if let Some(at) = run.pulls.iter().position(|pull| pull.get == get) {
            run.pulls.swap_remove(at);
            run.close(usize::from(result.is_ok()));
            return result.or_else(|error| self.doubt(run, error));
        }
        let Some(at) = run.receives.iter().position(|receive| receive.state == Received::Getting(get)) else {
            return Ok(());
        };
        match result {
            Ok(()) => self.took(run, at),
            Err(error) => self.missed(run, at, error),
        }
    }

    /// Gets what a member offers.
    pub(in crate::node) fn get_offered(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        at: usize,
        (offered, into): (Place, Span),
    ) -> Result<(), OpError> {
        match self.get_part(key, run, run.receives[at].from, offered, into) {
            Ok(Some(get)) => {
                run.receives[at].state = Received::Getting(get);
                Ok(())
            }
            Ok(None) => self.took(run, at),
            Err(error) => self.missed(run, at, error),
        }
    }

    /// What was awaited could not be gotten from where it was offered.
    fn missed(&mut self, run: &mut CollectiveRun, at: usize, error: OpError) -> Result<(), OpError> {
        run.receives[at].state = Received::Missed;
        self.doubt(run, error)
    }

    /// Gets bytes of a member's that lie where it says. `None`: they are here.
    fn get_part(
        &mut self,
        key: OpKey,
        run: &CollectiveRun,
        from: Rank,
        offered: Place,
        into: Span,
    ) -> Result<Option<OpKey>, OpError> {
        let fault = OpError::Protocol { peer: from, what: NOT_OFFERED };
        // What is kept here is too little for anybody to offer.
        let local = run.memories.place(into).ok_or(fault)?;
        let piece = Piece::new(offered, local, into.len).ok_or(fault)?;
        let get = self.start_transfer(from, Direction::Get, &[piece], None, None);
        if let Some(outcome) = self.outcome(get) {
            return outcome.map(|_| None);
        }
        debug_assert!(get.fast().is_none(), "what is part of another operation has a place among all kinds");
        let get = get.key();
        self.ops.make_part(get, key);
        Ok(Some(get))
    }

    /// What a member offers could not be gotten. Where nothing accessible lies there, it may have given up
    /// the collective, and freed what it offered before this process has heard of it: so it is asked. All
    /// else fails at once.
    fn doubt(&mut self, run: &mut CollectiveRun, error: OpError) -> Result<(), OpError> {
        let (OpError::Fault { peer, .. } | OpError::NotExposed { peer, .. }) = error else {
            return Err(error);
        };
        // One member's word ends the collective.
        if run.doubted.is_some() {
            return Ok(());
        }
        run.doubted = Some((peer, error));
        let asks = TeamMessage::Doubted { number: run.number };
        self.mail.send_soon(&mut self.core, peer, Lane::Request, Message::Team(run.team, asks))
    }

    /// What a member has offered is here, unless that one has given it up meanwhile: that can be seen, or it
    /// is asked.
    fn took(&mut self, run: &mut CollectiveRun, at: usize) -> Result<(), OpError> {
        let receive = &mut run.receives[at];
        let is_seen = self.core.transport.offers_given_up(receive.from) == Some(receive.given_up);
        receive.state = if is_seen { Received::Over } else { Received::Taken };
        let taken = TeamMessage::Taken { number: run.number, tag: receive.tag, is_seen };
        let from = receive.from;
        run.close(usize::from(is_seen));
        self.mail.send_soon(&mut self.core, from, Lane::Request, Message::Team(run.team, taken))
    }
}

//! The steps of a collective: what is sent, received, offered and gotten by each.
//!
//! A step's bytes ride in its message where they fit. Otherwise the message says where they lie; the receiver
//! gets them as it gets anything, all at once or part by part, and says when it has. A failure here ends the
//! collective, which is for the caller to do.

use super::roster::Roster;
use super::run::{CollectiveRun, Pulling, Received, Receiving, Sending, Sent};
use super::team::{Arrived, Data, Slot};
use super::wants::{Wanted, Wants};
use crate::collective::{EAGER_MAX, Signature, Span, Step};
use crate::limits::AHEAD;
use crate::node::lent::Lent;
use crate::node::operations::op::OpKind;
use crate::op_id::OpKey;
use crate::wire::{self, Message, Pace, StepData, TeamMessage};
use crate::{Lane, OpError, Piece, Place, Rank, SendError, Transport};

/// The message about a member whose bytes do not lie where it says, or were to lie somewhere.
const NOT_OFFERED: &str = "has offered no memory";

/// How a step ended.
enum StepOutcome {
    Advanced,
    Blocked,
}

/// The means of one collective's steps; its name goes with them.
pub(super) struct Steps<'a, 'l, T> {
    pub(super) key: OpKey,
    pub(super) roster: &'a mut Roster,
    pub(super) wants: &'a mut Wants,
    pub(super) lent: &'a mut Lent<'l, T>,
}

impl<T: Transport> Steps<'_, '_, T> {
    /// Does steps until one has to wait.
    pub(super) fn go_on(&mut self, run: &mut CollectiveRun) -> Result<(), OpError> {
        while let Some(step) = run.plan.steps.get(run.at).copied().filter(|_| run.doubted.is_none()) {
            if let StepOutcome::Blocked = self.do_step(run, step)? {
                break;
            }
            run.at += 1;
        }
        Ok(())
    }

    fn do_step(&mut self, run: &mut CollectiveRun, step: Step) -> Result<StepOutcome, OpError> {
        match step {
            Step::Send { to, tag, from, of } => {
                let to = self.roster.member_rank(run.team, to).expect("plans name members");
                // Its rounds have tags from 0.
                if tag < run.sent {
                    return Ok(StepOutcome::Advanced);
                }
                run.sends.push(Sending { to, tag, from, of, state: Sent::No });
                run.open += 1;
                self.send(run, run.sends.len() - 1)?;
            }
            Step::Receive { from, tag, into } => self.expect(run, (from, tag, into.len), Some(into))?,
            Step::Await { from, tag, len } => self.expect(run, (from, tag, len), None)?,
            Step::Pull { from, tag, at, into } => return self.pull(run, (from, tag, at), into),
            Step::Release { from, tag } => self.release(run, from, tag)?,
            Step::Wait if run.open > 0 => return Ok(StepOutcome::Blocked),
            Step::Wait => {
                run.sends.clear();
                run.receives.clear();
            }
            Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. } if !run.has_all_of(step) => {
                return Ok(StepOutcome::Blocked);
            }
            Step::Copy { from, into } if run.keep(from, into) => {}
            Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. } => {
                if run.steps_told {
                    self.wants.local.push_back(self.key);
                }
                return Ok(StepOutcome::Blocked);
            }
        }
        Ok(StepOutcome::Advanced)
    }

    fn expect(
        &mut self,
        run: &mut CollectiveRun,
        (from, tag, len): (u32, u16, u64),
        into: Option<Span>,
    ) -> Result<(), OpError> {
        let from = self.roster.member_rank(run.team, from).expect("plans name members");
        run.receives.push(Receiving { from, tag, len, into, given_up: 0, state: Received::No });
        run.open += 1;
        let Some(team) = self.roster.all.get_mut(&run.team) else { return Ok(()) };
        match team.early.remove(&(run.number, from, tag)) {
            Some(arrived) => self.receive(run, run.receives.len() - 1, arrived),
            None if team.paces.contains_key(&from) => Ok(()),
            // Nothing has been said between the two: if the other has given up the team, it says so to those
            // who wait.
            None => {
                let hello = Pace { come_to: team.started, wants: 0, waits_in: None };
                team.paces.entry(from).or_default().told = team.started;
                self.roster.tell(self.lent, from, run.team, TeamMessage::Pace(hello))
            }
        }
    }
}

/// Sending.
impl<T: Transport> Steps<'_, '_, T> {
    /// Sends what a step is to send, if what it is made of is confirmed, the receiver has come near enough,
    /// and there is room.
    pub(super) fn send(&mut self, run: &mut CollectiveRun, at: usize) -> Result<(), OpError> {
        let Sending { to, from, of, .. } = run.sends[at];
        if of.is_some_and(|tag| !run.is_confirmed(tag)) {
            return Ok(());
        }
        let Some(team) = self.roster.all.get_mut(&run.team) else { return Ok(()) };
        let pace = team.paces.entry(to).or_default();
        if run.number > pace.come_to.saturating_add(AHEAD) {
            if pace.asked < run.number {
                pace.asked = run.number;
                let ask = Pace { come_to: team.started, wants: run.number, waits_in: None };
                return self.roster.tell(self.lent, to, run.team, TeamMessage::Pace(ask));
            }
            return Ok(());
        }
        let data = self.data(run, at)?;
        let payload = if data == StepData::Payload { from.len as usize } else { 0 };
        let Lent { core, mail, .. } = &mut *self.lent;
        if mail.is_taken(to, Lane::Request) {
            self.wants.unsent.push(self.key);
            return Ok(());
        }
        if payload > 0 {
            run.memories.read(&mut core.transport, from, &mut core.scratch[..payload])?;
        }
        let (number, tag, signature) = (run.number, run.sends[at].tag, run.signature);
        let step = TeamMessage::Step(wire::Step { number, tag, signature, data: Some(data) });
        let words = Message::Team(run.team, step).encode(payload);
        match core.transport.send(to, Lane::Request, &words, &core.scratch[..payload]) {
            Ok(()) => {
                let offered = matches!(data, StepData::Offer { .. });
                run.sends[at].state = if offered { Sent::Offered } else { Sent::Over };
                run.close(usize::from(!offered));
                if let Some(team) = self.roster.all.get_mut(&run.team) {
                    let pace = team.paces.entry(to).or_default();
                    pace.told = pace.told.max(run.number);
                }
                Ok(())
            }
            Err(SendError::Busy) => {
                self.wants.unsent.push(self.key);
                Ok(())
            }
            Err(SendError::Failed(error)) => Err(error),
        }
    }

    /// How the bytes of a step that is to be sent go.
    fn data(&mut self, run: &CollectiveRun, at: usize) -> Result<StepData, OpError> {
        let core = &mut *self.lent.core;
        let from = run.sends[at].from;
        let len = from.len;
        if len <= 8 {
            let mut bytes = [0; 8];
            run.memories.read(&mut core.transport, from, &mut bytes[..len as usize])?;
            return Ok(StepData::Word { len: len as u32, bytes });
        }
        match run.memories.place(from) {
            Some(at) if len > EAGER_MAX.min(core.scratch.len() as u64) => {
                // A member that cannot see it asks anyway.
                let given_up = core.transport.offers_given_up(core.rank).unwrap_or(0);
                Ok(StepData::Offer { at, len, given_up })
            }
            _ => Ok(StepData::Payload),
        }
    }
}

/// Receiving.
impl<T: Transport> Steps<'_, '_, T> {
    /// Takes a step of a collective that this process has come to.
    pub(super) fn take(
        &mut self,
        run: &mut CollectiveRun,
        slot: Slot,
        arrived: Arrived,
    ) -> Result<(), OpError> {
        let (_, peer, tag) = slot;
        let wanted = |from: Rank, with: u16| (from, with) == (peer, tag);
        if let Some(at) = run
            .receives
            .iter()
            .position(|receive| wanted(receive.from, receive.tag) && receive.state == Received::No)
        {
            return self.receive(run, at, arrived);
        }
        // Only what the plan still asks for is kept; whoever has called something else is told so.
        self.agree(run, arrived.signature, peer)?;
        let rest = &run.plan.steps[run.at..];
        let expected = rest.iter().any(|step| {
            let (Step::Receive { from, tag, .. } | Step::Await { from, tag, .. }) = step else {
                return false;
            };
            self.roster.member_rank(run.team, *from).is_some_and(|from| wanted(from, *tag))
        });
        match self.roster.all.get_mut(&run.team).filter(|_| expected) {
            Some(team) => _ = team.early.insert(slot, arrived),
            None => self.lent.core.counters.malformed += 1,
        }
        Ok(())
    }

    /// Takes what was expected.
    fn receive(&mut self, run: &mut CollectiveRun, at: usize, arrived: Arrived) -> Result<(), OpError> {
        let receive = &run.receives[at];
        let (peer, into, len) = (receive.from, receive.into, receive.len);
        self.agree(run, arrived.signature, peer)?;
        if arrived.len != len {
            let of = |bytes| Signature { bytes, ..run.signature };
            let me = self.lent.core.rank;
            return Err(self.roster.differ(run.team, [of(arrived.len), of(len)], [peer, me]));
        }
        if let Data::At(_, given_up) = arrived.data {
            run.receives[at].given_up = given_up;
        }
        let transport = &mut self.lent.core.transport;
        let state = match (arrived.data, into) {
            (Data::At(offered, _), Some(into)) => return self.get_offered(run, at, (offered, into)),
            (Data::At(offered, _), None) => Received::Known(offered),
            (_, None) => return Err(OpError::Protocol { peer, what: NOT_OFFERED }),
            (Data::Word(word), Some(into)) => {
                run.memories.write(transport, into, &word[..len as usize])?;
                Received::Over
            }
            (Data::Bytes(bytes), Some(into)) => {
                run.memories.write(transport, into, &bytes)?;
                Received::Over
            }
        };
        run.receives[at].state = state;
        run.close(1);
        Ok(())
    }

    /// Compares the parts of a call that both members must have alike.
    fn agree(&mut self, run: &CollectiveRun, theirs: Signature, peer: Rank) -> Result<(), OpError> {
        if run.signature == theirs {
            return Ok(());
        }
        let me = self.lent.core.rank;
        Err(self.roster.differ(run.team, [theirs, run.signature], [peer, me]))
    }
}

/// Getting what members offer.
impl<T: Transport> Steps<'_, '_, T> {
    /// Begins to get a part of what has been offered.
    fn pull(
        &mut self,
        run: &mut CollectiveRun,
        (from, tag, at): (u32, u16, u64),
        into: Span,
    ) -> Result<StepOutcome, OpError> {
        let from = self.roster.member_rank(run.team, from).expect("plans name members");
        let awaited = run.receives.iter().find(|receive| (receive.from, receive.tag) == (from, tag));
        let Received::Known(offered) = awaited.expect("plans await what they pull").state else {
            return Ok(StepOutcome::Blocked);
        };
        let part = offered.offset.checked_add(at).map(|offset| Place { offset, ..offered });
        let part = part.ok_or(OpError::Protocol { peer: from, what: NOT_OFFERED })?;
        let get = self.get(run, from, part, into)?;
        run.pulls.push(Pulling { get, into });
        run.open += 1;
        Ok(StepOutcome::Advanced)
    }

    /// All of what was awaited is here.
    fn release(&mut self, run: &mut CollectiveRun, from: u32, tag: u16) -> Result<(), OpError> {
        let from = self.roster.member_rank(run.team, from).expect("plans name members");
        let awaited = |receive: &Receiving| (receive.from, receive.tag) == (from, tag);
        let at = run.receives.iter().position(awaited).expect("plans await what they release");
        run.open += 1;
        self.took(run, at)
    }

    /// Gets what a member offers.
    fn get_offered(
        &mut self,
        run: &mut CollectiveRun,
        at: usize,
        (offered, into): (Place, Span),
    ) -> Result<(), OpError> {
        let get = self.get(run, run.receives[at].from, offered, into)?;
        run.receives[at].state = Received::Getting(get);
        Ok(())
    }

    /// Has bytes of a member's gotten that lie where it says, by an operation that is part of the collective.
    fn get(&mut self, run: &CollectiveRun, from: Rank, offered: Place, into: Span) -> Result<OpKey, OpError> {
        let fault = OpError::Protocol { peer: from, what: NOT_OFFERED };
        // The memory that is kept here is too little for anybody to offer.
        let local = run.memories.place(into).ok_or(fault)?;
        let piece = Piece::new(offered, local, into.len).ok_or(fault)?;
        let kind = OpKind::OneSided { peer: from, on_complete: None };
        let get = self.lent.ops.insert_child(kind, self.key);
        self.wants.now.push_back(Wanted::Get(get, from, piece));
        Ok(get)
    }

    /// A transfer of offered bytes has ended.
    pub(super) fn take_read(
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
            Err(error) => {
                run.receives[at].state = Received::Missed;
                self.doubt(run, error)
            }
        }
    }

    /// Memory that a member offers could not be gotten. Where nothing accessible lies there, it may have
    /// given up the collective, and freed what it offered before this process has heard of it: so it is
    /// asked. All else fails at once.
    fn doubt(&mut self, run: &mut CollectiveRun, error: OpError) -> Result<(), OpError> {
        let (OpError::Fault { peer, .. } | OpError::NotExposed { peer, .. }) = error else {
            return Err(error);
        };
        // One member's word ends the collective.
        if run.doubted.is_some() {
            return Ok(());
        }
        run.doubted = Some((peer, error));
        let asks = Message::Team(run.team, TeamMessage::Doubted { number: run.number });
        self.lent.mail.send_soon(self.lent.core, peer, Lane::Request, asks)
    }

    /// Memory that a member has offered is here, unless that one has given it up meanwhile: that can be seen,
    /// or it is asked.
    fn took(&mut self, run: &mut CollectiveRun, at: usize) -> Result<(), OpError> {
        let Lent { core, mail, .. } = &mut *self.lent;
        let receive = &mut run.receives[at];
        let is_seen = core.transport.offers_given_up(receive.from) == Some(receive.given_up);
        receive.state = if is_seen { Received::Over } else { Received::Taken };
        let taken = TeamMessage::Taken { number: run.number, tag: receive.tag, is_seen };
        let from = receive.from;
        run.close(usize::from(is_seen));
        mail.send_soon(core, from, Lane::Request, Message::Team(run.team, taken))
    }
}

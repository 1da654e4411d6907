//! Collectives: carries out the steps of their plans.
//!
//! Members number the collectives of their team as they come to them. A step's bytes ride in its message
//! where they fit; otherwise the message says where they lie, and the receiver gets them as it gets anything,
//! and says when it has. Whoever is ahead of another waits before it sends that one more than a few
//! collectives' messages ([`AHEAD`]): so no member must keep more than a fixed number of them, and none waits
//! for ever, since what the slowest needs is never held back.
//!
//! When a member is lost, gives up a collective, or calls another than the others, all of them are told, and
//! the team's collectives are over.

use std::sync::Arc;

use super::buffers::{Kept, Memories};
use super::state::{CollectiveRun, ENDED, Received, Receiving, Sending, Sent};
use crate::collective::{Collective, EAGER_MAX, Plan, Span, Step, TeamId};
use crate::limits::AHEAD;
use crate::node::Node;
use crate::node::operations::op::OpKind;
use crate::op_id::{OpId, OpKey};
use crate::wire::{self, Message, Pace, StepData, TeamMessage};
use crate::{Lane, Nanos, OpError, Place, Rank, SendError, Transport};

/// How a member takes part in a collective.
#[derive(Debug)]
pub struct Start {
    /// What it works on.
    pub memories: Memories,
    /// Whether [`Polled::Local`](crate::node::Polled::Local) is to tell of steps in own memory; otherwise
    /// whoever waits for the outcome asks for them.
    pub steps_told: bool,
    /// When it ends by timeout.
    pub deadline: Option<Nanos>,
    /// Whether it is the one that this member has begun by [`Node::begin_small_collective`], if that has not
    /// gone.
    pub goes_on: bool,
}

/// What a step came to.
pub(in crate::node) enum StepOutcome {
    Advanced,
    Blocked,
}

impl<T: Transport> Node<T> {
    /// Starts a team's next collective, by this member's plan for it. All members must start the same, in the
    /// same order. Memories in the process may be used until there is an outcome for what
    /// [`Node::local_step`] says only. A failure that concerns the team, or giving up this collective, ends
    /// it and all later ones of that team.
    ///
    /// # Panics
    /// When there is no such team, or the engine is to keep more than [`Node::keeps`] allows.
    pub fn collective(&mut self, team: TeamId, what: &Collective, plan: Arc<Plan>, start: Start) -> OpId {
        if let Memories::Kept(kept) = &start.memories {
            assert!(self.keeps(kept.len() as u64), "{} bytes are too many to be kept", kept.len());
        }
        self.note_small();
        let begun = if start.goes_on { self.take_small(team) } else { None };
        let state = self.teams.all.get_mut(&team).expect("the caller has the team");
        if begun.is_none() {
            state.started += 1;
        }
        let number = begun.as_ref().map_or(state.started, |begun| begun.number);
        if !state.early.is_empty() {
            state.count_early();
        }
        let broken = state.broken.filter(|broken| number >= broken.from);
        let run = CollectiveRun {
            team,
            number,
            signature: what.signature(),
            plan,
            at: 0,
            memories: start.memories,
            sends: Vec::new(),
            receives: Vec::new(),
            pulls: Vec::new(),
            open: 0,
            doubted: None,
            steps_told: start.steps_told,
            sent: begun.as_ref().map_or(0, |begun| begun.sent),
            asks_at: None,
        };
        let key = self.ops.insert(OpKind::Collective(Some(Box::new(run))), start.deadline);
        if let Some(broken) = broken {
            self.tell_of_end(key, start.steps_told);
            self.finish(key, Err(broken.error));
            // Who has not been told may wait for this process.
            if !std::mem::replace(&mut self.teams.all.get_mut(&team).expect("it is broken").is_told, true) {
                self.tell_team(team);
            }
            return OpId::of(key);
        }
        self.teams.all.get_mut(&team).expect("looked at above").runs.insert(number, key);
        if let Err(error) = self.check_early(team, number, what.signature()) {
            self.break_team(team, number, error);
            return OpId::of(key);
        }
        self.tell_askers(team);
        self.go_on_with(key);
        for (slot, arrived) in begun.map(|begun| begun.arrived).unwrap_or_default() {
            self.arrive_at(key, slot, arrived);
        }
        OpId::of(key)
    }

    /// Whether the engine can keep memories of so many bytes in all for a collective.
    pub fn keeps(&self, bytes: u64) -> bool {
        bytes <= Kept::MAX.min(self.core.scratch.len() as u64)
    }

    /// The memories of a collective that the engine keeps, until its outcome is taken: operands of the step
    /// that [`Node::local_step`] says, and in the end the result. `None` while they are in the process.
    pub fn kept(&mut self, id: OpId) -> Option<&mut Kept> {
        match &mut self.ops.get_mut(id.key())?.kind {
            OpKind::Collective(Some(run)) => match &mut run.memories {
                Memories::Kept(kept) => Some(kept),
                Memories::At { .. } => None,
            },
            _ => None,
        }
    }

    /// The step in own memory that a collective waits for: a [`Step::Copy`], a [`Step::Combine`] or a
    /// [`Step::Fold`]. After it has been done, [`Node::local_done`] must be called.
    pub fn local_step(&self, id: OpId) -> Option<Step> {
        let op = self.ops.get(id.key()).filter(|op| op.outcome.is_none())?;
        let OpKind::Collective(Some(run)) = &op.kind else { return None };
        let step = *run.plan.steps.get(run.at)?;
        let is_local = matches!(step, Step::Copy { .. } | Step::Combine { .. } | Step::Fold { .. });
        (is_local && run.has_all_of(step)).then_some(step)
    }

    /// Where what the [`Step::Fold`] combines that [`Node::local_step`] says lies: of each of the other
    /// members. Nothing says that there is memory.
    pub fn folded(&self, id: OpId) -> Vec<(Rank, Place)> {
        let (Some(Step::Fold { tag, .. }), Some(op)) = (self.local_step(id), self.ops.get(id.key())) else {
            return Vec::new();
        };
        let OpKind::Collective(Some(run)) = &op.kind else { return Vec::new() };
        let place = |receive: &Receiving| match receive.state {
            Received::Known(place) if receive.tag == tag => Some((receive.from, place)),
            _ => None,
        };
        run.receives.iter().filter_map(place).collect()
    }

    /// The step that [`Node::local_step`] says has been done: the collective goes on.
    pub fn local_done(&mut self, id: OpId) {
        let Some(step) = self.local_step(id) else { return };
        let steps = if let Step::Fold { instead_of, .. } = step { 1 + instead_of as usize } else { 1 };
        self.go_on_after(id, steps);
    }

    /// The [`Step::Fold`] that [`Node::local_step`] says cannot be done, and nothing of it was: the
    /// collective goes on with the steps that do the same.
    pub fn local_refused(&mut self, id: OpId) {
        if let Some(Step::Fold { .. }) = self.local_step(id) {
            self.go_on_after(id, 1);
        }
    }

    fn go_on_after(&mut self, id: OpId, steps: usize) {
        if let Some(OpKind::Collective(Some(run))) = self.ops.get_mut(id.key()).map(|op| &mut op.kind) {
            run.at += steps;
            self.go_on_with(id.key());
        }
    }

    /// Collectives under way.
    pub fn collectives_in_flight(&self) -> usize {
        self.teams.all.values().map(|team| team.runs.len()).sum()
    }

    /// A collective whose step in own memory whoever polls is to do.
    pub(in crate::node) fn next_local(&mut self) -> Option<OpId> {
        self.teams.local.pop_front().map(OpId::of)
    }

    /// Takes a collective's state, to be given back by [`Node::put_run`].
    pub(in crate::node) fn take_run(&mut self, key: OpKey) -> Option<Box<CollectiveRun>> {
        match &mut self.ops.get_mut(key)?.kind {
            OpKind::Collective(run) => run.take(),
            _ => None,
        }
    }

    /// Goes on with a collective as far as that goes.
    pub(in crate::node) fn go_on_with(&mut self, key: OpKey) {
        while let Some(mut run) = self.take_run(key) {
            let result = self.do_steps(key, &mut run);
            if !self.put_run(key, run, result) {
                break;
            }
        }
    }

    /// Gives a collective's state back, and ends it if it is over. Returns whether more of it has come
    /// meanwhile, by which it may go on.
    pub(in crate::node) fn put_run(
        &mut self,
        key: OpKey,
        mut run: Box<CollectiveRun>,
        mut result: Result<(), OpError>,
    ) -> bool {
        let (team, number) = (run.team, run.number);
        let mut more = false;
        while let Some(at) = self.teams.missed.iter().position(|(of, ..)| *of == key) {
            let (_, get, outcome) = self.teams.missed.swap_remove(at);
            result = result.and(self.take_read(&mut run, get, outcome));
            more = true;
        }
        let broken = self.teams.all.get(&team).and_then(|team| team.broken);
        if let Some(broken) = broken.filter(|broken| number >= broken.from) {
            // It was not there to be ended with the others.
            self.end_run(key, &run, broken.error);
            self.forget_team(team);
            return false;
        }
        let over = run.at == run.plan.steps.len() && run.open == 0 && run.doubted.is_none();
        let (steps_told, signature) = (run.steps_told, run.signature);
        if let Some(OpKind::Collective(slot)) = self.ops.get_mut(key).map(|op| &mut op.kind) {
            *slot = Some(run);
        }
        match result {
            Err(error) => self.break_team(team, number, error),
            Ok(()) if over => {
                if let Some(state) = self.teams.all.get_mut(&team) {
                    state.runs.remove(&number);
                    state.ended[number as usize % ENDED] = (number, signature);
                    if !state.early.is_empty() {
                        // Of the same collective, as all that came early is, and no step of it.
                        let unasked = state.early.extract_if(|(of, ..), _| *of == number).count();
                        self.core.counters.malformed += unasked as u64;
                    }
                }
                self.tell_of_end(key, steps_told);
                self.finish(key, Ok(0));
                self.forget_team(team);
            }
            Ok(()) => return more,
        }
        false
    }

    /// Whoever does a collective's steps may let go of its memory.
    fn tell_of_end(&mut self, key: OpKey, steps_told: bool) {
        if steps_told {
            self.teams.local.push_back(key);
        }
    }

    fn do_steps(&mut self, key: OpKey, run: &mut CollectiveRun) -> Result<(), OpError> {
        while let Some(step) = run.plan.steps.get(run.at).copied().filter(|_| run.doubted.is_none()) {
            if let StepOutcome::Blocked = self.do_step(key, run, step)? {
                break;
            }
            run.at += 1;
        }
        Ok(())
    }

    fn do_step(&mut self, key: OpKey, run: &mut CollectiveRun, step: Step) -> Result<StepOutcome, OpError> {
        match step {
            Step::Send { to, tag, from, of } => {
                let to = self.member_rank(run.team, to).expect("plans name members");
                // Its rounds have tags from 0.
                if tag < run.sent {
                    return Ok(StepOutcome::Advanced);
                }
                run.sends.push(Sending { to, tag, from, of, state: Sent::No });
                run.open += 1;
                self.send_step(key, run, run.sends.len() - 1)?;
            }
            Step::Receive { from, tag, into } => self.expect(key, run, (from, tag, into.len), Some(into))?,
            Step::Await { from, tag, len } => self.expect(key, run, (from, tag, len), None)?,
            Step::Pull { from, tag, at, into } => return self.pull(key, run, (from, tag, at), into),
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
                    self.teams.local.push_back(key);
                }
                return Ok(StepOutcome::Blocked);
            }
        }
        Ok(StepOutcome::Advanced)
    }

    fn expect(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        (from, tag, len): (u32, u16, u64),
        into: Option<Span>,
    ) -> Result<(), OpError> {
        let from = self.member_rank(run.team, from).expect("plans name members");
        run.receives.push(Receiving { from, tag, len, into, given_up: 0, state: Received::No });
        run.open += 1;
        let Some(team) = self.teams.all.get_mut(&run.team) else { return Ok(()) };
        match team.early.remove(&(run.number, from, tag)) {
            Some(arrived) => self.receive_step(key, run, run.receives.len() - 1, arrived),
            None if team.paces.contains_key(&from) => Ok(()),
            // Nothing has been said between the two: if the other has given up the team, it says so to those
            // who wait.
            None => {
                let hello = Pace { come_to: team.started, wants: 0, waits_in: None };
                team.paces.entry(from).or_default().told = team.started;
                self.tell(from, run.team, TeamMessage::Pace(hello))
            }
        }
    }

    /// Sends what a step is to send, if what it is made of is confirmed, the receiver has come near enough,
    /// and there is room.
    pub(in crate::node) fn send_step(
        &mut self,
        key: OpKey,
        run: &mut CollectiveRun,
        at: usize,
    ) -> Result<(), OpError> {
        let Sending { to, from, of, .. } = run.sends[at];
        if of.is_some_and(|tag| !run.is_confirmed(tag)) {
            return Ok(());
        }
        let Some(team) = self.teams.all.get_mut(&run.team) else { return Ok(()) };
        let pace = team.paces.entry(to).or_default();
        if run.number > pace.come_to.saturating_add(AHEAD) {
            if pace.asked < run.number {
                pace.asked = run.number;
                let ask = Pace { come_to: team.started, wants: run.number, waits_in: None };
                return self.tell(to, run.team, TeamMessage::Pace(ask));
            }
            return Ok(());
        }
        let data = self.step_data(run, at)?;
        let payload = if data == StepData::Payload { from.len as usize } else { 0 };
        if self.mail.is_taken(to, Lane::Request) {
            self.teams.unsent.push(key);
            return Ok(());
        }
        if payload > 0 {
            run.memories.read(&mut self.core.transport, from, &mut self.core.scratch[..payload])?;
        }
        let (number, tag, signature) = (run.number, run.sends[at].tag, run.signature);
        let step = TeamMessage::Step(wire::Step { number, tag, signature, data: Some(data) });
        let words = Message::Team(run.team, step).encode(payload);
        match self.core.transport.send(to, Lane::Request, &words, &self.core.scratch[..payload]) {
            Ok(()) => {
                let offered = matches!(data, StepData::Offer { .. });
                run.sends[at].state = if offered { Sent::Offered } else { Sent::Over };
                run.close(usize::from(!offered));
                if let Some(team) = self.teams.all.get_mut(&run.team) {
                    let pace = team.paces.entry(to).or_default();
                    pace.told = pace.told.max(run.number);
                }
                Ok(())
            }
            Err(SendError::Busy) => {
                self.teams.unsent.push(key);
                Ok(())
            }
            Err(SendError::Failed(error)) => Err(error),
        }
    }

    /// How the bytes of a step that is to be sent go.
    fn step_data(&mut self, run: &CollectiveRun, at: usize) -> Result<StepData, OpError> {
        let from = run.sends[at].from;
        let len = from.len;
        if len <= 8 {
            let mut bytes = [0; 8];
            run.memories.read(&mut self.core.transport, from, &mut bytes[..len as usize])?;
            return Ok(StepData::Word { len: len as u32, bytes });
        }
        match run.memories.place(from) {
            Some(at) if len > EAGER_MAX.min(self.core.scratch.len() as u64) => {
                // Who cannot see it asks anyway.
                let given_up = self.core.transport.offers_given_up(self.core.rank).unwrap_or(0);
                Ok(StepData::Offer { at, len, given_up })
            }
            _ => Ok(StepData::Payload),
        }
    }

    /// Sends what could not be sent of all collectives. Returns whether anything moved.
    pub(in crate::node) fn retry_collectives(&mut self) -> bool {
        let mut unsent = std::mem::take(&mut self.teams.unsent);
        unsent.sort_unstable();
        unsent.dedup();
        unsent.into_iter().fold(false, |moved, key| self.send_unsent(key) | moved)
    }

    /// Sends what could not be sent of a collective. Returns whether anything moved.
    pub(in crate::node) fn send_unsent(&mut self, key: OpKey) -> bool {
        let Some(mut run) = self.take_run(key) else { return false };
        let left = |run: &CollectiveRun| run.sends.iter().filter(|send| send.state == Sent::No).count();
        let before = left(&run);
        let mut result = Ok(());
        for at in 0..run.sends.len() {
            if result.is_ok() && run.sends[at].state == Sent::No {
                result = self.send_step(key, &mut run, at);
            }
        }
        let moved = left(&run) < before || result.is_err();
        let moved = self.put_run(key, run, result) || moved;
        if moved {
            self.go_on_with(key);
        }
        moved
    }

    /// What collectives under way have offered may change from now on: for a node that ends.
    pub fn give_up_offers(&mut self) {
        if self.collectives_in_flight() > 0 {
            self.core.transport.give_up_offers();
        }
    }

    /// Gives up a collective, and so all later ones of its team.
    pub(in crate::node) fn give_up_collective(&mut self, key: OpKey, error: OpError) {
        let Some(run) = self.take_run(key) else { return };
        let (team, number) = (run.team, run.number);
        self.end_run(key, &run, error);
        self.break_team(
            team,
            number,
            OpError::Team { peer: self.core.rank, what: "has given up one of them" },
        );
    }

    /// Ends a collective that failed, and all that it has under way.
    pub(super) fn end_run(&mut self, key: OpKey, run: &CollectiveRun, error: OpError) {
        if let Some(team) = self.teams.all.get_mut(&run.team) {
            team.runs.remove(&run.number);
        }
        for receive in &run.receives {
            if let Received::Getting(get) = receive.state {
                self.give_up(get, error);
            }
        }
        run.pulls.iter().for_each(|pull| self.give_up(pull.get, error));
        // Whoever waits for the outcome may free it then.
        if run.sends.iter().any(|send| send.state == Sent::Offered) {
            self.core.transport.give_up_offers();
        }
        self.teams.missed.retain(|(of, ..)| *of != key);
        self.tell_of_end(key, run.steps_told);
        self.finish(key, Err(error));
    }
}

//! Starting collectives, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use engine::OpId;
use engine::collective::{Collective, Memory, Plan};
use engine::node::{Kept, Memories, SmallPolled, Start, TeamId};

use super::Team;
use super::buffers::{Buffers, Operands};
use super::fold::do_step;
use crate::api::collective::reduction::Combine;
use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::lock::lock;
use crate::counters::latency::Timed;
use crate::runtime::collective_scratch::Scratch;
use crate::runtime::core::{Engine, NodeCore};
use crate::runtime::wait_policy::WaitPolicy;

/// Bytes of scratch memory that a team keeps, at most.
const SPARE_MAX: u64 = 4 << 20;

impl Team {
    /// A root that a caller names.
    pub(super) fn check(&self, root: u32) -> Result<(), Error> {
        if root < self.size() { Ok(()) } else { Err(Error::NoSuchRoot { root, size: self.size() }) }
    }

    /// Connects to those that this member talks to in a plan. The engine judges which peers are lost; others
    /// must not wait for the connection while a lock is held.
    fn meet(&self, plan: &Plan) -> Result<(), Error> {
        for member in plan.partners() {
            let Some(rank) = self.job_rank(member) else { continue };
            match self.node.core.peers.get(rank, self.node.timeout) {
                Ok(_) | Err(Error::PeerLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The part of this member in a collective, once it is connected to those that it does it with.
    pub(super) fn plan(&self, what: &Collective) -> Result<Arc<Plan>, Error> {
        if let Some((last, plan)) = &lock(&self.membership.recent).plan
            && last == what
        {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(what.plan(self.size(), self.rank()));
        self.meet(&plan)?;
        lock(&self.membership.recent).plan = Some((what.clone(), Arc::clone(&plan)));
        Ok(plan)
    }

    /// One collective, to its end. Scratch memory is added to what `buffers` has.
    pub(super) fn run<T: Pod>(
        &self,
        what: &Collective,
        buffers: Buffers<'_, T>,
        combine: &mut dyn Combine<T>,
    ) -> Result<(), Error> {
        self.node.may_wait("a collective")?;
        let (members, bytes) = (self.size(), buffers.len());
        let _span = tracing::trace_span!("collective", what = what.name(), members, bytes).entered();
        self.node.core.counted.latencies.time(Timed::Collective, || self.run_now(what, buffers, combine))
    }

    fn run_now<T: Pod>(
        &self,
        what: &Collective,
        buffers: Buffers<'_, T>,
        combine: &mut dyn Combine<T>,
    ) -> Result<(), Error> {
        let mut buffers = buffers;
        let mut wait_policy = WaitPolicy::new(self.node.timeout);
        let exchange = self.by_rounds(what, &mut buffers, combine, &mut wait_policy);
        if exchange == Some(Exchange::Over) {
            return Ok(());
        }
        let goes_on = exchange.is_some();
        let timeout = if goes_on { wait_policy.left() } else { self.node.timeout };
        let plan = self.plan(what).inspect_err(|_| {
            if goes_on {
                drop(Abandoned { core: &self.node.core });
            }
        })?;
        if self.node.core.engine().keeps(buffers.len() + plan.scratch) {
            return self.run_kept(what, plan, buffers, combine, (goes_on, timeout));
        }
        let (plan, mut stage) = self.staged(what, plan, &buffers);
        let mut spare = std::mem::take(&mut lock(&self.membership.recent).scratch);
        let mut fresh = Vec::new();
        let scratch = match &mut stage {
            Some(stage) => stage.values(),
            None => scratch(&mut spare, &mut fresh, plan.scratch),
        };
        let mut buffers = Buffers { scratch, ..buffers };
        let (op, core) = (self.begin(what, plan, buffers.places(), goes_on), &self.node.core);
        let ended = self.end(op, timeout, || {
            loop {
                let step = {
                    let mut engine = core.engine();
                    match engine.outcome(op) {
                        Some(outcome) => return Some(outcome),
                        None => engine.local_step(op)?,
                    }
                };
                do_step(core, op, step, &mut buffers, combine);
            }
        });
        lock(&self.membership.recent).scratch = spare;
        ended
    }

    /// One collective in memory of the engine's: no system call is made for it.
    fn run_kept<T: Pod>(
        &self,
        what: &Collective,
        plan: Arc<Plan>,
        buffers: Buffers<'_, T>,
        combine: &mut dyn Combine<T>,
        (goes_on, timeout): (bool, Option<Duration>),
    ) -> Result<(), Error> {
        let kept = std::mem::take(&mut lock(&self.membership.recent).kept);
        let kept = buffers.keep(kept, plan.scratch);
        let (op, core) = (self.begin(what, plan, Memories::Kept(kept), goes_on), &self.node.core);
        let mut gotten = Kept::default();
        self.end(op, timeout, || {
            loop {
                let mut operands = {
                    let mut engine = core.engine();
                    if engine.is_done(op) {
                        gotten = engine.kept(op).map(std::mem::take).unwrap_or_default();
                        return engine.outcome(op);
                    }
                    let step = engine.local_step(op)?;
                    Operands::<T>::of(engine.kept(op)?, step)
                };
                operands.combine(combine);
                let mut engine = core.engine();
                if let Some(kept) = engine.kept(op) {
                    operands.leave(kept);
                }
                engine.local_done(op);
            }
        })?;
        bytemuck::cast_slice_mut(buffers.output).copy_from_slice(gotten.output());
        lock(&self.membership.recent).kept = gotten;
        Ok(())
    }

    /// A collective of a few bytes by its rounds alone, as long as their messages come while it polls.
    /// `None`: it is none, or must be begun otherwise.
    fn by_rounds<T: Pod>(
        &self,
        what: &Collective,
        buffers: &mut Buffers<'_, T>,
        combine: &mut dyn Combine<T>,
        wait_policy: &mut WaitPolicy,
    ) -> Option<Exchange> {
        let core = &self.node.core;
        if size_of_val(buffers.output) > WORD || buffers.input.is_some() || core.has_network() {
            return None;
        }
        let (id, given) = (self.membership.id, word_of(buffers.output));
        let mut next = {
            let mut engine = core.engine();
            if !engine.begin_small_collective(id, what, given) {
                return None;
            }
            engine.poll_small_collective()
        };
        let came = |engine: &mut Engine| match engine.poll_small_collective() {
            SmallPolled::Pending => None,
            exchanged => Some(exchanged),
        };
        loop {
            if next == SmallPolled::Pending {
                let abandoned = Abandoned { core };
                next = core.poll_for(wait_policy, came).unwrap_or(SmallPolled::FallsBack);
                std::mem::forget(abandoned);
            }
            let SmallPolled::Word { word, first, last } = next else { break };
            combine_word(buffers.output, word, first, combine);
            if last {
                return Some(Exchange::Over);
            }
            next = core.engine().next_small_round(word_of(buffers.output));
        }
        let values: &mut [u8] = bytemuck::cast_slice_mut(buffers.output);
        values.copy_from_slice(&given[..values.len()]);
        Some(Exchange::GoesOn)
    }

    /// The plan where others get out of a stage what they would need the kernel's help for, and its scratch
    /// memory then.
    pub(super) fn staged<T: Pod>(
        &self,
        what: &Collective,
        plan: Arc<Plan>,
        buffers: &Buffers<'_, T>,
    ) -> (Arc<Plan>, Option<Scratch>) {
        let core = &self.node.core;
        // Data that goes over a network is copied on its way as it is. And all who map the heap could look
        // into a stage: where not all is exposed, nothing that is not theirs may lie there.
        if core.has_network() || core.peers.own().identity.ranges_only {
            return (plan, None);
        }
        let hidden = [Memory::In, Memory::Out].map(|memory| buffers.is_hidden(core.peers.itself(), memory));
        let bytes = |plan: &Plan| plan.scratch.next_multiple_of(size_of::<T>() as u64);
        match self.staged_plan(what, hidden).and_then(|plan| Some((core.scratch.take(bytes(&plan))?, plan))) {
            Some((stage, staged)) => (staged, Some(stage)),
            None => (plan, None),
        }
    }

    /// The value of [`Collective::staged_plan`] where what is given, and what is gotten, is hidden or not.
    fn staged_plan(&self, what: &Collective, hidden: [bool; 2]) -> Option<Arc<Plan>> {
        let mut recent = lock(&self.membership.recent);
        if let Some((last, memories, plan)) = &recent.staged
            && (last, *memories) == (what, hidden)
        {
            return plan.clone();
        }
        let [given, gotten] = hidden;
        let hidden_now = |memory| match memory {
            Memory::In => given,
            Memory::Out => gotten,
            Memory::Scratch => false,
        };
        let plan = what.staged_plan(self.size(), self.rank(), hidden_now).map(Arc::new);
        recent.staged = Some((what.clone(), hidden, plan.clone()));
        plan
    }

    fn begin(&self, what: &Collective, plan: Arc<Plan>, memories: Memories, goes_on: bool) -> OpId {
        if goes_on {
            // Others may wait for it when this call has returned.
            self.node.core.stand_by_for_team();
        }
        let start = Start { memories, steps_told: false, deadline: None, goes_on };
        self.node.core.engine().collective(self.membership.id, what, plan, start)
    }

    /// Waits for a collective's outcome, which `done` gives.
    fn end(
        &self,
        op: OpId,
        timeout: Option<Duration>,
        done: impl FnMut() -> Option<engine::Outcome>,
    ) -> Result<(), Error> {
        let given_up = GivenUp { team: self, op };
        let outcome = match self.node.wait(timeout, done) {
            Some(outcome) => {
                std::mem::forget(given_up);
                self.node.core.flush_for_others(timeout);
                Some(outcome)
            }
            None if interrupt::has_ended() => {
                drop(given_up);
                return Err(self.node.gave_up("a collective", Error::Interrupted { call: "a collective" }));
            }
            None => match (given_up.end(), self.node.may_call("a collective")) {
                // Its client has closed while it waited.
                (ended, Err(closed)) if !matches!(ended, Some(Ok(_))) => return Err(closed),
                (ended, _) => ended,
            },
        };
        match outcome {
            Some(outcome) => {
                let core = &self.node.core;
                let error = |error| said(core, self.membership.id, core.error_of(error));
                outcome.map(|_| ()).map_err(error)
            }
            None => {
                let late = Error::WaitTimeout { waited_for: "the members at a collective" };
                Err(self.node.gave_up("a collective", late))
            }
        }
    }
}

/// The result of a collective that was begun by its rounds.
#[derive(PartialEq, Eq)]
enum Exchange {
    Over,
    /// It goes on as any other.
    GoesOn,
}

/// Bytes that one message of a round carries.
const WORD: usize = 8;

fn word_of<T: Pod>(values: &[T]) -> [u8; WORD] {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    bytes.try_into().unwrap_or_else(|_| {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        word
    })
}

/// Combines values with those of another member, in the order of the two.
fn combine_word<T: Pod>(values: &mut [T], word: [u8; WORD], first: bool, combine: &mut dyn Combine<T>) {
    if values.is_empty() {
        return;
    }
    let mut others = [T::zeroed(); WORD];
    let others = &mut others[..values.len()];
    match <&mut [u8; WORD]>::try_from(bytemuck::cast_slice_mut(&mut *others)) {
        Ok(bytes) => *bytes = word,
        Err(_) => {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut *others);
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
    if first {
        combine.combine(others, values);
        values.copy_from_slice(others);
    } else {
        combine.combine(values, others);
    }
}

/// Ends a collective by rounds when a handler that ran meanwhile panics.
struct Abandoned<'a> {
    core: &'a NodeCore,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.core.engine().give_up_small_collective();
        self.core.wake();
    }
}

/// How a collective of a team failed, as its caller gets to know it.
pub(super) fn said(core: &NodeCore, team: TeamId, error: Error) -> Error {
    if !matches!(error, Error::Team { .. }) {
        return error;
    }
    match core.engine().difference(team) {
        Some(differ) => Error::Differ { ranks: differ.ranks, what: differ.to_string() },
        None => error,
    }
}

/// Scratch memory of that many bytes: in what the team has kept, made larger if need be, or of its own where
/// that would be much, or does not suit the type. New memory costs a fault a page.
fn scratch<'a, T: Pod>(spare: &'a mut Vec<u128>, fresh: &'a mut Vec<T>, bytes: u64) -> &'a mut [T] {
    let values = (bytes as usize).div_ceil(size_of::<T>());
    let words = (values * size_of::<T>()).div_ceil(size_of::<u128>());
    let suits = size_of::<u128>().is_multiple_of(size_of::<T>()) && align_of::<T>() <= align_of::<u128>();
    if !suits || bytes > SPARE_MAX {
        *fresh = vec![T::zeroed(); values];
        return fresh;
    }
    if spare.len() < words {
        spare.resize(words, 0);
    }
    &mut bytemuck::cast_slice_mut(&mut spare[..words])[..values]
}

/// Ends a collective that is still under way when the wait for it ends early, be it by a panic of the
/// caller's function.
struct GivenUp<'a> {
    team: &'a Team,
    op: OpId,
}

impl GivenUp<'_> {
    fn end(&self) -> Option<engine::Outcome> {
        let core = &self.team.node.core;
        let outcome = {
            let mut engine = core.engine();
            engine.cancel(self.op);
            engine.outcome(self.op)
        };
        // Other collectives of the team have ended with it.
        core.wake();
        outcome
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

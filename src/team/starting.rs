//! Starting collectives, and waiting for them.

use bytemuck::Pod;
use engine::OpId;
use engine::collective::{Collective, Plan};
use engine::node::Start;

use super::Team;
use super::memory::Buffers;
use crate::error::Error;

impl Team {
    /// A member that a caller names.
    pub(super) fn check(&self, member: u32) -> Result<(), Error> {
        if member < self.size() {
            return Ok(());
        }
        Err(Error::NoSuchPeer { peer: member, size: self.size() })
    }

    /// Connects to those that this member talks to in a plan. Who is lost is the engine's to judge; others must not wait for
    /// the connection while a lock is held.
    pub(super) fn meet(&self, plan: &Plan) -> Result<(), Error> {
        for member in plan.partners() {
            let Some(rank) = self.job_rank(member) else { continue };
            match self.node.inner.peers.get(rank, self.node.timeout) {
                Ok(_) | Err(Error::PeerLost { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One collective, to its end. Scratch memory is added to what `buffers` has.
    pub(super) fn run<T: Pod>(
        &self,
        what: &Collective,
        buffers: Buffers<'_, T>,
        combine: &mut dyn FnMut(&mut [T], &[T]),
    ) -> Result<(), Error> {
        self.node.inner.may_wait("a collective")?;
        let plan = what.plan(self.size(), self.rank());
        self.meet(&plan)?;
        let mut scratch = vec![T::zeroed(); (plan.scratch as usize).div_ceil(size_of::<T>())];
        let mut buffers = Buffers { scratch: &mut scratch, ..buffers };
        let [input, output, scratch] = buffers.places();
        let start = Start { input, output, scratch, steps_told: false, deadline: None };
        let inner = &self.node.inner;
        let op = inner.engine().collective(self.membership.id, what, plan, start);
        let given_up = GivenUp { team: self, op };
        let done = || {
            loop {
                let step = {
                    let mut engine = inner.engine();
                    match engine.outcome(op) {
                        Some(outcome) => return Some(outcome),
                        None => engine.local_step(op)?,
                    }
                };
                buffers.apply(step, combine);
                inner.engine().local_done(op);
            }
        };
        match inner.wait(self.node.timeout, done) {
            Some(outcome) => {
                std::mem::forget(given_up);
                outcome.map(|_| ()).map_err(Error::from)
            }
            None => match given_up.end() {
                Some(outcome) => outcome.map(|_| ()).map_err(Error::from),
                None => Err(Error::Timeout { peer: self.node.rank() }),
            },
        }
    }
}

/// Ends a collective that is still under way when the wait for it ends early, be it by a panic of the caller's function.
struct GivenUp<'a> {
    team: &'a Team,
    op: OpId,
}

impl GivenUp<'_> {
    fn end(&self) -> Option<engine::Outcome> {
        let mut engine = self.team.node.inner.engine();
        engine.cancel(self.op);
        engine.outcome(self.op)
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

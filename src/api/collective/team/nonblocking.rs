//! The collectives that return at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytemuck::Pod;
use engine::OpId;
use engine::collective::{Collective, Elements, Reduction};
use engine::node::{NO_PEER, Start, TeamId};

use super::Team;
use super::blocking::{FROM, bytes_of, expect_len, own_elements};
use super::buffers::Buffers;
use super::fold::do_step;
use super::run::said;
use crate::api::collective::reduction::{BuiltIn, Combine, Element};
use crate::api::ops::event::Event;
use crate::base::error::Error;
use crate::base::handler_scope::HandlerScope;
use crate::base::lock::lock;
use crate::counters::latency::Timed;
use crate::runtime::background_steps::LocalSteps;
use crate::runtime::collective_scratch::Scratch;
use crate::runtime::core::NodeCore;

/// How values are combined, by whoever makes progress.
pub(super) type Combining<T> = Box<dyn Combine<T> + Send>;

/// A collective under way, and the memory that it uses.
///
/// Awaiting it and [`wait`](TeamEvent::wait) give the result. Dropping it lets the collective go on, with its
/// memory kept as long as that is needed, and [`Node::quiet`](crate::Node::quiet), which does not wait for
/// it, report its failure once it has failed. Other members wait until this one goes on. It does so in any
/// call that waits, and by the progress thread: at once where a task awaits, and else once messages have
/// waited for 10 ms. Where [`ProgressThread::Off`](crate::ProgressThread::Off) rules that out, they wait
/// until this one's task is polled.
#[must_use = "dropping the event leaves the collective's failure to the next `quiet`"]
pub struct TeamEvent<T: Pod + Send> {
    event: Event<()>,
    owned: Arc<Owned<T>>,
    team: TeamId,
}

struct Owned<T> {
    core: Weak<NodeCore>,
    memory: Mutex<OwnMemory<T>>,
}

struct OwnMemory<T> {
    /// `None`: what is given lies where the result will be.
    input: Option<Vec<T>>,
    output: Vec<T>,
    scratch: Vec<T>,
    /// Scratch memory instead of that.
    stage: Option<Scratch>,
    combine: Combining<T>,
}

impl<T: Pod> OwnMemory<T> {
    fn buffers(&mut self) -> (Buffers<'_, T>, &mut Combining<T>) {
        let OwnMemory { input, output, scratch, stage, combine } = self;
        let scratch = stage.as_mut().map_or(&mut scratch[..], Scratch::values);
        (Buffers { input: input.as_deref(), output, scratch }, combine)
    }
}

impl<T: Pod + Send> LocalSteps for Owned<T> {
    fn run(&self, op: OpId) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        loop {
            let next = core.engine().local_step(op);
            if next.is_none() {
                break;
            }
            // One thread at a time is at these steps, and looks once more when it has let go. It may be this
            // one, in the caller's function.
            let mut memory = match self.memory.try_lock() {
                Ok(memory) => memory,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return true,
            };
            let panicking = GivenUp { core: &core, op };
            loop {
                let step = core.engine().local_step(op);
                let Some(step) = step else { break };
                let (mut buffers, combine) = memory.buffers();
                do_step(&core, op, step, &mut buffers, &mut **combine);
            }
            std::mem::forget(panicking);
        }
        !core.engine().is_locally_done(op)
    }
}

/// Ends a collective when the caller's function panics, and forgets the function.
struct GivenUp<'a> {
    core: &'a NodeCore,
    op: OpId,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.core.engine().end_panicked(self.op);
        self.core.background_steps().remove(self.op);
        // Other collectives of the team have ended with it.
        self.core.wake();
    }
}

impl<T: Pod + Send> TeamEvent<T> {
    /// Whether the collective has ended here; makes progress once if it has not. Never waits.
    pub fn is_complete(&mut self) -> bool {
        self.event.is_complete()
    }

    /// Waits at most `time` for the collective to end here, and says whether it has; it goes on if it has
    /// not.
    ///
    /// # Errors
    /// [`Error::InHandler`] in a handler, if it has not ended yet.
    pub fn wait_at_most(&mut self, time: Duration) -> Result<bool, Error> {
        self.event.wait_at_most(time)
    }

    /// Waits until the collective has ended here, and gives how it ended and the values: the result where it
    /// ended well and this member gets one, and anything otherwise. When the node's timeout passes first, and
    /// in a handler, it is given up, and the team's collectives with it.
    pub fn wait(self) -> (Result<(), Error>, Vec<T>) {
        let TeamEvent { event, owned, team } = self;
        let (result, ()) = event.wait();
        if let Some(core) = owned.core.upgrade().filter(|core| core.may_wait("a collective").is_ok()) {
            core.flush_for_others(None);
        }
        (result.map_err(|error| owned.said(team, error)), owned.take())
    }
}

impl<T> Owned<T> {
    fn take(&self) -> Vec<T> {
        if self.core.upgrade().is_some_and(|core| core.is_forked()) {
            // In a child, a thread of the parent's that held the lock is not there to let go of it.
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.memory).output)
    }

    fn said(&self, team: TeamId, error: Error) -> Error {
        match self.core.upgrade() {
            Some(core) => said(&core, team, error),
            None => error,
        }
    }
}

impl<T: Pod + Send> fmt::Debug for TeamEvent<T> {
    /// Leaves the memory out: the engine may be writing it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamEvent").field("event", &self.event).finish_non_exhaustive()
    }
}

impl<T: Pod + Send> Future for TeamEvent<T> {
    type Output = (Result<(), Error>, Vec<T>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = Pin::new(&mut self.event).poll(cx);
        ended.map(|(result, ())| {
            (result.map_err(|error| self.owned.said(self.team, error)), self.owned.take())
        })
    }
}

/// The input, and room for the result.
struct Given<T> {
    what: Result<Collective, Error>,
    input: Option<Vec<T>>,
    output: Vec<T>,
    combine: Combining<T>,
}

impl<T: Pod> Given<T> {
    fn new(what: Collective, input: Option<Vec<T>>, output: Vec<T>) -> Given<T> {
        Given { what: Ok(what), input, output, combine: Box::new(|_: &mut [T], _: &[T]| {}) }
    }
}

/// The function that combines elements, kept for the thread that makes progress.
pub(super) fn boxed<T, C: Combine<T> + Send + 'static>(
    by: Result<(C, Elements), Error>,
) -> Result<(Combining<T>, Elements), Error> {
    by.map(|(combine, elements)| (Box::new(combine) as Combining<T>, elements))
}

/// Collectives that return at once. Errors show in the event; they are those of the blocking forms.
impl Team {
    /// [`Team::barrier`].
    pub fn barrier_nb(&self) -> TeamEvent<u8> {
        self.start(Given::new(Collective::Barrier, None, Vec::new()))
    }

    /// [`Team::broadcast`] of a vector, which must be as long at all members.
    pub fn broadcast_nb<T: Pod + Send>(&self, values: Vec<T>, root: u32) -> TeamEvent<T> {
        let what = Collective::Broadcast { root, len: bytes_of(&values) };
        self.start(Given {
            what: self.check(root).map(|()| what),
            ..Given::new(Collective::Barrier, None, values)
        })
    }

    /// [`Team::gather`]: the result is all members' values at the root, and empty elsewhere.
    pub fn gather_nb<T: Pod + Send>(&self, from: Vec<T>, root: u32) -> TeamEvent<T> {
        let what = Collective::Gather { root, block: bytes_of(&from) };
        let room = if root == self.rank() { self.room(from.len()) } else { Vec::new() };
        self.start(Given {
            what: self.check(root).map(|()| what),
            ..Given::new(Collective::Barrier, Some(from), room)
        })
    }

    /// [`Team::scatter`] of so many values for each member. `from` is used at the root only.
    pub fn scatter_nb<T: Pod + Send>(&self, from: Vec<T>, each: usize, root: u32) -> TeamEvent<T> {
        let room = vec![T::zeroed(); each];
        let what = Collective::Scatter { root, block: bytes_of(&room) };
        let fits = match root == self.rank() {
            true => expect_len(FROM, from.len(), each * self.size() as usize),
            false => Ok(()),
        };
        let what = self.check(root).and(fits).map(|()| what);
        self.start(Given { what, ..Given::new(Collective::Barrier, Some(from), room) })
    }

    /// [`Team::all_gather`].
    pub fn all_gather_nb<T: Pod + Send>(&self, from: Vec<T>) -> TeamEvent<T> {
        let room = self.room(from.len());
        self.start(Given::new(Collective::AllGather { block: bytes_of(&from) }, Some(from), room))
    }

    /// [`Team::all_to_all`].
    pub fn all_to_all_nb<T: Pod + Send>(&self, from: Vec<T>) -> TeamEvent<T> {
        let each = from.len() / self.size() as usize;
        let what = Collective::AllToAll { block: bytes_of(&from[..each]) };
        let fits = expect_len(FROM, from.len(), each * self.size() as usize);
        let room = vec![T::zeroed(); from.len()];
        self.start(Given { what: fits.map(|()| what), ..Given::new(Collective::Barrier, Some(from), room) })
    }

    /// [`Team::all_to_all_v`].
    pub fn all_to_all_v_nb<T: Pod + Send>(
        &self,
        from: Vec<T>,
        sends: &[usize],
        receives: &[usize],
    ) -> TeamEvent<T> {
        // A call that is refused below needs no room.
        let all = receives.iter().try_fold(0usize, |all, count| all.checked_add(*count));
        let room = vec![T::zeroed(); all.filter(|_| receives.len() == self.size() as usize).unwrap_or(0)];
        let what = self.all_to_all_v_of(&from, sends, &room, receives);
        self.start(Given { what, ..Given::new(Collective::Barrier, Some(from), room) })
    }

    /// [`Team::reduce`]: the result is the root's.
    pub fn reduce_nb<T: Element + Send>(
        &self,
        from: Vec<T>,
        root: u32,
        reduction: Reduction,
    ) -> TeamEvent<T> {
        let built_in = BuiltIn::of::<T>(reduction, from.len() as u64);
        self.reduce_by_nb(from, root, boxed(built_in))
    }

    /// [`Team::reduce_with`]: the result is the root's. The function runs as a handler does, on any thread.
    pub fn reduce_with_nb<T: Pod + Send>(
        &self,
        from: Vec<T>,
        root: u32,
        combine: impl FnMut(&mut [T], &[T]) + Send + 'static,
    ) -> TeamEvent<T> {
        let elements = own_elements(&from);
        self.reduce_by_nb(from, root, boxed(Ok((combine, elements))))
    }

    pub(super) fn reduce_by_nb<T: Pod + Send>(
        &self,
        from: Vec<T>,
        root: u32,
        by: Result<(Combining<T>, Elements), Error>,
    ) -> TeamEvent<T> {
        let room = if root == self.rank() { vec![T::zeroed(); from.len()] } else { Vec::new() };
        let what = |elements| Collective::Reduce { root, elements };
        let by = self.check(root).and(by);
        self.start(self.given_by(by, what, Some(from), room))
    }

    /// [`Team::all_reduce`].
    pub fn all_reduce_nb<T: Element + Send>(&self, values: Vec<T>, reduction: Reduction) -> TeamEvent<T> {
        let built_in = BuiltIn::of::<T>(reduction, values.len() as u64);
        self.all_reduce_by_nb(values, boxed(built_in))
    }

    /// [`Team::all_reduce_with`]. The function runs as a handler does, on any thread.
    pub fn all_reduce_with_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl FnMut(&mut [T], &[T]) + Send + 'static,
    ) -> TeamEvent<T> {
        let elements = own_elements(&values);
        self.all_reduce_by_nb(values, boxed(Ok((combine, elements))))
    }

    pub(super) fn all_reduce_by_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        by: Result<(Combining<T>, Elements), Error>,
    ) -> TeamEvent<T> {
        let what = |elements| Collective::AllReduce { elements };
        self.start(self.given_by(by, what, None, values))
    }

    /// The input of a reduction.
    fn given_by<T: Pod>(
        &self,
        by: Result<(Combining<T>, Elements), Error>,
        what: impl FnOnce(Elements) -> Collective,
        mut input: Option<Vec<T>>,
        mut output: Vec<T>,
    ) -> Given<T> {
        match by {
            Ok((mut combine, elements)) => {
                if self.size() == 1 {
                    combine.settle(input.as_mut().unwrap_or(&mut output));
                }
                Given { what: Ok(what(elements)), input, output, combine }
            }
            Err(error) => Given { what: Err(error), ..Given::new(Collective::Barrier, input, output) },
        }
    }

    fn room<T: Pod>(&self, each: usize) -> Vec<T> {
        vec![T::zeroed(); each * self.size() as usize]
    }

    fn start<T: Pod + Send>(&self, given: Given<T>) -> TeamEvent<T> {
        let Given { what, input, output, combine } = given;
        let core = &self.node.core;
        let what = self.node.may_call("a collective").and(what);
        let plan = what.and_then(|what| self.plan(&what).map(|plan| (what, plan)));
        let mut memory = OwnMemory { input, output, scratch: Vec::new(), stage: None, combine };
        let plan = plan.map(|(what, plan)| {
            let (plan, stage) = self.staged(&what, plan, &memory.buffers().0);
            if stage.is_none() {
                memory.scratch = vec![T::zeroed(); (plan.scratch as usize).div_ceil(size_of::<T>())];
            }
            memory.stage = stage;
            (what, plan)
        });
        let memory = Mutex::new(memory);
        let owned = Arc::new(Owned { core: Arc::downgrade(core), memory });
        let started = plan.map(|(what, plan)| {
            let memories = lock(&owned.memory).buffers().0.places();
            let start = Start { memories, steps_told: true, deadline: self.node.deadline(), goes_on: false };
            let begun = core.begin(Timed::Collective);
            let mut engine = self.node.engine();
            let op = engine.collective(self.membership.id, &what, plan, start);
            // Before anybody else can be told of its steps. It keeps the memory, too.
            core.background_steps().insert(op, Arc::clone(&owned) as Arc<dyn LocalSteps>);
            drop(engine);
            // Others wait for its steps, whatever this process does next.
            core.stand_by_for_team();
            (op, begun)
        });
        let first = started.as_ref().ok().copied();
        let started = started.map(|(op, _)| Some(op));
        let team = self.membership.id;
        // There before the caller's function runs, which may panic.
        let event = TeamEvent { event: Event::new(&self.node, NO_PEER, started, ()), owned, team };
        if let Some((op, begun)) = first {
            let _scope = HandlerScope::enter();
            core.background_steps().run(op);
            if let Some(begun) = begun {
                core.follow(Timed::Collective, begun, op);
            }
        }
        event
    }
}

//! Handlers, each on the thread that began it. One that may wait has a stack of its own.
//!
//! A handler of a C program that waits in the middle of its message is never unwound, which it could not
//! bear: [`ManuallyDrop`] keeps its coroutine from being dropped. Where it cannot go on its stack is left as
//! it is, for as long as the process lives.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use super::arrival::Own;
use super::incoming::{Beginning, Dispatch, Done, Incoming};
use super::notices::Notice;
use super::shared::{Counters, Shared};
use super::stream::Stream;

/// Bytes of a handler's stack, below which lies a guard page. They cost memory where they are used.
const STACK_BYTES: usize = 1 << 20;

/// Spare stacks of a thread.
const SPARE_MAX: usize = 64;

type Task = Coroutine<(), (), Option<Done>, DefaultStack>;

thread_local! {
    static RUNNER: Runner = Runner::new();
}

/// The handlers of one thread.
pub(crate) struct Runner {
    /// Its thread's.
    pub(crate) token: u64,
    /// The handler that runs, if one does.
    current: Cell<Option<Current>>,
    /// How many run, each in a call of the one before.
    depth: Cell<u32>,
    suspended: RefCell<Vec<Suspended>>,
    stacks: RefCell<Vec<DefaultStack>>,
}

/// A handler that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) run: u64,
    /// Where its [`Incoming`] lies.
    pub(crate) incoming: usize,
}

/// A handler that waits for more of its message.
pub(crate) struct Suspended {
    current: Current,
    task: ManuallyDrop<Task>,
    pub(crate) stream: Arc<Stream>,
    shared: Arc<Shared>,
}

/// What became of a handler.
pub(crate) enum Ran {
    /// It returned. `None`: there is none of that number.
    Returned(Option<Done>),
    /// It waits.
    Waits(Suspended),
}

impl Runner {
    fn new() -> Runner {
        Runner {
            token: Own::token(),
            current: Cell::new(None),
            depth: Cell::new(0),
            suspended: RefCell::default(),
            stacks: RefCell::default(),
        }
    }

    /// Does something with this thread's handlers: `None` while the thread ends.
    #[inline]
    pub(crate) fn with<R>(run: impl FnOnce(&Runner) -> R) -> Option<R> {
        RUNNER.try_with(run).ok()
    }

    /// The handler that runs on this thread, if one does.
    #[inline]
    pub(crate) fn current() -> Option<Current> {
        Runner::with(|runner| runner.current.get()).flatten()
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.get()
    }

    /// Sees to it that there is a stack: `false` where the system gives none.
    #[inline]
    pub(crate) fn has_stack(&self, counters: &Counters) -> bool {
        let mut stacks = self.stacks.borrow_mut();
        if stacks.is_empty() {
            let Ok(stack) = DefaultStack::new(STACK_BYTES) else { return false };
            Counters::add(&counters.stacks, 1);
            stacks.push(stack);
        }
        true
    }

    /// Runs the handler of a whole message on the calling thread's stack: it cannot wait.
    #[inline]
    pub(crate) fn start_here(
        &self,
        shared: &Shared,
        dispatch: &Dispatch,
        begins: Beginning,
        run: u64,
    ) -> Ran {
        let _within = Within::enter(self, Current { run, incoming: 0 });
        let incoming = Incoming::new(shared, None, begins);
        let place = std::ptr::from_ref(&incoming).expose_provenance();
        self.current.set(Some(Current { run, incoming: place }));
        Ran::Returned(dispatch(&incoming))
    }

    /// Runs a message's handler on a stack of its own, until it returns or waits. There must be
    /// [a stack](Runner::has_stack).
    pub(crate) fn start(
        &self,
        shared: &Arc<Shared>,
        dispatch: &Arc<Dispatch>,
        begins: Beginning,
        run: u64,
    ) -> Ran {
        let stack = self.stacks.borrow_mut().pop().expect("the caller has seen to it");
        let rest = begins.rest.clone();
        let (its_shared, dispatch) = (Arc::clone(shared), Arc::clone(dispatch));
        let task = Coroutine::with_stack(stack, move |yielder, ()| {
            let incoming = Incoming::new(&its_shared, Some(yielder), begins);
            let place = std::ptr::from_ref(&incoming).expose_provenance();
            Runner::with(|runner| runner.current.set(Some(Current { run, incoming: place })));
            dispatch(&incoming)
        });
        let current = Current { run, incoming: 0 };
        match self.resume(ManuallyDrop::new(task), current) {
            Ok(done) => Ran::Returned(done),
            Err((task, current)) => {
                let stream = rest.expect("a handler waits only for packets that are to come");
                Ran::Waits(Suspended { current, task, stream, shared: Arc::clone(shared) })
            }
        }
    }

    /// Lets a handler go on that waited.
    pub(crate) fn go_on(&self, suspended: Suspended) -> Ran {
        let Suspended { current, task, stream, shared } = suspended;
        match self.resume(task, current) {
            Ok(done) => Ran::Returned(done),
            Err((task, current)) => Ran::Waits(Suspended { current, task, stream, shared }),
        }
    }

    fn resume(
        &self,
        mut task: ManuallyDrop<Task>,
        current: Current,
    ) -> Result<Option<Done>, (ManuallyDrop<Task>, Current)> {
        let within = Within::enter(self, current);
        let result = task.resume(());
        let current = self.current.get().unwrap_or(current);
        drop(within);
        let CoroutineResult::Return(done) = result else { return Err((task, current)) };
        let mut stacks = self.stacks.borrow_mut();
        let stack = ManuallyDrop::into_inner(task).into_stack();
        if stacks.len() < SPARE_MAX {
            stacks.push(stack);
        }
        Ok(done)
    }

    /// Keeps a handler until more of its message comes.
    pub(crate) fn keep(&self, suspended: Suspended) {
        self.suspended.borrow_mut().push(suspended);
    }

    /// The handler of that stream, if it waits here.
    pub(crate) fn take(&self, shared: &Arc<Shared>, run: u64) -> Option<Suspended> {
        let mut suspended = self.suspended.borrow_mut();
        let is_it = |it: &Suspended| it.current.run == run && Arc::ptr_eq(&it.shared, shared);
        let at = suspended.iter().position(is_it)?;
        Some(suspended.swap_remove(at))
    }

    /// All handlers that wait here for messages of that instance of the layer.
    pub(crate) fn take_all(&self, shared: &Arc<Shared>) -> Vec<Suspended> {
        let mut suspended = self.suspended.borrow_mut();
        suspended.extract_if(.., |it| Arc::ptr_eq(&it.shared, shared)).collect()
    }
}

impl Suspended {
    /// Leaves it where it is for good: its stack is not used again, and nothing on it is dropped.
    pub(crate) fn set_aside(self) {
        let Suspended { stream, shared, task: _, current } = self;
        let from = stream.from;
        (0..stream.discard()).for_each(|_| shared.consumed(from));
        shared.give_up_of(current.run);
        Counters::add(&shared.counters.set_aside, 1);
        shared.notices.add(Notice::SetAside { from });
    }
}

/// The thread ends: its handlers can be gone on with nowhere else.
impl Drop for Runner {
    fn drop(&mut self) {
        self.suspended.take().into_iter().for_each(Suspended::set_aside);
    }
}

/// The time in which a handler runs, be it ended by a panic.
struct Within<'a> {
    runner: &'a Runner,
    outer: Option<Current>,
}

impl<'a> Within<'a> {
    fn enter(runner: &'a Runner, current: Current) -> Within<'a> {
        runner.depth.set(runner.depth.get() + 1);
        Within { runner, outer: runner.current.replace(Some(current)) }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.runner.depth.set(self.runner.depth.get() - 1);
        self.runner.current.set(self.outer);
    }
}

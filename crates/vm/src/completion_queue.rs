//! A queue of what has ended, out of a table of what is under way, with a descriptor that can be read when
//! there is something to take, and only then.
//!
//! All of it lies under one lock, which its usual thread enters for next to nothing. The descriptor is
//! touched when the first thing arrives and when the last one is taken, and only once somebody looks at it:
//! whoever takes by calls pays no system call. To *raise* it wakes who sleeps on it, which takes its time and
//! is done with the lock let go: else whoever is woken would find the lock taken. To *lower* it is done under
//! the lock, by the taker, and once more by the last of those who were raising it meanwhile, where there is
//! nothing any more.

use std::collections::VecDeque;
use std::io;
#[cfg(not(any(loom, miri)))]
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Waker;

use slab::Slab;

use crate::biased::{BiasedGuard, BiasedLock};

/// A queue of at most so many things, under way and ended together.
///
/// Any thread may call, also several at once; none waits here. In a child made by `fork` its parent's queue
/// is nobody's to call.
pub struct CompletionQueue<T> {
    state: BiasedLock<State<T>>,
    capacity: usize,
    descriptor: Descriptor,
}

struct State<T> {
    /// How many there are, and are to come.
    len: usize,
    under_way: Slab<Slot<T>>,
    /// In the order of their ends.
    ended: VecDeque<Ended<T>>,
    /// Threads that are about to sleep until something ends, or do.
    sleepers: usize,
    /// Tasks that are to be woken, one for each end, in the order in which they came.
    tasks: VecDeque<(Task, Waker)>,
    last_task: u64,
    signal: Signal,
    /// The descriptor can be read, as far as those know who are not raising it.
    is_raised: bool,
    /// Threads that are raising it.
    raising: u32,
}

/// One that is or was under way.
struct Slot<T> {
    thing: T,
    has_ended: bool,
}

/// One that has ended.
enum Ended<T> {
    /// It never was under way here.
    Thing(T),
    /// It was, in that place, and lies there still.
    At(usize),
}

/// Whether anybody looks at the descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    Unseen,
    Seen,
    /// It cannot be relied upon, and is raised anew whenever somebody has looked in vain.
    Always,
}

/// A task that waits, or has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task(u64);

/// Whom to let go on, with no lock held: what wakes a task may run it.
#[must_use = "somebody sleeps who is to be woken"]
#[derive(Default)]
pub struct Awaiting(
    /// Nearly always there is nobody, and then nothing more than that is handed on.
    Option<Box<Awoken>>,
);

struct Awoken {
    tasks: VecDeque<(Task, Waker)>,
    has_sleepers: bool,
}

impl Awaiting {
    /// Wakes the tasks, and the threads by `wake_threads`.
    #[inline]
    pub fn wake(self, wake_threads: impl FnOnce()) {
        let Some(awoken) = self.0 else { return };
        if awoken.has_sleepers {
            wake_threads();
        }
        awoken.tasks.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Where something that is under way lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl<T> CompletionQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// The system's, when it gives no descriptor.
    pub fn new(capacity: usize) -> io::Result<CompletionQueue<T>> {
        let state = State {
            len: 0,
            under_way: Slab::new(),
            ended: VecDeque::new(),
            sleepers: 0,
            tasks: VecDeque::new(),
            last_task: 0,
            signal: Signal::Unseen,
            is_raised: false,
            raising: 0,
        };
        Ok(CompletionQueue { state: BiasedLock::new(state), capacity, descriptor: Descriptor::new()? })
    }

    /// Things that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many there are, under way and ended, and are to come.
    #[inline]
    pub fn len(&self) -> usize {
        self.state.lock().len
    }

    /// Whether there is nothing in it, nor to come.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps room for one; `false` where there is none left.
    #[inline]
    pub fn reserve(&self) -> bool {
        let mut state = self.state.lock();
        let is_room = state.len < self.capacity;
        state.len += usize::from(is_room);
        is_room
    }

    /// Gives room back that was kept for nothing.
    pub fn release(&self) -> Awaiting {
        let mut state = self.state.lock();
        assert!(state.len > 0, "room that is given back was kept");
        state.len -= 1;
        state.look_if_empty()
    }

    /// Puts something that is under way where room was kept.
    pub fn begin(&self, thing: T) -> Place {
        Place(self.state.lock().under_way.insert(Slot { thing, has_ended: false }))
    }

    /// Puts something that has ended where room was kept.
    #[inline]
    pub fn begin_ended(&self, thing: T) -> Awaiting {
        let mut state = self.state.lock();
        state.ended.push_back(Ended::Thing(thing));
        self.announce(state)
    }

    /// The thing in a place has ended, if it is still the one that the caller means.
    pub fn end(&self, place: Place, is_it: impl FnOnce(&T) -> bool) -> Awaiting {
        let mut state = self.state.lock();
        match state.under_way.get_mut(place.0) {
            Some(slot) if !slot.has_ended && is_it(&slot.thing) => {
                slot.has_ended = true;
                state.ended.push_back(Ended::At(place.0));
                self.announce(state)
            }
            _ => Awaiting(None),
        }
    }

    #[inline]
    fn announce(&self, mut state: BiasedGuard<'_, State<T>>) -> Awaiting {
        let is_awaited = state.sleepers > 0 || !state.tasks.is_empty();
        let awaiting = if is_awaited { state.let_go(1) } else { Awaiting(None) };
        let is_to_be_raised = state.signal == Signal::Seen && !state.is_raised;
        state.raising += u32::from(is_to_be_raised);
        drop(state);
        if is_to_be_raised {
            self.raise();
        }
        awaiting
    }

    /// For one of those who are counted as raising it.
    fn raise(&self) {
        self.descriptor.raise();
        let mut state = self.state.lock();
        assert!(state.raising > 0, "who raises the descriptor is counted");
        state.raising -= 1;
        if state.raising > 0 {
            return;
        }
        if !state.ended.is_empty() {
            state.is_raised = true;
        } else if !state.is_raised && state.signal == Signal::Seen {
            // The taker of the last one could not know whether those who were raising it had.
            self.descriptor.lower();
        }
    }

    /// Takes what has ended first; the descriptor says from then on whether there is more. Where nothing is
    /// to come any more, all who wait are let go on, threads by `wake_threads`.
    #[inline]
    pub fn take(&self, wake_threads: impl FnOnce()) -> Option<T> {
        let mut state = self.state.lock();
        let taken = match state.ended.pop_front() {
            Some(Ended::Thing(thing)) => Some(thing),
            Some(Ended::At(place)) => state.under_way.try_remove(place).map(|slot| slot.thing),
            None => None,
        };
        state.len -= usize::from(taken.is_some());
        if state.ended.is_empty() && state.signal != Signal::Unseen {
            self.quieten(&mut state);
        }
        if state.len == 0 && (state.sleepers > 0 || !state.tasks.is_empty()) {
            let awaiting = state.look_if_empty();
            drop(state);
            awaiting.wake(wake_threads);
        }
        taken
    }

    /// Nothing has ended that is not taken.
    fn quieten(&self, state: &mut State<T>) {
        let is_always = state.signal == Signal::Always;
        if state.is_raised || state.raising > 0 || is_always {
            self.descriptor.lower();
            state.is_raised = false;
        }
        if is_always {
            match state.len {
                0 => state.signal = Signal::Seen,
                _ => self.descriptor.raise(),
            }
        }
    }

    /// Takes out those under way of which `is_it` says so, and keeps their room. Ended operations stay.
    pub fn take_out(&self, mut is_it: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut state = self.state.lock();
        let all = state.under_way.iter().filter(|(_, slot)| !slot.has_ended && is_it(&slot.thing));
        let places: Vec<usize> = all.map(|(place, _)| place).collect();
        places.into_iter().map(|place| state.under_way.remove(place).thing).collect()
    }

    /// A look from outside that may be worth while: makes whoever looks at the queue look again, the
    /// descriptor raised until then.
    pub fn nudge(&self) -> Awaiting {
        let mut state = self.state.lock();
        if state.under_way.is_empty() {
            return Awaiting(None);
        }
        if state.signal == Signal::Seen && !state.is_raised {
            self.descriptor.raise();
            state.is_raised = true;
        }
        state.let_go(usize::MAX)
    }

    /// From now on the descriptor says whether there is something to take. Whether it did not before, and
    /// something is to come.
    pub fn observe(&self) -> bool {
        let mut state = self.state.lock();
        if state.signal != Signal::Unseen {
            return false;
        }
        state.signal = Signal::Seen;
        if !state.ended.is_empty() {
            self.descriptor.raise();
            state.is_raised = true;
        }
        state.len > 0
    }

    /// Nobody will raise the descriptor when something ends: it is raised now, and after each look in vain,
    /// until nothing is to come.
    pub fn raise_always(&self) {
        let mut state = self.state.lock();
        if state.signal != Signal::Unseen {
            state.signal = Signal::Always;
            self.descriptor.raise();
        }
    }

    /// Has a task woken when something ends that no other task is woken for, or when nothing is to come; that
    /// of `before`, if it waits still, no more. `None` where something has ended, or nothing is to come: look
    /// again.
    pub fn wake_later(&self, waker: &Waker, before: Option<Task>) -> Option<Task> {
        // A copy runs the executor's code, and so may the drop of the one before.
        let copy = waker.clone();
        let (task, _before) = {
            let mut state = self.state.lock();
            let before = state.forget(before);
            if state.ended.is_empty() && state.len > 0 {
                state.last_task += 1;
                let task = Task(state.last_task);
                state.tasks.push_back((task, copy));
                (Some(task), (before, None))
            } else {
                (None, (before, Some(copy)))
            }
        };
        task
    }

    /// A task waits no more. If it was woken, and has left what it was woken for, another one is.
    pub fn leave(&self, task: Task) -> Awaiting {
        let (known, awaiting) = {
            let mut state = self.state.lock();
            match state.forget(Some(task)) {
                None if !state.ended.is_empty() => (None, state.let_go(1)),
                known => (known, Awaiting(None)),
            }
        };
        drop(known);
        awaiting
    }

    /// Counts a thread that will sleep until something ends, for as long as the value lives. It looks once
    /// more after this, and before it sleeps.
    pub fn sleeper(&self) -> Sleeper<'_, T> {
        self.state.lock().sleepers += 1;
        Sleeper(self)
    }

    /// Takes everything, under way or ended; room that is kept stays.
    pub fn take_all(&self) -> Vec<T> {
        let mut state = self.state.lock();
        let apart = std::mem::take(&mut state.ended).into_iter().filter_map(|ended| match ended {
            Ended::Thing(thing) => Some(thing),
            Ended::At(_) => None,
        });
        let mut all: Vec<T> = apart.collect();
        all.extend(std::mem::take(&mut state.under_way).into_iter().map(|(_, slot)| slot.thing));
        state.len -= all.len();
        if state.signal != Signal::Unseen {
            self.quieten(&mut state);
        }
        all
    }
}

impl<T> State<T> {
    /// All who wait, where there is nothing to wait for.
    #[cold]
    fn look_if_empty(&mut self) -> Awaiting {
        if self.len == 0 { self.let_go(usize::MAX) } else { Awaiting(None) }
    }

    /// The threads that sleep, and so many of the tasks.
    #[cold]
    fn let_go(&mut self, tasks: usize) -> Awaiting {
        let tasks: VecDeque<(Task, Waker)> = self.tasks.drain(..tasks.min(self.tasks.len())).collect();
        Awaiting(Some(Box::new(Awoken { tasks, has_sleepers: self.sleepers > 0 })))
    }

    /// The waker of a task that waits still, which does no more.
    fn forget(&mut self, task: Option<Task>) -> Option<Waker> {
        let at = self.tasks.iter().position(|(known, _)| Some(*known) == task)?;
        self.tasks.remove(at).map(|(_, waker)| waker)
    }
}

#[cfg(not(any(loom, miri)))]
impl<T> AsFd for CompletionQueue<T> {
    /// The descriptor, whatever it says: [`CompletionQueue::observe`] has it say something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A thread that is counted as one that sleeps until something ends.
pub struct Sleeper<'a, T>(&'a CompletionQueue<T>);

impl<T> Drop for Sleeper<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        assert!(state.sleepers > 0, "who sleeps is counted");
        state.sleepers -= 1;
    }
}

#[cfg(not(any(loom, miri)))]
use real::Descriptor;

#[cfg(not(any(loom, miri)))]
mod real {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    /// A counter of the kernel's that can be read while it is not 0.
    pub(super) struct Descriptor(OwnedFd);

    impl Descriptor {
        pub(super) fn new() -> io::Result<Descriptor> {
            Ok(Descriptor(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// It can be read. Fails only where it has been raised without end, and then it can.
        pub(super) fn raise(&self) {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        /// It can be read no more. Fails only where it could not be.
        pub(super) fn lower(&self) {
            let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
        }
    }

    impl AsFd for Descriptor {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(any(loom, miri))]
use model::Descriptor;

#[cfg(any(loom, miri))]
mod model {
    use std::io;

    use crate::sync::{AtomicU32, Ordering};

    /// The kernel's counter, as far as one looks at whether it is 0.
    pub(super) struct Descriptor(AtomicU32);

    impl Descriptor {
        pub(super) fn new() -> io::Result<Descriptor> {
            Ok(Descriptor(AtomicU32::new(0)))
        }

        pub(super) fn raise(&self) {
            self.0.store(1, Ordering::SeqCst);
        }

        pub(super) fn lower(&self) {
            self.0.store(0, Ordering::SeqCst);
        }

        pub(super) fn is_raised(&self) -> bool {
            self.0.load(Ordering::SeqCst) == 1
        }
    }
}

#[cfg(all(test, loom))]
#[path = "completion_queue_loom.rs"]
mod loom_models;

#[cfg(all(test, not(loom)))]
#[path = "completion_queue_tests.rs"]
mod tests;

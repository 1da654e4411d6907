//! What is under way, and has something done at its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use standpipe::{Error, Event, Foreign, Rank};

use super::message::Function;

/// A get or a store that has been started.
pub(super) struct Pending {
    pub(super) state: State,
    /// With which process.
    pub(super) dest: Rank,
    /// What its end has run here.
    pub(super) end: Option<End>,
    pub(super) credit: Credit,
}

/// How far it is.
pub(super) enum State {
    /// The program's memory is in use.
    Lent(Event<Foreign<()>>),
    /// The program has its memory back, and the rest is under way.
    Free(Event<()>),
    /// It was over at once.
    Over,
}

/// A function of the program, and what it is called with.
pub(super) struct End {
    pub(super) function: Function,
    pub(super) local: u64,
    pub(super) len: usize,
    pub(super) arg: u64,
}

/// When it gives back the credit that it took.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Credit {
    /// It took none.
    None,
    /// A get: at its end, as no reply comes.
    AtEnd,
    /// A store: where it fails, as its handler does not run then.
    IfItFails,
}

impl State {
    fn is_over(&mut self) -> bool {
        match self {
            State::Lent(event) => event.is_complete(),
            State::Free(event) => event.is_complete(),
            State::Over => true,
        }
    }

    /// What it is by now.
    ///
    /// # Errors
    /// How it failed.
    pub(super) fn look(mut self) -> Result<State, Error> {
        if self.is_over() { self.result().map(|()| State::Over) } else { Ok(self) }
    }

    /// How it ended; waits for the end.
    pub(super) fn result(self) -> Result<(), Error> {
        match self {
            State::Lent(event) => event.wait().0,
            State::Free(event) => event.wait().0,
            State::Over => Ok(()),
        }
    }
}

/// All that is under way, in the order in which it was started.
#[derive(Default)]
pub(super) struct AllPending {
    all: Mutex<Vec<Pending>>,
    /// How many, for those who only look.
    count: AtomicU64,
}

impl AllPending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn hold(&self, pending: Pending) {
        self.change(|all| all.push(pending));
    }

    /// Whether some of it is over.
    pub(super) fn has_ended(&self) -> bool {
        !self.is_empty() && self.change(|all| all.iter_mut().any(|pending| pending.state.is_over()))
    }

    /// Takes out the first that is over.
    #[inline]
    pub(super) fn take_ended(&self) -> Option<Pending> {
        if self.is_empty() {
            return None;
        }
        self.change(|all| {
            let ended = all.iter_mut().position(|pending| pending.state.is_over());
            ended.map(|at| all.remove(at))
        })
    }

    /// Looking at events makes progress, and so runs handlers. Those can start nothing, and end nothing here.
    fn change<R>(&self, act: impl FnOnce(&mut Vec<Pending>) -> R) -> R {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut all);
        self.count.store(all.len() as u64, Ordering::Relaxed);
        result
    }
}

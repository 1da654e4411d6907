//! The shares that clients have in a node, and the node that a process's libraries share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;

use crate::base::lock::lock;
use crate::runtime::core::NodeCore;
use crate::runtime::life::Life;

/// A client's share in a node, which all its handles share. It goes with the last of them.
pub(crate) struct Share {
    life: Arc<Life>,
    client: u8,
    /// Whether the node is that of the process.
    is_of_process: bool,
    has_ended: AtomicBool,
}

impl Share {
    /// That of a node's only client.
    pub(crate) fn alone(life: Arc<Life>) -> Share {
        Share { life, client: 0, is_of_process: false, has_ended: AtomicBool::new(false) }
    }

    /// That of a client of the process's node.
    fn of_process(life: Arc<Life>, client: u8) -> Share {
        Share { life, client, is_of_process: true, has_ended: AtomicBool::new(false) }
    }

    pub(crate) fn core(&self) -> &Arc<NodeCore> {
        self.life().core()
    }

    pub(crate) fn client(&self) -> u8 {
        self.client
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.life
    }

    /// Whether nobody has begun to end it; from now on somebody has.
    pub(crate) fn may_end(&self) -> bool {
        !self.has_ended.swap(true, Ordering::SeqCst)
    }

    /// Gives up the share. Only whoever [may end](Share::may_end) it calls this.
    pub(crate) fn leave(&self) -> Left {
        let of_process = if self.is_of_process { OF_PROCESS.leave() } else { Some(None) };
        match of_process {
            None => {
                self.core().leave_client(self.client);
                Left::Others
            }
            Some(closing) => Left::Nobody(closing),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // A child that was forked has a copy of what is the parent's, as locks that somebody held.
        if self.core().is_forked() {
            return;
        }
        if !*self.has_ended.get_mut() {
            let left = self.leave();
            if let Left::Nobody(_) = &left {
                // Handles of clients that have closed may be there still: none of them keeps it open.
                self.life.end();
            }
        }
        // Nobody has a handle of it any more.
        self.core().peers.clients.free(self.client);
    }
}

/// The owner of a node, once a client has left it.
pub(crate) enum Left {
    /// Other clients.
    Others,
    /// Nobody: it is to be closed. Until this is dropped, who wants to share it waits.
    Nobody(Option<Closing>),
}

/// The node of a process, if it has one.
pub(crate) static OF_PROCESS: OfProcess =
    OfProcess { state: Mutex::new(State::Nobodys), changed: Condvar::new(), generation: AtomicU32::new(0) };

pub(crate) struct OfProcess {
    state: Mutex<State>,
    changed: Condvar,
    /// The [generation](vm::forks::generation) that has asked first: in a child that it forks, the state may
    /// be held by a thread that is not there.
    generation: AtomicU32,
}

enum State {
    /// Nobody has it: it is not open.
    Nobodys,
    /// It is being opened, or closed, by that thread.
    Busy(ThreadId),
    Open {
        life: Arc<Life>,
        clients: u32,
    },
}

/// Why there is no share.
pub(crate) enum NoShare<E> {
    /// The process is a child of one that shares a node.
    Forked,
    /// It would have to wait for the node to be opened or closed, in a handler.
    InHandler,
    /// There are as many clients as can be.
    Full,
    /// The node did not open.
    NotOpened(E),
}

impl OfProcess {
    /// A share in the process's node, which `open` opens if it is not open. The word says whether it did.
    pub(crate) fn share<E>(
        &self,
        may_wait: bool,
        open: impl FnOnce() -> Result<Arc<Life>, E>,
    ) -> Result<(Share, bool), NoShare<E>> {
        let generation = vm::forks::generation();
        let known = self.generation.compare_exchange(0, generation, Ordering::SeqCst, Ordering::SeqCst);
        if known.is_err_and(|known| known != generation) {
            return Err(NoShare::Forked);
        }
        let mut state = lock(&self.state);
        while let State::Busy(by) = &*state {
            // The opening or closing of that thread may run code of the program's.
            if !may_wait || *by == std::thread::current().id() {
                return Err(NoShare::InHandler);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let State::Open { life, clients } = &mut *state {
            let client = life.core().enter_client().ok_or(NoShare::Full)?;
            *clients += 1;
            return Ok((Share::of_process(Arc::clone(life), client), false));
        }
        if !may_wait {
            return Err(NoShare::InHandler);
        }
        *state = State::Busy(std::thread::current().id());
        drop(state);
        let becomes = Closing;
        let life = open().map_err(NoShare::NotOpened)?;
        std::mem::forget(becomes);
        self.set(State::Open { life: Arc::clone(&life), clients: 1 });
        Ok((Share::of_process(life, 0), true))
    }

    /// A client leaves. `Some`: it was the last one, and the node is to be closed.
    fn leave(&self) -> Option<Option<Closing>> {
        let mut state = lock(&self.state);
        let State::Open { clients, .. } = &mut *state else { unreachable!("it has a client") };
        assert!(*clients > 0, "a client leaves once");
        *clients -= 1;
        if *clients > 0 {
            return None;
        }
        let open = std::mem::replace(&mut *state, State::Busy(std::thread::current().id()));
        drop(state);
        // The client has a share of it, too.
        drop(open);
        Some(Some(Closing))
    }

    fn set(&self, to: State) {
        *lock(&self.state) = to;
        self.changed.notify_all();
    }
}

/// The process's node is being opened or closed; once this is dropped it is not open.
pub(crate) struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        OF_PROCESS.set(State::Nobodys);
    }
}

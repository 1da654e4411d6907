//! VIA of a process: its opening, its end, and what all calls stand on.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use standpipe::{AllMemory, Node, Rank};

use super::address::Host;
use super::error::ViaError;
use super::hosts::Hosts;
use super::shared::{NAMESPACE, Shared, handler};
use super::state::{ErrorHandler, State};
use super::threads;

/// How long the end waits for what it has to tell.
const LINGER: Duration = Duration::from_secs(5);

/// A wait that nothing bounds.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Polls of the program's in vain between two looks for peers that are lost.
const LOSS_LOOK: u64 = 64;

/// VIA of this process. Any thread may call it.
///
/// NICs, VIs, completion queues, protection tags and connections that were requested have numbers, of which
/// none is used twice. A call with one that is none ends with [`ViaError::InvalidParameter`].
pub struct Via {
    pub(super) node: Node,
    pub(super) shared: Arc<Shared>,
    /// Where nobody launched this process: the others that there are.
    pub(super) hosts: OnceLock<Hosts>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Via {
    /// Opens VIA on a node of its own client, whose progress is [`Off`](standpipe::ProgressThread::Off). A
    /// thread of the layer's makes progress while the program does not, and another one calls the program's
    /// handlers. `default_handler` is told of errors for which a program has no handler. It waits for nobody.
    ///
    /// # Errors
    /// [`standpipe::Error`], where the layer is open already, or the system gives no threads.
    pub fn open(
        node: Node,
        memory: AllMemory,
        default_handler: ErrorHandler,
    ) -> Result<Via, standpipe::Error> {
        let shared = Arc::new(Shared::new(State::new(memory, handler(), default_handler)));
        let taking = Arc::clone(&shared);
        node.register(NAMESPACE, "message", move |call| taking.take(call))?;
        let threads = threads::start(&node, &shared)
            .map_err(|error| standpipe::Error::System { what: "threads for VIA", why: error.to_string() })?;
        Ok(Via { node, shared, hosts: OnceLock::new(), threads: Mutex::new(threads) })
    }

    /// This process's number, and how many there are.
    pub fn rank_and_size(&self) -> (Rank, u32) {
        (self.node.rank(), self.node.size())
    }

    /// Lets processes of this user on this host that nobody launched find this one, and finds them: by files
    /// in that folder, which it makes. In a launched job it does nothing. It may take some tenths of a
    /// second, and is called once, before any connection.
    ///
    /// # Errors
    /// [`std::io::Error`], where the folder cannot be used, or the system gives no socket.
    pub fn meet_by_hand(&self, folder: &Path) -> std::io::Result<()> {
        if let Some(hosts) = Hosts::enter(&self.node, folder)? {
            // A second one would be dropped, and remove its file.
            let _ = self.hosts.set(hosts);
        }
        Ok(())
    }

    /// The address of this process's NIC.
    pub fn own_host(&self) -> Host {
        self.hosts.get().map_or(Host::Rank(self.node.rank()), |hosts| Host::Process(hosts.own()))
    }

    /// Messages of peers that were malformed.
    pub fn refused(&self) -> u64 {
        self.shared.state().refused
    }

    /// Whether a number is one of an open NIC.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn check_nic(&self, nic: u32) -> Result<(), ViaError> {
        let is_open = self.shared.state().nics.contains_key(&nic);
        if is_open { Ok(()) } else { Err(ViaError::InvalidParameter) }
    }

    /// Looks, and makes progress once if there is nothing yet.
    pub(super) fn poll<R>(
        &self,
        mut look: impl FnMut(&mut State) -> Result<R, ViaError>,
    ) -> Result<R, ViaError> {
        let polls = self.shared.polls.fetch_add(1, Ordering::Relaxed);
        let found = self.shared.with(&mut look);
        if found.is_ok() || found.as_ref().err() != Some(&ViaError::NotDone) {
            return found;
        }
        self.node.progress();
        self.shared.pump(&self.node);
        if polls.is_multiple_of(LOSS_LOOK) {
            self.shared.note_losses(&self.node);
        }
        self.shared.with(look)
    }

    /// Waits until there is something else than [`ViaError::NotDone`].
    pub(super) fn wait<R>(
        &self,
        within: Option<Duration>,
        mut look: impl FnMut(&mut State) -> Result<R, ViaError>,
    ) -> Result<R, ViaError> {
        let mut found = self.shared.with(&mut look);
        if found.as_ref().err() != Some(&ViaError::NotDone) {
            return found;
        }
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.shared.wait_until(&self.node, within.unwrap_or(FOR_EVER), || {
            found = self.shared.with(&mut look);
            found.as_ref().err() != Some(&ViaError::NotDone)
        });
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        match (found, waited) {
            (Err(ViaError::NotDone), Err(error)) if !error.is_timeout() => Err(ViaError::Resource),
            (Err(ViaError::NotDone), _) => Err(ViaError::Timeout),
            (found, _) => found,
        }
    }

    /// Makes progress with what a call has begun.
    pub(super) fn pump(&self) {
        self.shared.pump(&self.node);
    }

    /// Takes all connections down, tells the peers, ends the threads and lets go of the node. It waits up to
    /// 5 seconds for each of messages and network. Later calls end with errors.
    pub fn close(&self) {
        let (node, shared) = (&self.node, &self.shared);
        if let Some(hosts) = self.hosts.get() {
            hosts.leave();
        }
        shared.with(|state| {
            let ids: Vec<u32> = state.vis.keys().copied().collect();
            ids.into_iter().for_each(|id| state.disconnect(node, id));
        });
        shared.pump_after_others(node);
        // A peer that is lost, or takes nothing for so long, hears nothing.
        let _ = shared.wait_until(node, LINGER, || shared.is_idle());
        self.end_threads();
        let _ = self.node.clone().close(LINGER);
    }

    /// Ends the threads, and takes no messages any more.
    fn end_threads(&self) {
        let (node, shared) = (&self.node, &self.shared);
        shared.is_ending.store(true, Ordering::SeqCst);
        shared.upcalls.notify_all();
        node.wake();
        let own = std::thread::current().id();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            thread.thread().unpark();
            // A handler of the program's may end it all: its thread cannot wait for itself.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
        // Where the node has closed it is gone already.
        let _ = node.withdraw(handler());
    }
}

impl Drop for Via {
    fn drop(&mut self) {
        self.end_threads();
    }
}

//! Generic Active Messages 1.1: a request names a function of the program that runs at its receiver.
//!
//! After the interface of Berkeley's and ICSI's libraries (von Eicken, Culler and others; the study's GAM). All
//! processes run one program at the same addresses: a message carries the bare address of a function, and
//! stores and gets those of variables. Each request has exactly one reply. The library sends an empty one
//! where the handler sends none. A reply returns the credit that its request took.
//!
//! Stores and gets move bytes directly between the memory of two processes, in calls of at most
//! [`MAX_SIZE`] bytes: the library cuts nothing, as the originals did not.
//!
//! One thread at a time calls a [`Gam`]. Handlers run on it, in its calls.

mod error;
mod handlers;
#[doc(hidden)]
pub mod message;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use standpipe::{AllMemory, Error, Event, Foreign, HandlerId, MEDIUM_MAX, Node, Rank, Team};

pub use self::error::GamError;
use self::handlers::{Shared, may_call};
pub use self::message::{Arguments, Function};
use self::message::{Kind, Outgoing};
use crate::Copies;

/// The most bytes that one store or get moves (`am_max_size`).
pub const MAX_SIZE: usize = 64 << 10;

/// Requests to a process that may be without their reply: as many slots as the shared-memory original had for
/// a pair.
pub const CREDITS: u32 = 30;

/// Polls in a row that found nothing, after which a wait sleeps for a while.
const IDLE_POLLS: u64 = 2_000;

/// Polls in a row that found nothing, after each of which a poll looks whether a process is gone.
const LOOK_EVERY: u64 = 1_024;

/// How long such a sleep lasts at most, where no message ends it.
const NAP: Duration = Duration::from_millis(1);

/// Messages that one poll handles at most.
const POLLED_MAX: usize = 64;

/// How long leaving may take, for each of the library's parts.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The namespace of this layer's handlers.
const NAMESPACE: &str = "gam";

/// The program: whoever can call its functions by their addresses.
pub trait Program: Send + Sync {
    /// Whether all processes have a function at this address, as far as anybody can tell.
    fn has_function(&self, function: Function) -> bool;

    /// Calls the function: as a handler, with the process that the message came from, or at the end of a get
    /// or of an asynchronous store, with the process that it was with.
    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>);
}

/// One process's part.
pub struct Gam<P> {
    node: Node,
    team: Team,
    memory: AllMemory,
    shared: Arc<Shared<P>>,
    pending: Mutex<Vec<Pending>>,
    /// Whether there is any, for those who only look.
    pending_count: AtomicU64,
    idle: AtomicU64,
    copied: AtomicU64,
}

/// A get, or a store, whose end has a function run here.
struct Pending {
    event: Event<Foreign<()>>,
    function: Function,
    dest: Rank,
    local: u64,
    len: usize,
    arg: u64,
    /// Of a get, which has no reply that would return it.
    returns_credit: bool,
}

impl<P: Program + 'static> Gam<P> {
    /// A part that has yet to [join](Gam::join) all processes of the node's job.
    ///
    /// # Errors
    /// [`GamError::Node`] where a handler's name is taken: a process opens this layer once.
    pub fn new(node: Node, memory: AllMemory, program: P) -> Result<Gam<P>, GamError> {
        let shared = Arc::new(Shared::new(program, node.size()));
        shared.register(&node)?;
        let team = node.world_of(NAMESPACE)?;
        Ok(Gam {
            node,
            team,
            memory,
            shared,
            pending: Mutex::default(),
            pending_count: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            copied: AtomicU64::new(0),
        })
    }

    /// Joins the others (`am_enable`), and returns when all have. Handlers may run from now on: one that comes
    /// before this returns finds the part as it is afterwards.
    ///
    /// # Errors
    /// [`GamError::Lost`] where a process ends before it comes.
    pub fn join(&self) -> Result<(), GamError> {
        Ok(self.team.barrier()?)
    }

    /// This process's number (`am_my_proc`).
    pub fn my_proc(&self) -> Rank {
        self.node.rank()
    }

    /// How many processes there are (`am_procs`).
    pub fn procs(&self) -> u32 {
        self.node.size()
    }

    /// The program that it was opened with.
    pub fn program(&self) -> &P {
        &self.shared.program
    }

    /// Has a function run at `dest` with up to four words, or as [`Arguments`] says (`am_request_0` to
    /// `am_request_4`, `am_request_df`). Polls first, and waits while `dest` owes [`CREDITS`] replies. To
    /// oneself the function runs in place.
    ///
    /// # Errors
    /// [`GamError`]: a bad number or function, more than four words, in a handler, or a lost process.
    pub fn request(&self, dest: i64, function: Function, arguments: &Arguments<'_>) -> Result<(), GamError> {
        let dest = self.may_send("a request", dest, function)?;
        if let Arguments::Medium(bytes, a, b) = *arguments {
            return self.request_medium(dest, function, bytes, [a, b]);
        }
        let words = if let Arguments::Words(words) = arguments { words.len() } else { 0 };
        let message = Outgoing::of(function, arguments).ok_or(GamError::Words { words })?;
        if dest == self.my_proc() {
            self.shared.run_here(dest, function, arguments.clone());
            return Ok(());
        }
        self.with_credit(dest, || {
            let handler = HandlerId::of(NAMESPACE, message.kind.name());
            match message.payload() {
                [] => self.node.request(dest, handler, message.args),
                payload => self.node.request_medium(dest, handler, message.args, payload),
            }
        })
    }

    fn request_medium(
        &self,
        dest: Rank,
        function: Function,
        bytes: &[u8],
        [a, b]: [u64; 2],
    ) -> Result<(), GamError> {
        check_medium(bytes.len() as i64)?;
        if dest == self.my_proc() {
            self.shared.run_here(dest, function, Arguments::Medium(bytes, a, b));
            return Ok(());
        }
        let handler = HandlerId::of(NAMESPACE, Kind::Medium.name());
        self.with_credit(dest, || self.node.request_medium(dest, handler, [function, a, b, 0], bytes))
    }

    /// As [`Gam::request`] with [`Arguments::Medium`], of bytes at an address of this process.
    ///
    /// # Errors
    /// As for [`Gam::request`]; [`GamError::Size`] beyond [`MEDIUM_MAX`] bytes.
    pub fn request_bytes(
        &self,
        dest: i64,
        function: Function,
        (from, len): (*const u8, i64),
        words: [u64; 2],
    ) -> Result<(), GamError> {
        let bytes = self.copy_of(from, len)?;
        let dest = self.may_send("a request", dest, function)?;
        self.request_medium(dest, function, &bytes, words)
    }

    /// Replies to the request whose handler this thread is in (`am_reply_0` to `am_reply_4`, `am_reply_df`):
    /// the function runs at the requester. The reply leaves when the handler returns.
    ///
    /// # Errors
    /// [`GamError`]: outside of a request's handler, the second time, or to another than the requester.
    pub fn reply(&self, dest: i64, function: Function, arguments: &Arguments<'_>) -> Result<(), GamError> {
        if !self.shared.program.has_function(function) {
            return Err(GamError::NotAFunction { function });
        }
        handlers::reply(dest, function, arguments)
    }

    /// As [`Gam::reply`] with [`Arguments::Medium`], of bytes at an address of this process.
    ///
    /// # Errors
    /// As for [`Gam::reply`]; [`GamError::Size`] beyond [`MEDIUM_MAX`] bytes.
    pub fn reply_bytes(
        &self,
        dest: i64,
        function: Function,
        (from, len): (*const u8, i64),
        [a, b]: [u64; 2],
    ) -> Result<(), GamError> {
        let bytes = self.copy_of(from, len)?;
        self.reply(dest, function, &Arguments::Medium(&bytes, a, b))
    }

    /// Puts `len` bytes from `local` at address `remote` of `dest`, and then runs the function there
    /// (`am_store`). Returns when `local` may be used again.
    ///
    /// # Errors
    /// As for [`Gam::request`]; [`GamError::Size`] beyond [`MAX_SIZE`] bytes. An address that `dest` has not
    /// fails here, or where the bytes are under way still, in a later [`Gam::poll`].
    pub fn store(
        &self,
        dest: i64,
        local: *const u8,
        remote: u64,
        len: i64,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = check_size(len)?;
        let dest = self.may_send("am_store", dest, function)?;
        if dest == self.my_proc() {
            return self.store_here(local, remote, bytes, (function, arg));
        }
        let mut event = None;
        self.with_credit(dest, || {
            event = Some(self.start_store(dest, local, remote, bytes, (function, arg))?);
            Ok(())
        })?;
        let Some(event) = event else { return Ok(()) };
        let (_, mut rest) = event.wait_local();
        // What is under way still fails in a poll, if it does.
        if rest.is_complete() { Ok(rest.wait().0?) } else { Ok(()) }
    }

    /// As [`Gam::store`], and returns at once (`am_store_async`): `local` is the program's again when
    /// `(end_function, end_arg)` has run here, in a later poll.
    ///
    /// # Errors
    /// As for [`Gam::store`].
    pub fn store_async(
        &self,
        dest: i64,
        local: *const u8,
        remote: u64,
        len: i64,
        (function, arg): (Function, u64),
        (end_function, end_arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = check_size(len)?;
        self.check_function(end_function)?;
        let dest = self.may_send("am_store_async", dest, function)?;
        let event = if dest == self.my_proc() {
            self.store_here(local, remote, bytes, (function, arg))?;
            self.node.get_nb(self.memory.remote(dest, local.addr() as u64), self.nothing())
        } else {
            let mut event = None;
            self.with_credit(dest, || {
                event = Some(self.start_store(dest, local, remote, bytes, (function, arg))?);
                Ok(())
            })?;
            let Some(event) = event else { return Ok(()) };
            event
        };
        let local = local.addr() as u64;
        self.hold(Pending {
            event,
            function: end_function,
            dest,
            local,
            len: bytes,
            arg: end_arg,
            returns_credit: false,
        });
        Ok(())
    }

    /// Gets `len` bytes from address `remote` of `dest` to `local`, and runs the function here when they are
    /// there (`am_get`), in a later poll. `dest` takes no part where its memory can be reached.
    ///
    /// # Errors
    /// As for [`Gam::store`].
    pub fn get(
        &self,
        dest: i64,
        remote: u64,
        local: *mut u8,
        len: i64,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = check_size(len)?;
        let dest = self.may_send("am_get", dest, function)?;
        let is_own = dest == self.my_proc();
        if is_own {
            self.memory.copy(std::ptr::with_exposed_provenance(remote as usize), local, bytes);
            self.count_copy(bytes);
        } else {
            self.await_credit(dest)?;
        }
        let buffer = if is_own { self.nothing() } else { self.memory.buffer(local, bytes, ()) };
        let event = self.node.get_nb(self.memory.remote(dest, remote), buffer);
        let addr = local.expose_provenance() as u64;
        let returns_credit = !is_own;
        self.hold(Pending { event, function, dest, local: addr, len: bytes, arg, returns_credit });
        Ok(())
    }

    /// Runs the handlers of what has come, and the functions of gets and stores that have ended (`am_poll`).
    /// In a handler it does nothing. Never waits.
    ///
    /// # Errors
    /// [`GamError::Lost`] where a process is gone; what else an operation failed with.
    pub fn poll(&self) -> Result<(), GamError> {
        self.advance().map(|_| ())
    }

    /// As [`Gam::poll`], for a loop that waits for a handler: it sleeps a while where nothing has come for
    /// long, so that a process that waits leaves its processor to one that works.
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`], as no other handler runs meanwhile.
    pub fn poll_idle(&self) -> Result<(), GamError> {
        may_call("a wait")?;
        if self.advance()? || self.idle.load(Ordering::Relaxed) < IDLE_POLLS {
            return Ok(());
        }
        self.look_for_losses()?;
        self.nap(NAP)
    }

    /// Runs handlers for so long (`am_sleep`).
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`].
    pub fn sleep(&self, time: Duration) -> Result<(), GamError> {
        may_call("am_sleep")?;
        let end = Instant::now() + time;
        loop {
            self.advance()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.nap(left.min(NAP))?;
        }
    }

    /// Waits until all processes have called it, and runs handlers meanwhile (`gam_barrier`).
    ///
    /// # Errors
    /// [`GamError::Lost`]; [`GamError::InHandler`].
    pub fn barrier(&self) -> Result<(), GamError> {
        may_call("a barrier")?;
        Ok(self.team.barrier()?)
    }

    /// Leaves (`am_disable`): waits until all processes do, and closes the layer's part of the node.
    ///
    /// # Errors
    /// As for [`Gam::barrier`]; the layer is closed all the same.
    pub fn close(&self) -> Result<(), GamError> {
        may_call("am_disable")?;
        let met = self.barrier();
        // What is left are messages to processes that have left, too.
        let _ = self.node.clone().close(LEAVE_WITHIN);
        met
    }

    /// Messages that were refused: malformed ones, and those for addresses that are no function's.
    pub fn refused(&self) -> u64 {
        self.shared.refused()
    }

    /// Empty replies that the library sent for handlers that sent none.
    pub fn null_replies(&self) -> u64 {
        self.shared.null_replies()
    }

    /// Times that a function of the program was run.
    pub fn handled(&self) -> u64 {
        self.shared.received()
    }

    /// Bytes that the layer has copied: those of medium messages at their sender. Stores and gets copy none.
    pub fn copies(&self) -> Copies {
        Copies { sent: self.copied.load(Ordering::Relaxed), received: 0 }
    }

    fn may_send(&self, call: &'static str, dest: i64, function: Function) -> Result<Rank, GamError> {
        may_call(call)?;
        self.check_function(function)?;
        let procs = self.procs();
        let known = Rank::try_from(dest).ok().filter(|rank| *rank < procs);
        known.ok_or(GamError::NoSuchProcess { dest, procs })
    }

    fn check_function(&self, function: Function) -> Result<(), GamError> {
        match self.shared.program.has_function(function) {
            true => Ok(()),
            false => Err(GamError::NotAFunction { function }),
        }
    }

    /// Sends with a credit, which comes back if the message does not leave.
    fn with_credit(&self, dest: Rank, send: impl FnOnce() -> Result<(), Error>) -> Result<(), GamError> {
        self.await_credit(dest)?;
        send().map_err(|error| {
            self.shared.give_credit(dest);
            GamError::from(error)
        })
    }

    /// Polls, and takes a credit, for which it waits.
    fn await_credit(&self, dest: Rank) -> Result<(), GamError> {
        self.poll()?;
        while !self.shared.take_credit(dest) {
            self.node.wait_until(|| self.shared.has_credit(dest) || self.node.is_lost(dest))?;
            self.advance()?;
        }
        Ok(())
    }

    fn store_here(
        &self,
        local: *const u8,
        remote: u64,
        len: usize,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        self.memory.copy(local, std::ptr::with_exposed_provenance_mut(remote as usize), len);
        self.count_copy(len);
        let own = self.my_proc();
        self.shared.run_here(own, function, Arguments::Memory { addr: remote, len, arg });
        Ok(())
    }

    fn start_store(
        &self,
        dest: Rank,
        local: *const u8,
        remote: u64,
        len: usize,
        (function, arg): (Function, u64),
    ) -> Result<Event<Foreign<()>>, Error> {
        let handler = HandlerId::of(NAMESPACE, Kind::Store.name());
        // It is only read from.
        let buffer = self.memory.buffer(local.cast_mut(), len, ());
        self.node.connect(dest)?;
        let to = self.memory.remote(dest, remote);
        Ok(self.node.request_long_nb(handler, [function, arg, 0, 0], to, buffer))
    }

    /// Makes progress, and ends what has ended: whether there was anything.
    fn advance(&self) -> Result<bool, GamError> {
        let mut moved = 0;
        while moved < POLLED_MAX && self.node.progress() {
            moved += 1;
        }
        let ended = self.pending_count.load(Ordering::Relaxed) > 0 && self.end_pending()?;
        if self.node.has_failed() {
            self.node.quiet()?;
        }
        if moved > 0 || ended {
            self.idle.store(0, Ordering::Relaxed);
            return Ok(true);
        }
        let idle = self.idle.fetch_add(1, Ordering::Relaxed);
        if idle % LOOK_EVERY == LOOK_EVERY - 1 {
            self.look_for_losses()?;
        }
        Ok(false)
    }

    /// A process that is gone ends a program whose processes rely on each other.
    #[cold]
    fn look_for_losses(&self) -> Result<(), GamError> {
        match self.node.lost_peers().first() {
            Some(peer) => Err(GamError::Lost { peer: *peer }),
            None => Ok(()),
        }
    }

    fn hold(&self, pending: Pending) {
        let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(pending);
        self.pending_count.store(all.len() as u64, Ordering::Relaxed);
    }

    /// Runs the functions of what has ended, in the order in which it was started.
    fn end_pending(&self) -> Result<bool, GamError> {
        if may_call("a poll").is_err() {
            return Ok(false);
        }
        let ended: Vec<Pending> = {
            let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = all.extract_if(.., |pending| pending.event.is_complete()).collect();
            self.pending_count.store(all.len() as u64, Ordering::Relaxed);
            ended
        };
        let some = !ended.is_empty();
        for Pending { event, function, dest, local, len, arg, returns_credit } in ended {
            if returns_credit {
                self.shared.give_credit(dest);
            }
            event.wait().0?;
            self.shared.run_after(dest, function, Arguments::Memory { addr: local, len, arg });
        }
        Ok(some)
    }

    /// Sleeps, at most so long, until something comes.
    fn nap(&self, time: Duration) -> Result<(), GamError> {
        let handled = self.shared.received();
        let woken = || self.shared.received() != handled || self.node.has_failed();
        match self.node.within(time).wait_until(woken) {
            Ok(()) | Err(Error::WaitTimeout { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A buffer of no bytes, for an event that is over at once.
    fn nothing(&self) -> Foreign<()> {
        self.memory.buffer(std::ptr::dangling_mut(), 0, ())
    }

    fn count_copy(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes at an address of this process.
    fn copy_of(&self, from: *const u8, len: i64) -> Result<Vec<u8>, GamError> {
        let mut bytes = vec![0; check_medium(len)?];
        self.memory.read(from, &mut bytes);
        self.count_copy(bytes.len());
        Ok(bytes)
    }
}

fn check_size(len: i64) -> Result<usize, GamError> {
    checked(len, MAX_SIZE)
}

fn check_medium(len: i64) -> Result<usize, GamError> {
    checked(len, MEDIUM_MAX)
}

fn checked(len: i64, most: usize) -> Result<usize, GamError> {
    let bytes = usize::try_from(len).ok().filter(|bytes| *bytes <= most);
    bytes.ok_or(GamError::Size { bytes: len, most })
}

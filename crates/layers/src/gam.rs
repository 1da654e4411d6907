//! Generic Active Messages 1.1: a request names a function of the program that runs at its receiver.
//!
//! After the interface of Berkeley's and ICSI's libraries (von Eicken, Culler and others; the study's GAM).
//! All processes run one program at the same addresses: a message carries the bare address of a function, and
//! stores and gets those of variables. Each request has exactly one reply, which returns the credit that its
//! request took. Where the handler sends none, the library replies. Up to fifteen such empty replies travel
//! in one message.
//!
//! Stores and gets move bytes directly between the memory of two processes, in calls of at most
//! [`MAX_SIZE`] bytes: the library cuts nothing, as the originals did not.
//!
//! One thread at a time calls a [`Gam`]. Handlers run on it, in its calls. They also run in other calls on
//! the process's node, as those of another layer, on the thread that makes them. Of messages one is handled
//! at a time. A request to oneself runs in place, and so does the function that ends a get or a store.

mod credits;
mod error;
mod features;
mod handlers;
#[doc(hidden)]
pub mod message;
mod pending;
mod poller;
mod program;
mod transfers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::{AllMemory, Error, MEDIUM_MAX, Node, Rank, Team, TeamEvent};

pub use self::credits::CREDITS;
pub use self::error::GamError;
pub use self::features::FEATURES;
use self::handlers::{NAMESPACE, Reply, Shared};
pub use self::message::{Arguments, Function};
use self::message::{Kind, MAY_WAIT, Outgoing};
use self::poller::{NAP, Poller};
pub use self::program::Program;
use crate::Copies;

/// The most bytes that one store or get moves (`am_max_size`). They go straight to their place, and so may be
/// more than a medium message carries.
pub const MAX_SIZE: usize = 16_384;

const _: () = assert!(MAX_SIZE >= MEDIUM_MAX);

/// How long leaving may take, for each of the library's parts.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// The same, for a process that leaves without the others.
const ABANDON_WITHIN: Duration = Duration::from_millis(100);

/// One process's part.
pub struct Gam<P> {
    node: Node,
    team: Team,
    memory: AllMemory,
    shared: Arc<Shared<P>>,
    poller: Poller<P>,
    copied: AtomicU64,
}

impl<P: Program + 'static> Gam<P> {
    /// A part that has yet to [join](Gam::join) all processes of the node's job.
    ///
    /// # Errors
    /// [`GamError::Node`] where a handler's name is taken: a process opens this layer once.
    pub fn new(node: Node, memory: AllMemory, program: P) -> Result<Gam<P>, GamError> {
        let shared = Arc::new(Shared::new(program, memory, node.size()));
        shared.register(&node)?;
        let team = node.world_of(NAMESPACE)?;
        let poller = Poller::new(node.clone(), Arc::clone(&shared));
        Ok(Gam { node, team, memory, shared, poller, copied: AtomicU64::new(0) })
    }

    /// Joins the others (`am_enable`), and returns when all have. Handlers may run from now on: one that
    /// comes before this returns finds the part as it is afterwards.
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
    /// `am_request_4`, `am_request_df`). Polls now and then, and waits while `dest` owes [`CREDITS`] replies.
    /// To oneself the function runs in place.
    ///
    /// # Errors
    /// [`GamError`]: a bad number or function, more than four words, in a handler, or a lost process.
    #[inline]
    pub fn request(&self, dest: i64, function: Function, arguments: &Arguments<'_>) -> Result<(), GamError> {
        let dest = self.may_send("a request", dest, function)?;
        if let Arguments::Medium(bytes, a, b) = *arguments {
            return self.request_medium(dest, function, bytes, [a, b]);
        }
        let words = if let Arguments::Words(words) = arguments { words.len() } else { 0 };
        let message = Outgoing::of(function, arguments).ok_or(GamError::Words { words })?;
        if dest == self.my_proc() {
            self.poller.poll_to_send(self.my_proc())?;
            self.shared.run_here(dest, function, arguments.clone());
            return Ok(());
        }
        self.with_credit(dest, |may_wait| {
            let (handler, [function, a, b, c]) = (handlers::id(message.kind), message.args);
            let args = [function | may_wait, a, b, c];
            match message.payload() {
                [] => self.node.request(dest, handler, args),
                payload => self.node.request_medium(dest, handler, args, payload),
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
            self.poller.poll_to_send(self.my_proc())?;
            self.shared.run_here(dest, function, Arguments::Medium(bytes, a, b));
            return Ok(());
        }
        let handler = handlers::id(Kind::Medium);
        self.with_credit(dest, |may_wait| {
            self.node.request_medium(dest, handler, [function | may_wait, a, b, 0], bytes)
        })
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
        [a, b]: [u64; 2],
    ) -> Result<(), GamError> {
        let bytes = check_medium(len)?;
        let dest = self.may_send("a request", dest, function)?;
        if dest == self.my_proc() {
            return self.request_medium(dest, function, &self.copy_of(from, bytes), [a, b]);
        }
        let prepared = match self.node.prepare_medium(dest, bytes, bytes) {
            Ok(prepared) => prepared,
            // Other layers of the process keep as many payloads as it may.
            Err(Error::PayloadsKept { .. }) => {
                return self.request_medium(dest, function, &self.copy_of(from, bytes), [a, b]);
            }
            Err(error) => return Err(error.into()),
        };
        self.with_credit(dest, |may_wait| {
            let mut prepared = prepared;
            self.memory.read(from, &mut prepared[..bytes]);
            self.count_copy(bytes);
            prepared.commit(handlers::id(Kind::Medium), [function | may_wait, a, b, 0], bytes)
        })
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
        self.shared.reply(dest, function, arguments)
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
        words: [u64; 2],
    ) -> Result<(), GamError> {
        let len = check_medium(len)?;
        let copied = || Reply::Medium { function, words, bytes: self.copy_of(from, len) };
        self.shared.reply_with(dest, function, copied)
    }

    /// Replies with `len` bytes from `local`: they are put at address `remote` of the requester, and then the
    /// function runs there (`gam_reply_xfer`). The bytes are copied at once, and leave when the handler
    /// returns.
    ///
    /// # Errors
    /// As for [`Gam::reply`]; [`GamError::Size`] beyond [`MAX_SIZE`] bytes. An address that the requester has
    /// not fails a later poll with [`GamError::Failed`].
    pub fn reply_xfer(
        &self,
        dest: i64,
        (local, len): (*const u8, i64),
        remote: u64,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let len = checked(len, MAX_SIZE)?;
        let copied = || Reply::Xfer { function, arg, to: remote, bytes: self.copy_of(local, len) };
        self.shared.reply_with(dest, function, copied)
    }

    /// Runs the handlers of what has come, and the functions of gets and stores that have ended (`am_poll`).
    /// In a handler it does nothing. Never waits.
    ///
    /// # Errors
    /// [`GamError::Lost`] where a process is gone; [`GamError::Failed`].
    #[inline]
    pub fn poll(&self) -> Result<(), GamError> {
        self.poller.poll()
    }

    /// As [`Gam::poll`], for a loop that waits for a handler. It sleeps a while where nothing has come for
    /// long, so that a process that waits leaves its processor to one that works.
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`], as no other handler runs meanwhile.
    pub fn poll_idle(&self) -> Result<(), GamError> {
        self.poller.poll_idle()
    }

    /// Runs handlers for so long (`am_sleep`).
    ///
    /// # Errors
    /// As for [`Gam::poll`]; [`GamError::InHandler`].
    pub fn sleep(&self, time: Duration) -> Result<(), GamError> {
        self.poller.sleep(time)
    }

    /// Waits until all processes have called it, and runs handlers meanwhile (`gam_barrier`).
    ///
    /// # Errors
    /// [`GamError::Lost`]; [`GamError::Left`]; [`GamError::InHandler`].
    pub fn barrier(&self) -> Result<(), GamError> {
        self.shared.may_call("a barrier")?;
        match self.meet(self.team.barrier_nb()) {
            Err(GamError::Node(Error::Differ { .. } | Error::Team { .. })) => Err(GamError::Left),
            met => met,
        }
    }

    /// Leaves (`am_disable`): waits until all that this process has sent is handled and replied to, and until
    /// all processes come here, and closes the layer's part of the node.
    ///
    /// # Errors
    /// [`GamError::InHandler`], and the layer stays open. [`GamError::Lost`] and [`GamError::Failed`]: the
    /// layer is closed all the same, and the others find this process lost.
    pub fn close(&self) -> Result<(), GamError> {
        self.shared.may_call("am_disable")?;
        let met = self.poller.settle().and_then(|()| self.meet_to_leave());
        // What is left are messages to processes that have left, too.
        let _ = self.node.clone().close(LEAVE_WITHIN);
        met
    }

    /// Waits until all processes come here. It is no barrier of the program's: a process that waits at one of
    /// those is told that this one has left.
    fn meet_to_leave(&self) -> Result<(), GamError> {
        match self.meet(self.team.all_gather_nb(vec![1_u8])) {
            // One waits at a barrier instead, and is told there.
            Err(GamError::Node(Error::Differ { .. } | Error::Team { .. })) => Ok(()),
            met => met,
        }
    }

    /// Waits for all processes. Meanwhile it runs the functions of this process's own gets and stores, and
    /// looks for failures: somebody may wait for a reply that could not be sent.
    fn meet(&self, mut met: TeamEvent<u8>) -> Result<(), GamError> {
        loop {
            self.poller.look_after_started()?;
            if met.wait_at_most(NAP)? {
                break;
            }
        }
        // Some may have ended before the others came here.
        self.poller.look_after_started()?;
        Ok(met.wait().0?)
    }

    /// Leaves without the others, which find this process lost: for a program that ends without
    /// [`Gam::close`]. Does nothing in a handler, where a node cannot be closed.
    pub fn abandon(&self) {
        let _ = self.node.clone().close(ABANDON_WITHIN);
    }

    /// Messages that were refused: malformed ones, those for addresses that are no function's, and replies to
    /// requests that were not sent. A message of several empty replies counts as all of them.
    pub fn refused(&self) -> u64 {
        self.shared.refused()
    }

    /// Requests that the library has replied to, as their handlers sent no reply. The layer counts a request
    /// of another process when it tells that process, once for several.
    pub fn null_replies(&self) -> u64 {
        self.shared.null_replies()
    }

    /// Times that a function of the program was run.
    pub fn handled(&self) -> u64 {
        self.shared.handled()
    }

    /// Bytes that the layer has copied: those of medium messages and of [`Gam::reply_xfer`] at their sender,
    /// and of stores and gets to oneself. Other stores and gets copy none.
    pub fn copies(&self) -> Copies {
        Copies { sent: self.copied.load(Ordering::Relaxed), received: 0 }
    }

    #[inline]
    fn may_send(&self, call: &'static str, dest: i64, function: Function) -> Result<Rank, GamError> {
        self.shared.may_call(call)?;
        self.check_function(function)?;
        let procs = self.procs();
        let known = Rank::try_from(dest).ok().filter(|rank| *rank < procs);
        known.ok_or(GamError::NoSuchProcess { dest, procs })
    }

    #[inline]
    fn check_function(&self, function: Function) -> Result<(), GamError> {
        match function & MAY_WAIT == 0 && self.shared.program.has_function(function) {
            true => Ok(()),
            false => Err(GamError::NotAFunction { function }),
        }
    }

    /// Sends with a credit, which comes back if the message does not leave. `send` gets the bit that goes
    /// beside the function, and says whether an empty reply may wait.
    #[inline]
    fn with_credit(&self, dest: Rank, send: impl FnOnce(u64) -> Result<(), Error>) -> Result<(), GamError> {
        self.poller.await_credit(dest)?;
        let may_wait = if self.shared.credits(dest).may_wait() { MAY_WAIT } else { 0 };
        send(may_wait).map_err(|error| {
            self.shared.give_credit_back(dest);
            GamError::from(error)
        })
    }

    fn count_copy(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes at an address of this process.
    fn copy_of(&self, from: *const u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(from, &mut bytes);
        self.count_copy(len);
        bytes
    }
}

fn check_medium(len: i64) -> Result<usize, GamError> {
    checked(len, MEDIUM_MAX)
}

fn checked(len: i64, most: usize) -> Result<usize, GamError> {
    let bytes = usize::try_from(len).ok().filter(|bytes| *bytes <= most);
    bytes.ok_or(GamError::Size { bytes: len, most })
}

//! The receiving side: runs the program's functions, and sees to it that each request has one reply.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use standpipe::{AllMemory, Call, Error, HandlerId, Landed, Node, Rank};

use super::error::GamError;
use super::message::{Arguments, Function, Kind, Message, Outgoing};
use super::program::Program;

/// Requests to a process that may be without their reply: as many slots as the shared-memory original had for
/// a pair.
pub const CREDITS: u32 = 30;

/// The namespace of this layer's handlers.
pub(super) const NAMESPACE: &str = "gam";

/// The handlers of all kinds, by their numbers.
const IDS: [HandlerId; Kind::ALL.len()] = {
    let mut ids = [HandlerId::of(NAMESPACE, Kind::Null.name()); Kind::ALL.len()];
    let mut number = 0;
    while number < ids.len() {
        ids[number] = HandlerId::of(NAMESPACE, Kind::ALL[number].name());
        number += 1;
    }
    ids
};

/// The handler of a kind's messages.
#[inline]
pub(super) fn id(kind: Kind) -> HandlerId {
    IDS[kind as usize]
}

/// What handlers and the caller's side share.
pub(super) struct Shared<P> {
    pub(super) program: P,
    memory: AllMemory,
    /// By process, what of its credits is out.
    credits: Vec<Credits>,
    /// Messages that were refused, as no library of ours sends them or no program has their function.
    refused: AtomicU64,
    /// Replies that the library sent for handlers that sent none.
    null_replies: AtomicU64,
    /// Functions of the program that were run.
    handled: AtomicU64,
    /// Messages that came, of any kind.
    arrived: AtomicU64,
    /// Why a reply could not be sent, until somebody is told.
    failed: Mutex<Option<Error>>,
}

/// The credits of one process, counted on from 0: those that are out are the difference. Each count has one
/// writer at a time, which needs no atomic operation of two steps.
#[derive(Default)]
struct Credits {
    /// Requests that it was sent: the thread that calls the layer counts them.
    taken: AtomicU32,
    /// Requests that it has replied to: whoever runs handlers counts them, and one thread at a time does.
    replied: AtomicU32,
}

impl Credits {
    /// None, where a request that failed was replied to all the same.
    fn are_out(&self) -> u32 {
        let out = self.taken.load(Ordering::Relaxed).wrapping_sub(self.replied.load(Ordering::Relaxed));
        out.cast_signed().max(0).cast_unsigned()
    }
}

thread_local! {
    /// The function of the program that this thread is in. Handlers run in other layers' calls, too.
    static RUNNING: Cell<Running> = const { Cell::new(Running::Nothing) };

    /// What the handler that this thread is in has replied.
    /// Never dropped with its thread: handlers also run at a program's end, after such variables are gone.
    static REPLY: Cell<ManuallyDrop<Option<Reply>>> = const { Cell::new(ManuallyDrop::new(None)) };
}

/// Which function of the program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Running {
    Nothing,
    /// One that may not reply.
    Other,
    /// A request's handler.
    Request(Rank),
    /// The same, after its reply.
    Replied(Rank),
}

/// A reply that is sent when its handler returns.
pub(super) enum Reply {
    Words(Outgoing),
    Medium {
        function: Function,
        words: [u64; 2],
        bytes: Vec<u8>,
    },
    /// Bytes for an address of the requester.
    Xfer {
        function: Function,
        arg: u64,
        to: u64,
        bytes: Vec<u8>,
    },
}

impl<P: Program> Shared<P> {
    pub(super) fn new(program: P, memory: AllMemory, procs: u32) -> Shared<P> {
        let credits = (0..procs).map(|_| Credits::default()).collect();
        let zero = || AtomicU64::new(0);
        Shared {
            program,
            memory,
            credits,
            refused: zero(),
            null_replies: zero(),
            handled: zero(),
            arrived: zero(),
            failed: Mutex::new(None),
        }
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn null_replies(&self) -> u64 {
        self.null_replies.load(Ordering::Relaxed)
    }

    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Whether every request of this process has been replied to.
    pub(super) fn owes_nothing(&self) -> bool {
        self.credits.iter().all(|credits| credits.are_out() == 0)
    }

    /// Takes a credit for a request to that process, if there is one.
    #[inline]
    pub(super) fn take_credit(&self, dest: Rank) -> bool {
        let credits = &self.credits[dest as usize];
        let has_one = credits.are_out() < CREDITS;
        if has_one {
            let taken = credits.taken.load(Ordering::Relaxed);
            credits.taken.store(taken.wrapping_add(1), Ordering::Relaxed);
        }
        has_one
    }

    /// Gives back what the calling thread has taken for a request that it then did not send.
    pub(super) fn give_credit_back(&self, dest: Rank) {
        let credits = &self.credits[dest as usize];
        if credits.are_out() == 0 {
            return add_one(&self.refused);
        }
        let taken = credits.taken.load(Ordering::Relaxed);
        credits.taken.store(taken.wrapping_sub(1), Ordering::Relaxed);
    }

    /// Takes note of a reply. More come than were asked for only from a peer that no library of ours is.
    #[inline]
    fn note_reply(&self, from: Rank) {
        match self.credits.get(from as usize).filter(|credits| credits.are_out() > 0) {
            None => add_one(&self.refused),
            Some(credits) => {
                let replied = credits.replied.load(Ordering::Relaxed);
                credits.replied.store(replied.wrapping_add(1), Ordering::Relaxed);
            }
        }
    }

    /// Whether more than half of them are out.
    #[inline]
    pub(super) fn owes_many(&self, dest: Rank) -> bool {
        self.credits[dest as usize].are_out() > CREDITS / 2
    }

    pub(super) fn has_credit(&self, dest: Rank) -> bool {
        self.credits[dest as usize].are_out() < CREDITS
    }

    /// Refuses a call that a handler may not make.
    #[inline]
    pub(super) fn may_call(&self, call: &'static str) -> Result<(), GamError> {
        match RUNNING.get() {
            Running::Nothing => Ok(()),
            _ => Err(GamError::InHandler { call }),
        }
    }

    /// Why a reply could not be sent, of which nobody has been told.
    pub(super) fn take_failed(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The requester whose request the program's handler may reply to now.
    #[inline]
    fn reply_is_due(&self, dest: i64) -> Result<Rank, GamError> {
        match RUNNING.get() {
            Running::Request(from) if i64::from(from) == dest => Ok(from),
            Running::Replied(from) if i64::from(from) == dest => Err(GamError::Replied { dest: from }),
            _ => Err(GamError::NoReplyDue { dest }),
        }
    }

    /// Notes a reply to the request whose handler the program is in, if it may reply.
    pub(super) fn reply_with(
        &self,
        dest: i64,
        function: Function,
        reply: impl FnOnce() -> Reply,
    ) -> Result<(), GamError> {
        if !self.program.has_function(function) {
            return Err(GamError::NotAFunction { function });
        }
        let from = self.reply_is_due(dest)?;
        REPLY.set(ManuallyDrop::new(Some(reply())));
        RUNNING.set(Running::Replied(from));
        Ok(())
    }

    /// Notes the reply of the request whose handler the program is in.
    #[inline]
    pub(super) fn reply(
        &self,
        dest: i64,
        function: Function,
        arguments: &Arguments<'_>,
    ) -> Result<(), GamError> {
        let from = self.reply_is_due(dest)?;
        let reply = match *arguments {
            Arguments::Medium(bytes, a, b) => {
                Reply::Medium { function, words: [a, b], bytes: bytes.to_vec() }
            }
            ref arguments => {
                let words = || if let Arguments::Words(words) = arguments { words.len() } else { 0 };
                let message = Outgoing::of(function, arguments);
                Reply::Words(message.ok_or_else(|| GamError::Words { words: words() })?)
            }
        };
        REPLY.set(ManuallyDrop::new(Some(reply)));
        RUNNING.set(Running::Replied(from));
        Ok(())
    }

    /// Registers the handlers of all kinds, each to be withdrawn with its node.
    pub(super) fn register(self: &Arc<Self>, node: &Node) -> Result<(), Error>
    where
        P: 'static,
    {
        for kind in Kind::ALL {
            let shared = Arc::clone(self);
            node.register(NAMESPACE, kind.name(), move |call| shared.handle(kind, call))?;
        }
        Ok(())
    }

    /// Runs the program's function for a message that came, and replies to a request.
    fn handle(&self, kind: Kind, call: &mut Call<'_>) {
        let (from, is_request) = (call.from(), call.is_request());
        bump(&self.arrived);
        if !is_request {
            self.note_reply(from);
        }
        let landed = match call.landed() {
            Some((Landed::Private(addr), len)) => usize::try_from(len).ok().map(|len| (addr, len)),
            _ => None,
        };
        let reply = match Message::parse(kind, call.args(), call.payload(), landed) {
            Ok(message) => self.run(from, is_request, &message),
            Err(_) => {
                add_one(&self.refused);
                None
            }
        };
        if is_request {
            self.answer(call, reply);
        }
    }

    #[inline]
    fn answer(&self, call: &mut Call<'_>, reply: Option<Reply>) {
        let sent = match &reply {
            None => {
                add_one(&self.null_replies);
                call.reply(id(Kind::Null), [0; 4])
            }
            Some(Reply::Words(reply)) if reply.payload().is_empty() => call.reply(id(reply.kind), reply.args),
            Some(Reply::Words(reply)) => call.reply_medium(id(reply.kind), reply.args, reply.payload()),
            Some(Reply::Medium { function, words: [a, b], bytes }) => {
                call.reply_medium(id(Kind::Medium), [*function, *a, *b, 0], bytes)
            }
            Some(Reply::Xfer { function, arg, to, bytes }) => {
                let place = self.memory.remote(call.from(), *to);
                let sent = call.reply_long(id(Kind::Store), [*function, *arg, 0, 0], place, bytes);
                sent.or_else(|error| {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    // Its credit comes back all the same.
                    call.reply(id(Kind::Null), [0; 4])
                })
            }
        };
        // Only a lost peer gets no reply, and the caller's side looks for those.
        let _ = sent;
    }

    /// Runs the function of a message, and says what it has replied.
    #[inline]
    fn run(&self, from: Rank, is_request: bool, message: &Message<'_>) -> Option<Reply> {
        let arguments = message.arguments()?;
        if !self.program.has_function(message.function) {
            add_one(&self.refused);
            return None;
        }
        self.run_function(from, is_request, message.function, arguments)
    }

    #[inline]
    fn run_function(
        &self,
        from: Rank,
        is_request: bool,
        function: Function,
        arguments: Arguments<'_>,
    ) -> Option<Reply> {
        add_one(&self.handled);
        let running = if is_request { Running::Request(from) } else { Running::Other };
        let after = RUNNING.with(|place| {
            let outer = place.replace(running);
            self.program.call(function, from, arguments);
            place.replace(outer)
        });
        match after {
            Running::Replied(_) => ManuallyDrop::into_inner(REPLY.replace(ManuallyDrop::new(None))),
            _ => None,
        }
    }

    /// Runs the function of a request that this process sends to itself, and then that of its reply.
    pub(super) fn run_here(&self, own: Rank, function: Function, arguments: Arguments<'_>) {
        let reply = self.run_function(own, true, function, arguments);
        match reply {
            None => add_one(&self.null_replies),
            Some(Reply::Words(reply)) => {
                let message = Message::parse(reply.kind, reply.args, reply.payload(), None);
                // Made by ourselves a moment ago.
                if let Ok(message) = message {
                    self.run(own, false, &message);
                }
            }
            Some(Reply::Medium { function, words: [a, b], bytes }) => {
                self.run_function(own, false, function, Arguments::Medium(&bytes, a, b));
            }
            Some(Reply::Xfer { function, arg, to, bytes }) => {
                self.memory.write(std::ptr::with_exposed_provenance_mut(to as usize), &bytes);
                let landed = Arguments::Memory { addr: to, len: bytes.len(), arg };
                self.run_function(own, false, function, landed);
            }
        }
    }

    /// Runs a function that is no message's: one that an operation of this process ends with.
    pub(super) fn run_after(&self, dest: Rank, function: Function, arguments: Arguments<'_>) {
        self.run_function(dest, false, function, arguments);
    }
}

/// Counts one more of what several threads count: the one that calls the layer, and those in whose calls of
/// other layers handlers run.
#[inline]
fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Counts one more, and says how many that makes. One thread at a time counts: the one that calls the layer,
/// or the one that runs handlers.
#[inline]
pub(super) fn bump(count: &AtomicU64) -> u64 {
    let counted = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(counted, Ordering::Relaxed);
    counted
}

//! The receiving side: runs the program's functions, and sees to it that each request has one reply.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use standpipe::{AllMemory, Call, Error, HandlerId, Landed, Node, Rank};

use super::credits::{Credits, Unasked};
use super::error::GamError;
use super::message::{Arguments, Function, Kind, Message, Outgoing};
use super::program::Program;

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
    /// By process, what of its credits is out, and what it is owed.
    credits: Vec<Credits>,
    /// Messages that were refused, as no library of ours sends them or no program has their function.
    refused: AtomicU64,
    /// Requests whose handlers sent no reply, and that the library has replied to.
    null_replies: AtomicU64,
    /// Functions of the program that were run for messages.
    handled: AtomicU64,
    /// The same in calls of this process's own: for messages to itself, and at the ends of stores and gets.
    handled_here: AtomicU64,
    /// Messages that came, of any kind.
    arrived: AtomicU64,
    /// Why a reply could not be sent, until somebody is told.
    failed: Mutex<Option<Error>>,
    /// Whether empty replies found their lane full.
    has_unsent: AtomicBool,
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
            handled_here: zero(),
            arrived: zero(),
            failed: Mutex::new(None),
            has_unsent: AtomicBool::new(false),
        }
    }

    /// Whether empty replies found their lane full, and have not been sent since.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn null_replies(&self) -> u64 {
        self.null_replies.load(Ordering::Relaxed)
    }

    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed) + self.handled_here.load(Ordering::Relaxed)
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// The credits between this process and that one.
    #[inline]
    pub(super) fn credits(&self, dest: Rank) -> &Credits {
        &self.credits[dest as usize]
    }

    /// The processes that requests of this one have no reply of.
    pub(super) fn owing(&self) -> impl Iterator<Item = Rank> {
        (0..).zip(&self.credits).filter(|(_, credits)| credits.are_out() > 0).map(|(rank, _)| rank)
    }

    /// Gives back what the calling thread has taken for a request that it then did not send.
    pub(super) fn give_credit_back(&self, dest: Rank) {
        if !self.credits(dest).untake() {
            add(&self.refused, 1);
        }
    }

    /// Takes note of `count` replies. More come than were asked for only from a peer that no library of ours
    /// is.
    #[inline]
    fn note_replies(&self, from: Rank, count: u64) {
        let returned = match self.credits.get(from as usize) {
            Some(credits) => credits.returned(count),
            None => Err(Unasked { replies: 1 }),
        };
        if let Err(Unasked { replies }) = returned {
            add(&self.refused, u64::from(replies));
        }
    }

    /// Sends the empty replies that are owed to other processes, where their lanes have room. Where one has
    /// not, they stay owed. Never waits.
    pub(super) fn give_back_owed(&self, node: &Node) {
        self.has_unsent.store(false, Ordering::Relaxed);
        for (dest, credits) in (0..).zip(&self.credits) {
            let owed = credits.take_owed();
            if owed == 0 {
                continue;
            }
            match node.try_request(dest, id(Kind::Returned), [u64::from(owed), 0, 0, 0]) {
                Ok(true) => add(&self.null_replies, u64::from(owed)),
                // A lost peer gets none, and the caller's side looks for those.
                Err(Error::PeerLost { .. }) => {}
                Ok(false) | Err(_) => {
                    credits.still_owed(owed);
                    self.has_unsent.store(true, Ordering::Relaxed);
                }
            }
        }
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
        let landed = match call.landed() {
            Some((Landed::Private(addr), len)) => usize::try_from(len).ok().map(|len| (addr, len)),
            _ => None,
        };
        let message = Message::parse(kind, call.args(), call.payload(), landed);
        let returns = message.as_ref().ok().and_then(Message::returns);
        match (kind, is_request) {
            (Kind::Returned | Kind::Leave, true) => return self.settle(call, message.is_ok(), returns),
            (_, true) => {}
            // Any other is the reply to one request, also where there is more to refuse in it.
            (_, false) => self.note_replies(from, returns.unwrap_or(1)),
        }
        let may_wait = message.as_ref().is_ok_and(|message| message.may_wait);
        let reply = match message {
            Ok(message) => self.run(from, is_request, &message),
            Err(_) => {
                add(&self.refused, 1);
                None
            }
        };
        if is_request {
            self.answer(call, reply, may_wait);
        }
    }

    /// Handles a request that takes no credit: it gives some back, or asks for those that are owed.
    fn settle(&self, call: &mut Call<'_>, is_whole: bool, returns: Option<u64>) {
        if !is_whole {
            return add(&self.refused, 1);
        }
        if let Some(count) = returns {
            return self.note_replies(call.from(), count);
        }
        if let Some(credits) = self.credits.get(call.from() as usize) {
            credits.leaves();
            self.send_empty(call, credits.take_owed());
        }
    }

    #[inline]
    fn answer(&self, call: &mut Call<'_>, reply: Option<Reply>, may_wait: bool) {
        let sent = match &reply {
            None => {
                let owed = self.owed_after(call.from(), may_wait);
                self.send_empty(call, owed);
                Ok(())
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
                    call.reply(id(Kind::Null), [1, 0, 0, 0])
                })
            }
        };
        // Only a lost peer gets no reply, and the caller's side looks for those.
        let _ = sent;
    }

    /// How many empty replies are to be sent, after another request that had none of the program's.
    #[inline]
    fn owed_after(&self, from: Rank, may_wait: bool) -> u32 {
        match self.credits.get(from as usize) {
            Some(credits) => credits.note_unanswered(may_wait),
            // A process that is none of the job's is told of each.
            None => 1,
        }
    }

    /// Sends so many empty replies, by one message.
    #[inline]
    fn send_empty(&self, call: &mut Call<'_>, owed: u32) {
        if owed > 0 {
            add(&self.null_replies, u64::from(owed));
            // Only a lost peer gets none, and the caller's side looks for those.
            let _ = call.reply(id(Kind::Null), [u64::from(owed), 0, 0, 0]);
        }
    }

    /// Runs the function of a message, and says what it has replied.
    #[inline]
    fn run(&self, from: Rank, is_request: bool, message: &Message<'_>) -> Option<Reply> {
        let arguments = message.arguments()?;
        if !self.program.has_function(message.function) {
            add(&self.refused, 1);
            return None;
        }
        bump(&self.handled);
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

    /// As [`Shared::run_function`], in a call of this process's own.
    #[inline]
    fn run_own(
        &self,
        from: Rank,
        is_request: bool,
        function: Function,
        arguments: Arguments<'_>,
    ) -> Option<Reply> {
        bump(&self.handled_here);
        self.run_function(from, is_request, function, arguments)
    }

    /// Runs the function of a request that this process sends to itself, and then that of its reply.
    pub(super) fn run_here(&self, own: Rank, function: Function, arguments: Arguments<'_>) {
        let reply = self.run_own(own, true, function, arguments);
        match reply {
            None => add(&self.null_replies, 1),
            Some(Reply::Words(reply)) => {
                let message = Message::parse(reply.kind, reply.args, reply.payload(), None);
                // Made by ourselves a moment ago.
                if let Ok(message) = &message
                    && let Some(arguments) = message.arguments()
                {
                    self.run_own(own, false, message.function, arguments);
                }
            }
            Some(Reply::Medium { function, words: [a, b], bytes }) => {
                self.run_own(own, false, function, Arguments::Medium(&bytes, a, b));
            }
            Some(Reply::Xfer { function, arg, to, bytes }) => {
                self.memory.write(std::ptr::with_exposed_provenance_mut(to as usize), &bytes);
                let landed = Arguments::Memory { addr: to, len: bytes.len(), arg };
                self.run_own(own, false, function, landed);
            }
        }
    }

    /// Runs a function that is no message's: one that an operation of this process ends with.
    pub(super) fn run_after(&self, dest: Rank, function: Function, arguments: Arguments<'_>) {
        self.run_own(dest, false, function, arguments);
    }
}

/// Counts what several threads count: the one that calls the layer, and those in whose calls of other layers
/// handlers run.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Counts one more, and says how many that makes. One thread at a time counts: the one that calls the layer,
/// or the one that runs handlers.
#[inline]
pub(super) fn bump(count: &AtomicU64) -> u64 {
    let counted = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(counted, Ordering::Relaxed);
    counted
}

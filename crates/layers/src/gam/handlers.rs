//! The receiving side: runs the program's functions, and sees to it that each request has one reply.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use standpipe::{Call, Error, HandlerId, Landed, Node, Rank};

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
    /// By process, how many more requests it may be sent before it replies.
    credits: Vec<AtomicU32>,
    /// Messages that were refused, as no library of ours sends them or no program has their function.
    refused: AtomicU64,
    /// Replies that the library sent for handlers that sent none.
    null_replies: AtomicU64,
    /// Functions of the program that were run.
    handled: AtomicU64,
    /// Messages that came, of any kind.
    arrived: AtomicU64,
    /// The function of the program that the thread which calls the layer is in.
    running: AtomicU64,
}

thread_local! {
    /// What the handler that this thread is in has replied.
    static REPLY: RefCell<Option<Reply>> = const { RefCell::new(None) };
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

impl Running {
    /// In a word: the process above, and the kind in the two lowest bits.
    fn to_word(self) -> u64 {
        match self {
            Running::Nothing => 0,
            Running::Other => 1,
            Running::Request(from) => u64::from(from) << 2 | 2,
            Running::Replied(from) => u64::from(from) << 2 | 3,
        }
    }

    fn from_word(word: u64) -> Running {
        let from = (word >> 2) as Rank;
        match word & 3 {
            0 => Running::Nothing,
            1 => Running::Other,
            2 => Running::Request(from),
            _ => Running::Replied(from),
        }
    }
}

/// A reply that is sent when its handler returns.
enum Reply {
    Words(Outgoing),
    Medium { function: Function, words: [u64; 2], bytes: Vec<u8> },
}

impl<P: Program> Shared<P> {
    pub(super) fn new(program: P, procs: u32) -> Shared<P> {
        let credits = (0..procs).map(|_| AtomicU32::new(CREDITS)).collect();
        let zero = || AtomicU64::new(0);
        Shared {
            program,
            credits,
            refused: zero(),
            null_replies: zero(),
            handled: zero(),
            arrived: zero(),
            running: zero(),
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
        self.credits.iter().all(|credits| credits.load(Ordering::Relaxed) == CREDITS)
    }

    /// Takes a credit for a request to that process, if there is one.
    #[inline]
    pub(super) fn take_credit(&self, dest: Rank) -> bool {
        let credits = &self.credits[dest as usize];
        let left = credits.load(Ordering::Relaxed);
        // One thread calls the layer, and handlers run on it: nobody else changes it meanwhile.
        credits.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// Gives one back: the request was replied to, or never sent.
    #[inline]
    pub(super) fn give_credit(&self, dest: Rank) {
        // More than were given out come back only from a peer that replies to what nobody asked.
        let credits = self.credits.get(dest as usize);
        let Some(credits) = credits.filter(|credits| credits.load(Ordering::Relaxed) < CREDITS) else {
            bump(&self.refused);
            return;
        };
        credits.store(credits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Whether more than half of them are out.
    #[inline]
    pub(super) fn owes_many(&self, dest: Rank) -> bool {
        self.credits[dest as usize].load(Ordering::Relaxed) < CREDITS / 2
    }

    pub(super) fn has_credit(&self, dest: Rank) -> bool {
        self.credits[dest as usize].load(Ordering::Relaxed) > 0
    }

    fn running(&self) -> Running {
        Running::from_word(self.running.load(Ordering::Relaxed))
    }

    fn set_running(&self, running: Running) {
        self.running.store(running.to_word(), Ordering::Relaxed);
    }

    /// Refuses a call that a handler may not make.
    #[inline]
    pub(super) fn may_call(&self, call: &'static str) -> Result<(), GamError> {
        match self.running() {
            Running::Nothing => Ok(()),
            _ => Err(GamError::InHandler { call }),
        }
    }

    /// Notes the reply of the request whose handler the program is in.
    #[inline]
    pub(super) fn reply(
        &self,
        dest: i64,
        function: Function,
        arguments: &Arguments<'_>,
    ) -> Result<(), GamError> {
        let from = match self.running() {
            Running::Request(from) if i64::from(from) == dest => from,
            Running::Replied(from) if i64::from(from) == dest => {
                return Err(GamError::Replied { dest: from });
            }
            _ => return Err(GamError::NoReplyDue { dest }),
        };
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
        REPLY.set(Some(reply));
        self.set_running(Running::Replied(from));
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
            self.give_credit(from);
        }
        let landed = match call.landed() {
            Some((Landed::Private(addr), len)) => usize::try_from(len).ok().map(|len| (addr, len)),
            _ => None,
        };
        let reply = match Message::parse(kind, call.args(), call.payload(), landed) {
            Ok(message) => self.run(from, is_request, &message),
            Err(_) => {
                bump(&self.refused);
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
                bump(&self.null_replies);
                call.reply(id(Kind::Null), [0; 4])
            }
            Some(Reply::Words(reply)) if reply.payload().is_empty() => call.reply(id(reply.kind), reply.args),
            Some(Reply::Words(reply)) => call.reply_medium(id(reply.kind), reply.args, reply.payload()),
            Some(Reply::Medium { function, words: [a, b], bytes }) => {
                call.reply_medium(id(Kind::Medium), [*function, *a, *b, 0], bytes)
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
            bump(&self.refused);
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
        bump(&self.handled);
        let running = if is_request { Running::Request(from) } else { Running::Other };
        let outer = self.running();
        self.set_running(running);
        self.program.call(function, from, arguments);
        let after = self.running();
        self.set_running(outer);
        match after {
            Running::Replied(_) => REPLY.take(),
            _ => None,
        }
    }

    /// Runs the function of a request that this process sends to itself, and then that of its reply.
    pub(super) fn run_here(&self, own: Rank, function: Function, arguments: Arguments<'_>) {
        let reply = self.run_function(own, true, function, arguments);
        match reply {
            None => _ = bump(&self.null_replies),
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
        }
    }

    /// Runs a function that is no message's: one that an operation of this process ends with.
    pub(super) fn run_after(&self, dest: Rank, function: Function, arguments: Arguments<'_>) {
        self.run_function(dest, false, function, arguments);
    }
}

/// Counts one more, and says how many that makes. Only the thread that calls the layer counts.
#[inline]
pub(super) fn bump(count: &AtomicU64) -> u64 {
    let counted = count.load(Ordering::Relaxed).wrapping_add(1);
    count.store(counted, Ordering::Relaxed);
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_goes_through_a_word_and_back() {
        let all = [Running::Nothing, Running::Other, Running::Request(0), Running::Replied(0)];
        let last = [Running::Request(Rank::MAX), Running::Replied(Rank::MAX)];
        for running in all.into_iter().chain(last) {
            assert!(Running::from_word(running.to_word()) == running);
        }
    }
}

//! The part that calls, threads and the handler of Active Messages share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use standpipe::{Call, Error, HandlerId, Node, Rank};

use super::descriptor::status;
use super::error::{AsyncError, ErrorCode, Resource, ViaError};
use super::state::{End, Fetched, State, Transfer};
use super::vi::{Side, ViState};
use super::wire::{Greeting, Link, Malformed, Message, Outcome, Range, parse};

/// The namespace of the layer's handler.
pub(super) const NAMESPACE: &str = "via";
const MESSAGE: &str = "message";

/// Messages that are taken before a peer counts as lost, at most: others may go on for ever.
const LAST_WORDS_MAX: u32 = 100_000;

/// Looks in vain after which there is nothing more of them.
const VAIN_MAX: u32 = 8;

/// How long a wait sleeps where a lane is full: nothing tells that it has room again.
const NAP: Duration = Duration::from_micros(100);

/// How often who waits looks for peers that are lost.
const LOSS_LOOK: Duration = Duration::from_millis(5);

/// The handler that all messages name.
pub(super) fn handler() -> HandlerId {
    HandlerId::of(NAMESPACE, MESSAGE)
}

/// Everything but the node, so that this can end.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Transfers under way. A thread takes this lock before the state's; a handler takes the state's alone.
    moving: Mutex<Vec<Transfer>>,
    /// Rung when the program's code is to be called.
    pub(super) upcalls: Condvar,
    /// Calls of the program that have polled.
    pub(super) polls: AtomicU64,
    /// Calls of the program that wait, and so make progress.
    pub(super) waiting: AtomicUsize,
    pub(super) is_ending: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(state: State) -> Shared {
        Shared {
            state: Mutex::new(state),
            moving: Mutex::default(),
            upcalls: Condvar::new(),
            polls: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
        }
    }

    /// The state, for those who call no program's code meanwhile.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Changes the state, and has the program's code be called where that is due.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let result = act(&mut state);
        if !state.upcalls.is_empty() {
            self.upcalls.notify_all();
        }
        result
    }

    /// Goes on with what waits for room and what is being moved, unless another thread does. Whether
    /// something still waits for room.
    pub(super) fn pump(&self, node: &Node) -> bool {
        match self.moving.try_lock() {
            Ok(mut moving) => self.pump_these(node, &mut moving),
            Err(TryLockError::Poisoned(poisoned)) => self.pump_these(node, &mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Makes progress until `done`, for so long at most.
    pub(super) fn wait_until(
        &self,
        node: &Node,
        within: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let (mut is_done, mut is_stuck, mut looked) = (false, false, None);
        loop {
            let left = within.saturating_sub(begun.elapsed());
            let naps = is_stuck && left > NAP;
            let waited = node.within(if naps { NAP } else { left }).wait_until(|| {
                is_stuck = self.pump(node);
                self.note_losses_in_time(node, &mut looked);
                is_done = done();
                is_done || is_stuck && !naps && left > NAP
            });
            match waited {
                _ if is_done => return Ok(()),
                Err(error) if !naps || !error.is_timeout() => return Err(error),
                _ => {}
            }
        }
    }

    /// The same, after whichever thread is at it: when it returns, nothing moves any more of what has been
    /// taken down before.
    pub(super) fn pump_after_others(&self, node: &Node) {
        self.pump_these(node, &mut lock(&self.moving));
    }

    fn pump_these(&self, node: &Node, moving: &mut Vec<Transfer>) -> bool {
        self.with(|state| {
            if state.has_waiting() {
                state.send_waiting(node);
            }
            for id in std::mem::take(&mut state.stalled) {
                state.start_sends(node, id);
            }
            moving.append(&mut state.transfers);
        });
        while !moving.is_empty() {
            let is_wanted: Vec<bool> =
                self.with(|state| moving.iter().map(|one| is_wanted(state, one)).collect());
            let mut ended = Vec::new();
            for (at, is_wanted) in is_wanted.into_iter().enumerate().rev() {
                // A look may make progress, and so run handlers, which want the state.
                if !is_wanted || moving[at].events.iter_mut().all(|event| event.is_complete()) {
                    ended.push(moving.remove(at));
                }
            }
            if ended.is_empty() {
                break;
            }
            for transfer in ended.into_iter().rev() {
                self.settle(node, transfer);
            }
            // The end of one may have let others begin.
            self.with(|state| moving.append(&mut state.transfers));
            node.wake();
        }
        let state = self.state();
        state.has_waiting() || !state.stalled.is_empty()
    }

    fn settle(&self, node: &Node, mut transfer: Transfer) {
        let mut moved = Ok(());
        for event in std::mem::take(&mut transfer.events) {
            // This gives up an operation that is not wanted any more, or has failed in part.
            let (result, _) = event.cancel();
            moved = moved.and(result);
        }
        self.with(|state| match transfer.fetched {
            Some(fetched) => state.on_fetched(node, &transfer, fetched, moved),
            None => state.on_moved(node, &transfer, moved),
        });
    }

    /// Whether nothing waits to be sent or is being moved.
    pub(super) fn is_idle(&self) -> bool {
        let is_still = self.moving.try_lock().is_ok_and(|moving| moving.is_empty());
        let state = self.state();
        is_still && state.transfers.is_empty() && !state.has_waiting()
    }

    /// The same as [`Shared::note_losses`] where the last time is long enough ago, for callers in loops.
    fn note_losses_in_time(&self, node: &Node, last: &mut Option<Instant>) {
        let now = Instant::now();
        if last.is_none_or(|last| now.duration_since(last) >= LOSS_LOOK) {
            *last = Some(now);
            self.note_losses(node);
        }
    }

    /// Looks for peers that are lost, and ends what waits for them.
    pub(super) fn note_losses(&self, node: &Node) {
        let used = self.with(|state| {
            let connected = state.vis.values().filter(|vi| vi.state == ViState::Connected);
            let mut used: BTreeSet<Rank> =
                connected.filter_map(|vi| vi.connection.as_ref()).map(|other| other.peer).collect();
            used.extend(state.meeting.asked.values().flat_map(|asked| asked.peers.iter().copied()));
            used.extend(state.meeting.requests.values().map(|request| request.peer));
            used
        });
        let lost: Vec<Rank> =
            used.into_iter().filter(|peer| *peer != node.rank() && node.is_lost(*peer)).collect();
        if lost.is_empty() {
            return;
        }
        // The last messages of a peer come before its loss.
        let mut vain = 0;
        for _ in 0..LAST_WORDS_MAX {
            vain = if node.progress() { 0 } else { vain + 1 };
            if vain == VAIN_MAX {
                break;
            }
            if vain > 0 {
                // Another thread may be at the last of them.
                std::thread::yield_now();
            }
        }
        for peer in lost {
            self.with(|state| {
                state.on_lost(peer);
                state.on_lost_asked(peer);
            });
        }
    }

    /// The network has failed, or is not what it should be.
    pub(super) fn tell_catastrophe(&self) {
        self.with(tell_catastrophe);
    }

    /// Handles a message.
    pub(super) fn take(&self, call: &mut Call<'_>) {
        let node = call.node();
        let (peer, parsed) = (call.from(), parse(call.args(), call.payload_len()));
        self.with(|state| match parsed.and_then(|message| take(state, &node, call, message)) {
            // No reply of the network's: answers stay in one order with what is said without being asked, so
            // that nobody hears of a disconnect before an answer that was given earlier.
            Ok(Some((message, payload))) => state.send(&node, peer, message, &payload),
            Ok(None) => {}
            Err(Malformed) => {
                state.refused += 1;
                tell_catastrophe(state);
            }
        });
    }
}

fn is_wanted(state: &State, transfer: &Transfer) -> bool {
    state.vis.get(&transfer.vi).is_some_and(|vi| vi.is_at(transfer.attempt, transfer.peer))
}

fn tell_catastrophe(state: &mut State) {
    let nics: Vec<u32> = state.nics.keys().copied().collect();
    for nic in nics {
        let (resource, code) = (Resource::Nic, ErrorCode::Catastrophic);
        state.tell_error(AsyncError { nic, vi: 0, cq: 0, descriptor: 0, operation: 0, resource, code });
    }
}

/// An answer to a message, with its payload.
type Answer = Option<(Message, Vec<u8>)>;

/// Handles a message: the answer, if it has one.
fn take(state: &mut State, node: &Node, call: &Call<'_>, message: Message) -> Result<Answer, Malformed> {
    let peer = call.from();
    match message {
        Message::Data { to, ticket, immediate, is_answered } => {
            let link = other_end(state, peer, to);
            let outcome = state.on_data(call, to, immediate);
            return Ok(link.filter(|_| is_answered).map(|to| outcome_of(to, ticket, outcome)));
        }
        Message::Outcome { to, ticket, outcome } => state.on_outcome(node, peer, to, ticket, outcome),
        Message::Offer { to, ticket, immediate, bytes } => {
            let link = other_end(state, peer, to);
            let fetched = Fetched { ticket, immediate, bytes };
            let outcome =
                state.on_offer((node, peer, to), fetched, call.payload()).map_err(|()| Malformed)?;
            return Ok(outcome.zip(link).map(|(outcome, to)| outcome_of(to, ticket, outcome)));
        }
        Message::Find { to, ticket, immediate, is_write } => {
            let range = Range::from_bytes(call.payload())?;
            return Ok(state.on_find((peer, to, ticket), range, is_write, immediate));
        }
        Message::Found { to, ticket, is_there } => {
            let is_right = state.on_found(node, (peer, to, ticket), is_there, call.payload());
            return if is_right { Ok(None) } else { Err(Malformed) };
        }
        Message::Written { to, ticket, immediate, bytes, is_answered } => {
            let link = other_end(state, peer, to);
            let outcome = state.on_written(peer, to, immediate, bytes);
            return Ok(link.filter(|_| is_answered).map(|to| outcome_of(to, ticket, outcome)));
        }
        Message::Broke { to, cause } => state.on_broken(peer, to, Some(cause)),
        Message::Disconnect { to } => state.on_broken(peer, to, None),
        other => return take_meeting(state, node, call, other),
    }
    Ok(None)
}

/// The same, of messages by which connections come about.
fn take_meeting(
    state: &mut State,
    node: &Node,
    call: &Call<'_>,
    message: Message,
) -> Result<Answer, Malformed> {
    let peer = call.from();
    match message {
        Message::Connect { from } => {
            let greeting = Greeting::from_bytes(call.payload())?;
            return Ok(state.on_connect(peer, from, greeting).map(|answer| (answer, Vec::new())));
        }
        Message::Accept { to, from } => {
            let greeting = Greeting::from_bytes(call.payload())?;
            let is_wanted = state.on_accept(peer, to, from, greeting.terms);
            return Ok(Some((Message::Accepted { to: from, is_wanted }, Vec::new())));
        }
        Message::PeerConnect { from } => {
            let greeting = Greeting::from_bytes(call.payload())?;
            state.on_peer_connect(node, peer, from, greeting);
        }
        Message::Accepted { to, is_wanted } => state.on_accepted(to, is_wanted),
        Message::NoMatch { to } => state.on_refusal(to, peer, ViaError::NoMatch),
        Message::Reject { to } => state.on_refusal(to, peer, ViaError::Reject),
        Message::Withdraw { from } => state.on_withdraw(peer, from),
        _ => {}
    }
    Ok(None)
}

/// The other end of the connection that a message is of, whatever has become of it.
fn other_end(state: &State, peer: Rank, to: Link) -> Option<Link> {
    let vi = state.vis.get(&to.vi).filter(|vi| vi.attempt == to.attempt)?;
    vi.connection.as_ref().filter(|other| other.peer == peer).map(|other| other.link)
}

fn outcome_of(to: Link, ticket: u32, outcome: Outcome) -> (Message, Vec<u8>) {
    (Message::Outcome { to, ticket, outcome }, Vec::new())
}

/// Ends a descriptor that was posted where none can be processed.
pub(super) fn flush_one(state: &mut State, id: u32, side: Side, ticket: u32) {
    state.complete(id, side, ticket, End { status: status::FLUSHED, ..End::default() });
}

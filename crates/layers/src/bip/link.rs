//! What carries a process's messages: the handler that takes them in, and what sends, gets and tells.
//!
//! Nothing here waits. [`Link::advance`] does what is due; whoever waits calls it in between.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use standpipe::{AllMemory, Call, Error, Event, Foreign, HandlerId, Node, Rank};

use crate::Copies;
use crate::bip::error::BipError;
use crate::bip::sends::Send;
use crate::bip::state::{Route, State, ToGet};
use crate::bip::tags::Body;
use crate::bip::wire::{Message, WORD};
use crate::copies::copy_of_payload;

/// The layer's handlers are in this namespace, and its team has this name.
pub(super) const NAME: &str = "bip";
/// Bytes up to which a short message is copied to the stack on its way into the lane.
const ON_STACK: usize = 64;

/// A process's connection to all others.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: Node,
    message: HandlerId,
    pub(super) memory: AllMemory,
    inner: Arc<Inner>,
    /// Gets that are under way. Whoever holds this may run handlers, which never look here.
    gets: Mutex<Vec<Get>>,
    /// Where a short message lies while it is put into the lane, and until that has room for it: each further
    /// try takes it from here, and copies nothing.
    outgoing: Mutex<Vec<u8>>,
}

/// What the handler shares with the calls.
#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    memory: AllMemory,
}

/// A long message that is being got; read in place, its words are the event's keeper.
#[derive(Debug)]
struct Get {
    what: ToGet,
    event: Event<Foreign<Option<Vec<u32>>>>,
}

impl Link {
    /// Has messages taken in from now on.
    pub(super) fn open(node: Node, memory: AllMemory, state: State) -> Result<Link, BipError> {
        let inner = Arc::new(Inner { state: Mutex::new(state), memory });
        let here = Arc::clone(&inner);
        let message = node.register(NAME, "message", move |call| here.on_message(call))?;
        let (gets, outgoing) = (Mutex::default(), Mutex::new(Vec::with_capacity(standpipe::MEDIUM_MAX)));
        Ok(Link { node, message, memory, inner, gets, outgoing })
    }

    /// What the process knows of its messages. Nothing may be called meanwhile that runs handlers.
    #[inline]
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.lock()
    }

    /// Does what is due. Whether something was left, since a lane is full.
    #[cold]
    pub(super) fn advance(&self) -> Result<bool, BipError> {
        self.begin_gets()?;
        self.end_gets();
        // One full lane holds back nothing but what goes into it.
        let told = [self.tell_of_gets()?, self.tell_of_taken()?, self.push_send()?];
        Ok(told.contains(&false))
    }
}

impl Inner {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a message that has come.
    #[inline]
    fn on_message(&self, call: &mut Call<'_>) {
        let parsed = Message::parse(call.args(), call.payload_len());
        let mut state = self.lock();
        let Ok(message) = parsed else {
            state.refuse();
            return;
        };
        match state.arrive(call.from(), message) {
            Route::Into(addr) => {
                let (to, len) = (with_exposed_provenance_mut(addr), call.payload_len());
                self.memory.write_payload(to, len, call).expect("it has as many bytes as it has");
            }
            Route::Queue(slot) => {
                let body = kept(&mut state.copies, call);
                state.keep(slot, call.from(), body);
            }
            Route::Nowhere => {}
        }
    }
}

/// A message's payload beyond its handler: a copy only where as many are kept as may be.
fn kept(copies: &mut Copies, call: &mut Call<'_>) -> Body {
    if call.payload_len() == 0 {
        return Body::Copied(Vec::new());
    }
    match call.take_payload() {
        Ok(payload) => Body::Kept(payload),
        Err(_) => {
            copies.received += call.payload_len() as u64;
            Body::Copied(copy_of_payload(call))
        }
    }
}

/// Sending.
impl Link {
    /// A send that has failed is none any more.
    pub(super) fn abandon_if_failed<T>(&self, result: Result<T, BipError>) -> Result<T, BipError> {
        if result.is_err() {
            self.state().sends.abandon();
        }
        result
    }

    /// Gives the message under way to its lane, if it may go there. `false`: the lane is full.
    fn push_send(&self) -> Result<bool, BipError> {
        let unsent = {
            let state = self.state();
            state.sends.unsent().filter(|send| state.may_send(send.peer, send.is_short()))
        };
        unsent.map_or(Ok(true), |send| self.try_send(&send))
    }

    /// Gives a message to its lane: whether that had room.
    #[inline]
    pub(super) fn try_send(&self, send: &Send) -> Result<bool, BipError> {
        let sent = self.try_message_of(send);
        let is_sent = self.abandon_if_failed(sent)?;
        let mut state = self.state();
        if send.is_short() && !send.is_copied {
            state.copies.sent += u64::from(send.words) * WORD as u64;
        }
        if is_sent {
            state.sends.sent();
            state.sent(send.peer, send.is_short());
        } else {
            state.sends.found_lane_full();
        }
        Ok(is_sent)
    }

    fn try_message_of(&self, send: &Send) -> Result<bool, BipError> {
        let (tag, words, addr) = (send.tag, send.words, send.addr as u64);
        if !send.is_short() {
            let long = Message::Long { tag, words, send: send.id as u32, addr };
            return self.try_message(send.peer, long, &[]);
        }
        let (short, len) = (Message::Short { tag, words }, words as usize * WORD);
        let from = with_exposed_provenance(send.addr);
        let outgoing = || self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        if send.is_copied {
            return self.try_message(send.peer, short, &outgoing());
        }
        if len <= ON_STACK {
            let mut bytes = [0; ON_STACK];
            self.memory.read(from, &mut bytes[..len]);
            let is_sent = self.try_message(send.peer, short, &bytes[..len])?;
            if !is_sent {
                bytes[..len].clone_into(&mut outgoing());
            }
            return Ok(is_sent);
        }
        let mut bytes = outgoing();
        bytes.resize(len, 0);
        self.memory.read(from, &mut bytes);
        self.try_message(send.peer, short, &bytes)
    }

    /// Sends a message, unless its lane is full: whether it did.
    fn try_message(&self, peer: Rank, message: Message, payload: &[u8]) -> Result<bool, BipError> {
        let try_once = || match payload {
            [] => self.node.try_request(peer, self.message, message.args()),
            _ => self.node.try_request_medium(peer, self.message, message.args(), payload),
        };
        match try_once() {
            Err(Error::NotConnected { .. }) => {
                self.node.connect(peer)?;
                Ok(try_once()?)
            }
            tried => Ok(tried?),
        }
    }

    /// Tells a peer that this process leaves: whether that is over. Not before all else was sent to it.
    pub(super) fn tell_of_leaving(&self, peer: Rank) -> bool {
        let may_tell = self.state().may_tell_of_leaving(peer);
        // A peer that cannot be told is gone, or on the way there.
        may_tell && self.try_message(peer, Message::Leaving, &[]) != Ok(false)
    }

    /// Tells senders of long messages what has become of these. `false`: a lane is full.
    fn tell_of_gets(&self) -> Result<bool, BipError> {
        let mut kept = 0;
        loop {
            let next = self.state().done.get(kept).copied();
            let Some((peer, message)) = next else { return Ok(kept == 0) };
            match self.try_message(peer, message, &[]) {
                // To a process that is gone nothing need be told.
                Ok(true) | Err(BipError::Lost { .. }) => drop(self.state().done.remove(kept)),
                Ok(false) => kept += 1,
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Tells peers how many of their messages were taken. `false`: a lane is full.
    fn tell_of_taken(&self) -> Result<bool, BipError> {
        let mut kept = 0;
        loop {
            let (peer, total) = {
                let state = self.state();
                let Some(peer) = state.owed.get(kept).copied() else { return Ok(kept == 0) };
                (peer, state.taken_of(peer))
            };
            // Before it hears of it: what it sends then is within its window.
            let tried = self.try_message(peer, Message::Taken { total }, &[]);
            let mut state = self.state();
            match tried {
                Ok(true) | Err(BipError::Lost { .. }) => {
                    state.told(peer, total);
                    state.owed.remove(kept);
                }
                Ok(false) => kept += 1,
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// Getting.
impl Link {
    /// Starts to get the long messages that receives wait for.
    fn begin_gets(&self) -> Result<(), BipError> {
        loop {
            let Some(to_get) = self.state().next_to_get() else { return Ok(()) };
            self.begin_get(to_get)?;
        }
    }

    pub(super) fn begin_get(&self, what: ToGet) -> Result<(), BipError> {
        let (len, mut words) = (what.long.words as usize * WORD, None);
        let start: *mut u8 = match what.into {
            Some(addr) => with_exposed_provenance_mut(addr),
            None => words.insert(self.room_for(&what)?).as_mut_ptr().cast(),
        };
        let from = self.memory.remote(what.long.from, what.long.addr);
        let event = self.node.get_nb(from, self.memory.buffer(start, len, words));
        self.gets.lock().unwrap_or_else(PoisonError::into_inner).push(Get { what, event });
        Ok(())
    }

    /// Memory for a long message that is to be read in place. Its pages are touched only by what comes: the
    /// length is a peer's word.
    fn room_for(&self, what: &ToGet) -> Result<Vec<u32>, BipError> {
        let len = what.long.words as usize;
        if Vec::<u32>::new().try_reserve_exact(len).is_err() {
            let tag = self.state().tags.at(what.slot).number;
            return Err(BipError::NoMemory { tag, words: what.long.words });
        }
        Ok(vec![0; len])
    }

    /// Takes note of the gets that have ended.
    fn end_gets(&self) {
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = 0;
        while let Some(get) = gets.get_mut(index) {
            if !get.event.is_complete() {
                index += 1;
                continue;
            }
            let Get { what, event } = gets.swap_remove(index);
            self.note_get(&what, event.wait());
        }
    }

    fn note_get(&self, what: &ToGet, (result, buffer): (Result<(), Error>, Foreign<Option<Vec<u32>>>)) {
        let mut state = self.state();
        let result = result.map_err(|error| match error {
            Error::Fault { peer, .. } if peer == what.long.from => {
                let tag = state.tags.at(what.slot).number;
                BipError::BadSource { tag, from: peer, addr: what.long.addr, words: what.long.words }
            }
            other => BipError::from(other),
        });
        let waited_for = state.got(what, result, buffer.into_keeper());
        if let Some((to, content)) = waited_for {
            content.copy_to(self.memory, with_exposed_provenance_mut(to));
        }
    }

    /// Ends every receive and every get: from now on nothing is written to a buffer of the program's.
    pub(super) fn withdraw(&self) {
        self.state().withdraw();
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        for Get { what, event } in gets.drain(..) {
            self.note_get(&what, event.cancel());
        }
    }

    /// Waits a little for the end of a get, if one is under way.
    pub(super) fn wait_for_get(&self, at_most: Duration) {
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(get) = gets.first_mut() {
            // Where it cannot be waited for, the node has closed: whatever is waited for next says so.
            let _ = get.event.wait_at_most(at_most);
        }
    }
}

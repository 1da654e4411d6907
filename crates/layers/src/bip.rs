//! BIP 0.92, *Basic Interface for Parallelism*: messages with tags, as close to the network as they go.
//!
//! Short messages, of at most [`SMALL_WORDS`] words, are buffered in their tag's queue at the receiver. Of a
//! longer one the receiver is told only where it lies; once a receive waits for it, the receiver gets it from
//! the sender's memory into its own buffer, without a copy between, and tells the sender. So a long send ends
//! when its message was received.
//!
//! Messages of one sender with one tag are received in the order sent, short and long ones mixed. A process
//! has one send under way at a time, and one receive for each tag.
//!
//! Faults are detected, and nothing recovers from them: a lost process ends every wait.

mod error;
mod features;
mod receive;
mod send;
mod sends;
mod state;
mod tags;
mod window;
#[doc(hidden)]
pub mod wire;

use std::collections::HashMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use standpipe::{AllMemory, Call, Error, Event, Foreign, HandlerId, Node, Rank, Team};

use crate::Copies;
use state::{Route, State, ToGet, window_of};
use tags::{Body, Buffers};
use wire::Message;

pub use error::BipError;
pub use features::FEATURES;
pub use state::Counts;
pub use tags::Received;
pub use wire::SMALL_WORDS;

/// The namespace of the layer's handlers, and the name of its team.
const NAME: &str = "bip";
/// Buffers that a program may declare for a tag, at most.
pub const BUFFERS_MAX: u32 = 1 << 20;
/// How long a wait looks away from what nothing announces: room in a lane, the end of a get.
const NAP: Duration = Duration::from_micros(50);
/// How long a process that leaves waits for what its node has under way.
const CLOSE: Duration = Duration::from_secs(5);

/// The buffers that a program declares for a tag, before it opens the layer: `bip_taginit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagBuffers {
    tag: u32,
    buffers: Buffers,
}

impl TagBuffers {
    /// For `tag`, `nbufs` short messages of `size` words.
    ///
    /// # Errors
    /// [`BipError::BadTag`] for a negative tag; [`BipError::BadBuffers`] unless there is at least one buffer
    /// of at least one word, and at most [`BUFFERS_MAX`] of them.
    pub fn new(tag: i32, nbufs: i32, size: i32) -> Result<TagBuffers, BipError> {
        let number = u32::try_from(tag).map_err(|_| BipError::BadTag { tag })?;
        let counts = u32::try_from(nbufs).ok().zip(u32::try_from(size).ok());
        match counts {
            Some((count @ 1..=BUFFERS_MAX, words @ 1..)) => {
                Ok(TagBuffers { tag: number, buffers: Buffers { count, words } })
            }
            _ => Err(BipError::BadBuffers { tag, nbufs, size, most: BUFFERS_MAX }),
        }
    }
}

/// A process's part in a BIP job.
///
/// Made for one thread, as BIP is: calls of several threads harm nothing, but which gets which message is
/// open. No call may be made in a handler.
#[derive(Debug)]
pub struct Bip {
    node: Node,
    world: Team,
    message: HandlerId,
    memory: AllMemory,
    inner: Arc<Inner>,
    /// Gets that are under way. Whoever holds this may run handlers, which never look here.
    gets: Mutex<Vec<Get>>,
    /// Where a short message lies while it is put into the lane.
    outgoing: Mutex<Vec<u8>>,
    /// Whether this host has a core for each of its processes.
    has_cores: bool,
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

/// What a wait is for, and so whose loss ends it.
#[derive(Clone, Copy, Debug)]
enum Awaits {
    /// A message for that tag, from anybody.
    Message(u32),
    /// Something of that peer's.
    Peer(Rank),
}

impl Bip {
    /// Opens the layer in every process of the job, which all call this; waits until they have. `tags` are
    /// the buffers that this process declares; of two for the same tag the later counts.
    ///
    /// # Errors
    /// [`BipError::Lost`] where a process ends before it has come; [`BipError::Node`] for whatever else the
    /// node refuses, such as a second layer of this kind in one process.
    pub fn open(node: Node, memory: AllMemory, tags: &[TagBuffers]) -> Result<Bip, BipError> {
        let declared: HashMap<u32, Buffers> = tags.iter().map(|of| (of.tag, of.buffers)).collect();
        let own = window_of(&declared);
        let mut windows = vec![0_u32; node.size() as usize];
        let inner = Arc::new(Inner { state: Mutex::new(State::new(declared, &windows)), memory });
        let here = Arc::clone(&inner);
        let message = node.register(NAME, "message", move |call| here.on_message(call))?;
        let world = node.world_of(NAME)?;
        // Ends once all have registered. A process that is through with it may send at once.
        world.all_gather(&[own], &mut windows)?;
        inner.lock().set_windows(&windows);
        let (gets, outgoing) = (Mutex::default(), Mutex::new(Vec::with_capacity(standpipe::MEDIUM_MAX)));
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let has_cores = cores >= node.near_ranks().len();
        Ok(Bip { node, world, message, memory, inner, gets, outgoing, has_cores })
    }

    /// This process's number.
    pub fn mynode(&self) -> Rank {
        self.node.rank()
    }

    /// How many processes there are.
    pub fn numnodes(&self) -> u32 {
        self.node.size()
    }

    /// Bytes that the layer has copied here. A short message is copied once at each side; of a long one
    /// nothing is.
    pub fn copies(&self) -> Copies {
        self.inner.lock().copies
    }

    /// What has happened beside what was asked for.
    pub fn counts(&self) -> Counts {
        self.inner.lock().counts
    }

    /// Leaves the job with all others: waits until every process has called this or is lost, and goes on with
    /// a send that has not ended meanwhile. The others may then still receive what this process has sent.
    /// Every later call ends with an error.
    pub fn leave(&self) {
        let mut all = self.world.barrier_nb();
        let may_go_on = |result: Result<bool, BipError>| !matches!(result, Err(BipError::Node(_)));
        while !all.is_complete() && may_go_on(self.advance()) {
            // An error means that it cannot be waited for, and then it is over.
            if all.wait_at_most(Duration::from_millis(1)).is_err() {
                break;
            }
        }
        // Whatever has not ended by then has nobody that it could matter to.
        let _ = self.node.clone().close(CLOSE);
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
        let parsed = Message::parse(call.args(), call.payload());
        let mut state = self.lock();
        let Ok(message) = parsed else {
            state.refuse();
            return;
        };
        match state.arrive(call.from(), message) {
            Route::Into(addr) => self.memory.write(with_exposed_provenance_mut(addr), call.payload()),
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
    if call.payload().is_empty() {
        return Body::Copied(Vec::new());
    }
    match call.take_payload() {
        Ok(payload) => Body::Kept(payload),
        Err(_) => {
            copies.received += call.payload().len() as u64;
            Body::Copied(call.payload().to_vec())
        }
    }
}

/// Waiting, and what is done meanwhile.
impl Bip {
    /// Waits until `ready` gives something. It is asked whenever something has moved.
    fn wait<T>(&self, awaits: Awaits, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<T, BipError> {
        let (mut is_stuck, mut is_last) = (false, false);
        loop {
            match self.pause(awaits, &mut ready, is_stuck)? {
                Paused::Ready(done) => return Ok(done),
                Paused::Moved => is_last = false,
                Paused::Lost(fault) if is_last => return Err(fault),
                Paused::Lost(_) => {
                    // What it sent before may be here.
                    while self.node.progress() {}
                    is_last = true;
                }
            }
            if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
                return Ok(done);
            }
            self.wait_for_get();
        }
    }

    /// Does what is due, and asks `ready` once.
    fn look<T>(
        &self,
        ready: &mut impl FnMut(&mut State) -> Option<T>,
        is_stuck: &mut bool,
    ) -> Result<Option<T>, BipError> {
        let ask = |state: &mut State, ready: &mut dyn FnMut(&mut State) -> Option<T>| match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(ready(state)),
        };
        let mut state = self.inner.lock();
        if !state.is_busy() {
            return ask(&mut state, ready);
        }
        drop(state);
        *is_stuck = self.advance()?;
        ask(&mut self.inner.lock(), ready)
    }

    /// Sleeps until `ready` gives something, there is something to do, or somebody is lost.
    fn pause<T>(
        &self,
        awaits: Awaits,
        ready: &mut impl FnMut(&mut State) -> Option<T>,
        is_stuck: bool,
    ) -> Result<Paused<T>, BipError> {
        let (mut paused, mut looks) = (Paused::Moved, 0_u32);
        let look = || {
            looks = looks.wrapping_add(1);
            let mut state = self.inner.lock();
            if let Some(done) = ready(&mut state) {
                paused = Paused::Ready(done);
                return true;
            }
            if state.fault.is_some() || (!is_stuck && state.is_busy()) {
                return true;
            }
            drop(state);
            // Not while the message is awaited that nearly always comes; the second look may be the last one
            // before it sleeps.
            if looks % 4 == 2
                && let Some(fault) = self.loss(awaits)
            {
                paused = Paused::Lost(fault);
                return true;
            }
            false
        };
        let waited =
            if is_stuck { self.node.within(NAP).wait_until(look) } else { self.node.wait_until(look) };
        match waited {
            Ok(()) => Ok(paused),
            Err(Error::WaitTimeout { .. }) if is_stuck => Ok(Paused::Moved),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks `ready`, makes progress once, and asks again. An error where nothing can come any more.
    fn poll<T>(
        &self,
        awaits: Awaits,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, BipError> {
        let mut is_stuck = false;
        if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
            return Ok(Some(done));
        }
        let has_moved = self.node.progress();
        if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
            return Ok(Some(done));
        }
        let Some(fault) = (if has_moved { None } else { self.loss(awaits) }) else { return Ok(None) };
        while self.node.progress() {}
        match self.look(&mut ready, &mut is_stuck)? {
            Some(done) => Ok(Some(done)),
            None if self.inner.lock().getting > 0 => Ok(None),
            None => Err(fault),
        }
    }

    /// The loss that ends such a wait.
    fn loss(&self, awaits: Awaits) -> Option<BipError> {
        match awaits {
            Awaits::Peer(node) => self.node.is_lost(node).then_some(BipError::Lost { node }),
            Awaits::Message(tag) if self.node.size() == 1 => Some(BipError::Alone { tag }),
            Awaits::Message(_) => self.node.lost_peers().first().map(|node| BipError::Lost { node: *node }),
        }
    }

    /// Waits a little for the end of a get, if one is under way.
    fn wait_for_get(&self) {
        let mut gets = self.gets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(get) = gets.first_mut() {
            // Where it cannot be waited for, the node has closed: whatever is waited for next says so.
            let _ = get.event.wait_at_most(NAP);
        }
    }

    /// Does what is due. Whether something was left, since a lane is full.
    #[cold]
    fn advance(&self) -> Result<bool, BipError> {
        self.begin_gets()?;
        self.end_gets();
        let told = self.tell_of_gets()? && self.tell_of_taken()?;
        let sent = self.push_send()?;
        Ok(!told || !sent)
    }
}

/// What came of a pause.
enum Paused<T> {
    Ready(T),
    Moved,
    Lost(BipError),
}

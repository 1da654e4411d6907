//! The transport's state, and making links.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Counters, Event, KeyedPiece, OpError, Rank, RegId};
use fabric::{Desc, RegionId};
use hashbrown::HashMap;
use slab::Slab;

use super::chores::{Chore, Chores};
use super::endpoint::NetEndpoint;
use super::endpoint_pool::EndpointPool;
use super::gone::GonePeers;
use super::landings::Landings;
use super::link::{Link, Links};
use super::liveness_probe::listens_at;
use super::pending_requests::PendingRequest;
use super::rma_state::RmaOps;
use super::token::Token;
use crate::transport::contract::{Members, Party, Silence};
use crate::transport::mr_invalidation::ChangeSource;
use crate::transport::shm::OwnMemory;
use crate::transport::shm::heap_pages::HeapState;

/// Operations that end in one call of [`OfiTransport::progress`], at most.
const ROUND: usize = 64;

/// Polls of the pooled endpoints alone, while something is under way there, for each of both. A thread that
/// waits for a copy asks where it is rather than whether there are messages, each of which is a system call
/// over `tcp`.
const PASSES: u32 = 3;

/// Polls between two looks at the clock, if each finds a small copy that has ended.
pub(super) const CLOCK_LOOKS: u32 = 1024;

/// As how many of them any other poll counts.
pub(super) const OTHER_POLL: u32 = 16;

/// The engine's registrations.
pub(super) struct Registered {
    pub(super) id: RegionId,
    pub(super) desc: Desc,
    /// Bytes of the heap that are held for it.
    pub(super) held: Option<Range<u64>>,
}

/// A registration that is to be closed.
pub(super) struct DeferredClose {
    pub(super) id: RegionId,
    /// The engine's name for it; `None`: it is a whole heap's, for one peer.
    pub(super) reg: Option<RegId>,
    /// Bytes of the heap that are held for it.
    pub(super) held: Option<Range<u64>>,
}

/// Messages, copies by key and atomics over libfabric, as the engine's transport.
pub(crate) struct OfiTransport {
    /// Where its clock begins.
    pub(super) made_at: Instant,
    pub(super) own: OwnMemory,
    pub(super) members: Members,
    /// How long the provider may refuse what is for a peer whose silence has no limit before that is lost.
    pub(super) send_timeout: Duration,
    pub(crate) silence: Silence,
    pub(super) endpoint: NetEndpoint,
    pub(super) links: Links,
    /// Peers whose links have messages for the engine.
    pub(super) ready: VecDeque<Rank>,
    pub(super) chores: Chores,
    /// Messages handed on since the last progress.
    pub(super) run: u32,
    /// Polls until the clock is looked at; when peers are pinged next, and whether all that came was taken in
    /// since.
    pub(super) looks_left: u32,
    pub(super) pulse_at: Instant,
    pub(super) listened: bool,
    /// Polls of the pooled endpoints alone since one of both.
    pub(super) passed: u32,
    pub(super) copies: RmaOps,
    pub(super) endpoint_pool: EndpointPool,
    /// Endpoints by which peers' long puts come in.
    pub(super) landings: Landings,
    pub(super) asked: Slab<PendingRequest>,
    /// Whether heaps are reached by one key each.
    pub(crate) shares_heaps: bool,
    /// This process's heap, if it is registered page by page, as private memory is.
    pub(crate) heap: Option<Arc<HeapState>>,
    /// The pieces of one copy to or from a heap, while it is started.
    pub(super) keyed: Vec<KeyedPiece>,
    /// Copies to and from heaps, which the engine does not count.
    pub(super) counters: Counters,
    /// The knowledge of changes of the memory that is registered.
    pub(crate) memory: ChangeSource,
    pub(super) regions: HashMap<RegId, Registered>,
    /// Registrations that were to be taken back, and the provider has not closed yet.
    pub(super) deferred_closes: Vec<DeferredClose>,
    /// Whether it was said that no more can be registered.
    pub(super) limit_told: bool,
    pub(super) events: VecDeque<Event>,
    pub(super) gone: GonePeers,
    /// Messages that were none of the job's.
    pub(super) strangers: u64,
    /// Frames that the provider has taken, and not said to be out.
    pub(super) sending: usize,
    /// A peer has signalled by a word, and threads that sleep have not been told.
    pub(super) signalled: bool,
    /// Messages have begun to gather, and nobody has been told.
    pub(super) begins_to_gather: bool,
}

impl OfiTransport {
    /// A transport over an open endpoint. `own` is this process's memory; a peer whose silence has no limit
    /// is lost when what is for it finds no room for as long as `send_timeout`.
    pub(crate) fn new(
        endpoint: NetEndpoint,
        members: Members,
        own: OwnMemory,
        send_timeout: Duration,
    ) -> OfiTransport {
        let copies = RmaOps::new(endpoint.description());
        let shares_heaps = endpoint.description().mr_mode.is_free();
        OfiTransport {
            made_at: Instant::now(),
            own,
            members,
            send_timeout,
            silence: Box::new(|_| None),
            endpoint,
            links: Links::default(),
            ready: VecDeque::new(),
            chores: Chores::default(),
            run: 0,
            looks_left: CLOCK_LOOKS,
            pulse_at: Instant::now(),
            listened: false,
            passed: 0,
            copies,
            endpoint_pool: EndpointPool::default(),
            landings: Landings::default(),
            asked: Slab::new(),
            shares_heaps,
            heap: None,
            keyed: Vec::new(),
            counters: Counters::default(),
            memory: ChangeSource::default(),
            regions: HashMap::new(),
            deferred_closes: Vec::new(),
            limit_told: false,
            events: VecDeque::new(),
            gone: GonePeers::default(),
            strangers: 0,
            sending: 0,
            signalled: false,
            begins_to_gather: false,
        }
    }

    /// Lets the provider make progress, and takes in what has ended, until there is something for the engine:
    /// to ask the provider once more costs a system call.
    pub(super) fn progress(&mut self) {
        let alone = self.endpoint_pool.are_loaded() && self.passed < PASSES;
        self.passed = if alone { self.passed + 1 } else { 0 };
        self.take_in(alone, |transport| transport.events.is_empty() && transport.ready.is_empty());
    }

    /// Lets the provider make progress, and takes in all that has ended, as long as `goes_on` after each.
    pub(super) fn progress_while(&mut self, goes_on: impl Fn(&OfiTransport) -> bool) {
        self.take_in(false, goes_on);
    }

    /// As [`OfiTransport::progress_while`]; with `alone`, of the pooled endpoints only.
    fn take_in(&mut self, alone: bool, goes_on: impl Fn(&OfiTransport) -> bool) {
        self.run = 0;
        if self.chores.has(Chore::Gathering) {
            self.send_frames_that_gather();
        }
        let was_open = self.endpoint.is_open();
        if self.landings.are_polled() {
            // All that the endpoint has to tell: messages that come in there must not wait for a pause.
            self.landings.poll(&mut self.endpoint);
        }
        for _ in 0..ROUND {
            if self.endpoint_pool.are_loaded()
                && let Some((part, done)) = self.endpoint_pool.poll(&mut self.endpoint)
            {
                self.on_part(part, None, done);
            } else if alone {
                break;
            } else {
                let Some(ended) = self.endpoint.poll() else {
                    self.listened = true;
                    break;
                };
                self.on_ended(ended);
            }
            if !goes_on(self) {
                break;
            }
        }
        if was_open && !self.endpoint.is_open() {
            self.lose_all();
        }
        if self.looks_left == 0 {
            self.looks_left = CLOCK_LOOKS;
            self.look_at_clock();
        }
        if self.chores.has(Chore::Owing) {
            self.pay();
        }
        if self.chores.has(Chore::Stuck) {
            self.flush_stuck();
        }
        // Answers to what has come in.
        if self.chores.has(Chore::Gathering) {
            self.send_frames_that_gather();
        }
    }

    /// The link to a peer, made if this is the first word.
    pub(super) fn link(&mut self, rank: Rank) -> Result<&mut Link, OpError> {
        if self.gone.has(rank) {
            return Err(OpError::PeerLost { peer: rank });
        }
        if !self.links.has(rank) {
            self.make_link(rank)?;
        }
        Ok(self.links.get_mut(rank).expect("made above"))
    }

    #[cold]
    fn make_link(&mut self, rank: Rank) -> Result<(), OpError> {
        let no_such = OpError::Protocol { peer: rank, what: "no such rank" };
        let incarnation = *self.members.incarnations.get(rank as usize).ok_or(no_such)?;
        let (own, peer) = (self.members.own, Party { rank, incarnation });
        let secret = &self.members.secret;
        let (outward, inward) = (Token::new(secret, own, peer), Token::new(secret, peer, own));
        let (mut known, mut at) = (None, None);
        if rank != own.rank {
            let address = (self.members.find)(rank)?;
            (known, at) = (
                self.endpoint.add_peer(&address, None),
                listens_at(&self.endpoint.description().provider, &address, None),
            );
        }
        if known.is_none() && rank != own.rank {
            self.lose(rank);
            return Err(OpError::PeerLost { peer: rank });
        }
        let mut link = Link::new(known, own.rank, outward, inward);
        (link.life.silence_max, link.life.listens_at) = ((self.silence)(rank), at);
        self.links.insert(rank, link);
        Ok(())
    }
}

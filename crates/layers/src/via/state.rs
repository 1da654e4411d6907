//! All of a process, and how descriptors end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use standpipe::{AllMemory, Event, Foreign, HandlerId, Node, Rank};

use super::cq::Cq;
use super::descriptor::{status, write_back};
use super::error::{AsyncError, ErrorCode, Resource};
use super::meeting::Meeting;
use super::queue::Stage;
use super::regions::Regions;
use super::vi::{Side, Vi, ViState};
use super::wire::{Cause, Message};

/// Told of asynchronous errors.
pub type ErrorHandler = Arc<dyn Fn(AsyncError) + Send + Sync>;

/// A call of the program's code that is due.
pub(super) type Upcall = Box<dyn FnOnce() + Send>;

/// Bytes that are being moved.
pub(super) struct Transfer {
    pub(super) events: Vec<Event<Foreign<()>>>,
    pub(super) peer: Rank,
    pub(super) vi: u32,
    pub(super) attempt: u32,
    pub(super) ticket: u32,
    /// Of a long message that this process fetches, what its sender knows it by.
    pub(super) fetched: Option<Fetched>,
}

/// A long message that is fetched.
#[derive(Clone, Copy)]
pub(super) struct Fetched {
    pub(super) ticket: u32,
    pub(super) immediate: Option<u32>,
    pub(super) bytes: u32,
}

/// A message that waits for room in the lane.
struct Outgoing {
    to: Rank,
    words: [u64; 4],
    payload: Vec<u8>,
}

/// The result of trying to send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// There is no room now.
    Full,
    /// The peer is not to be had any more.
    Lost,
}

/// How a descriptor ends.
#[derive(Clone, Copy, Default)]
pub(super) struct End {
    /// Bits of its status beside those of every end.
    pub(super) status: u32,
    pub(super) bytes: u32,
    /// Immediate data that came.
    pub(super) immediate: Option<u32>,
}

/// All of a process, under one lock.
pub(super) struct State {
    pub(super) memory: AllMemory,
    pub(super) handler: HandlerId,
    /// With the program's handler for errors.
    pub(super) nics: HashMap<u32, Option<ErrorHandler>>,
    pub(super) regions: Regions,
    pub(super) vis: HashMap<u32, Vi>,
    pub(super) cqs: HashMap<u32, Cq>,
    pub(super) meeting: Meeting,
    /// Begun since the last look.
    pub(super) transfers: Vec<Transfer>,
    pub(super) upcalls: VecDeque<Upcall>,
    /// Messages of peers that were malformed.
    pub(super) refused: u64,
    /// VIs with a send that waits for room in the lane to their peer.
    pub(super) stalled: Vec<u32>,
    outbox: VecDeque<Outgoing>,
    /// Tells of errors for which a program has no handler.
    default_handler: ErrorHandler,
    last_id: u32,
}

impl State {
    pub(super) fn new(memory: AllMemory, handler: HandlerId, default_handler: ErrorHandler) -> State {
        State {
            memory,
            handler,
            nics: HashMap::new(),
            regions: Regions::default(),
            vis: HashMap::new(),
            cqs: HashMap::new(),
            meeting: Meeting::default(),
            transfers: Vec::new(),
            upcalls: VecDeque::new(),
            refused: 0,
            stalled: Vec::new(),
            outbox: VecDeque::new(),
            default_handler,
            last_id: 0,
        }
    }

    /// A number that nothing here has had.
    pub(super) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Has the program be told of an error beside any call.
    pub(super) fn tell_error(&mut self, error: AsyncError) {
        let Some(handler) = self.nics.get(&error.nic) else { return };
        let handler = Arc::clone(handler.as_ref().unwrap_or(&self.default_handler));
        self.upcalls.push_back(Box::new(move || handler(error)));
    }

    /// The same, of a VI.
    pub(super) fn tell_vi_error(&mut self, id: u32, code: ErrorCode) {
        let Some(vi) = self.vis.get(&id) else { return };
        let error = AsyncError {
            nic: vi.nic,
            vi: id,
            cq: 0,
            descriptor: 0,
            operation: 0,
            resource: Resource::Vi,
            code,
        };
        self.tell_error(error);
    }

    /// The same, of a descriptor.
    pub(super) fn tell_descriptor_error(&mut self, id: u32, at: u64, operation: u32, code: ErrorCode) {
        let Some(vi) = self.vis.get(&id) else { return };
        let (nic, resource) = (vi.nic, Resource::Descriptor);
        self.tell_error(AsyncError { nic, vi: id, cq: 0, descriptor: at, operation, resource, code });
    }

    /// Ends a descriptor, unless it has ended.
    pub(super) fn complete(&mut self, id: u32, side: Side, ticket: u32, end: End) {
        let Some(vi) = self.vis.get_mut(&id) else { return };
        let ptag = vi.attributes.ptag;
        let Some(work) = vi.queue(side).works.get_mut(ticket).filter(|work| !work.is_done()) else { return };
        let is_operation = end.status & status::REMOTE_WRITE == status::REMOTE_WRITE;
        let operation = if is_operation { 0 } else { work.descriptor.operation.status() };
        let immediate = end.immediate.map_or(0, |_| status::IMMEDIATE);
        let all = status::DONE | end.status | operation | immediate;
        let is_there = self.regions.covers(work.handle, ptag, work.at, work.descriptor.own_bytes());
        let at = work.at;
        work.stage = Stage::Done { is_well: is_there && all & status::ERRORS == 0 };
        if is_there {
            write_back(self.memory, at, end.immediate, end.bytes, all);
        } else {
            self.tell_descriptor_error(id, at, operation, ErrorCode::CompletionProtection);
        }
        self.tell_completions(id, side);
    }

    /// Tells the completion queue, and the program's handlers, of what has ended.
    pub(super) fn tell_completions(&mut self, id: u32, side: Side) {
        let Some(vi) = self.vis.get_mut(&id) else { return };
        let nic = vi.nic;
        let queue = vi.queue(side);
        let mut overrun = None;
        while queue.works.tell() {
            if let Some(cq) = self.cqs.get_mut(&queue.cq)
                && !cq.push(id, side)
            {
                overrun = Some(queue.cq);
            }
        }
        let number = queue.cq;
        while !queue.notifies.is_empty()
            && let Some((at, _)) = queue.works.take()
            && let Some(notify) = queue.notifies.pop_front()
        {
            self.upcalls.push_back(Box::new(move || notify(at)));
        }
        self.notify_cq(number);
        if let Some(cq) = overrun {
            let (resource, code) = (Resource::Cq, ErrorCode::Overrun);
            self.tell_error(AsyncError { nic, vi: id, cq, descriptor: 0, operation: 0, resource, code });
        }
    }

    /// Hands a completion queue's entries to the program's handlers.
    pub(super) fn notify_cq(&mut self, number: u32) {
        let Some(cq) = self.cqs.get_mut(&number) else { return };
        while !cq.notifies.is_empty()
            && let Some((vi, side)) = cq.entries.pop_front()
            && let Some(notify) = cq.notifies.pop_front()
        {
            self.upcalls.push_back(Box::new(move || notify(vi, side)));
        }
    }

    /// Ends all descriptors of a VI that have not ended, those whose messages are under way with `under_way`.
    /// A descriptor whose bytes are being moved ends when that is looked at next.
    pub(super) fn flush(&mut self, id: u32, under_way: u32) {
        for side in [Side::Send, Side::Receive] {
            let Some(vi) = self.vis.get_mut(&id) else { return };
            let works = &vi.queue(side).works;
            let open = works.open().into_iter().filter_map(|ticket| match works.get(ticket)?.stage {
                Stage::Moving => None,
                Stage::Sent { .. } | Stage::Finding => Some((ticket, under_way)),
                _ => Some((ticket, status::FLUSHED)),
            });
            for (ticket, status) in open.collect::<Vec<_>>() {
                self.complete(id, side, ticket, End { status, ..End::default() });
            }
        }
    }

    /// Breaks a VI's connection: it is in the error state, and what was posted ends.
    pub(super) fn break_vi(&mut self, id: u32, under_way: u32) {
        let Some(vi) = self.vis.get_mut(&id) else { return };
        if vi.state == ViState::Connected {
            vi.state = ViState::Error;
            self.flush(id, under_way);
        }
    }

    /// The same, and tells the other end.
    pub(super) fn break_both(&mut self, node: &Node, id: u32, cause: Cause) {
        let Some(vi) = self.vis.get(&id).filter(|vi| vi.state == ViState::Connected) else { return };
        let Some((peer, to)) = vi.connection.as_ref().map(|other| (other.peer, other.link)) else { return };
        self.break_vi(id, status::FLUSHED);
        self.send(node, peer, Message::Broke { to, cause }, &[]);
    }

    /// Whether messages to a peer wait for room.
    fn is_waiting_for(&self, to: Rank) -> bool {
        self.outbox.iter().any(|outgoing| outgoing.to == to)
    }

    /// Sends a message now, or not at all.
    pub(super) fn try_send(&self, node: &Node, to: Rank, message: Message, payload: &[u8]) -> Sent {
        if self.is_waiting_for(to) {
            return Sent::Full;
        }
        self.try_words(node, to, message.words(), payload)
    }

    fn try_words(&self, node: &Node, to: Rank, words: [u64; 4], payload: &[u8]) -> Sent {
        let sent = match payload.is_empty() {
            true => node.try_request(to, self.handler, words),
            false => node.try_request_medium(to, self.handler, words, payload),
        };
        match sent {
            Ok(true) => Sent::Yes,
            Ok(false) => Sent::Full,
            Err(_) => Sent::Lost,
        }
    }

    /// Sends a message now, or when there is room; one to a peer that is lost is thrown away.
    pub(super) fn send(&mut self, node: &Node, to: Rank, message: Message, payload: &[u8]) {
        if self.try_send(node, to, message, payload) == Sent::Full {
            self.outbox.push_back(Outgoing { to, words: message.words(), payload: payload.to_vec() });
        }
    }

    /// Sends what waits, in order for each peer.
    pub(super) fn send_waiting(&mut self, node: &Node) {
        let mut full: Vec<Rank> = Vec::new();
        for outgoing in std::mem::take(&mut self.outbox) {
            let is_held = full.contains(&outgoing.to)
                || self.try_words(node, outgoing.to, outgoing.words, &outgoing.payload) == Sent::Full;
            if is_held {
                full.push(outgoing.to);
                self.outbox.push_back(outgoing);
            }
        }
    }

    /// Whether messages wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        !self.outbox.is_empty()
    }
}

//! The send queue: sends, remote writes and remote reads.
//!
//! Up to [`EAGER_MAX`] bytes travel in the message. Of longer sends the message names the bytes, and the
//! receiver fetches them into the receive that it matches: one copy.

use standpipe::{Error, Event, Foreign, Grant, GrantName, Node, Rank, Remote, Rights};

use super::descriptor::{Descriptor, Operation, Segment, pointer, status};
use super::error::ErrorCode;
use super::queue::Stage;
use super::regions::Reachable;
use super::state::{End, Sent, State, Transfer};
use super::vi::{RELIABLE_RECEPTION, Side, ViState};
use super::wire::{Cause, Link, Message, Outcome, Range, piece_words, to_piece};

/// Bytes of a send that travel in its message, at most.
pub const EAGER_MAX: u64 = 4096;

/// A descriptor that is to be begun.
struct Begun<'a> {
    node: &'a Node,
    id: u32,
    ticket: u32,
    peer: Rank,
    to: Link,
    attempt: u32,
    is_reliable: bool,
}

impl State {
    /// Begins what can be begun of a VI's send queue, in order.
    pub(super) fn start_sends(&mut self, node: &Node, id: u32) {
        while let Some(begun) = self.next_send(node, id) {
            let Some(work) = self.vis.get(&id).and_then(|vi| vi.send.works.get(begun.ticket)) else { return };
            let descriptor = work.descriptor.clone();
            let ptag = self.vis[&id].attributes.ptag;
            let mut fault = descriptor.fault;
            if descriptor.operation == Operation::Read && !begun.is_reliable {
                fault |= status::FORMAT;
            }
            if fault == 0 && !self.regions.cover(&descriptor.segments, ptag) {
                fault = status::PROTECTION;
            }
            if fault != 0 {
                self.fail_send(&begun, fault, Cause::Descriptor);
                continue;
            }
            let sent = match descriptor.remote {
                Some(remote) => self.start_remote(&begun, &descriptor, remote),
                None if descriptor.bytes <= EAGER_MAX => self.start_eager(&begun, &descriptor),
                None => self.start_offer(&begun, &descriptor),
            };
            if sent == Sent::Full && !self.stalled.contains(&id) {
                self.stalled.push(id);
            }
            if sent != Sent::Yes {
                return;
            }
        }
    }

    /// The next descriptor, if it may be begun.
    fn next_send<'a>(&mut self, node: &'a Node, id: u32) -> Option<Begun<'a>> {
        let vi = self.vis.get_mut(&id).filter(|vi| vi.state == ViState::Connected)?;
        let (is_reliable, attempt) = (vi.is_reliable(), vi.attempt);
        let level = vi.attributes.terms.reliability;
        let (peer, to) = vi.connection.as_ref().map(|other| (other.peer, other.link))?;
        let works = &mut vi.send.works;
        let ticket = works.next()?;
        let is_remote = works.get(ticket)?.descriptor.remote.is_some();
        let waits = works.has_moving_before(ticket)
            || (level == RELIABLE_RECEPTION || is_remote) && works.has_open_before(ticket);
        (!waits).then_some(Begun { node, id, ticket, peer, to, attempt, is_reliable })
    }

    fn set_stage(&mut self, id: u32, ticket: u32, stage: Stage) {
        if let Some(work) = self.vis.get_mut(&id).and_then(|vi| vi.send.works.get_mut(ticket)) {
            work.stage = stage;
        }
    }

    /// A descriptor has failed here.
    fn fail_send(&mut self, begun: &Begun<'_>, status: u32, cause: Cause) {
        self.complete(begun.id, Side::Send, begun.ticket, End { status, ..End::default() });
        if begun.is_reliable {
            self.break_both(begun.node, begun.id, cause);
        }
    }

    fn start_eager(&mut self, begun: &Begun<'_>, descriptor: &Descriptor) -> Sent {
        let mut bytes = vec![0; descriptor.bytes as usize];
        let mut rest = &mut bytes[..];
        for segment in &descriptor.segments {
            let (part, left) = rest.split_at_mut(segment.len as usize);
            if !part.is_empty() {
                self.memory.read(pointer(segment.addr), part);
            }
            rest = left;
        }
        let message = Message::Data {
            to: begun.to,
            ticket: begun.ticket,
            immediate: descriptor.immediate,
            is_answered: begun.is_reliable,
        };
        let sent = self.try_send(begun.node, begun.peer, message, &bytes);
        if sent == Sent::Yes {
            if begun.is_reliable {
                self.set_stage(begun.id, begun.ticket, Stage::Sent { _offered: Vec::new() });
            } else {
                let end = End { bytes: descriptor.bytes as u32, ..End::default() };
                self.complete(begun.id, Side::Send, begun.ticket, end);
            }
        }
        sent
    }

    fn start_offer(&mut self, begun: &Begun<'_>, descriptor: &Descriptor) -> Sent {
        let mut grants: Vec<Grant<Foreign<()>>> = Vec::with_capacity(descriptor.segments.len());
        let mut pieces = Vec::new();
        for segment in descriptor.segments.iter().filter(|segment| segment.len > 0) {
            let buffer = self.memory.buffer(pointer(segment.addr), segment.len as usize, ());
            // Where there are as many grants as there may be, others end in time.
            let Ok(grant) = begun.node.grant(buffer, Rights::Read, [begun.peer]) else { return Sent::Full };
            let [id, len] = grant.name().to_words();
            pieces.extend(to_piece([id, len, segment.len.into()]));
            grants.push(grant);
        }
        let message = Message::Offer {
            to: begun.to,
            ticket: begun.ticket,
            immediate: descriptor.immediate,
            bytes: descriptor.bytes as u32,
        };
        let sent = self.try_send(begun.node, begun.peer, message, &pieces);
        if sent == Sent::Yes {
            self.set_stage(begun.id, begun.ticket, Stage::Sent { _offered: grants });
        }
        sent
    }

    fn start_remote(&mut self, begun: &Begun<'_>, descriptor: &Descriptor, remote: Segment) -> Sent {
        let is_write = descriptor.operation == Operation::Write;
        let known = self.vis.get(&begun.id).and_then(|vi| vi.connection.as_ref());
        let known = known.and_then(|other| other.found.get(&(remote.handle, is_write)).copied());
        if let Some(found) = known
            && is_within(&found, remote.addr, descriptor.bytes)
        {
            self.start_moving(begun, descriptor, found);
            return Sent::Yes;
        }
        let range = Range { handle: remote.handle, addr: remote.addr, len: descriptor.bytes };
        let (ticket, immediate) = (begun.ticket, descriptor.immediate);
        let message = Message::Find { to: begun.to, ticket, immediate, is_write };
        let sent = self.try_send(begun.node, begun.peer, message, &range.to_bytes());
        if sent == Sent::Yes {
            self.set_stage(begun.id, begun.ticket, Stage::Finding);
        }
        sent
    }

    /// Moves the bytes of a remote write or read.
    fn start_moving(&mut self, begun: &Begun<'_>, descriptor: &Descriptor, found: Reachable) {
        let remote = descriptor.remote.unwrap_or_default();
        let there = Remote::granted(begun.peer, found.name);
        let mut at = remote.addr - found.base;
        let mut events: Vec<Event<Foreign<()>>> = Vec::with_capacity(descriptor.segments.len());
        for segment in descriptor.segments.iter().filter(|segment| segment.len > 0) {
            let buffer = self.memory.buffer(pointer(segment.addr), segment.len as usize, ());
            let place = there.plus(at);
            at += u64::from(segment.len);
            events.push(match descriptor.operation {
                Operation::Write => begun.node.put_nb(place, buffer),
                _ => begun.node.get_nb(place, buffer),
            });
        }
        self.set_stage(begun.id, begun.ticket, Stage::Moving);
        self.transfers.push(Transfer {
            events,
            peer: begun.peer,
            vi: begun.id,
            attempt: begun.attempt,
            ticket: begun.ticket,
            fetched: None,
        });
    }

    /// A VI's descriptor of that ticket, if it is still of this connection.
    fn begun<'a>(
        &self,
        node: &'a Node,
        peer: Rank,
        to: Link,
        ticket: u32,
    ) -> Option<(Begun<'a>, Descriptor)> {
        let vi = self.vis.get(&to.vi).filter(|vi| vi.is_at(to.attempt, peer))?;
        let work = vi.send.works.get(ticket).filter(|work| !work.is_done())?;
        let link = vi.connection.as_ref()?.link;
        let (is_reliable, attempt) = (vi.is_reliable(), vi.attempt);
        let begun = Begun { node, id: to.vi, ticket, peer, to: link, attempt, is_reliable };
        Some((begun, work.descriptor.clone()))
    }

    /// The name of remote memory has come, or that it may not be had. `false`: it cannot be.
    pub(super) fn on_found(
        &mut self,
        node: &Node,
        (peer, to, ticket): (Rank, Link, u32),
        is_there: bool,
        payload: &[u8],
    ) -> bool {
        let Some((begun, descriptor)) = self.begun(node, peer, to, ticket) else { return true };
        let work = self.vis.get(&to.vi).and_then(|vi| vi.send.works.get(ticket));
        if !work.is_some_and(|work| matches!(work.stage, Stage::Finding)) {
            return false;
        }
        if !is_there {
            let status = if begun.is_reliable { status::RDMA_PROTECTION } else { 0 };
            self.complete(begun.id, Side::Send, ticket, End { status, ..End::default() });
            if begun.is_reliable {
                self.break_vi(begun.id, status::FLUSHED);
            }
            self.start_sends(node, to.vi);
            return true;
        }
        let remote = descriptor.remote.unwrap_or_default();
        let named = piece_words(payload).next();
        let found = named.and_then(|[id, len, base]| {
            GrantName::from_words([id, len]).map(|name| Reachable { name, base })
        });
        let Some(found) = found.filter(|found| is_within(found, remote.addr, descriptor.bytes)) else {
            self.fail_send(&begun, status::TRANSPORT, Cause::Descriptor);
            return false;
        };
        let is_write = descriptor.operation == Operation::Write;
        if let Some(other) = self.vis.get_mut(&to.vi).and_then(|vi| vi.connection.as_mut()) {
            other.found.insert((remote.handle, is_write), found);
        }
        self.start_moving(&begun, &descriptor, found);
        true
    }

    /// The bytes of a remote write or read have been moved, or not.
    pub(super) fn on_moved(&mut self, node: &Node, transfer: &Transfer, moved: Result<(), Error>) {
        let link = Link { vi: transfer.vi, attempt: transfer.attempt };
        let Some((begun, descriptor)) = self.begun(node, transfer.peer, link, transfer.ticket) else {
            let end = End { status: status::FLUSHED | status::PARTIAL, ..End::default() };
            self.complete(transfer.vi, Side::Send, transfer.ticket, end);
            return;
        };
        let is_write = descriptor.operation == Operation::Write;
        match moved {
            Ok(()) => self.finish_moved(&begun, &descriptor),
            Err(Error::Revoked { .. } | Error::NotGranted { .. }) => {
                let handle = descriptor.remote.unwrap_or_default().handle;
                self.ask_again(&begun, (handle, is_write));
            }
            Err(Error::LocalFault { .. }) => {
                let cause = if is_write { Cause::WriteAborted } else { Cause::Descriptor };
                self.fail_send(&begun, status::PROTECTION | status::PARTIAL, cause);
            }
            Err(_) => {
                let cause = if is_write { Cause::WriteData } else { Cause::ReadData };
                self.fail_send(&begun, status::TRANSPORT | status::PARTIAL, cause);
            }
        }
        self.start_sends(node, transfer.vi);
    }

    /// The name of remote memory was old: it is asked for once more, and then the owner says how it is.
    fn ask_again(&mut self, begun: &Begun<'_>, key: (u32, bool)) {
        let Some(vi) = self.vis.get_mut(&begun.id) else { return };
        if let Some(other) = &mut vi.connection {
            other.found.remove(&key);
        }
        let Some(work) = vi.send.works.get_mut(begun.ticket) else { return };
        if std::mem::replace(&mut work.was_old, true) {
            self.fail_send(begun, status::RDMA_PROTECTION, Cause::Descriptor);
        } else {
            vi.send.works.again(begun.ticket);
        }
    }

    fn finish_moved(&mut self, begun: &Begun<'_>, descriptor: &Descriptor) {
        let bytes = descriptor.bytes as u32;
        if let Some(immediate) = descriptor.immediate {
            let (to, ticket, is_answered) = (begun.to, begun.ticket, begun.is_reliable);
            let message = Message::Written { to, ticket, immediate, bytes, is_answered };
            self.send(begun.node, begun.peer, message, &[]);
            if begun.is_reliable {
                self.set_stage(begun.id, begun.ticket, Stage::Sent { _offered: Vec::new() });
                return;
            }
        }
        self.complete(begun.id, Side::Send, begun.ticket, End { bytes, ..End::default() });
    }

    /// The receiver tells what became of a descriptor's message.
    pub(super) fn on_outcome(&mut self, node: &Node, peer: Rank, to: Link, ticket: u32, outcome: Outcome) {
        let Some((begun, descriptor)) = self.begun(node, peer, to, ticket) else { return };
        // A hostile peer may answer before it was asked: the bytes may be under way still.
        let work = self.vis.get(&to.vi).and_then(|vi| vi.send.works.get(ticket));
        if !work.is_some_and(|work| matches!(work.stage, Stage::Sent { .. })) {
            return;
        }
        let is_reception = self.vis[&to.vi].attributes.terms.reliability == RELIABLE_RECEPTION;
        let mut status = match outcome {
            Outcome::Done => 0,
            Outcome::NoDescriptor | Outcome::BadDescriptor => status::REMOTE_DESCRIPTOR,
            Outcome::Closed => status::FLUSHED,
            Outcome::Protection => status::RDMA_PROTECTION,
            Outcome::Transport => status::TRANSPORT,
        };
        // Delivery is to the other end's NIC: what fails behind it is not the descriptor's fault.
        if status == status::REMOTE_DESCRIPTOR && !is_reception {
            status = 0;
        }
        if !begun.is_reliable {
            status &= status::FLUSHED;
        }
        let bytes = if status == 0 { descriptor.bytes as u32 } else { 0 };
        self.complete(begun.id, Side::Send, ticket, End { status, bytes, ..End::default() });
        if outcome != Outcome::Done && begun.is_reliable {
            self.break_vi(begun.id, status::FLUSHED);
            if status == 0 || outcome == Outcome::Closed {
                self.tell_vi_error(begun.id, ErrorCode::ConnectionLost);
            }
        }
        self.start_sends(node, to.vi);
    }
}

/// Whether memory that was found has that range.
fn is_within(found: &Reachable, addr: u64, len: u64) -> bool {
    let room = found.name.len();
    addr.checked_sub(found.base).is_some_and(|at| at <= room && len <= room - at)
}

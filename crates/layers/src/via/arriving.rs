//! The receive queue, and what peers ask of this process's memory.

use standpipe::{Call, Error, Event, Foreign, GrantName, Node, Rank, Remote};

use super::descriptor::{Descriptor, Segment, pointer, status};
use super::error::ErrorCode;
use super::queue::Stage;
use super::state::{End, Fetched, State, Transfer};
use super::vi::{Side, ViState};
use super::wire::{Cause, Link, Message, Outcome, PIECE_BYTES, Range, piece_words, to_piece};

/// A receive that a message has taken.
struct Taken {
    id: u32,
    ticket: u32,
    descriptor: Descriptor,
}

/// A piece of a long message: where it lies, where it goes, how many bytes.
type Piece = (Remote, u64, u32);

impl State {
    /// Takes the receive for a message of so many bytes.
    fn take_receive(&mut self, peer: Rank, to: Link, bytes: u64, place: u32) -> Result<Taken, Outcome> {
        let Some(vi) = self.vis.get_mut(&to.vi).filter(|vi| vi.is_at(to.attempt, peer)) else {
            return Err(Outcome::Closed);
        };
        let (ptag, is_reliable, id) = (vi.attributes.ptag, vi.is_reliable(), to.vi);
        let Some(ticket) = vi.receive.works.next() else {
            if is_reliable {
                self.break_vi(id, status::FLUSHED);
                self.tell_vi_error(id, ErrorCode::ReceiveQueueEmpty);
            }
            return Err(Outcome::NoDescriptor);
        };
        let Some(descriptor) = vi.receive.works.get(ticket).map(|work| work.descriptor.clone()) else {
            return Err(Outcome::NoDescriptor);
        };
        let mut fault = descriptor.fault;
        if fault == 0 && !self.regions.cover(&descriptor.segments, ptag) {
            fault = status::PROTECTION;
        }
        if fault == 0 && bytes > descriptor.bytes {
            fault = status::LENGTH;
        }
        if fault == 0 {
            return Ok(Taken { id, ticket, descriptor });
        }
        self.complete(id, Side::Receive, ticket, End { status: fault | place, ..End::default() });
        if is_reliable {
            self.break_vi(id, status::FLUSHED);
        }
        Err(Outcome::BadDescriptor)
    }

    /// A send has come, with its bytes: what became of it.
    pub(super) fn on_data(&mut self, call: &Call<'_>, to: Link, immediate: Option<u32>) -> Outcome {
        let len = call.payload_len();
        let taken = match self.take_receive(call.from(), to, len as u64, 0) {
            Ok(taken) => taken,
            Err(outcome) => return outcome,
        };
        let mut at = 0;
        match taken.descriptor.segments[..] {
            _ if len == 0 => {}
            // Where all goes to one place, it is copied once.
            [Segment { addr, len: room, .. }, ..] if room as usize >= len => {
                if self.memory.write_payload(pointer(addr), len, call).is_err() {
                    return Outcome::Transport;
                }
            }
            ref segments => {
                for segment in segments {
                    let part = &call.payload()[at..len.min(at + segment.len as usize)];
                    at += part.len();
                    self.memory.write(pointer(segment.addr), part);
                }
            }
        }
        let end = End { bytes: len as u32, immediate, status: 0 };
        self.complete(taken.id, Side::Receive, taken.ticket, end);
        Outcome::Done
    }

    /// A long send has come: begins to fetch it. `None`: its sender is told in time.
    pub(super) fn on_offer(
        &mut self,
        (node, peer, to): (&Node, Rank, Link),
        fetched: Fetched,
        payload: &[u8],
    ) -> Result<Option<Outcome>, ()> {
        let mut sources = Vec::with_capacity(payload.len() / PIECE_BYTES);
        for [id, len, bytes] in piece_words(payload) {
            let name = GrantName::from_words([id, len]).filter(|name| name.len() == bytes).ok_or(())?;
            sources.push((Remote::granted(peer, name), u32::try_from(bytes).map_err(|_| ())?));
        }
        if sources.iter().map(|(_, len)| u64::from(*len)).sum::<u64>() != u64::from(fetched.bytes) {
            return Err(());
        }
        let taken = match self.take_receive(peer, to, fetched.bytes.into(), 0) {
            Ok(taken) => taken,
            Err(outcome) => return Ok(Some(outcome)),
        };
        let pieces = pieces(&sources, &taken.descriptor.segments);
        let get = |(from, addr, len): &Piece| -> Event<Foreign<()>> {
            node.get_nb(*from, self.memory.buffer(pointer(*addr), *len as usize, ()))
        };
        let events = pieces.iter().map(get).collect();
        let Some(vi) = self.vis.get_mut(&taken.id) else { return Ok(Some(Outcome::Closed)) };
        let attempt = vi.attempt;
        if let Some(work) = vi.receive.works.get_mut(taken.ticket) {
            work.stage = Stage::Moving;
        }
        let (vi, ticket) = (taken.id, taken.ticket);
        self.transfers.push(Transfer { events, peer, vi, attempt, ticket, fetched: Some(fetched) });
        Ok(None)
    }

    /// A long send has been fetched, or not.
    pub(super) fn on_fetched(
        &mut self,
        node: &Node,
        transfer: &Transfer,
        fetched: Fetched,
        moved: Result<(), Error>,
    ) {
        let (id, peer) = (transfer.vi, transfer.peer);
        let Some(vi) = self.vis.get(&id).filter(|vi| vi.is_at(transfer.attempt, peer)) else {
            let end = End { status: status::FLUSHED | status::PARTIAL, ..End::default() };
            self.complete(id, Side::Receive, transfer.ticket, end);
            return;
        };
        let (is_reliable, to) = (vi.is_reliable(), vi.connection.as_ref().map(|other| other.link));
        let outcome = match moved {
            Ok(()) => Outcome::Done,
            Err(Error::LocalFault { .. }) => Outcome::BadDescriptor,
            Err(_) => Outcome::Transport,
        };
        let end = match outcome {
            Outcome::Done => End { bytes: fetched.bytes, immediate: fetched.immediate, status: 0 },
            Outcome::BadDescriptor => End { status: status::PROTECTION | status::PARTIAL, ..End::default() },
            _ => End { status: status::TRANSPORT | status::PARTIAL, ..End::default() },
        };
        self.complete(id, Side::Receive, transfer.ticket, end);
        if let Some(to) = to {
            let message = Message::Outcome { to, ticket: fetched.ticket, outcome };
            self.send(node, peer, message, &[]);
        }
        if outcome != Outcome::Done && is_reliable {
            self.break_vi(id, status::FLUSHED);
        }
    }

    /// A peer asks for memory, to write or to read it: the answer, with its payload.
    pub(super) fn on_find(
        &mut self,
        (peer, to, ticket): (Rank, Link, u32),
        range: Range,
        is_write: bool,
        immediate: Option<u32>,
    ) -> Option<(Message, Vec<u8>)> {
        let vi = self.vis.get(&to.vi).filter(|vi| vi.is_at(to.attempt, peer))?;
        let (ptag, is_reliable, terms) = (vi.attributes.ptag, vi.is_reliable(), vi.attributes.terms);
        let link = vi.connection.as_ref()?.link;
        let is_enabled = if is_write { terms.allows_write } else { terms.allows_read };
        let found = self.regions.reachable(range.handle, ptag, (range.addr, range.len), is_write);
        if let Some(found) = found.filter(|_| is_enabled) {
            let [id, len] = found.name.to_words();
            let payload = to_piece([id, len, found.base]).to_vec();
            return Some((Message::Found { to: link, ticket, is_there: true }, payload));
        }
        match immediate {
            // The receive that the write would take tells of it.
            Some(_) => {
                let next = self.vis.get_mut(&to.vi).and_then(|vi| vi.receive.works.next());
                let status = status::RDMA_PROTECTION | status::REMOTE_WRITE;
                match next {
                    Some(next) => {
                        self.complete(to.vi, Side::Receive, next, End { status, ..End::default() });
                    }
                    None => self.tell_vi_error(to.vi, ErrorCode::WriteProtection),
                }
            }
            None if is_write => self.tell_vi_error(to.vi, ErrorCode::WriteProtection),
            None => self.tell_vi_error(to.vi, ErrorCode::ReadProtection),
        }
        if is_reliable {
            self.break_vi(to.vi, status::FLUSHED);
        }
        Some((Message::Found { to: link, ticket, is_there: false }, Vec::new()))
    }

    /// A peer has written remotely, with immediate data: what became of the receive.
    pub(super) fn on_written(&mut self, peer: Rank, to: Link, immediate: u32, bytes: u32) -> Outcome {
        // The bytes lie elsewhere: any receive has room.
        match self.take_receive(peer, to, 0, status::REMOTE_WRITE) {
            Ok(taken) => {
                let (status, immediate) = (status::REMOTE_WRITE, Some(immediate));
                let end = End { status, bytes, immediate };
                self.complete(taken.id, Side::Receive, taken.ticket, end);
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    }

    /// The other end has taken down the connection, or broken it.
    pub(super) fn on_broken(&mut self, peer: Rank, to: Link, cause: Option<Cause>) {
        if !self.vis.get(&to.vi).is_some_and(|vi| vi.is_at(to.attempt, peer)) {
            return;
        }
        self.break_vi(to.vi, status::FLUSHED);
        let code = match cause {
            Some(Cause::WriteData) => ErrorCode::WriteData,
            Some(Cause::WriteAborted) => ErrorCode::WriteAborted,
            Some(Cause::ReadData) => ErrorCode::RdmaTransport,
            Some(Cause::Descriptor) | None => ErrorCode::ConnectionLost,
        };
        self.tell_vi_error(to.vi, code);
    }

    /// A peer is lost: so are all connections with it.
    pub(super) fn on_lost(&mut self, peer: Rank) {
        let is_with = |connection: &super::vi::Connection| connection.peer == peer;
        let of_it = self
            .vis
            .iter()
            .filter(|(_, vi)| vi.state == ViState::Connected && vi.connection.as_ref().is_some_and(is_with));
        let lost: Vec<u32> = of_it.map(|(id, _)| *id).collect();
        for id in lost {
            let is_remote_under_way = self.vis.get(&id).is_some_and(|vi| {
                let open = vi.send.works.open();
                let works = open.iter().filter_map(|ticket| vi.send.works.get(*ticket));
                works.into_iter().any(|work| matches!(work.stage, Stage::Finding | Stage::Moving))
            });
            self.break_vi(id, status::TRANSPORT);
            self.tell_vi_error(id, ErrorCode::ConnectionLost);
            if is_remote_under_way {
                self.tell_vi_error(id, ErrorCode::RdmaTransport);
            }
        }
    }
}

/// Pairs where a long message lies with where it goes; the latter has room for all of it.
fn pieces(sources: &[(Remote, u32)], targets: &[Segment]) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(sources.len() + targets.len());
    let mut targets = targets.iter().copied().filter(|target| target.len > 0);
    let mut target = targets.next();
    for (from, len) in sources {
        let mut done = 0;
        while done < *len
            && let Some(room) = &mut target
        {
            let bytes = room.len.min(len - done);
            pieces.push((from.plus(done.into()), room.addr, bytes));
            done += bytes;
            (room.addr, room.len) = (room.addr + u64::from(bytes), room.len - bytes);
            if room.len == 0 {
                target = targets.next();
            }
        }
    }
    pieces
}

//! Messages on their way out.

use std::time::{Duration, Instant};

use engine::{Header, Lane, OpError, Rank, SendError};

use super::buffers::{PAYLOAD_MAX, Purpose, Size};
use super::endpoint::Kept;
use super::envelope::{BARE_BYTES, Envelope, HEAD_BYTES, Kind};
use super::link::{Busy, DIRECT, Life, PARTS, Unsent};
use super::transport::OfiTransport;

/// How long the provider may have no room for a peer where nobody listens, or that is said to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// How long it may have none for a peer that was never reached, and is said to be gone.
const SUSPECT_WITHIN: Duration = Duration::from_secs(4);

/// How long there may be no memory for anything that is for a peer.
const MEMORY_WITHIN: Duration = Duration::from_secs(30);

/// There is no memory for a message.
#[derive(Debug)]
pub(super) struct NoBuffer;

impl OfiTransport {
    /// Sends a message of the engine's, if its lane has room.
    pub(super) fn send_engine(
        &mut self,
        rank: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if payload.len() > PAYLOAD_MAX {
            return Err(SendError::Failed(OpError::Protocol { peer: rank, what: "too long a message" }));
        }
        let itself = rank == self.members.own.rank;
        if !self.link(rank).map_err(SendError::Failed)?.outgoing(lane).has_room()
            || !(itself || self.endpoint.has_message())
        {
            return Err(SendError::Busy);
        }
        let link = self.link(rank).map_err(SendError::Failed)?;
        let Some(sequence) = link.outgoing(lane).take() else { return Err(SendError::Busy) };
        if itself {
            let stored = link
                .arrivals(lane)
                .store(sequence, *header, payload.len(), |into| into.copy_from_slice(payload));
            stored.expect("there was a credit for it");
            self.list(rank);
            return Ok(());
        }
        self.post(rank, Kind::Engine(lane), sequence, *header, payload).map_err(|NoBuffer| SendError::Busy)
    }

    /// Makes a message, and sends it as soon as the provider takes it.
    pub(super) fn post(
        &mut self,
        rank: Rank,
        kind: Kind,
        sequence: u32,
        words: [u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), NoBuffer> {
        let Some(link) = self.links.get_mut(rank) else { return Ok(()) };
        let buffer = self.endpoint.take(Size::Message).ok_or(NoBuffer)?;
        let credits = [link.arrivals[0].pay(), link.arrivals[1].pay()];
        let (token, sender) = (*link.names.outward.bytes(), link.names.place);
        let head = Envelope { token, sender, kind, credits, sequence, words }.encode();
        let bare = kind.bytes(0).0 == BARE_BYTES;
        let head = if bare { &head[..BARE_BYTES] } else { &head[..HEAD_BYTES] };
        self.endpoint.buffers.put(&buffer, 0, head);
        self.endpoint.buffers.put(&buffer, head.len(), payload);
        let answers = kind == Kind::Answer;
        link.life.spoken_to = true;
        link.asks.unanswered += usize::from(answers);
        link.waiting.unsent.push_back(Unsent { buffer, len: head.len() + payload.len(), answers });
        self.flush(rank);
        Ok(())
    }

    /// Gives the provider what it takes of a peer's messages.
    pub(super) fn flush(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        let Some(peer) = link.peer.filter(|_| !link.waiting.held) else { return };
        while let Some(Unsent { buffer, len, answers }) = link.waiting.unsent.pop_front() {
            match self.endpoint.send(peer, (buffer, len), Purpose::Send { rank, answers }) {
                Ok(()) => {
                    self.sending += 1;
                    link.has_room();
                    link.life.reached = true;
                }
                Err(Kept { buffer, busy: true }) => {
                    link.waiting.unsent.push_front(Unsent { buffer, len, answers });
                    return self.grow_impatient(rank);
                }
                Err(Kept { buffer, busy: false }) => {
                    self.endpoint.buffers.put_back(buffer);
                    return self.lose(rank);
                }
            }
        }
    }

    /// The provider has no room for what is for a peer: it is to be tried again, but not for ever.
    pub(super) fn grow_impatient(&mut self, rank: Rank) {
        self.try_again(rank);
        let Some(link) = self.links.get_mut(rank) else { return };
        if self.endpoint.is_full() {
            // For whom, nobody can tell.
            link.waiting.busy = None;
            return;
        }
        let (now, send_timeout) = (Instant::now(), link.life.silence_max.unwrap_or(self.send_timeout));
        let Life { reached, doubts, listens_at, .. } = link.life;
        let busy = link.waiting.busy.get_or_insert_with(|| Busy::since(now, rank, reached, listens_at));
        let waited = busy.wait.go_on(now);
        let nobody_listens = busy.probe.is_refused(now);
        let why = match (doubts > 0, reached) {
            _ if waited > send_timeout => "the network takes nothing for the peer",
            _ if nobody_listens && waited > GONE_WITHIN => "nobody listens where the peer did",
            (true, true) if waited > GONE_WITHIN => "the peer is said to be gone, and not reached",
            (true, false) if waited > SUSPECT_WITHIN => "the peer is said to be gone, and not reached",
            _ => return,
        };
        busy.span.record("outcome", "lost");
        tracing::warn!(peer = rank, ?waited, "{why}");
        self.lose(rank);
    }

    /// There is no memory for what is for a peer, and none that comes back: it is to be tried again, but not
    /// for ever.
    pub(super) fn lack_memory(&mut self, rank: Rank) {
        self.grow_impatient(rank);
        let Some(busy) = self.links.get(rank).and_then(|link| link.waiting.busy.as_ref()) else { return };
        if busy.wait.so_far() > MEMORY_WITHIN {
            tracing::warn!(peer = rank, "there is no memory for anything that is for the peer");
            self.lose(rank);
        }
    }

    /// Takes note that something for a peer found no room.
    pub(super) fn try_again(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        if !std::mem::replace(&mut link.lists.stuck, true) {
            self.stuck.push_back(rank);
        }
    }

    /// Tries again what found no room.
    #[inline(never)]
    pub(super) fn flush_stuck(&mut self) {
        for _ in 0..self.stuck.len() {
            let Some(rank) = self.stuck.pop_front() else { return };
            if let Some(link) = self.links.get_mut(rank) {
                link.lists.stuck = false;
                let rests = link.rests();
                self.flush(rank);
                self.send_asks(rank);
                for kind in (0..PARTS.len()).filter(|kind| *kind == DIRECT || !rests) {
                    self.go_on_with_copies(rank, kind);
                }
                if rests {
                    self.try_again(rank);
                }
            }
        }
    }

    /// Gives back credits that no message took along.
    #[inline(never)]
    pub(super) fn pay(&mut self) {
        for _ in 0..self.owing.len() {
            let Some(rank) = self.owing.pop_front() else { return };
            let Some(link) = self.links.get_mut(rank) else { continue };
            link.lists.owing = false;
            let owes = link.arrivals.iter().any(|arrivals| arrivals.owes_much());
            if owes && !self.gone.has(rank) && self.post(rank, Kind::Credits, 0, [0; 7], &[]).is_err() {
                self.owe(rank);
            }
        }
    }

    /// Takes note that a peer is owed many credits.
    pub(super) fn owe(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        if !std::mem::replace(&mut link.lists.owing, true) {
            self.owing.push_back(rank);
        }
    }

    /// Takes note that a link has messages for the engine.
    pub(super) fn list(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        if !std::mem::replace(&mut link.lists.listed, true) {
            self.ready.push_back(rank);
        }
    }
}

//! Messages on their way out: they gather in frames.
//!
//! A message leaves at once where no frame of this process's to that peer is on its way out. Otherwise it
//! gathers with those that come after it, until the frame is full, or the next poll. So a lone message waits
//! for nothing, and many share one system call.

use std::time::{Duration, Instant};

use engine::{Header, Lane, OpError, Rank, SendError};

use super::buffers::{PAYLOAD_MAX, Purpose, Size};
use super::chores::Chore;
use super::endpoint::{Kept, NetEndpoint};
use super::frame::{FRAME_HEAD_BYTES, FrameHead, Kind, LETTER_BYTES, Letter};
use super::lane::Arrivals;
use super::link::{Busy, DIRECT, Life, Link, PARTS, Unsent};
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

/// Begins one more frame for a peer.
fn new_frame<'a>(endpoint: &mut NetEndpoint, link: &'a mut Link) -> Result<&'a mut Unsent, NoBuffer> {
    let buffer = endpoint.take(Size::Frame).ok_or(NoBuffer)?;
    endpoint.buffers.put(&buffer, 0, &link.names.frame_head().encode());
    let unsent = &mut link.waiting.unsent;
    unsent.push_back(Unsent { buffer, len: FRAME_HEAD_BYTES, answers: 0 });
    Ok(unsent.back_mut().expect("it was pushed just now"))
}

impl OfiTransport {
    /// Sends a message of the engine's, if its lane has room.
    pub(super) fn send_engine(
        &mut self,
        rank: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let len = payload.len();
        if len > PAYLOAD_MAX {
            return Err(SendError::Failed(OpError::Protocol { peer: rank, what: "too long a message" }));
        }
        let itself = rank == self.members.own.rank;
        if !self.link(rank).map_err(SendError::Failed)?.outgoing(lane).has_room(len)
            || !(itself || self.endpoint.has_frame())
        {
            return Err(SendError::Busy);
        }
        let link = self.link(rank).map_err(SendError::Failed)?;
        let Some(sequence) = link.outgoing(lane).take(len) else { return Err(SendError::Busy) };
        if itself {
            let stored =
                link.arrivals(lane).store(sequence, *header, len, |into| into.copy_from_slice(payload));
            stored.expect("there were credits for it");
            self.list(rank);
            return Ok(());
        }
        let letter = Letter { kind: Kind::Engine(lane), len, sequence, words: *header };
        self.post(rank, &letter, payload).map_err(|NoBuffer| SendError::Busy)
    }

    /// Sends words of this transport's own.
    pub(super) fn say(
        &mut self,
        rank: Rank,
        kind: Kind,
        words: [u64; Header::WORDS],
    ) -> Result<(), NoBuffer> {
        self.post(rank, &Letter { kind, len: 0, sequence: 0, words }, &[])
    }

    /// Adds a message to the last frame for a peer, or begins one with it, and sends what is to go now.
    fn post(&mut self, rank: Rank, letter: &Letter, payload: &[u8]) -> Result<(), NoBuffer> {
        // Nothing goes to one that is gone.
        let Some(link) = self.links.get_mut(rank).filter(|link| link.peer.is_some()) else { return Ok(()) };
        let bytes = Letter::bytes(payload.len());
        let fits = |unsent: &&mut Unsent| unsent.len + bytes <= Size::Frame.bytes();
        let (frame, is_new) = match link.waiting.unsent.back_mut().filter(fits) {
            Some(frame) => (frame, false),
            None => (new_frame(&mut self.endpoint, link)?, true),
        };
        self.endpoint.buffers.put(&frame.buffer, frame.len, &letter.encode());
        if !payload.is_empty() {
            // The end of the last word is zero: what lay there may have been for another peer.
            self.endpoint.buffers.put(&frame.buffer, frame.len + bytes - 8, &[0; 8]);
            self.endpoint.buffers.put(&frame.buffer, frame.len + LETTER_BYTES, payload);
        }
        frame.len += bytes;
        frame.answers += u16::from(letter.kind == Kind::Answer);
        let is_full = frame.len + LETTER_BYTES > Size::Frame.bytes();
        link.asks.unanswered += usize::from(letter.kind == Kind::Answer);
        if link.waiting.leaving == 0 || is_full || letter.kind == Kind::Bye {
            self.flush(rank);
        } else if is_new {
            self.gather(rank);
        }
        Ok(())
    }

    /// A frame has been begun while others are on their way out. It is to go with the next progress; those
    /// before it are full, and go now.
    fn gather(&mut self, rank: Rank) {
        self.send_frames(rank, 1);
        let Some(link) = self.links.get_mut(rank) else { return };
        if !std::mem::replace(&mut link.lists.gathering, true) {
            self.begins_to_gather |= !self.chores.has(Chore::Gathering);
            self.chores.push(Chore::Gathering, rank);
        }
    }

    /// Sends all that has gathered.
    #[inline(never)]
    pub(super) fn send_frames_that_gather(&mut self) {
        self.begins_to_gather = false;
        while let Some(rank) = self.chores.pop(Chore::Gathering) {
            if let Some(link) = self.links.get_mut(rank) {
                link.lists.gathering = false;
                self.flush(rank);
            }
        }
    }

    /// Gives a peer what it is owed, and something to hear, with the frame that leaves next.
    pub(super) fn send_credits(&mut self, rank: Rank) -> Result<(), NoBuffer> {
        if let Some(link) = self.links.get_mut(rank)
            && link.peer.is_some()
            && link.waiting.unsent.is_empty()
        {
            new_frame(&mut self.endpoint, link)?;
        }
        self.flush(rank);
        Ok(())
    }

    /// Gives the provider what it takes of a peer's frames.
    pub(super) fn flush(&mut self, rank: Rank) {
        self.send_frames(rank, 0);
    }

    /// Gives the provider what it takes of a peer's frames, but for the last `kept`.
    fn send_frames(&mut self, rank: Rank, kept: usize) {
        let Some(link) = self.links.get_mut(rank) else { return };
        let Some(peer) = link.peer.filter(|_| !link.waiting.held) else { return };
        while link.waiting.unsent.len() > kept
            && let Some(Unsent { buffer, len, answers }) = link.waiting.unsent.pop_front()
        {
            let credits = link.arrivals.each_ref().map(Arrivals::owed);
            self.endpoint.buffers.put(&buffer, FrameHead::CREDITS_AT, &FrameHead::encode_credits(credits));
            match self.endpoint.send(peer, (buffer, len), Purpose::Send { rank, answers }) {
                Ok(()) => {
                    link.arrivals.iter_mut().for_each(|arrivals| _ = arrivals.pay());
                    self.sending += 1;
                    link.waiting.leaving += 1;
                    link.life.spoken_to = true;
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
            self.chores.push(Chore::Stuck, rank);
        }
    }

    /// Tries again what found no room.
    #[inline(never)]
    pub(super) fn flush_stuck(&mut self) {
        for _ in 0..self.chores.len_of(Chore::Stuck) {
            let Some(rank) = self.chores.pop(Chore::Stuck) else { return };
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

    /// Gives back credits that no frame took along.
    #[inline(never)]
    pub(super) fn pay(&mut self) {
        for _ in 0..self.chores.len_of(Chore::Owing) {
            let Some(rank) = self.chores.pop(Chore::Owing) else { return };
            let Some(link) = self.links.get_mut(rank) else { continue };
            link.lists.owing = false;
            let owes = link.arrivals.iter().any(|arrivals| arrivals.owes_much());
            if owes && !self.gone.has(rank) && self.send_credits(rank).is_err() {
                self.owe(rank);
            }
        }
    }

    /// Takes note that a peer is owed many credits.
    pub(super) fn owe(&mut self, rank: Rank) {
        let Some(link) = self.links.get_mut(rank) else { return };
        if !std::mem::replace(&mut link.lists.owing, true) {
            self.chores.push(Chore::Owing, rank);
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

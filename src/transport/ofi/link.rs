//! All that is kept for one peer.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use engine::{Header, Lane, Rank};
use fabric::Peer;

use super::buffers::{Buffer, PAYLOAD_MAX};
use super::frame::{FrameHead, index};
use super::landings::Landing;
use super::lane::{Arrivals, Outgoing};
use super::liveness_probe::LivenessProbe;
use super::pending_requests::Heaps;
use super::token::Token;
use crate::base::limits::{DIRECT_PARTS, LARGE_PARTS, SMALL_PARTS};

/// Parts of copies with one peer that may be under way: in small buffers, in large ones, and without.
pub(super) const PARTS: [usize; 3] = [SMALL_PARTS, LARGE_PARTS, DIRECT_PARTS];

/// The place in [`PARTS`] of those without.
pub(super) const DIRECT: usize = 2;

/// A frame that the provider has not taken. The last one of a link takes more messages.
pub(super) struct Unsent {
    pub(super) buffer: Buffer,
    pub(super) len: usize,
    /// Messages in it that answer atomics of the peer's.
    pub(super) answers: u16,
}

/// The most that one look at a provider without room counts for.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// While there is no room, what goes through buffers is tried once in so long: each try fills a buffer.
const BUFFERED_AGAIN: Duration = Duration::from_millis(1);

/// How long there was no room at the provider.
pub(super) struct Wait {
    /// The last look.
    last: Instant,
    /// From the first look to the last.
    waited: Duration,
}

impl Wait {
    pub(super) fn since(now: Instant) -> Wait {
        Wait { last: now, waited: Duration::ZERO }
    }

    /// Whether there has been no room for so long that a moment more does not matter, and it was looked for a
    /// moment ago.
    fn rests(&self) -> bool {
        self.waited > BUFFERED_AGAIN && self.last.elapsed() < BUFFERED_AGAIN
    }

    /// How long there was no room at the last look.
    pub(super) fn so_far(&self) -> Duration {
        self.waited
    }

    /// There is still no room. Returns how long there was none.
    pub(super) fn go_on(&mut self, now: Instant) -> Duration {
        // A process that was stopped meanwhile has not waited.
        self.waited += now.duration_since(self.last).min(LOOK_MAX);
        self.last = now;
        self.waited
    }
}

/// Operations that have failed are not tried again at once, and after more failures later.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
    last: Duration,
}

impl Pause {
    /// It has failed: it is not tried for twice as long as the last time, and so long at least and at most.
    pub(super) fn failed(&mut self, now: Instant, least: Duration, most: Duration) {
        self.last = (2 * self.last).clamp(least, most);
        self.until = Some(now + self.last);
    }

    /// It has not failed.
    pub(super) fn end(&mut self) {
        *self = Pause::default();
    }

    /// As if its time were over.
    #[cfg(test)]
    pub(super) fn be_over(&mut self) {
        self.until = Some(Instant::now());
    }

    /// Whether it may be tried.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// A time of waiting for the provider to have room for a peer.
pub(super) struct Busy {
    pub(super) wait: Wait,
    /// Whether anybody listens where the peer did.
    pub(super) probe: LivenessProbe,
    /// The same for whoever traces: until it has room, or the peer is lost.
    pub(super) span: tracing::Span,
}

impl Busy {
    /// Begins to wait. The provider is connecting to the peer; where it has reached that before, it is
    /// connecting again, or has its queues full.
    pub(super) fn since(now: Instant, peer: Rank, again: bool, listens_at: Option<SocketAddr>) -> Busy {
        let span = tracing::debug_span!("reach", peer, again, outcome = tracing::field::Empty);
        Busy { wait: Wait::since(now), probe: LivenessProbe::at(listens_at, now), span }
    }
}

/// One peer, or this process itself.
pub(super) struct Link {
    /// `None` for this process itself, and for a peer that is gone.
    pub(super) peer: Option<Peer>,
    pub(super) names: Names,
    /// By lane.
    pub(super) outgoing: [Outgoing; 2],
    pub(super) arrivals: [Arrivals; 2],
    pub(super) waiting: Waiting,
    pub(super) life: Life,
    pub(super) asks: Asks,
    /// The knowledge of each of the two of the other's heap.
    pub(super) heaps: Heaps,
    pub(super) copying: Copying,
    pub(super) lists: Lists,
}

/// The names of the two for each other.
#[derive(Clone)]
pub(super) struct Names {
    /// The peer's name for this process.
    pub(super) place: Rank,
    /// On messages to it, and from it.
    pub(super) outward: Token,
    pub(super) inward: Token,
}

impl Names {
    /// The beginning of a frame for the peer, which gives no credits back yet.
    pub(super) fn frame_head(&self) -> FrameHead {
        FrameHead { token: *self.outward.bytes(), sender: self.place, credits: [0; 2] }
    }
}

/// Messages that have not gone out.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) unsent: VecDeque<Unsent>,
    /// Frames that the provider has taken, and not said to be out. While there are any, messages gather.
    pub(super) leaving: usize,
    /// Nothing goes out before the peer was heard from.
    pub(super) held: bool,
    /// How long the first of them, or of the copies through buffers that wait, has found no room.
    pub(super) busy: Option<Busy>,
}

/// Signs of life, and doubts.
#[derive(Default)]
pub(super) struct Life {
    /// Whether the provider has ever taken anything for it; whether it was heard from since the last
    /// heartbeat.
    pub(super) reached: bool,
    pub(super) heard: bool,
    /// Whether it was sent anything since the last heartbeat.
    pub(super) spoken_to: bool,
    /// Others say that it is gone: it is not waited for as one that may just be late. In so many heartbeats
    /// it has to be heard from before it is again.
    pub(super) doubts: u8,
    /// Where it listens by TCP, if that is known.
    pub(super) listens_at: Option<SocketAddr>,
    /// How long it has been silent while this process listened, and how long it may be.
    pub(super) silent: Duration,
    pub(super) silence_max: Option<Duration>,
}

/// The requests of one to the other.
#[derive(Default)]
pub(super) struct Asks {
    /// Atomics asked of the peer and not answered; and those to be asked when some are.
    pub(super) asked: usize,
    pub(super) queue: VecDeque<[u64; Header::WORDS]>,
    /// Answers to the peer's that are not out.
    pub(super) unanswered: usize,
}

/// Copies with the peer.
#[derive(Default)]
pub(super) struct Copying {
    /// By kind of place, as in [`PARTS`]: copies that wait for one and hold none, in turn; and how many parts
    /// are under way. Where any wait, there are as many under way as may be, or the link is `stuck`.
    pub(super) copies: [VecDeque<usize>; 3],
    pub(super) parts: [usize; 3],
    /// Copies with it were broken off, and it has done nothing since: no caller's memory is lent for it.
    pub(super) suspect: bool,
    /// When an auxiliary endpoint may be tried again that did not reach it.
    pub(super) aux_endpoint_pause: Pause,
    /// Where long puts from the caller's memory go at the peer.
    pub(super) landing: Landing,
    /// The last auxiliary endpoint for it took parts and ended none, and no other has ended one since.
    pub(super) doubts_aux_endpoints: bool,
}

/// Lists that the link stands in.
#[derive(Default)]
pub(super) struct Lists {
    /// With messages for the engine.
    pub(super) listed: bool,
    /// As in [`Chore`](super::chores::Chore).
    pub(super) stuck: bool,
    pub(super) owing: bool,
    pub(super) gathering: bool,
}

impl Link {
    /// Whether copies wait that go through buffers, and are to be tried a little later.
    pub(super) fn rests(&self) -> bool {
        let waits = self.copying.copies[..DIRECT].iter().any(|waiting| !waiting.is_empty());
        waits
            && self.waiting.unsent.is_empty()
            && self.waiting.busy.as_ref().is_some_and(|busy| busy.wait.rests())
    }
}

/// The links of a process, by rank: with a place for each rank up to the highest that was ever talked to, so
/// that a link is found at once.
#[derive(Default)]
pub(super) struct Links(Vec<Option<Box<Link>>>);

impl Links {
    #[inline]
    pub(super) fn get(&self, rank: Rank) -> Option<&Link> {
        self.0.get(rank as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Link> {
        self.0.get_mut(rank as usize)?.as_deref_mut()
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.get(rank).is_some()
    }

    /// `rank` is a member's, or one that was given to a process from outside: others would cost memory for
    /// nothing.
    pub(super) fn insert(&mut self, rank: Rank, link: Link) {
        let places = self.0.len().max(rank as usize + 1);
        self.0.resize_with(places, || None);
        self.0[rank as usize] = Some(Box::new(link));
    }

    pub(super) fn remove(&mut self, rank: Rank) {
        if let Some(place) = self.0.get_mut(rank as usize) {
            *place = None;
        }
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        (0..).zip(&self.0).filter_map(|(rank, link)| link.as_ref().map(|_| rank))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Rank, &mut Link)> {
        (0..).zip(&mut self.0).filter_map(|(rank, link)| Some((rank, link.as_deref_mut()?)))
    }
}

impl Link {
    pub(super) fn new(peer: Option<Peer>, place: Rank, outward: Token, inward: Token) -> Link {
        Link {
            peer,
            names: Names { place, outward, inward },
            outgoing: [Outgoing::new(), Outgoing::new()],
            arrivals: [Arrivals::default(), Arrivals::default()],
            waiting: Waiting::default(),
            life: Life::default(),
            asks: Asks::default(),
            heaps: Heaps::default(),
            copying: Copying::default(),
            lists: Lists::default(),
        }
    }

    /// The provider has taken something for the peer.
    #[inline(always)]
    pub(super) fn has_room(&mut self) {
        if self.waiting.busy.is_some() {
            self.has_room_again();
        }
    }

    #[cold]
    #[inline(never)]
    fn has_room_again(&mut self) {
        if let Some(busy) = self.waiting.busy.take() {
            busy.span.record("outcome", "reached");
        }
    }

    pub(super) fn outgoing(&mut self, lane: Lane) -> &mut Outgoing {
        &mut self.outgoing[index(lane)]
    }

    pub(super) fn arrivals(&mut self, lane: Lane) -> &mut Arrivals {
        &mut self.arrivals[index(lane)]
    }

    /// The lane of the message to hand on next: replies first, as consuming one needs no room.
    pub(super) fn next(&self) -> Option<Lane> {
        [Lane::Reply, Lane::Request].into_iter().find(|lane| self.arrivals[index(*lane)].ready())
    }

    /// Whether the engine may be handed a request: its reply has room.
    pub(super) fn may_reply(&self) -> bool {
        self.outgoing[index(Lane::Reply)].has_room(PAYLOAD_MAX)
    }
}

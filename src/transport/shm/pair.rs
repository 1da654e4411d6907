//! Both directions between this process and one peer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{Event, HEAD_WORDS, Header, Inbox, Lane, OpError, Rank, SendError};
use vm::{
    Attention, Consumer, Corrupt, Duplex, FenceMode, Mapped, Producer, PushError, Pushed, SegmentError, Side,
    Words,
};

use super::control::{Control, NEAR_PAYLOAD_MAX, RING};
use crate::base::error::Error;
use crate::transport::peers::{Near, Peer, Peers};

const LAID_OUT: &str = "the control segment keeps exactly this layout's words";

/// Both directions between this process and a peer. Asker and answerer share a link, so that an answer can go
/// back where the question came from.
pub(super) struct Pair {
    rank: Rank,
    /// `None` where the peer was gone before it could be connected to: what it sent is heard all the same.
    peer: Option<Arc<Near>>,
    /// This process's own control segment.
    own: Control,
    /// This process's place in the control segment that its messages go to.
    place: Rank,
    /// The system has refused a spill area, and is not asked again.
    pub(super) is_spill_refused: bool,
    /// Our requests, and the replies to them.
    pub(super) asking: Duplex<Words>,
    /// The peer's requests, and our replies.
    pub(super) answering: Duplex<Words>,
    pub(super) state: Warmth,
    /// Messages since the rings were last turned cold.
    pub(super) streak: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warmth {
    Cold,
    Warm,
    Hot,
    /// It sent garbage; it is not listened to any more.
    Shunned,
}

/// The findings of polling one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message of this lane.
    Message(Lane),
    /// A request is there, and no room for its reply.
    Blocked,
    Nothing,
    /// Bytes that cannot be a message.
    Garbage,
}

impl Found {
    /// The engine's event for it, if it is anything to be told of.
    pub(super) fn event(self, peer: Rank) -> Option<Event> {
        match self {
            Found::Message(lane) => Some(Event::Message { peer, lane }),
            Found::Garbage => Some(Event::Garbled { peer }),
            Found::Blocked | Found::Nothing => None,
        }
    }
}

impl Pair {
    /// Puts the pair on the list of those to be polled.
    pub(super) fn warm_up(&mut self, rank: Rank, warm: &mut VecDeque<Rank>) {
        if self.state == Warmth::Cold {
            self.state = Warmth::Warm;
            warm.push_back(rank);
        }
    }

    /// The pair with `rank`, which is connected to if it has not been yet: that may take so long.
    pub(super) fn new(peers: &Peers, rank: Rank, timeout: Duration) -> Result<Box<Pair>, OpError> {
        let own = peers.own();
        let peer = match peers.get(rank, Some(timeout)) {
            Ok(Peer::Near(_)) => peers.near().get_shared(rank),
            // Somebody rang in the name of one that has no ring.
            Ok(Peer::Far(_)) => None,
            Err(Error::PeerLost { .. }) => None,
            // Somebody rang in the name of one that has not come.
            Err(Error::NoSuchPeer { .. }) => {
                return Err(OpError::Protocol { peer: rank, what: "no such peer" });
            }
            Err(error) => {
                tracing::warn!(peer = rank, %error, "cannot exchange messages with the peer");
                return Err(OpError::Protocol { peer: rank, what: "no connection for messages" });
            }
        };
        // Without a peer, what would go to it goes into memory of a control segment that nobody reads: our
        // own share of it, which only a message to oneself would use.
        let theirs = peer.as_ref().map_or(&own.control, |peer| &peer.control);
        let fence = peer.as_ref().map_or(FenceMode::Symmetric, |peer| peer.fence);
        let at = peer.as_ref().map_or(own.rank, |peer| peer.place);
        if let Err(error) = theirs.open_sender(at).and_then(|()| own.control.open_sender(rank)) {
            tracing::warn!(peer = rank, %error, "cannot exchange messages with the peer");
            return Err(OpError::Protocol { peer: rank, what: "no room for messages" });
        }
        let outward = |lane| Producer::new(theirs.ring(at, lane), RING, fence).expect(LAID_OUT);
        let inward = |lane| Consumer::new(own.control.ring(rank, lane), RING).expect(LAID_OUT);
        let asking = Duplex::new(Side::First, theirs.baton(at), outward(Lane::Request), inward(Lane::Reply));
        let answering =
            Duplex::new(Side::Second, own.control.baton(rank), outward(Lane::Reply), inward(Lane::Request));
        let (asking, answering) = (asking.expect(LAID_OUT), answering.expect(LAID_OUT));
        let alone = rank == own.rank;
        Ok(Box::new(Pair {
            rank,
            peer,
            own: own.control.clone(),
            place: at,
            is_spill_refused: false,
            asking: if alone { asking.with_oneself() } else { asking },
            answering: if alone { answering.with_oneself() } else { answering },
            state: Warmth::Cold,
            streak: 0,
        }))
    }

    /// Sends a message by one lane.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let Some(peer) = &self.peer else {
            return Err(SendError::Failed(OpError::PeerLost { peer: self.rank }));
        };
        let link = match lane {
            Lane::Request => &mut self.asking,
            Lane::Reply => &mut self.answering,
        };
        match link.push_in_baton(header, payload) {
            Some(Pushed { doorbell: false }) => Ok(()),
            Some(Pushed { doorbell: true }) => {
                peer.ring();
                Ok(())
            }
            None => {
                // Of a copy, so that the header need not be in memory on the other way.
                let header = *header;
                self.send_by_ring(lane, &header, payload)
            }
        }
    }

    #[inline(never)]
    fn send_by_ring(
        &mut self,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut pushed = self.outward(lane).push_in_ring(header, payload);
        if pushed == Err(PushError::NoSpill) && self.open_outward_spill(lane) {
            pushed = self.outward(lane).push_in_ring(header, payload);
        }
        let pushed = pushed.map_err(|error| not_sent(self.rank, error))?;
        if let Some(peer) = self.peer.as_ref().filter(|_| pushed.doorbell) {
            peer.ring();
        }
        Ok(())
    }

    /// Takes the next message, replies first: consuming them never needs room.
    pub(super) fn poll(&mut self, inbox: &mut Inbox) -> Result<Found, Corrupt> {
        if self.state == Warmth::Shunned {
            return Ok(Found::Nothing);
        }
        match self.take(Lane::Reply, inbox)? {
            Found::Nothing => self.take(Lane::Request, inbox),
            found => Ok(found),
        }
    }

    fn take(&mut self, lane: Lane, inbox: &mut Inbox) -> Result<Found, Corrupt> {
        let link = match lane {
            Lane::Reply => &mut self.asking,
            Lane::Request if !self.answering.ready() => {
                self.answering.note_idle();
                return Ok(Found::Nothing);
            }
            Lane::Request if !self.has_room_for_reply() => return Ok(Found::Blocked),
            Lane::Request => &mut self.answering,
        };
        let popped = match link.pop_held(&mut inbox.header, &mut inbox.payload) {
            Err(Corrupt::Spilled) if self.open_inward_spill(lane) => {
                self.inward_mut(lane).pop_held(&mut inbox.header, &mut inbox.payload)
            }
            popped => popped,
        };
        let Some(held) = popped? else { return Ok(Found::Nothing) };
        inbox.hold(held);
        self.streak += 1;
        Ok(Found::Message(lane))
    }

    /// Whether a reply of any length could be sent now. It may take the spill area to have that room.
    pub(super) fn has_room_for_reply(&mut self) -> bool {
        self.answering.room(NEAR_PAYLOAD_MAX)
            || (!self.answering.has_outward_spill()
                && self.open_outward_spill(Lane::Reply)
                && self.answering.room(NEAR_PAYLOAD_MAX))
    }

    /// Opens the spill area of the ring that messages of a lane go out by: whether that went.
    #[cold]
    fn open_outward_spill(&mut self, lane: Lane) -> bool {
        if self.is_spill_refused {
            return false;
        }
        let theirs = self.peer.as_ref().map_or(&self.own, |peer| &peer.control);
        match theirs.open_spill(self.place, lane) {
            Ok(words) => self.outward(lane).give_outward_spill(words).is_ok(),
            Err(error) => self.has_no_spill(&error),
        }
    }

    /// The same of the ring that they come in by. Without it a message that is there cannot be had, and the
    /// peer is cut off.
    #[cold]
    fn open_inward_spill(&mut self, lane: Lane) -> bool {
        match self.own.open_spill(self.rank, lane) {
            Ok(words) => self.inward_mut(lane).give_inward_spill(words).is_ok(),
            Err(error) => self.has_no_spill(&error),
        }
    }

    fn has_no_spill(&mut self, error: &SegmentError) -> bool {
        self.is_spill_refused = true;
        tracing::warn!(peer = self.rank, %error, "no room for long messages with the peer");
        false
    }

    /// The link that messages of a lane go out by.
    fn outward(&mut self, lane: Lane) -> &mut Duplex<Words> {
        match lane {
            Lane::Request => &mut self.asking,
            Lane::Reply => &mut self.answering,
        }
    }

    /// The link that messages of a lane come in by.
    fn inward_mut(&mut self, lane: Lane) -> &mut Duplex<Words> {
        match lane {
            Lane::Reply => &mut self.asking,
            Lane::Request => &mut self.answering,
        }
    }

    /// The link that messages of a lane come in by.
    fn inward(&self, lane: Lane) -> &Duplex<Words> {
        match lane {
            Lane::Reply => &self.asking,
            Lane::Request => &self.answering,
        }
    }

    /// Reads of the payload that was left in a lane's ring.
    pub(super) fn read_held(&self, lane: Lane, at: usize, into: &mut [u8]) -> bool {
        self.inward(lane).read_held(at, into)
    }

    /// Where bytes of it lie in this process, as [`Duplex::held_at`] says.
    pub(super) fn held_at(&self, lane: Lane, at: usize, len: usize) -> Option<Mapped<'_>> {
        self.inward(lane).held_at(at, len)
    }

    /// Gives the room of that back.
    pub(super) fn release(&mut self, lane: Lane) {
        self.inward_mut(lane).release();
    }

    /// Takes the next message if it is one without payload in a baton. `None` says nothing.
    #[inline(always)]
    pub(super) fn take_short(&mut self, inbox: &mut Inbox) -> Option<Lane> {
        let lane = if self.asking.pop_short(&mut inbox.header) {
            Lane::Reply
        } else if self.answering.room(NEAR_PAYLOAD_MAX) && self.answering.pop_short(&mut inbox.header) {
            Lane::Request
        } else {
            return None;
        };
        inbox.payload.clear();
        Some(lane)
    }

    /// Takes the peer's next request, if it begins like this and has no payload. Only while polls look here:
    /// who has been taken for one that seldom says something rings for each message.
    #[inline(always)]
    pub(super) fn take_like(
        &mut self,
        head: &[u64; HEAD_WORDS],
    ) -> Option<[u64; Header::WORDS - HEAD_WORDS]> {
        if self.state == Warmth::Hot { self.answering.pop_like(head) } else { None }
    }

    /// Whether a message waits.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        self.asking.ready() || self.answering.ready()
    }

    pub(super) fn set_attention(&mut self, attention: Attention) {
        self.asking.set_attention(attention);
        self.answering.set_attention(attention);
    }

    /// After everything has been taken out.
    pub(super) fn cool(&mut self) {
        self.asking.flush_credits();
        self.answering.flush_credits();
        if self.state == Warmth::Warm {
            self.state = Warmth::Cold;
        }
    }
}

/// The engine's event for a message that did not go.
#[cold]
fn not_sent(peer: Rank, error: PushError) -> SendError {
    let what = match error {
        // Where the system gives no spill area, the other area has room for each message in the end.
        PushError::Full | PushError::NoSpill => return SendError::Busy,
        PushError::TooLarge { .. } => "a message too long for its ring",
        PushError::Corrupt(_) => "a ring whose reader counts wrong",
    };
    SendError::Failed(OpError::Protocol { peer, what })
}

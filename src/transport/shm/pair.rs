//! Both directions between this process and one peer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::{Inbox, Lane, OpError, Rank};
use vm::{Attention, Consumer, Corrupt, FenceMode, Link, Producer, Side, Words};

use super::control::{PAYLOAD_MAX, RING};
use super::peers::{Peer, Peers};
use crate::error::Error;

const LAID_OUT: &str = "the control segment keeps exactly this layout's words";

/// Both directions between this process and a peer. Who asks and who answers share a link, so that an answer can go
/// back where the question came from.
pub(super) struct Pair {
    /// `None` where the peer was gone before it could be connected to: what it sent is heard all the same.
    pub(super) peer: Option<Arc<Peer>>,
    /// Our requests, and the replies to them.
    pub(super) asking: Link<Words>,
    /// The peer's requests, and our replies.
    pub(super) answering: Link<Words>,
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

/// What polling one sender found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message of this lane.
    Message(Lane),
    /// A request is there, and no room for its reply.
    Blocked,
    Nothing,
    /// What cannot be a message.
    Garbage,
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
            Ok(peer) => Some(Arc::clone(peer)),
            Err(Error::PeerLost { .. }) => None,
            Err(error) => {
                tracing::warn!(peer = rank, %error, "cannot exchange messages with the peer");
                return Err(OpError::Protocol { peer: rank, what: "no connection for messages" });
            }
        };
        // Without a peer, what would go to it goes into memory of a control segment that nobody reads: our own share
        // of it, which only a message to oneself would use.
        let theirs = peer.as_ref().map_or(&own.control, |peer| &peer.control);
        let fence = peer.as_ref().map_or(FenceMode::Symmetric, |peer| peer.fence);
        let outward = |lane| Producer::new(theirs.ring(own.rank, lane), RING, fence).expect(LAID_OUT);
        let inward = |lane| Consumer::new(own.control.ring(rank, lane), RING).expect(LAID_OUT);
        let asking =
            Link::new(Side::First, theirs.baton(own.rank), outward(Lane::Request), inward(Lane::Reply));
        let answering =
            Link::new(Side::Second, own.control.baton(rank), outward(Lane::Reply), inward(Lane::Request));
        let (asking, answering) = (asking.expect(LAID_OUT), answering.expect(LAID_OUT));
        let alone = rank == own.rank;
        Ok(Box::new(Pair {
            peer,
            asking: if alone { asking.with_oneself() } else { asking },
            answering: if alone { answering.with_oneself() } else { answering },
            state: Warmth::Cold,
            streak: 0,
        }))
    }

    /// Takes the next message, replies first: consuming them never needs room.
    #[inline(always)]
    pub(super) fn poll(&mut self, inbox: &mut Inbox) -> Result<Found, Corrupt> {
        if self.state == Warmth::Shunned {
            return Ok(Found::Nothing);
        }
        match self.take(Lane::Reply, inbox)? {
            Found::Nothing => self.take(Lane::Request, inbox),
            found => Ok(found),
        }
    }

    #[inline(always)]
    pub(super) fn take(&mut self, lane: Lane, inbox: &mut Inbox) -> Result<Found, Corrupt> {
        let link = match lane {
            Lane::Reply => &mut self.asking,
            Lane::Request if !self.answering.ready() => return Ok(Found::Nothing),
            Lane::Request if !self.answering.room(PAYLOAD_MAX) => return Ok(Found::Blocked),
            Lane::Request => &mut self.answering,
        };
        if !link.pop(&mut inbox.header, &mut inbox.payload)? {
            return Ok(Found::Nothing);
        }
        self.streak += 1;
        Ok(Found::Message(lane))
    }

    /// The lane that a message waits in.
    #[inline(always)]
    pub(super) fn waiting(&self) -> Option<Lane> {
        match () {
            () if self.asking.ready() => Some(Lane::Reply),
            () if self.answering.ready() => Some(Lane::Request),
            () => None,
        }
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

//! Endpoints by which peers' long puts come in, from memory that their callers have lent: *landings*.
//!
//! A caller that gives such a put up has the memory back at once: the endpoint that it leaves from is closed.
//! The network may still deliver what it had taken by then, however late. Bytes lie in the system's buffers
//! at both ends, and a process that stands still takes them when it goes on. No time is long enough to wait
//! for that. So these puts come in by an endpoint of their own at the target, of each peer another. The peer
//! asks for it, and when it has closed its own end, it asks the target to close this one, too. A closed
//! endpoint writes nothing, so that the answer says that nothing more can arrive. It comes by the pair's
//! ordinary connection, and waits behind nothing but messages.
//!
//! Copies that go through buffers need none of this: their parts end by themselves.

use std::time::Duration;

use engine::Rank;
use fabric::{AuxEndpointId, Description, Peer};

use super::endpoint::NetEndpoint;
use crate::base::limits::{LANDINGS, PINNED_LANDINGS};

/// How long a peer that is heard from may take to say that it has closed a landing.
const CLOSED_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 120 });

/// Heartbeats after which one that was refused is asked for again: by then others may have closed theirs.
pub(super) const ASK_AGAIN: u32 = 20;

/// The state of the landing at a peer.
#[derive(Debug, Default)]
pub(super) enum Landing {
    #[default]
    Nothing,
    /// The peer is to open one.
    Asked,
    /// Puts go there.
    Open(Peer),
    /// The peer is to close it, and was heard from for so long since.
    Closing(Duration),
    /// There is no room for one, for so many heartbeats more.
    Refused(u32),
}

impl Landing {
    /// The peer was heard from for so long. Returns whether it should have closed the landing by now.
    pub(super) fn is_overdue(&mut self, heard: Duration) -> bool {
        match self {
            Landing::Closing(waited) => {
                *waited += heard;
                *waited >= CLOSED_WITHIN
            }
            Landing::Refused(left) => {
                *left -= 1;
                if *left == 0 {
                    *self = Landing::Nothing;
                }
                false
            }
            Landing::Nothing | Landing::Asked | Landing::Open(_) => false,
        }
    }
}

/// The landings of this process, each for the peer of that rank.
#[derive(Default)]
pub(super) struct Landings {
    all: Vec<(Rank, AuxEndpointId)>,
    /// Nothing comes in by one that is not polled itself.
    polls_each: bool,
}

impl Landings {
    /// Whether they want to be polled, as if something were under way.
    #[inline(always)]
    pub(super) fn are_polled(&self) -> bool {
        self.polls_each
    }

    /// Lets the provider make progress there. No operation ends, as none is started from one.
    pub(super) fn poll(&self, endpoint: &mut NetEndpoint) {
        for (_, landing) in &self.all {
            let _ = endpoint.poll_aux_endpoint(*landing);
        }
    }

    /// Opens one for a peer, if there may be one more.
    pub(super) fn open(&mut self, rank: Rank, endpoint: &mut NetEndpoint) -> Option<AuxEndpointId> {
        let Description { mr_mode, provider, .. } = endpoint.description();
        let most = if mr_mode.allocated { PINNED_LANDINGS } else { LANDINGS };
        // Memory that is registered with one endpoint is not reached by another. And `net`, which libfabric
        // 1.17 alone has, ends the process some time after an endpoint was closed to which bytes were coming
        // in.
        if mr_mode.endpoint || provider == "net" || self.all.len() >= most {
            return None;
        }
        let opened = endpoint.open_aux_endpoint()?;
        self.all.push((rank, opened));
        self.note_polls(endpoint);
        Some(opened)
    }

    /// Closes a peer's, if there is one. `false`: the provider does not close it, so that bytes may still
    /// come in.
    pub(super) fn close(&mut self, rank: Rank, endpoint: &mut NetEndpoint) -> bool {
        let Some(at) = self.all.iter().position(|(of, _)| *of == rank) else { return true };
        let (_, landing) = self.all.swap_remove(at);
        let is_closed = endpoint.close_aux_endpoint(landing, false);
        self.note_polls(endpoint);
        is_closed
    }

    fn note_polls(&mut self, endpoint: &NetEndpoint) {
        // These make progress at all endpoints of a domain when one of them is polled.
        let at_once = matches!(&*endpoint.description().provider, "tcp" | "sockets");
        self.polls_each = !at_once && !self.all.is_empty();
    }
}

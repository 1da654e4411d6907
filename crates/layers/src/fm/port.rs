//! This process's end of the network, as the layer uses it: credits, and who is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use standpipe::{Error, HandlerId, Node};

use super::arrival::{Arrival, Arrived};
use super::credits::window;
use super::notices::Notice;
use super::shared::{Peer, Shared};
use super::wire;

/// Steps in which what a lost node had sent is taken.
const LAST_STEPS: u32 = 100_000;

/// Whether no message will get there: a node that computes for long is only slow.
#[cold]
pub(crate) fn ends(error: &Error) -> bool {
    !matches!(error, Error::Timeout { .. } | Error::WaitTimeout { .. } | Error::NotConnected { .. })
}

#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) node: Node,
    pub(crate) shared: Arc<Shared>,
    /// The Active Message handler that packets are for.
    pub(crate) packets: HandlerId,
}

impl Port {
    pub(crate) fn nodes(&self) -> u32 {
        self.shared.peers.len() as u32
    }

    /// Packets that may be under way from one process to another.
    pub(crate) fn window(&self) -> u32 {
        window(self.nodes())
    }

    /// Gives a node its credits back, if enough have come together.
    #[inline]
    pub(crate) fn return_credits(&self, to: u32) {
        let peer = self.shared.peer(to);
        if !peer.credits.are_due() || peer.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let owed = peer.credits.take_owed();
        if owed == 0 {
            // Another thread has just given them back.
            return;
        }
        match self.node.try_request(to, self.packets, wire::credits_args(owed)) {
            Ok(true) => {}
            Err(error) if ends(&error) => self.lose(to),
            // The lane is full.
            Ok(false) | Err(_) => {
                peer.credits.still_owed(owed);
                self.shared.add_credits_due(to);
            }
        }
    }

    /// Gives those nodes their credits back to which a message with them is due.
    #[inline]
    pub(crate) fn return_credits_due(&self) {
        self.shared.take_credits_due().for_each(|node| self.return_credits(node));
    }

    #[cold]
    pub(crate) fn return_all_credits(&self) {
        (0..self.nodes()).for_each(|node| self.return_credits(node));
    }

    /// Throws away what waits to be extracted.
    pub(crate) fn throw_away_queued(&self) {
        while let Some(arrival) = self.shared.pop_shared() {
            if !matches!(arrival.what, Arrived::Lost) {
                self.shared.consumed(arrival.from);
            }
        }
    }

    /// Notes which nodes are lost.
    #[cold]
    pub(crate) fn look_for_lost(&self) {
        let lost = self.node.lost_peers();
        lost.into_iter().filter(|node| *node < self.nodes()).for_each(|node| self.lose(node));
    }

    /// Notes that a node is lost. What it has sent is taken first.
    #[cold]
    pub(crate) fn lose(&self, node: u32) {
        let peer = self.shared.peer(node);
        if peer.is_lost.load(Ordering::Relaxed) {
            return;
        }
        let _ = (0..LAST_STEPS).find(|_| !self.node.progress());
        if peer.is_lost.swap(true, Ordering::Relaxed) || self.shared.is_closing.load(Ordering::Relaxed) {
            return;
        }
        self.shared.push(Arrival { from: node, what: Arrived::Lost });
        self.shared.notices.add(Notice::Lost { node });
    }

    /// Tells receivers of messages that were given up, where there is a credit for it.
    #[cold]
    pub(crate) fn tell_of_cuts(&self) {
        for (rank, peer) in self.shared.peers.iter().enumerate() {
            if !peer.outgoing.begin_to_tell() {
                continue;
            }
            let is_told = self.tell_of_cut(rank as u32, peer);
            if is_told {
                self.shared.cuts_due.fetch_sub(1, Ordering::Relaxed);
            }
            peer.outgoing.told(is_told);
        }
    }

    /// Whether a node has been told that a message was given up, or is lost.
    fn tell_of_cut(&self, rank: u32, peer: &Peer) -> bool {
        let is_lost = peer.is_lost.load(Ordering::Relaxed);
        if !is_lost && !peer.credits.take(1) {
            return false;
        }
        let has_left = match self.node.try_request(rank, self.packets, wire::cut_args()) {
            Ok(has_left) => has_left,
            Err(error) => ends(&error),
        };
        if !is_lost && !has_left {
            peer.credits.untake(1);
        }
        is_lost || has_left
    }
}

//! Peers that are gone.

use engine::{Event, OpError, Rank};

use super::asked::Wanted;
use super::envelope::Kind;
use super::token::{Party, Token};
use super::transport::OfiTransport;

impl OfiTransport {
    /// The peers that this transport has found to be gone since the last call, for [`engine::Node::lose`].
    pub(crate) fn take_lost(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.lost)
    }

    /// A peer is found to be gone.
    #[cold]
    pub(super) fn lose(&mut self, rank: Rank) {
        if self.part_with(rank) {
            self.lost.push(rank);
        }
    }

    /// The network itself is gone.
    #[cold]
    pub(super) fn lose_all(&mut self) {
        let all: Vec<Rank> = self.links.ranks().filter(|rank| *rank != self.members.own.rank).collect();
        all.into_iter().for_each(|rank| self.lose(rank));
    }

    /// A peer sends what no member sends: it is not listened to any more.
    #[cold]
    pub(super) fn garble(&mut self, rank: Rank) {
        self.say_bye(rank);
        if self.part_with(rank) {
            self.links.remove(rank);
            self.events.push_back(Event::Garbled { peer: rank });
        }
    }

    /// The engine has lost a peer. If that lives and can be reached now, it is told.
    #[cold]
    pub(super) fn give_up(&mut self, rank: Rank) {
        // What it had sent before is still heard.
        self.progress_while(|_| true);
        if !self.gone.contains(&rank) {
            self.say_bye(rank);
        }
        self.part_with(rank);
    }

    /// Tells a peer that this process leaves, if they have ever talked: nothing is to be sent to it after that.
    pub(crate) fn take_leave(&mut self, rank: Rank) {
        if self.links.has(rank) && !self.gone.contains(&rank) {
            self.say_bye(rank);
        }
    }

    pub(super) fn say_bye(&mut self, rank: Rank) {
        if self.post(rank, Kind::Bye, 0, [0; 7], &[]).is_err() {
            tracing::debug!(peer = rank, "the peer is not told that it was given up");
        }
    }

    /// Ends everything with a peer but the messages that have come. Returns whether there was anything to end.
    fn part_with(&mut self, rank: Rank) -> bool {
        if !self.gone.insert(rank) {
            return false;
        }
        if let Some(link) = self.links.get_mut(rank) {
            link.asks.clear();
            link.unsent.drain(..).for_each(|unsent| self.port.buffers.put_back(unsent.buffer));
        }
        // Whoever lists it also removes it.
        self.list(rank);
        let lost = OpError::PeerLost { peer: rank };
        let events = &mut self.events;
        self.asked.retain(|_, asked| {
            if let Wanted::Atomic { op, .. } = asked.wanted
                && asked.peer == rank
            {
                events.push_back(Event::Completed { op, result: Err(lost) });
            }
            asked.peer != rank
        });
        self.lose_copies(rank);
        self.take_heap_back(rank);
        true
    }

    /// The token that a member's messages to this process bear.
    pub(super) fn expects(&self, rank: Rank) -> Option<Token> {
        let incarnation = *self.members.incarnations.get(rank as usize)?;
        Some(Token::new(&self.members.secret, Party { rank, incarnation }, self.members.own))
    }
}

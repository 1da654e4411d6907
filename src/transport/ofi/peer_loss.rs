//! Peers that are gone.

use std::time::{Duration, Instant};

use engine::{Event, Header, OpError, Rank};

use super::buffers::{Purpose, Size};
use super::endpoint::Kept;
use super::frame::{Kind, Letter};
use super::gone::{Gone, Parted};
use super::pending_requests::Wanted;
use super::token::{TOKEN_BYTES, Token};
use super::transport::OfiTransport;
use crate::transport::contract::Party;

/// How often a peer that is gone here, and still talks, is told so.
const REMINDER: Duration = Duration::from_millis(200);

impl OfiTransport {
    /// A peer is found to be gone.
    #[cold]
    pub(super) fn lose(&mut self, rank: Rank) {
        if self.part_with(rank) {
            self.gone.tell_of(rank);
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
        // Messages that it had sent before are still heard.
        self.progress_while(|_| true);
        if !self.gone.has(rank) {
            self.say_bye(rank);
        }
        self.part_with(rank);
    }

    pub(super) fn say_bye(&mut self, rank: Rank) {
        if self.say(rank, Kind::Bye, [0; Header::WORDS]).is_err() {
            tracing::debug!(peer = rank, "the peer is not told that it was given up");
        }
    }

    /// A peer that is gone here still talks. It is told, now and then, that it was given up, unless that is
    /// what it says itself. Whether it was that peer.
    #[cold]
    pub(super) fn remind(&mut self, rank: Rank, token: &[u8; TOKEN_BYTES], says_bye: bool) -> bool {
        let Some(Gone { parted: Some(parted), has_left }) = self.gone.get_mut(rank) else { return false };
        if !parted.names.inward.matches(token) {
            return false;
        }
        *has_left |= says_bye;
        let (now, Some(peer)) = (Instant::now(), parted.peer) else { return true };
        if now < parted.remind_at || *has_left {
            return true;
        }
        parted.remind_at = now + REMINDER;
        let head = parted.names.frame_head().encode();
        let bye = Letter { kind: Kind::Bye, len: 0, sequence: 0, words: [0; Header::WORDS] };
        let frame = [&head[..], &bye.encode()].concat();
        // Without memory, or room, at its next word.
        let Some(buffer) = self.endpoint.take(Size::Frame) else { return true };
        self.endpoint.buffers.put(&buffer, 0, &frame);
        match self.endpoint.send(peer, (buffer, frame.len()), Purpose::Send { rank, answers: 0 }) {
            Ok(()) => self.sending += 1,
            Err(Kept { buffer, .. }) => self.endpoint.buffers.put_back(buffer),
        }
        true
    }

    /// Ends everything with a peer but the messages that have come. Returns whether there was anything to
    /// end.
    fn part_with(&mut self, rank: Rank) -> bool {
        if self.gone.has(rank) {
            return false;
        }
        let parted = self.links.get(rank).map(|link| Parted {
            peer: link.peer,
            names: link.names.clone(),
            remind_at: Instant::now(),
        });
        self.gone.enter(rank, parted);
        if let Some(link) = self.links.get_mut(rank) {
            // A small copy looks at this alone.
            link.peer = None;
            link.asks.queue.clear();
            link.waiting.unsent.drain(..).for_each(|unsent| self.endpoint.buffers.put_back(unsent.buffer));
        }
        // The caller that lists it also removes it.
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
        self.close_landing(rank);
        self.forget_landing(rank);
        true
    }

    /// The token that a member's messages to this process bear.
    pub(super) fn expects(&self, rank: Rank) -> Option<Token> {
        let incarnation = *self.members.incarnations.get(rank as usize)?;
        Some(Token::new(&self.members.secret, Party { rank, incarnation }, self.members.own))
    }
}

//! The provider's reports, and messages on their way in.

use engine::{Event, Inbox, Lane, Rank};

use super::buffers::{Buffer, PAYLOAD_MAX, Purpose};
use super::endpoint::Ended;
use super::envelope::{Envelope, HEAD_BYTES, Kind};
use super::lane::Foul;
use super::transport::OfiTransport;

impl OfiTransport {
    /// An operation has ended, of whatever kind.
    #[inline(never)]
    pub(super) fn on_ended(&mut self, ended: Ended) {
        let (purpose, buffer, result) = match ended {
            Ended::Buffer { purpose, buffer, result } => (purpose, buffer, result),
            Ended::Small(slot, true) => {
                let told = self.on_small(slot);
                return self.events.extend(told.map(|op| Event::Completed { op, result: Ok(0) }));
            }
            Ended::Small(slot, false) => return self.on_small_failed(slot),
            Ended::Nameless => return,
        };
        match (purpose, result) {
            (Purpose::Receive, result) => {
                match result {
                    Ok(len) => self.on_arrival(&buffer, len),
                    // Longer than any message of ours.
                    Err(()) => self.strangers += 1,
                }
                self.endpoint.received(buffer);
            }
            (Purpose::Send { rank, answers }, result) => {
                self.endpoint.buffers.put_back(buffer);
                assert!(self.sending > 0, "a message leaves once");
                self.sending -= 1;
                if let Some(link) = self.links.get_mut(rank) {
                    assert!(!answers || link.asks.unanswered > 0, "an answer leaves once");
                    link.asks.unanswered -= usize::from(answers);
                }
                if result.is_err() {
                    self.lose(rank);
                }
            }
            (Purpose::Part(part), result) => self.on_part(part, Some(buffer), result.is_ok()),
        }
    }

    /// Takes a message in. Nothing of it is believed before its token is.
    pub(super) fn on_arrival(&mut self, buffer: &Buffer, len: usize) {
        let mut head = [0; HEAD_BYTES];
        self.endpoint.buffers.get(buffer, 0, &mut head[..len.min(HEAD_BYTES)]);
        let envelope = Envelope::decode(&head, len, PAYLOAD_MAX);
        let of_one_gone = envelope.as_ref().is_some_and(|envelope| {
            self.gone.has(envelope.sender) && self.remind(envelope.sender, &envelope.token, envelope.kind)
        });
        if of_one_gone {
            return;
        }
        let Some(envelope) = envelope.filter(|envelope| self.is_members(envelope)) else {
            self.strangers += 1;
            return;
        };
        let rank = envelope.sender;
        if self.gone.has(rank) {
            return;
        }
        if self.admit(&envelope, buffer, len).is_err() {
            tracing::warn!(peer = rank, "the peer breaks the rules of its messages; it is cut off");
            self.garble(rank);
        }
    }

    /// Whether a message bears the token of the member that it says it is from.
    fn is_members(&mut self, envelope: &Envelope) -> bool {
        let rank = envelope.sender;
        if rank == self.members.own.rank || self.gone.has(rank) {
            return false;
        }
        if let Some(link) = self.links.get(rank) {
            return link.names.inward.matches(&envelope.token);
        }
        self.expects(rank).is_some_and(|token| token.matches(&envelope.token)) && self.link(rank).is_ok()
    }

    fn admit(&mut self, envelope: &Envelope, buffer: &Buffer, len: usize) -> Result<(), Foul> {
        let Envelope { sender: rank, kind, credits, sequence, words, .. } = *envelope;
        let Some(link) = self.links.get_mut(rank) else { return Ok(()) };
        (link.life.heard, link.copying.suspect) = (true, false);
        if std::mem::take(&mut link.waiting.held) {
            self.flush(rank);
        }
        let Some(link) = self.links.get_mut(rank) else { return Ok(()) };
        for (lane, credits) in link.outgoing.iter_mut().zip(credits) {
            lane.give(credits)?;
        }
        match kind {
            Kind::Engine(lane) => {
                let payload = |into: &mut [u8]| self.endpoint.buffers.get(buffer, HEAD_BYTES, into);
                link.arrivals(lane).store(sequence, words, len - HEAD_BYTES, payload)?;
                self.list(rank);
            }
            Kind::Credits => {}
            Kind::Ask => self.on_ask(rank, &words)?,
            Kind::Answer => self.on_answer(rank, &words)?,
            Kind::Bye => {
                self.lose(rank);
                if let Some(gone) = self.gone.get_mut(rank) {
                    gone.has_left = true;
                }
            }
        }
        Ok(())
    }

    /// The next message that the engine may have, from one peer after the other.
    pub(super) fn hand_on(&mut self, inbox: &mut Inbox) -> Option<Event> {
        for _ in 0..self.ready.len() {
            let rank = self.ready.pop_front()?;
            if let Some(lane) = self.hand_on_from(rank, inbox) {
                self.run += 1;
                return Some(Event::Message { peer: rank, lane });
            }
        }
        None
    }

    fn hand_on_from(&mut self, rank: Rank, inbox: &mut Inbox) -> Option<Lane> {
        let (itself, gone) = (rank == self.members.own.rank, self.gone.has(rank));
        let link = self.links.get_mut(rank)?;
        let Some(lane) = link.next() else {
            link.lists.listed = false;
            if gone {
                self.links.remove(rank);
            }
            return None;
        };
        self.ready.push_back(rank);
        // To a peer that is gone a reply goes nowhere, and needs no room.
        if lane == Lane::Request && !gone && !(link.may_reply() && (itself || self.endpoint.has_message())) {
            return None;
        }
        link.arrivals(lane).take(inbox);
        if itself {
            let paid = link.arrivals(lane).pay();
            link.outgoing(lane).give(paid).expect("no more is paid back than was taken");
        } else if link.arrivals(lane).owes_much() {
            self.owe(rank);
        }
        Some(lane)
    }
}

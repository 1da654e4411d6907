//! The provider's reports, and messages on their way in.

use engine::{Event, Inbox, Lane, Rank};

use super::buffers::{Buffer, PAYLOAD_MAX, Purpose};
use super::endpoint::Ended;
use super::frame::{FRAME_HEAD_BYTES, FrameHead, Kind, LETTER_BYTES, Letter};
use super::lane::Foul;
use super::transport::OfiTransport;

/// The messages of a frame, from one to the next.
struct Letters {
    at: usize,
    len: usize,
}

impl Letters {
    /// Of a frame of so many bytes.
    fn of(len: usize) -> Letters {
        Letters { at: FRAME_HEAD_BYTES, len }
    }

    /// The next message, and where its payload lies in the frame; `None` at the frame's end, and `Foul` where
    /// what comes is no message.
    fn next(&mut self, transport: &OfiTransport, buffer: &Buffer) -> Option<Result<(Letter, usize), Foul>> {
        let (at, left) = (self.at, self.len.checked_sub(self.at).filter(|left| *left > 0)?);
        self.at = self.len;
        if left < LETTER_BYTES {
            return Some(Err(Foul));
        }
        let mut bytes = [0; LETTER_BYTES];
        transport.endpoint.buffers.get(buffer, at, &mut bytes);
        let Some(letter) = Letter::decode(&bytes, left, PAYLOAD_MAX) else { return Some(Err(Foul)) };
        self.at = at + Letter::bytes(letter.len);
        Some(Ok((letter, at + LETTER_BYTES)))
    }
}

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
                    let asks = &mut link.asks;
                    asks.unanswered =
                        asks.unanswered.checked_sub(answers.into()).expect("an answer leaves once");
                    // A frame that reminds one that is gone is not counted there.
                    link.waiting.leaving = link.waiting.leaving.saturating_sub(1);
                }
                if result.is_err() {
                    self.lose(rank);
                }
            }
            (Purpose::Part(part), result) => self.on_part(part, Some(buffer), result.is_ok()),
        }
    }

    /// Takes a frame in. Nothing of it is believed before its token is.
    pub(super) fn on_arrival(&mut self, buffer: &Buffer, len: usize) {
        let mut head = [0; FRAME_HEAD_BYTES];
        self.endpoint.buffers.get(buffer, 0, &mut head[..len.min(FRAME_HEAD_BYTES)]);
        let head = FrameHead::decode(&head, len);
        let of_one_gone = head.as_ref().is_some_and(|head| {
            self.gone.has(head.sender) && {
                let mut letters = Letters::of(len);
                let says_bye = std::iter::from_fn(|| letters.next(self, buffer))
                    .any(|letter| letter.is_ok_and(|(letter, _)| letter.kind == Kind::Bye));
                self.remind(head.sender, &head.token, says_bye)
            }
        });
        if of_one_gone {
            return;
        }
        let Some(head) = head.filter(|head| self.is_members(head)) else {
            self.strangers += 1;
            return;
        };
        if self.admit(&head, buffer, len).is_err() {
            tracing::warn!(peer = head.sender, "the peer breaks the rules of its messages; it is cut off");
            self.garble(head.sender);
        }
    }

    /// Whether a frame bears the token of the member that it says it is from.
    fn is_members(&mut self, head: &FrameHead) -> bool {
        let rank = head.sender;
        if rank == self.members.own.rank || self.gone.has(rank) {
            return false;
        }
        if let Some(link) = self.links.get(rank) {
            return link.names.inward.matches(&head.token);
        }
        self.expects(rank).is_some_and(|token| token.matches(&head.token)) && self.link(rank).is_ok()
    }

    fn admit(&mut self, head: &FrameHead, buffer: &Buffer, len: usize) -> Result<(), Foul> {
        let rank = head.sender;
        let Some(link) = self.links.get_mut(rank) else { return Ok(()) };
        (link.life.heard, link.copying.suspect) = (true, false);
        for (lane, credits) in link.outgoing.iter_mut().zip(head.credits) {
            lane.give(credits)?;
        }
        if std::mem::take(&mut link.waiting.held) {
            self.flush(rank);
        }
        if self.gone.has(rank) {
            return Ok(());
        }
        let mut letters = Letters::of(len);
        while let Some(letter) = letters.next(self, buffer) {
            let (letter, payload_at) = letter?;
            self.open_letter(rank, &letter, buffer, payload_at)?;
            // A peer that a message has ended is not heard further.
            if self.gone.has(rank) {
                break;
            }
        }
        Ok(())
    }

    /// Takes one message of a frame, whose payload lies there in the frame.
    fn open_letter(
        &mut self,
        rank: Rank,
        letter: &Letter,
        buffer: &Buffer,
        payload_at: usize,
    ) -> Result<(), Foul> {
        let Letter { kind, len, sequence, words } = *letter;
        match kind {
            Kind::Engine(lane) => {
                let Some(link) = self.links.get_mut(rank) else { return Ok(()) };
                let payload = |into: &mut [u8]| self.endpoint.buffers.get(buffer, payload_at, into);
                link.arrivals(lane).store(sequence, words, len, payload)?;
                self.list(rank);
            }
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
        if lane == Lane::Request && !gone && !(link.may_reply() && (itself || self.endpoint.has_frame())) {
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

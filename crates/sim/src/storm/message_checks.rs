//! Active Messages: each is handled once, with its payload, in the order of its lane.

use engine::{AmBody, AmSend, Delivery, Lane, Rank, SendError};

use super::active_messages::InFlightMessage;
use super::run::{Health, Run};
use super::shadow::{Found, Since, WORD, Words};
use crate::space;

/// The payload of a message, in the first of these bytes.
fn payload(bytes: &mut Vec<u8>, message: u64, len: usize) -> &[u8] {
    let bytes = space::first(bytes, len as u64);
    let mut next = (message as u8).wrapping_mul(31);
    for byte in &mut *bytes {
        *byte = next;
        next = next.wrapping_add(1);
    }
    bytes
}

impl Run {
    /// Sends a request.
    pub(super) fn send(&mut self, rank: Rank, peer: Rank) {
        // One that is refused may be tried again by and by.
        let _ = self.post(rank, peer, Lane::Request);
    }

    /// Tells somebody what `rank` has just heard: news should travel by every way that there is.
    pub(super) fn gossip(&mut self, rank: Rank) {
        if !self.is(rank, Health::Alive) {
            return;
        }
        let peer = self.dice.below(u64::from(self.cluster.size())) as Rank;
        match self.dice.below(2) {
            0 if peer != rank => self.send(rank, peer),
            _ => self.put_news(rank),
        }
    }

    fn post(&mut self, from: Rank, to: Rank, lane: Lane) -> Result<(), SendError> {
        use engine::Transport;
        let most = self.cluster.node(from).transport().payload_max() as u64;
        let len = if self.dice.once_in(2) { 0 } else { self.dice.small(most) as usize };
        let known = self.knowledge.of(from);
        let incarnations = self.incarnations(from, to);
        let number =
            self.messages.write(InFlightMessage { from, to, incarnations, lane, known, len, landed: None });
        let bytes = payload(&mut self.bytes, number, len);
        let body = if len == 0 { AmBody::Short } else { AmBody::Medium(bytes) };
        let message = AmSend { peer: to, lane, handler: 0, args: [number, 0, 0, 0], body };
        let sent = self.cluster.node(from).send_am(&message);
        if sent.is_err() {
            self.messages.remove(number);
        }
        sent
    }

    /// The handler.
    pub(super) fn deliver(&mut self, rank: Rank, delivery: Delivery) -> Result<(), String> {
        let number = self.cluster.inbox().args()[0];
        let Some(message) = self.messages.by_number.remove(&number) else {
            return Err(format!(
                "rank {rank} handles message {number} twice, or nobody sent it: {delivery:?}"
            ));
        };
        if (message.from, message.to, message.lane) != (delivery.peer, rank, delivery.lane) {
            return Err(format!("rank {rank} is handed {message:?} by {delivery:?}"));
        }
        let (to, from) = self.incarnations(rank, message.from);
        if message.incarnations != (from, to) {
            return Err(format!("rank {rank}, process {to}, handles {message:?} and has met process {from}"));
        }
        self.operations += 1;
        if let Some(owner) = self.knowledge.learn(rank, &message.known, self.cluster.started()) {
            self.crews[rank as usize].curious = Some(owner);
            self.gossip(rank);
        }
        match &message.landed {
            Some((words, below)) => self.judge_landed(rank, &message, words, *below)?,
            None => {
                if self.cluster.inbox().payload != payload(&mut self.bytes, number, message.len) {
                    return Err(format!("the payload of message {number} is another: {message:?}"));
                }
                let last = self.messages.last.entry((message.from, rank, message.lane)).or_default();
                if std::mem::replace(last, number) > number {
                    return Err(format!("message {number} was overtaken: {message:?}"));
                }
            }
        }
        if message.lane == Lane::Request && !self.dice.once_in(3) {
            let replied = self.post(rank, message.from, Lane::Reply);
            let lost = matches!(replied, Err(SendError::Failed(_))) && self.is_apart(rank, message.from);
            if replied.is_err() && !lost {
                return Err(format!("rank {rank} cannot reply to rank {}: {replied:?}", message.from));
            }
        }
        Ok(())
    }

    /// What a long message announces lies in place.
    fn judge_landed(
        &mut self,
        rank: Rank,
        message: &InFlightMessage,
        words: &[Words],
        below: u32,
    ) -> Result<(), String> {
        let known = message.known.as_ref().map_or(0, |known| known[rank as usize]);
        let since = Since { known, step: u64::MAX };
        for words in words.iter().flat_map(|words| self.shadow.stretches(words)) {
            let bytes = space::first(&mut self.bytes, u64::from(words.count) * WORD);
            // A stretch lies in one page, which may be unmapped.
            if self.cluster.peek(rank, self.shadow.place(words.first), bytes).is_ok() {
                let incarnation = self.cluster.incarnation(rank);
                let found = Found { rank, incarnation, first: words.first, bytes };
                let floors = vec![below; words.count as usize];
                self.shadow.judge(found, &floors, Some(since), &mut |_| {})?;
            }
        }
        Ok(())
    }

    /// At the end, what was sent has been handled.
    pub(super) fn end_mail(&self) -> Result<(), String> {
        let current = |message: &InFlightMessage| {
            let InFlightMessage { from, to, .. } = *message;
            message.incarnations == (self.cluster.incarnation(from), self.cluster.incarnation(to))
        };
        let open = |message: &&InFlightMessage| current(message) && !self.is_cut(message.from, message.to);
        match self.messages.by_number.values().find(open) {
            Some(message) => Err(format!("nobody ever handled {message:?}")),
            None => Ok(()),
        }
    }
}

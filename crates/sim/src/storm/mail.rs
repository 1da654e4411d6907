//! Active Messages: each is handled once, with its payload, in the order of its lane.

use engine::{AmBody, AmSend, Delivery, Lane, Rank, SendError};

use super::letters::Letter;
use super::run::{Health, Run};
use super::shadow::{Found, Since, WORD, Words};
use crate::space;

/// The payload of a letter, in the first of these bytes.
fn payload(bytes: &mut Vec<u8>, letter: u64, len: usize) -> &[u8] {
    let bytes = space::first(bytes, len as u64);
    let mut next = (letter as u8).wrapping_mul(31);
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
        let letter = self.mail.write(Letter { from, to, incarnations, lane, known, len, landed: None });
        let bytes = payload(&mut self.bytes, letter, len);
        let body = if len == 0 { AmBody::Short } else { AmBody::Medium(bytes) };
        let message = AmSend { peer: to, lane, handler: 0, args: [letter, 0, 0, 0], body };
        let sent = self.cluster.node(from).send_am(&message);
        if sent.is_err() {
            self.mail.tear_up(letter);
        }
        sent
    }

    /// The handler.
    pub(super) fn deliver(&mut self, rank: Rank, delivery: Delivery) -> Result<(), String> {
        let number = self.cluster.inbox().args()[0];
        let Some(letter) = self.mail.letters.remove(&number) else {
            return Err(format!(
                "rank {rank} handles message {number} twice, or nobody sent it: {delivery:?}"
            ));
        };
        if (letter.from, letter.to, letter.lane) != (delivery.peer, rank, delivery.lane) {
            return Err(format!("rank {rank} is handed {letter:?} by {delivery:?}"));
        }
        let (to, from) = self.incarnations(rank, letter.from);
        if letter.incarnations != (from, to) {
            return Err(format!("rank {rank}, process {to}, handles {letter:?} and has met process {from}"));
        }
        self.operations += 1;
        if let Some(owner) = self.knowledge.learn(rank, &letter.known, self.cluster.started()) {
            self.crews[rank as usize].curious = Some(owner);
            self.gossip(rank);
        }
        match &letter.landed {
            Some((words, below)) => self.judge_landed(rank, &letter, words, *below)?,
            None => {
                if self.cluster.inbox().payload != payload(&mut self.bytes, number, letter.len) {
                    return Err(format!("the payload of message {number} is another: {letter:?}"));
                }
                let last = self.mail.last.entry((letter.from, rank, letter.lane)).or_default();
                if std::mem::replace(last, number) > number {
                    return Err(format!("message {number} was overtaken: {letter:?}"));
                }
            }
        }
        if letter.lane == Lane::Request && !self.dice.once_in(3) {
            let replied = self.post(rank, letter.from, Lane::Reply);
            let lost = matches!(replied, Err(SendError::Failed(_))) && self.is_apart(rank, letter.from);
            if replied.is_err() && !lost {
                return Err(format!("rank {rank} cannot reply to rank {}: {replied:?}", letter.from));
            }
        }
        Ok(())
    }

    /// What a long message announces lies in place.
    fn judge_landed(
        &mut self,
        rank: Rank,
        letter: &Letter,
        words: &[Words],
        below: u32,
    ) -> Result<(), String> {
        let known = letter.known.as_ref().map_or(0, |known| known[rank as usize]);
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
        let current = |letter: &Letter| {
            let Letter { from, to, .. } = *letter;
            letter.incarnations == (self.cluster.incarnation(from), self.cluster.incarnation(to))
        };
        let open = |letter: &&Letter| current(letter) && !self.is_cut(letter.from, letter.to);
        match self.mail.letters.values().find(open) {
            Some(letter) => Err(format!("nobody ever handled {letter:?}")),
            None => Ok(()),
        }
    }
}

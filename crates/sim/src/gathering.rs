//! Messages that leave later than they were sent, on a machine that gathers.

use engine::{Event as Told, Header, Lane, Nanos, Rank, SendError};

use crate::outbox::Frame;
use crate::world::World;

impl World {
    /// Sends a message. It leaves at once, or gathers with others to that rank.
    pub(crate) fn hand_over(
        &mut self,
        from: Rank,
        to: Rank,
        lane: Lane,
        header: &[u64; Header::WORDS],
        payload: &[u8],
    ) -> Result<(), SendError> {
        if !self.costs.gathers || from == to {
            return self.send(from, to, lane, header, payload);
        }
        let place = self.take_room(from, to, lane, payload.len())?;
        let message = self.new_message((from, to), (lane, place), Nanos::MAX, header, payload);
        self.gather(message, (from, to), payload.len() as u64);
        Ok(())
    }

    /// Adds a message to its frame, which leaves now if nothing is on its way out there, or if it is full.
    fn gather(&mut self, message: u32, (from, to): (Rank, Rank), bytes: u64) {
        // A free processor polls all the time.
        let polls_since = (self.process(from).cpu < self.now).then_some(self.now);
        self.spend(from, self.costs.copy_ns(bytes));
        if self.process(from).outbox.is_full(to, bytes) {
            self.send_frame(from, to);
        }
        let outbox = &mut self.process_mut(from).outbox;
        let waits = outbox.is_leaving(to, polls_since);
        outbox.add(to, message, bytes);
        if !waits || outbox.is_full(to, 0) {
            self.send_frame(from, to);
        }
    }

    /// Sends the frame for a peer, if one gathers.
    pub(crate) fn send_frame(&mut self, from: Rank, to: Rank) {
        if let Some(frame) = self.process_mut(from).outbox.take(to) {
            self.send_together(from, &frame);
        }
    }

    /// `rank` was polled, and told this. It sends its frames, unless it had that already and need not ask the
    /// network.
    #[inline]
    pub(crate) fn after_poll(&mut self, rank: Rank, told: Option<&Told>) {
        if self.costs.gathers {
            self.send_frames(rank, matches!(told, Some(Told::Message { .. })));
        }
    }

    #[inline(never)]
    fn send_frames(&mut self, rank: Rank, had: bool) {
        let now = self.time_of(rank);
        let outbox = &mut self.process_mut(rank).outbox;
        if had && outbox.may_wait() {
            return;
        }
        outbox.note_asked(now);
        outbox.take_all().iter().for_each(|frame| self.send_together(rank, frame));
    }

    fn send_together(&mut self, from: Rank, Frame { to, messages, payload }: &Frame) {
        let sent = self.spend(from, self.costs.send_overhead_ns);
        let headers = (messages.len() as u64 - 1) * self.costs.header_bytes;
        let left = self.leave(from, sent, self.costs.card_ns(headers + payload));
        self.process_mut(from).outbox.note_left(*to, left);
        let arrives = left + self.wire(from, *to);
        messages.iter().for_each(|message| self.set_off(*message, left, arrives));
    }
}

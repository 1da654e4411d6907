//! The sender's end.

use standpipe::Rank;

use super::messages::{Part, Send};
use super::packet::{DATA_MAX, Packet};
use super::{EAGER_MAX, Mpi, Request, Status};
use crate::pm::{Handle, Pm, PmError, Started};

impl Mpi {
    /// Begins to send memory of the program's, which must stay as it is until the send has ended. Messages
    /// to one receiver with one tag are received in the order in which they were begun.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not.
    pub fn send(
        &mut self,
        pm: &mut Pm,
        dest: i64,
        tag: u32,
        start: *const u8,
        len: usize,
    ) -> Result<Request, PmError> {
        let dest = pm.rank_of(dest)?;
        let send = self.new_request();
        if len <= EAGER_MAX {
            let mut data = vec![0; len];
            pm.memory.read(start, &mut data);
            self.post(pm, dest, Packet::Eager { tag }, &data);
            self.counters.eager += 1;
            self.ended.insert(send, Ok(Status { source: dest, tag, len }));
        } else {
            self.post(pm, dest, Packet::Request { tag, send, len: len as u64 }, &[]);
            let start = start.cast_mut();
            self.sends.insert(send, Send { dest, tag, start, len, sent: 0, part: Part::None });
        }
        Ok(Request(send))
    }

    pub(super) fn take_reply(&mut self, from: Rank, id: u64, receive: u64, handle: Handle, len: u64) -> bool {
        let Some(send) = self.sends.get_mut(&id) else { return false };
        let left = (send.len - send.sent) as u64;
        if send.dest != from || !matches!(send.part, Part::None) || len > left {
            return false;
        }
        let len = len as usize;
        if len == 0 {
            // The receive was for less.
            let send = self.sends.remove(&id).expect("it was found above");
            self.ended.insert(id, Ok(Status { source: from, tag: send.tag, len: send.len }));
        } else if handle == Handle(0) {
            send.part = Part::Pieces { receive, left: len };
            self.counters.in_pieces += 1;
        } else {
            send.part = Part::Asked { receive, handle, len };
            self.send_pool.waiting.push_back(id);
        }
        true
    }

    /// Locks and writes the parts that receivers wait for, in order, as far as the sends' share goes.
    pub(super) fn write_parts(&mut self, pm: &mut Pm) {
        while let Some(id) = self.send_pool.waiting.front().copied() {
            if !self.write_part(pm, id) {
                self.counters.delayed += 1;
                return;
            }
            self.send_pool.waiting.pop_front();
        }
    }

    /// Whether the part need not wait any more.
    fn write_part(&mut self, pm: &mut Pm, id: u64) -> bool {
        let Some(send) = self.sends.get_mut(&id) else { return true };
        let Part::Asked { receive, handle, len } = send.part else { return true };
        let (from, peer) = (send.start.wrapping_add(send.sent), Some(i64::from(send.dest)));
        let bytes = len as u64;
        if self.send_pool.most_of(bytes) < bytes {
            // The receiver's share is more than this one's.
            send.part = Part::Pieces { receive, left: len };
            self.counters.in_pieces += 1;
            return true;
        }
        if !self.send_pool.take(bytes) {
            return false;
        }
        let begun = pm.lock(self.context, peer, from, len).and_then(|local| {
            pm.write(self.context, send.dest.into(), handle, local, len).inspect_err(|_| {
                let unlocked = pm.unlock(self.context, peer, from, len);
                debug_assert!(unlocked.is_ok(), "it was locked above");
            })
        });
        if begun.is_ok() {
            send.part = Part::Writing { receive, len };
            self.counters.written += 1;
            return true;
        }
        self.send_pool.give_back(bytes);
        match begun {
            Err(PmError::NoBuffers) => false,
            Err(PmError::NoSpace) if !self.send_pool.is_idle() => false,
            Err(PmError::NoSpace | PmError::NotOffered) => {
                send.part = Part::Pieces { receive, left: len };
                self.counters.in_pieces += 1;
                true
            }
            _ => {
                self.end_send(id, begun);
                true
            }
        }
    }

    /// Says of writes that are done that they are, and unlocks.
    pub(super) fn finish_writes(&mut self, pm: &mut Pm) {
        let is_writing = |send: &Send| matches!(send.part, Part::Writing { .. });
        if !self.sends.values().any(is_writing) {
            return;
        }
        let result = pm.is_done(self.context, Started::Writes);
        if result == Err(PmError::Busy) {
            return;
        }
        let done: Vec<u64> =
            self.sends.iter().filter(|(_, send)| is_writing(send)).map(|(id, _)| *id).collect();
        for id in done {
            self.finish_write(pm, id, result);
        }
    }

    fn finish_write(&mut self, pm: &mut Pm, id: u64, result: Result<(), PmError>) {
        let Some(send) = self.sends.get_mut(&id) else { return };
        let Part::Writing { receive, len } = send.part else { return };
        let (from, dest) = (send.start.wrapping_add(send.sent), send.dest);
        let unlocked = pm.unlock(self.context, Some(dest.into()), from, len);
        self.send_pool.give_back(len as u64);
        if let Err(error) = result.and(unlocked) {
            self.end_send(id, Err(error));
            return;
        }
        send.part = Part::None;
        send.sent += len;
        let is_whole = send.sent == send.len;
        self.post(pm, dest, Packet::Done { receive, len: len as u64 }, &[]);
        if is_whole {
            self.end_send(id, Ok(()));
        }
    }

    /// Sends pieces, while there are buffers.
    pub(super) fn send_pieces(&mut self, pm: &mut Pm) {
        let in_pieces = |send: &Send| matches!(send.part, Part::Pieces { .. });
        let ids: Vec<u64> =
            self.sends.iter().filter(|(_, send)| in_pieces(send)).map(|(id, _)| *id).collect();
        for id in ids {
            while self.outbox.is_empty() && self.send_piece(pm, id) {}
        }
    }

    /// Sends the next piece of a part: whether there is another.
    fn send_piece(&mut self, pm: &mut Pm, id: u64) -> bool {
        let Some(send) = self.sends.get_mut(&id) else { return false };
        let Part::Pieces { receive, left } = send.part else { return false };
        let mut data = vec![0; left.min(DATA_MAX)];
        pm.memory.read(send.start.wrapping_add(send.sent), &mut data);
        send.sent += data.len();
        let left = left - data.len();
        send.part = if left == 0 { Part::None } else { Part::Pieces { receive, left } };
        let (dest, is_whole) = (send.dest, send.sent == send.len);
        self.post(pm, dest, Packet::Piece { receive }, &data);
        if is_whole {
            self.end_send(id, Ok(()));
        }
        left > 0
    }

    fn end_send(&mut self, id: u64, result: Result<(), PmError>) {
        if let Some(send) = self.sends.remove(&id) {
            let status = Status { source: send.dest, tag: send.tag, len: send.len };
            self.ended.insert(id, result.map(|()| status));
        }
    }
}

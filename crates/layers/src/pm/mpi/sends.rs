//! The sender's end.

use standpipe::Rank;

use super::messages::{Part, Send};
use super::packet::{DATA_MAX, Packet};
use super::{EAGER_MAX, Mpi, Request, Status};
use crate::pm::{Handle, Pm, PmError};

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
            self.send_pool.queue(id);
        }
        true
    }

    /// Locks and writes the parts that receivers wait for, in order, as far as the sends' share goes.
    pub(super) fn write_parts(&mut self, pm: &mut Pm) {
        while let Some(id) = self.send_pool.first() {
            if !self.write_part(pm, id) {
                self.counters.delayed += self.send_pool.delay();
                return;
            }
            self.send_pool.pass();
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
            self.go_in_pieces(id, receive, len);
            return true;
        }
        if !self.send_pool.take(bytes) {
            return false;
        }
        let local = match pm.lock(self.context, peer, from, len) {
            Ok(local) => local,
            Err(error) => {
                self.send_pool.give_back(bytes);
                match error {
                    PmError::NoSpace if !self.send_pool.is_idle() => return false,
                    PmError::NoSpace | PmError::NotOffered => self.go_in_pieces(id, receive, len),
                    // The memory is not there.
                    error => self.fail_send(pm, id, receive, error),
                }
                return true;
            }
        };
        let begun = pm.write_as(self.context, id, send.dest, (handle, local), len);
        send.part = Part::Writing { receive, len };
        let Err(error) = begun else {
            self.counters.written += 1;
            return true;
        };
        self.end_write(pm, id);
        if error == PmError::NoBuffers {
            if let Some(send) = self.sends.get_mut(&id) {
                send.part = Part::Asked { receive, handle, len };
            }
            return false;
        }
        self.write_failed(id, receive, len, error);
        true
    }

    /// Has a part go in pieces.
    fn go_in_pieces(&mut self, id: u64, receive: u64, left: usize) {
        if let Some(send) = self.sends.get_mut(&id) {
            send.part = Part::Pieces { receive, left };
            self.counters.in_pieces += 1;
        }
    }

    /// The write that the receiver asked for has failed, as its handle may be wrong: it gets the bytes
    /// otherwise. To one that is gone the send ends.
    fn write_failed(&mut self, id: u64, receive: u64, len: usize, error: PmError) {
        match error {
            PmError::Reset => self.end_send(id, Err(error)),
            _ => self.go_in_pieces(id, receive, len),
        }
    }

    /// Ends a send that cannot go on, and tells its receiver.
    fn fail_send(&mut self, pm: &mut Pm, id: u64, receive: u64, error: PmError) {
        if let Some(send) = self.sends.get(&id) {
            self.post(pm, send.dest, Packet::Failed { receive }, &[]);
        }
        self.end_send(id, Err(error));
    }

    /// Says of writes that are done that they are, and unlocks. Each has its own result.
    pub(super) fn finish_writes(&mut self, pm: &mut Pm) {
        let is_writing = |send: &Send| matches!(send.part, Part::Writing { .. });
        if !self.sends.values().any(is_writing) {
            return;
        }
        pm.progress();
        for (id, result) in pm.written(self.context) {
            self.finish_write(pm, id, result);
        }
    }

    /// Unlocks what a write was from: the send's receive, and how many bytes.
    fn end_write(&mut self, pm: &mut Pm, id: u64) -> Option<(u64, usize)> {
        let send = self.sends.get_mut(&id)?;
        let Part::Writing { receive, len } = send.part else { return None };
        send.part = Part::None;
        let from = send.start.wrapping_add(send.sent);
        let unlocked = pm.unlock(self.context, Some(send.dest.into()), from, len);
        debug_assert!(unlocked.is_ok(), "it was locked for this part");
        self.send_pool.give_back(len as u64);
        Some((receive, len))
    }

    fn finish_write(&mut self, pm: &mut Pm, id: u64, result: Result<(), PmError>) {
        let Some((receive, len)) = self.end_write(pm, id) else { return };
        if let Err(error) = result {
            self.write_failed(id, receive, len, error);
            return;
        }
        let Some(send) = self.sends.get_mut(&id) else { return };
        send.sent += len;
        let (dest, is_whole) = (send.dest, send.sent == send.len);
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

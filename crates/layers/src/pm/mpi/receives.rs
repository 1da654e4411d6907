//! The receiver's end.

use standpipe::Rank;

use super::messages::{Came, Matched, Receive, Unexpected};
use super::packet::Packet;
use super::{Mpi, Request, Status};
use crate::pm::{Handle, Pm, PmError};

impl Mpi {
    /// Begins to receive a message into memory of the program's: from one node or, by `None`, from any; with
    /// one tag, or with any. The program leaves that memory alone until the receive has ended.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not.
    pub fn receive(
        &mut self,
        pm: &mut Pm,
        source: Option<i64>,
        tag: Option<u32>,
        start: *mut u8,
        room: usize,
    ) -> Result<Request, PmError> {
        let source = source.map(|node| pm.rank_of(node)).transpose()?;
        let id = self.new_request();
        let receive = Receive { id, source, tag, start, room, matched: None };
        let first = self.unexpected.iter().position(|came| receive.fits(came.from, came.tag));
        self.receives.push(receive);
        if let Some(came) = first.and_then(|first| self.unexpected.remove(first)) {
            let at = self.receives.len() - 1;
            match came.what {
                Came::Eager(data) => self.fill(pm, at, came.from, came.tag, &data),
                Came::Request { send, len } => self.begin(pm, at, (came.from, came.tag), send, len),
            }
        }
        Ok(Request(id))
    }

    pub(super) fn take_eager(&mut self, pm: &mut Pm, from: Rank, tag: u32, data: &[u8]) -> bool {
        match self.receives.iter().position(|receive| receive.fits(from, tag)) {
            Some(at) => self.fill(pm, at, from, tag, data),
            None => {
                self.unexpected.push_back(Unexpected { from, tag, what: Came::Eager(data.to_vec()) });
            }
        }
        true
    }

    /// Ends a receive with a short message.
    fn fill(&mut self, pm: &mut Pm, at: usize, from: Rank, tag: u32, data: &[u8]) {
        let receive = self.receives.remove(at);
        let fits = data.len() <= receive.room;
        if fits {
            pm.memory.write(receive.start, data);
        }
        let status = Status { source: from, tag, len: data.len() };
        self.ended.insert(receive.id, if fits { Ok(status) } else { Err(PmError::Invalid) });
    }

    pub(super) fn take_request(
        &mut self,
        pm: &mut Pm,
        from: Rank,
        tag: u32,
        (send, len): (u64, u64),
    ) -> bool {
        let Ok(len) = usize::try_from(len) else { return false };
        if len == 0 {
            return false;
        }
        match self.receives.iter().position(|receive| receive.fits(from, tag)) {
            Some(at) => self.begin(pm, at, (from, tag), send, len),
            None => {
                self.unexpected.push_back(Unexpected { from, tag, what: Came::Request { send, len } });
            }
        }
        true
    }

    /// Has a receive get a long message, or refuses one that is too long for it.
    fn begin(&mut self, pm: &mut Pm, at: usize, (from, tag): (Rank, u32), send: u64, len: usize) {
        let receive = &mut self.receives[at];
        let id = receive.id;
        if len > receive.room {
            self.receives.remove(at);
            self.ended.insert(id, Err(PmError::Invalid));
            self.post(pm, from, Packet::Reply { send, receive: id, handle: 0, len: 0 }, &[]);
            return;
        }
        receive.matched = Some(Matched { from, tag, send, len, got: 0, asked: 0, locked: None });
        self.receive_pool.queue(id);
    }

    /// Asks senders for parts, in order, as far as the receives' share goes.
    pub(super) fn grant(&mut self, pm: &mut Pm) {
        while let Some(id) = self.receive_pool.first() {
            if !self.grant_part(pm, id) {
                self.counters.delayed += self.receive_pool.delay();
                return;
            }
            self.receive_pool.pass();
        }
    }

    /// Whether the receive need not wait any more.
    fn grant_part(&mut self, pm: &mut Pm, id: u64) -> bool {
        let Some(receive) = self.receives.iter_mut().find(|receive| receive.id == id) else { return true };
        let Some(matched) = &mut receive.matched else { return true };
        let part = self.receive_pool.most_of((matched.len - matched.got) as u64);
        if !self.receive_pool.take(part) {
            return false;
        }
        let (into, len) = (receive.start.wrapping_add(matched.got), part as usize);
        let handle = match pm.lock(self.context, Some(matched.from.into()), into, len) {
            Ok(handle) => {
                matched.locked = Some(len);
                handle
            }
            Err(error) => {
                self.receive_pool.give_back(part);
                if error == PmError::NoSpace && !self.receive_pool.is_idle() {
                    return false;
                }
                Handle(0)
            }
        };
        matched.asked = len;
        let reply = Packet::Reply { send: matched.send, receive: id, handle: handle.0, len: part };
        let from = matched.from;
        self.post(pm, from, reply, &[]);
        true
    }

    /// The receive that waits for bytes of that peer, and where it stands.
    fn asked(&self, from: Rank, id: u64) -> Option<usize> {
        let is_asked = |matched: &Matched| matched.from == from && matched.asked > 0;
        let is_it = |receive: &Receive| receive.id == id && receive.matched.as_ref().is_some_and(is_asked);
        self.receives.iter().position(is_it)
    }

    pub(super) fn take_done(&mut self, pm: &mut Pm, from: Rank, id: u64, len: u64) -> bool {
        let Some(at) = self.asked(from, id) else { return false };
        let asked = self.receives[at].matched.as_ref().map(|matched| (matched.asked, matched.locked));
        let Some((asked, Some(_))) = asked else { return false };
        if len != asked as u64 {
            return false;
        }
        self.arrive(pm, at, asked);
        true
    }

    pub(super) fn take_piece(&mut self, pm: &mut Pm, from: Rank, id: u64, data: &[u8]) -> bool {
        let Some(at) = self.asked(from, id) else { return false };
        let receive = &self.receives[at];
        let Some(matched) = &receive.matched else { return false };
        if data.is_empty() || data.len() > matched.asked {
            return false;
        }
        pm.memory.write(receive.start.wrapping_add(matched.got), data);
        self.arrive(pm, at, data.len());
        true
    }

    /// Ends a receive whose sender has failed.
    pub(super) fn take_failed(&mut self, pm: &mut Pm, from: Rank, id: u64) -> bool {
        let Some(at) = self.asked(from, id) else { return false };
        let Receive { start, matched, .. } = self.receives.remove(at);
        if let Some(Matched { locked: Some(len), got, asked, .. }) = matched {
            // Pieces of the part may have come already.
            let start = start.wrapping_add(got + asked - len);
            let unlocked = pm.unlock(self.context, Some(from.into()), start, len);
            debug_assert!(unlocked.is_ok(), "it was locked for this part");
            self.receive_pool.give_back(len as u64);
        }
        self.ended.insert(id, Err(PmError::Io));
        true
    }

    /// So much more has arrived: unlocks a part that is whole, and ends the receive or asks for the next
    /// part.
    fn arrive(&mut self, pm: &mut Pm, at: usize, bytes: usize) {
        let receive = &mut self.receives[at];
        let Some(matched) = &mut receive.matched else { return };
        matched.asked -= bytes;
        matched.got += bytes;
        if matched.asked > 0 {
            return;
        }
        if let Some(len) = matched.locked.take() {
            let start = receive.start.wrapping_add(matched.got - len);
            let unlocked = pm.unlock(self.context, Some(matched.from.into()), start, len);
            debug_assert!(unlocked.is_ok(), "it was locked for this part");
            self.receive_pool.give_back(len as u64);
        }
        if matched.got < matched.len {
            self.receive_pool.queue(receive.id);
            return;
        }
        let status = Status { source: matched.from, tag: matched.tag, len: matched.len };
        let receive = self.receives.remove(at);
        self.ended.insert(receive.id, Ok(status));
    }
}

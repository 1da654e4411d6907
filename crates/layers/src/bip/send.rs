//! Sending.

use std::ptr::with_exposed_provenance;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use standpipe::{Error, Rank};

use crate::bip::error::BipError;
use crate::bip::sends::Send;
use crate::bip::state::State;
use crate::bip::wire::{Message, WORD};
use crate::bip::{Awaits, Bip};

/// Bytes up to which a short message is copied to the stack on its way into the lane.
const ON_STACK: usize = 64;
/// Slower than a receiver gets, on the hosts that this was tried on.
const BYTES_PER_NS: u64 = 4;

/// Sending. `dst` is another process's number, `tag` 0 or more, and `words` a length in words of 4 bytes.
impl Bip {
    /// Sends `words` words from `buf` on to `dst`, and waits until they may be overwritten: of a short
    /// message, until it is on its way, of a long one, until it was received.
    ///
    /// # Errors
    /// As for [`Bip::isend`] and [`Bip::swait`].
    pub fn send(&self, dst: i32, tag: i32, buf: *const u8, words: i32) -> Result<(), BipError> {
        let send = self.start(dst, tag, buf, words)?;
        if send.is_sent && send.is_short() { Ok(()) } else { self.swait(send.id) }
    }

    /// Starts to send, and gives the send's number. The words must not be changed before [`Bip::swait`] or
    /// [`Bip::stest`] says that it has ended. Does not wait, but for the first contact with a process.
    ///
    /// # Errors
    /// [`BipError::NoSuchNode`], [`BipError::ToItself`], [`BipError::BadTag`], [`BipError::BadLength`] for a
    /// negative one, [`BipError::Null`] for words at NULL, [`BipError::SendPending`] while another one has
    /// not ended, [`BipError::Lost`].
    pub fn isend(&self, dst: i32, tag: i32, buf: *const u8, words: i32) -> Result<i32, BipError> {
        Ok(self.start(dst, tag, buf, words)?.id)
    }

    #[inline]
    fn start(&self, dst: i32, tag: i32, buf: *const u8, words: i32) -> Result<Send, BipError> {
        let peer = self.node_of(dst)?;
        let (tag, words) = (tag_of(tag)?, words_of(words, buf)?);
        let mut state = self.inner.lock();
        let mut send = state.sends.begin((peer, tag), (buf.expose_provenance(), words))?;
        if state.may_send(peer, send.is_short()) {
            drop(state);
            send.is_sent = self.try_send(&send)?;
        } else {
            state.counts.held_back += 1;
        }
        Ok(send)
    }

    /// Waits until a send has ended. Asked again, it says so at once.
    ///
    /// # Errors
    /// [`BipError::NoSuchSend`], and [`BipError::Lost`] where the receiver is.
    pub fn swait(&self, id: i32) -> Result<(), BipError> {
        let Some(send) = self.under_way(id)? else { return Ok(()) };
        let ended = match self.poll_while_got(&send) {
            Ok(false) => self.wait(Awaits::Peer(send.peer), |state| has_ended(state, id)),
            Ok(true) => Ok(()),
            Err(fault) => Err(fault),
        };
        self.abandon_if_failed(ended)
    }

    /// Looks for the end of a long send for about as long as its receiver needs to get it, if there is a core
    /// for each process: to go to sleep and be woken would take a large part of that. Whether it has ended.
    fn poll_while_got(&self, send: &Send) -> Result<bool, BipError> {
        if send.is_short() || !self.has_cores {
            return Ok(false);
        }
        let bytes = u64::from(send.words) * WORD as u64;
        let (begun, at_most) = (Instant::now(), Duration::from_nanos(bytes / BYTES_PER_NS));
        while begun.elapsed() < at_most {
            if self.poll(Awaits::Peer(send.peer), |state| has_ended(state, send.id))?.is_some() {
                return Ok(true);
            }
            // Where there are fewer cores than it seems, the receiver needs this one.
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Whether a send has ended. Does not wait.
    ///
    /// # Errors
    /// As for [`Bip::swait`].
    pub fn stest(&self, id: i32) -> Result<bool, BipError> {
        let Some(send) = self.under_way(id)? else { return Ok(true) };
        let ended = self.poll(Awaits::Peer(send.peer), |state| has_ended(state, id));
        self.abandon_if_failed(ended).map(|ended| ended.is_some())
    }

    /// That send, if it has not ended.
    #[inline]
    fn under_way(&self, id: i32) -> Result<Option<Send>, BipError> {
        let state = self.inner.lock();
        let is_over = state.sends.is_over(id)?;
        Ok(state.sends.current().filter(|_| !is_over))
    }

    /// A send that has failed is none any more.
    fn abandon_if_failed<T>(&self, result: Result<T, BipError>) -> Result<T, BipError> {
        if result.is_err() {
            self.inner.lock().sends.abandon();
        }
        result
    }

    /// Another process's number.
    #[inline]
    fn node_of(&self, dst: i32) -> Result<Rank, BipError> {
        let size = self.node.size();
        match u32::try_from(dst) {
            Ok(peer) if peer == self.node.rank() => Err(BipError::ToItself { node: peer }),
            Ok(peer) if peer < size => Ok(peer),
            _ => Err(BipError::NoSuchNode { node: dst, size }),
        }
    }

    /// Gives the message under way to its lane, if it may go there. `false`: the lane is full.
    pub(super) fn push_send(&self) -> Result<bool, BipError> {
        let unsent = {
            let state = self.inner.lock();
            state.sends.unsent().filter(|send| state.may_send(send.peer, send.is_short()))
        };
        unsent.map_or(Ok(true), |send| self.try_send(&send))
    }

    /// Gives a message to its lane: whether that had room.
    #[inline]
    fn try_send(&self, send: &Send) -> Result<bool, BipError> {
        let sent = self.try_message_of(send);
        let is_sent = self.abandon_if_failed(sent)?;
        let mut state = self.inner.lock();
        if send.is_short() {
            state.copies.sent += u64::from(send.words) * WORD as u64;
        }
        if is_sent {
            state.sends.sent();
            state.sent(send.peer, send.is_short());
        }
        Ok(is_sent)
    }

    fn try_message_of(&self, send: &Send) -> Result<bool, BipError> {
        let (tag, words, addr) = (send.tag, send.words, send.addr as u64);
        if !send.is_short() {
            let long = Message::Long { tag, words, send: send.id as u32, addr };
            return self.try_message(send.peer, long, &[]);
        }
        let (short, len) = (Message::Short { tag, words }, words as usize * WORD);
        let from = with_exposed_provenance(send.addr);
        if len <= ON_STACK {
            let mut bytes = [0; ON_STACK];
            self.memory.read(from, &mut bytes[..len]);
            return self.try_message(send.peer, short, &bytes[..len]);
        }
        let mut bytes = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.resize(len, 0);
        self.memory.read(from, &mut bytes);
        self.try_message(send.peer, short, &bytes)
    }

    /// Sends a message, unless its lane is full: whether it did.
    fn try_message(&self, peer: Rank, message: Message, payload: &[u8]) -> Result<bool, BipError> {
        let try_once = || match payload {
            [] => self.node.try_request(peer, self.message, message.args()),
            _ => self.node.try_request_medium(peer, self.message, message.args(), payload),
        };
        match try_once() {
            Err(Error::NotConnected { .. }) => {
                self.node.connect(peer)?;
                Ok(try_once()?)
            }
            tried => Ok(tried?),
        }
    }

    /// Tells senders of long messages that these were got. `false`: a lane is full.
    pub(super) fn tell_of_gets(&self) -> Result<bool, BipError> {
        loop {
            let Some((peer, send)) = self.inner.lock().done.front().copied() else { return Ok(true) };
            match self.try_message(peer, Message::Done { send }, &[]) {
                // To a process that is gone nothing need be told.
                Ok(true) | Err(BipError::Lost { .. }) => drop(self.inner.lock().done.pop_front()),
                Ok(false) => return Ok(false),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Tells peers how many of their messages were taken. `false`: a lane is full.
    pub(super) fn tell_of_taken(&self) -> Result<bool, BipError> {
        loop {
            let (peer, total) = {
                let mut state = self.inner.lock();
                let Some(peer) = state.owed.front().copied() else { return Ok(true) };
                (peer, state.taken_of(peer))
            };
            // Before it hears of it: what it sends then is within its window.
            let tried = self.try_message(peer, Message::Taken { total }, &[]);
            let mut state = self.inner.lock();
            match tried {
                Ok(true) | Err(BipError::Lost { .. }) => {
                    state.told(peer, total);
                    state.owed.pop_front();
                }
                Ok(false) => return Ok(false),
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// That a send has ended, which was there.
#[inline]
fn has_ended(state: &State, id: i32) -> Option<()> {
    (state.sends.is_over(id) != Ok(false)).then_some(())
}

/// A tag.
#[inline]
pub(super) fn tag_of(tag: i32) -> Result<u32, BipError> {
    u32::try_from(tag).map_err(|_| BipError::BadTag { tag })
}

/// A length, of words that lie somewhere.
#[inline]
pub(super) fn words_of(words: i32, at: *const u8) -> Result<u32, BipError> {
    match u32::try_from(words) {
        Err(_) => Err(BipError::BadLength { words }),
        Ok(1..) if at.is_null() => Err(BipError::Null { what: "buffer" }),
        Ok(words) => Ok(words),
    }
}

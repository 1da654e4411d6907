//! Sending.

use std::ptr::with_exposed_provenance;
use std::sync::PoisonError;

use standpipe::{Error, Rank};

use crate::bip::error::BipError;
use crate::bip::sends::Send;
use crate::bip::wire::{Message, WORD};
use crate::bip::{Awaits, Bip};

/// Bytes up to which a short message is copied to the stack on its way into the lane.
const ON_STACK: usize = 64;

/// Sending. `dst` is another process's number, `tag` 0 or more, and `words` a length in words of 4 bytes.
impl Bip {
    /// Sends `words` words from `buf` on to `dst`, and waits until they may be overwritten: of a short
    /// message, until it is on its way, of a long one, until it was received.
    ///
    /// # Errors
    /// As for [`Bip::isend`] and [`Bip::swait`].
    pub fn send(&self, dst: i32, tag: i32, buf: *const u8, words: i32) -> Result<(), BipError> {
        let id = self.isend(dst, tag, buf, words)?;
        self.swait(id)
    }

    /// Starts to send, and gives the send's number. The words must not be changed before [`Bip::swait`] or
    /// [`Bip::stest`] says that it has ended. Does not wait, but for the first contact with a process.
    ///
    /// # Errors
    /// [`BipError::NoSuchNode`], [`BipError::ToItself`], [`BipError::BadTag`], [`BipError::BadLength`] for a
    /// negative one, [`BipError::Null`] for words at NULL, [`BipError::SendPending`] while another one has
    /// not ended, [`BipError::Lost`].
    pub fn isend(&self, dst: i32, tag: i32, buf: *const u8, words: i32) -> Result<i32, BipError> {
        let peer = self.node_of(dst)?;
        let (tag, words) = (tag_of(tag)?, words_of(words, buf)?);
        let mut state = self.inner.lock();
        let send = state.sends.begin((peer, tag), (buf.expose_provenance(), words))?;
        if state.may_send(peer, send.is_short()) {
            drop(state);
            self.push_send()?;
        } else {
            state.counts.held_back += 1;
        }
        Ok(send.id)
    }

    /// Waits until a send has ended. Asked again, it says so at once.
    ///
    /// # Errors
    /// [`BipError::NoSuchSend`], and [`BipError::Lost`] where the receiver is.
    pub fn swait(&self, id: i32) -> Result<(), BipError> {
        let Some(peer) = self.receiver_of(id)? else { return Ok(()) };
        let ended = self.wait(Awaits::Peer(peer), |state| match state.sends.is_over(id) {
            Ok(true) | Err(_) => Some(()),
            Ok(false) => None,
        });
        self.abandon_if_failed(ended)
    }

    /// Whether a send has ended. Does not wait.
    ///
    /// # Errors
    /// As for [`Bip::swait`].
    pub fn stest(&self, id: i32) -> Result<bool, BipError> {
        let Some(peer) = self.receiver_of(id)? else { return Ok(true) };
        let ended = self.poll(Awaits::Peer(peer), |state| match state.sends.is_over(id) {
            Ok(true) | Err(_) => Some(()),
            Ok(false) => None,
        });
        self.abandon_if_failed(ended).map(|ended| ended.is_some())
    }

    /// Whom that send is to, if it has not ended.
    #[inline]
    fn receiver_of(&self, id: i32) -> Result<Option<Rank>, BipError> {
        let state = self.inner.lock();
        let is_over = state.sends.is_over(id)?;
        Ok(state.sends.current().filter(|_| !is_over).map(|send| send.peer))
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
        let Some(send) = unsent else { return Ok(true) };
        let sent = self.try_message_of(&send);
        let is_sent = self.abandon_if_failed(sent)?;
        if is_sent {
            let mut state = self.inner.lock();
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
        let sent = if len <= ON_STACK {
            let mut bytes = [0; ON_STACK];
            self.memory.read(from, &mut bytes[..len]);
            self.try_message(send.peer, short, &bytes[..len])?
        } else {
            let mut bytes = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.resize(len, 0);
            self.memory.read(from, &mut bytes);
            self.try_message(send.peer, short, &bytes)?
        };
        self.inner.lock().copies.sent += len as u64;
        Ok(sent)
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

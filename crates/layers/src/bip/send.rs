//! Sending.

use std::time::{Duration, Instant};

use standpipe::Rank;

use crate::bip::Bip;
use crate::bip::error::BipError;
use crate::bip::sends::Send;
use crate::bip::state::State;
use crate::bip::waits::Awaits;
use crate::bip::wire::WORD;

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
        let mut state = self.link.state();
        let mut send = state.sends.begin((peer, tag), (buf.expose_provenance(), words))?;
        if state.may_send(peer, send.is_short()) {
            drop(state);
            send.is_sent = self.link.try_send(&send)?;
        } else {
            state.counts.held_back += 1;
        }
        Ok(send)
    }

    /// Waits until a send has ended. Asked again, it says so at once.
    ///
    /// # Errors
    /// [`BipError::NoSuchSend`]; [`BipError::Lost`] where the receiver is; of a long message
    /// [`BipError::NoRoom`] and [`BipError::NoSource`], which its receiver has found.
    pub fn swait(&self, id: i32) -> Result<(), BipError> {
        let Some(send) = self.under_way(id)? else { return Ok(()) };
        let ended = match self.poll_while_got(&send) {
            Ok(false) => self.wait(Awaits::Peer(send.peer), |state| has_ended(state, id)),
            Ok(true) => Ok(()),
            Err(fault) => Err(fault),
        };
        self.link.abandon_if_failed(ended)?;
        self.under_way(id).map(|_| ())
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
        let has_ended = self.link.abandon_if_failed(ended)?.is_some();
        if has_ended {
            self.under_way(id)?;
        }
        Ok(has_ended)
    }

    /// That send, if it has not ended.
    #[inline]
    fn under_way(&self, id: i32) -> Result<Option<Send>, BipError> {
        let state = self.link.state();
        let is_over = state.sends.is_over(id)?;
        Ok(state.sends.current().filter(|_| !is_over))
    }

    /// Another process's number.
    #[inline]
    fn node_of(&self, dst: i32) -> Result<Rank, BipError> {
        let size = self.link.node.size();
        match u32::try_from(dst) {
            Ok(peer) if peer == self.link.node.rank() => Err(BipError::ToItself { node: peer }),
            Ok(peer) if peer < size => Ok(peer),
            _ => Err(BipError::NoSuchNode { node: dst, size }),
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

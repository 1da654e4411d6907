//! Receiving.

use crate::bip::Bip;
use crate::bip::error::BipError;
use crate::bip::send::{tag_of, words_of};
use crate::bip::tags::{Receive, Received, Target};
use crate::bip::waits::Awaits;

/// A receive that has been posted.
struct Posted {
    tag: u32,
    slot: u16,
    id: i32,
}

/// Receiving. `tag` is 0 or more, `most` the words that there is room for from `buf` on.
impl Bip {
    /// Waits for the next message with that tag, of any process, and puts it at `buf`.
    ///
    /// # Errors
    /// As for [`Bip::irecv`] and [`Bip::rwait`].
    pub fn recv(&self, tag: i32, buf: *mut u8, most: i32) -> Result<Received, BipError> {
        let Posted { tag, slot, .. } = self.post(tag, buf, most)?;
        let ended = self.wait(Awaits::Message(tag), |state| state.tags.at(slot).tell());
        if ended.is_err() {
            self.link.state().tags.at(slot).withdraw();
        }
        ended?
    }

    /// Posts a receive for the next message with that tag, of any process, and gives the receive's number.
    /// The buffer is the layer's until [`Bip::rwait`] or [`Bip::rtest`] says that the receive has ended. Does
    /// not wait.
    ///
    /// # Errors
    /// [`BipError::BadTag`], [`BipError::BadLength`] for a negative one, [`BipError::Null`] for room at NULL,
    /// [`BipError::ReceivePending`] while another one for the tag has not ended, or it was not asked whether
    /// it has; [`BipError::TooManyTags`].
    pub fn irecv(&self, tag: i32, buf: *mut u8, most: i32) -> Result<i32, BipError> {
        Ok(self.post(tag, buf, most)?.id)
    }

    /// Waits until a receive has ended: the message's length, and who sent it. Asked again, before another
    /// receive for the tag, it says the same.
    ///
    /// # Errors
    /// [`BipError::NoSuchReceive`]; [`BipError::TooLong`] for a message with more words than there is room
    /// for; [`BipError::Lost`] where a process is gone and no message is here, [`BipError::Alone`] where
    /// there is no other.
    pub fn rwait(&self, id: i32) -> Result<Received, BipError> {
        let (tag, slot) = self.receive_of(id)?;
        self.wait(Awaits::Message(tag), |state| state.tags.at(slot).tell())?
    }

    /// What a receive gave, if it has ended. Does not wait; as [`Bip::rwait`] otherwise.
    ///
    /// # Errors
    /// As for [`Bip::rwait`].
    pub fn rtest(&self, id: i32) -> Result<Option<Received>, BipError> {
        let (tag, slot) = self.receive_of(id)?;
        let ended = self.poll(Awaits::Message(tag), |state| state.tags.at(slot).tell())?;
        ended.transpose()
    }

    /// Receives the next message with that tag, if a short one is there. Neither waits nor takes a long one.
    ///
    /// # Errors
    /// As for [`Bip::recv`].
    pub fn recv_short(&self, tag: i32, buf: *mut u8, most: i32) -> Result<Option<Received>, BipError> {
        let number = tag_of(tag)?;
        words_of(most, buf)?;
        let slot = self.slot_of(number)?;
        self.link.state().tags.at(slot).may_receive()?;
        let is_there = self.poll(Awaits::Message(number), |state| state.is_short_next(slot))?;
        if is_there != Some(true) {
            return Ok(None);
        }
        self.post(tag, buf, most)?;
        self.link.state().tags.at(slot).tell().transpose()
    }

    /// Waits for the next message with that tag, and gives it where it lies: its words may be read until
    /// [`Bip::free_message`]. A long one is got into memory of the layer's.
    ///
    /// # Errors
    /// As for [`Bip::recv`], but for what is about a buffer; [`BipError::Held`] while another one of the tag
    /// is read; [`BipError::NoMemory`].
    pub fn get_message(&self, tag: i32) -> Result<(*const u8, Received), BipError> {
        let number = tag_of(tag)?;
        let slot = self.slot_of(number)?;
        loop {
            self.hold_next(slot)?;
            let next = self.wait(Awaits::Message(number), |state| match state.give(slot) {
                Some(given) => Some(Some(given)),
                None => state.has_next(slot).then_some(None),
            })?;
            if let Some(given) = next {
                return Ok(given);
            }
        }
    }

    /// As [`Bip::get_message`], if a message is there. Does not wait: a long one is given once it was got.
    ///
    /// # Errors
    /// As for [`Bip::get_message`].
    pub fn try_get_message(&self, tag: i32) -> Result<Option<(*const u8, Received)>, BipError> {
        let number = tag_of(tag)?;
        let slot = self.slot_of(number)?;
        self.hold_next(slot)?;
        let next = self.poll(Awaits::Message(number), |state| match state.give(slot) {
            Some(given) => Some(Some(given)),
            None => state.has_next(slot).then_some(None),
        })?;
        if let Some(Some(given)) = next {
            return Ok(Some(given));
        }
        self.hold_next(slot)?;
        let mut is_stuck = false;
        self.look(&mut |state| state.give(slot), &mut is_stuck)
    }

    /// Frees the message that the program reads in place.
    ///
    /// # Errors
    /// [`BipError::BadTag`]; [`BipError::NotHeld`] where there is none.
    pub fn free_message(&self, tag: i32) -> Result<(), BipError> {
        let slot = self.slot_of(tag_of(tag)?)?;
        self.link.state().free(slot)
    }

    fn slot_of(&self, tag: u32) -> Result<u16, BipError> {
        self.link.state().tags.slot_of(tag)
    }

    #[inline]
    fn post(&self, tag: i32, buf: *mut u8, most: i32) -> Result<Posted, BipError> {
        let (tag, most) = (tag_of(tag)?, words_of(most, buf)?);
        let target = Target { addr: buf.expose_provenance(), most };
        let mut state = self.link.state();
        let slot = state.tags.slot_of(tag)?;
        let short = state.post(slot, target)?;
        let id = i32::from(state.tags.at(slot).generation) << 16 | i32::from(slot);
        drop(state);
        if let Some(body) = short {
            self.link.memory.write(buf, body.bytes());
        }
        Ok(Posted { tag, slot, id })
    }

    /// The tag of a receive, and where it is.
    #[inline]
    fn receive_of(&self, id: i32) -> Result<(u32, u16), BipError> {
        let mut state = self.link.state();
        let (generation, slot) = ((id >> 16) as u16, id as u16);
        let tag = if id > 0 { state.tags.get_mut(slot) } else { None };
        match tag {
            Some(tag) if generation == tag.generation && !matches!(tag.receive, Receive::None) => {
                Ok((tag.number, slot))
            }
            _ => Err(BipError::NoSuchReceive { id }),
        }
    }

    fn hold_next(&self, slot: u16) -> Result<(), BipError> {
        let to_get = self.link.state().hold_next(slot)?;
        to_get.map_or(Ok(()), |to_get| self.link.begin_get(to_get))
    }
}

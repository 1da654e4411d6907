//! Receiving.

use crate::bip::Bip;
use crate::bip::error::BipError;
use crate::bip::send::{tag_of, words_of};
use crate::bip::state::InPlace;
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
    /// As for [`Bip::rwait`]. [`BipError::Alone`] only once such calls, and others that do not wait, have
    /// found nothing 100,000 times with nobody left who could send.
    pub fn rtest(&self, id: i32) -> Result<Option<Received>, BipError> {
        let (tag, slot) = self.receive_of(id)?;
        let ended = self.poll(Awaits::Message(tag), |state| state.tags.at(slot).tell())?;
        ended.transpose()
    }

    /// Receives the next message with that tag, if a short one is there. Neither waits nor takes a long one.
    ///
    /// # Errors
    /// As for [`Bip::recv`]; [`BipError::Alone`] as for [`Bip::rtest`].
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
            if let Some(given) = self.next_in_place(slot)? {
                return Ok(given);
            }
            self.wait(Awaits::Message(number), |state| state.has_next(slot).then_some(()))?;
        }
    }

    /// As [`Bip::get_message`], if a message is there. Does not wait: a long one is given once it was got,
    /// and stays the tag's next one until then.
    ///
    /// # Errors
    /// As for [`Bip::get_message`]; [`BipError::Alone`] as for [`Bip::rtest`].
    pub fn try_get_message(&self, tag: i32) -> Result<Option<(*const u8, Received)>, BipError> {
        let number = tag_of(tag)?;
        let slot = self.slot_of(number)?;
        if let Some(given) = self.next_in_place(slot)? {
            return Ok(Some(given));
        }
        if self.poll(Awaits::Message(number), |state| state.has_next(slot).then_some(()))?.is_none() {
            return Ok(None);
        }
        if let Some(given) = self.next_in_place(slot)? {
            return Ok(Some(given));
        }
        // Within a host a long one is here as soon as it is asked for.
        let is_got = self.look(&mut |state| state.has_next(slot).then_some(()), &mut false)?;
        if is_got.is_some() { self.next_in_place(slot) } else { Ok(None) }
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
        let here = state.post(slot, target)?;
        let id = i32::from(state.tags.at(slot).generation) << 16 | i32::from(slot);
        drop(state);
        if let Some(content) = here {
            content.copy_to(self.link.memory, buf);
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

    /// The next message of a tag, if it is here; has a long one got.
    fn next_in_place(&self, slot: u16) -> Result<Option<(*const u8, Received)>, BipError> {
        let next = self.link.state().next_in_place(slot)?;
        match next {
            InPlace::Here(start, received) => Ok(Some((start, received))),
            InPlace::ToGet(to_get) => self.link.begin_get(to_get).map(|()| None),
            InPlace::NotYet => Ok(None),
        }
    }
}

//! Descriptors: posted, and taken when they have ended.

use std::time::Duration;

use super::descriptor::{ALIGNMENT, CONTROL_BYTES, Descriptor};
use super::error::{AsyncError, ErrorCode, Resource, ViaError};
use super::port::Via;
use super::queue::{Stage, Work};
use super::shared::flush_one;
use super::state::State;
use super::vi::{Notify, Side, ViState};

/// A descriptor that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its address.
    pub at: u64,
    /// Whether it has ended well.
    pub is_well: bool,
}

impl Via {
    /// Posts a descriptor: `VipPostSend`, `VipPostRecv`. Never waits. A receive may be posted to an idle VI;
    /// a send ends at once, flushed, unless the VI is connected.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no VI, and an address that is none or not a multiple of 64.
    /// [`ViaError::Resource`] where the queue is full, of which the error handler is told as well.
    pub fn post(&self, id: u32, side: Side, at: u64, handle: u32) -> Result<(), ViaError> {
        let has_begun = self.shared.with(|state| {
            if at == 0 || !at.is_multiple_of(ALIGNMENT) {
                return Err(ViaError::InvalidParameter);
            }
            let vi = state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?;
            let (ptag, vi_state, nic) = (vi.attributes.ptag, vi.state, vi.nic);
            let max_transfer = vi.attributes.terms.max_transfer;
            let told = |code, resource| AsyncError {
                nic,
                vi: id,
                cq: 0,
                descriptor: at,
                operation: 0,
                resource,
                code,
            };
            if vi.queue(side).works.is_full() {
                state.tell_error(told(ErrorCode::Overrun, Resource::Vi));
                return Err(ViaError::Resource);
            }
            if !state.regions.covers(handle, ptag, at, CONTROL_BYTES) {
                state.tell_error(told(ErrorCode::PostDescriptor, Resource::Descriptor));
                return Ok(false);
            }
            let descriptor = Descriptor::read(state.memory, at, side == Side::Receive, max_transfer);
            if !state.regions.covers(handle, ptag, at, descriptor.own_bytes()) {
                state.tell_error(told(ErrorCode::PostDescriptor, Resource::Descriptor));
                return Ok(false);
            }
            let work = Work { at, handle, descriptor, stage: Stage::Waiting, was_old: false };
            let Some(vi) = state.vis.get_mut(&id) else { return Err(ViaError::InvalidParameter) };
            let ticket = vi.queue(side).works.push(work);
            match (vi_state, side) {
                (ViState::Connected, Side::Send) => state.start_sends(&self.node, id),
                (ViState::Error, _) | (_, Side::Send) => flush_one(state, id, side, ticket),
                _ => {}
            }
            Ok(!state.transfers.is_empty())
        })?;
        if has_begun {
            self.pump();
        }
        Ok(())
    }

    /// Takes the first descriptor of a queue, if it has ended: `VipSendDone`, `VipRecvDone`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::NotDone`]; [`ViaError::Descriptor`] where the queue is
    /// empty.
    pub fn done(&self, id: u32, side: Side) -> Result<Ended, ViaError> {
        self.poll(|state| take(state, id, side))
    }

    /// The same, and waits: `VipSendWait`, `VipRecvWait`. `None` waits for ever.
    ///
    /// # Errors
    /// As for [`Via::done`], and [`ViaError::Timeout`].
    pub fn wait_done(&self, id: u32, side: Side, within: Option<Duration>) -> Result<Ended, ViaError> {
        self.wait(within, |state| take(state, id, side))
    }

    /// Has a handler be called, once, with the next descriptor of a queue that has ended: `VipSendNotify`,
    /// `VipRecvNotify`. It is taken from the queue then.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn notify(&self, id: u32, side: Side, notify: Notify) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let vi = state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?;
            vi.queue(side).notifies.push_back(notify);
            state.tell_completions(id, side);
            Ok(())
        })
    }
}

fn take(state: &mut State, id: u32, side: Side) -> Result<Ended, ViaError> {
    let works = &mut state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?.queue(side).works;
    match works.take() {
        Some((at, is_well)) => Ok(Ended { at, is_well }),
        None if works.is_empty() => Err(ViaError::Descriptor),
        None => Err(ViaError::NotDone),
    }
}

//! Messages that have come: read where they lie, and released.

use standpipe::Rank;

use super::arrived::{Body, Received};
use super::error::PmError;
use super::{Context, Pm};

/// Polls, at most, in which a call takes in what still moves after a loss.
const SETTLING_POLLS: u32 = 64;

impl Pm {
    /// The next message of a context, where it lies: `pmReceive`. Its bytes stay until [`Pm::release`]. Never
    /// waits. A context that is not composite gives the same message again until then.
    ///
    /// # Errors
    /// [`PmError::Busy`] where a composite context has one that is not released. [`PmError::NoBuffers`] where
    /// none has come. When none has come: [`PmError::Io`], once, where a message was refused as damaged, and
    /// [`PmError::Reset`] where a peer was lost or all have left.
    pub fn receive(&mut self, context: Context) -> Result<(*const u8, usize), PmError> {
        let state = self.state(context)?;
        if let Some(received) = &state.received {
            let place = place_of(&received.body, &state.short_in);
            return if state.is_composite { Err(PmError::Busy) } else { Ok(place) };
        }
        let mut next = self.arrived().next(context.0);
        if next.is_none() {
            self.progress();
            next = self.arrived().next(context.0);
            // A loss that is known stays known: what else moves, as the news of it does, is taken in before.
            for _ in 0..SETTLING_POLLS {
                if next.is_some() || !self.is_over() || self.idle > 0 {
                    break;
                }
                self.progress();
                next = self.arrived().next(context.0);
            }
        }
        let Some(received) = next else { return Err(self.why_nothing()) };
        self.idle = 0;
        let state = self.state(context)?;
        if let Body::Words(words, _) = received.body {
            state.short_in.copy_from_slice(&words);
        }
        let place = place_of(&received.body, &state.short_in);
        state.received = Some(received);
        Ok(place)
    }

    /// The sender of the message that was received last and is not released. Not of PM's own: its programs
    /// say in the message who sends it.
    pub fn sender(&self, context: Context) -> Option<Rank> {
        self.contexts[usize::from(context.0)].as_ref()?.received.as_ref().map(|received| received.from)
    }

    fn why_nothing(&mut self) -> PmError {
        let refused = self.arrived().refused;
        if refused > self.refused_told {
            self.refused_told = refused;
            return PmError::Io;
        }
        if self.is_over() && self.idle > 0 { PmError::Reset } else { PmError::NoBuffers }
    }

    /// Whether nothing can come any more, or a process has died.
    fn is_over(&self) -> bool {
        self.is_reset || (self.are_alone && self.launched.pending == 0)
    }

    /// Gives back the message that was received last: `pmReleaseReceiveBuffer`. Its bytes are not there any
    /// more.
    ///
    /// # Errors
    /// [`PmError::Io`] where there is none.
    pub fn release(&mut self, context: Context) -> Result<(), PmError> {
        let received = self.state(context)?.received.take().ok_or(PmError::Io)?;
        self.give_back(context.0, received);
        Ok(())
    }

    /// The program is done with a message: its sender gets credits, if it is time.
    fn give_back(&mut self, channel: u16, received: Received) {
        let from = received.from;
        let due = self.arrived().release(channel, received);
        if let Some(count) = due
            && !self.send_credits(channel, from, count)
            && !self.due.contains(&(channel, from))
        {
            self.due.push((channel, from));
        }
    }

    /// Gives back all that has come: nobody will receive it.
    pub(super) fn discard(&mut self) {
        for channel in 0..self.contexts.len() {
            let received = self.contexts[channel].as_mut().and_then(|state| state.received.take());
            let channel = channel as u16;
            if let Some(received) = received {
                self.give_back(channel, received);
            }
            loop {
                let next = self.arrived().next(channel);
                let Some(received) = next else { break };
                self.give_back(channel, received);
            }
        }
    }
}

/// Where a message's bytes lie, and how many there are.
fn place_of(body: &Body, short_in: &[u64]) -> (*const u8, usize) {
    match body {
        Body::Kept(payload) => (payload.as_ptr(), payload.len()),
        Body::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
        Body::Words(_, len) => (short_in.as_ptr().cast(), *len),
    }
}

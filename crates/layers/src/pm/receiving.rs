//! Messages that have come: read where they lie, and released.

use standpipe::Rank;

use super::error::PmError;
use super::{Context, Pm};

impl Pm {
    /// The next message of a context, where it lies: `pmReceive`. Its bytes stay until [`Pm::release`]. Never
    /// waits. A context that is not composite gives the same message again until then.
    ///
    /// # Errors
    /// [`PmError::Busy`] where a composite context has one that is not released; [`PmError::NoBuffers`]
    /// where none has come; when none has come: [`PmError::Io`], once, where a message was refused as
    /// damaged, and [`PmError::Reset`] where a peer was lost or all have left.
    pub fn receive(&mut self, context: Context) -> Result<(*const u8, usize), PmError> {
        let state = self.state(context)?;
        if let Some(received) = &state.received {
            let bytes = received.body.bytes();
            return if state.is_composite { Err(PmError::Busy) } else { Ok((bytes.as_ptr(), bytes.len())) };
        }
        let mut next = self.arrived().next(context.0);
        if next.is_none() {
            self.progress();
            next = self.arrived().next(context.0);
        }
        let Some(received) = next else { return Err(self.why_nothing()) };
        self.idle = 0;
        let bytes = received.body.bytes();
        let place = (bytes.as_ptr(), bytes.len());
        self.state(context)?.received = Some(received);
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
        let is_over = self.is_reset || (self.are_alone && self.pending == 0);
        if is_over && self.idle > 0 { PmError::Reset } else { PmError::NoBuffers }
    }

    /// Gives back the message that was received last: `pmReleaseReceiveBuffer`. Its bytes are not there any
    /// more.
    ///
    /// # Errors
    /// [`PmError::Io`] where there is none.
    pub fn release(&mut self, context: Context) -> Result<(), PmError> {
        let received = self.state(context)?.received.take().ok_or(PmError::Io)?;
        let from = received.from;
        let due = self.arrived().release(context.0, received);
        if let Some(count) = due
            && !self.send_credits(context.0, from, count)
            && !self.due.contains(&(context.0, from))
        {
            self.due.push((context.0, from));
        }
        Ok(())
    }
}

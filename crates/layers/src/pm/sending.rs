//! Messages on their way out: written in the library's buffers, launched in order, sent when there is room.

use super::error::{PmError, of_transport};
use super::progress::Tried;
use super::wire::{MTU, WORDS_MAX, first_bytes};
use super::{Buffer, Context, Outgoing, Pm, SEND_BUFFERS};

impl Pm {
    /// A buffer for a message of `len` bytes to `dest`: `pmGetSendBuffer`. The program writes it, and
    /// [`Pm::send`] launches it. Never waits. A second one, of a context that is not composite, gives the
    /// first one back unsent, unless the call fails.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not and lengths outside 1 to [`MTU`]. [`PmError::Busy`]
    /// where a composite context has one already. [`PmError::NoBuffers`] while [`SEND_BUFFERS`] are in use,
    /// or the node has no more. [`PmError::Reset`] where they are, and the peer is lost or has left
    pub fn send_buffer(&mut self, context: Context, dest: i64, len: usize) -> Result<*mut u8, PmError> {
        let state = self.state(context)?;
        if state.is_composite && state.sending.is_some() {
            return Err(PmError::Busy);
        }
        let dest = self.rank_of(dest)?;
        if !(1..=MTU).contains(&len) {
            return Err(PmError::Invalid);
        }
        if self.launched.pending >= SEND_BUFFERS {
            self.progress();
            if self.launched.pending >= SEND_BUFFERS {
                return Err(if self.is_gone(dest) { PmError::Reset } else { PmError::NoBuffers });
            }
        }
        let state = self.state(context)?;
        let (buffer, start) = if len <= WORDS_MAX {
            state.short_out.fill(0);
            (Buffer::Short, state.short_out.as_mut_ptr().cast())
        } else {
            let prepared = self.node.prepare_medium(dest, len, len);
            let mut buffer = prepared.map_err(|error| {
                // The program will ask again.
                self.progress();
                of_transport(&error)
            })?;
            let start = buffer.as_mut_ptr();
            (Buffer::Long(buffer), start)
        };
        // Only now: a program whose call fails still has the buffer that it got before.
        self.state(context)?.sending = Some(Outgoing { dest, len, buffer });
        Ok(start)
    }

    /// Launches the message in the context's send buffer: `pmSend` \[recalled\]. Where the receiver takes no
    /// more now, it is sent in a later call.
    ///
    /// # Errors
    /// [`PmError::Invalid`] where there is no buffer; [`PmError::Reset`] where the peer is lost.
    pub fn send(&mut self, context: Context) -> Result<(), PmError> {
        let mut outgoing = self.state(context)?.sending.take().ok_or(PmError::Invalid)?;
        if self.is_reset && self.node.is_lost(outgoing.dest) {
            // A network takes messages for a lost peer for a while.
            return Err(PmError::Reset);
        }
        let state = self.state(context)?;
        if let Buffer::Short = outgoing.buffer {
            let words = [state.short_out[0], state.short_out[1]];
            outgoing.buffer = Buffer::Words(first_bytes(words, outgoing.len));
            self.launched.copied_bytes += outgoing.len as u64;
        }
        let state = self.state(context)?;
        let tried = match state.pending.iter().any(|before| before.dest == outgoing.dest) {
            true => Tried::Held(outgoing),
            false => self.try_send(context, outgoing),
        };
        match tried {
            Tried::Sent => Ok(()),
            Tried::Failed(error) => Err(error),
            Tried::Held(outgoing) => {
                self.state(context)?.pending.push_back(outgoing);
                self.launched.pending += 1;
                Ok(())
            }
        }
    }
}

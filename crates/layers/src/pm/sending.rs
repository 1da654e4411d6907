//! Messages on their way out: written in the library's buffers, launched in order, sent when there is room.

use standpipe::Rank;

use super::error::{PmError, of_transport};
use super::wire::{MTU, Message};
use super::{Context, Outgoing, Pm, SEND_BUFFERS, Started};

/// What became of trying to send one.
enum Tried {
    Sent,
    /// Its peer takes nothing more now.
    Held(Outgoing),
    Failed(PmError),
}

impl Pm {
    /// A buffer for a message of `len` bytes to `dest`: `pmGetSendBuffer`. The program writes it, and
    /// [`Pm::send`] launches it. Never waits. A second one, of a context that is not composite, gives the
    /// first one back unsent.
    ///
    /// # Errors
    /// [`PmError::Invalid`] for a node that there is not and lengths outside 1 to [`MTU`];
    /// [`PmError::Busy`] where a composite context has one already; [`PmError::NoBuffers`] while
    /// [`SEND_BUFFERS`] are in use, or the node has no more; [`PmError::Reset`] where they are, and the peer is
    /// lost or has left.
    pub fn send_buffer(&mut self, context: Context, dest: i64, len: usize) -> Result<*mut u8, PmError> {
        let state = self.state(context)?;
        if state.is_composite && state.sending.is_some() {
            return Err(PmError::Busy);
        }
        state.sending = None;
        let dest = self.rank_of(dest)?;
        if !(1..=MTU).contains(&len) {
            return Err(PmError::Invalid);
        }
        if self.pending >= SEND_BUFFERS {
            self.progress();
            if self.pending >= SEND_BUFFERS {
                return Err(if self.is_gone(dest) { PmError::Reset } else { PmError::NoBuffers });
            }
        }
        let prepared = self.node.prepare_medium(dest, len, len);
        let mut buffer = prepared.map_err(|error| of_transport(&error))?;
        let start = buffer.as_mut_ptr();
        self.state(context)?.sending = Some(Outgoing { dest, len, buffer });
        Ok(start)
    }

    /// Launches the message in the context's send buffer: `pmSend` \[recalled\]. Where the receiver takes no
    /// more now, it is sent in a later call.
    ///
    /// # Errors
    /// [`PmError::Invalid`] where there is no buffer; [`PmError::Reset`] where the peer is lost.
    pub fn send(&mut self, context: Context) -> Result<(), PmError> {
        let state = self.state(context)?;
        let outgoing = state.sending.take().ok_or(PmError::Invalid)?;
        let tried = match state.pending.iter().any(|before| before.dest == outgoing.dest) {
            true => Tried::Held(outgoing),
            false => self.try_send(context, outgoing),
        };
        match tried {
            Tried::Sent => Ok(()),
            Tried::Failed(error) => Err(error),
            Tried::Held(outgoing) => {
                self.state(context)?.pending.push_back(outgoing);
                self.pending += 1;
                Ok(())
            }
        }
    }

    fn try_send(&mut self, context: Context, outgoing: Outgoing) -> Tried {
        let Outgoing { dest, len, buffer } = outgoing;
        if !self.arrived().take_place(context.0, dest) {
            return Tried::Held(Outgoing { dest, len, buffer });
        }
        let words = Message::Data { channel: context.0 }.words();
        match buffer.try_commit(self.handler, words, len) {
            Ok(None) => Tried::Sent,
            Ok(Some(buffer)) => {
                self.arrived().give_place_back(context.0, dest);
                Tried::Held(Outgoing { dest, len, buffer })
            }
            Err(error) => Tried::Failed(of_transport(&error)),
        }
    }

    /// Sends what it can of what waits, in order for each peer. Whether any went.
    pub(super) fn send_pending(&mut self) -> bool {
        let before = self.pending;
        for channel in 0..self.contexts.len() {
            let Some(state) = &mut self.contexts[channel] else { continue };
            if state.pending.is_empty() {
                continue;
            }
            let waiting = std::mem::take(&mut state.pending);
            self.send_in_order(Context(channel as u16), waiting);
        }
        self.pending < before
    }

    fn send_in_order(&mut self, context: Context, mut waiting: std::collections::VecDeque<Outgoing>) {
        let mut stuck: Vec<Rank> = Vec::new();
        for _ in 0..waiting.len() {
            let Some(outgoing) = waiting.pop_front() else { break };
            if stuck.contains(&outgoing.dest) {
                waiting.push_back(outgoing);
                continue;
            }
            let is_gone = self.is_gone(outgoing.dest);
            let tried = match is_gone {
                true => Tried::Failed(PmError::Reset),
                false => self.try_send(context, outgoing),
            };
            match tried {
                Tried::Sent => self.pending -= 1,
                Tried::Held(outgoing) => {
                    stuck.push(outgoing.dest);
                    waiting.push_back(outgoing);
                }
                Tried::Failed(error) => {
                    self.pending -= 1;
                    if let Some(state) = &mut self.contexts[usize::from(context.0)] {
                        state.failed[Started::Sends as usize].get_or_insert(error);
                    }
                }
            }
        }
        if let Some(state) = &mut self.contexts[usize::from(context.0)] {
            state.pending = waiting;
        }
    }
}

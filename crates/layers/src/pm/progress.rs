//! What all calls of PM stand on: its state, and going on with all that is under way.

use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError};

use standpipe::Rank;

use super::arrived::Arrived;
use super::error::{PmError, of_transport};
use super::transfers::Direction;
use super::wire::{Head, Message};
use super::{Buffer, Context, Outgoing, Pm, Started, State};

/// Polls in vain after which a peer's loss is looked for.
const IDLE_LOOK: u32 = 64;

/// What became of trying to send one.
pub(super) enum Tried {
    Sent,
    /// Its peer takes nothing more now.
    Held(Outgoing),
    Failed(PmError),
}

impl Pm {
    pub(super) fn arrived(&self) -> MutexGuard<'_, Arrived> {
        // Nothing that panics leaves it half changed, as far as its readers care.
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&mut self, context: Context) -> Result<&mut State, PmError> {
        self.contexts[usize::from(context.0)].as_mut().ok_or(PmError::Invalid)
    }

    /// A number of a program's, as a rank.
    pub(super) fn rank_of(&self, node: i64) -> Result<Rank, PmError> {
        Rank::try_from(node).ok().filter(|rank| *rank < self.node.size()).ok_or(PmError::Invalid)
    }

    /// Makes progress: takes what has come, sends what waits, goes on with transfers. Never waits.
    pub fn progress(&mut self) {
        let mut has_moved = self.node.progress();
        if !self.due.is_empty() {
            self.give_credits();
        }
        if self.launched.pending > 0 {
            has_moved |= self.send_pending();
        }
        if !self.transfers.is_empty() {
            self.advance_transfers();
        }
        if has_moved { self.idle = 0 } else { self.idle_on() }
    }

    fn idle_on(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(IDLE_LOOK) {
            self.look_for_losses();
        }
    }

    fn look_for_losses(&mut self) {
        let others = (0..self.node.size()).filter(|rank| *rank != self.node.rank());
        let arrived = self.arrived();
        let has_died = |rank| self.node.is_lost(rank) && !arrived.has_left(rank);
        let is_reset = others.clone().any(has_died);
        let are_alone = self.node.size() > 1 && others.clone().all(|rank| arrived.has_left(rank));
        drop(arrived);
        (self.is_reset, self.are_alone) = (self.is_reset || is_reset, are_alone);
    }

    /// Whether nothing more can be done with that peer.
    pub(super) fn is_gone(&self, peer: Rank) -> bool {
        peer != self.node.rank() && (self.node.is_lost(peer) || self.arrived().has_left(peer))
    }

    fn advance_transfers(&mut self) {
        self.transfers.advance(&self.node, self.memory, &mut self.ended);
        for ended in self.ended.drain(..) {
            let Some(state) = self.contexts[usize::from(ended.channel)].as_mut() else { continue };
            if let Some(number) = ended.number {
                state.written.push((number, ended.result));
            } else if let Err(error) = ended.result {
                let started = match ended.direction {
                    Direction::Write => Started::Writes,
                    Direction::Read => Started::Reads,
                };
                state.failed[started as usize].get_or_insert(error);
            }
        }
    }

    pub(super) fn try_send(&mut self, context: Context, outgoing: Outgoing) -> Tried {
        let (channel, Outgoing { dest, len, buffer }) = (context.0, outgoing);
        let Some(credits) = self.arrived().take_place(channel, dest) else {
            return Tried::Held(Outgoing { dest, len, buffer });
        };
        let head = Head { channel, credits, unlocked: self.locks.unlocked() };
        let sent = match buffer {
            Buffer::Short => Ok(None),
            Buffer::Words(words) => {
                let message = Message::Words { head, len, words }.words();
                let sent = self.node.try_request(dest, self.handler, message);
                sent.map(|is_sent| (!is_sent).then_some(Buffer::Words(words)))
            }
            Buffer::Long(buffer) => {
                let kept = buffer.try_commit(self.handler, Message::Data(head).words(), len);
                kept.map(|kept| kept.map(Buffer::Long))
            }
        };
        match sent {
            Ok(None) => Tried::Sent,
            Ok(Some(buffer)) => {
                self.arrived().give_place_back(channel, dest, credits);
                Tried::Held(Outgoing { dest, len, buffer })
            }
            Err(error) => Tried::Failed(of_transport(&error)),
        }
    }

    /// Sends what it can of what waits, in order for each peer. Whether any went.
    fn send_pending(&mut self) -> bool {
        let before = self.launched.pending;
        for channel in 0..self.contexts.len() {
            let Some(state) = &mut self.contexts[channel] else { continue };
            if state.pending.is_empty() {
                continue;
            }
            let waiting = std::mem::take(&mut state.pending);
            self.send_in_order(Context(channel as u16), waiting);
        }
        self.launched.pending < before
    }

    fn send_in_order(&mut self, context: Context, mut waiting: VecDeque<Outgoing>) {
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
                Tried::Sent => self.launched.pending -= 1,
                Tried::Held(outgoing) => {
                    stuck.push(outgoing.dest);
                    waiting.push_back(outgoing);
                }
                Tried::Failed(error) => {
                    self.launched.pending -= 1;
                    self.launched.dropped += 1;
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

    /// Gives places back to a sender: whether it is done with, as the sender knows, or is gone.
    pub(super) fn send_credits(&self, channel: u16, peer: u32, count: u32) -> bool {
        let words = Message::Credits { channel, count }.words();
        match self.node.try_request(peer, self.handler, words) {
            Ok(true) => {
                self.arrived().give_credits(channel, peer, count);
                true
            }
            Ok(false) => false,
            Err(_) => true,
        }
    }

    fn give_credits(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        due.retain(|(channel, peer)| {
            let count = self.arrived().due(*channel, *peer);
            count > 0 && !self.send_credits(*channel, *peer, count)
        });
        self.due = due;
    }
}

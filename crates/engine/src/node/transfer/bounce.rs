//! Long pieces of transfers by messages: through *stages*, blocks of their owner's heap, instead of chunks inside messages.
//!
//! A peer's private memory that cannot be reached one-sided goes by message. Where its heap can be reached one-sided, most
//! of the way is free of messages all the same: the owner copies between its memory and a stage, and the initiator between
//! the stage and its own memory. A *relay* has one stage at a time, and moves piece after piece of its transfer through it;
//! a few of them take turns, so that one copies at the owner while another does here. Pieces that a relay cannot move, for
//! want of a stage or since there is nothing at an address, go by chunks, whose answers say what is wrong with which.
//!
//! A relay outlives its transfer when that ends before its time: what the network still brings must not find another's
//! bytes in the stage, so that this is given back only when nothing is under way to it any more.

use super::bounce_pool::{Relay, Step};
use crate::node::Node;
use crate::node::op::{OpKind, Outcome};
use crate::op_id::{OpId, OpKey};
use crate::path::{self, Limits, Path};
use crate::wire::{Message, StageAct, StageAsk, Staged, Status};
use crate::{Direction, Lane, MemId, OpError, Piece, Place, Rank, Submit, Transport};

/// Chunks that a piece of a transfer by messages must have to be worth the messages that a stage costs.
pub const STAGED_CHUNKS_MIN: u64 = 16;

impl<T: Transport> Node<T> {
    /// Whether this piece of a transfer by messages is one for relays.
    pub(in crate::node) fn is_for_relays(&mut self, peer: Rank, piece: Piece) -> bool {
        let staged_min = STAGED_CHUNKS_MIN * self.transport.payload_max() as u64;
        // Only where it decides: a network may ask the peer for it.
        let stages = piece.remote.mem == MemId::Space
            && piece.len >= staged_min
            && self.transport.stage_bytes() > 0
            && self.transport.reaches_stages(peer);
        let limits = Limits { staged_min, stages, ..Limits::default() };
        path::by_message(piece.remote.mem, piece.len, limits) == Path::Staged
    }

    /// Sets one more relay to work for a transfer. `false`: it has as many as it may.
    pub(in crate::node) fn add_relay(&mut self, transfer: OpKey) -> bool {
        let Some(of) = self.transfer_under_way(transfer) else { return false };
        if of.relays >= of.relays_max {
            return false;
        }
        of.relays += 1;
        let (peer, direction) = (of.peer, of.direction);
        let nowhere =
            Piece { remote: Place::new(MemId::Space, 0), local: Place::new(MemId::Space, 0), len: 0 };
        let relay = Relay { peer, direction, piece: nowhere, stage: None, step: Step::Asked };
        let key = self.insert_child(OpKind::Relay(relay), transfer);
        self.next_for(key);
        true
    }

    /// Takes a transfer's next piece to a relay that has none, or ends the relay.
    fn next_for(&mut self, key: OpKey) {
        let Some(piece) = self.take_piece(key) else { return self.end_relay(key, Ok(0)) };
        let Some(relay) = self.relay(key) else { return };
        (relay.piece, relay.step) = (piece, Step::Asked);
        match (relay.direction, relay.stage) {
            (Direction::Get, _) => self.ask_owner(key, StageAct::Fill),
            (Direction::Put, None) => self.ask_owner(key, StageAct::Take),
            (Direction::Put, Some(stage)) => self.copy_stage(key, stage),
        }
    }

    /// The next piece for a relay, off the transfer that it works for.
    fn take_piece(&mut self, key: OpKey) -> Option<Piece> {
        let transfer = self.ops.get(key)?.parent?;
        let of = self.transfer_under_way(transfer)?;
        let (peer, piece) = (of.peer, *of.rest.last().filter(|_| of.error.is_none() && of.relays_max > 0)?);
        if !self.is_for_relays(peer, piece) {
            return None;
        }
        let len = piece.len.min(self.transport.stage_bytes());
        let rest = &mut self.transfer_under_way(transfer)?.rest;
        rest.pop();
        if len < piece.len {
            let (remote, local) = (piece.remote.plus(len), piece.local.plus(len));
            rest.push(Piece { remote, local, len: piece.len - len });
        }
        Some(Piece { len, ..piece })
    }

    /// Asks a relay's peer to do something with its stage.
    fn ask_owner(&mut self, key: OpKey, act: StageAct) {
        let Some(relay) = self.relay(key) else { return };
        let peer = relay.peer;
        let ask = StageAsk {
            act,
            op: OpId::of(key),
            stage: relay.stage,
            at: relay.piece.remote.offset,
            len: relay.piece.len as u32,
        };
        if let Err(error) = self.send_soon(peer, Lane::Request, Message::Stage(ask)) {
            self.end_relay(key, Err(error));
        }
    }

    /// Copies between a relay's stage and this process's memory.
    fn copy_stage(&mut self, key: OpKey, stage: u64) {
        let Some(relay) = self.relay(key) else { return };
        relay.step = Step::Copying;
        let (peer, direction, piece) = (relay.peer, relay.direction, relay.piece);
        let Some(piece) = Piece::new(Place::new(MemId::Heap, stage), piece.local, piece.len) else {
            return self.leave_to_chunks(key, true);
        };
        match self.transport.copy_staged(OpId::of(key), peer, direction, piece) {
            Submit::Pending => {}
            Submit::Done(_) => self.on_staged_copy(key, Ok(0)),
            Submit::Failed(error) => self.on_staged_copy(key, Err(error)),
            Submit::Unreachable(_) => self.leave_to_chunks(key, true),
        }
    }

    /// The copy between a relay's stage and this process's memory has ended.
    pub(in crate::node) fn on_staged_copy(&mut self, key: OpKey, result: Outcome) {
        let is_orphan = self.ops.get(key).is_none_or(|op| op.parent.is_none());
        let Some(relay) = self.relay(key) else { return };
        match (result, relay.direction) {
            _ if is_orphan => self.end_relay(key, Ok(0)),
            (Err(error @ OpError::PeerLost { .. }), _) => self.end_relay(key, Err(error)),
            (Err(_), _) => self.leave_to_chunks(key, true),
            (Ok(_), Direction::Get) => {
                self.counters.staged += relay.piece.len;
                self.next_for(key);
            }
            (Ok(_), Direction::Put) => {
                relay.step = Step::Draining;
                self.ask_owner(key, StageAct::Drain);
            }
        }
    }

    /// Takes the answer to what a relay has asked for.
    pub(in crate::node) fn on_staged(&mut self, peer: Rank, staged: &Staged) {
        let id = staged.op;
        let key = id.key();
        let is_known = OpId::of(key) == id;
        let Some(op) = self.ops.get_mut(key).filter(|op| is_known && op.outcome.is_none()) else { return };
        let is_orphan = op.parent.is_none();
        let relay = match &mut op.kind {
            OpKind::Relay(relay) if relay.peer == peer && relay.step != Step::Copying => relay,
            _ => {
                self.counters.malformed += 1;
                return;
            }
        };
        let (asked, len) = (relay.step == Step::Asked, relay.piece.len);
        if asked && relay.stage.is_none() {
            relay.stage = staged.stage;
        }
        match (staged.status, relay.stage) {
            _ if is_orphan => self.end_relay(key, Ok(0)),
            (Some(Status::Ok), Some(stage)) if asked => self.copy_stage(key, stage),
            (Some(Status::Ok), Some(_)) => {
                self.counters.staged += len;
                self.next_for(key);
            }
            // Others of the transfer's may have one.
            (Some(Status::NoStage), None) => self.leave_to_chunks(key, false),
            (Some(Status::NeverStage), None) => {
                self.stages.was_refused(peer);
                self.leave_to_chunks(key, true);
            }
            _ => self.leave_to_chunks(key, true),
        }
    }

    /// Gives a relay's piece back to its transfer, and ends the relay. From now on the transfer has fewer of them, or
    /// `none`, as soon as those at work have moved what they are at.
    fn leave_to_chunks(&mut self, key: OpKey, none: bool) {
        let Some(piece) = self.relay(key).map(|relay| relay.piece) else { return };
        if let Some(of) = self.ops[key].parent.and_then(|transfer| self.transfer_under_way(transfer)) {
            of.rest.push(piece);
            of.relays_max = if none { 0 } else { of.relays_max.min(of.relays - 1) };
        }
        self.end_relay(key, Ok(0));
    }

    /// Ends a relay, whose stage nothing is under way to any more.
    fn end_relay(&mut self, key: OpKey, outcome: Outcome) {
        let Some(relay) = self.relay(key) else { return };
        let (peer, stage) = (relay.peer, relay.stage.take());
        if let Some(stage) = stage {
            // Whoever is gone has taken it back by itself.
            let _ = self.send_soon(peer, Lane::Request, Message::StageGive { stage: Some(stage) });
        }
        match self.ops[key].parent {
            Some(_) => self.finish(key, outcome),
            None => {
                self.stages.end_orphan(peer);
                self.ops.remove(key);
            }
        }
    }

    /// What a relay asked for could not be sent in the end.
    pub(in crate::node) fn on_unsent_request(&mut self, id: OpId, error: OpError) {
        if OpId::of(id.key()) == id {
            self.end_relay(id.key(), Err(error));
        }
    }

    /// A relay of a transfer has ended.
    pub(in crate::node) fn on_relay_over(&mut self, transfer: OpKey, outcome: Outcome) {
        let Some(of) = self.transfer_under_way(transfer) else { return };
        of.relays -= 1;
        if let Err(error) = outcome {
            of.error.get_or_insert(error);
        }
        self.pump(transfer);
    }

    /// Lets a transfer's relays end without it, which is over before its time: they touch its memory no more. What they have not
    /// asked for yet they do not ask for: it might come after what the caller puts next.
    pub(in crate::node) fn orphan_relays(&mut self, transfer: OpKey) {
        let Some(of) = self.transfer_under_way(transfer) else { return };
        if std::mem::take(&mut of.relays) == 0 {
            return;
        }
        let mut relays = Vec::new();
        for (key, op) in self.ops.iter_mut().filter(|(_, op)| op.parent == Some(transfer)) {
            op.parent = None;
            if let OpKind::Relay(relay) = &op.kind {
                self.stages.add_orphan(relay.peer);
                relays.push(key);
                if relay.step == Step::Copying {
                    self.transport.abandon(OpId::of(key));
                }
            }
        }
        for key in relays {
            if self.take_unsent(key) {
                self.end_relay(key, Ok(0));
            }
        }
    }

    /// Takes what a relay asks for back, if it has not been sent. Returns whether it had not.
    fn take_unsent(&mut self, key: OpKey) -> bool {
        let (id, before) = (OpId::of(key), self.outbox.len());
        self.outbox.retain(|(.., message)| !matches!(message, Message::Stage(ask) if ask.op == id));
        self.outbox.len() < before
    }

    /// Ends a relay whose peer is gone, which has its stage no more.
    pub(in crate::node) fn drop_relay(&mut self, key: OpKey, error: OpError) {
        let Some(relay) = self.relay(key) else { return };
        relay.stage = None;
        if relay.step == Step::Copying {
            self.transport.abandon(OpId::of(key));
        }
        self.end_relay(key, Err(error));
    }

    fn relay(&mut self, key: OpKey) -> Option<&mut Relay> {
        match &mut self.ops.get_mut(key)?.kind {
            OpKind::Relay(relay) => Some(relay),
            _ => None,
        }
    }

    /// Takes a peer's wish for a stage, for one that is filled, or that one is drained, and answers it.
    pub(in crate::node) fn serve_stage(&mut self, peer: Rank, ask: &StageAsk) {
        let held = ask.stage;
        let stage = match held {
            Some(offset) => held.filter(|_| self.stages.is_held(peer, offset)),
            None if ask.act == StageAct::Drain => None,
            None => self.lend_stage(peer),
        };
        let status = match stage {
            None if held.is_some() => Status::Fault,
            None if self.exposed.is_some() || self.stages.are_none() => Status::NeverStage,
            None => Status::NoStage,
            Some(_) if ask.act == StageAct::Take => Status::Ok,
            Some(offset) => Status::of(&self.copy_own(peer, ask, offset)),
        };
        let staged = Staged { op: ask.op, status: Some(status), stage };
        self.answer(peer, Message::Staged(staged), 0);
    }

    /// Copies between a stage of this process's and the memory that a message names.
    fn copy_own(&mut self, peer: Rank, ask: &StageAsk, stage: u64) -> Result<(), OpError> {
        let (own, stage) = (Place::new(MemId::Space, ask.at), Place::new(MemId::Heap, stage));
        let len = u64::from(ask.len);
        if len > self.transport.stage_bytes() {
            return Err(OpError::LocalFault { mem: stage.mem, addr: stage.offset, len });
        }
        let (direction, from, to) = match ask.act {
            StageAct::Fill => (Direction::Get, own, stage),
            _ => (Direction::Put, stage, own),
        };
        self.permit(peer, direction, own, len)?;
        self.transport.copy_own(from, to, len)?;
        self.count_served(peer, len);
        Ok(())
    }

    /// A stage for a peer, if there is one for it.
    fn lend_stage(&mut self, peer: Rank) -> Option<u64> {
        // All who map the heap could look into it: where not all is exposed, nothing that is not theirs may lie there.
        if self.exposed.is_some() || self.is_gone(peer) || !self.stages.may_have(peer) {
            return None;
        }
        let free = self.stages.lend(peer);
        if free.is_some() {
            return free;
        }
        let offset = self.transport.make_stage()?;
        self.stages.add(offset);
        self.stages.lend(peer)
    }

    /// Takes back a stage that a peer has no use for any more.
    pub(in crate::node) fn on_stage_give(&mut self, peer: Rank, stage: Option<u64>) {
        match stage.filter(|offset| self.stages.is_held(peer, *offset)) {
            Some(offset) => self.stages.take_back(peer, Some(offset)),
            // It may have been said before the peer was lost, and its stages were taken back.
            None => self.counters.malformed += u64::from(!self.is_gone(peer)),
        }
    }

    /// Takes back all stages of a peer that is gone.
    pub(in crate::node) fn take_stages_back(&mut self, peer: Rank) {
        self.stages.take_back(peer, None);
    }
}

//! Long pieces of transfers by messages: through *bounce buffers*, blocks of their owner's heap, instead of
//! chunks inside messages.
//!
//! A peer's private memory that cannot be reached one-sided goes by message. Where its heap can be reached
//! one-sided, most of the way is free of messages all the same. The owner copies between its memory and a
//! bounce buffer, and the initiator between the bounce buffer and its own memory. A *bounce* has one bounce
//! buffer at a time, and moves piece after piece of its transfer through it. A few of them take turns, so
//! that one copies at the owner while another does here. Pieces that a bounce cannot move, for want of a
//! bounce buffer or since there is nothing at an address, go by chunks, whose answers say what is wrong with
//! which.
//!
//! A bounce outlives its transfer when that ends before its time. Bytes that the network still brings must
//! not get among another's in the bounce buffer, so it is given back only when nothing is under way to it any
//! more.

use super::bounce_pool::{Bounce, BounceStep};
use crate::node::Node;
use crate::node::operations::op::{OpKind, Outcome};
use crate::node::operations::settling::Awaited;
use crate::op_id::{OpId, OpKey};
use crate::path::{self, Limits, Path};
use crate::wire::{BounceAct, BounceAsk, Bounced, Message, Status};
use crate::{Direction, Lane, MemId, OpError, Piece, Place, Rank, Submit, Transport};

/// Chunks that a piece of a transfer by messages must have to be worth the messages that a bounce buffer
/// costs.
pub const STAGED_CHUNKS_MIN: u64 = 16;

impl<T: Transport> Node<T> {
    /// Whether this piece of a transfer by messages is one for bounces.
    pub(in crate::node) fn is_for_bounce(&mut self, peer: Rank, piece: Piece) -> bool {
        let staged_min = STAGED_CHUNKS_MIN * self.core.transport.payload_max() as u64;
        // Only where it decides: a network may ask the peer for it.
        let stages = matches!(piece.remote.mem, MemId::Space | MemId::Grant(_))
            && piece.len >= staged_min
            && self.core.transport.bounce_bytes() > 0
            && self.core.transport.reaches_bounce_buffers(peer);
        let limits = Limits { staged_min, stages, ..Limits::default() };
        path::by_message(piece.remote.mem, piece.len, limits) == Path::Staged
    }

    /// Sets one more bounce to work for a transfer. `false`: it has as many as it may.
    pub(in crate::node) fn add_bounce(&mut self, transfer: OpKey) -> bool {
        let Some(of) = self.transfer_under_way(transfer) else { return false };
        if of.bounces >= of.bounces_max {
            return false;
        }
        of.bounces += 1;
        let (peer, direction) = (of.peer, of.direction);
        let nowhere =
            Piece { remote: Place::new(MemId::Space, 0), local: Place::new(MemId::Space, 0), len: 0 };
        let bounce = Bounce { peer, direction, piece: nowhere, buffer: None, step: BounceStep::Asked };
        let key = self.ops.insert_child(OpKind::Bounce(bounce), transfer);
        self.next_for(key);
        true
    }

    /// Takes a transfer's next piece to a bounce that has none, or ends the bounce.
    fn next_for(&mut self, key: OpKey) {
        let Some(piece) = self.take_piece(key) else { return self.end_bounce(key, Ok(0)) };
        let Some(bounce) = self.bounce_of(key) else { return };
        (bounce.piece, bounce.step) = (piece, BounceStep::Asked);
        match (bounce.direction, bounce.buffer) {
            (Direction::Get, _) => self.ask_owner(key, BounceAct::Fill),
            (Direction::Put, None) => self.ask_owner(key, BounceAct::Take),
            (Direction::Put, Some(buffer)) => self.copy_bounce_buffer(key, buffer),
        }
    }

    /// The next piece for a bounce, off the transfer that it works for.
    fn take_piece(&mut self, key: OpKey) -> Option<Piece> {
        let transfer = self.ops.get(key)?.parent?;
        let of = self.transfer_under_way(transfer)?;
        let (peer, piece) = (of.peer, *of.rest.last().filter(|_| of.error.is_none() && of.bounces_max > 0)?);
        if !self.is_for_bounce(peer, piece) {
            return None;
        }
        let len = piece.len.min(self.core.transport.bounce_bytes());
        let rest = &mut self.transfer_under_way(transfer)?.rest;
        rest.pop();
        if len < piece.len {
            let (remote, local) = (piece.remote.plus(len), piece.local.plus(len));
            rest.push(Piece { remote, local, len: piece.len - len });
        }
        Some(Piece { len, ..piece })
    }

    /// Asks a bounce's peer to do something with its bounce buffer.
    fn ask_owner(&mut self, key: OpKey, act: BounceAct) {
        let Some(bounce) = self.bounce_of(key) else { return };
        let peer = bounce.peer;
        let ask = BounceAsk {
            act,
            op: OpId::of(key),
            buffer: bounce.buffer,
            at: Some(bounce.piece.remote),
            len: bounce.piece.len as u32,
        };
        if let Err(error) = self.mail.send_soon(&mut self.core, peer, Lane::Request, Message::Bounce(ask)) {
            self.end_bounce(key, Err(error));
        }
    }

    /// Copies between a bounce's bounce buffer and this process's memory.
    fn copy_bounce_buffer(&mut self, key: OpKey, buffer: u64) {
        let Some(bounce) = self.bounce_of(key) else { return };
        bounce.step = BounceStep::Copying;
        let (peer, direction, piece) = (bounce.peer, bounce.direction, bounce.piece);
        let Some(piece) = Piece::new(Place::new(MemId::Heap, buffer), piece.local, piece.len) else {
            return self.leave_to_chunks(key, true);
        };
        match self.core.transport.copy_bounced(OpId::of(key), peer, direction, piece) {
            Submit::Pending => {}
            Submit::Done(_) => self.on_bounce_copied(key, Ok(0)),
            Submit::Failed(error) => self.on_bounce_copied(key, Err(error)),
            Submit::Unreachable(_) => self.leave_to_chunks(key, true),
        }
    }

    /// The copy between a bounce's bounce buffer and this process's memory has ended.
    pub(in crate::node) fn on_bounce_copied(&mut self, key: OpKey, result: Outcome) {
        let is_orphan = self.ops.get(key).is_none_or(|op| op.parent.is_none());
        let Some(bounce) = self.bounce_of(key) else { return };
        match (result, bounce.direction) {
            _ if is_orphan => self.end_bounce(key, Ok(0)),
            (Err(error @ OpError::PeerLost { .. }), _) => self.end_bounce(key, Err(error)),
            (Err(_), _) => self.leave_to_chunks(key, true),
            (Ok(_), Direction::Get) => {
                self.core.counters.staged += bounce.piece.len;
                self.next_for(key);
            }
            (Ok(_), Direction::Put) => {
                bounce.step = BounceStep::Draining;
                self.ask_owner(key, BounceAct::Drain);
            }
        }
    }

    /// Takes the answer to what a bounce has asked for.
    pub(in crate::node) fn on_bounced(&mut self, peer: Rank, bounced: &Bounced) {
        let id = bounced.op;
        let key = id.key();
        let is_known = OpId::of(key) == id;
        let Some(op) = self.ops.get_mut(key).filter(|op| is_known && op.outcome.is_none()) else { return };
        let is_orphan = op.parent.is_none();
        let bounce = match &mut op.kind {
            OpKind::Bounce(bounce) if bounce.peer == peer && bounce.step != BounceStep::Copying => bounce,
            _ => {
                self.core.counters.malformed += 1;
                return;
            }
        };
        let (asked, len) = (bounce.step == BounceStep::Asked, bounce.piece.len);
        if asked && bounce.buffer.is_none() {
            bounce.buffer = bounced.buffer;
        }
        match (bounced.status, bounce.buffer) {
            _ if is_orphan => self.end_bounce(key, Ok(0)),
            (Some(Status::Ok), Some(buffer)) if asked => self.copy_bounce_buffer(key, buffer),
            (Some(Status::Ok), Some(_)) => {
                self.core.counters.staged += len;
                self.next_for(key);
            }
            // Others of the transfer's may have one.
            (Some(Status::NoBuffer), None) => self.leave_to_chunks(key, false),
            (Some(Status::NeverBuffer), None) => {
                self.bounce_pool.was_refused(peer);
                self.leave_to_chunks(key, true);
            }
            _ => self.leave_to_chunks(key, true),
        }
    }

    /// Gives a bounce's piece back to its transfer, and ends the bounce. From now on the transfer has fewer
    /// of them, or `none`, as soon as those at work have moved what they are at.
    fn leave_to_chunks(&mut self, key: OpKey, none: bool) {
        let Some(piece) = self.bounce_of(key).map(|bounce| bounce.piece) else { return };
        if let Some(of) = self.ops[key].parent.and_then(|transfer| self.transfer_under_way(transfer)) {
            of.rest.push(piece);
            of.bounces_max = if none { 0 } else { of.bounces_max.min(of.bounces - 1) };
        }
        self.end_bounce(key, Ok(0));
    }

    /// Ends a bounce, whose bounce buffer nothing is under way to any more.
    fn end_bounce(&mut self, key: OpKey, outcome: Outcome) {
        let Some(bounce) = self.bounce_of(key) else { return };
        let (peer, buffer) = (bounce.peer, bounce.buffer.take());
        if let Some(buffer) = buffer {
            // A peer that is gone has taken it back by itself.
            let _ = self.mail.send_soon(
                &mut self.core,
                peer,
                Lane::Request,
                Message::BounceGive { buffer: Some(buffer) },
            );
        }
        match self.ops[key].parent {
            Some(_) => self.ops.finish(key, outcome),
            None => {
                self.bounce_pool.end_orphan(peer);
                self.ops.remove(key);
                self.ops.has_settled(Awaited::Bounce(key), None);
            }
        }
    }

    /// The request of a bounce could not be sent in the end.
    pub(in crate::node) fn on_unsent_request(&mut self, id: OpId, error: OpError) {
        let key = id.key();
        match self.ops.get(key).map(|op| &op.kind) {
            Some(OpKind::HandlerAsk { .. }) => self.ops.finish(key, Err(error)),
            _ if OpId::of(key) == id => self.end_bounce(key, Err(error)),
            _ => {}
        }
    }

    /// A bounce of a transfer has ended.
    pub(in crate::node) fn on_bounce_over(&mut self, transfer: OpKey, outcome: Outcome) {
        let Some(of) = self.transfer_under_way(transfer) else { return };
        assert!(of.bounces > 0, "a bounce ends once");
        of.bounces -= 1;
        if let Err(error) = outcome {
            of.error.get_or_insert(error);
        }
        self.pump(transfer);
    }

    /// Lets a transfer's bounces end without it, which is over before its time: they touch its memory no
    /// more. Pieces that they have not asked for yet they do not ask for: they might come after what the
    /// caller puts next. Adds those to `awaited` whose bytes the peer may still copy on.
    pub(in crate::node) fn orphan_bounces(&mut self, transfer: OpKey, awaited: &mut Vec<Awaited>) {
        let Some(of) = self.transfer_under_way(transfer) else { return };
        if std::mem::take(&mut of.bounces) == 0 {
            return;
        }
        let mut bounces = Vec::new();
        for (key, op) in self.ops.iter_mut().filter(|(_, op)| op.parent == Some(transfer)) {
            op.parent = None;
            if let OpKind::Bounce(bounce) = &op.kind {
                self.bounce_pool.add_orphan(bounce.peer);
                bounces.push(key);
                if bounce.step == BounceStep::Copying {
                    self.core.transport.abandon(OpId::of(key));
                }
            }
        }
        for key in bounces {
            if self.take_unsent(key) {
                self.end_bounce(key, Ok(0));
            } else if self.bounce_of(key).is_some_and(|bounce| bounce.step == BounceStep::Draining) {
                awaited.push(Awaited::Bounce(key));
            }
        }
    }

    /// Takes what a bounce asks for back, if it has not been sent. Returns whether it had not.
    fn take_unsent(&mut self, key: OpKey) -> bool {
        let id = OpId::of(key);
        self.mail.take_back(|message| matches!(message, Message::Bounce(ask) if ask.op == id))
    }

    /// Ends a bounce whose peer is gone, which has its bounce buffer no more.
    pub(in crate::node) fn drop_bounce(&mut self, key: OpKey, error: OpError) {
        let Some(bounce) = self.bounce_of(key) else { return };
        bounce.buffer = None;
        if bounce.step == BounceStep::Copying {
            self.core.transport.abandon(OpId::of(key));
        }
        self.end_bounce(key, Err(error));
    }

    fn bounce_of(&mut self, key: OpKey) -> Option<&mut Bounce> {
        match &mut self.ops.get_mut(key)?.kind {
            OpKind::Bounce(bounce) => Some(bounce),
            _ => None,
        }
    }

    /// Takes a peer's wish for a bounce buffer, for one that is filled, or that one is drained, and answers
    /// it.
    pub(in crate::node) fn serve_bounce(&mut self, peer: Rank, ask: &BounceAsk) {
        let held = ask.buffer;
        let buffer = match held {
            Some(offset) => held.filter(|_| self.bounce_pool.is_held(peer, offset)),
            None if ask.act == BounceAct::Drain => None,
            None => self.lend_bounce_buffer(peer),
        };
        let status = match buffer {
            None if held.is_some() => Status::Fault,
            None if self.shown.exposed.is_some() || self.bounce_pool.are_none() => Status::NeverBuffer,
            None => Status::NoBuffer,
            Some(_) if ask.act == BounceAct::Take => Status::Ok,
            Some(offset) => Status::of(&self.copy_own(peer, ask, offset)),
        };
        let bounced = Bounced { op: ask.op, status: Some(status), buffer };
        self.mail.answer(&mut self.core, peer, Message::Bounced(bounced), 0);
    }

    /// Copies between a bounce buffer of this process's and the memory that a message names.
    fn copy_own(&mut self, peer: Rank, ask: &BounceAsk, buffer: u64) -> Result<(), OpError> {
        let (buffer, len) = (Place::new(MemId::Heap, buffer), u64::from(ask.len));
        let is_staged = |at: &Place| matches!(at.mem, MemId::Space | MemId::Grant(_));
        let no_memory = OpError::Protocol { peer, what: "a bounce buffer for no memory" };
        let asked = ask.at.filter(is_staged).ok_or(no_memory)?;
        if len > self.core.transport.bounce_bytes() {
            return Err(OpError::LocalFault { mem: buffer.mem, addr: buffer.offset, len });
        }
        let direction = if ask.act == BounceAct::Fill { Direction::Get } else { Direction::Put };
        let own = self.permit(peer, direction, asked, len)?;
        let (from, to) = if ask.act == BounceAct::Fill { (own, buffer) } else { (buffer, own) };
        self.core.transport.copy_own(from, to, len)?;
        self.count_served(peer, len);
        Ok(())
    }

    /// A bounce buffer for a peer, if there is one for it.
    fn lend_bounce_buffer(&mut self, peer: Rank) -> Option<u64> {
        // All who map the heap could look into it: where not all is exposed, nothing that is not theirs may
        // lie there.
        if self.shown.exposed.is_some() || self.core.is_gone(peer) || !self.bounce_pool.may_have(peer) {
            return None;
        }
        let free = self.bounce_pool.lend(peer);
        if free.is_some() {
            return free;
        }
        let offset = self.core.transport.make_bounce_buffer()?;
        self.bounce_pool.add(offset);
        self.bounce_pool.lend(peer)
    }

    /// Takes back a bounce buffer that a peer has no use for any more.
    pub(in crate::node) fn on_bounce_give(&mut self, peer: Rank, buffer: Option<u64>) {
        match buffer.filter(|offset| self.bounce_pool.is_held(peer, *offset)) {
            Some(offset) => self.bounce_pool.take_back(peer, Some(offset)),
            // It may have been said before the peer was lost, and its bounce buffers were taken back.
            None => self.core.counters.malformed += u64::from(!self.core.is_gone(peer)),
        }
    }

    /// Takes back all bounce buffers of a peer that is gone.
    pub(in crate::node) fn take_bounce_buffers_back(&mut self, peer: Rank) {
        self.bounce_pool.take_back(peer, None);
    }
}

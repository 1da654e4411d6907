//! Transfers of one piece whose memory is at hand at both ends: one operation of the transport, and nothing is kept of
//! them but what they use. Everything else about transfers by keys is in [`super::keyed`].

use super::table::{Hit, Node, OpKind, Used};
use crate::op_id::{OpId, OpKey};
use crate::registration::firehose::Found;
use crate::registration::{Run, end_of};
use crate::span::BucketSize;
use crate::{
    Direction, KeyedPiece, Mechanism, Nanos, OpError, Operation, Outcome, Piece, Rank, Submit, Transport,
};

/// Whether `len` bytes from `offset` on, which begin in a run, end in it.
#[inline]
fn ends_in(run: Run, bucket: BucketSize, offset: u64, len: u64) -> bool {
    // The end of the last bucket of all is 2^64: the difference wraps to what it should be.
    len <= (end_of(run) << bucket.bytes().trailing_zeros()).wrapping_sub(offset)
}

impl<T: Transport> Node<T> {
    /// Starts a transfer of this piece. `None`: not all of its memory is at hand, or something keeps it waiting.
    #[inline]
    pub(super) fn start_hit(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: Piece,
        deadline: Option<Nanos>,
    ) -> Option<OpId> {
        let registrar = self.registrar.as_mut()?;
        let bucket = registrar.settings.bucket;
        let Piece { remote, local, len } = piece;
        if len == 0 || !registrar.revoked.is_empty() {
            return None;
        }
        let Found::Held(hose) = registrar.hoses.find(peer, bucket.index(remote.offset)) else { return None };
        let (run, key) = registrar.hoses.reach(hose);
        if !ends_in(run, bucket, remote.offset, len) {
            return None;
        }
        let mut reg = None;
        if len > self.transport.unregistered_max(direction) {
            let (found, run) = registrar.table.acquire(bucket.index(local.offset))?;
            if !ends_in(run, bucket, local.offset, len) {
                registrar.table.release(found);
                return None;
            }
            reg = Some(found);
        }
        registrar.counters.hits += 1;
        registrar.hoses.acquire(hose);
        let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
        self.counters.add(operation, Mechanism::Registered, len);
        let used = Some(Used { hose, local: reg });
        let op = self.insert(OpKind::Hit(Hit { peer, used }), deadline);
        let base = run.first << bucket.bytes().trailing_zeros();
        let piece = KeyedPiece { piece, key, base, local: reg };
        match self.transport.copy_keyed(OpId::of(op), peer, direction, &[piece]) {
            Submit::Pending => {}
            Submit::Done(_) => _ = self.on_hit(op, Ok(0)),
            Submit::Failed(error) => _ = self.on_hit(op, Err(error)),
            Submit::Unreachable(why) => _ = self.on_hit(op, Err(OpError::Unsupported { peer, why })),
        }
        Some(OpId::of(op))
    }

    /// A transfer that hit is over: neither end is touched by it any more. `false`: it is no such transfer.
    #[inline]
    pub(super) fn on_hit(&mut self, key: OpKey, result: Outcome) -> bool {
        let Some(op) = self.ops.get_mut(key) else { return false };
        let OpKind::Hit(hit) = &mut op.kind else { return false };
        let Some(Used { hose, local }) = hit.used.take() else { return true };
        // Nearly all are waited for by their caller, and by nobody else.
        let waited_for = op.outcome.is_none() && op.parent.is_none() && !op.detached;
        if waited_for {
            op.outcome = Some(result);
            self.pending -= 1;
        }
        self.release_hose(hose);
        if let (Some(reg), Some(registrar)) = (local, &mut self.registrar) {
            registrar.table.release(reg);
        }
        if !waited_for {
            // It may have been given up before.
            self.finish(key, result);
        }
        if self.registrar.as_ref().is_some_and(|registrar| registrar.table.has_actions()) {
            self.run_actions();
        }
        true
    }

    /// Has an operation that was given up, that nobody asks about any more, and that the transport is still at, live on in
    /// the table.
    #[cold]
    pub(super) fn outlive(&mut self, key: OpKey) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let OpKind::Hit(Hit { peer, used: Some(Used { hose, local }) }) = op.kind else { return };
        let mut part = self.spare_parts.pop().unwrap_or_default();
        part.peer = peer;
        part.hoses.push(hose);
        part.locals.extend(local);
        (op.kind, op.outcome, op.deadline) = (OpKind::Part(part), None, None);
        (op.detached, op.parent) = (false, None);
    }
}

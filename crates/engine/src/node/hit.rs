//! Transfers of one piece whose memory is at hand at both ends: one operation of the transport, and nothing is kept of
//! them but what they use. Everything else about transfers by keys is in [`super::keyed`].

use super::hits::State;
use super::registrar::Registrar;
use super::table::{Node, Outcome};
use crate::op_id::{HitId, OpId};
use crate::registration::firehose::{Found, Released};
use crate::registration::{Keep, RegId, Run, end_of};
use crate::span::BucketSize;
use crate::{
    Direction, KeyedPiece, Mechanism, MemId, Nanos, OpError, Operation, Piece, Rank, Submit, Transport,
};

/// Whether `len` bytes from `offset` on, which begin in a run, end in it.
#[inline]
fn ends_in(run: Run, bucket: BucketSize, offset: u64, len: u64) -> bool {
    // The end of the last bucket of all is 2^64: the difference wraps to what it should be.
    len <= (end_of(run) << bucket.bytes().trailing_zeros()).wrapping_sub(offset)
}

/// Refers to the registration of a piece's local end, if all of it is registered, and so is its remote end.
#[inline(never)]
fn acquire_local(registrar: &mut Registrar, peer: Rank, piece: Piece) -> Option<RegId> {
    let bucket = registrar.settings.bucket;
    let Piece { remote, local, len } = piece;
    let Found::Held(hose) = registrar.hoses.find(peer, bucket.index(remote.offset)) else { return None };
    if !ends_in(registrar.hoses.reach(hose).0, bucket, remote.offset, len) {
        return None;
    }
    let (found, run) = registrar.table.acquire(bucket.index(local.offset))?;
    if !ends_in(run, bucket, local.offset, len) {
        registrar.table.release(found);
        return None;
    }
    Some(found)
}

impl<T: Transport> Node<T> {
    /// Starts a transfer of this piece between two spaces. `None`: not all of its memory is at hand, or something keeps it
    /// waiting.
    #[inline(always)]
    pub(super) fn start_hit(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: Piece,
        deadline: Option<Nanos>,
    ) -> Option<OpId> {
        let Piece { remote, local, len } = piece;
        let between_spaces = remote.mem == MemId::Space && local.mem == MemId::Space;
        let by_key = self.transport.is_keyed(peer) && !self.is_lost(peer);
        let registrar = self.registrar.as_mut()?;
        let bucket = registrar.settings.bucket;
        if len == 0 || !between_spaces || !by_key || !registrar.revoked.is_empty() {
            return None;
        }
        let reg = if len > self.transport.unregistered_max(direction) {
            Some(acquire_local(registrar, peer, piece)?)
        } else {
            None
        };
        let fits = |run| ends_in(run, bucket, remote.offset, len);
        // Where a local end was found, by the firehose that fits, there is one.
        let (hose, run, key) = registrar.hoses.acquire_fitting(peer, bucket.index(remote.offset), fits)?;
        registrar.counters.hits += 1;
        let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
        self.counters.add(operation, Mechanism::Registered, len);
        self.pending += 1;
        let hit = self.hits.insert(peer, hose, reg, deadline);
        let base = run.first << bucket.bytes().trailing_zeros();
        let piece = KeyedPiece { piece, key, base, local: reg };
        let submitted = self.transport.copy_keyed(OpId::of_hit(hit), peer, direction, &[piece]);
        if submitted != Submit::Pending {
            self.on_submitted(hit, peer, submitted);
        }
        Some(OpId::of_hit(hit))
    }

    /// The transport has ended a transfer at once.
    #[cold]
    fn on_submitted(&mut self, hit: HitId, peer: Rank, submitted: Submit) {
        match submitted {
            Submit::Pending => {}
            Submit::Done(_) => self.on_hit(hit, Ok(0)),
            Submit::Failed(error) => self.on_hit(hit, Err(error)),
            Submit::Unreachable(why) => self.on_hit(hit, Err(OpError::Unsupported { peer, why })),
        }
    }

    /// A transfer that hit is over: neither end is touched by it any more.
    #[inline(always)]
    pub(super) fn on_hit(&mut self, id: HitId, result: Outcome) {
        let (Some(hit), Some(registrar)) = (self.hits.get(id), &mut self.registrar) else { return };
        // Nearly all end well, are waited for by their callers, and have used no registration here.
        if result.is_err() || hit.state != State::UnderWay || hit.detached || hit.local.is_some() {
            return self.on_other_hit(id, result);
        }
        hit.state = State::Done;
        self.pending -= 1;
        let hose = hit.hose;
        let released = registrar.hoses.release(hose);
        if released != Released::Kept || registrar.settings.keep != Keep::Firehoses {
            self.after_release(hose, released);
        }
        self.act_after_hit();
    }

    /// The same of any.
    #[inline(never)]
    fn on_other_hit(&mut self, id: HitId, result: Outcome) {
        let Some(hit) = self.hits.get(id) else { return };
        let (hose, local) = (hit.hose, hit.local);
        match hit.state {
            State::UnderWay if hit.detached => {
                self.pending -= 1;
                self.hits.remove(id.at);
                self.note_detached(result);
            }
            State::UnderWay => {
                (hit.state, hit.outcome) = (State::Over, result);
                self.pending -= 1;
            }
            State::GivenUp => hit.state = State::Over,
            State::Forgotten => self.hits.remove(id.at),
            State::Free | State::Done | State::Over => return,
        }
        self.release_hose(hose);
        if let (Some(reg), Some(registrar)) = (local, &mut self.registrar) {
            registrar.table.release(reg);
        }
        self.act_after_hit();
    }

    #[inline(always)]
    fn act_after_hit(&mut self) {
        if self.registrar.as_ref().is_some_and(|registrar| registrar.table.has_actions()) {
            self.run_actions();
        }
    }

    /// Ends a transfer that hit before the transport is done with it; it goes on using what it does until then.
    pub(super) fn give_up_hit(&mut self, id: HitId, error: OpError) {
        if !self.hits.is_under_way(id) {
            return;
        }
        self.transport.abandon(OpId::of_hit(id));
        let Some(hit) = self.hits.get(id).filter(|hit| hit.state == State::UnderWay) else { return };
        (hit.state, hit.outcome) = (State::GivenUp, Err(error));
        self.pending -= 1;
        if hit.detached {
            hit.state = State::Forgotten;
            self.note_detached(Err(error));
        }
    }

    /// Gives up every transfer that hit of which `error` says so.
    pub(super) fn give_up_hits(&mut self, error: impl Fn(Rank, Option<Nanos>) -> Option<OpError>) {
        let late: Vec<(HitId, OpError)> = self
            .hits
            .under_way()
            .filter_map(|(id, peer, deadline)| Some((id, error(peer, deadline)?)))
            .collect();
        for (id, error) in late {
            self.give_up_hit(id, error);
        }
    }

    /// Gives up the transfers that hit whose deadlines are not after `now`. Returns the earliest that is left.
    pub(super) fn expire_hits(&mut self, now: Nanos) -> Option<Nanos> {
        self.give_up_hits(|peer, deadline| {
            deadline.is_some_and(|deadline| deadline <= now).then_some(OpError::Timeout { peer })
        });
        self.hits.under_way().filter_map(|(.., deadline)| deadline).min()
    }

    /// Ends a transfer that hit as if its deadline had passed.
    pub(super) fn cancel_hit(&mut self, id: HitId) {
        if let Some(hit) = self.hits.get(id) {
            let peer = hit.peer;
            self.give_up_hit(id, OpError::Timeout { peer });
        }
    }

    /// Gives a transfer that hit to nobody.
    pub(super) fn detach_hit(&mut self, id: HitId) {
        let Some(hit) = self.hits.get(id) else { return };
        hit.detached = true;
        if let Some(outcome) = self.hits.take(id) {
            self.note_detached(outcome);
        }
    }
}

//! Fast transfers: of one piece whose memory is at hand at both ends: one operation of the transport, and
//! nothing is kept of them but what they use. Everything else about transfers by keys is in [`super::keyed`].

use super::fast_table::State;
use crate::node::Node;
use crate::node::operations::op::{Interest, Outcome};
use crate::node::operations::settling::Awaited;
use crate::node::registration::state::Registration;
use crate::op_id::{FastId, OpId};
use crate::registration::firehose::{Found, Held};
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
fn acquire_local(registration: &mut Registration, peer: Rank, piece: Piece) -> Option<RegId> {
    let bucket = registration.settings.bucket;
    let Piece { remote, local, len } = piece;
    let Found::Held(hose) = registration.hoses.find(peer, bucket.index(remote.offset)) else { return None };
    if !ends_in(registration.hoses.reach(hose).0, bucket, remote.offset, len) {
        return None;
    }
    let (found, run) = registration.table.acquire(bucket.index(local.offset))?;
    if !ends_in(run, bucket, local.offset, len) {
        registration.table.release(found);
        return None;
    }
    Some(found)
}

impl<T: Transport> Node<T> {
    /// Uses the firehose that was found last, if it reaches all of a piece between two spaces whose local end
    /// needs no registration. It is of a peer that is there, and forgotten whenever puts are to be held back.
    #[inline(always)]
    pub(in crate::node) fn acquire_recent(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: &Piece,
    ) -> Option<Held> {
        let registration = self.registration.as_mut()?;
        let Piece { remote, local, len } = *piece;
        if remote.mem != MemId::Space
            || local.mem != MemId::Space
            || len > self.core.transport.unregistered_max(direction)
        {
            return None;
        }
        registration.hoses.acquire_recent(peer, remote.offset, len)
    }

    /// Starts a transfer of this piece between two spaces. `None`: not all of its memory is at hand, or
    /// something keeps it waiting.
    pub(in crate::node) fn start_fast(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: Piece,
        deadline: Option<Nanos>,
    ) -> Option<OpId> {
        let Piece { remote, local, len } = piece;
        let between_spaces = remote.mem == MemId::Space && local.mem == MemId::Space;
        let by_key = self.core.transport.is_keyed(peer) && !self.core.is_lost(peer);
        let registration = self.registration.as_mut()?;
        if len == 0 || !between_spaces || !by_key || !registration.revocations.is_empty() {
            return None;
        }
        let reg = if len > self.core.transport.unregistered_max(direction) {
            Some(acquire_local(registration, peer, piece)?)
        } else {
            None
        };
        // Where `acquire_local` has found a local end, it found this firehose before it.
        let kept = registration.settings.keep == Keep::Firehoses;
        let held = match registration.hoses.acquire_recent(peer, remote.offset, len) {
            Some(held) => held,
            None => {
                let held = registration.hoses.acquire_reaching(peer, remote.offset, len, kept)?;
                registration.counters.hits += 1;
                held
            }
        };
        Some(self.submit_fast(peer, direction, piece, deadline, held, reg))
    }

    /// Gives the transport a transfer whose memory is at hand.
    #[inline(always)]
    pub(in crate::node) fn submit_fast(
        &mut self,
        peer: Rank,
        direction: Direction,
        piece: Piece,
        deadline: Option<Nanos>,
        Held { hose, base, key }: Held,
        local: Option<RegId>,
    ) -> OpId {
        let operation = if direction == Direction::Put { Operation::Put } else { Operation::Get };
        self.core.counters.add(operation, Mechanism::Registered, piece.len);
        self.ops.begin();
        let fast = self.fast.insert(peer, hose, local, deadline, self.ops.acting());
        let piece = KeyedPiece { piece, key, base, local };
        let submitted = self.core.transport.copy_keyed(OpId::of_fast(fast), peer, direction, &[piece]);
        let op = OpId::of_fast(fast);
        if submitted != Submit::Pending {
            self.on_submitted(op, submitted);
        }
        op
    }

    /// The transport has ended a transfer at once.
    #[cold]
    fn on_submitted(&mut self, op: OpId, submitted: Submit) {
        let Some((id, fast)) = op.fast().and_then(|id| Some((id, self.fast.get(id)?))) else { return };
        let peer = fast.peer;
        match submitted {
            Submit::Pending => {}
            Submit::Done(_) => self.on_fast(id, Ok(0)),
            Submit::Failed(error) => self.on_fast(id, Err(error)),
            Submit::Unreachable(why) => self.on_fast(id, Err(OpError::Unsupported { peer, why })),
        }
    }

    /// A copy is over, and well: neither end is touched by it any more. `false`: it is not one of those that
    /// are ended here.
    #[inline(always)]
    pub(in crate::node) fn on_copied(&mut self, op: OpId) -> bool {
        // Nearly all are fast transfers, are waited for by their callers, have used no registration here, and
        // the firehose that was found last.
        if let Some(id) = op.fast()
            && let Some(fast) = self.fast.get(id)
            && fast.state == State::Plain
            && let Some(registration) = &mut self.registration
            && registration.hoses.release_recent(fast.hose)
        {
            fast.state = State::Done;
            self.ops.end(fast.client);
            return true;
        }
        false
    }

    /// A fast transfer is over: neither end is touched by it any more.
    pub(in crate::node) fn on_fast(&mut self, id: FastId, result: Outcome) {
        let Some(fast) = self.fast.get(id) else { return };
        let (hose, local, client, peer) = (fast.hose, fast.local(), fast.client, fast.peer);
        match fast.state {
            State::UnderWay if fast.interest == Interest::Nobodys => {
                self.ops.end(client);
                self.fast.remove(id.at);
                self.ops.note_failure(client, peer, result);
            }
            State::Plain | State::UnderWay => {
                (fast.state, fast.outcome) = (State::Over, result);
                self.ops.end(client);
                if fast.interest == Interest::Watches {
                    self.ops.push_watched(OpId::of_fast(id));
                }
            }
            State::GivenUp => {
                fast.state = State::Over;
                self.ops.has_settled(Awaited::Report(OpId::of_fast(id)), None);
            }
            State::Forgotten => {
                self.fast.remove(id.at);
                self.ops.has_settled(Awaited::Report(OpId::of_fast(id)), None);
            }
            State::Free | State::Done | State::Over => return,
        }
        self.release_hose(hose);
        if let (Some(reg), Some(registration)) = (local, &mut self.registration) {
            registration.table.release(reg);
        }
        if self.registration.as_ref().is_some_and(|registration| registration.table.has_actions()) {
            self.run_actions();
        }
    }

    /// Ends a fast transfer before the transport is done with it; it goes on using what it does until then.
    pub(in crate::node) fn give_up_fast(&mut self, id: FastId, error: OpError) {
        if !self.fast.is_under_way(id) {
            return;
        }
        let writes = self.core.transport.abandon(OpId::of_fast(id));
        let Some(fast) = self.fast.get(id).filter(|fast| fast.state.is_under_way()) else { return };
        (fast.state, fast.outcome) = (State::GivenUp, Err(error));
        let (client, peer) = (fast.client, fast.peer);
        self.ops.end(client);
        match fast.interest {
            Interest::Asks => {}
            Interest::Watches => self.ops.push_watched(OpId::of_fast(id)),
            Interest::Nobodys => {
                fast.state = State::Forgotten;
                self.ops.note_failure(client, peer, Err(error));
            }
        }
        if writes {
            let op = OpId::of_fast(id);
            self.ops.begin_to_settle(&mut self.core, (op, client), peer, &[Awaited::Report(op)]);
        }
    }

    /// Gives up every fast transfer of which `error` says so.
    pub(in crate::node) fn give_up_all_fast(
        &mut self,
        error: impl Fn(Rank, Option<Nanos>) -> Option<OpError>,
    ) {
        let late: Vec<(FastId, OpError)> = self
            .fast
            .under_way()
            .filter_map(|(id, peer, deadline)| Some((id, error(peer, deadline)?)))
            .collect();
        for (id, error) in late {
            self.give_up_fast(id, error);
        }
    }

    /// Gives up the fast transfers whose deadlines are not after `now`. Returns the earliest that is left.
    pub(in crate::node) fn expire_fast(&mut self, now: Nanos) -> Option<Nanos> {
        self.give_up_all_fast(|peer, deadline| {
            deadline.is_some_and(|deadline| deadline <= now).then_some(OpError::Timeout { peer })
        });
        self.fast.under_way().filter_map(|(.., deadline)| deadline).min()
    }

    /// Ends a fast transfer as if its deadline had passed.
    pub(in crate::node) fn cancel_fast(&mut self, id: FastId) {
        if let Some(fast) = self.fast.get(id) {
            let peer = fast.peer;
            self.give_up_fast(id, OpError::Timeout { peer });
        }
    }

    /// Gives a fast transfer to nobody.
    pub(in crate::node) fn detach_fast(&mut self, id: FastId) {
        let Some(fast) = self.fast.get(id) else { return };
        fast.interest = Interest::Nobodys;
        let (client, peer) = (fast.client, fast.peer);
        if fast.state == State::Plain {
            fast.state = State::UnderWay;
        }
        if let Some(outcome) = self.fast.take(id) {
            self.ops.note_failure(client, peer, outcome);
        }
    }
}

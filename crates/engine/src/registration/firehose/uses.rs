//! Using firehoses: what each transfer does.

use super::{Firehoses, Found, Held, HoseId, Recent, Released};
use crate::Rank;
use crate::registration::slots::NONE;

impl Firehoses {
    /// Uses a firehose for one more operation.
    #[inline(always)]
    pub fn acquire(&mut self, id: HoseId) {
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs += 1;
        if hose.refs == 1 {
            hose.links.touch(self.at_first.order);
        }
        self.peers[hose.known as usize].hits += 1;
    }

    /// Uses the firehose that was found last for one more operation, if it is of `peer` and reaches `len`
    /// bytes from `offset` on, at least one.
    #[inline(always)]
    pub(crate) fn acquire_recent(&mut self, peer: Rank, offset: u64, len: u64) -> Option<Held> {
        let recent = &mut self.recent;
        let within = offset.wrapping_sub(recent.start);
        // Where there is nothing there is no room for a byte, either.
        if within >= recent.bytes || len.wrapping_sub(1) >= recent.bytes - within || recent.peer != peer {
            return None;
        }
        recent.uses += 1;
        recent.hits += 1;
        Some(Held { hose: recent.id, base: recent.start, key: recent.key })
    }

    /// Uses the firehose to which [`Firehoses::find`] leads, if it reaches `len` bytes from `offset` on. Has
    /// it be the one that was found last, if it is to be `kept` when nobody uses it.
    #[inline(never)]
    pub(crate) fn acquire_reaching(&mut self, peer: Rank, offset: u64, len: u64, kept: bool) -> Option<Held> {
        let shift = self.bucket_bytes.trailing_zeros();
        let Found::Held(id) = self.find(peer, offset >> shift) else { return None };
        let (run, key) = self.reach(id);
        let (start, bytes) = (run.first << shift, u64::from(run.count) << shift);
        if len > bytes - offset.wrapping_sub(start) {
            return None;
        }
        self.acquire(id);
        if kept && id != self.recent.id {
            self.forget_recent();
            let hose = &mut self.hoses.0[id.0 as usize];
            // One is its own, and all that are under way are counted there.
            let uses = std::mem::replace(&mut hose.refs, 1);
            self.recent = Recent { peer, id, start, bytes, key, uses, hits: 0 };
        }
        Some(Held { hose: id, base: start, key })
    }

    /// From now on no firehose was found last: the one that was is used by whoever uses it, or idle.
    pub(crate) fn forget_recent(&mut self) {
        let Recent { id, uses, hits, .. } = std::mem::replace(&mut self.recent, Recent::NOTHING);
        if id.0 == NONE {
            return;
        }
        let hose = &mut self.hoses.0[id.0 as usize];
        debug_assert!(!hose.revoked, "what is revoked is forgotten before");
        self.hits += hits;
        let known = &mut self.peers[hose.known as usize];
        known.hits += hits;
        if hits > 0 {
            hose.links.touch(self.at_first.order);
        }
        hose.refs = hose.refs + uses - 1;
        if hose.refs == 0 {
            known.queue.idle(&mut self.hoses, id.0);
        }
    }

    /// Hits by [`Firehoses::acquire_recent`] so far.
    pub(crate) fn recent_hits(&self) -> u64 {
        self.hits + self.recent.hits
    }

    /// Ends one use, if it is counted with what was found last; `false`: [`Firehoses::release`] does it.
    #[inline(always)]
    pub(crate) fn release_recent(&mut self, id: HoseId) -> bool {
        if id != self.recent.id {
            return false;
        }
        let Some(left) = self.recent.uses.checked_sub(1) else { return false };
        self.recent.uses = left;
        true
    }

    /// Ends one use.
    #[inline]
    pub fn release(&mut self, id: HoseId) -> Released {
        if self.release_recent(id) {
            return Released::Kept;
        }
        let hose = &mut self.hoses.0[id.0 as usize];
        if hose.refs != 1 {
            hose.refs = hose.refs.checked_sub(1).expect("a use of a firehose ends once");
            return Released::Kept;
        }
        hose.refs = 0;
        let (known, revoked) = (hose.known, hose.revoked);
        if revoked {
            let gone = self.peers[known as usize].gone;
            let (peer, holder) = self.remove(id.0);
            return if gone { Released::Gone } else { Released::Wanted(peer, holder) };
        }
        self.peers[known as usize].queue.idle(&mut self.hoses, id.0);
        Released::Kept
    }
}

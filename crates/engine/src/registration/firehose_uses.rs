//! Using firehoses: what each transfer does.

use super::{Firehoses, Found, HoseId, Key, NOTHING, Rank, Released, Run};

impl Firehoses {
    /// Uses a firehose for one more operation.
    #[inline(always)]
    pub fn acquire(&mut self, id: HoseId) {
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs += 1;
        if hose.refs == 1 {
            hose.links.touch(self.order);
        }
        self.peers[hose.known as usize].hits += 1;
    }

    /// Uses a firehose that reaches `bucket` of `peer` for one more operation, if there is one whose run `fits`. There is one
    /// wherever that fits to which [`Firehoses::find`] leads.
    #[inline(always)]
    pub(crate) fn acquire_fitting(
        &mut self,
        peer: Rank,
        bucket: u64,
        fits: impl Fn(Run) -> bool,
    ) -> Option<(HoseId, Run, Key)> {
        // Programs go on where they are.
        let (of, run, id) = self.recent;
        let reaches = of == peer && bucket.wrapping_sub(run.first) < u64::from(run.count);
        if !(reaches && fits(run)) {
            return self.acquire_other(peer, bucket, fits);
        }
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs += 1;
        if hose.refs == 1 {
            hose.links.touch(self.order);
        }
        // Its peer is told when another is found, or somebody asks.
        self.recent_hits += 1;
        Some((id, run, hose.key))
    }

    /// The same where it is not the one that was found last.
    #[inline(never)]
    fn acquire_other(
        &mut self,
        peer: Rank,
        bucket: u64,
        fits: impl Fn(Run) -> bool,
    ) -> Option<(HoseId, Run, Key)> {
        let Found::Held(id) = self.find(peer, bucket) else { return None };
        let (run, key) = self.reach(id);
        if !fits(run) {
            return None;
        }
        self.forget_recent();
        self.recent = (peer, run, id);
        self.acquire(id);
        Some((id, run, key))
    }

    /// From now on no firehose was found last.
    pub(super) fn forget_recent(&mut self) {
        let (.., id) = std::mem::replace(&mut self.recent, NOTHING);
        let hits = std::mem::take(&mut self.recent_hits);
        if hits > 0 {
            let known = self.hoses.0[id.0 as usize].known;
            self.peers[known as usize].hits += hits;
        }
    }

    /// Ends one use.
    #[inline]
    pub fn release(&mut self, id: HoseId) -> Released {
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs -= 1;
        if hose.refs > 0 {
            return Released::Kept;
        }
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

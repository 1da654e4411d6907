//! Firehoses that are given up: one of them, as many as make room, or what its owner wants back.

use super::{Firehoses, HoseId};
use crate::Rank;
use crate::registration::table::HolderId;

impl Firehoses {
    /// Gives up a firehose that nobody uses, whatever the order. `None` where it is in use.
    pub(crate) fn give_up(&mut self, id: HoseId) -> Option<(Rank, HolderId)> {
        self.forget_recent();
        (self.hoses.0[id.0 as usize].refs == 0).then(|| self.remove(id.0))
    }

    /// Gives up idle firehoses of `peer` until all that is asked for can be held besides what is left, as far
    /// as the peer has said. If need be it gives up all that are idle. At most `most` of them.
    pub(crate) fn make_room(&mut self, peer: Rank, most: usize, given_up: &mut Vec<HolderId>) {
        let Some(known) = self.place_of(peer) else { return };
        self.forget_recent();
        while given_up.len() < most {
            let known = &mut self.peers[known as usize];
            if known.held + known.asked <= known.limit {
                return;
            }
            known.miss_policy.on_replacement();
            let Some(at) = known.queue.pick(&mut self.hoses) else { return };
            given_up.push(self.remove(at).1);
        }
    }

    /// Gives up idle firehoses of `peer` of `bytes` in all, or what there is.
    pub(crate) fn shed(&mut self, peer: Rank, bytes: u64, given_up: &mut Vec<HolderId>) {
        let mut shed = 0;
        let Some(known) = self.place_of(peer) else { return };
        self.forget_recent();
        while shed < bytes {
            let known = &mut self.peers[known as usize];
            let Some(at) = known.queue.pick(&mut self.hoses) else { return };
            shed += self.bytes(self.hoses.0[at as usize].run());
            given_up.push(self.remove(at).1);
        }
    }

    /// The owner wants a firehose back. `true`: nobody uses it, and it is gone; otherwise the last
    /// [`Firehoses::release`] says so. It may have been given up already: then `true`, too.
    pub(crate) fn revoke(&mut self, peer: Rank, holder: HolderId) -> bool {
        let Some(at) = self.named(peer, holder) else { return true };
        self.forget(at);
        let hose = &mut self.hoses.0[at as usize];
        hose.revoked = true;
        let idle = hose.refs == 0;
        if idle {
            self.remove(at);
        }
        idle
    }
}

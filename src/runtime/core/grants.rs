//! A node's grants: told to the engine, which serves messages, and shown in the ledger, where near peers
//! look.

use std::any::Any;
use std::sync::atomic::Ordering;

use engine::{GrantId, Granted, NotGranted, Place, Rank};

use super::NodeCore;
use super::groups::REVOKED;
use crate::base::grant_name::GrantName;
use crate::base::lock::lock;
use crate::runtime::grant_users::{self, Kept, Users};

impl NodeCore {
    /// Knows who is at this process's grants.
    pub(crate) fn users(&self) -> Users {
        Users::new(self.near.clone(), self.peers.own().places)
    }

    /// Grants all of these, or none. The error is that of the first that cannot be, and which it is.
    pub(crate) fn grant_all(&self, all: &[Granted]) -> Result<Vec<GrantId>, (NotGranted, usize)> {
        let mut engine = self.engine();
        let mut ids = Vec::with_capacity(all.len());
        for (at, granted) in all.iter().enumerate() {
            match engine.grant(granted.clone()) {
                Ok(id) => ids.push(id),
                Err(why) => {
                    ids.into_iter().for_each(|id| _ = engine.revoke(id));
                    return Err((why, at));
                }
            }
        }
        for (id, granted) in ids.iter().zip(all) {
            self.peers.own().ledger.show(*id, granted);
        }
        Ok(ids)
    }

    /// Bars all new use of a grant, and returns the epoch that begins: its users have begun before. `None`:
    /// there is no such grant.
    pub(crate) fn revoke(&self, grant: GrantId) -> Option<u64> {
        let mut engine = self.engine();
        engine.revoke(grant)?;
        Some(self.peers.own().ledger.bar(grant.line, None))
    }

    /// Has a grant name the memory from `start` on; as [`NodeCore::revoke`] of the old memory.
    pub(crate) fn repoint(&self, grant: GrantId, start: u64) -> Option<u64> {
        let mut engine = self.engine();
        engine.repoint(grant, start)?;
        let granted = engine.granted(grant)?;
        Some(self.peers.own().ledger.bar(grant.line, Some((grant, &granted))))
    }

    /// Counts a wait for a grant's users that found that peer there; `in_use`: also at its end.
    #[cold]
    pub(crate) fn count_wait(&self, peer: Rank, in_use: bool) {
        self.engine().count_wait(peer, in_use);
    }

    pub(crate) fn is_granted(&self, grant: GrantId) -> bool {
        self.engine().granted(grant).is_some()
    }

    /// A peer that has a key of a network's for memory that a grant has named and names no more; this process
    /// itself, where its network is just closing the last one. With its node each grant has ended.
    pub(crate) fn far_user(&self, grant: GrantId) -> Option<Rank> {
        let mut engine = self.engine();
        if self.has_closed() {
            engine.revoke(grant);
        }
        let own = self.peers.own().rank;
        (!engine.is_grant_idle(grant)).then(|| engine.grant_holder(grant).unwrap_or(own))
    }

    /// Drops memory that was dropped before while peers were at it, where they no longer are: this node's,
    /// and what other nodes have left.
    pub(crate) fn free_unused(&self) {
        if self.due.flags.load(Ordering::Relaxed) & REVOKED != 0 {
            self.free_revoked();
        }
        grant_users::free_left();
    }

    /// Keeps memory that was granted until no peer is at it: of a grant that does not name it since an epoch
    /// began.
    pub(crate) fn keep_revoked(&self, grant: GrantId, epoch: u64, memory: Box<dyn Any + Send>) {
        lock(&self.due.revoked).add(Kept { grant, epoch, users: self.users(), memory });
        self.due.flags.fetch_or(REVOKED, Ordering::AcqRel);
    }

    /// Where a peer's long message says that its payload has landed, which it was to put into a grant.
    pub(crate) fn landed_in_grant(&self, peer: Rank, payload: (Place, u64)) -> Option<(GrantName, u64)> {
        let (grant, offset, len) = self.engine().landed(peer, payload)?;
        Some((GrantName::new(grant, len), offset))
    }
}

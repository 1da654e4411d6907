//! A node's grants: told to the engine, which serves messages, and shown in the ledger, where near peers look.

use std::any::Any;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{GrantId, Granted, NotGranted, Place, Rank};

use super::NodeCore;
use super::groups::REVOKED;
use crate::base::grant_name::GrantName;
use crate::base::lock::lock;
use crate::transport::peers::NearPeers;

/// How long a wait for users of a grant sleeps between two looks, at first and at last.
const SLEEP: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Knows who is at this process's grants, also once its node is gone.
#[derive(Clone)]
pub(crate) struct Users {
    near: NearPeers,
    places: u32,
}

impl Users {
    /// A peer that is at a grant of this process's, since before that epoch.
    pub(crate) fn any(&self, before: u64) -> Option<Rank> {
        (0..self.places).find(|rank| {
            let peer = self.near.get(*rank);
            peer.is_some_and(|peer| peer.uses_grants(before) && !peer.reach.is_gone())
        })
    }

    /// Waits until no peer is, for so long at most; between two looks it does something else. The error is a
    /// peer that is.
    pub(crate) fn wait(&self, before: u64, within: Duration, between: impl Fn()) -> Result<(), Rank> {
        let begun = Instant::now();
        let mut sleep = SLEEP;
        loop {
            let Some(peer) = self.any(before) else { return Ok(()) };
            let left = within.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(peer);
            }
            between();
            std::thread::sleep(sleep.min(left));
            sleep = (2 * sleep).min(SLEEP_MAX);
        }
    }
}

/// Memory that was granted and dropped while peers were at it.
#[derive(Default)]
pub(crate) struct RevokedMemory(Vec<(u64, Users, Box<dyn Any + Send>)>);

impl Drop for RevokedMemory {
    fn drop(&mut self) {
        // Whoever is at it still, as the node ends, may be at it for ever: the memory is never used again.
        let used = self.0.drain(..).filter(|(epoch, users, _)| users.any(*epoch).is_some());
        used.for_each(std::mem::forget);
    }
}

impl NodeCore {
    /// Knows who is at this process's grants.
    pub(crate) fn users(&self) -> Users {
        Users { near: self.near.clone(), places: self.peers.own().places }
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

    /// Bars all new use of a grant, and says from when on nobody uses it that does not use it already. `None`:
    /// there is none such.
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
        Some(self.peers.own().ledger.bar(grant.line, Some((grant, granted))))
    }

    pub(crate) fn is_granted(&self, grant: GrantId) -> bool {
        self.engine().granted(grant).is_some()
    }

    /// Keeps memory that was granted until no peer is at it.
    pub(crate) fn keep_revoked(&self, epoch: u64, memory: Box<dyn Any + Send>) {
        lock(&self.due.revoked).0.push((epoch, self.users(), memory));
        self.due.flags.fetch_or(REVOKED, Ordering::AcqRel);
    }

    /// Drops the memory of grants that no peer is at any more, whose programs' code runs with no lock of ours
    /// held.
    pub(super) fn free_revoked(&self) {
        let free = {
            let mut revoked = lock(&self.due.revoked);
            let unused = |(epoch, users, _): &mut (u64, Users, _)| users.any(*epoch).is_none();
            let free: Vec<_> = revoked.0.extract_if(.., unused).collect();
            if revoked.0.is_empty() {
                self.due.flags.fetch_and(!REVOKED, Ordering::AcqRel);
            }
            free
        };
        drop(free);
    }

    /// Where a long message's payload has landed that was put into a grant.
    pub(crate) fn landed_in_grant(&self, place: Place) -> Option<(GrantName, u64)> {
        let (grant, offset, len) = self.engine().landed(place)?;
        Some((GrantName::new(grant, len), offset))
    }
}

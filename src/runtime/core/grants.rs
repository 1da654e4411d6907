//! A node's grants.

use std::time::Duration;

use engine::{GrantId, Granted, NotGranted, Place, Rank};

use super::NodeCore;
use crate::base::grant_name::GrantName;

impl NodeCore {
    pub(crate) fn grant(&self, granted: Granted) -> Result<GrantId, NotGranted> {
        self.engine().grant(granted)
    }

    /// Bars all new use of a grant. `false`: there is none such.
    pub(crate) fn revoke(&self, grant: GrantId) -> bool {
        self.engine().revoke(grant).is_some()
    }

    /// Has a grant name the memory from `start` on. `false`: there is no such grant.
    pub(crate) fn repoint(&self, grant: GrantId, start: u64) -> bool {
        self.engine().repoint(grant, start).is_some()
    }

    pub(crate) fn is_granted(&self, grant: GrantId) -> bool {
        self.engine().granted(grant).is_some()
    }

    /// Waits until no peer reaches what the grant named until now. The error is a peer that still does.
    pub(crate) fn wait_unused(&self, _: GrantId, _: Duration) -> Result<(), Rank> {
        Ok(())
    }

    /// Where a long message's payload has landed that was put into a grant.
    pub(crate) fn landed_in_grant(&self, place: Place) -> Option<(GrantName, u64)> {
        let (grant, offset, len) = self.engine().landed(place)?;
        Some((GrantName::new(grant, len), offset))
    }
}

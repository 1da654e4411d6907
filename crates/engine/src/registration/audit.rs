//! The whole registration table, looked at anew: what its steps keep in mind must be what follows from its entries.

use super::{Entry, NONE, State, Table, run};
use crate::registration::end_of;

impl Table {
    /// # Errors
    /// What does not add up.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut sums = Sums::default();
        for (at, entry) in self.entries.0.iter().enumerate() {
            self.audit_entry(at as u32, entry, &mut sums)?;
        }
        let kept = Sums {
            pinned: self.counters.pinned,
            peers: self.peers_used,
            local: self.local_used,
            leaving: self.leaving,
            victims: self.victims,
        };
        if sums != kept {
            return Err(format!("the entries make {sums:?}, kept in mind is {kept:?}"));
        }
        let budget = self.settings.peers_bytes.saturating_add(self.settings.victims_bytes);
        if sums.pinned > budget
            || sums.peers > self.settings.peers_bytes
            || sums.local > self.settings.victims_bytes
        {
            return Err(format!("{sums:?} with M + MAXVICTIM {budget}"));
        }
        self.audit_leases()
    }

    fn audit_entry(&self, at: u32, entry: &Entry, sums: &mut Sums) -> Result<(), String> {
        let bytes = self.bytes(at);
        let (mut holders, mut holder) = (0, entry.holder);
        while holder != NONE && entry.state != State::Free {
            if self.holders[holder as usize].entry != at {
                return Err(format!("firehose {holder} of run {at} says that it is another's"));
            }
            holders += 1;
            holder = self.holders[holder as usize].next;
        }
        if holders != entry.holders {
            return Err(format!("run {at} counts {} holders and lists {holders}", entry.holders));
        }
        let pinned = matches!(entry.state, State::Registering | State::Ready | State::Deregistering);
        sums.pinned += if pinned { bytes } else { 0 };
        sums.peers += if holders > 0 { bytes } else { 0 };
        sums.local += if entry.local > 0 { bytes } else { 0 };
        sums.leaving += if entry.state == State::Deregistering { bytes } else { 0 };
        sums.victims += if self.is_victim(at) { bytes } else { 0 };
        let indexed =
            !entry.revoked && matches!(entry.state, State::Waiting | State::Registering | State::Ready);
        let found = (entry.first..end_of(run(entry))).all(|bucket| self.index.get(&bucket) == Some(&at));
        if indexed != found && entry.count > 0 {
            return Err(format!("run {at}, {:?}, is in the index: {found}", entry.state));
        }
        match entry.state {
            State::Deregistering if self.is_referred_to(at) => {
                Err(format!("run {at} goes, and is referred to"))
            }
            _ => Ok(()),
        }
    }

    fn audit_leases(&self) -> Result<(), String> {
        let mut held = Vec::new();
        for holder in self.holders.iter().filter(|holder| holder.entry != NONE) {
            let peer = holder.peer as usize;
            held.resize(held.len().max(peer + 1), 0);
            held[peer] += self.bytes(holder.entry);
        }
        for (peer, kept) in self.leases.all() {
            let held = held.get_mut(peer as usize).map(std::mem::take).unwrap_or_default();
            if held != kept {
                return Err(format!("the holders of rank {peer} make {held}, its lease says {kept}"));
            }
        }
        match held.iter().position(|held| *held > 0) {
            Some(peer) => Err(format!("the holders of rank {peer} make {}, and it has no lease", held[peer])),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    pinned: u64,
    peers: u64,
    local: u64,
    leaving: u64,
    victims: u64,
}

//! The whole registration table, looked at anew: what its steps keep in mind must be what follows from its entries.

use super::{Entry, NONE, State, Table, bytes_of, run};
use crate::Rank;

impl Table {
    /// # Errors
    /// What does not add up.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut sums = Sums::default();
        let (mut holders, mut buckets) = (Holders { count: 0, held: vec![0; self.leases.ranks()] }, 0);
        for (at, entry) in self.entries.0.iter().enumerate() {
            let here = self.audit_holders(at as u32, entry, &mut holders)?;
            if entry.state == State::Free {
                continue;
            }
            sums.add(entry, here > 0, bytes_of(&self.settings, run(entry)));
            buckets += if is_indexed(entry) { u64::from(entry.count) } else { 0 };
            if entry.state == State::Deregistering && self.is_referred_to(at as u32) {
                return Err(format!("run {at} goes, and is referred to"));
            }
        }
        self.audit_sums(&sums)?;
        self.audit_index(buckets)?;
        self.audit_leases(holders)
    }

    fn audit_sums(&self, sums: &Sums) -> Result<(), String> {
        let kept = Sums {
            pinned: self.counters.pinned,
            peers: self.peers_used,
            local: self.local_used,
            leaving: self.leaving,
            victims: self.victims,
        };
        if *sums != kept {
            return Err(format!("the entries make {sums:?}, kept in mind is {kept:?}"));
        }
        let budget = self.settings.peers_bytes.saturating_add(self.settings.victims_bytes);
        if sums.pinned > budget
            || sums.peers > self.settings.peers_bytes
            || sums.local > self.settings.victims_bytes
        {
            return Err(format!("{sums:?} with M + MAXVICTIM {budget}"));
        }
        Ok(())
    }

    /// Adds a run's holders, and returns how many there are.
    fn audit_holders(&self, at: u32, entry: &Entry, all: &mut Holders) -> Result<u32, String> {
        let (mut count, bytes) = (0, bytes_of(&self.settings, run(entry)));
        let mut next = if entry.state == State::Free { NONE } else { entry.holder };
        while next != NONE {
            let holder = &self.holders[next as usize];
            if holder.entry != at {
                return Err(format!("firehose {next} of run {at} says that it is another's"));
            }
            all.add(holder.peer, bytes);
            count += 1;
            next = holder.next;
        }
        if count == entry.holders {
            return Ok(count);
        }
        Err(format!("run {at} counts {} holders and lists {count}", entry.holders))
    }

    /// Each bucket in the index leads to a run that has it, and there are as many as in all of those: so all are found.
    fn audit_index(&self, buckets: u64) -> Result<(), String> {
        for (&bucket, &at) in &self.index {
            let entry = &self.entries.0[at as usize];
            if !is_indexed(entry) || bucket.wrapping_sub(entry.first) >= u64::from(entry.count) {
                return Err(format!(
                    "bucket {bucket} leads to run {at}, {:?}, which is another's",
                    entry.state
                ));
            }
        }
        if self.index.len() as u64 == buckets {
            return Ok(());
        }
        Err(format!("{} buckets are in the index, and the runs there have {buckets}", self.index.len()))
    }

    /// Every firehose stands in the list of its run, and those of each peer make what its lease says.
    fn audit_leases(&self, mut found: Holders) -> Result<(), String> {
        let here = self.holders.iter().filter(|holder| holder.entry != NONE).count();
        if here != found.count {
            return Err(format!("there are {here} firehoses, and the runs list {}", found.count));
        }
        for (peer, kept) in self.leases.all() {
            let held = found.held.get_mut(peer as usize).map(std::mem::take).unwrap_or_default();
            if held != kept {
                return Err(format!("the holders of rank {peer} make {held}, its lease says {kept}"));
            }
        }
        let held = found.held;
        match held.iter().position(|held| *held > 0) {
            Some(peer) => Err(format!("the holders of rank {peer} make {}, and it has no lease", held[peer])),
            None => Ok(()),
        }
    }
}

/// What was found in the lists of runs: firehoses in all, and the bytes of each peer's.
struct Holders {
    count: usize,
    held: Vec<u64>,
}

impl Holders {
    fn add(&mut self, peer: Rank, bytes: u64) {
        let peer = peer as usize;
        if self.held.len() <= peer {
            self.held.resize(peer + 1, 0);
        }
        self.held[peer] += bytes;
        self.count += 1;
    }
}

/// Whether a run is to be found by its buckets.
fn is_indexed(entry: &Entry) -> bool {
    !entry.revoked && matches!(entry.state, State::Waiting | State::Registering | State::Ready)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    pinned: u64,
    peers: u64,
    local: u64,
    leaving: u64,
    victims: u64,
}

impl Sums {
    fn add(&mut self, entry: &Entry, is_held: bool, bytes: u64) {
        let (state, is_local) = (entry.state, entry.local > 0);
        let pinned = matches!(state, State::Registering | State::Ready | State::Deregistering);
        let is_victim = state == State::Ready && !(entry.revoked || is_held || is_local);
        self.pinned += if pinned { bytes } else { 0 };
        self.peers += if is_held { bytes } else { 0 };
        self.local += if is_local { bytes } else { 0 };
        self.leaving += if state == State::Deregistering { bytes } else { 0 };
        self.victims += if is_victim { bytes } else { 0 };
    }
}

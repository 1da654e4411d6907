//! The whole registration table, looked at anew: what its steps keep in mind must be what follows from its
//! entries.

use super::entry::{Entry, IsFor, State, bytes_of, run};
use hashbrown::HashMap;

use super::{Table, Used, is_for_peers};
use crate::Rank;
use crate::registration::slots::NONE;

impl Table {
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut sums = Sums::default();
        let mut holders = Holders { count: 0, held: vec![0; self.leases.ranks()] };
        // The buckets of runs that are to be found by them: the index is not in the order of the runs.
        let (mut indexed, mut buckets) = (Vec::with_capacity(self.entries.0.len()), 0);
        for (at, entry) in self.entries.0.iter().enumerate() {
            let bytes = bytes_of(&self.settings, run(entry));
            let here = self.audit_holders(at as u32, entry, bytes, &mut holders)?;
            if entry.state == State::Free {
                indexed.push((0, 0));
                continue;
            }
            sums.add(entry, here > 0, bytes);
            let count = if is_indexed(entry) { entry.count } else { 0 };
            buckets += u64::from(count);
            indexed.push((entry.first, count));
            if matches!(entry.state, State::Deregistering | State::Stuck) && self.is_referred_to(at as u32) {
                return Err(referred_to(at as u32));
            }
        }
        self.audit_pins()?;
        self.audit_granted()?;
        self.audit_sums(&sums)?;
        self.audit_index(&indexed, buckets)?;
        self.audit_leases(holders)
    }

    /// Each run counts as many pins as refer to it, and no more than it has local references.
    fn audit_pins(&self) -> Result<(), String> {
        let mut found: HashMap<u32, u32> = HashMap::new();
        for (_, pin) in &self.pins.all {
            let there = pin.regs.iter().filter_map(|reg| self.place_of(*reg));
            there.filter(|at| self.pins.of(*at) > 0).for_each(|at| *found.entry(at).or_default() += 1);
        }
        let is_more = |(at, pins): &(&u32, &u32)| **pins > self.entries.0[**at as usize].local;
        if found != self.pins.runs || found.iter().any(|run| is_more(&run)) || !self.pins.ended.is_empty() {
            return Err(format!("pins make {found:?}, their runs count {:?}", self.pins.runs));
        }
        Ok(())
    }

    fn audit_sums(&self, sums: &Sums) -> Result<(), String> {
        let kept = Sums { pinned: self.counters.pinned, used: self.used };
        if *sums != kept {
            return Err(format!("the entries make {sums:?}, kept in mind is {kept:?}"));
        }
        let budget = self.settings.budget();
        if sums.pinned.max(self.counters.budget) > budget
            || sums.used.peers > self.settings.peers_bytes
            || sums.used.local > self.settings.victims_bytes
        {
            return Err(format!("{sums:?} with M + MAXVICTIM {budget}"));
        }
        Ok(())
    }

    /// Adds the holders of a run of so many bytes, and returns how many there are.
    #[inline]
    fn audit_holders(&self, at: u32, entry: &Entry, bytes: u64, all: &mut Holders) -> Result<u32, String> {
        let mut count = 0;
        let mut next = if entry.state == State::Free { NONE } else { entry.holder };
        while next != NONE {
            let holder = &self.holders[next as usize];
            if holder.entry != at {
                return Err(strayed(next, at));
            }
            all.add(holder.peer, bytes);
            count += 1;
            next = holder.next;
        }
        all.count += count as usize;
        if count == entry.holders { Ok(count) } else { Err(miscounted(at, entry.holders, count)) }
    }

    /// Each bucket in the index leads to a run that has it, and there are as many as in all of those: so all
    /// are found.
    fn audit_index(&self, indexed: &[(u64, u32)], buckets: u64) -> Result<(), String> {
        for (&bucket, &at) in &self.index {
            let (first, count) = indexed[at as usize];
            if bucket.wrapping_sub(first) >= u64::from(count) {
                return Err(misled(bucket, at, self.entries.0[at as usize].state));
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

#[cold]
fn referred_to(at: u32) -> String {
    format!("run {at} goes, and is referred to")
}

#[cold]
fn misled(bucket: u64, at: u32, state: State) -> String {
    format!("bucket {bucket} leads to run {at}, {state:?}, which is another's")
}

#[cold]
fn strayed(holder: u32, at: u32) -> String {
    format!("firehose {holder} of run {at} says that it is another's")
}

#[cold]
fn miscounted(at: u32, counted: u32, listed: u32) -> String {
    format!("run {at} counts {counted} holders and lists {listed}")
}

/// The findings of the lists of runs: firehoses in all, and the bytes of each peer's.
struct Holders {
    count: usize,
    held: Vec<u64>,
}

impl Holders {
    fn add(&mut self, peer: Rank, bytes: u64) {
        match self.held.get_mut(peer as usize) {
            Some(held) => *held += bytes,
            None => self.add_stranger(peer, bytes),
        }
    }

    #[cold]
    fn add_stranger(&mut self, peer: Rank, bytes: u64) {
        self.held.resize(peer as usize + 1, 0);
        self.held[peer as usize] = bytes;
    }
}

/// Whether a run is to be found by its buckets.
fn is_indexed(entry: &Entry) -> bool {
    entry.is_for == IsFor::All && matches!(entry.state, State::Waiting | State::Registering | State::Ready)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    pinned: u64,
    used: Used,
}

impl Sums {
    fn add(&mut self, entry: &Entry, is_held: bool, bytes: u64) {
        let (state, is_local) = (entry.state, entry.local > 0);
        let pinned = matches!(state, State::Registering | State::Ready | State::Deregistering | State::Stuck);
        let is_victim = state == State::Ready && !(!is_for_peers(entry) || is_held || is_local);
        self.pinned += if pinned { bytes } else { 0 };
        self.used.peers += if is_held { bytes } else { 0 };
        self.used.local += if is_local { bytes } else { 0 };
        self.used.leaving += if state == State::Deregistering { bytes } else { 0 };
        self.used.begun += if state == State::Registering { bytes } else { 0 };
        self.used.victims += if is_victim { bytes } else { 0 };
    }
}

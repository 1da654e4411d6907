//! The owner's side: which of this process's memory is registered, for whom, and what it is charged to.
//!
//! An entry is a *run* of adjacent buckets under one registration, given up as a whole. Two kinds of
//! reference keep it: *holders* (peers that may use its key at any time) and *local* references (operations
//! of this process). Memory that peers hold is charged to M; a local reference is charged to MAXVICTIM, even
//! if peers hold the same run. A registration that nobody refers to stays as a victim, and is rescued when it
//! is wanted again, without a system call. Victims go, in the order of a `VictimQueue`, when room is needed.
//!
//! *Law:* pinned bytes never exceed M + MAXVICTIM: a registration is only begun when its bytes fit beside
//! those of every other that is begun, there, or not yet over. It waits in line for what has to go first.
//!
//! No clock, no messages: what is to be done comes out as [`Action`]s, and the results are told.

mod audit;
mod changes;
pub(crate) mod entry;
mod granted;
mod granted_runs;
mod holders;
pub(crate) mod pins;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use hashbrown::HashMap;

use self::entry::{Entries, Entry, Holder, IsFor, Pins, State, bytes_of, run};
use self::granted_runs::GrantedRuns;
use super::counters::TableCounters;
use super::quota::Leases;
use super::slots::{NONE, push};
use super::victims::VictimQueue;
use super::{Key, RegId, RegisterError, Run, Settings, end_of};
use crate::Rank;

/// Of so many runs that are refused here, as the system once refused as much, one is asked for all the same.
/// The cause may have been want of something that is there by now.
const ASKED_AGAIN: u64 = 64;

/// An action that the table wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Register this memory, and say how it went by [`Table::registered`].
    Register(RegId, Run),
    /// Register so many bytes from an address on, which are granted, and say how it went by
    /// [`Table::registered`].
    RegisterGranted(RegId, u64, u64),
    /// Take this registration back, and say so by `Table::deregistered`, or `Table::not_deregistered`.
    Deregister(RegId),
    /// The registration of this run has been settled: it is ready, or failed.
    Settled(RegId),
    /// Tell the peer that this right of its is revoked: it is to give it back.
    Revoke(Rank, HolderId),
    /// Ask the peer to give back so many bytes that it does not need.
    Recall(Rank, u64),
}

/// A peer's right to one run: a firehose, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HolderId(pub u32);

/// Why nothing was acquired. Nothing is held then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// So many bytes more are wanted than the asker may ever have.
    Never,
    /// There may be room when others have given back.
    Now,
}

/// Bytes of runs, by what keeps them. A run may be of several kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    /// Peers hold them.
    peers: u64,
    /// This process refers to them.
    local: u64,
    /// They are on their way out.
    leaving: u64,
    /// The system has not said yet whether it registers them.
    begun: u64,
    /// Nobody refers to them.
    victims: u64,
}

/// The registration table. It belongs to whoever drives the node: one thread at a time.
pub struct Table {
    settings: Settings,
    entries: Entries,
    /// The first free entry.
    free: u32,
    /// By bucket.
    index: HashMap<u64, u32>,
    holders: Vec<Holder>,
    free_holder: u32,
    leases: Leases,
    queue: VictimQueue,
    /// Runs that wait to be registered, in the order of asking.
    line: VecDeque<u32>,
    granted: GrantedRuns,
    pins: Pins,
    used: Used,
    actions: VecDeque<Action>,
    counters: TableCounters,
}

impl Table {
    /// The table of one of `ranks` processes.
    pub fn new(settings: Settings, ranks: u32) -> Table {
        Table {
            queue: VictimQueue::new(settings.order),
            settings,
            entries: Entries(Vec::new()),
            free: NONE,
            index: HashMap::new(),
            holders: Vec::new(),
            free_holder: NONE,
            leases: Leases::new(&settings, ranks),
            line: VecDeque::new(),
            granted: GrantedRuns::default(),
            pins: Pins::default(),
            used: Used::default(),
            actions: VecDeque::new(),
            counters: TableCounters { budget: settings.budget(), ..TableCounters::default() },
        }
    }

    pub(crate) fn counters(&self) -> TableCounters {
        self.counters
    }

    /// Bytes of memory that the table's entries, index and holders take.
    pub fn memory_bytes(&self) -> usize {
        self.entries.0.capacity() * size_of::<Entry>()
            + self.holders.capacity() * size_of::<Holder>()
            + self.index.allocation_size()
            + self.granted.memory_bytes()
    }

    /// Whether anything is to be done.
    #[inline]
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// The next action.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Local references, in all.
    pub(crate) fn references(&self) -> u64 {
        self.entries.0.iter().map(|entry| u64::from(entry.local)).sum()
    }

    /// Refers to the registration that covers `bucket`, if there is one that is ready.
    #[inline]
    pub fn acquire(&mut self, bucket: u64) -> Option<(RegId, Run)> {
        let at = *self.index.get(&bucket)?;
        let entry = &mut self.entries.0[at as usize];
        if entry.state != State::Ready {
            return None;
        }
        let found = (RegId { index: at, generation: entry.generation }, run(entry));
        if entry.local > 0 {
            entry.local += 1;
            return Some(found);
        }
        let bytes = bytes_of(&self.settings, found.1);
        if self.used.local + bytes > self.settings.victims_bytes {
            return None;
        }
        entry.local = 1;
        self.used.local += bytes;
        if entry.holders == 0 {
            self.used.victims -= bytes;
            self.counters.rescues += 1;
        }
        self.queue.touch(&mut self.entries, at);
        Some(found)
    }

    /// Refers to every bucket of `wanted`, as soon as it is registered: all of it, or nothing. The
    /// registrations are appended to `got`, each to be given back by [`Table::release`].
    ///
    /// # Errors
    /// [`NoRoom`] where MAXVICTIM does not leave so much, ever or now.
    pub fn pin(&mut self, wanted: Run, got: &mut Vec<RegId>) -> Result<(), NoRoom> {
        let (mut charge, mut all) = (0, 0);
        self.each_part(wanted, |part, entry| {
            let bytes = bytes_of(&self.settings, part);
            all += bytes;
            charge += if entry.is_some_and(|entry| entry.local > 0) { 0 } else { bytes };
        });
        if self.used.local + charge > self.settings.victims_bytes {
            self.counters.refusals += 1;
            return Err(if all > self.settings.victims_bytes { NoRoom::Never } else { NoRoom::Now });
        }
        let mut at = wanted.first;
        while at < end_of(wanted) {
            let entry = self.entry_for(at, wanted);
            at = end_of(self.run_of(entry));
            self.add_local(entry);
            got.push(self.id_of(entry));
        }
        self.make_room();
        Ok(())
    }

    /// Gives a local reference back.
    ///
    /// # Panics
    /// When `reg` is not referred to.
    #[inline]
    pub fn release(&mut self, reg: RegId) {
        let at = self.place_of(reg).expect("what is referred to stays");
        let entry = &mut self.entries.0[at as usize];
        entry.local -= 1;
        if entry.local > 0 {
            return;
        }
        self.used.local -= bytes_of(&self.settings, run(entry));
        if entry.holders == 0 {
            self.on_idle(at);
            self.make_room();
        }
    }

    /// The key of a registration that is ready; `None` while it is not, if it failed, or if its memory
    /// changed since.
    pub(crate) fn key(&self, reg: RegId) -> Option<Key> {
        let entry = &self.entries.0[self.place_of(reg)? as usize];
        (entry.state == State::Ready && is_for_peers(entry)).then_some(entry.key)
    }

    /// Whether a registration is still to be settled.
    pub(crate) fn is_pending(&self, reg: RegId) -> bool {
        self.place_of(reg).is_some_and(|at| {
            matches!(self.entries.0[at as usize].state, State::Waiting | State::Registering)
        })
    }

    /// Takes the result of a registration.
    pub fn registered(&mut self, reg: RegId, result: Result<Key, RegisterError>) {
        let Some(at) =
            self.place_of(reg).filter(|at| self.entries.0[*at as usize].state == State::Registering)
        else {
            return;
        };
        self.used.begun -= self.bytes(at);
        match result {
            Ok(key) => {
                self.counters.registrations += 1;
                self.counters.pinned_peak =
                    self.counters.pinned_peak.max(self.counters.pinned - self.used.begun);
                let entry = &mut self.entries.0[at as usize];
                (entry.key, entry.state) = (key, State::Ready);
                self.actions.push_back(Action::Settled(reg));
                if !self.is_referred_to(at) {
                    self.on_idle(at);
                }
            }
            Err(error) => self.on_failure(at, error),
        }
        self.make_room();
    }

    /// As [`Table::registered`], of memory that may change without this process being told: whoever waits for
    /// it uses it, and it goes with the last of them. Nobody else finds it, and peers are not given it.
    pub fn registered_once(&mut self, reg: RegId, key: Key) {
        let is_awaited = |at: &u32| self.entries.0[*at as usize].state == State::Registering;
        let Some(at) = self.place_of(reg).filter(is_awaited) else { return };
        self.forget(at);
        self.queue.remove(&mut self.entries, at);
        self.entries.0[at as usize].is_for = IsFor::Waiting;
        self.counters.once += 1;
        self.registered(reg, Ok(key));
    }

    /// Refers to a registration that was [made once](Table::registered_once), and that the caller refers to
    /// already, if it is ready and covers `bucket`.
    pub(crate) fn acquire_once(&mut self, reg: RegId, bucket: u64) -> Option<(RegId, Run)> {
        let at = self.place_of(reg)?;
        let entry = &mut self.entries.0[at as usize];
        let run = run(entry);
        let is_it = entry.is_for == IsFor::Waiting && entry.state == State::Ready && entry.local > 0;
        if !is_it || !(run.first..end_of(run)).contains(&bucket) {
            return None;
        }
        entry.local += 1;
        Some((reg, run))
    }

    /// Takes note that a deregistration is over.
    pub(crate) fn deregistered(&mut self, reg: RegId) {
        let Some(at) = self.place_of(reg) else { return };
        let bytes = self.bytes(at);
        match self.entries.0[at as usize].state {
            State::Deregistering => self.used.leaving -= bytes,
            State::Stuck => {}
            _ => return,
        }
        self.counters.pinned -= bytes;
        self.free_entry(at);
        self.make_room();
    }

    /// Takes note that the system would not take a registration back: its bytes stay pinned, and nothing
    /// waits for them to go. They may yet: [`Table::deregistered`].
    pub(crate) fn not_deregistered(&mut self, reg: RegId) {
        let Some(at) =
            self.place_of(reg).filter(|at| self.entries.0[*at as usize].state == State::Deregistering)
        else {
            return;
        };
        self.counters.stuck += 1;
        self.used.leaving -= self.bytes(at);
        self.entries.0[at as usize].state = State::Stuck;
        self.make_room();
    }

    /// Calls `f` with each run that covers part of `wanted`, as it is or would be made.
    fn each_part(&self, wanted: Run, mut f: impl FnMut(Run, Option<&Entry>)) {
        let mut at = wanted.first;
        while at < end_of(wanted) {
            let entry = self.index.get(&at).map(|place| &self.entries.0[*place as usize]);
            let part = entry.map_or_else(|| self.gap(at, wanted), run);
            f(part, entry);
            at = end_of(part);
        }
    }

    /// The new run that begins at `at`, up to the next that is there.
    fn gap(&self, at: u64, wanted: Run) -> Run {
        let most = (end_of(wanted) - at).min(u64::from(self.settings.run_max.max(1)));
        let count = (1..most).find(|more| self.index.contains_key(&(at + more))).unwrap_or(most);
        Run { first: at, count: count as u32 }
    }

    /// The run that covers bucket `at`, which is made if there is none.
    fn entry_for(&mut self, at: u64, wanted: Run) -> u32 {
        match self.index.get(&at) {
            Some(&entry) => {
                self.counters.hits += 1;
                entry
            }
            None => self.new_entry(self.gap(at, wanted)),
        }
    }

    fn new_entry(&mut self, run: Run) -> u32 {
        let at = self.new_run(run);
        for bucket in run.first..end_of(run) {
            self.index.insert(bucket, at);
        }
        at
    }

    /// A run that waits to be registered, and is not to be found yet.
    fn new_run(&mut self, run: Run) -> u32 {
        let at = match self.free {
            NONE => push(&mut self.entries.0, Entry::free(), 8),
            free => {
                self.free = self.entries.0[free as usize].holder;
                free
            }
        };
        let entry = &mut self.entries.0[at as usize];
        let generation = entry.generation;
        *entry =
            Entry { first: run.first, count: run.count, state: State::Waiting, generation, ..Entry::free() };
        self.line.push_back(at);
        self.queue.enter(&mut self.entries, at);
        at
    }

    fn free_entry(&mut self, at: u32) {
        self.forget(at);
        self.granted.remove(at);
        self.queue.remove(&mut self.entries, at);
        let entry = &mut self.entries.0[at as usize];
        entry.state = State::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.holder = self.free;
        self.free = at;
    }

    /// Takes a run out of the index, where it is still there.
    fn forget(&mut self, at: u32) {
        let run = self.run_of(at);
        if self.granted.forget(at, run) {
            return;
        }
        for bucket in run.first..end_of(run) {
            if self.index.get(&bucket) == Some(&at) {
                self.index.remove(&bucket);
            }
        }
    }

    #[inline]
    fn add_local(&mut self, at: u32) {
        self.rescue(at);
        let entry = &mut self.entries.0[at as usize];
        entry.local += 1;
        if entry.local == 1 {
            self.used.local += bytes_of(&self.settings, run(entry));
            self.queue.touch(&mut self.entries, at);
        }
    }

    /// Somebody is about to refer to a run, which may be a victim.
    #[inline]
    fn rescue(&mut self, at: u32) {
        let entry = &self.entries.0[at as usize];
        if entry.local + entry.holders == 0 && entry.state == State::Ready {
            self.used.victims -= bytes_of(&self.settings, run(entry));
            self.counters.rescues += 1;
        }
    }

    /// Nobody refers to a run any more.
    #[inline]
    fn on_idle(&mut self, at: u32) {
        if self.is_victim(at) {
            self.used.victims += self.bytes(at);
            self.queue.idle(&mut self.entries, at);
        } else {
            self.let_go(at);
        }
    }

    /// Nobody refers any more to a run that is not kept.
    #[cold]
    fn let_go(&mut self, at: u32) {
        match self.entries.0[at as usize].state {
            State::Ready => self.evict(at),
            State::Waiting => {
                self.line.retain(|waiting| *waiting != at);
                self.free_entry(at);
            }
            State::Failed(_) => self.free_entry(at),
            // It becomes a victim, or goes, when it is there.
            State::Registering | State::Deregistering | State::Stuck | State::Free => {}
        }
    }

    fn on_failure(&mut self, at: u32, error: RegisterError) {
        let bytes = self.bytes(at);
        self.counters.failures += 1;
        self.counters.pinned -= bytes;
        if error == RegisterError::Limit {
            // Memory that the system refuses now is not asked of it again soon.
            self.counters.budget = self.counters.budget.min(self.counters.pinned);
        }
        self.fail(at, error);
    }

    fn fail(&mut self, at: u32, error: RegisterError) {
        self.forget(at);
        self.entries.0[at as usize].state = State::Failed(error);
        self.actions.push_back(Action::Settled(self.id_of(at)));
        if !self.is_referred_to(at) {
            self.on_idle(at);
        }
    }

    fn evict(&mut self, at: u32) {
        self.forget(at);
        self.entries.0[at as usize].state = State::Deregistering;
        self.used.leaving += self.bytes(at);
        self.actions.push_back(Action::Deregister(self.id_of(at)));
    }

    /// Registers what waits in line and fits, and sends victims away that are too many or in the way.
    #[inline]
    fn make_room(&mut self) {
        if !self.line.is_empty() || self.used.victims > self.victims_max() {
            self.make_room_now();
        }
    }

    fn make_room_now(&mut self) {
        while let Some(&at) = self.line.front() {
            let bytes = self.bytes(at);
            if self.counters.pinned + bytes <= self.counters.budget {
                self.line.pop_front();
                self.begin(at, bytes);
            } else if self.counters.pinned - self.used.leaving + bytes <= self.counters.budget {
                break;
            } else if !self.evict_one() {
                if self.used.leaving > 0 {
                    break;
                }
                // The system has allowed less than what was promised, or takes registrations not back; but
                // now and then it is asked again, for no more than what was promised.
                self.line.pop_front();
                self.counters.refusals += 1;
                let wanted = self.counters.pinned + bytes;
                if self.counters.refusals.is_multiple_of(ASKED_AGAIN) && wanted <= self.settings.budget() {
                    self.counters.budget = wanted;
                    self.begin(at, bytes);
                } else {
                    self.fail(at, RegisterError::Limit);
                }
            }
        }
        while self.used.victims > self.victims_max() && self.evict_one() {}
    }

    fn begin(&mut self, at: u32, bytes: u64) {
        self.counters.pinned += bytes;
        self.used.begun += bytes;
        self.entries.0[at as usize].state = State::Registering;
        self.actions.push_back(match self.granted.extent(at) {
            Some(extent) => Action::RegisterGranted(self.id_of(at), extent.start, extent.len),
            None => Action::Register(self.id_of(at), self.run_of(at)),
        });
    }

    fn evict_one(&mut self) -> bool {
        let picked = self.queue.pick(&mut self.entries);
        if let Some(at) = picked {
            self.counters.evictions += 1;
            self.used.victims -= self.bytes(at);
            self.evict(at);
        }
        picked.is_some()
    }

    fn victims_max(&self) -> u64 {
        let lent = if self.settings.victims_borrow { self.settings.peers_bytes - self.used.peers } else { 0 };
        (self.settings.victims_bytes - self.used.local).saturating_add(lent)
    }

    fn is_victim(&self, at: u32) -> bool {
        let entry = &self.entries.0[at as usize];
        entry.state == State::Ready && is_for_peers(entry) && entry.local + entry.holders == 0
    }

    fn is_referred_to(&self, at: u32) -> bool {
        let entry = &self.entries.0[at as usize];
        entry.local + entry.holders > 0
    }

    fn place_of(&self, reg: RegId) -> Option<u32> {
        let entry = self.entries.0.get(reg.index as usize)?;
        (entry.generation == reg.generation && entry.state != State::Free).then_some(reg.index)
    }

    fn id_of(&self, at: u32) -> RegId {
        RegId { index: at, generation: self.entries.0[at as usize].generation }
    }

    fn run_of(&self, at: u32) -> Run {
        run(&self.entries.0[at as usize])
    }

    fn bytes(&self, at: u32) -> u64 {
        bytes_of(&self.settings, self.run_of(at))
    }
}

/// Whether peers may be given a registration.
fn is_for_peers(entry: &Entry) -> bool {
    matches!(entry.is_for, IsFor::All | IsFor::Granted)
}

//! One simulated process: its memory, its card, its processor's clock, and what its card has for it.

use std::collections::VecDeque;

use engine::{Atomic, Event, MemId, Nanos, Place, Rank};
use rustc_hash::FxHashMap;

use crate::causality::CausalHistory;
use crate::costs::Costs;
use crate::known_peer::KnownPeer;
use crate::nic::Nic;
use crate::outbox::Outbox;
use crate::queue;
use crate::space::{Access, Space};

/// Whether a process takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It polls.
    Alive,
    /// It does not poll, but its memory and card are there.
    Mute,
    /// It ended then.
    Dead(Nanos),
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// Private memory.
    pub(crate) space: Space,
    /// The heap, which the card can always reach.
    heap: Space,
    /// The engine's own words, which the card can always reach.
    control: Space,
    pub(crate) nic: Nic,
    /// When its processor has done what it was given so far.
    pub(crate) cpu: Nanos,
    /// When its card has sent what it was given so far.
    pub(crate) link: Nanos,
    /// Messages that it has handed over for sending, and that have not left.
    pub(crate) outbox: Outbox,
    pub(crate) health: Health,
    /// What its program may know of changes to memory, its own included.
    pub(crate) heard: CausalHistory,
    /// Messages that its card has for it, by arrival.
    pub(crate) arrived: VecDeque<u32>,
    /// What else its card has to tell.
    pub(crate) reports: VecDeque<Event>,
    /// Whether it will look by itself.
    pub(crate) waking: bool,
    /// When those ended that had the rank before it.
    pub(crate) ends: Vec<Nanos>,
    /// Which processes it talks to, where it is not the first of the rank. Never iterated over.
    pub(crate) met: FxHashMap<Rank, KnownPeer>,
    /// What has come to its card from processes that it has not met.
    pub(crate) strangers: Vec<queue::Event>,
}

impl Process {
    pub(crate) fn new(rank: Rank, costs: &Costs) -> Process {
        let mut control = Space::new(costs.page_bytes);
        control.map_at(0, 64, Access::Full);
        Process {
            space: Space::new(costs.page_bytes),
            heap: Space::new(costs.page_bytes),
            control,
            nic: Nic::new(rank, costs.pinnable_bytes, costs.table_entries),
            cpu: 0,
            link: 0,
            outbox: Outbox::default(),
            health: Health::Alive,
            heard: CausalHistory::default(),
            arrived: VecDeque::new(),
            reports: VecDeque::new(),
            waking: false,
            ends: Vec::new(),
            met: FxHashMap::default(),
            strangers: Vec::new(),
        }
    }

    /// One of its memories.
    pub(crate) fn memory(&self, mem: MemId) -> &Space {
        match mem {
            MemId::Space => &self.space,
            MemId::Heap => &self.heap,
            MemId::Control => &self.control,
            MemId::Grant(_) => unreachable!("an engine asks for the memory that it has granted"),
        }
    }

    /// As [`Process::memory`], to map and unmap.
    pub(crate) fn memory_mut(&mut self, mem: MemId) -> &mut Space {
        match mem {
            MemId::Space => &mut self.space,
            MemId::Heap => &mut self.heap,
            MemId::Control => &mut self.control,
            MemId::Grant(_) => unreachable!("an engine asks for the memory that it has granted"),
        }
    }

    /// Reads its memory. `Err` with the first byte that cannot be read.
    pub(crate) fn read(&self, from: Place, into: &mut [u8]) -> Result<(), u64> {
        self.memory(from.mem).read(from.offset, into)
    }

    /// Writes its memory. `Err` with the first byte that cannot be written.
    pub(crate) fn write(&self, to: Place, from: &[u8]) -> Result<(), u64> {
        self.memory(to.mem).write(to.offset, from)
    }

    /// Applies an atomic to a word that peers reach, and returns what was there; `None` where no word can be.
    pub(crate) fn apply(&self, word: Place, atomic: Atomic) -> Option<u64> {
        if word.mem == MemId::Space { None } else { self.apply_own(word, atomic) }
    }

    /// Applies an atomic to any word of the process's, and returns what was there; `None` where no word can
    /// be.
    pub(crate) fn apply_own(&self, word: Place, atomic: Atomic) -> Option<u64> {
        let has_none = matches!(word.mem, MemId::Grant(_));
        if has_none || !word.offset.is_multiple_of(atomic.size()) {
            return None;
        }
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..atomic.size() as usize];
        self.read(word, bytes).ok()?;
        let old = atomic.apply_to(bytes)?;
        if atomic.may_change() {
            self.write(word, bytes).ok()?;
        }
        Some(old)
    }

    /// Whether it can send or receive at `time`.
    pub(crate) fn lived_at(&self, time: Nanos) -> bool {
        match self.health {
            Health::Alive | Health::Mute => true,
            Health::Dead(since) => time < since,
        }
    }
}

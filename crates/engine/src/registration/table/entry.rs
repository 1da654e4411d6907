//! The registration table's entries.

use std::ops::Range;

use hashbrown::HashMap;
use slab::Slab;

use crate::Rank;
use crate::registration::slots::NONE;
use crate::registration::victims::{Linked, Links};
use crate::registration::{Key, RegId, RegisterError, Run, Settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for others to go.
    Waiting,
    Registering,
    Ready,
    /// Registration failed; whoever refers to it is to let go.
    Failed(RegisterError),
    Deregistering,
    /// Should go, and the system would not take it back: it counts as pinned.
    Stuck,
    Free,
}

/// The users that a registration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsFor {
    /// This process and its peers may use it.
    All,
    /// Only peers that ask for it by a grant may.
    Granted,
    /// Only transfers of this process that waited for it may: nobody tells of changes of its memory.
    Waiting,
    /// Only its present users may: its memory has changed.
    Nobody,
}

/// One registration.
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) key: Key,
    pub(super) count: u32,
    pub(super) generation: u32,
    pub(super) local: u32,
    pub(super) holders: u32,
    /// The first of its holders; the next free entry where this one is.
    pub(super) holder: u32,
    pub(super) links: Links,
    pub(super) state: State,
    pub(super) is_for: IsFor,
}

/// One firehose, in a list with the others of its run; or a free name, in a list with the others.
pub(super) struct Holder {
    pub(super) peer: Rank,
    pub(super) entry: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
}

pub(super) struct Entries(pub(super) Vec<Entry>);

impl Linked for Entries {
    fn links(&mut self, at: u32) -> &mut Links {
        &mut self.0[at as usize].links
    }

    fn is_used(&self, at: u32) -> bool {
        let entry = &self.0[at as usize];
        entry.local + entry.holders > 0 || entry.state != State::Ready
    }

    fn name(&self, at: u32) -> u64 {
        self.0[at as usize].first
    }
}

impl Entry {
    pub(super) fn free() -> Entry {
        Entry {
            first: 0,
            key: Key(0),
            count: 0,
            generation: 0,
            local: 0,
            holders: 0,
            holder: NONE,
            links: Links::default(),
            state: State::Free,
            is_for: IsFor::All,
        }
    }
}

/// Names a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinId(pub(super) usize);

/// Buckets that the program keeps registered.
pub(super) struct Pin {
    pub(super) buckets: Range<u64>,
    /// The registrations that cover them.
    pub(super) regs: Vec<RegId>,
    /// Part of its memory has changed, or could not be registered anew where other memory of a run had.
    pub(super) is_gone: bool,
}

/// All pins.
#[derive(Default)]
pub(super) struct Pins {
    pub(super) all: Slab<Pin>,
    /// By the places of runs: how many of their local references are pins'.
    pub(super) runs: HashMap<u32, u32>,
    /// Runs that pins referred to until part of their memory changed.
    pub(super) ended: Vec<(RegId, Run)>,
}

impl Pins {
    /// How many local references to a run are pins'.
    pub(super) fn of(&self, at: u32) -> u32 {
        self.runs.get(&at).copied().unwrap_or_default()
    }

    /// No pin refers to a run any more, of which part has changed. How many did.
    pub(super) fn end(&mut self, reg: RegId, run: Run) -> u32 {
        let pins = self.runs.remove(&reg.index).unwrap_or_default();
        if pins > 0 {
            self.ended.push((reg, run));
        }
        pins
    }
}

pub(super) fn run(entry: &Entry) -> Run {
    Run { first: entry.first, count: entry.count }
}

pub(super) fn bytes_of(settings: &Settings, run: Run) -> u64 {
    u64::from(run.count) * settings.bucket.bytes()
}

//! Locked memory: what `pmMLock` gives handles of, and how the peers look such a handle up.
//!
//! A handle is one word, so that a program may add an offset to it: the address in the low 48 bits, and
//! above it the number of an entry in its owner's table. The table lies in the owner's heap. Whoever writes
//! or reads by a handle looks there, by a get, and starts nothing that was not locked. Of a near owner it
//! looks each time. Of a far one it looks again once a message of the owner has told that it has unlocked
//! something: until then it takes the handle for what it was.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use standpipe::{GlobalPtr, HeapArray, HeapError, Node, PinError, Pinned, Rank};

use super::error::PmError;
use super::pin_down::{EntryId, PinDown, PinDownCounters};

/// Bits of a handle that are the address.
const ADDRESS_BITS: u32 = 48;
/// Addresses are below this.
const ADDRESS_END: u64 = 1 << ADDRESS_BITS;
/// Bits of an entry's number that say how often it was used before.
const ROUND_BITS: u32 = 4;
/// Regions that a process may have locked at a time, at most. The first number is none's, so that 0 is no
/// handle.
pub const LOCKS_MAX: usize = (1 << (u64::BITS - ADDRESS_BITS - ROUND_BITS)) - 1;
/// How long a lock waits for room that is being given up.
const PIN_WAIT: Duration = Duration::from_secs(5);
/// Words of an entry in the table.
pub(super) const WORDS: usize = 3;

/// A locked region, or with an offset added a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Handle {
    /// The address that it names in its owner.
    pub(super) fn addr(self) -> u64 {
        self.0 % ADDRESS_END
    }

    /// The number of its region, with how often that number was used.
    pub(super) fn tag(self) -> u64 {
        self.0 >> ADDRESS_BITS
    }

    fn slot(self) -> usize {
        (self.tag() >> ROUND_BITS) as usize
    }
}

/// By what memory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockBy {
    /// By [`Node::pin`]: locking ends with [`PmError::NotOffered`] where nothing is registered.
    Pin,
    /// By a table alone: nothing is pinned, and the transport needs no pin. For hosts without a network that
    /// registers, with the same budget and the same cache.
    Address {
        /// Bytes that may be locked at a time.
        budget_bytes: u64,
    },
}

/// An entry as it stands in the table: handle, length, and the one rank that may use it plus 1, or 0 for all.
pub(super) type Row = [u64; WORDS];

struct Region {
    row: Row,
    locks: u32,
    held: Held,
}

/// What keeps a region locked.
enum Held {
    Pin {
        guard: Pinned,
    },
    /// Nothing: the library keeps no registration of such memory, and moves it otherwise.
    Unpinned,
    Entry(EntryId),
}

/// What a region is known by when it is unlocked: address, length, and the table's third word.
type Name = (u64, u64, u64);

enum Keeper {
    Pin(PinDownCounters),
    Address(PinDown),
}

/// The locked memory of this process, and where that of its peers is written down.
pub(super) struct Locks {
    keeper: Keeper,
    table: HeapArray<u64>,
    tables: Vec<GlobalPtr<u64>>,
    regions: Vec<Option<Region>>,
    rounds: Vec<u8>,
    /// Those that have been free longest come first, so that a number comes again late.
    free: VecDeque<usize>,
    by_name: HashMap<Name, usize>,
    /// How many regions have been unlocked so far. The layer's messages tell the peers.
    unlocked: u64,
}

/// Whether a row is that of this handle's region, has so many bytes from there on, and is for that rank.
pub(super) fn covers(row: Row, handle: Handle, len: u64, user: Rank) -> bool {
    let [base, region_len, rank] = row;
    let (base, from) = (Handle(base), handle.addr());
    base.tag() == handle.tag()
        && base.0 != 0
        && from
            .checked_sub(base.addr())
            .and_then(|offset| offset.checked_add(len))
            .is_some_and(|end| end <= region_len)
        && (rank == 0 || rank == u64::from(user) + 1)
}

impl Locks {
    pub(super) fn new(node: &Node, by: LockBy) -> Result<Locks, HeapError> {
        let keeper = match by {
            LockBy::Pin => Keeper::Pin(PinDownCounters::default()),
            LockBy::Address { budget_bytes } => Keeper::Address(PinDown::new(budget_bytes)),
        };
        let table = node.heap().alloc_zeroed((LOCKS_MAX + 1) * WORDS)?;
        let regions = (0..=LOCKS_MAX).map(|_| None).collect();
        let free = (1..=LOCKS_MAX).collect();
        let (tables, by_name) = (Vec::new(), HashMap::new());
        let rounds = vec![0; LOCKS_MAX + 1];
        Ok(Locks { keeper, table, tables, regions, rounds, free, by_name, unlocked: 0 })
    }

    /// Where this process's table lies.
    pub(super) fn place(&self) -> GlobalPtr<u64> {
        self.table.ptr(0)
    }

    /// How many regions have been unlocked so far.
    pub(super) fn unlocked(&self) -> u64 {
        self.unlocked
    }

    /// Notes where all ranks' tables lie.
    pub(super) fn learn(&mut self, tables: Vec<GlobalPtr<u64>>) {
        self.tables = tables;
    }

    /// Where the row of a handle of that peer's lies.
    pub(super) fn row_of(&self, peer: Rank, handle: Handle) -> GlobalPtr<Row> {
        self.tables[peer as usize].add(handle.slot() * WORDS).cast()
    }

    /// Whether a handle of this process's own names so many locked bytes that may be used with `peer`.
    pub(super) fn has(&self, handle: Handle, len: u64, peer: Rank) -> bool {
        let region = self.regions[handle.slot()].as_ref();
        region.is_some_and(|region| covers(region.row, handle, len, peer))
    }

    /// Locks memory, for one rank or for all.
    pub(super) fn lock(
        &mut self,
        node: &Node,
        start: *mut u8,
        len: usize,
        peer: Option<Rank>,
    ) -> Result<Handle, PmError> {
        let (addr, bytes) = (start.expose_provenance() as u64, len as u64);
        if addr == 0 || len == 0 || addr.checked_add(bytes).is_none_or(|end| end > ADDRESS_END) {
            return Err(PmError::Invalid);
        }
        let rank = peer.map_or(0, |peer| u64::from(peer) + 1);
        if let Some(slot) = self.by_name.get(&(addr, bytes, rank)).copied() {
            return self.lock_again(node, slot, start);
        }
        let Some(slot) = self.free.pop_front() else { return Err(PmError::NoSpace) };
        let held = self.keeper.lock(node, start, len).inspect_err(|_| self.free.push_front(slot))?;
        self.rounds[slot] = (self.rounds[slot] + 1) % (1 << ROUND_BITS);
        let tag = (slot as u64) << ROUND_BITS | u64::from(self.rounds[slot]);
        let row = [tag << ADDRESS_BITS | addr, bytes, rank];
        self.regions[slot] = Some(Region { row, locks: 1, held });
        self.by_name.insert((addr, bytes, rank), slot);
        // The handle last: who finds it finds the rest.
        for word in (0..WORDS).rev() {
            self.table.write(slot * WORDS + word, row[word]);
        }
        Ok(Handle(row[0]))
    }

    /// Counts a lock of what is locked already. Memory that was mapped anew meanwhile is pinned anew.
    fn lock_again(&mut self, node: &Node, slot: usize, start: *mut u8) -> Result<Handle, PmError> {
        let region = self.regions[slot].as_mut().expect("what has a name has a region");
        let locks = region.locks.checked_add(1).ok_or(PmError::NoSpace)?;
        match (&mut self.keeper, &region.held) {
            (keeper, Held::Pin { guard }) if !guard.is_held() => {
                region.held = keeper.lock(node, start, region.row[1] as usize)?;
            }
            (Keeper::Pin(counters), _) => counters.hits += 1,
            (Keeper::Address(cache), _) => cache.hit(),
        }
        region.locks = locks;
        Ok(Handle(region.row[0]))
    }

    /// Takes back one lock of exactly that memory. What was pinned for it stays so until room is needed.
    pub(super) fn unlock(&mut self, start: *mut u8, len: usize, peer: Option<Rank>) -> Result<(), PmError> {
        let name = (start.addr() as u64, len as u64, peer.map_or(0, |peer| u64::from(peer) + 1));
        let slot = *self.by_name.get(&name).ok_or(PmError::NotLocked)?;
        let region = self.regions[slot].as_mut().expect("what has a name has a region");
        assert!(region.locks > 0, "a lock ends once");
        region.locks -= 1;
        if region.locks == 0 {
            self.table.write(slot * WORDS, 0);
            self.unlocked = self.unlocked.wrapping_add(1);
            let gone = self.regions[slot].take();
            if let (Keeper::Address(cache), Some(Region { held: Held::Entry(id), .. })) =
                (&mut self.keeper, gone)
            {
                cache.unlock(id);
            }
            self.by_name.remove(&name);
            self.free.push_back(slot);
        }
        Ok(())
    }

    /// What the cache has done.
    pub(super) fn counters(&self, node: &Node) -> PinDownCounters {
        match &self.keeper {
            Keeper::Pin(counters) => {
                let table = node.registrations().table;
                PinDownCounters { held_bytes: table.pinned, budget_bytes: table.budget, ..*counters }
            }
            Keeper::Address(cache) => cache.counters(),
        }
    }

    /// Whether memory can be locked here at all.
    pub(super) fn is_offered(&self, node: &Node) -> bool {
        match &self.keeper {
            Keeper::Address(_) => true,
            Keeper::Pin(_) => !matches!(node.pin(&[0_u8; 0]), Err(PinError::NotOffered)),
        }
    }
}

impl Keeper {
    fn lock(&mut self, node: &Node, start: *mut u8, len: usize) -> Result<Held, PmError> {
        match self {
            Keeper::Address(cache) => {
                let entry = cache.lock(start.addr() as u64, len as u64);
                entry.map(Held::Entry).ok_or(PmError::NoSpace)
            }
            Keeper::Pin(counters) => {
                // The node's own table is the cache: it says whether this took a registration.
                let before = node.registrations().table;
                let pinned =
                    node.within(PIN_WAIT).pin(std::ptr::slice_from_raw_parts(start.cast_const(), len));
                let after = node.registrations().table;
                counters.evictions += after.evictions - before.evictions;
                let pinned = match pinned {
                    // Statics and mapped files, of whose changes nobody is told.
                    Err(PinError::Unwatched { .. }) => {
                        counters.misses += 1;
                        return Ok(Held::Unpinned);
                    }
                    pinned => pinned.map_err(|error| of_pin(&error))?,
                };
                match after.registrations == before.registrations {
                    true => counters.hits += 1,
                    false => counters.misses += 1,
                }
                Ok(Held::Pin { guard: pinned })
            }
        }
    }
}

fn of_pin(error: &PinError) -> PmError {
    match error {
        PinError::NotOffered => PmError::NotOffered,
        PinError::Fault { .. } => PmError::Invalid,
        // No room, or none in time.
        _ => PmError::NoSpace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_covers_its_own_bytes_for_its_own_rank() {
        let tag = 5_u64 << ROUND_BITS | 3;
        let base = tag << ADDRESS_BITS | 0x1000;
        let row = [base, 100, 0];
        for (handle, len, holds) in [
            (base, 100, true),
            (base + 99, 1, true),
            (base + 100, 0, true),
            (base + 100, 1, false),
            (base, 101, false),
            (base - 1, 1, false),
            (base + (1 << ADDRESS_BITS), 1, false),
            (base, u64::MAX, false),
            (0, 0, false),
            (0x1000, 1, false),
        ] {
            assert_eq!(covers(row, Handle(handle), len, 0), holds, "{handle:#x} {len}");
        }
        assert!(!covers([0, 100, 0], Handle(base), 1, 0) && !covers([0; WORDS], Handle(0), 0, 0));
        assert!(covers([base, 100, 3], Handle(base), 1, 2) && !covers([base, 100, 3], Handle(base), 1, 3));
        assert_eq!(Handle(u64::MAX).slot(), LOCKS_MAX);
    }
}

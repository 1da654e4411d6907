//! A process's network card: what is registered with it, and what that pins.
//!
//! A registration holds the very pages that it pinned. Memory that is unmapped meanwhile stays pinned, and
//! the card goes on reading and writing it: it cannot know.

use std::ops::Range;

use engine::registration::RegisterError;
use engine::{Key, Nanos, Rank, RegId};

use crate::causality::Change;
use crate::space::{Access, Part, Space};
use crate::violation::Breach;

/// The registrations of one process.
#[derive(Debug)]
pub(crate) struct Nic {
    rank: Rank,
    /// By [`RegId::index`].
    slots: Vec<Slot>,
    pinned: u64,
    pinned_peak: u64,
    /// Bytes that may be pinned.
    limit: u64,
    table: Table,
}

/// What is known of one index of [`RegId`]s.
#[derive(Debug, Default)]
struct Slot {
    /// The generation last registered; 0 is before the first.
    next_generation: u64,
    registration: Option<Registration>,
}

/// When memory was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped {
    pub(crate) since: Nanos,
    /// Which change of memory it was.
    pub(crate) change: Change,
}

/// Pinned memory with a key.
#[derive(Debug)]
pub(crate) struct Registration {
    reg: RegId,
    /// The whole pages that it pins.
    start: u64,
    end: u64,
    /// The bytes that its key reaches.
    reach: Range<u64>,
    state: State,
    parts: Vec<Part>,
    /// What of it was unmapped since, and when.
    stale: Vec<(u64, u64, Unmapped)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Registering,
    Live,
    Deregistering,
}

impl Registration {
    /// The pinned memory at `at`.
    fn part(&self, at: u64) -> &Part {
        // Mostly there is but one.
        let first = self.parts.first().filter(|part| at < part.end);
        first.unwrap_or_else(|| &self.parts[self.parts.partition_point(|part| part.end <= at)])
    }

    /// Reads pinned memory from `at` on. `Err` with the first byte that may not be read.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), u64> {
        self.walk(at, into.len() as u64, Access::Read, |part, from, run| {
            part.read(from, &mut into[(from - at) as usize..][..run as usize]);
        })
    }

    /// Writes pinned memory from `at` on. `Err` with the first byte that may not be written.
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Result<(), u64> {
        self.walk(at, from.len() as u64, Access::Full, |part, to, run| {
            part.write(to, &from[(to - at) as usize..][..run as usize]);
        })
    }

    /// Calls `each` with every stretch of the pinned memory from `at` on. `Err` with the first byte that may
    /// not be accessed so.
    fn walk(
        &self,
        at: u64,
        len: u64,
        access: Access,
        mut each: impl FnMut(&Part, u64, u64),
    ) -> Result<(), u64> {
        let mut here = at;
        while here < at + len {
            let part = self.part(here);
            if part.access < access {
                return Err(here);
            }
            let until = part.end.min(at + len);
            each(part, here, until - here);
            here = until;
        }
        Ok(())
    }

    /// Whether any of these bytes were unmapped since they were pinned; the first time that they were.
    pub(crate) fn unmapped(&self, at: u64, len: u64) -> Option<Unmapped> {
        self.stale.iter().find(|(start, end, _)| at < *end && *start < at + len).map(|(.., when)| *when)
    }

    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Nic {
    pub(crate) fn new(rank: Rank, limit: u64, table_entries: usize) -> Nic {
        let table = Table { entries: table_entries, pages: Vec::new() };
        Nic { rank, slots: Vec::new(), pinned: 0, pinned_peak: 0, limit, table }
    }

    /// Bytes pinned now.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// The most bytes that were ever pinned at once.
    pub(crate) fn pinned_peak(&self) -> u64 {
        self.pinned_peak
    }

    /// Sets how many bytes may be pinned; what is pinned stays so.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Pins the pages that `len` bytes from `offset` on touch. The key reaches those bytes, and works from
    /// [`Nic::ready`] on.
    ///
    /// # Panics
    /// When `reg` is registered already, or was before.
    pub(crate) fn register(
        &mut self,
        reg: RegId,
        space: &Space,
        offset: u64,
        len: u64,
    ) -> Result<Key, RegisterError> {
        let index = reg.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        assert!(slot.registration.is_none(), "{reg:?} is registered already, or still");
        assert!(u64::from(reg.generation) >= slot.next_generation, "{reg:?} was registered before");
        let (start, end) = pages(space, offset, len).ok_or(RegisterError::Fault)?;
        let mut parts = Vec::new();
        let pin = |part: &Part, _, _| parts.push(part.clone());
        space.walk(start, end - start, Access::Read, pin).map_err(|_| RegisterError::Fault)?;
        if self.pinned + (end - start) > self.limit {
            return Err(RegisterError::Limit);
        }
        let (reach, state, stale) = (offset..offset + len, State::Registering, Vec::new());
        let registration = Registration { reg, start, end, reach, state, parts, stale };
        (slot.registration, slot.next_generation) = (Some(registration), u64::from(reg.generation) + 1);
        self.pinned += end - start;
        self.pinned_peak = self.pinned_peak.max(self.pinned);
        Ok(self.key(reg))
    }

    /// From now on the registration's key works, which is returned; unless it was taken back already.
    pub(crate) fn ready(&mut self, reg: RegId) -> Option<Key> {
        let registration = self.registered(reg).filter(|found| found.state == State::Registering)?;
        registration.state = State::Live;
        Some(self.key(reg))
    }

    /// From now on the key does not work. Returns the bytes that stay pinned until [`Nic::unpin`].
    ///
    /// # Panics
    /// When `reg` is not registered.
    pub(crate) fn revoke(&mut self, reg: RegId) -> u64 {
        let registration = self.registered(reg).expect("who deregisters has registered");
        assert!(registration.state != State::Deregistering, "{reg:?} is being deregistered already");
        registration.state = State::Deregistering;
        registration.bytes()
    }

    /// Lets go of a registration's memory.
    pub(crate) fn unpin(&mut self, reg: RegId, page_bytes: u64) {
        let slot = &mut self.slots[reg.index as usize];
        let Some(registration) = slot.registration.take() else { return };
        self.pinned -= registration.bytes();
        self.table.forget(registration.start / page_bytes..registration.end / page_bytes);
    }

    /// Takes note that memory is unmapped: what is registered of it is stale from now on.
    pub(crate) fn unmapped(&mut self, start: u64, end: u64, when: Unmapped) {
        for registration in self.slots.iter_mut().filter_map(|slot| slot.registration.as_mut()) {
            let (from, to) = (start.max(registration.start), end.min(registration.end));
            if from < to {
                registration.stale.push((from, to, when));
            }
        }
    }

    /// The live registration of a key, if it covers these bytes and begins where the initiator counts from.
    pub(crate) fn by_key(&self, key: Key, base: u64, offset: u64, len: u64) -> Result<&Registration, Breach> {
        let plain = key.0 ^ salt(self.rank);
        let reg = RegId { index: plain as u32, generation: (plain >> 32) as u32 };
        let registration = self.find(reg, offset, len)?;
        if registration.reach.start == base { Ok(registration) } else { Err(Breach::Base) }
    }

    /// A live registration, if it covers these bytes.
    pub(crate) fn find(&self, reg: RegId, offset: u64, len: u64) -> Result<&Registration, Breach> {
        let slot = self.slots.get(reg.index as usize).ok_or(Breach::Unknown)?;
        if u64::from(reg.generation) >= slot.next_generation {
            return Err(Breach::Unknown);
        }
        let registration = slot.registration.as_ref().filter(|found| found.reg == reg);
        let registration = registration.ok_or(Breach::Revoked)?;
        let end = offset.checked_add(len).ok_or(Breach::Beyond)?;
        match registration.state {
            State::Registering => Err(Breach::Early),
            State::Deregistering => Err(Breach::Revoked),
            State::Live if offset < registration.reach.start || end > registration.reach.end => {
                Err(Breach::Beyond)
            }
            State::Live => Ok(registration),
        }
    }

    /// How many of the pages the card has to look up, because its table does not hold them. It does
    /// afterwards. There is a byte or more.
    pub(crate) fn translate(&mut self, offset: u64, len: u64, page_bytes: u64) -> u64 {
        if self.table.entries == 0 {
            return 0;
        }
        let shift = page_bytes.trailing_zeros();
        self.table.touch(offset >> shift..((offset.saturating_add(len) - 1) >> shift) + 1)
    }

    fn registered(&mut self, reg: RegId) -> Option<&mut Registration> {
        let slot = self.slots.get_mut(reg.index as usize)?;
        slot.registration.as_mut().filter(|found| found.reg == reg)
    }

    fn key(&self, reg: RegId) -> Key {
        Key((u64::from(reg.generation) << 32 | u64::from(reg.index)) ^ salt(self.rank))
    }
}

/// The whole pages that `len` bytes from `offset` on touch.
fn pages(space: &Space, offset: u64, len: u64) -> Option<(u64, u64)> {
    let end = offset.checked_add(len)?.checked_next_multiple_of(space.page_bytes())?;
    Some((offset - offset % space.page_bytes(), end))
}

/// Makes keys of one card meaningless to every other (the finishing step of splitmix64).
fn salt(rank: Rank) -> u64 {
    let mut bits = (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The translations that the card holds: each page has one place, and evicts who was there.
#[derive(Debug)]
struct Table {
    entries: usize,
    /// Page numbers plus 1; empty until the first is looked up.
    pages: Vec<u64>,
}

impl Table {
    fn touch(&mut self, pages: std::ops::Range<u64>) -> u64 {
        self.pages.resize(self.entries, 0);
        let mut misses = 0;
        for page in pages {
            let place = &mut self.pages[(page % self.entries as u64) as usize];
            misses += u64::from(*place != page + 1);
            *place = page + 1;
        }
        misses
    }

    fn forget(&mut self, pages: std::ops::Range<u64>) {
        if self.pages.is_empty() {
            return;
        }
        for page in pages {
            let place = &mut self.pages[(page % self.entries as u64) as usize];
            if *place == page + 1 {
                *place = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn reg(index: u32, generation: u32) -> RegId {
        RegId { index, generation }
    }

    /// A card whose process has 16 pages mapped at the address returned.
    fn card() -> (Nic, Space, u64) {
        let mut space = Space::new(PAGE);
        let at = space.map(16 * PAGE, Access::Full);
        (Nic::new(0, 10 * PAGE, 4), space, at)
    }

    fn breach<T>(found: Result<T, Breach>) -> Option<Breach> {
        found.err()
    }

    #[test]
    fn a_key_reaches_what_was_registered_while_it_is() {
        let (mut nic, space, at) = card();
        let from = at + 100;
        let key = nic.register(reg(3, 0), &space, from, 2 * PAGE).expect("it is mapped");
        assert_eq!(breach(nic.by_key(key, from, from, 8)), Some(Breach::Early));
        nic.ready(reg(3, 0));
        assert_eq!(breach(nic.by_key(key, from, from, 2 * PAGE)), None, "all that is registered");
        assert_eq!(breach(nic.by_key(key, from, from + 1, 2 * PAGE)), Some(Breach::Beyond));
        assert_eq!(breach(nic.by_key(key, from, from - 1, 1)), Some(Breach::Beyond));
        assert_eq!(breach(nic.by_key(key, from, u64::MAX, 8)), Some(Breach::Beyond));
        assert_eq!(breach(nic.by_key(key, at + PAGE, at + PAGE, 8)), Some(Breach::Base));
        assert_eq!(nic.revoke(reg(3, 0)), 3 * PAGE, "whole pages are pinned");
        assert_eq!(breach(nic.by_key(key, from, from, 8)), Some(Breach::Revoked));
        nic.unpin(reg(3, 0), PAGE);
        assert_eq!(breach(nic.by_key(key, from, from, 8)), Some(Breach::Revoked));
        let next = nic.register(reg(3, 1), &space, at, PAGE).expect("it is mapped");
        nic.ready(reg(3, 1));
        assert_eq!(breach(nic.by_key(key, at, at, 8)), Some(Breach::Revoked));
        assert_eq!(breach(nic.by_key(next, at, at, 8)), None);
    }

    #[test]
    fn a_key_of_another_card_is_unknown() {
        let (mut nic, space, at) = card();
        nic.register(reg(0, 0), &space, at, PAGE).expect("it is mapped");
        nic.ready(reg(0, 0));
        let mut other = Nic::new(1, 10 * PAGE, 0);
        let foreign = other.register(reg(0, 0), &space, at, PAGE).expect("it is mapped");
        assert_eq!(breach(nic.by_key(foreign, at, at, 8)), Some(Breach::Unknown));
        assert_eq!(breach(nic.find(reg(0, 1), at, 8)), Some(Breach::Unknown));
        assert_eq!(breach(nic.find(reg(9, 0), at, 8)), Some(Breach::Unknown));
    }

    #[test]
    fn pinned_bytes_are_counted_up_to_the_limit() {
        let (mut nic, space, at) = card();
        nic.register(reg(0, 0), &space, at, 8 * PAGE).expect("it is below the limit");
        assert_eq!(nic.register(reg(1, 0), &space, at + 8 * PAGE, 3 * PAGE), Err(RegisterError::Limit));
        nic.register(reg(1, 0), &space, at + 8 * PAGE, 2 * PAGE).expect("just the limit");
        nic.revoke(reg(0, 0));
        assert_eq!((nic.pinned(), nic.pinned_peak()), (10 * PAGE, 10 * PAGE), "revoked is not unpinned");
        nic.unpin(reg(0, 0), PAGE);
        assert_eq!((nic.pinned(), nic.pinned_peak()), (2 * PAGE, 10 * PAGE));
        nic.set_limit(3 * PAGE);
        assert_eq!(nic.register(reg(0, 1), &space, at, 2 * PAGE), Err(RegisterError::Limit));
        assert_eq!(nic.register(reg(0, 1), &space, at + 15 * PAGE, 2 * PAGE), Err(RegisterError::Fault));
        assert_eq!(nic.register(reg(0, 1), &space, u64::MAX - 10, 5), Err(RegisterError::Fault));
    }

    #[test]
    fn what_is_unmapped_is_stale_and_nothing_else() {
        let (mut nic, space, at) = card();
        let key = nic.register(reg(0, 0), &space, at, 4 * PAGE).expect("it is mapped");
        nic.ready(reg(0, 0));
        let when = Unmapped { since: 77, change: 1 };
        nic.unmapped(at + PAGE, at + 2 * PAGE, when);
        let registration = nic.by_key(key, at, at, 8).expect("the key is live");
        assert_eq!(registration.unmapped(at, PAGE), None);
        assert_eq!(registration.unmapped(at + PAGE - 1, 2), Some(when));
        assert_eq!(registration.unmapped(at + 2 * PAGE, PAGE), None);
    }

    #[test]
    fn a_page_misses_until_another_takes_its_place() {
        let (mut nic, space, at) = card();
        nic.register(reg(0, 0), &space, at, PAGE).expect("it is mapped");
        assert_eq!(nic.translate(at, 2 * PAGE, PAGE), 2);
        assert_eq!(nic.translate(at + 1, PAGE, PAGE), 0);
        assert_eq!(nic.translate(at + 4 * PAGE, 1, PAGE), 1, "a table of four has one place for both");
        assert_eq!(nic.translate(at, 1, PAGE), 1);
        nic.revoke(reg(0, 0));
        nic.unpin(reg(0, 0), PAGE);
        assert_eq!(nic.translate(at, 1, PAGE), 1, "a page that is no longer pinned has no translation");
        assert_eq!(Nic::new(0, 0, 0).translate(at, 8 * PAGE, PAGE), 0, "an unlimited table never misses");
    }
}

//! The pin-down cache: memory that was locked once stays locked until there is need of its room.
//!
//! Of Tezuka, O'Carroll, Hori and Ishikawa's *Pin-down Cache* (IPPS/SPDP 1998) the idea; the algorithm is
//! the usual account of it \[recalled\]: entries of whole pages with a count of locks, those with none in
//! the order of their last use, released when a new one does not fit.

/// Bytes of a page.
const PAGE: u64 = 4096;

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinDownCounters {
    /// Locks of memory that was held already.
    pub hits: u64,
    /// Locks that took more memory.
    pub misses: u64,
    /// Entries that were released to make room.
    pub evictions: u64,
    /// Bytes that are held now, locked or not.
    pub held_bytes: u64,
    /// Bytes that may be held at a time.
    pub budget_bytes: u64,
}

/// Names an entry for as long as it has locks.
pub(super) type EntryId = u64;

/// An entry: whole pages.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: EntryId,
    start: u64,
    end: u64,
    locks: u32,
    /// When it was last locked or unlocked.
    used: u64,
}

/// The cache of a process.
#[derive(Clone, Debug)]
pub(super) struct PinDown {
    entries: Vec<Entry>,
    clock: u64,
    counters: PinDownCounters,
}

impl PinDown {
    pub(super) fn new(budget_bytes: u64) -> PinDown {
        let counters = PinDownCounters { budget_bytes, ..PinDownCounters::default() };
        PinDown { entries: Vec::new(), clock: 0, counters }
    }

    /// Locks the pages of these bytes, and names the entry to unlock. `None`: they do not fit, and nothing
    /// has changed.
    pub(super) fn lock(&mut self, addr: u64, len: u64) -> Option<EntryId> {
        let (start, end) = pages(addr, len)?;
        self.clock += 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.start <= start && end <= entry.end) {
            entry.locks += 1;
            entry.used = self.clock;
            self.counters.hits += 1;
            return Some(entry.id);
        }
        if !self.make_room(end - start) {
            return None;
        }
        let id = self.clock;
        self.entries.push(Entry { id, start, end, locks: 1, used: self.clock });
        self.counters.held_bytes += end - start;
        self.counters.misses += 1;
        self.check();
        Some(id)
    }

    /// Counts a lock of what is locked already.
    pub(super) fn hit(&mut self) {
        self.counters.hits += 1;
    }

    /// Releases what is used least recently of what nobody has locked, until so many bytes fit.
    fn make_room(&mut self, bytes: u64) -> bool {
        let locked: u64 =
            self.entries.iter().filter(|entry| entry.locks > 0).map(|entry| entry.end - entry.start).sum();
        if locked.checked_add(bytes).is_none_or(|all| all > self.counters.budget_bytes) {
            return false;
        }
        while self.counters.held_bytes + bytes > self.counters.budget_bytes {
            let victims = self.entries.iter().enumerate().filter(|(_, entry)| entry.locks == 0);
            let (oldest, _) =
                victims.min_by_key(|(_, entry)| entry.used).expect("what is not locked is more than lacks");
            let victim = self.entries.swap_remove(oldest);
            self.counters.held_bytes -= victim.end - victim.start;
            self.counters.evictions += 1;
        }
        true
    }

    /// Takes back a lock of an entry, which stays until its room is needed.
    pub(super) fn unlock(&mut self, id: EntryId) {
        self.clock += 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id && entry.locks > 0) {
            entry.locks -= 1;
            entry.used = self.clock;
        }
        self.check();
    }

    pub(super) fn counters(&self) -> PinDownCounters {
        self.counters
    }

    fn check(&self) {
        debug_assert_eq!(
            self.counters.held_bytes,
            self.entries.iter().map(|entry| entry.end - entry.start).sum::<u64>(),
            "what is held is what the entries have"
        );
        debug_assert!(self.counters.held_bytes <= self.counters.budget_bytes, "and it is within the budget");
    }
}

/// The whole pages that have these bytes, if they do not wrap.
fn pages(addr: u64, len: u64) -> Option<(u64, u64)> {
    let end = addr.checked_add(len)?.checked_next_multiple_of(PAGE)?;
    Some((addr / PAGE * PAGE, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cache: &PinDown) -> [u64; 4] {
        let PinDownCounters { hits, misses, evictions, held_bytes, .. } = cache.counters();
        [hits, misses, evictions, held_bytes / PAGE]
    }

    /// Locks a page and takes it back.
    fn touch(cache: &mut PinDown, page: u64) -> bool {
        cache.lock(page * PAGE, PAGE).map(|id| cache.unlock(id)).is_some()
    }

    #[test]
    fn what_was_locked_once_is_a_hit_until_its_room_is_needed() {
        let mut cache = PinDown::new(4 * PAGE);
        assert!((0..4).all(|page| touch(&mut cache, page * 2)));
        assert_eq!(counts(&cache), [0, 4, 0, 4]);
        let id = cache.lock(10, 100).expect("a part of what is there");
        cache.unlock(id);
        assert_eq!(counts(&cache), [1, 4, 0, 4]);
        assert!(touch(&mut cache, 100), "the second was used least recently");
        assert_eq!(counts(&cache), [1, 5, 1, 4]);
        assert!(touch(&mut cache, 4) && touch(&mut cache, 6));
        assert_eq!(counts(&cache), [3, 5, 1, 4], "the third and the fourth are there still");
        assert!(touch(&mut cache, 2), "the second is not, and the first goes");
        assert_eq!(counts(&cache), [3, 6, 2, 4]);
    }

    #[test]
    fn what_is_locked_is_never_released_and_a_lock_that_fails_changes_nothing() {
        let mut cache = PinDown::new(2 * PAGE);
        let locks = [cache.lock(0, PAGE), cache.lock(0, PAGE)].map(|id| id.expect("room"));
        assert!(touch(&mut cache, 8));
        let before = counts(&cache);
        assert_eq!(cache.lock(16 * PAGE, 2 * PAGE), None);
        assert_eq!(counts(&cache), before, "the page that was free to go is there still");
        cache.unlock(locks[0]);
        assert_eq!(cache.lock(16 * PAGE, 2 * PAGE), None, "one lock is left");
        cache.unlock(locks[1]);
        cache.unlock(locks[1]);
        assert!(cache.lock(16 * PAGE, 2 * PAGE).is_some(), "and one too many changed nothing");
        assert_eq!(counts(&cache), [1, 3, 2, 2]);
    }

    #[test]
    fn of_two_entries_of_the_same_pages_the_one_that_was_locked_is_unlocked() {
        let mut cache = PinDown::new(6 * PAGE);
        let small = cache.lock(0, 2 * PAGE).expect("room");
        let large = cache.lock(0, 4 * PAGE).expect("room");
        cache.unlock(small);
        assert!(cache.lock(100 * PAGE, 2 * PAGE).is_some(), "the small one goes");
        assert_eq!(cache.lock(200 * PAGE, PAGE), None, "the large one stays");
        cache.unlock(large);
        assert!(cache.lock(200 * PAGE, PAGE).is_some());
    }

    #[test]
    fn lengths_at_the_limit_and_beyond() {
        let mut cache = PinDown::new(2 * PAGE);
        let id = cache.lock(1, 2 * PAGE - 1).expect("two pages");
        cache.unlock(id);
        assert_eq!(cache.lock(1, 2 * PAGE), None, "three");
        for (addr, len) in [(u64::MAX, 2), (u64::MAX - PAGE, u64::MAX), (1, u64::MAX)] {
            assert_eq!(cache.lock(addr, len), None);
        }
        assert_eq!(counts(&cache), [0, 1, 0, 2]);
    }
}

//! Handlers of Active Messages: how messages name them, and the table of those that a node has.
//!
//! Processes agree on nothing beforehand: a handler's number is a hash of its names, the same everywhere. Two
//! names may have one number, if rarely: of 1,000 names it happens once in 8,600 programs. So each handler
//! has a second hash, which tells them apart, and of two that have one number a node takes the first only.

use std::collections::BTreeMap;

/// A handler's two hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerKey {
    /// Messages name the handler by this.
    pub number: u32,
    /// This tells the handler from another of the same number.
    pub check: u32,
}

impl HandlerKey {
    /// That of the handler with this name in this namespace. Neither has a zero byte.
    pub const fn of(namespace: &str, name: &str) -> HandlerKey {
        // FNV-1a (Fowler, Noll, Vo), whose upper bits are mixed well and whose lower ones are not: so they
        // are mixed once more, as SplitMix64 ends (Steele, Lea, Flood, 2014).
        let hashed = fnv(fnv(0xcbf2_9ce4_8422_2325, namespace.as_bytes()), name.as_bytes());
        let mixed = (hashed ^ hashed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ mixed >> 31;
        HandlerKey { number: mixed as u32, check: (mixed >> 32) as u32 }
    }
}

/// Goes on with a hash: the bytes, and a zero byte that ends them.
const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash.wrapping_mul(PRIME)
}

/// The handlers that a node has. Each message that arrives is looked up here, so the table is one of our own:
/// numbers are hashes already, and a place is found by a few of their bits. A general table's lookup took a
/// twentieth of an Active Message.
#[derive(Default)]
pub(crate) struct HandlerTable {
    all: BTreeMap<u32, Entry>,
    /// A power of two of places, at most half of them taken. A handler lies at the place that its number's
    /// lower bits name, or at the next free one after it.
    places: Box<[Place]>,
}

/// A place of the table, and what lies there.
#[derive(Clone, Copy, Default)]
struct Place {
    entry: u64,
    number: u32,
    is_taken: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    check: u32,
    /// The node's owner, who runs handlers, knows it by this.
    entry: u64,
}

impl HandlerTable {
    /// Adds a handler, which whoever runs it knows by `entry`; the error is the check of the one that has its
    /// number.
    pub(crate) fn add(&mut self, key: HandlerKey, entry: u64) -> Result<(), u32> {
        if let Some(known) = self.all.get(&key.number) {
            return Err(known.check);
        }
        self.all.insert(key.number, Entry { check: key.check, entry });
        self.place_all();
        Ok(())
    }

    /// Removes one that is there.
    pub(crate) fn remove(&mut self, key: HandlerKey) {
        if self.check(key.number) == Some(key.check) {
            self.all.remove(&key.number);
            self.place_all();
        }
    }

    /// The entry that the handler of that number was added with.
    #[inline(always)]
    pub(crate) fn entry(&self, number: u32) -> Option<u64> {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = number as usize & mask;
        // At least half of the places are free.
        while let Some(place) = self.places.get(at).filter(|place| place.is_taken) {
            if place.number == number {
                return Some(place.entry);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// The check of the handler with that number.
    pub(crate) fn check(&self, number: u32) -> Option<u32> {
        Some(self.all.get(&number)?.check)
    }

    fn place_all(&mut self) {
        let count = (2 * self.all.len()).next_power_of_two();
        let (mut places, mask) = (vec![Place::default(); count].into_boxed_slice(), count - 1);
        for (number, Entry { entry, .. }) in &self.all {
            let mut at = *number as usize & mask;
            while places[at].is_taken {
                at = (at + 1) & mask;
            }
            places[at] = Place { entry: *entry, number: *number, is_taken: true };
        }
        self.places = places;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_the_keys_that_peers_know() {
        // Another value is another protocol.
        let key = HandlerKey::of("gups", "update");
        assert_eq!((key.number, key.check), (0xbc593a, 0x171da5dd));
    }

    #[test]
    fn names_are_told_from_namespaces() {
        let keys = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("bc", "a")];
        let keys: std::collections::BTreeSet<HandlerKey> =
            keys.iter().map(|(namespace, name)| HandlerKey::of(namespace, name)).collect();
        assert_eq!(keys.len(), 5);
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let numbers = |i: u32| HandlerKey::of("namespace", &format!("handler {i}")).number;
        let mut ones = [0; 32];
        (0..4096).for_each(|i| (0..32).for_each(|bit| ones[bit] += numbers(i) >> bit & 1));
        // Of 4,096 coins 2,048 show heads, 32 more or less; seven times as many are never more.
        assert!(ones.iter().all(|ones| ones.abs_diff(2048) < 224), "{ones:?}");
    }

    #[test]
    fn of_two_with_one_number_the_first_is_taken() {
        let mut table = HandlerTable::default();
        let (first, second) = (HandlerKey { number: 7, check: 1 }, HandlerKey { number: 7, check: 2 });
        assert_eq!(table.add(first, 10), Ok(()));
        assert_eq!((table.add(second, 11), table.add(first, 12)), (Err(1), Err(1)));
        table.remove(second);
        assert_eq!((table.entry(7), table.check(7)), (Some(10), Some(1)));
        table.remove(first);
        assert_eq!((table.entry(7), table.add(second, 11)), (None, Ok(())));
    }

    #[test]
    fn handlers_whose_places_are_taken_are_found() {
        let mut table = HandlerTable::default();
        assert_eq!(table.entry(0), None);
        // All name the same place, as do the last ones the first.
        let numbers: Vec<u32> = (0..40).map(|number| number << 16 | 0xffff).chain([0, 1, 2]).collect();
        for (entry, number) in (0..).zip(&numbers) {
            table.add(HandlerKey { number: *number, check: 0 }, entry).expect("a number of its own");
        }
        let found = |table: &HandlerTable| -> Vec<Option<u64>> {
            numbers.iter().map(|number| table.entry(*number)).collect()
        };
        assert!(found(&table).into_iter().eq((0..43).map(Some)));
        assert_eq!((table.entry(3), table.entry(40 << 16 | 0xffff)), (None, None));
        for number in numbers.iter().step_by(2) {
            table.remove(HandlerKey { number: *number, check: 0 });
        }
        assert!(found(&table).into_iter().eq((0..43).map(|entry| (entry % 2 == 1).then_some(entry))));
    }
}

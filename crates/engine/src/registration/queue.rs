//! The order in which what nobody refers to is given up: victims of the registration table, idle firehoses.
//!
//! Lists through entries that lie in a table of their owner's, by their places there; every step takes constant time,
//! picking a victim does on average.

use super::Order;

/// No place.
const NONE: u32 = u32::MAX;

/// An entry's neighbours in its list. Entries are linked into one list at most. Packed, so that an entry's other flags
/// fit into the same word.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(2))]
pub(crate) struct Links {
    /// Towards the end that is given up first.
    older: u32,
    newer: u32,
    linked: bool,
    mark: Mark,
}

/// SIEVE's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// It has entered for a use that is still to come, and that alone does not make it worth keeping.
    New,
    /// Not used since it entered or the hand passed, but for what it entered for.
    Unvisited,
    /// Used again.
    Visited,
}

impl Default for Links {
    fn default() -> Links {
        Links { older: NONE, newer: NONE, linked: false, mark: Mark::New }
    }
}

/// Where the links of an owner's entries are.
pub(crate) trait Linked {
    fn links(&mut self, at: u32) -> &mut Links;
    /// Whether anybody refers to the entry, so that it must stay.
    fn is_used(&self, at: u32) -> bool;
}

/// One list, in the order that entries are given up in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    order: Order,
    oldest: u32,
    newest: u32,
    /// Where SIEVE looks next; at the oldest where there is none.
    hand: u32,
    len: u32,
}

impl Queue {
    pub(crate) const fn new(order: Order) -> Queue {
        Queue { order, oldest: NONE, newest: NONE, hand: NONE, len: 0 }
    }

    /// An entry is there, for a use that is about to begin.
    pub(crate) fn enter(&mut self, entries: &mut impl Linked, at: u32) {
        if self.order != Order::Lru {
            self.push(entries, at);
        }
    }

    /// A use of an entry begins that may have been idle: the first after [`Queue::enter`] is what it entered for.
    #[inline]
    pub(crate) fn touch(&mut self, entries: &mut impl Linked, at: u32) {
        if self.order == Order::Sieve {
            let links = entries.links(at);
            links.mark = if links.mark == Mark::New { Mark::Unvisited } else { Mark::Visited };
        }
    }

    /// Nobody uses an entry any more.
    #[inline]
    pub(crate) fn idle(&mut self, entries: &mut impl Linked, at: u32) {
        if self.order == Order::Lru {
            self.renew(entries, at);
        } else if !entries.links(at).linked {
            self.come_back(entries, at);
        }
    }

    /// Takes an entry out, wherever it is, if it is in the list.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Linked, at: u32) {
        self.unlink(entries, at);
        entries.links(at).mark = Mark::New;
    }

    /// Likewise, but what was noted of its use stays.
    #[inline]
    fn unlink(&mut self, entries: &mut impl Linked, at: u32) {
        let mark = entries.links(at).mark;
        let links = std::mem::replace(entries.links(at), Links { mark, ..Links::default() });
        if !links.linked {
            return;
        }
        if self.hand == at {
            self.hand = links.newer;
        }
        match links.older {
            NONE => self.oldest = links.newer,
            older => entries.links(older).newer = links.newer,
        }
        match links.newer {
            NONE => self.newest = links.older,
            newer => entries.links(newer).older = links.older,
        }
        self.len -= 1;
    }

    /// Takes out the entry that goes first, if there is one that nobody uses.
    pub(crate) fn pick(&mut self, entries: &mut impl Linked) -> Option<u32> {
        // Twice round: once to take back SIEVE's marks.
        for _ in 0..2 * u64::from(self.len) {
            let at = if self.hand == NONE { self.oldest } else { self.hand };
            if at == NONE {
                break;
            }
            let used = entries.is_used(at);
            if !used && !take_back(&mut entries.links(at).mark) {
                self.remove(entries, at);
                return Some(at);
            }
            if used {
                // It comes back when it is idle: few victims among much that is in use are found at once.
                self.unlink(entries, at);
            } else {
                self.hand = entries.links(at).newer;
            }
        }
        None
    }

    /// Makes an entry the newest, wherever it is. It may stay where it was while it is used.
    #[inline(always)]
    fn renew(&mut self, entries: &mut impl Linked, at: u32) {
        if self.newest == at {
            return;
        }
        let Links { older, newer, linked, .. } = *entries.links(at);
        if !linked {
            return self.push(entries, at);
        }
        match older {
            NONE => self.oldest = newer,
            older => entries.links(older).newer = newer,
        }
        // There is a newer one, as it is not the newest.
        entries.links(newer).older = older;
        entries.links(self.newest).newer = at;
        let links = entries.links(at);
        (links.older, links.newer) = (self.newest, NONE);
        self.newest = at;
    }

    /// Puts what was taken out in use where its order wants it: it is older than all that FIFO has not come to yet.
    #[cold]
    #[inline(never)]
    fn come_back(&mut self, entries: &mut impl Linked, at: u32) {
        if self.order == Order::Sieve || self.oldest == NONE {
            return self.push(entries, at);
        }
        let links = entries.links(at);
        *links = Links { older: NONE, newer: self.oldest, linked: true, ..*links };
        entries.links(self.oldest).older = at;
        self.oldest = at;
        self.len += 1;
    }

    #[inline]
    fn push(&mut self, entries: &mut impl Linked, at: u32) {
        let links = entries.links(at);
        debug_assert!(!links.linked, "an entry stands in a list once");
        *links = Links { older: self.newest, newer: NONE, linked: true, ..*links };
        match self.newest {
            NONE => self.oldest = at,
            newest => entries.links(newest).newer = at,
        }
        self.newest = at;
        self.len += 1;
    }
}

/// Takes the mark of an entry that was used back; whether it had one.
fn take_back(mark: &mut Mark) -> bool {
    let visited = *mark == Mark::Visited;
    if visited {
        *mark = Mark::Unvisited;
    }
    visited
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Entries {
        links: [Links; 8],
        used: [bool; 8],
        looks: Cell<u32>,
    }

    impl Linked for Entries {
        fn links(&mut self, at: u32) -> &mut Links {
            &mut self.links[at as usize]
        }

        fn is_used(&self, at: u32) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.used[at as usize]
        }
    }

    impl Entries {
        /// As the tables do it: what enters is wanted by somebody, who then uses it.
        fn enter(&mut self, queue: &mut Queue, at: u32) {
            queue.enter(self, at);
            self.touch(queue, at);
        }

        fn touch(&mut self, queue: &mut Queue, at: u32) {
            self.used[at as usize] = true;
            queue.touch(self, at);
        }

        fn idle(&mut self, queue: &mut Queue, at: u32) {
            self.used[at as usize] = false;
            queue.idle(self, at);
        }
    }

    fn drained(queue: &mut Queue, entries: &mut Entries) -> Vec<u32> {
        std::iter::from_fn(|| queue.pick(entries)).collect()
    }

    /// Four entries, idle in the order 2, 0, 3; 1 stays in use; 0 is used once more.
    fn after_some_use(order: Order) -> Vec<u32> {
        let (mut queue, mut entries) = (Queue::new(order), Entries::default());
        for at in 0..4 {
            entries.enter(&mut queue, at);
        }
        for at in [2, 0, 3] {
            entries.idle(&mut queue, at);
        }
        entries.touch(&mut queue, 0);
        entries.idle(&mut queue, 0);
        drained(&mut queue, &mut entries)
    }

    #[test]
    fn each_order_is_what_it_says() {
        assert_eq!(after_some_use(Order::Fifo), [0, 2, 3], "as they entered");
        assert_eq!(after_some_use(Order::Lru), [2, 3, 0], "as they became idle");
        assert_eq!(after_some_use(Order::Sieve), [2, 3, 0], "what was used again is spared once");
    }

    #[test]
    fn sieve_spares_what_is_used_again_and_gives_up_a_scan() {
        let (mut queue, mut entries) = (Queue::new(Order::Sieve), Entries::default());
        for at in 0..2 {
            entries.enter(&mut queue, at);
            entries.idle(&mut queue, at);
        }
        for at in 2..6 {
            for used in 0..2 {
                entries.touch(&mut queue, used);
                entries.idle(&mut queue, used);
            }
            entries.enter(&mut queue, at);
            entries.idle(&mut queue, at);
            assert_eq!(queue.pick(&mut entries), Some(at), "the scan goes, what is used stays");
        }
    }

    #[test]
    fn what_an_entry_entered_for_does_not_spare_it() {
        let (mut queue, mut entries) = (Queue::new(Order::Sieve), Entries::default());
        for at in 0..3 {
            entries.enter(&mut queue, at);
            entries.idle(&mut queue, at);
        }
        entries.touch(&mut queue, 0);
        entries.idle(&mut queue, 0);
        assert_eq!(drained(&mut queue, &mut entries), [1, 2, 0], "only 0 was used again");
    }

    #[test]
    fn fifo_gives_up_first_what_was_in_use_at_its_turn() {
        let (mut queue, mut entries) = (Queue::new(Order::Fifo), Entries::default());
        for at in 0..4 {
            entries.enter(&mut queue, at);
        }
        entries.idle(&mut queue, 2);
        assert_eq!(queue.pick(&mut entries), Some(2), "0 and 1 are in use");
        for at in [3, 1] {
            entries.idle(&mut queue, at);
        }
        assert_eq!(drained(&mut queue, &mut entries), [1, 3], "as they entered");
        entries.idle(&mut queue, 0);
        assert_eq!(drained(&mut queue, &mut entries), [0]);
    }

    #[test]
    fn what_stays_in_use_is_not_looked_at_for_each_victim() {
        for order in [Order::Fifo, Order::Lru, Order::Sieve] {
            let (mut queue, mut entries) = (Queue::new(order), Entries::default());
            for at in 0..6 {
                entries.enter(&mut queue, at);
            }
            for round in 0..10 {
                for at in [6, 7] {
                    entries.enter(&mut queue, at);
                    entries.idle(&mut queue, at);
                    // Used again: SIEVE's hand goes round.
                    entries.touch(&mut queue, at);
                    entries.idle(&mut queue, at);
                }
                entries.looks.set(0);
                assert_eq!(drained(&mut queue, &mut entries), [6, 7]);
                assert!(
                    round == 0 || entries.looks.get() <= 4,
                    "{order:?} looks {} times",
                    entries.looks.get()
                );
            }
            entries.idle(&mut queue, 3);
            assert_eq!(drained(&mut queue, &mut entries), [3], "it is back as soon as nobody uses it");
        }
    }

    proptest! {
        #[test]
        fn only_idle_entries_are_picked_and_each_once(
            steps in proptest::collection::vec((0u32..8, 0u8..4), 0..200), order in 0usize..3,
        ) {
            let order = [Order::Fifo, Order::Lru, Order::Sieve][order];
            let (mut queue, mut entries) = (Queue::new(order), Entries::default());
            let mut there = [false; 8];
            for (at, step) in steps {
                let index = at as usize;
                match step {
                    0 if !there[index] => {
                        there[index] = true;
                        entries.enter(&mut queue, at);
                    }
                    1 if there[index] => entries.touch(&mut queue, at),
                    2 if there[index] && entries.used[index] => entries.idle(&mut queue, at),
                    3 => {
                        let idle = (0..8).any(|i| there[i] && !entries.used[i]);
                        let picked = queue.pick(&mut entries);
                        prop_assert_eq!(picked.is_some(), idle);
                        if let Some(picked) = picked {
                            prop_assert!(there[picked as usize] && !entries.used[picked as usize]);
                            there[picked as usize] = false;
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

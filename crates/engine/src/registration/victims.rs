//! The order in which what nobody refers to is given up: victims of the registration table, idle firehoses.
//!
//! Lists through entries that lie in a table of their owner's, by their places there; every step takes
//! constant time, picking a victim does on average.

use super::Order;
use super::slots::NONE;

/// An entry's neighbours in its list. Entries are linked into one list at most. Packed, so that an entry's
/// other flags fit into the same word.
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

impl Links {
    /// As [`VictimQueue::touch`], which needs nothing else of a queue of that order.
    #[inline(always)]
    pub(crate) fn touch(&mut self, order: Order) {
        if order == Order::Sieve {
            self.mark = if self.mark == Mark::New { Mark::Unvisited } else { Mark::Visited };
        }
    }
}

/// Where the links of an owner's entries are.
pub(crate) trait Linked {
    fn links(&mut self, at: u32) -> &mut Links;
    /// Whether anybody refers to the entry, so that it must stay.
    fn is_used(&self, at: u32) -> bool;
    /// A name for what the entry is of, whatever its place: another one of the same is known by it later.
    fn name(&self, at: u32) -> u64;
}

/// One list, in the order that entries are given up in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimQueue {
    order: Order,
    oldest: u32,
    newest: u32,
    /// Where SIEVE looks next; at the oldest where there is none.
    hand: u32,
    /// Entries that SIEVE has picked since its hand was at the oldest.
    picked: u32,
    regrets: Regrets,
    len: u32,
}

impl VictimQueue {
    pub(crate) const fn new(order: Order) -> VictimQueue {
        VictimQueue {
            order,
            oldest: NONE,
            newest: NONE,
            hand: NONE,
            picked: 0,
            regrets: Regrets::NONE,
            len: 0,
        }
    }

    /// An entry is there, for a use that is about to begin.
    pub(crate) fn enter(&mut self, entries: &mut impl Linked, at: u32) {
        if self.order == Order::Sieve {
            self.regrets.look_for(entries.name(at), self.len);
        }
        if self.order != Order::Lru {
            self.push(entries, at);
        }
    }

    /// A use of an entry begins that may have been idle: the first after [`VictimQueue::enter`] is what it
    /// entered for.
    #[inline]
    pub(crate) fn touch(&mut self, entries: &mut impl Linked, at: u32) {
        entries.links(at).touch(self.order);
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
        assert!(self.len > 0, "what is taken out was in the list");
        self.len -= 1;
    }

    /// Takes out the entry that goes first, if there is one that nobody uses.
    ///
    /// SIEVE's hand comes back to the oldest when it has passed the newest, and while one enters for each
    /// that is picked it does so slowly. Beside a scan that is as it should be: what is scanned goes, and
    /// what is older is what is used. But when a program turns to other memory, what it has left stays behind
    /// the hand, and what it uses now is given up again and again. So where much of what was picked is wanted
    /// again, the hand begins anew: what was not used since it passed goes. This is ours, not the paper's.
    pub(crate) fn pick(&mut self, entries: &mut impl Linked) -> Option<u32> {
        if self.picked > self.len / 4 && self.regrets.are_many() {
            self.hand = NONE;
        }
        // Twice round: once to take back SIEVE's marks.
        for _ in 0..2 * u64::from(self.len) {
            let at = if self.hand == NONE { self.oldest } else { self.hand };
            if at == NONE {
                break;
            }
            if self.hand == NONE {
                self.picked = 0;
                self.regrets.begin_anew();
            }
            let used = entries.is_used(at);
            if !used && !take_back(&mut entries.links(at).mark) {
                if self.order == Order::Sieve {
                    self.picked += 1;
                    self.regrets.note(entries.name(at), self.len);
                }
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

    /// Puts what was taken out in use where its order wants it: it is older than all that FIFO has not come
    /// to yet.
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

/// How much of what SIEVE has picked lately is wanted again, by a sample.
#[derive(Clone, Copy, Debug)]
struct Regrets {
    /// The entries of the sample that were picked last, by a part of a hash of their names; 0: nothing.
    tags: [u16; Regrets::TAGS],
    /// Of the sample, since the hand was at the oldest: how many were picked, and how many picked ones came
    /// back.
    picked: u32,
    returned: u32,
}

impl Regrets {
    const TAGS: usize = 64;
    /// Entries, at most, of which all are in the sample.
    const ALL: u32 = Regrets::TAGS as u32 / 2;
    const NONE: Regrets = Regrets { tags: [0; Regrets::TAGS], picked: 0, returned: 0 };

    /// Where in the table a name stands, and its tag there. `None`: it is not in the sample for a queue of
    /// that length.
    #[inline]
    fn place(name: u64, len: u32) -> Option<(usize, u16)> {
        let hash = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let one_in = (len / Regrets::ALL).next_power_of_two() as u64;
        let in_sample = (hash >> 8) & (one_in - 1) == 0;
        in_sample.then_some((hash as usize >> 58, (hash >> 32) as u16 | 1))
    }

    fn note(&mut self, name: u64, len: u32) {
        if let Some((at, tag)) = Regrets::place(name, len) {
            self.tags[at] = tag;
            self.picked += 1;
        }
    }

    fn look_for(&mut self, name: u64, len: u32) {
        if let Some((at, tag)) = Regrets::place(name, len)
            && self.tags[at] == tag
        {
            self.tags[at] = 0;
            self.returned += 1;
        }
    }

    fn are_many(&self) -> bool {
        3 * self.returned > self.picked
    }

    fn begin_anew(&mut self) {
        (self.picked, self.returned) = (0, 0);
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

    struct Entries {
        links: Vec<Links>,
        used: Vec<bool>,
        looks: Cell<u32>,
    }

    impl Default for Entries {
        fn default() -> Entries {
            Entries { links: vec![Links::default(); 64], used: vec![false; 64], looks: Cell::new(0) }
        }
    }

    impl Linked for Entries {
        fn links(&mut self, at: u32) -> &mut Links {
            &mut self.links[at as usize]
        }

        fn name(&self, at: u32) -> u64 {
            at.into()
        }

        fn is_used(&self, at: u32) -> bool {
            self.looks.set(self.looks.get() + 1);
            self.used[at as usize]
        }
    }

    impl Entries {
        /// As the tables do it: what enters is wanted by somebody, who then uses it.
        fn enter(&mut self, queue: &mut VictimQueue, at: u32) {
            queue.enter(self, at);
            self.touch(queue, at);
        }

        fn touch(&mut self, queue: &mut VictimQueue, at: u32) {
            self.used[at as usize] = true;
            queue.touch(self, at);
        }

        fn idle(&mut self, queue: &mut VictimQueue, at: u32) {
            self.used[at as usize] = false;
            queue.idle(self, at);
        }
    }

    fn drained(queue: &mut VictimQueue, entries: &mut Entries) -> Vec<u32> {
        std::iter::from_fn(|| queue.pick(entries)).collect()
    }

    /// Four entries, idle in the order 2, 0, 3; 1 stays in use; 0 is used once more.
    fn after_some_use(order: Order) -> Vec<u32> {
        let (mut queue, mut entries) = (VictimQueue::new(order), Entries::default());
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
        let (mut queue, mut entries) = (VictimQueue::new(Order::Sieve), Entries::default());
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

    /// A program uses large entries, a few more than fit, and then small ones, of which there is room for
    /// twice as many.
    fn misses_of_small_ones(order: Order, mut dice: u32) -> u32 {
        const ROOM: u32 = 32;
        let (mut queue, mut entries) = (VictimQueue::new(order), Entries::default());
        let (mut there, mut held, mut misses) = ([false; 64], 0, 0);
        let size = |at: u32| if at < 20 { 2 } else { 1 };
        for step in 0..800 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = if step < 400 { (dice >> 16) % 20 } else { 20 + (dice >> 16) % 16 };
            if there[at as usize] {
                entries.touch(&mut queue, at);
            } else {
                misses += u32::from(step >= 400);
                while held + size(at) > ROOM {
                    let victim = queue.pick(&mut entries).expect("all are idle");
                    there[victim as usize] = false;
                    held -= size(victim);
                }
                there[at as usize] = true;
                held += size(at);
                entries.enter(&mut queue, at);
            }
            entries.idle(&mut queue, at);
        }
        misses
    }

    #[test]
    fn what_programs_have_left_for_good_goes() {
        // Under Miri, which takes a thousand times as long, few runs, but enough of them for the mean to
        // hold: runs of SIEVE differ, and the first takes 31 misses.
        const RUNS: u32 = if cfg!(miri) { 4 } else { 20 };
        for order in [Order::Fifo, Order::Lru, Order::Sieve] {
            let misses: u32 = (1..=RUNS).map(|dice| misses_of_small_ones(order, dice)).sum();
            assert!(misses <= RUNS * 21, "{order:?}: {misses} misses in {RUNS} runs, for 16 entries each");
        }
    }

    #[test]
    fn what_an_entry_entered_for_does_not_spare_it() {
        let (mut queue, mut entries) = (VictimQueue::new(Order::Sieve), Entries::default());
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
        let (mut queue, mut entries) = (VictimQueue::new(Order::Fifo), Entries::default());
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
            let (mut queue, mut entries) = (VictimQueue::new(order), Entries::default());
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
            let (mut queue, mut entries) = (VictimQueue::new(order), Entries::default());
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

//! Things that wait for room, by the way that they are to go. Lanes are few, and many things may wait for one
//! lane.

use std::collections::VecDeque;

/// Lists by key, none of them empty but while they are gone through.
#[derive(Debug)]
pub(super) struct WaitQueues<K, T> {
    /// By key.
    lists: Vec<(K, VecDeque<T>)>,
    /// For the next list.
    spare: Vec<VecDeque<T>>,
}

impl<K, T> Default for WaitQueues<K, T> {
    fn default() -> WaitQueues<K, T> {
        WaitQueues { lists: Vec::new(), spare: Vec::new() }
    }
}

impl<K: Copy + Ord, T> WaitQueues<K, T> {
    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether anything waits for this.
    #[inline]
    pub(super) fn has(&self, key: K) -> bool {
        !self.lists.is_empty() && self.find(key).is_ok()
    }

    /// The things that wait for this.
    pub(super) fn get(&self, key: K) -> Option<&VecDeque<T>> {
        self.find(key).ok().map(|at| &self.lists[at].1)
    }

    /// All that waits.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.lists.iter().flat_map(|(_, list)| list)
    }

    /// Which list is this one's.
    pub(super) fn place(&self, key: K) -> Option<usize> {
        self.find(key).ok()
    }

    /// Appends to a list.
    pub(super) fn push(&mut self, key: K, what: T) {
        let at = self.find(key).unwrap_or_else(|at| {
            self.lists.insert(at, (key, self.spare.pop().unwrap_or_default()));
            at
        });
        self.lists[at].1.push_back(what);
    }

    /// The keys' `at`th list. Nothing but [`WaitQueues::tidy`] and new keys move it.
    pub(super) fn nth(&mut self, at: usize) -> Option<(K, &mut VecDeque<T>)> {
        self.lists.get_mut(at).map(|(key, list)| (*key, list))
    }

    /// Drops the lists that have become empty.
    pub(super) fn tidy(&mut self) {
        let spare = &mut self.spare;
        self.lists.retain_mut(|(_, list)| {
            if list.is_empty() {
                spare.push(std::mem::take(list));
                return false;
            }
            true
        });
    }

    /// Drops everything that waits for such keys.
    pub(super) fn forget(&mut self, mut gone: impl FnMut(K) -> bool) {
        self.lists.retain(|(key, _)| !gone(*key));
    }

    fn find(&self, key: K) -> Result<usize, usize> {
        self.lists.binary_search_by_key(&key, |(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_stays_in_turn_and_lists_come_by_key() {
        let mut waiting = WaitQueues::default();
        for (key, what) in [(5, 'a'), (2, 'b'), (5, 'c'), (9, 'd')] {
            waiting.push(key, what);
        }
        assert!(waiting.has(2) && !waiting.has(3));
        let (key, list) = waiting.nth(1).expect("there are three");
        assert_eq!((key, list.pop_front(), list.pop_front()), (5, Some('a'), Some('c')));
        waiting.tidy();
        assert!(!waiting.has(5));
        waiting.forget(|key| key == 9);
        assert_eq!(waiting.nth(0).map(|(key, list)| (key, list.len())), Some((2, 1)));
        assert!(waiting.nth(1).is_none() && !waiting.is_empty());
    }
}

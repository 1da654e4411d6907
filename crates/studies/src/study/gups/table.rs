//! A rank's share of the table: which words it holds, and what they must be in the end.

use standpipe::HeapArray;

use super::plan::Way;
use super::sequence::Sequence;

/// Which words of a table each process holds: equal runs of them, one after the other, the last perhaps cut
/// short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Words of the table: a power of two.
    pub(super) words: u64,
    each: u64,
    /// The power of two that `each` is, if it is one: then a word's holder is found without a division, which
    /// would take longer than all else of an update that finds its word in a cache.
    shift: Option<u32>,
}

impl Shares {
    /// Of a table of so many words among so many processes.
    pub(super) fn new(words: u64, ranks: u32) -> Shares {
        let each = words.div_ceil(u64::from(ranks));
        Shares { words, each, shift: each.is_power_of_two().then(|| each.trailing_zeros()) }
    }

    /// The word that a number updates.
    #[inline]
    pub(super) fn index(self, number: u64) -> u64 {
        number & (self.words - 1)
    }

    /// Who holds the word that a number updates, and where in its share.
    #[inline]
    pub(super) fn place(self, number: u64) -> (u32, u64) {
        let index = self.index(number);
        // There are as many ranks as fit 32 bits.
        match self.shift {
            Some(shift) => ((index >> shift) as u32, index & (self.each - 1)),
            None => ((index / self.each) as u32, index % self.each),
        }
    }

    /// The words of that process.
    pub(super) fn of(self, rank: u32) -> std::ops::Range<u64> {
        let end = |rank: u64| (rank * self.each).min(self.words);
        end(rank.into())..end(u64::from(rank) + 1)
    }

    /// Words of the largest share.
    pub(super) fn each(self) -> usize {
        usize::try_from(self.each).unwrap_or(usize::MAX)
    }
}

/// What a word is before the updates: its number, which exclusive ors come back to; or for puts what no
/// update puts there.
fn before(way: Way, index: u64) -> u64 {
    if way == Way::Put { !index } else { index }
}

/// Lays out this rank's share.
pub(super) fn fill(share: &HeapArray<u64>, own: std::ops::Range<u64>, way: Way) {
    let words: Vec<u64> = own.map(|index| before(way, index)).collect();
    share.write_slice(0, &words);
}

/// Words of a share that are not what `updates` updates must have made of them. They are made again here,
/// alone, all of those that this share gets, whoever made them.
pub(super) fn wrong(share: &[u64], own: std::ops::Range<u64>, shares: Shares, way: Way, updates: u64) -> u64 {
    let numbers = Sequence::after(0).take(usize::try_from(updates).unwrap_or(usize::MAX));
    let mine = numbers.filter(|number| own.contains(&shares.index(*number)));
    let at = |number: u64| (shares.index(number) - own.start) as usize;
    let words = || share.iter().copied().zip(own.clone());
    if way == Way::Put {
        let mut put = vec![false; share.len()];
        mine.for_each(|number| put[at(number)] = true);
        // Which of several puts to a word comes last is nobody's to say; but all of them name it.
        let right = |word: u64, index: u64, put: bool| {
            if put { shares.index(word) == index } else { word == before(way, index) }
        };
        return words().zip(put).filter(|((word, index), put)| !right(*word, *index, *put)).count() as u64;
    }
    let mut again = share.to_vec();
    mine.for_each(|number| again[at(number)] ^= number);
    again.iter().zip(own.clone()).filter(|(word, index)| **word != before(way, *index)).count() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_has_one_holder() {
        for (words, ranks) in [(1 << 10, 1), (1 << 10, 2), (1 << 10, 3), (1 << 11, 7)] {
            let shares = Shares::new(words, ranks);
            let all: Vec<u64> = (0..ranks).flat_map(|rank| shares.of(rank)).collect();
            assert_eq!(all, (0..words).collect::<Vec<_>>(), "{ranks} ranks");
            for number in Sequence::after(77).take(500) {
                let (rank, at) = shares.place(number);
                assert_eq!(shares.of(rank).start + at, shares.index(number));
            }
        }
    }

    /// One rank's share of a table of three after all updates but some.
    fn share(way: Way, left_out: usize) -> (Vec<u64>, Shares, std::ops::Range<u64>) {
        let shares = Shares::new(1 << 10, 3);
        let own = shares.of(1);
        let mut share: Vec<u64> = own.clone().map(|index| before(way, index)).collect();
        for number in Sequence::after(0).take(4096 - left_out) {
            if let (1, at) = shares.place(number) {
                let word = &mut share[at as usize];
                *word = if way == Way::Put { number } else { *word ^ number };
            }
        }
        (share, shares, own)
    }

    #[test]
    fn updates_that_were_not_made_are_found() {
        for way in Way::ALL {
            let (mut table, shares, own) = share(way, 0);
            assert_eq!(wrong(&table, own.clone(), shares, way, 4096), 0, "{way:?}");
            table[5] ^= 1 << 3;
            assert_eq!(wrong(&table, own, shares, way, 4096), 1, "{way:?}: a bit of a word");
        }
        let (table, shares, own) = share(Way::Atomic, 100);
        let missing = wrong(&table, own, shares, Way::Atomic, 4096);
        assert!((1..=100).contains(&missing), "those of the last hundred that are this rank's: {missing}");
        let (untouched, shares, own) = share(Way::Put, 4096);
        let numbers = Sequence::after(0).take(4096).map(|number| shares.index(number));
        let named: BTreeSet<u64> = numbers.filter(|index| own.contains(index)).collect();
        assert_eq!(wrong(&untouched, own, shares, Way::Put, 4096), named.len() as u64, "none was put");
        assert!(named.len() > 20, "{}", named.len());
    }
}

//! Who has heard of which new memory.
//!
//! A card that reads or writes memory that is no more does so rightly as long as the initiator could not
//! know: the owner's news is on its way. It is wrong once the initiator has started the access after a
//! message of the owner's, or anything that followed from one, has reached it: the owner had to hold that
//! back until the old key was gone.

use std::rc::Rc;

use engine::{Nanos, Rank};

/// By owner: how many times its memory had changed, as far as somebody knew. `None`: nothing has changed
/// anywhere.
pub(super) type Known = Option<Rc<Vec<u32>>>;

/// What everybody knows.
#[derive(Debug)]
pub(super) struct Knowledge {
    ranks: u32,
    known: Vec<Known>,
    /// By owner: when its memory changed.
    changes: Vec<Vec<Nanos>>,
    /// By owner: where it changed last.
    places: Vec<u64>,
    /// By who learnt: whose changes, how many, and the one-sided operations that had been started by then.
    learnt: Vec<Vec<(Rank, u32, u64)>>,
}

impl Knowledge {
    pub(super) fn new(ranks: u32) -> Knowledge {
        let all = ranks as usize;
        let (known, changes, learnt) = (vec![None; all], vec![Vec::new(); all], vec![Vec::new(); all]);
        Knowledge { ranks, known, changes, places: vec![0; all], learnt }
    }

    /// What `rank` knows.
    pub(super) fn of(&self, rank: Rank) -> Known {
        self.known[rank as usize].clone()
    }

    /// Where `owner`'s memory changed last.
    pub(super) fn place(&self, owner: Rank) -> u64 {
        self.places[owner as usize]
    }

    /// How many changes of `owner`'s memory `rank` knows of.
    pub(super) fn about(&self, rank: Rank, owner: Rank) -> u32 {
        self.known[rank as usize].as_ref().map_or(0, |known| known[owner as usize])
    }

    /// `owner`'s memory has changed from `offset` on, at `at`, after so many operations were `started`.
    /// Returns the change's number, from 1 on.
    pub(super) fn change(&mut self, owner: Rank, offset: u64, at: Nanos, started: u64) -> u32 {
        self.changes[owner as usize].push(at);
        self.places[owner as usize] = offset;
        let number = self.changes[owner as usize].len() as u32;
        let mut news = vec![0; self.ranks as usize];
        news[owner as usize] = number;
        self.learn(owner, &Some(Rc::new(news)), started);
        number
    }

    /// `rank` has learnt what somebody knew, after so many operations were `started`. Returns whose memory it
    /// has learnt something new about, if it has.
    #[inline]
    pub(super) fn learn(&mut self, rank: Rank, news: &Known, started: u64) -> Option<Rank> {
        self.add(rank, news.as_ref()?, started)
    }

    fn add(&mut self, rank: Rank, news: &Rc<Vec<u32>>, started: u64) -> Option<Rank> {
        let mine = &mut self.known[rank as usize];
        if mine.as_ref().is_some_and(|mine| Rc::ptr_eq(mine, news)) {
            return None;
        }
        let before = mine.get_or_insert_with(|| Rc::new(vec![0; self.ranks as usize]));
        if news.iter().zip(before.iter()).all(|(new, old)| new <= old) {
            return None;
        }
        let mut about = None;
        let mine = Rc::make_mut(before);
        for (owner, (old, new)) in mine.iter_mut().zip(news.iter()).enumerate() {
            if new > old {
                *old = *new;
                self.learnt[rank as usize].push((owner as Rank, *new, started));
                about = Some(owner as Rank);
            }
        }
        about
    }

    /// `rank` is another process, which knows nothing.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.known[rank as usize] = None;
        self.learnt[rank as usize].clear();
    }

    /// Whether `rank`, when it started operation `serial`, knew that `owner`'s memory had changed at `since`.
    pub(super) fn knew(&self, rank: Rank, owner: Rank, since: Nanos, serial: u64) -> bool {
        let changes = &self.changes[owner as usize];
        let number = changes.partition_point(|at| *at <= since) as u32;
        let learnt = &self.learnt[rank as usize];
        learnt.iter().any(|(of, count, started)| *of == owner && *count >= number && *started < serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_travels_with_what_carries_it() {
        let mut knowledge = Knowledge::new(3);
        assert!(knowledge.of(0).is_none());
        knowledge.change(0, 0, 100, 12);
        assert!(knowledge.knew(0, 0, 100, 13) && !knowledge.knew(0, 0, 100, 12));
        let told = knowledge.of(0);
        assert_eq!(knowledge.learn(1, &told, 30), Some(0));
        knowledge.change(0, 4096, 200, 31);
        let passed_on = knowledge.of(1);
        knowledge.learn(2, &passed_on, 40);
        assert_eq!((knowledge.about(2, 0), knowledge.about(0, 0)), (1, 2));
        assert!(knowledge.knew(2, 0, 100, 41) && !knowledge.knew(2, 0, 100, 40));
        assert!(!knowledge.knew(2, 0, 200, 41), "of the second change it has not heard");
    }
}

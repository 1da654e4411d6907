//! A near peer's grants by the addresses of their memory: for programs that name memory by its address alone.
//!
//! The peer is asked once which of its grants covers memory, and the answer is kept. It is a grant's name
//! like any other: once the grant is revoked it reaches nothing, and is forgotten here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use engine::{Direction, GrantId, Place};

use crate::base::lock::lock;

/// Grants, and questions, of which something is kept, at most.
const KEPT_MAX: usize = 1 << 16;

/// Grants that are looked at, at most, for one that covers memory: they may lie over one another.
const LOOKS: usize = 8;

/// By where their memory begins: the bytes of grants, and their names.
type Known = BTreeMap<u64, (u64, GrantId)>;

/// The knowledge of one peer's grants.
#[derive(Default)]
pub(crate) struct ByAddress {
    /// The grants that may be put to, and those that may be got.
    known: RwLock<[Known; 2]>,
    has_any: AtomicBool,
    /// The questions: address and bytes.
    asked: Mutex<HashMap<(Direction, u64, u64), Asked>>,
}

/// A question that was asked before, and not answered by a grant.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// How many grants the peer had made when it was asked last.
    made: u64,
    /// How often it was asked.
    times: u32,
    /// Accesses since then that there was news for.
    passed: u32,
}

/// A question that no grant answers is asked again after so many accesses, at most. A peer that grants all
/// the time has news for each of them, and an answer for none.
const PASSED_MAX: u32 = 64;

const fn of(direction: Direction) -> usize {
    match direction {
        Direction::Put => 0,
        Direction::Get => 1,
    }
}

impl ByAddress {
    /// The same memory by a grant, for such an access, if one is known that covers it.
    pub(crate) fn find(&self, direction: Direction, addr: u64, len: u64) -> Option<Place> {
        if !self.has_any.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut before = known[of(direction)].range(..=addr).rev().take(LOOKS);
        before.find_map(|(start, (bytes, grant))| {
            let offset = addr - start;
            (len <= *bytes && offset <= bytes - len).then_some(Place::granted(*grant, offset))
        })
    }

    /// Whether to ask the peer for memory that [is not found](ByAddress::find): it has made so many grants,
    /// and more than when it was asked before. Each time that the same was asked in vain, twice as many
    /// accesses go by before it is asked again.
    pub(crate) fn is_news(&self, direction: Direction, addr: u64, len: u64, made: u64) -> bool {
        let mut asked = lock(&self.asked);
        if asked.len() >= KEPT_MAX {
            asked.clear();
        }
        let question = asked.entry((direction, addr, len)).or_default();
        if question.made == made {
            return false;
        }
        let due = 1_u32.checked_shl(question.times.saturating_sub(1)).unwrap_or(PASSED_MAX).min(PASSED_MAX);
        question.passed += 1;
        if question.times > 0 && question.passed < due {
            return false;
        }
        *question = Asked { made, times: question.times + 1, passed: 0 };
        true
    }

    /// Keeps what the peer answers: the grant that covers memory, where it begins, and its bytes.
    pub(crate) fn learn(&self, direction: Direction, found: (GrantId, u64, u64)) {
        let (grant, start, bytes) = found;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = &mut known[of(direction)];
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(start, (bytes, grant));
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Forgets the grant that a place lies in, as it does not stand for its memory any more; and what was
    /// asked about that memory.
    pub(crate) fn forget(&self, place: Place) {
        let Some((grant, _)) = place.in_grant() else { return };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let its =
            |(start, (bytes, name)): (&u64, &(u64, GrantId))| (*name == grant).then_some((*start, *bytes));
        let memory: Vec<(u64, u64)> = known.iter().flatten().filter_map(its).collect();
        known.iter_mut().for_each(|known| known.retain(|_, (_, name)| *name != grant));
        let touches = |addr: u64, len: u64| {
            memory.iter().any(|(start, bytes)| {
                addr < start.saturating_add(*bytes) && *start < addr.saturating_add(len.max(1))
            })
        };
        lock(&self.asked).retain(|(_, addr, len), _| !touches(*addr, *len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_the_grant_that_covers_it_until_that_is_forgotten() {
        let (peers, grant) = (ByAddress::default(), GrantId { line: 3, generation: 9 });
        assert_eq!(peers.find(Direction::Get, 1000, 1), None);
        peers.learn(Direction::Get, (grant, 1000, 100));
        for (addr, len, offset) in [
            (1000, 100, Some(0)),
            (1099, 1, Some(99)),
            (1099, 2, None),
            (999, 1, None),
            (1000, u64::MAX, None),
        ] {
            let found = peers.find(Direction::Get, addr, len);
            assert_eq!(found, offset.map(|offset| Place::granted(grant, offset)), "{addr} {len}");
            assert_eq!(peers.find(Direction::Put, addr, len), None, "it was asked for to be got");
        }
        peers.learn(Direction::Get, (GrantId { line: 4, generation: 0 }, 1050, 1));
        assert_eq!(peers.find(Direction::Get, 1060, 1), Some(Place::granted(grant, 60)));
        peers.forget(Place::granted(grant, 7));
        assert_eq!(peers.find(Direction::Get, 1000, 1), None);
    }

    #[test]
    fn a_question_is_asked_again_once_there_may_be_another_answer() {
        let peers = ByAddress::default();
        let asks = |made| peers.is_news(Direction::Put, 8, 8, made);
        assert_eq!([asks(1), asks(1), asks(2), asks(2)], [true, false, true, false]);
        // Its memory was granted, and is no more.
        let grant = GrantId { line: 0, generation: 0 };
        peers.learn(Direction::Get, (grant, 0, 16));
        peers.forget(Place::granted(grant, 0));
        assert!(peers.is_news(Direction::Put, 8, 8, 2) && peers.is_news(Direction::Get, 8, 8, 2));
    }

    /// A peer that grants all the time is asked seldom for what it does not grant, and what it grants at last
    /// is asked for soon.
    #[test]
    fn what_is_not_granted_is_asked_for_ever_more_seldom() {
        let peers = ByAddress::default();
        let asked = (1..=10_000).filter(|made| peers.is_news(Direction::Get, 8, 8, *made)).count() as u32;
        assert!((100..200).contains(&asked), "{asked} of 10000 accesses ask");
        let soon = (10_001..).take_while(|made| !peers.is_news(Direction::Get, 8, 8, *made)).count() as u32;
        assert!(soon < PASSED_MAX, "{soon} accesses do not ask");
        assert!(peers.is_news(Direction::Get, 16, 8, 1), "other memory is another question");
        // Other memory's grant goes, and this question stays as it is.
        let grant = GrantId { line: 0, generation: 0 };
        peers.learn(Direction::Get, (grant, 100, 16));
        peers.forget(Place::granted(grant, 0));
        assert!(!peers.is_news(Direction::Get, 8, 8, u64::MAX));
    }
}

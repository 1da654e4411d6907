//! Which handlers this process has, as it shows them to its peers, and what is known of theirs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{HandlerKey, Rank};

use vm::Words;

use crate::base::error::Error;
use crate::base::lock::lock;
use crate::transport::shm::control::{Control, HANDLERS_MAX};

/// This process's own.
pub(crate) struct OwnHandlers {
    control: Control,
    /// By number.
    checks: Mutex<BTreeMap<u32, u32>>,
}

/// Why a handler is not added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// Another one, or the same, has its number.
    Taken,
    /// There are as many as may be.
    Full,
}

impl OwnHandlers {
    /// None yet, shown in this control segment.
    pub(crate) fn new(control: Control) -> OwnHandlers {
        OwnHandlers { control, checks: Mutex::default() }
    }

    pub(crate) fn add(&self, key: HandlerKey) -> Result<(), NotAdded> {
        let mut checks = lock(&self.checks);
        if checks.contains_key(&key.number) {
            return Err(NotAdded::Taken);
        }
        if checks.len() == HANDLERS_MAX {
            return Err(NotAdded::Full);
        }
        checks.insert(key.number, key.check);
        self.control.show_handlers(&keys(&checks));
        Ok(())
    }

    pub(crate) fn remove(&self, gone: &[HandlerKey]) {
        let mut checks = lock(&self.checks);
        for key in gone {
            checks.remove(&key.number);
        }
        self.control.show_handlers(&keys(&checks));
    }

    pub(crate) fn all(&self) -> Vec<HandlerKey> {
        keys(&lock(&self.checks))
    }

    /// The first number that another process has given to another handler.
    pub(crate) fn colliding(&self, theirs: &[HandlerKey]) -> Option<u32> {
        let checks = lock(&self.checks);
        let collides = |key: &&HandlerKey| checks.get(&key.number).is_some_and(|check| *check != key.check);
        theirs.iter().find(collides).map(|key| key.number)
    }
}

fn keys(checks: &BTreeMap<u32, u32>) -> Vec<HandlerKey> {
    checks.iter().map(|(number, check)| HandlerKey { number: *number, check: *check }).collect()
}

/// The handlers that a peer's segment shows.
pub(super) fn shown(peer: Rank, control: &Control) -> Result<Vec<HandlerKey>, Error> {
    let restless = || Error::Protocol { peer, what: "its handlers change all the time".to_owned() };
    control.handlers().map(|(_, keys)| keys).ok_or_else(restless)
}

/// Handlers of a peer's that are found by one look.
const RECENT: usize = 32;

/// A peer's, as far as this process knows.
pub(crate) struct KnownHandlers {
    /// By the lower bits of their numbers: such as were found there lately.
    recent: [AtomicU64; RECENT],
    /// The state of the peer's table that they are of.
    state: AtomicU64,
    /// Where the peer shows the state of its table; `None` where it tells what it has.
    shown: Option<Words>,
    /// All that are known, by number.
    checks: Mutex<HashMap<u32, u32>>,
}

/// The state of a table that nobody looks at: of a peer that tells what it has.
const TOLD: u64 = u64::MAX;

/// No state that a table has.
const UNREAD: u64 = u64::MAX - 1;

/// The knowledge of a handler at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    There,
    NotThere,
    /// The peer has another one of its number.
    Another,
}

/// Both hashes in one word; never 0, which no place is left with.
const fn word(key: HandlerKey) -> u64 {
    (key.number as u64 | (key.check as u64) << 32) ^ NOTHING
}

/// So that a place with nothing in it is no handler that programs have.
const NOTHING: u64 = 0x5af3_1f0e_9b1c_27d5;

impl KnownHandlers {
    /// Those of a peer that has told of these.
    pub(crate) fn told_of(known: &[HandlerKey]) -> KnownHandlers {
        KnownHandlers::new(TOLD, None, known.iter().map(|key| (key.number, key.check)).collect())
    }

    /// Those of a peer whose table is looked at.
    pub(crate) fn shown_in(table: &Control) -> KnownHandlers {
        KnownHandlers::new(UNREAD, Some(table.handlers_state_word()), HashMap::new())
    }

    fn new(state: u64, shown: Option<Words>, checks: HashMap<u32, u32>) -> KnownHandlers {
        let recent = [const { AtomicU64::new(0) }; RECENT];
        KnownHandlers { recent, state: AtomicU64::new(state), shown, checks: Mutex::new(checks) }
    }

    /// Whether the handler was found at the peer lately, and its table is as it was then. A few loads.
    #[inline(always)]
    pub(crate) fn has_had(&self, key: HandlerKey) -> bool {
        let now = self.shown.as_ref().map_or(TOLD, |shown| shown[0].load(Ordering::Acquire));
        self.state.load(Ordering::Acquire) == now
            && self.recent[key.number as usize % RECENT].load(Ordering::Relaxed) == word(key)
    }

    /// As it is in the peer's own table, where shared memory shows it. `None`: the table changes all the
    /// time.
    #[cold]
    pub(crate) fn look(&self, key: HandlerKey, table: &Control) -> Option<Standing> {
        let mut checks = lock(&self.checks);
        if self.state.load(Ordering::Relaxed) != table.handlers_state() {
            let (state, keys) = table.handlers()?;
            *checks = keys.iter().map(|key| (key.number, key.check)).collect();
            self.recent.iter().for_each(|recent| recent.store(0, Ordering::Relaxed));
            self.state.store(state, Ordering::Release);
        }
        Some(self.found(key, checks.get(&key.number)))
    }

    /// As the peer has told.
    #[cold]
    pub(crate) fn told(&self, key: HandlerKey) -> Standing {
        self.found(key, lock(&self.checks).get(&key.number))
    }

    fn found(&self, key: HandlerKey, check: Option<&u32>) -> Standing {
        match check {
            None => Standing::NotThere,
            Some(check) if *check == key.check => {
                self.recent[key.number as usize % RECENT].store(word(key), Ordering::Relaxed);
                Standing::There
            }
            Some(_) => Standing::Another,
        }
    }

    /// The known ones.
    pub(super) fn all(&self) -> Vec<HandlerKey> {
        let checks = lock(&self.checks);
        checks.iter().map(|(number, check)| HandlerKey { number: *number, check: *check }).collect()
    }

    /// The peer has said that it has the handler.
    pub(crate) fn learn(&self, key: HandlerKey) {
        let mut checks = lock(&self.checks);
        checks.insert(key.number, key.check);
        self.found(key, Some(&key.check));
    }

    /// The peer has said that it has no handler of that number. Its table, where there is one, says so, too.
    #[cold]
    pub(crate) fn forget(&self, number: u32) {
        let mut checks = lock(&self.checks);
        if self.state.load(Ordering::Relaxed) == TOLD {
            checks.remove(&number);
            self.recent[number as usize % RECENT].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shm::control::Identity;

    fn key(number: u32, check: u32) -> HandlerKey {
        HandlerKey { number, check }
    }

    #[test]
    fn what_a_peer_has_told_is_found_at_one_look_from_the_second_on() {
        let known = KnownHandlers::told_of(&[key(7, 1)]);
        assert!(!known.has_had(key(7, 1)));
        assert_eq!(known.told(key(7, 1)), Standing::There);
        assert!(known.has_had(key(7, 1)) && !known.has_had(key(7, 2)) && !known.has_had(key(7 + 32, 1)));
        assert_eq!((known.told(key(7, 2)), known.told(key(8, 1))), (Standing::Another, Standing::NotThere));
        known.learn(key(7 + 32, 5));
        assert!(known.has_had(key(7 + 32, 5)) && !known.has_had(key(7, 1)));
        known.forget(7 + 32);
        assert!(!known.has_had(key(7 + 32, 5)));
        assert_eq!(
            (known.told(key(7 + 32, 5)), known.told(key(7, 1))),
            (Standing::NotThere, Standing::There)
        );
    }

    #[test]
    fn a_table_that_changes_is_looked_at_again() {
        let identity = Identity::default();
        let (table, _segment) = Control::create(1, &identity).expect("memory");
        let (known, one, two) = (KnownHandlers::shown_in(&table), key(7, 1), key(8, 1));
        assert_eq!(known.look(one, &table), Some(Standing::NotThere));
        table.show_handlers(&[one]);
        assert_eq!(known.look(one, &table), Some(Standing::There));
        assert!(known.has_had(one));
        table.show_handlers(&[two]);
        assert!(!known.has_had(one));
        assert_eq!(known.look(two, &table), Some(Standing::There));
        assert!(!known.has_had(one) && known.has_had(two));
        assert_eq!(known.look(one, &table), Some(Standing::NotThere));
    }

    /// Whatever a reader meets, it has one state as a whole: each has its number as the check of all.
    #[test]
    fn a_table_is_read_whole_while_it_changes() {
        let (table, _segment) = Control::create(1, &Identity::default()).expect("memory");
        let states = |state: u32| (0..state % 50 + 1).map(|number| key(number, state)).collect::<Vec<_>>();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let Some((_, keys)) = table.handlers() else { continue };
                        let Some(first) = keys.first() else { continue };
                        assert_eq!(keys, states(first.check));
                    }
                });
            }
            (1..20_000).for_each(|state| table.show_handlers(&states(state)));
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn no_place_holds_a_handler_at_first() {
        let known = KnownHandlers::told_of(&[]);
        assert!((0..64).all(|number| !known.has_had(key(number, 0))));
    }
}

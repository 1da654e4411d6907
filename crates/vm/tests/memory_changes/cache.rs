//! The smallest cache of registrations that must hold the law: whoever transfers after a change gets the new
//! bytes.

use std::sync::{Arc, Mutex};

use vm::{Changed, CheckedCopy, Follower, Monitor, NotWatchable};

use super::pins::Pins;

/// What a cache has registered.
struct Kept {
    start: u64,
    end: u64,
    slot: u16,
}

/// Ranges kept pinned at a time.
const KEPT_MAX: usize = 32;

struct State {
    follower: Follower,
    pins: Pins,
    kept: Vec<Kept>,
    /// Listens to the monitor; without this the cache is what others are.
    listens: bool,
    hits: u64,
    misses: u64,
    refused: u64,
    last_refusal: Option<NotWatchable>,
}

/// Shared by all threads that transfer, as an engine is.
pub(crate) struct Cache {
    state: Mutex<State>,
    copy: CheckedCopy,
}

impl Cache {
    /// `None` where a test can show nothing, after saying why.
    pub(crate) fn new(listens: bool) -> Option<Arc<Cache>> {
        let monitor = Monitor::of_process().inspect_err(|error| testbed::skip(error)).ok()?;
        let pins = Pins::new()?;
        let state = State {
            follower: monitor.follow(),
            pins,
            kept: Vec::with_capacity(KEPT_MAX),
            listens,
            hits: 0,
            misses: 0,
            refused: 0,
            last_refusal: None,
        };
        let copy = CheckedCopy::new().expect("a scratch file");
        Some(Arc::new(Cache { state: Mutex::new(state), copy }))
    }

    /// Fills `into` from `addr` on: from pinned pages if they may be kept, otherwise as a message would.
    /// Whether there was anything.
    pub(crate) fn transfer(&self, addr: u64, into: &mut [u8]) -> bool {
        let mut state = self.state.lock().expect("no panic");
        let end = addr + into.len() as u64;
        match state.find(addr, end) {
            Some(slot) => {
                state.pins.read(slot, addr, into);
                true
            }
            None => {
                drop(state);
                self.copy.read(addr, into).is_ok()
            }
        }
    }

    /// Operations that found what they needed pinned, that pinned it, and that could not keep it.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock().expect("no panic");
        (state.hits, state.misses, state.refused)
    }

    /// Why the last one of those could not be kept.
    pub(crate) fn last_refusal(&self) -> Option<NotWatchable> {
        self.state.lock().expect("no panic").last_refusal
    }
}

impl State {
    fn find(&mut self, start: u64, end: u64) -> Option<u16> {
        self.hear();
        let covers = |kept: &Kept| kept.start <= start && end <= kept.end;
        if let Some(kept) = self.kept.iter().find(|kept| covers(kept)) {
            self.hits += 1;
            return Some(kept.slot);
        }
        let (start, end) = (start / 4096 * 4096, end.next_multiple_of(4096));
        if let Err(why) = self.follower.monitor().watch(start, end - start)
            && self.listens
        {
            self.refused += 1;
            self.last_refusal = Some(why);
            return None;
        }
        if self.kept.len() == KEPT_MAX {
            let oldest = self.kept.remove(0);
            self.pins.unpin(oldest.slot);
        }
        let slot = self.pins.pin(start, end - start)?;
        self.misses += 1;
        self.kept.push(Kept { start, end, slot });
        Some(slot)
    }

    fn hear(&mut self) {
        if !self.listens {
            return;
        }
        let State { follower, pins, kept, .. } = self;
        follower.catch_up(|changed| {
            let (from, to) = match changed {
                Changed::Range { start, end } => (start, end),
                Changed::Everything => (0, u64::MAX),
            };
            for at in (0..kept.len()).rev() {
                if kept[at].start < to && from < kept[at].end {
                    pins.unpin(kept.swap_remove(at).slot);
                }
            }
        });
    }
}

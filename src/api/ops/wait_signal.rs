//! Waiting for signals: for one counter, and for several at once.

use std::cell::Cell;
use std::hint::spin_loop;

use engine::Rank;

use crate::api::node::Node;
use crate::api::ops::atomics::AtomicWord;
use crate::api::ops::put_signal::check;
use crate::base::error::Error;
use crate::base::pointers::GlobalPtr;
use crate::base::until::{UnmetSignal, Until};
use crate::transport::shm::copy::heap_fault;

/// Looks at a counter before a wait does anything else, where waits poll. Other things wait for a microsecond
/// or so meanwhile.
const LOOKS: usize = 32;

/// The name of these calls in errors.
const CALL: &str = "waiting for a signal";

/// The types of counters that can be waited for: `u32`, `i32`, `u64` and `i64`.
pub trait SignalWord: AtomicWord + Ord + Into<i128> {}

impl<T: AtomicWord + Ord + Into<i128>> SignalWord for T {}

/// A counter of this process's own heap, and what is waited for there, for waits for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalWait<T = u64> {
    counter: GlobalPtr<T>,
    until: Until<T>,
    sender: Option<Rank>,
    is_skipped: bool,
}

impl<T> SignalWait<T> {
    /// The counter has to be as `until` says: a number stands for that or more.
    pub fn new(counter: GlobalPtr<T>, until: impl Into<Until<T>>) -> SignalWait<T> {
        SignalWait { counter, until: until.into(), sender: None, is_skipped: false }
    }

    /// The same, with the peer that is to signal: should it be lost, nobody waits for it in vain.
    #[must_use]
    pub fn by(self, sender: Rank) -> SignalWait<T> {
        SignalWait { sender: Some(sender), ..self }
    }

    /// Has waits and tests leave it out, as if it were not in the list, or take it in again. Indices of the
    /// others stay.
    pub fn skip(&mut self, is_skipped: bool) {
        self.is_skipped = is_skipped;
    }
}

/// One that is looked at.
struct Looked<'a, T: AtomicWord> {
    /// Its place in the caller's list.
    index: usize,
    word: &'a T::Atomic,
    wait: SignalWait<T>,
    /// It has been seen to be what was waited for.
    is_met: Cell<bool>,
}

impl<T: SignalWord> Looked<'_, T> {
    #[inline]
    fn met(&self) -> Option<T> {
        let value = T::load(self.word);
        self.wait.until.is_met_by(value).then_some(value)
    }

    /// Whether it has ever been met while somebody looked.
    fn has_been_met(&self) -> bool {
        if !self.is_met.get() {
            self.is_met.set(self.met().is_some());
        }
        self.is_met.get()
    }
}

/// How many of the counters in a list have to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    One,
    All,
}

/// Waiting for signals. All of these look at once, then poll, then sleep, as other waits do;
/// [`Node::put_signal`] and its kin wake them. Changes by other means are found within 100 ms. Any thread may
/// call these; handlers only the tests, and the waits for what is so already.
impl Node {
    /// Waits until a counter in this process's heap is as `until` says, and returns what it is then: a number
    /// stands for that or more. Nobody knows who is going to signal: if that peer is lost, only the node's
    /// timeout ends this, other than [`Node::wait_signal_from`].
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for a counter of another rank's; [`Error::Unaligned`]; [`Error::Fault`] where the
    /// heap has no such word; [`Error::SignalTimeout`]; [`Error::InHandler`].
    pub fn wait_signal<T: SignalWord>(
        &self,
        counter: GlobalPtr<T>,
        until: impl Into<Until<T>>,
    ) -> Result<T, Error> {
        self.await_signal(SignalWait::new(counter, until))
    }

    /// Waits as [`Node::wait_signal`] does, for a signal of `sender`'s. If that peer is lost, this ends once
    /// all is in place that it had put, and the counter is still not what was waited for.
    ///
    /// # Errors
    /// [`Error::PeerLost`] naming `sender`; [`Error::NoSuchPeer`]; for the rest as for [`Node::wait_signal`].
    pub fn wait_signal_from<T: SignalWord>(
        &self,
        sender: Rank,
        counter: GlobalPtr<T>,
        until: impl Into<Until<T>>,
    ) -> Result<T, Error> {
        self.await_signal(SignalWait::new(counter, until).by(sender))
    }

    /// The value of a counter in this process's heap, if it is as `until` says; makes progress once if it is
    /// not. Never waits; also in handlers.
    ///
    /// # Errors
    /// As for [`Node::wait_signal`], but for the timeout and handlers.
    pub fn test_signal<T: SignalWord>(
        &self,
        counter: GlobalPtr<T>,
        until: impl Into<Until<T>>,
    ) -> Result<Option<T>, Error> {
        self.may_call(CALL)?;
        let looked = self.looked(0, SignalWait::new(counter, until))?;
        Ok(looked.met().or_else(|| {
            self.core.poll_once();
            looked.met()
        }))
    }

    /// Waits until one of several counters is what is waited for there, and gives its index in the list: the
    /// first one's, where there are several. `None`, at once, where there is nothing to wait for: the list is
    /// empty, or all in it is [skipped](SignalWait::skip).
    ///
    /// # Errors
    /// [`Error::PeerLost`] once no counter can come any more: the senders of all are [named](SignalWait::by)
    /// and lost, and all is in place that they had put. [`Error::NoSuchPeer`] for a sender that is none; for
    /// the rest as for [`Node::wait_signal`].
    pub fn wait_any_signal<T: SignalWord>(&self, waits: &[SignalWait<T>]) -> Result<Option<usize>, Error> {
        let all = self.all_looked(waits)?;
        if all.is_empty() {
            return Ok(None);
        }
        let first = || all.iter().find(|one| one.met().is_some()).map(|one| one.index);
        self.await_signals(&all, Need::One, first).map(Some)
    }

    /// Waits as [`Node::wait_any_signal`] does, and gives the indices of all counters that are then what is
    /// waited for: one at least, in rising order; none where there is nothing to wait for.
    ///
    /// # Errors
    /// As for [`Node::wait_any_signal`].
    pub fn wait_some_signals<T: SignalWord>(&self, waits: &[SignalWait<T>]) -> Result<Vec<usize>, Error> {
        let all = self.all_looked(waits)?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        self.await_signals(&all, Need::One, || Some(met(&all)).filter(|met| !met.is_empty()))
    }

    /// Waits until each of several counters has been what is waited for there, not all need be at one time.
    /// Returns at once where there is nothing to wait for.
    ///
    /// # Errors
    /// [`Error::PeerLost`] once a counter cannot come any more: its sender is [named](SignalWait::by) and
    /// lost, and all is in place that it had put. For the rest as for [`Node::wait_any_signal`].
    pub fn wait_all_signals<T: SignalWord>(&self, waits: &[SignalWait<T>]) -> Result<(), Error> {
        let all = self.all_looked(waits)?;
        // Each is looked at, also behind one that has not come: it may be what is waited for only now.
        let have_all_come = || (all.iter().filter(|one| !one.has_been_met()).count() == 0).then_some(());
        self.await_signals(&all, Need::All, have_all_come)
    }

    /// The indices of all counters that are what is waited for there, in rising order; makes progress once if
    /// none is. Never waits; also in handlers.
    ///
    /// # Errors
    /// As for [`Node::wait_any_signal`], but for the timeout, handlers and what is lost.
    pub fn test_signals<T: SignalWord>(&self, waits: &[SignalWait<T>]) -> Result<Vec<usize>, Error> {
        let all = self.all_looked(waits)?;
        let now = met(&all);
        if !now.is_empty() || all.is_empty() {
            return Ok(now);
        }
        self.core.poll_once();
        Ok(met(&all))
    }

    fn await_signal<T: SignalWord>(&self, wait: SignalWait<T>) -> Result<T, Error> {
        self.may_call(CALL)?;
        let looked = self.looked(0, wait)?;
        let one = std::slice::from_ref(&looked);
        self.await_signals(one, Need::One, || looked.met())
    }

    /// The counters of a list that are not skipped.
    fn all_looked<T: SignalWord>(&self, waits: &[SignalWait<T>]) -> Result<Vec<Looked<'_, T>>, Error> {
        self.may_call(CALL)?;
        let taken = waits.iter().enumerate().filter(|(_, wait)| !wait.is_skipped);
        taken.map(|(index, wait)| self.looked(index, *wait)).collect()
    }

    /// A counter, once it is known to be one of this process's heap, and its sender to be a peer.
    #[inline]
    fn looked<T: SignalWord>(&self, index: usize, wait: SignalWait<T>) -> Result<Looked<'_, T>, Error> {
        let (itself, at, size) = (self.core.peers.itself(), wait.counter.offset(), size_of::<T>() as u64);
        check(wait.counter.into(), itself.rank)?;
        let heap = at.checked_add(size).and_then(|end| itself.heap_up_to(end));
        let word = heap.and_then(|heap| T::at(heap, at));
        let word = word.ok_or_else(|| self.core.error_of(heap_fault(itself, at, size)))?;
        if let Some(sender) = wait.sender {
            self.check_peer(sender)?;
        }
        Ok(Looked { index, word, wait, is_met: Cell::new(false) })
    }

    fn await_signals<T: SignalWord, R>(
        &self,
        all: &[Looked<'_, T>],
        need: Need,
        look: impl Fn() -> Option<R>,
    ) -> Result<R, Error> {
        if let Some(found) = look() {
            return Ok(found);
        }
        self.may_wait(CALL)?;
        let looks = if self.core.polls() { (LOOKS / all.len()).max(1) } else { 1 };
        let look_long = || {
            let found = (0..looks).find_map(|_| {
                // Looking without a pause takes the line away from whoever is writing it.
                look().or_else(|| {
                    spin_loop();
                    None
                })
            });
            // Data from the peer may have come, and not been handled yet.
            let gone = || {
                let is_lost = self.lost_sender(all, need).is_some() && self.core.drain_messages();
                let found = if is_lost { look() } else { return None };
                found.map(Ok).or_else(|| Some(Err(Error::PeerLost { peer: self.lost_sender(all, need)? })))
            };
            found.map(Ok).or_else(gone)
        };
        let late = || {
            let unmet = all.iter().filter(|one| !one.is_met.get()).map(|one| UnmetSignal {
                offset: one.wait.counter.offset(),
                until: one.wait.until.map(Into::into),
                seen: T::load(one.word).into(),
            });
            self.gave_up(CALL, Error::SignalTimeout { unmet: unmet.collect() })
        };
        self.wait(self.timeout, look_long).unwrap_or_else(|| look().ok_or_else(late))
    }

    /// The first sender without whom what is waited for cannot come any more.
    fn lost_sender<T: SignalWord>(&self, all: &[Looked<'_, T>], need: Need) -> Option<Rank> {
        let senders = || all.iter().filter(|one| !one.is_met.get()).map(|one| one.wait.sender);
        let may_know = match need {
            Need::One => senders().all(|sender| sender.is_some()),
            Need::All => senders().any(|sender| sender.is_some()),
        };
        if !may_know {
            return None;
        }
        let engine = self.core.engine();
        let mut lost = senders().map(|sender| sender.filter(|peer| engine.is_lost(*peer)));
        match need {
            Need::One => lost.try_fold(None, |first, lost| Some(first.or(Some(lost?))))?,
            Need::All => lost.flatten().next(),
        }
    }
}

/// The indices of those that are what is waited for.
fn met<T: SignalWord>(all: &[Looked<'_, T>]) -> Vec<usize> {
    all.iter().filter(|one| one.met().is_some()).map(|one| one.index).collect()
}

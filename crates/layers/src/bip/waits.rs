//! Waiting for messages, and for peers to take theirs.

use std::time::Duration;

use standpipe::{Error, Rank};

use crate::bip::Bip;
use crate::bip::error::BipError;
use crate::bip::state::State;

/// How long a wait looks away from what nothing announces: room in a lane, the end of a get.
const NAP: Duration = Duration::from_micros(50);

/// What a wait is for, and so whose loss ends it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaits {
    /// A message for that tag, from anybody.
    Message(u32),
    /// Something of that peer's.
    Peer(Rank),
}

/// Waiting, and what is done meanwhile.
impl Bip {
    /// Waits until `ready` gives something. It is asked whenever something has moved.
    pub(super) fn wait<T>(
        &self,
        awaits: Awaits,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, BipError> {
        let (mut is_stuck, mut is_last) = (false, false);
        loop {
            match self.pause(awaits, &mut ready, is_stuck)? {
                Paused::Ready(done) => return Ok(done),
                Paused::Moved => is_last = false,
                Paused::Lost(fault) if is_last => return Err(fault),
                Paused::Lost(_) => {
                    // What it sent before may be here.
                    while self.link.node.progress() {}
                    is_last = true;
                }
            }
            if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
                return Ok(done);
            }
            self.link.wait_for_get(NAP);
        }
    }

    /// Does what is due, and asks `ready` once.
    pub(super) fn look<T>(
        &self,
        ready: &mut impl FnMut(&mut State) -> Option<T>,
        is_stuck: &mut bool,
    ) -> Result<Option<T>, BipError> {
        let ask = |state: &mut State, ready: &mut dyn FnMut(&mut State) -> Option<T>| match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(ready(state)),
        };
        let mut state = self.link.state();
        if !state.is_busy() {
            return ask(&mut state, ready);
        }
        drop(state);
        *is_stuck = self.link.advance()?;
        ask(&mut self.link.state(), ready)
    }

    /// Sleeps until `ready` gives something, there is something to do, or somebody is lost.
    fn pause<T>(
        &self,
        awaits: Awaits,
        ready: &mut impl FnMut(&mut State) -> Option<T>,
        is_stuck: bool,
    ) -> Result<Paused<T>, BipError> {
        let (mut paused, mut looks) = (Paused::Moved, 0_u32);
        let look = || {
            looks = looks.wrapping_add(1);
            let mut state = self.link.state();
            if let Some(done) = ready(&mut state) {
                paused = Paused::Ready(done);
                return true;
            }
            if state.fault.is_some() || (!is_stuck && state.is_busy()) {
                return true;
            }
            drop(state);
            // Not while the message is awaited that nearly always comes; the second look may be the last one
            // before it sleeps.
            if looks % 4 == 2
                && let Some(fault) = self.loss(awaits)
            {
                paused = Paused::Lost(fault);
                return true;
            }
            false
        };
        let waited = if is_stuck {
            self.link.node.within(NAP).wait_until(look)
        } else {
            self.link.node.wait_until(look)
        };
        match waited {
            Ok(()) => Ok(paused),
            Err(Error::WaitTimeout { .. }) if is_stuck => Ok(Paused::Moved),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks `ready`, makes progress once, and asks again. An error where nothing can come any more; if no
    /// sender is left, after many calls.
    pub(super) fn poll<T>(
        &self,
        awaits: Awaits,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, BipError> {
        let mut is_stuck = false;
        if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
            return Ok(Some(done));
        }
        let has_moved = self.link.node.progress();
        if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
            return Ok(Some(done));
        }
        let Some(fault) = (if has_moved { None } else { self.loss(awaits) }) else { return Ok(None) };
        while self.link.node.progress() {}
        if let Some(done) = self.look(&mut ready, &mut is_stuck)? {
            return Ok(Some(done));
        }
        let mut state = self.link.state();
        let is_over =
            state.getting == 0 && (!matches!(fault, BipError::Alone { .. }) || state.asks_in_vain());
        if is_over { Err(fault) } else { Ok(None) }
    }

    /// The loss that ends such a wait.
    fn loss(&self, awaits: Awaits) -> Option<BipError> {
        let node = &self.link.node;
        match awaits {
            Awaits::Peer(peer) if node.is_lost(peer) => Some(BipError::Lost { node: peer }),
            Awaits::Peer(peer) => self.link.state().has_left(peer).then_some(BipError::Ended { node: peer }),
            Awaits::Message(tag) => match node.lost_peers().first() {
                Some(lost) => Some(BipError::Lost { node: *lost }),
                None => self.link.state().have_left().then_some(BipError::Alone { tag }),
            },
        }
    }
}

/// What came of a pause.
enum Paused<T> {
    Ready(T),
    Moved,
    Lost(BipError),
}

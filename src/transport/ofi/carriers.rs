//! Which outlet carries whose copies.
//!
//! An outlet is closed to get callers' memory back from operations with a peer that hangs, and that ends all that it
//! carries. To send that again would not do: what a closed connection had taken may still arrive at a peer, after what
//! is sent by the next one, and even after the peer was told that all is there. So an outlet carries copies with one peer
//! at a time, and its end is noticed by no other. One that does not reach its peer is closed, too, and carries nothing then.
//! So is one that takes parts and ends none, while its peer is heard from by the port's connection.

use std::time::{Duration, Instant};

use engine::Rank;
use fabric::OutletId;

use super::link::Wait;
use super::port::Port;
use crate::base::limits::{CARRIERS, PINNED_CARRIERS};

/// How long nobody tries to open an outlet after one could not be opened.
const PAUSE: Duration = Duration::from_secs(1);

/// An outlet, and whom it is for.
struct Carrier {
    /// `None` once it is closed.
    outlet: Option<OutletId>,
    /// The peer that it was for last.
    rank: Rank,
    /// Copies with that peer, and parts of theirs that the provider has.
    copies: usize,
    parts: usize,
    /// How long it has carried nothing, and found no room for what it was given.
    wait: Option<Wait>,
    /// How long none of its parts has ended, though the peer was heard from.
    stalled: Duration,
}

/// All carriers of a transport, opened as they are needed.
#[derive(Default)]
pub(super) struct Carriers {
    all: Vec<Carrier>,
    /// Parts that all of them carry.
    parts: usize,
    /// No outlet could be opened at that time.
    refused_at: Option<Instant>,
    /// As if none could.
    #[cfg(test)]
    pub(super) refuses: bool,
    /// How many were closed.
    #[cfg(test)]
    pub(super) closed: u64,
}

impl Carriers {
    /// Enters a copy with this peer. `None`: it is to go through buffers.
    pub(super) fn enter(&mut self, rank: Rank, port: &mut Port) -> Option<usize> {
        let its_own = |carrier: &Carrier| carrier.rank == rank && carrier.outlet.is_some();
        let at = match self.all.iter().position(its_own) {
            Some(at) => at,
            None => self.open(port).or_else(|| self.all.iter().position(Carrier::is_free))?,
        };
        let carrier = &mut self.all[at];
        if carrier.copies == 0 {
            carrier.wait = None;
        }
        carrier.rank = rank;
        carrier.copies += 1;
        Some(at)
    }

    /// Opens one more, if there may be.
    fn open(&mut self, port: &mut Port) -> Option<usize> {
        let closed = self.all.iter().position(|carrier| carrier.outlet.is_none());
        let most = if port.description().mr_mode.allocated { PINNED_CARRIERS } else { CARRIERS };
        if closed.is_none() && self.all.len() >= most
            || self.refused_at.is_some_and(|at| at.elapsed() < PAUSE)
        {
            return None;
        }
        #[cfg(test)]
        if self.refuses {
            return None;
        }
        let outlet = port.open_outlet();
        self.refused_at = outlet.is_none().then(Instant::now);
        let (wait, stalled) = (None, Duration::ZERO);
        let opened = Carrier { outlet: Some(outlet?), rank: 0, copies: 0, parts: 0, wait, stalled };
        match closed {
            Some(at) => self.all[at] = opened,
            None => self.all.push(opened),
        }
        Some(closed.unwrap_or(self.all.len() - 1))
    }

    /// A copy has left.
    pub(super) fn leave(&mut self, at: usize) {
        self.all[at].copies -= 1;
    }

    /// The outlet, if it is open.
    pub(super) fn outlet(&self, at: usize) -> Option<OutletId> {
        self.all[at].outlet
    }

    /// The provider has one more part.
    pub(super) fn load(&mut self, at: usize) {
        let carrier = &mut self.all[at];
        if carrier.parts == 0 {
            carrier.stalled = Duration::ZERO;
        }
        carrier.parts += 1;
        carrier.wait = None;
        self.parts += 1;
    }

    /// A peer was heard from for so long. Returns how long it was, in all, since the last part with it has ended.
    pub(super) fn stall(&mut self, rank: Rank, heard: Duration) -> Duration {
        let carries = |carrier: &&mut Carrier| carrier.rank == rank && carrier.parts > 0;
        self.all.iter_mut().find(carries).map_or(Duration::ZERO, |carrier| {
            carrier.stalled += heard;
            carrier.stalled
        })
    }

    /// The provider has no room for a part. Returns how long it had none, and none to carry.
    pub(super) fn found_no_room(&mut self, at: usize) -> Duration {
        let (now, carrier) = (Instant::now(), &mut self.all[at]);
        if carrier.parts > 0 {
            return Duration::ZERO;
        }
        carrier.wait.get_or_insert_with(|| Wait::since(now)).go_on(now)
    }

    /// It has one part less.
    pub(super) fn unload(&mut self, at: usize) {
        self.all[at].parts -= 1;
        self.all[at].stalled = Duration::ZERO;
        self.parts -= 1;
    }

    /// Whether anything is carried.
    #[inline]
    pub(super) fn are_loaded(&self) -> bool {
        self.parts > 0
    }

    /// Makes progress where anything is carried, and returns the next part that has ended, and whether well.
    pub(super) fn poll(&mut self, port: &mut Port) -> Option<(usize, bool)> {
        let loaded = self.all.iter().filter(|carrier| carrier.parts > 0);
        loaded.filter_map(|carrier| carrier.outlet).find_map(|outlet| port.poll_outlet(outlet))
    }

    /// Closes a carrier: memory that was lent to it is touched no more, and its parts never end.
    pub(super) fn close(&mut self, at: usize, port: &mut Port) {
        let is_lent = self.all[at].parts > 0;
        if let Some(outlet) = self.all[at].outlet.take() {
            port.close_outlet(outlet, is_lent);
            #[cfg(test)]
            {
                self.closed += 1;
            }
        }
    }
}

impl Carrier {
    fn is_free(&self) -> bool {
        self.outlet.is_some() && self.copies == 0
    }
}

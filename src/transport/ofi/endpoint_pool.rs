//! Which auxiliary endpoint carries whose copies.
//!
//! An auxiliary endpoint is closed to get callers' memory back from operations with a peer that hangs, and
//! that ends all that it carries. To send that again would not do. A closed connection may still deliver what
//! it had taken, after what is sent by the next one, and even after the peer was told that all is there. So
//! an auxiliary endpoint carries copies with one peer at a time, and its end is noticed by no other. One that
//! does not reach its peer is closed, too, and carries nothing then. So is one that takes parts and ends
//! none, while its peer is heard from by the endpoint's connection.

use std::time::{Duration, Instant};

use engine::Rank;
use fabric::AuxEndpointId;

use super::endpoint::NetEndpoint;
use super::link::Wait;
use crate::base::limits::{AUX_ENDPOINTS, PINNED_AUX_ENDPOINTS};

/// How long nobody tries to open an auxiliary endpoint after one could not be opened.
const PAUSE: Duration = Duration::from_secs(1);

/// An auxiliary endpoint, and whom it is for.
struct PooledEndpoint {
    /// `None` once it is closed.
    aux_endpoint: Option<AuxEndpointId>,
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

/// All auxiliary endpoints of a transport, opened as they are needed.
#[derive(Default)]
pub(super) struct EndpointPool {
    all: Vec<PooledEndpoint>,
    /// Parts that all of them carry; and those, and one more where landings are to be polled.
    parts: usize,
    chores: usize,
    /// No auxiliary endpoint could be opened at that time.
    refused_at: Option<Instant>,
    /// As if none could.
    #[cfg(test)]
    pub(super) refuses: bool,
    /// How many were closed.
    #[cfg(test)]
    pub(super) closed: u64,
}

impl EndpointPool {
    /// Enters a copy with this peer. `None`: it is to go through buffers.
    pub(super) fn enter(&mut self, rank: Rank, endpoint: &mut NetEndpoint) -> Option<usize> {
        let its_own = |pooled: &PooledEndpoint| pooled.rank == rank && pooled.aux_endpoint.is_some();
        let at = match self.all.iter().position(its_own) {
            Some(at) => at,
            None => self.open(endpoint).or_else(|| self.all.iter().position(PooledEndpoint::is_free))?,
        };
        let pooled = &mut self.all[at];
        if pooled.copies == 0 {
            pooled.wait = None;
        }
        pooled.rank = rank;
        pooled.copies += 1;
        Some(at)
    }

    /// Opens one more, if there may be.
    fn open(&mut self, endpoint: &mut NetEndpoint) -> Option<usize> {
        let closed = self.all.iter().position(|pooled| pooled.aux_endpoint.is_none());
        let most =
            if endpoint.description().mr_mode.allocated { PINNED_AUX_ENDPOINTS } else { AUX_ENDPOINTS };
        if closed.is_none() && self.all.len() >= most
            || self.refused_at.is_some_and(|at| at.elapsed() < PAUSE)
        {
            return None;
        }
        #[cfg(test)]
        if self.refuses {
            return None;
        }
        let aux_endpoint = endpoint.open_aux_endpoint();
        self.refused_at = aux_endpoint.is_none().then(Instant::now);
        let (wait, stalled) = (None, Duration::ZERO);
        let opened =
            PooledEndpoint { aux_endpoint: Some(aux_endpoint?), rank: 0, copies: 0, parts: 0, wait, stalled };
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

    /// The auxiliary endpoint, if it is open.
    pub(super) fn aux_endpoint(&self, at: usize) -> Option<AuxEndpointId> {
        self.all[at].aux_endpoint
    }

    /// The provider has one more part.
    pub(super) fn load(&mut self, at: usize) {
        let pooled = &mut self.all[at];
        if pooled.parts == 0 {
            pooled.stalled = Duration::ZERO;
        }
        pooled.parts += 1;
        pooled.wait = None;
        self.parts += 1;
        self.chores += 1;
    }

    /// A peer was heard from for so long. Returns how long it was, in all, since the last part with it has
    /// ended.
    pub(super) fn stall(&mut self, rank: Rank, heard: Duration) -> Duration {
        let carries = |pooled: &&mut PooledEndpoint| pooled.rank == rank && pooled.parts > 0;
        self.all.iter_mut().find(carries).map_or(Duration::ZERO, |pooled| {
            pooled.stalled += heard;
            pooled.stalled
        })
    }

    /// The provider has no room for a part. Returns how long it had none, and none to carry.
    pub(super) fn found_no_room(&mut self, at: usize) -> Duration {
        let (now, pooled) = (Instant::now(), &mut self.all[at]);
        if pooled.parts > 0 {
            return Duration::ZERO;
        }
        pooled.wait.get_or_insert_with(|| Wait::since(now)).go_on(now)
    }

    /// It has one part less.
    pub(super) fn unload(&mut self, at: usize) {
        self.all[at].parts -= 1;
        self.all[at].stalled = Duration::ZERO;
        self.parts -= 1;
        self.chores -= 1;
    }

    /// Landings are to be polled from now on, or no more: `were` they before?
    pub(super) fn note_landings(&mut self, were: bool, are: bool) {
        self.chores = self.chores + usize::from(are) - usize::from(were);
    }

    /// Parts that are carried, and one more where landings are to be polled: one look on the way of each
    /// small copy.
    #[inline(always)]
    pub(super) fn chores(&self) -> usize {
        self.chores
    }

    /// Whether anything is carried.
    #[inline]
    pub(super) fn are_loaded(&self) -> bool {
        self.parts > 0
    }

    /// Makes progress where anything is carried, and returns the next part that has ended, and whether well.
    pub(super) fn poll(&mut self, endpoint: &mut NetEndpoint) -> Option<(usize, bool)> {
        let loaded = self.all.iter().filter(|pooled| pooled.parts > 0);
        loaded
            .filter_map(|pooled| pooled.aux_endpoint)
            .find_map(|aux_endpoint| endpoint.poll_aux_endpoint(aux_endpoint))
    }

    /// Closes a pooled endpoint: memory that was lent to it is touched no more, and its parts never end.
    pub(super) fn close(&mut self, at: usize, endpoint: &mut NetEndpoint) {
        let is_lent = self.all[at].parts > 0;
        if let Some(aux_endpoint) = self.all[at].aux_endpoint.take() {
            endpoint.close_aux_endpoint(aux_endpoint, is_lent);
            #[cfg(test)]
            {
                self.closed += 1;
            }
        }
    }
}

impl PooledEndpoint {
    fn is_free(&self) -> bool {
        self.aux_endpoint.is_some() && self.copies == 0
    }
}

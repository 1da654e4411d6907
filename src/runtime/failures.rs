//! Failures that nobody has looked at, for the next `quiet`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{PEERS_WITH_FAILURES_MAX, Rank};

use crate::base::error::Error;
use crate::base::lock::lock;

/// Of each client and peer, the first one, in the order in which they came; and a word that says whether
/// there are any.
#[derive(Default)]
pub(crate) struct FirstFailures {
    errors: Mutex<Vec<(u8, Rank, Error)>>,
    are_there: AtomicBool,
}

impl FirstFailures {
    /// Keeps a failure of an operation with a peer, unless the client has one with that peer, or with as many
    /// peers as it may.
    pub(crate) fn note(&self, client: u8, peer: Rank, error: Error) {
        let mut errors = lock(&self.errors);
        let of_client = || errors.iter().filter(|(of, ..)| *of == client);
        if of_client().all(|(_, with, _)| *with != peer) && of_client().count() < PEERS_WITH_FAILURES_MAX {
            errors.push((client, peer, error));
        }
        self.are_there.store(true, Ordering::Release);
    }

    /// Takes a client's first one, and drops its others.
    pub(crate) fn take(&self, client: u8) -> Option<Error> {
        self.take_first(|of, _| of == client)
    }

    /// Takes a client's first one with that peer.
    pub(crate) fn take_with(&self, client: u8, peer: Rank) -> Option<Error> {
        self.take_first(|of, with| (of, with) == (client, peer))
    }

    fn take_first(&self, is_it: impl Fn(u8, Rank) -> bool) -> Option<Error> {
        if !self.are_there.load(Ordering::Acquire) {
            return None;
        }
        let mut errors = lock(&self.errors);
        let taken = errors.extract_if(.., |(of, with, _)| is_it(*of, *with)).collect::<Vec<_>>();
        self.are_there.store(!errors.is_empty(), Ordering::Release);
        taken.into_iter().next().map(|(.., error)| error)
    }

    /// Whether a client has one.
    pub(crate) fn has(&self, client: u8) -> bool {
        self.are_there.load(Ordering::Acquire) && lock(&self.errors).iter().any(|(of, ..)| *of == client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_the_first_failure_with_each_peer() {
        let (failures, fault) = (FirstFailures::default(), |addr| Error::LocalFault { addr, len: 1 });
        for (client, peer, addr) in [(0, 7, 1), (0, 3, 2), (1, 3, 3), (0, 7, 4), (0, 3, 5), (1, 7, 6)] {
            failures.note(client, peer, fault(addr));
        }
        assert!(failures.has(0) && failures.has(1) && !failures.has(2));
        assert_eq!((failures.take_with(0, 3), failures.take_with(0, 3)), (Some(fault(2)), None));
        assert_eq!((failures.take_with(0, 5), failures.take_with(2, 7)), (None, None));
        failures.note(0, 3, fault(7));
        assert_eq!(
            (failures.take(0), failures.take(0)),
            (Some(fault(1)), None),
            "the first one goes for all"
        );
        assert_eq!((failures.take_with(0, 3), failures.has(0)), (None, false));
        assert_eq!((failures.take_with(1, 7), failures.take(1)), (Some(fault(6)), Some(fault(3))));
        assert!(!failures.has(1) && !failures.are_there.load(Ordering::Relaxed));
    }

    #[test]
    fn a_client_has_failures_with_so_many_peers_and_no_more() {
        let (failures, most) = (FirstFailures::default(), PEERS_WITH_FAILURES_MAX as Rank);
        let lost = |peer| Error::PeerLost { peer };
        (0..most + 2).for_each(|peer| failures.note(0, peer, lost(peer)));
        failures.note(1, most, lost(most));
        assert_eq!(failures.take_with(0, most - 1), Some(lost(most - 1)));
        assert_eq!((failures.take_with(0, most), failures.take_with(1, most)), (None, Some(lost(most))));
        failures.note(0, most, lost(most));
        assert_eq!(failures.take_with(0, most), Some(lost(most)), "there is room again");
        assert_eq!((failures.take(0), failures.has(0)), (Some(lost(0)), false));
    }
}

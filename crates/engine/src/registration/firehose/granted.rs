//! Firehoses of granted memory: found by the peer's name for the grant, and never by an address.

use hashbrown::HashMap;

use super::{Firehoses, Found, Hose, HoseId, Key, Slot};
use crate::registration::Run;
use crate::registration::table::HolderId;
use crate::{GrantId, Rank};

/// Transfers, at most, by a grant whose key was refused before it is asked for once more.
const REFUSED_TURNS: u32 = 16;

/// Grants, at most, of which is known that their keys were refused: beyond, all are forgotten.
const REFUSED_MAX: usize = 4096;

/// The memory that a firehose of a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantedReach {
    pub(crate) grant: GrantId,
    /// The first byte in the peer's space, and how many there are.
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// The state of a grant of a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    At(Slot),
    /// Its key was refused, for so many bytes, and is not asked for in so many turns.
    Refused {
        bytes: u64,
        turns: u32,
    },
}

/// The grants of peers' that something is known of.
#[derive(Default)]
pub(super) struct GrantedHoses {
    known: HashMap<(Rank, GrantId), Known>,
    /// How many of them were refused.
    refused: usize,
    /// By the places of firehoses.
    reach: HashMap<u32, GrantedReach>,
    /// Bytes that questions which are not answered are about, by question.
    asked: HashMap<u32, u64>,
}

impl GrantedHoses {
    fn set(&mut self, peer: Rank, grant: GrantId, now: Option<Known>) {
        let before = match now {
            Some(now) => self.known.insert((peer, grant), now),
            None => self.known.remove(&(peer, grant)),
        };
        let is_refused = |known: Option<Known>| usize::from(matches!(known, Some(Known::Refused { .. })));
        self.refused = self.refused + is_refused(now) - is_refused(before);
        if self.refused > REFUSED_MAX {
            self.known.retain(|_, known| matches!(known, Known::At(_)));
            self.refused = 0;
        }
    }

    /// A firehose is not to be found any more. `false`: it is no grant's.
    pub(super) fn forget(&mut self, peer: Rank, at: u32) -> bool {
        let Some(GrantedReach { grant, .. }) = self.reach.get(&at).copied() else { return false };
        if self.known.get(&(peer, grant)) == Some(&Known::At(Slot::hose(at))) {
            self.set(peer, grant, None);
        }
        true
    }

    /// A firehose is no more.
    pub(super) fn remove(&mut self, at: u32) {
        self.reach.remove(&at);
    }

    /// A peer is gone.
    pub(super) fn drop_peer(&mut self, peer: Rank) {
        self.known.retain(|(of, _), _| *of != peer);
        self.refused = self.known.values().filter(|known| matches!(known, Known::Refused { .. })).count();
    }

    /// Bytes of memory that all of this takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.allocation_size() + self.reach.allocation_size() + self.asked.allocation_size()
    }
}

impl Firehoses {
    /// The state of a grant of `peer`'s.
    pub(crate) fn find_granted(&self, peer: Rank, grant: GrantId) -> Found {
        match self.granted.known.get(&(peer, grant)) {
            Some(Known::At(Slot(at))) if at & Slot::ASKED == 0 => Found::Held(HoseId(*at)),
            Some(Known::At(Slot(by))) => Found::Asked(by & !Slot::ASKED),
            Some(Known::Refused { .. }) | None => Found::Miss,
        }
    }

    /// The memory that a firehose reaches, and its key, if it is a grant's.
    pub(crate) fn reach_granted(&self, id: HoseId) -> Option<(GrantedReach, Key)> {
        Some((*self.granted.reach.get(&id.0)?, self.hoses.0[id.0 as usize].key))
    }

    /// Whether the key of a grant was refused so lately that it is not to be asked for again. Counts a turn.
    pub(crate) fn is_refused(&mut self, peer: Rank, grant: GrantId) -> bool {
        match self.granted.known.get_mut(&(peer, grant)) {
            Some(Known::Refused { turns, .. }) => {
                *turns = turns.saturating_sub(1);
                *turns > 0
            }
            _ => false,
        }
    }

    /// Notes that question `by` asks for the key of a grant.
    pub(crate) fn ask_granted(&mut self, peer: Rank, grant: GrantId, by: u32) {
        let bytes = match self.granted.known.get(&(peer, grant)) {
            Some(Known::Refused { bytes, .. }) => *bytes,
            _ => 0,
        };
        let known = self.known(peer);
        self.peers[known as usize].asked += bytes;
        self.granted.asked.insert(by, bytes);
        self.granted.set(peer, grant, Some(Known::At(Slot::asked(by))));
    }

    /// Question `by` is answered.
    pub(crate) fn answered_granted(&mut self, peer: Rank, grant: GrantId, by: u32) {
        let bytes = self.granted.asked.remove(&by).unwrap_or_default();
        // Of a process that is gone, what was asked for went with it.
        if let Some(known) = self.place_of(peer) {
            let known = &mut self.peers[known as usize];
            known.asked = known.asked.saturating_sub(bytes);
        }
        if self.granted.known.get(&(peer, grant)) == Some(&Known::At(Slot::asked(by))) {
            self.granted.set(peer, grant, None);
        }
    }

    /// The peer has refused the key of a grant, which has so many bytes as far as it says.
    pub(crate) fn refuse_granted(&mut self, peer: Rank, grant: GrantId, len: u64) {
        let bytes = len.saturating_add(self.bucket_bytes);
        if self.find_granted(peer, grant) == Found::Miss {
            self.granted.set(peer, grant, Some(Known::Refused { bytes, turns: REFUSED_TURNS }));
        }
    }

    /// Takes a firehose of a grant that the peer has given.
    pub(crate) fn add_granted(&mut self, peer: Rank, reach: GrantedReach, key: Key, holder: HolderId) {
        let shift = self.bucket_bytes.trailing_zeros();
        let (first, last) = (reach.start >> shift, (reach.start + (reach.len - 1)) >> shift);
        let at = self.insert(peer, Run { first, count: (last - first + 1) as u32 }, key, holder);
        self.granted.reach.insert(at, reach);
        self.granted.set(peer, reach.grant, Some(Known::At(Slot::hose(at))));
    }

    /// Each firehose of a grant that may be used is found by its name, and no name leads elsewhere.
    pub(super) fn audit_granted(&self) -> Result<(), String> {
        for (&(peer, grant), known) in &self.granted.known {
            let Known::At(Slot(at)) = *known else { continue };
            let is_its = self.granted.reach.get(&at).is_some_and(|reach| reach.grant == grant);
            let hose = self.hoses.0.get(at as usize);
            let is_there = hose.is_some_and(|hose: &Hose| !hose.free && !hose.revoked);
            if at & Slot::ASKED == 0 && !(is_its && is_there) {
                return Err(format!(
                    "grant {grant} of peer {peer} leads to firehose {at}, which is another's"
                ));
            }
        }
        for (&at, &GrantedReach { grant, .. }) in &self.granted.reach {
            let hose = &self.hoses.0[at as usize];
            let peer = self.peers[hose.known as usize].rank;
            let is_found = self.granted.known.get(&(peer, grant)) == Some(&Known::At(Slot::hose(at)));
            if hose.free || (is_found == hose.revoked) {
                return Err(format!("firehose {at} of grant {grant}: it is to be found: {is_found}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Released;
    use super::*;
    use crate::registration::Order;

    const PAGE: u64 = 4096;

    fn grant(line: u32) -> GrantId {
        GrantId { line, generation: 3 }
    }

    fn reach(line: u32, start: u64, len: u64) -> GrantedReach {
        GrantedReach { grant: grant(line), start, len }
    }

    #[test]
    fn a_key_is_found_by_its_grant_until_it_is_taken_back() {
        let mut hoses = Firehoses::new(Order::Fifo, PAGE, 8 * PAGE);
        hoses.ask_granted(1, grant(5), 9);
        assert_eq!(hoses.find_granted(1, grant(5)), Found::Asked(9));
        hoses.answered_granted(1, grant(5), 9);
        assert_eq!(hoses.find_granted(1, grant(5)), Found::Miss);
        hoses.add_granted(1, reach(5, 3 * PAGE - 1, 2), Key(6), HolderId(4));
        let Found::Held(id) = hoses.find_granted(1, grant(5)) else { panic!("it was given") };
        assert_eq!(hoses.reach_granted(id), Some((reach(5, 3 * PAGE - 1, 2), Key(6))));
        assert_eq!((hoses.held(1), hoses.find(1, 2)), (2 * PAGE, Found::Miss), "no bucket leads there");
        hoses.audit().expect("sound");
        hoses.acquire(id);
        assert!(!hoses.revoke(1, HolderId(4)), "it is in use");
        assert_eq!(hoses.find_granted(1, grant(5)), Found::Miss);
        assert_eq!(
            hoses.reach_granted(id),
            Some((reach(5, 3 * PAGE - 1, 2), Key(6))),
            "its user knows it still"
        );
        hoses.audit().expect("sound");
        assert_eq!(hoses.release(id), Released::Wanted(1, HolderId(4)));
        assert_eq!((hoses.held(1), hoses.reach_granted(id)), (0, None));
        hoses.audit().expect("sound");
    }

    #[test]
    fn what_was_refused_is_asked_for_again_by_and_by_and_makes_room() {
        let mut hoses = Firehoses::new(Order::Fifo, PAGE, 2 * PAGE);
        hoses.add_granted(1, reach(1, 0, 2 * PAGE), Key(1), HolderId(0));
        hoses.ask_granted(1, grant(2), 3);
        hoses.answered_granted(1, grant(2), 3);
        hoses.refuse_granted(1, grant(2), 10);
        let turns = (0..).take_while(|_| hoses.is_refused(1, grant(2))).count();
        assert_eq!(turns, REFUSED_TURNS as usize - 1);
        let mut given_up = Vec::new();
        hoses.ask_granted(1, grant(2), 4);
        hoses.make_room(1, 9, &mut given_up);
        assert_eq!(given_up, [HolderId(0)]);
        hoses.drop_peer(1);
        hoses.answered_granted(1, grant(2), 4);
        assert!(
            hoses.granted.known.is_empty()
                && hoses.granted.reach.is_empty()
                && hoses.granted.asked.is_empty()
        );
        for line in 0..=REFUSED_MAX as u32 {
            hoses.refuse_granted(2, grant(line), 0);
        }
        assert!(hoses.granted.known.is_empty(), "there is an end to what is kept");
    }
}

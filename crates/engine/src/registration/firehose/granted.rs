//! Firehoses of granted memory: found by the peer's name for the grant, and never by an address.

use super::granted_hoses::{Known, REFUSED_TURNS};
use super::{Firehoses, Found, Hose, HoseId, Key};
use crate::registration::extent::Extent;
use crate::registration::table::HolderId;
use crate::{GrantId, Rank};

impl Firehoses {
    /// The state of a grant of `peer`'s.
    pub(crate) fn find_granted(&self, peer: Rank, grant: GrantId) -> Found {
        match self.granted.known.get(&(peer, grant)) {
            Some(Known::Held(at)) => Found::Held(HoseId(*at)),
            Some(Known::Asked(by)) => Found::Asked(*by),
            Some(Known::Refused { .. }) | None => Found::Miss,
        }
    }

    /// The memory that a firehose reaches, and its key, if it is a grant's.
    pub(crate) fn reach_granted(&self, id: HoseId) -> Option<(Extent, Key)> {
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
        self.granted.set(peer, grant, Some(Known::Asked(by)));
    }

    /// Question `by` is answered.
    pub(crate) fn answered_granted(&mut self, peer: Rank, grant: GrantId, by: u32) {
        let bytes = self.granted.asked.remove(&by).unwrap_or_default();
        // Of a process that is gone, what was asked for went with it.
        if let Some(known) = self.place_of(peer) {
            let known = &mut self.peers[known as usize];
            known.asked = known.asked.saturating_sub(bytes);
        }
        if self.granted.known.get(&(peer, grant)) == Some(&Known::Asked(by)) {
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
    pub(crate) fn add_granted(&mut self, peer: Rank, reach: Extent, key: Key, holder: HolderId) {
        let shift = self.bucket_bytes.trailing_zeros();
        let at = self.insert(peer, reach.buckets(shift), key, holder);
        self.granted.reach.insert(at, reach);
        self.granted.set(peer, reach.grant, Some(Known::Held(at)));
    }

    /// Each firehose of a grant that may be used is found by its name, and no name leads elsewhere.
    pub(super) fn audit_granted(&self) -> Result<(), String> {
        for (&(peer, grant), known) in &self.granted.known {
            let Known::Held(at) = *known else { continue };
            let is_its = self.granted.reach.get(&at).is_some_and(|reach| reach.grant == grant);
            let hose = self.hoses.0.get(at as usize);
            let is_there = hose.is_some_and(|hose: &Hose| !hose.free && !hose.revoked);
            if !(is_its && is_there) {
                return Err(format!(
                    "grant {grant} of peer {peer} leads to firehose {at}, which is another's"
                ));
            }
        }
        for (&at, &Extent { grant, .. }) in &self.granted.reach {
            let hose = &self.hoses.0[at as usize];
            let peer = self.peers[hose.known as usize].rank;
            let is_found = self.granted.known.get(&(peer, grant)) == Some(&Known::Held(at));
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
    use super::super::granted_hoses::REFUSED_MAX;
    use super::*;
    use crate::registration::Order;

    const PAGE: u64 = 4096;

    fn grant(line: u32) -> GrantId {
        GrantId { line, generation: 3 }
    }

    fn reach(line: u32, start: u64, len: u64) -> Extent {
        Extent { grant: grant(line), start, len }
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

//! All firehoses, looked at anew: what their steps keep in mind must be what follows from them.

use super::{Firehoses, Hose, Peer, Slot, Theirs};
use crate::Rank;

impl Firehoses {
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let tally =
            |peer: &Peer| Tally { held: 0, rank: peer.rank, gone: peer.gone, changed: peer.changed.take() };
        let mut tallies: Vec<Tally> = self.peers.iter().map(tally).collect();
        let (usable, here, sound) = self.tally(&mut tallies);
        if !sound || !self.are_found(&tallies) || here != self.by_holder.len() {
            return Err(self.what_is_wrong(here));
        }
        for (&Theirs { bucket, peer }, &Slot(at)) in &self.index {
            if at & Slot::ASKED != 0 {
                continue;
            }
            let (Theirs { bucket: first, peer: of }, count) = usable[at as usize];
            if (bucket.wrapping_sub(first) >= u64::from(count)) | (of != peer) {
                return Err(misled(bucket, peer, at));
            }
        }
        self.audit_granted()?;
        let held = |tally: &Tally| tally.held * self.bucket_bytes;
        match self.peers.iter().zip(&tallies).find(|(peer, tally)| peer.held != held(tally)) {
            Some((peer, tally)) => Err(format!(
                "the firehoses of rank {} make {} bytes, kept in mind is {}",
                peer.rank,
                held(tally),
                peer.held
            )),
            None => Ok(()),
        }
    }

    /// Adds every firehose to its peer's. Returns what may be used of each, and nothing else, as the index is
    /// not in the order of the firehoses. Returns also how many there are, and whether each is as it must be.
    #[inline(never)]
    fn tally(&self, tallies: &mut [Tally]) -> (Vec<(Theirs, u32)>, usize, bool) {
        let (mut here, mut wrong) = (0, false);
        let add = |hose: &Hose| {
            if hose.free {
                return (Theirs { bucket: 0, peer: 0 }, 0);
            }
            let tally = &mut tallies[hose.known as usize];
            tally.held += u64::from(hose.count);
            here += 1;
            wrong |= if hose.revoked { hose.refs == 0 } else { tally.gone };
            (Theirs { bucket: hose.first, peer: tally.rank }, if hose.revoked { 0 } else { hose.count })
        };
        (self.hoses.0.iter().map(add).collect(), here, !wrong)
    }

    /// Whether the firehoses of each peer where something has changed are found by their owner's names for
    /// them. The others were found before, and are as many still.
    #[inline(never)]
    fn are_found(&self, tallies: &[Tally]) -> bool {
        let is_news = |hose: &Hose| !hose.free && tallies[hose.known as usize].changed;
        let mut all = self.hoses.0.iter().enumerate();
        !tallies.iter().any(|tally| tally.changed)
            || all.all(|(at, hose)| !is_news(hose) || self.is_found(at, hose))
    }

    /// Whether a firehose is found by its owner's name for it.
    fn is_found(&self, at: usize, hose: &Hose) -> bool {
        self.by_name(hose.name()) == Some(at as u32)
    }

    /// The first thing that is, of so many firehoses.
    #[cold]
    fn what_is_wrong(&self, here: usize) -> String {
        for (at, hose) in self.hoses.0.iter().enumerate().filter(|(_, hose)| !hose.free) {
            if hose.revoked && hose.refs == 0 {
                return format!("firehose {at} is revoked, idle, and kept");
            }
            if self.peers[hose.known as usize].gone && !hose.revoked {
                return format!("firehose {at} is of a peer that is gone, and may be used");
            }
            if !self.is_found(at, hose) {
                return format!("firehose {at} is not found by its owner's name for it");
            }
        }
        format!("there are {here} firehoses, and names for {}", self.by_holder.len())
    }
}

#[cold]
fn misled(bucket: u64, peer: Rank, at: u32) -> String {
    format!("bucket {bucket} of peer {peer} leads to firehose {at}, which is another's")
}

/// The state of a peer, and what its firehoses make: buckets.
struct Tally {
    held: u64,
    rank: Rank,
    gone: bool,
    changed: bool,
}

//! The initiator's side: which peers' registered memory this process may use, and by what key.
//!
//! A *firehose* is the right to use one run of a peer's buckets. While operations use it, it stays; idle ones are kept,
//! and given up in the order of a [`Queue`] when the peer allows no more.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::queue::{Linked, Links, Queue};
use super::table::HolderId;
use super::{Key, Order, Run, end_of};
use crate::Rank;

/// Names a firehose of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoseId(u32);

/// What is known of a peer's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It may be used.
    Held(HoseId),
    /// It has been asked for by this move.
    Asked(u32),
    /// Nothing.
    Miss,
}

/// One firehose.
struct Hose {
    peer: Rank,
    run: Run,
    key: Key,
    /// Its name at the owner.
    holder: HolderId,
    refs: u32,
    links: Links,
    /// The owner wants it back: nobody starts to use it any more.
    revoked: bool,
    free: bool,
}

struct Hoses(Vec<Hose>);

impl Linked for Hoses {
    fn links(&mut self, at: u32) -> &mut Links {
        &mut self.0[at as usize].links
    }

    fn is_used(&self, at: u32) -> bool {
        self.0[at as usize].refs > 0
    }
}

/// What is held of one peer.
struct Peer {
    queue: Queue,
    /// Bytes.
    held: u64,
    /// Bytes that the peer lets this process hold, as far as it has said.
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Hose(u32),
    Asked(u32),
}

/// The firehose table.
pub(crate) struct Firehoses {
    order: Order,
    bucket_bytes: u64,
    hoses: Hoses,
    free: Vec<u32>,
    index: HashMap<(Rank, u64), Slot>,
    by_holder: HashMap<(Rank, u32), u32>,
    peers: BTreeMap<Rank, Peer>,
    /// What a peer lets this process hold before it has said anything.
    limit: u64,
}

impl Firehoses {
    pub(crate) fn new(order: Order, bucket_bytes: u64, limit: u64) -> Firehoses {
        Firehoses {
            order,
            bucket_bytes,
            hoses: Hoses(Vec::new()),
            free: Vec::new(),
            index: HashMap::new(),
            by_holder: HashMap::new(),
            peers: BTreeMap::new(),
            limit,
        }
    }

    /// What is known of `bucket` of `peer`.
    #[inline]
    pub(crate) fn find(&self, peer: Rank, bucket: u64) -> Found {
        match self.index.get(&(peer, bucket)) {
            Some(Slot::Hose(at)) => Found::Held(HoseId(*at)),
            Some(Slot::Asked(by)) => Found::Asked(*by),
            None => Found::Miss,
        }
    }

    /// The run that a firehose reaches, and its key.
    #[inline]
    pub(crate) fn reach(&self, id: HoseId) -> (Run, Key) {
        let hose = &self.hoses.0[id.0 as usize];
        (hose.run, hose.key)
    }

    /// Uses a firehose for one more operation.
    #[inline]
    pub(crate) fn acquire(&mut self, id: HoseId) {
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs += 1;
        if hose.refs == 1
            && let Some(peer) = self.peers.get_mut(&self.hoses.0[id.0 as usize].peer)
        {
            peer.queue.touch(&mut self.hoses, id.0);
        }
    }

    /// Ends one use. `Some`: the owner waits for the firehose, which is gone from here; it is to be given back.
    #[inline]
    pub(crate) fn release(&mut self, id: HoseId) -> Option<(Rank, HolderId)> {
        let hose = &mut self.hoses.0[id.0 as usize];
        hose.refs -= 1;
        if hose.refs > 0 {
            return None;
        }
        if hose.revoked {
            return Some(self.remove(id.0));
        }
        let peer = hose.peer;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.queue.idle(&mut self.hoses, id.0);
        }
        None
    }

    /// Gives up a firehose that nobody uses, whatever the order. `None` where it is in use.
    pub(crate) fn give_up(&mut self, id: HoseId) -> Option<(Rank, HolderId)> {
        (self.hoses.0[id.0 as usize].refs == 0).then(|| self.remove(id.0))
    }

    /// Marks what is not held of `wanted` as asked for by move `by`. Returns what there was to ask for, in runs.
    pub(crate) fn ask(&mut self, peer: Rank, wanted: Run, by: u32, asked: &mut Vec<Run>) {
        for bucket in wanted.first..end_of(wanted) {
            if self.index.contains_key(&(peer, bucket)) {
                continue;
            }
            self.index.insert((peer, bucket), Slot::Asked(by));
            match asked.last_mut() {
                Some(last) if end_of(*last) == bucket => last.count += 1,
                _ => asked.push(Run { first: bucket, count: 1 }),
            }
        }
    }

    /// Takes back the marks of a move that has been answered.
    pub(crate) fn answered(&mut self, peer: Rank, asked: &[Run], by: u32) {
        for bucket in asked.iter().flat_map(|run| run.first..end_of(*run)) {
            if self.index.get(&(peer, bucket)) == Some(&Slot::Asked(by)) {
                self.index.remove(&(peer, bucket));
            }
        }
    }

    /// Takes a firehose that the peer has given.
    pub(crate) fn add(&mut self, peer: Rank, run: Run, key: Key, holder: HolderId) {
        let hose =
            Hose { peer, run, key, holder, refs: 0, links: Links::default(), revoked: false, free: false };
        let at = match self.free.pop() {
            Some(at) => {
                self.hoses.0[at as usize] = hose;
                at
            }
            None => {
                self.hoses.0.push(hose);
                self.hoses.0.len() as u32 - 1
            }
        };
        for bucket in run.first..end_of(run) {
            self.index.insert((peer, bucket), Slot::Hose(at));
        }
        self.by_holder.insert((peer, holder.0), at);
        let bytes = self.bytes(run);
        let (order, limit) = (self.order, self.limit);
        let known =
            self.peers.entry(peer).or_insert_with(|| Peer { queue: Queue::new(order), held: 0, limit });
        known.held += bytes;
        known.queue.enter(&mut self.hoses, at);
        known.queue.idle(&mut self.hoses, at);
    }

    /// Notes how many bytes the peer lets this process hold.
    pub(crate) fn set_limit(&mut self, peer: Rank, limit: u64) {
        let order = self.order;
        let known =
            self.peers.entry(peer).or_insert_with(|| Peer { queue: Queue::new(order), held: 0, limit });
        known.limit = limit;
    }

    /// Gives up idle firehoses of `peer` until `more` bytes can be held besides what is left, as far as the peer has
    /// said; all that are idle, if need be. At most `most` of them.
    pub(crate) fn make_room(&mut self, peer: Rank, more: u64, most: usize, given_up: &mut Vec<HolderId>) {
        while given_up.len() < most {
            let Some(known) = self.peers.get_mut(&peer) else { return };
            if known.held + more <= known.limit {
                return;
            }
            let Some(at) = known.queue.pick(&mut self.hoses) else { return };
            given_up.push(self.remove(at).1);
        }
    }

    /// Gives up idle firehoses of `peer` of `bytes` in all, or what there is.
    pub(crate) fn shed(&mut self, peer: Rank, bytes: u64, given_up: &mut Vec<HolderId>) {
        let mut shed = 0;
        while shed < bytes {
            let Some(known) = self.peers.get_mut(&peer) else { return };
            let Some(at) = known.queue.pick(&mut self.hoses) else { return };
            shed += self.bytes(self.hoses.0[at as usize].run);
            given_up.push(self.remove(at).1);
        }
    }

    /// The owner wants a firehose back. `true`: nobody uses it, and it is gone; otherwise the last
    /// [`Firehoses::release`] says so. It may have been given up already: then `true`, too.
    pub(crate) fn revoke(&mut self, peer: Rank, holder: HolderId) -> bool {
        let Some(&at) = self.by_holder.get(&(peer, holder.0)) else { return true };
        self.forget(at);
        let hose = &mut self.hoses.0[at as usize];
        hose.revoked = true;
        let idle = hose.refs == 0;
        if idle {
            self.remove(at);
        }
        idle
    }

    /// Forgets all firehoses of a peer that is gone. Those in use go with their last release.
    pub(crate) fn drop_peer(&mut self, peer: Rank) {
        for at in 0..self.hoses.0.len() as u32 {
            let hose = &self.hoses.0[at as usize];
            if !hose.free && hose.peer == peer {
                let holder = hose.holder;
                self.revoke(peer, holder);
            }
        }
        self.index.retain(|(rank, _), _| *rank != peer);
    }

    /// Bytes held of `peer`.
    #[cfg(test)]
    pub(crate) fn held(&self, peer: Rank) -> u64 {
        self.peers.get(&peer).map_or(0, |known| known.held)
    }

    fn remove(&mut self, at: u32) -> (Rank, HolderId) {
        self.forget(at);
        let Hose { peer, run, holder, .. } = self.hoses.0[at as usize];
        let bytes = self.bytes(run);
        if let Some(known) = self.peers.get_mut(&peer) {
            known.queue.remove(&mut self.hoses, at);
            known.held -= bytes;
        }
        self.by_holder.remove(&(peer, holder.0));
        self.hoses.0[at as usize].free = true;
        self.free.push(at);
        (peer, holder)
    }

    /// Takes a firehose out of the index, where it is still there.
    fn forget(&mut self, at: u32) {
        let Hose { peer, run, .. } = self.hoses.0[at as usize];
        for bucket in run.first..end_of(run) {
            if self.index.get(&(peer, bucket)) == Some(&Slot::Hose(at)) {
                self.index.remove(&(peer, bucket));
            }
        }
    }

    fn bytes(&self, run: Run) -> u64 {
        u64::from(run.count) * self.bucket_bytes
    }

    /// The whole structure, looked at anew.
    ///
    /// # Errors
    /// What does not add up.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let mut held: BTreeMap<Rank, u64> = BTreeMap::new();
        for (at, hose) in self.hoses.0.iter().enumerate().filter(|(_, hose)| !hose.free) {
            *held.entry(hose.peer).or_default() += self.bytes(hose.run);
            if hose.revoked && hose.refs == 0 {
                return Err(format!("firehose {at} is revoked, idle, and kept"));
            }
            if self.by_holder.get(&(hose.peer, hose.holder.0)) != Some(&(at as u32)) {
                return Err(format!("firehose {at} is not found by its owner's name for it"));
            }
        }
        for ((peer, bucket), slot) in &self.index {
            let Slot::Hose(at) = slot else { continue };
            let hose = &self.hoses.0[*at as usize];
            let covers = hose.run.first <= *bucket && *bucket < end_of(hose.run);
            if hose.free || hose.revoked || hose.peer != *peer || !covers {
                return Err(format!(
                    "bucket {bucket} of peer {peer} leads to firehose {at}, which is another's"
                ));
            }
        }
        let kept = self.peers.iter().filter(|(_, known)| known.held > 0);
        let kept: BTreeMap<Rank, u64> = kept.map(|(rank, known)| (*rank, known.held)).collect();
        if held == kept {
            Ok(())
        } else {
            Err(format!("the firehoses make {held:?}, kept in mind is {kept:?}"))
        }
    }
}

#[cfg(test)]
#[path = "firehose_tests.rs"]
mod tests;

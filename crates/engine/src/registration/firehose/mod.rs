//! The initiator's side: which peers' registered memory this process may use, and by what key.
//!
//! A *firehose* is the right to use one run of a peer's buckets. While operations use it, it stays; idle ones
//! are kept, and given up in the order of a `VictimQueue` when the peer allows no more.

mod audit;
mod giving_up;
mod granted;
mod granted_hoses;
#[cfg(test)]
mod tests;
mod uses;

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use self::granted_hoses::GrantedHoses;
use super::miss_policy::MissPolicy;
use super::slots::{NONE, push};
use super::table::HolderId;
use super::victims::{Linked, Links, VictimQueue};
use super::{Key, Order, PeerCounters, Run, end_of};
use crate::Rank;

/// Names a firehose of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoseId(u32);

/// The state of a peer's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It may be used.
    Held(HoseId),
    /// It has been asked for by this move.
    Asked(u32),
    /// Nothing.
    Miss,
}

/// A firehose that is used by one more operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) hose: HoseId,
    /// The first byte of the peer's space that it reaches.
    pub(crate) base: u64,
    pub(crate) key: Key,
}

/// The state of a firehose after a use has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is still here.
    Kept,
    /// It is not, for its owner waits for it; it is to be given back.
    Wanted(Rank, HolderId),
    /// It is not, and neither is the process that gave it: nobody is to be told.
    Gone,
}

/// One firehose.
struct Hose {
    first: u64,
    key: Key,
    count: u32,
    /// The peer's place among those that are known; the next free place where this one is.
    known: u32,
    /// Its name at the owner.
    holder: HolderId,
    refs: u32,
    links: Links,
    /// The owner wants it back: nobody starts to use it any more.
    revoked: bool,
    free: bool,
}

impl Hose {
    fn run(&self) -> Run {
        Run { first: self.first, count: self.count }
    }

    /// The owner's name for it, with the owner's place: in one word, which is hashed faster than two.
    fn name(&self) -> u64 {
        name(self.known, self.holder)
    }
}

fn name(known: u32, holder: HolderId) -> u64 {
    u64::from(known) << 32 | u64::from(holder.0)
}

struct Hoses(Vec<Hose>);

impl Linked for Hoses {
    fn links(&mut self, at: u32) -> &mut Links {
        &mut self.0[at as usize].links
    }

    fn is_used(&self, at: u32) -> bool {
        self.0[at as usize].refs > 0
    }

    fn name(&self, at: u32) -> u64 {
        self.0[at as usize].run().first
    }
}

/// The firehoses held of one peer. Another process of the same rank, later, is another peer.
struct Peer {
    rank: Rank,
    queue: VictimQueue,
    /// Bytes.
    held: u64,
    /// Bytes that moves ask for which have not been answered.
    asked: u64,
    /// Bytes that the peer lets this process hold, as far as it has said.
    limit: u64,
    miss_policy: MissPolicy,
    /// Its counters at this end.
    hits: u64,
    misses: u64,
    moves: u64,
    /// The process is no more: only what is in use is held.
    gone: bool,
    /// Something has come or gone since [`Firehoses::audit`].
    changed: Cell<bool>,
}

impl Peer {
    fn counters(&self) -> PeerCounters {
        let Peer { hits, misses, moves, held, .. } = *self;
        PeerCounters { hits, misses, moves, held, ..PeerCounters::default() }
    }
}

/// A bucket of a peer's. Packed, so that the index spends no byte on padding.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(Rust, packed(4))]
struct Theirs {
    bucket: u64,
    peer: Rank,
}

/// Spreads words that differ in few bits over all of them. Hashing one is a single multiplication, which for
/// some seeds of a map's puts many of a dense range in one place.
#[inline]
pub(super) fn spread(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Hash for Theirs {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // One word is hashed in half the time of two. A bucket's number hardly reaches the bits that a rank
        // has.
        state.write_u64(spread(self.bucket ^ u64::from(self.peer).rotate_right(24)));
    }
}

/// Where an indexed bucket leads: to a firehose, or to the move that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    /// Set for moves.
    const ASKED: u32 = 1 << 31;

    fn hose(at: u32) -> Slot {
        debug_assert!(at < Slot::ASKED, "as many firehoses would fill 96 GiB");
        Slot(at)
    }

    fn asked(by: u32) -> Slot {
        debug_assert!(by < Slot::ASKED, "each of so many moves would be an operation");
        Slot(by | Slot::ASKED)
    }
}

/// The firehose that was found last: programs go on where they are. It is held, and the index leads to it
/// from some of its run; where firehoses overlap, as they may while memory changes at the owner, from the
/// rest to another.
///
/// Its uses are counted here and not with it: so a hit, and its end, look at nothing else. It has one use of
/// its own meanwhile, by which it stays; before anything is given up it is forgotten, and is idle like any
/// other.
struct Recent {
    peer: Rank,
    /// [`NONE`]: there is none, and it reaches nothing.
    id: HoseId,
    /// The range that it reaches of the peer's space: the first byte, and how many.
    start: u64,
    bytes: u64,
    key: Key,
    /// Uses under way.
    uses: u32,
    /// How many there were that its peer and the node have not been told of.
    hits: u64,
}

impl Recent {
    const NOTHING: Recent =
        Recent { peer: 0, id: HoseId(NONE), start: 0, bytes: 0, key: Key(0), uses: 0, hits: 0 };
}

/// The firehose table. It belongs to whoever drives the node: one thread at a time.
pub struct Firehoses {
    at_first: AtFirst,
    bucket_bytes: u64,
    hoses: Hoses,
    /// The first free place.
    free: u32,
    index: HashMap<Theirs, Slot>,
    /// By the owner and its name for it.
    by_holder: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Peers that something was ever held of, and the places of those that are gone and of which nothing is
    /// held.
    peers: Vec<Peer>,
    free_peers: Vec<u32>,
    by_rank: HashMap<Rank, u32>,
    /// The place of the peer that was looked for last: one message of a peer asks several times.
    last: Cell<u32>,
    recent: Recent,
    /// Hits by what was found last, but for those of what was found last now.
    hits: u64,
    /// Counts of peers that are gone.
    gone: PeerCounters,
    granted: GrantedHoses,
}

/// Settings of the table that hold of every peer from the first.
struct AtFirst {
    order: Order,
    /// The bytes that a peer lets this process hold before it has said anything.
    limit: u64,
}

impl Firehoses {
    /// An empty table: `limit` bytes may be held of each peer before it has said otherwise.
    pub fn new(order: Order, bucket_bytes: u64, limit: u64) -> Firehoses {
        Firehoses {
            at_first: AtFirst { order, limit },
            bucket_bytes,
            hoses: Hoses(Vec::new()),
            free: NONE,
            index: HashMap::new(),
            by_holder: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            peers: Vec::new(),
            free_peers: Vec::new(),
            by_rank: HashMap::new(),
            last: Cell::new(0),
            recent: Recent::NOTHING,
            hits: 0,
            gone: PeerCounters::default(),
            granted: GrantedHoses::default(),
        }
    }

    /// Bytes of memory that the table's firehoses and its indices take.
    pub fn memory_bytes(&self) -> usize {
        self.hoses.0.capacity() * size_of::<Hose>()
            + self.index.allocation_size()
            + self.by_holder.allocation_size()
            + self.peers.capacity() * size_of::<Peer>()
            + self.by_rank.allocation_size()
            + self.granted.memory_bytes()
    }

    /// The state of `bucket` of `peer`.
    #[inline]
    pub fn find(&self, peer: Rank, bucket: u64) -> Found {
        match self.index.get(&Theirs { bucket, peer }) {
            Some(Slot(at)) if at & Slot::ASKED == 0 => Found::Held(HoseId(*at)),
            Some(Slot(by)) => Found::Asked(by & !Slot::ASKED),
            None => Found::Miss,
        }
    }

    /// The run that a firehose reaches, and its key.
    #[inline]
    pub fn reach(&self, id: HoseId) -> (Run, Key) {
        let hose = &self.hoses.0[id.0 as usize];
        (hose.run(), hose.key)
    }

    /// Marks what is not held of `wanted` as asked for by move `by`. Returns what there was to ask for, in
    /// runs.
    pub(crate) fn ask(&mut self, peer: Rank, wanted: Run, by: u32, asked: &mut Vec<Run>) {
        let known = self.known(peer);
        for bucket in wanted.first..end_of(wanted) {
            if self.index.contains_key(&Theirs { bucket, peer }) {
                continue;
            }
            self.index.insert(Theirs { bucket, peer }, Slot::asked(by));
            self.peers[known as usize].asked += self.bucket_bytes;
            match asked.last_mut() {
                Some(last) if end_of(*last) == bucket => last.count += 1,
                _ => asked.push(Run { first: bucket, count: 1 }),
            }
        }
    }

    /// Takes back the marks of a move that has been answered.
    pub(crate) fn answered(&mut self, peer: Rank, asked: &[Run], by: u32) {
        // Of a process that is gone, what was asked for went with it.
        if let Some(known) = self.place_of(peer) {
            let bytes: u64 = asked.iter().map(|run| self.bytes(*run)).sum();
            let known = &mut self.peers[known as usize];
            known.asked = known.asked.saturating_sub(bytes);
        }
        for bucket in asked.iter().flat_map(|run| run.first..end_of(*run)) {
            if self.index.get(&Theirs { bucket, peer }) == Some(&Slot::asked(by)) {
                self.index.remove(&Theirs { bucket, peer });
            }
        }
    }

    /// Takes a firehose that the peer has given.
    pub fn add(&mut self, peer: Rank, run: Run, key: Key, holder: HolderId) {
        let at = self.insert(peer, run, key, holder);
        for bucket in run.first..end_of(run) {
            self.index.insert(Theirs { bucket, peer }, Slot::hose(at));
        }
    }

    /// A new firehose, which nobody uses, and which is to be found by the peer's name for it alone.
    fn insert(&mut self, peer: Rank, run: Run, key: Key, holder: HolderId) -> u32 {
        let known = self.known(peer);
        let hose = Hose {
            first: run.first,
            key,
            count: run.count,
            known,
            holder,
            refs: 0,
            links: Links::default(),
            revoked: false,
            free: false,
        };
        let at = match self.free {
            NONE => push(&mut self.hoses.0, hose, 8),
            free => {
                self.free = self.hoses.0[free as usize].known;
                self.hoses.0[free as usize] = hose;
                free
            }
        };
        // The firehose that was found may not be what is found from now on.
        self.forget_recent();
        let name = self.hasher.hash_one(name(known, holder));
        self.by_holder.insert_unique(name, at, |at| self.hasher.hash_one(self.hoses.0[*at as usize].name()));
        let bytes = self.bytes(run);
        let known = &mut self.peers[known as usize];
        known.held += bytes;
        known.changed.set(true);
        known.queue.enter(&mut self.hoses, at);
        known.queue.idle(&mut self.hoses, at);
        at
    }

    /// Counts a piece of a transfer that was not held.
    pub(crate) fn count_miss(&mut self, peer: Rank) {
        let known = self.known(peer);
        self.peers[known as usize].misses += 1;
    }

    /// Counts a message that asks.
    pub(crate) fn count_move(&mut self, peer: Rank) {
        let known = self.known(peer);
        self.peers[known as usize].moves += 1;
    }

    /// Counts at this end of each peer that is there, and of those that are gone together.
    pub(crate) fn counters(&self) -> (impl Iterator<Item = (Rank, PeerCounters)>, PeerCounters) {
        let mut gone = self.gone;
        // The firehoses that operations under way still use.
        gone.held = self.peers.iter().filter(|peer| peer.gone).map(|peer| peer.held).sum();
        // The one that was found last is of a peer that is there.
        let Recent { peer: recent, hits, .. } = self.recent;
        let known = self.by_rank.iter().map(move |(rank, known)| {
            let mut counters = self.peers[*known as usize].counters();
            counters.hits += if *rank == recent { hits } else { 0 };
            (*rank, counters)
        });
        (known, gone)
    }

    /// How many bytes the peer lets this process hold, as far as it has said.
    pub(crate) fn limit(&self, peer: Rank) -> u64 {
        self.place_of(peer).map_or(self.at_first.limit, |known| self.peers[known as usize].limit)
    }

    /// Notes how many bytes the peer lets this process hold.
    pub(crate) fn set_limit(&mut self, peer: Rank, limit: u64) {
        let known = self.known(peer);
        self.peers[known as usize].limit = limit;
    }

    /// Whether to ask `peer` for so many bytes more that little is to be done with. There is room for them,
    /// as far as the peer has said, or it pays to make room ([`miss_policy`](super::miss_policy)).
    pub(crate) fn is_worth_asking(&self, peer: Rank, bytes: u64) -> bool {
        let Some(known) = self.place_of(peer) else { return true };
        let known = &self.peers[known as usize];
        known.held + known.asked + bytes <= known.limit || known.miss_policy.pays()
    }

    /// The known times of messages to `peer` and of moves.
    pub(crate) fn miss_policy(&mut self, peer: Rank) -> &mut MissPolicy {
        let known = self.known(peer);
        &mut self.peers[known as usize].miss_policy
    }

    /// Whether the firehose that `peer` calls `holder` is here.
    pub(crate) fn has(&self, peer: Rank, holder: HolderId) -> bool {
        self.named(peer, holder).is_some()
    }

    /// Forgets a peer that is gone, and all its firehoses. Those in use go with their last release; should
    /// the rank return, they are not taken for what the new process gives.
    pub(crate) fn drop_peer(&mut self, peer: Rank) {
        self.index.retain(|theirs, _| theirs.peer != peer);
        self.granted.drop_peer(peer);
        self.forget_recent();
        let Some(known) = self.by_rank.remove(&peer) else { return };
        let gone = &mut self.peers[known as usize];
        gone.gone = true;
        self.gone += gone.counters();
        if gone.held == 0 {
            self.free_peers.push(known);
        }
        for at in 0..self.hoses.0.len() as u32 {
            let hose = &mut self.hoses.0[at as usize];
            if hose.free || hose.known != known {
                continue;
            }
            hose.revoked = true;
            if hose.refs == 0 {
                self.remove(at);
            }
        }
    }

    /// The names that `peer` has for those of its firehoses that are here.
    pub(crate) fn holders_of(&self, peer: Rank) -> Vec<u32> {
        let known = self.place_of(peer);
        let here = self.hoses.0.iter().filter(|hose| !hose.free && Some(hose.known) == known);
        here.map(|hose| hose.holder.0).collect()
    }

    /// Uses, in all.
    pub(crate) fn references(&self) -> u64 {
        let of = |hose: &Hose| if hose.free { 0 } else { u64::from(hose.refs) };
        let counted: u64 = self.hoses.0.iter().map(of).sum();
        // What was found last has one that is nobody's.
        counted + u64::from(self.recent.uses) - u64::from(self.recent.id.0 != NONE)
    }

    /// Bytes held of `peer`.
    #[cfg(test)]
    pub(crate) fn held(&self, peer: Rank) -> u64 {
        self.by_rank.get(&peer).map_or(0, |known| self.peers[*known as usize].held)
    }

    fn remove(&mut self, at: u32) -> (Rank, HolderId) {
        self.forget(at);
        let hose = &self.hoses.0[at as usize];
        let (bytes, known, holder) = (self.bytes(hose.run()), hose.known, hose.holder);
        let known = &mut self.peers[known as usize];
        let peer = known.rank;
        known.queue.remove(&mut self.hoses, at);
        known.held -= bytes;
        known.changed.set(true);
        if known.gone && known.held == 0 {
            self.free_peers.push(self.hoses.0[at as usize].known);
        }
        let name = self.hasher.hash_one(self.hoses.0[at as usize].name());
        if let Ok(named) = self.by_holder.find_entry(name, |other| *other == at) {
            named.remove();
        }
        self.granted.remove(at);
        let hose = &mut self.hoses.0[at as usize];
        (hose.free, hose.known) = (true, self.free);
        self.free = at;
        (peer, holder)
    }

    /// Takes a firehose out of the index, where it is still there.
    fn forget(&mut self, at: u32) {
        if self.recent.id.0 == at {
            self.forget_recent();
        }
        let hose = &self.hoses.0[at as usize];
        let (peer, run) = (self.peers[hose.known as usize].rank, hose.run());
        if self.granted.forget(peer, at) {
            return;
        }
        for bucket in run.first..end_of(run) {
            if self.index.get(&Theirs { bucket, peer }) == Some(&Slot::hose(at)) {
                self.index.remove(&Theirs { bucket, peer });
            }
        }
    }

    /// The firehose that `peer` calls so.
    fn named(&self, peer: Rank, holder: HolderId) -> Option<u32> {
        self.by_name(name(self.place_of(peer)?, holder))
    }

    fn by_name(&self, name: u64) -> Option<u32> {
        let is_it = |at: &u32| self.hoses.0[*at as usize].name() == name;
        self.by_holder.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// A peer's place among those that are known, if it is.
    #[inline]
    fn place_of(&self, peer: Rank) -> Option<u32> {
        let last = self.last.get();
        if self.peers.get(last as usize).is_some_and(|known| known.rank == peer && !known.gone) {
            return Some(last);
        }
        let known = *self.by_rank.get(&peer)?;
        self.last.set(known);
        Some(known)
    }

    /// A peer's place among those that are known: from now on it is.
    fn known(&mut self, peer: Rank) -> u32 {
        self.place_of(peer).unwrap_or_else(|| self.make_known(peer))
    }

    #[cold]
    fn make_known(&mut self, peer: Rank) -> u32 {
        *self.by_rank.entry(peer).or_insert_with(|| {
            let queue = VictimQueue::new(self.at_first.order);
            let (held, asked, limit, changed) = (0, 0, self.at_first.limit, Cell::new(true));
            let known = Peer {
                rank: peer,
                queue,
                held,
                asked,
                limit,
                miss_policy: MissPolicy::default(),
                hits: 0,
                misses: 0,
                moves: 0,
                gone: false,
                changed,
            };
            match self.free_peers.pop() {
                Some(free) => {
                    self.peers[free as usize] = known;
                    free
                }
                None => {
                    self.peers.push(known);
                    self.peers.len() as u32 - 1
                }
            }
        })
    }

    fn bytes(&self, run: Run) -> u64 {
        u64::from(run.count) * self.bucket_bytes
    }
}

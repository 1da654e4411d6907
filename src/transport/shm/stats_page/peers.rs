//! The peers with which a process registers memory, and those that its grants concern, as it shows them: a
//! row for each of the busiest, one for all others.
//!
//! The words are: how many rows there are, and how many more peers there are; the others' counters; the rows,
//! in order of their ranks, each a rank and its counters.

use std::cmp::Reverse;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;

use engine::registration::{ByPeer, PeerCounters};
use engine::{GrantPeerCounters, GrantsByPeer, Nanos, Rank};

use super::{PARTS_END, read_settled};
use crate::transport::shm::control::{Control, GRANT_PEERS_AT, GRANT_PEERS_BYTES, HANDLERS_AT};

/// Peers, at most, that are shown by themselves.
const ROWS_MAX: usize = 32;

/// No counter is larger, so that all rows add up.
const COUNTER_MAX: u64 = u64::MAX >> 6;
const _: () = assert!(ROWS_MAX + 1 < 1 << 6);

/// Words that show peers of which so many counters are kept.
const fn words_of(counters: usize) -> usize {
    1 + counters + ROWS_MAX * (1 + counters)
}

const COUNTERS: usize = size_of::<PeerCounters>() / size_of::<u64>();
const WORDS: usize = words_of(COUNTERS);
const AT: u64 = PARTS_END;
const _: () = assert!(AT + (2 + WORDS) as u64 * 8 <= HANDLERS_AT, "the rows lie below the handlers");

const GRANT_COUNTERS: usize = size_of::<GrantPeerCounters>() / size_of::<u64>();
const GRANT_WORDS: usize = words_of(GRANT_COUNTERS);
const _: () = assert!((2 + GRANT_WORDS) as u64 * 8 <= GRANT_PEERS_BYTES, "the rows of grants have room");

/// A rank's counts with each of its peers, as far as it shows them one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busiest<C> {
    /// The busiest: 32 at most, in the order of their ranks.
    pub busiest: Vec<(Rank, C)>,
    /// How many more peers there are.
    pub more: u32,
    /// Those, and all that are gone, together.
    pub others: C,
}

/// A rank's counts of registration with each of its peers. The busiest are so by moves, and by pieces of
/// transfers.
pub type Peers = Busiest<PeerCounters>;

/// A rank's counts of what it refused its peers and waited for, each of them. A rank may have refused itself.
pub type GrantPeers = Busiest<GrantPeerCounters>;

/// The counters that are shown of each peer.
trait PeerFigures: Copy + Default + AddAssign {
    /// How busy the peer keeps this process, or is kept by it.
    fn work(&self) -> u64;

    /// All of them, in the order of the page.
    fn words(&mut self) -> impl IntoIterator<Item = &mut u64>;

    /// How many.
    const COUNT: usize = size_of::<Self>() / size_of::<u64>();

    /// Whether a rank may be its own peer.
    const HAS_ITSELF: bool;
}

impl PeerFigures for PeerCounters {
    const HAS_ITSELF: bool = false;

    fn work(&self) -> u64 {
        let PeerCounters { hits, misses, moves, served, .. } = *self;
        hits + misses + moves + served
    }

    /// As each field can be lent once and there are as many words as fields, it names all.
    fn words(&mut self) -> impl IntoIterator<Item = &mut u64> {
        let words: [&mut u64; COUNTERS] = [
            &mut self.hits,
            &mut self.misses,
            &mut self.moves,
            &mut self.held,
            &mut self.served,
            &mut self.recalls,
            &mut self.given,
        ];
        words
    }
}

impl PeerFigures for GrantPeerCounters {
    const HAS_ITSELF: bool = true;

    fn work(&self) -> u64 {
        self.denied + self.waited
    }

    fn words(&mut self) -> impl IntoIterator<Item = &mut u64> {
        let words: [&mut u64; GRANT_COUNTERS] = [&mut self.denied, &mut self.waited, &mut self.in_use];
        words
    }
}

impl Peers {
    /// The busiest of `all`.
    pub(crate) fn of(all: ByPeer) -> Peers {
        Busiest::of_all(all.peers, all.gone)
    }
}

impl GrantPeers {
    /// The busiest of `all`.
    pub(crate) fn of_grants(all: GrantsByPeer) -> GrantPeers {
        Busiest::of_all(all.peers, all.gone)
    }
}

#[expect(private_bounds, reason = "nobody else shows counters of peers")]
impl<C: PeerFigures> Busiest<C> {
    fn of_all(mut busiest: Vec<(Rank, C)>, mut others: C) -> Busiest<C> {
        let mut more = 0;
        if busiest.len() > ROWS_MAX {
            busiest
                .select_nth_unstable_by_key(ROWS_MAX, |(rank, counters)| (Reverse(counters.work()), *rank));
            more = (busiest.len() - ROWS_MAX) as u32;
            busiest.drain(ROWS_MAX..).for_each(|(_, counters)| others += counters);
            busiest.sort_unstable_by_key(|(rank, _)| *rank);
        }
        Busiest { busiest, more, others }
    }

    fn words(&self) -> Vec<u64> {
        fn counted<C: PeerFigures>(mut counters: C) -> Vec<u64> {
            counters.words().into_iter().map(|word| *word).collect()
        }
        let head = self.busiest.len() as u64 | u64::from(self.more) << 32;
        let row = |(rank, counters): &(Rank, C)| [vec![u64::from(*rank)], counted(*counters)].concat();
        let rows = self.busiest.iter().flat_map(row);
        std::iter::once(head).chain(counted(self.others)).chain(rows).collect()
    }

    /// `None` where no rank of a job of `size` shows this.
    fn from_words(words: &[u64], size: u32) -> Option<Busiest<C>> {
        let (rows, more) = (words[0] as u32 as usize, (words[0] >> 32) as u32);
        let (others, rest) = words[1..].split_at(C::COUNT);
        let peers_max = u64::from(size) - u64::from(!C::HAS_ITSELF && size > 0);
        if rows > ROWS_MAX || rows as u64 + u64::from(more) > peers_max {
            return None;
        }
        let row = |row: &[u64]| (row[0], counters_of(&row[1..]));
        let rows: Vec<(u64, C)> = rest.chunks_exact(1 + C::COUNT).take(rows).map(row).collect();
        let in_order = rows.is_sorted_by(|(one, _), (next, _)| one < next);
        if !in_order || rows.last().is_some_and(|(rank, _)| *rank >= u64::from(size)) {
            return None;
        }
        let busiest = rows.into_iter().map(|(rank, counters)| (rank as Rank, counters)).collect();
        Some(Busiest { busiest, more, others: counters_of(others) })
    }
}

fn counters_of<C: PeerFigures>(words: &[u64]) -> C {
    let mut counters = C::default();
    counters.words().into_iter().zip(words).for_each(|(field, word)| *field = (*word).min(COUNTER_MAX));
    counters
}

impl Control {
    /// Shows what was counted of this process's peers to whoever looks. One thread at a time.
    pub(crate) fn publish_peers(&self, at: Nanos, peers: &Peers) {
        self.publish_words(AT, at, &peers.words());
    }

    /// Shows what was counted of peers by grants. One thread at a time.
    pub(crate) fn publish_grant_peers(&self, at: Nanos, peers: &GrantPeers) {
        self.publish_words(GRANT_PEERS_AT, at, &peers.words());
    }
}

/// The peers that the process behind a control segment, of a job of `size`, shows. `None` where it has shown
/// nothing yet or nothing sensible, is writing without end, or the descriptor is of something else.
pub(crate) fn read_peers(page: &OwnedFd, size: u32) -> Option<Peers> {
    let words: [u64; 1 + WORDS] = read_settled(page, AT)?;
    Peers::from_words(&words[1..], size)
}

/// As [`read_peers`], of what it counted of them by grants.
pub(crate) fn read_grant_peers(page: &OwnedFd, size: u32) -> Option<GrantPeers> {
    let words: [u64; 1 + GRANT_WORDS] = read_settled(page, GRANT_PEERS_AT)?;
    GrantPeers::from_words(&words[1..], size)
}

#[cfg(test)]
mod tests;

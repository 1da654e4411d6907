//! The peers with which a process registers memory, as it shows them: a row for each of the busiest, one for
//! all others.
//!
//! The words are: how many rows there are, and how many more peers there are; the others' counters; the rows,
//! in order of their ranks, each a rank and its counters.

use std::cmp::Reverse;
use std::os::fd::OwnedFd;

use engine::registration::{ByPeer, PeerCounters};
use engine::{Nanos, Rank};

use super::{PARTS_END, read_settled};
use crate::transport::shm::control::{Control, HANDLERS_AT};

/// Peers, at most, that are shown by themselves.
const ROWS_MAX: usize = 32;

const COUNTERS: usize = size_of::<PeerCounters>() / size_of::<u64>();
const ROW_WORDS: usize = 1 + COUNTERS;
const WORDS: usize = 1 + COUNTERS + ROWS_MAX * ROW_WORDS;
const AT: u64 = PARTS_END;
const _: () = assert!(AT + (2 + WORDS) as u64 * 8 <= HANDLERS_AT, "the rows lie below the handlers");

/// No counter is larger, so that all rows add up.
const COUNTER_MAX: u64 = u64::MAX >> 6;
const _: () = assert!(ROWS_MAX + 1 < 1 << 6);

/// A rank's counts of registration with each of its peers, as far as it shows them one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The busiest, by moves and pieces of transfers: 32 at most, in the order of their ranks.
    pub busiest: Vec<(Rank, PeerCounters)>,
    /// How many more peers there are.
    pub more: u32,
    /// Those, and all that are gone, together.
    pub others: PeerCounters,
}

impl Peers {
    /// The busiest of `all`.
    pub(crate) fn of(all: ByPeer) -> Peers {
        let ByPeer { peers: mut busiest, gone: mut others } = all;
        let mut more = 0;
        if busiest.len() > ROWS_MAX {
            busiest.select_nth_unstable_by_key(ROWS_MAX, |(rank, counters)| (Reverse(work(counters)), *rank));
            more = (busiest.len() - ROWS_MAX) as u32;
            busiest.drain(ROWS_MAX..).for_each(|(_, counters)| others += counters);
            busiest.sort_unstable_by_key(|(rank, _)| *rank);
        }
        Peers { busiest, more, others }
    }

    fn words(&self) -> Vec<u64> {
        let head = self.busiest.len() as u64 | u64::from(self.more) << 32;
        let rows = self.busiest.iter().flat_map(|(rank, counters)| {
            std::iter::once(u64::from(*rank)).chain(counter_words(&mut counters.clone()).map(|word| *word))
        });
        let others = counter_words(&mut self.others.clone()).map(|word| *word);
        std::iter::once(head).chain(others).chain(rows).collect()
    }

    /// `None` where no rank of a job of `size` shows this.
    fn from_words(words: &[u64], size: u32) -> Option<Peers> {
        let (rows, more) = (words[0] as u32 as usize, (words[0] >> 32) as u32);
        let (others, rest) = words[1..].split_at(COUNTERS);
        if rows > ROWS_MAX || rows as u64 + u64::from(more) >= u64::from(size) {
            return None;
        }
        let row = |row: &[u64]| (row[0], counters_of(&row[1..]));
        let rows: Vec<(u64, PeerCounters)> = rest.chunks_exact(ROW_WORDS).take(rows).map(row).collect();
        let in_order = rows.is_sorted_by(|(one, _), (next, _)| one < next);
        if !in_order || rows.last().is_some_and(|(rank, _)| *rank >= u64::from(size)) {
            return None;
        }
        let busiest = rows.into_iter().map(|(rank, counters)| (rank as Rank, counters)).collect();
        Some(Peers { busiest, more, others: counters_of(others) })
    }
}

/// How busy a peer keeps this process, or is kept by it.
fn work(counters: &PeerCounters) -> u64 {
    let PeerCounters { hits, misses, moves, served, .. } = *counters;
    hits + misses + moves + served
}

fn counters_of(words: &[u64]) -> PeerCounters {
    let mut counters = PeerCounters::default();
    counter_words(&mut counters)
        .into_iter()
        .zip(words)
        .for_each(|(field, word)| *field = (*word).min(COUNTER_MAX));
    counters
}

/// The one list of what is counted of a peer. As each field can be lent once and there are as many words as
/// fields, it names all.
fn counter_words(counters: &mut PeerCounters) -> [&mut u64; COUNTERS] {
    [
        &mut counters.hits,
        &mut counters.misses,
        &mut counters.moves,
        &mut counters.held,
        &mut counters.served,
        &mut counters.recalls,
        &mut counters.given,
    ]
}

impl Control {
    /// Shows what was counted of this process's peers to whoever looks. One thread at a time.
    pub(crate) fn publish_peers(&self, at: Nanos, peers: &Peers) {
        self.publish_words(AT, at, &peers.words());
    }
}

/// The peers that the process behind a control segment, of a job of `size`, shows. `None` where it has shown
/// nothing yet or nothing sensible, is writing without end, or the descriptor is of something else.
pub(crate) fn read_peers(page: &OwnedFd, size: u32) -> Option<Peers> {
    let words: [u64; 1 + WORDS] = read_settled(page, AT)?;
    Peers::from_words(&words[1..], size)
}

#[cfg(test)]
mod tests;

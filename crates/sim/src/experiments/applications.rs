//! What programs did, done again under another strategy.

use std::{collections::HashSet, mem::discriminant};

use engine::registration::{Settings, Strategy};
use engine::{Direction, Nanos};

use crate::cluster::{Cluster, Plan};
use crate::costs::Costs;
use crate::replay::{Act, Ran, ReplayError, replay};
use crate::space::Access;
use crate::transport::Reach;

/// What the ranks of a program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// By rank.
    pub ranks: Vec<RecordedRank>,
}

/// What one rank did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedRank {
    /// Its memory: where, and how many bytes.
    pub memory: Vec<(u64, u64)>,
    /// How long it computed, in ns, and what it did then.
    pub steps: Vec<(Nanos, Act)>,
}

/// How it is done again.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// What everything costs.
    pub costs: Costs,
    /// How nodes register.
    pub strategy: Strategy,
    /// What the strategy is made from.
    pub settings: Settings,
    /// How many times longer phases of computing take than they did.
    pub slower: f64,
    /// Pages, of every 40 of each rank's memory, that its owner has pinned before for itself, and keeps as
    /// victims.
    pub pinned_before: u64,
}

/// How it went another time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// What it took.
    pub ran: Ran,
    /// Registrations that were made, at all ranks.
    pub registrations: u64,
    /// Registrations that were given up to make room.
    pub evictions: u64,
}

impl Recorded {
    /// Puts and gets of all ranks.
    pub fn transfers(&self) -> u64 {
        let is_transfer = |step: &&(Nanos, Act)| matches!(step.1, Act::Transfer { .. });
        self.ranks.iter().map(|rank| rank.steps.iter().filter(is_transfer).count() as u64).sum()
    }

    /// What a rank computes in its phases of computing, in ns: see [`Recorded::replay`].
    pub fn phases_ns(&self) -> Nanos {
        if self.ranks.is_empty() {
            return 0;
        }
        let steps = self.evened(0);
        let in_phase = in_phase(&steps);
        steps.iter().zip(in_phase).filter(|(_, in_phase)| *in_phase).map(|((compute, _), _)| compute).sum()
    }

    /// What a rank does, with its computing evened out: see [`Recorded::replay`].
    fn evened(&self, rank: usize) -> Vec<(Nanos, Act)> {
        let kinds =
            |rank: &RecordedRank| rank.steps.iter().map(|(_, act)| discriminant(act)).collect::<Vec<_>>();
        let alike = self.ranks.iter().map(kinds).collect::<HashSet<_>>().len() == 1;
        let chosen = |rank: &RecordedRank| -> Vec<usize> {
            let in_phase = in_phase(&rank.steps);
            (0..).zip(in_phase).filter_map(|(index, in_phase)| (alike || in_phase).then_some(index)).collect()
        };
        let chosen: Vec<Vec<usize>> = self.ranks.iter().map(chosen).collect();
        let mut steps = self.ranks[rank].steps.clone();
        if chosen.iter().any(|other| other.len() != chosen[rank].len()) {
            return steps;
        }
        for (number, index) in chosen[rank].iter().enumerate() {
            let same = || self.ranks.iter().zip(&chosen).map(|(rank, chosen)| rank.steps[chosen[number]]);
            steps[*index].0 = mean(same().map(|(compute, _)| compute));
            if alike && let Act::Compute(_) = steps[*index].1 {
                let copies = same()
                    .filter_map(|(_, act)| if let Act::Compute(copy) = act { Some(copy) } else { None });
                steps[*index].1 = Act::Compute(mean(copies));
            }
        }
        steps
    }

    /// Does it all again, each rank on a node of its own.
    ///
    /// *Phases of computing*, which come after ranks have waited for each other, take longer, and equally
    /// long at all ranks; where all ranks do the like steps, so does what they compute between one transfer
    /// and the next. Or what disturbed the machine that recorded them would be magnified, and have misses
    /// wait for ranks that come late.
    ///
    /// # Errors
    /// If a transfer fails, or ranks wait for each other for ever: then what was recorded does not fit
    /// together.
    pub fn replay(&self, again: &Again) -> Result<Replayed, ReplayError> {
        let mut cluster = self.cluster(again);
        if again.pinned_before > 0 {
            let programs: Vec<_> =
                (0..).zip(&self.ranks).map(|(rank, own)| own.pin(&mut cluster, rank, again)).collect();
            replay(&mut cluster, programs)?;
        }
        let before = counted(&mut cluster);
        let programs = (0..self.ranks.len()).map(|rank| acts(self.evened(rank), again.slower)).collect();
        let ran = replay(&mut cluster, programs)?;
        let after = counted(&mut cluster);
        Ok(Replayed { ran, registrations: after.0 - before.0, evictions: after.1 - before.1 })
    }

    /// Nodes with the memory of the ranks.
    fn cluster(&self, again: &Again) -> Cluster {
        let reach = if again.strategy == Strategy::Hardware { Reach::Everything } else { Reach::Heap };
        let size = self.ranks.len() as u32;
        let plan = Plan {
            handlers: 1,
            reach,
            registration: again.strategy.settings(again.settings),
            ..Plan::new(size, again.costs.clone())
        };
        let mut cluster = Cluster::new(plan);
        for (rank, recorded) in (0..).zip(&self.ranks) {
            for (start, end) in recorded.stretches(&again.costs) {
                cluster.map_at(rank, start, end - start, Access::Full);
            }
        }
        cluster
    }
}

/// Registrations that all nodes have made, and those that they have given up to make room.
fn counted(cluster: &mut Cluster) -> (u64, u64) {
    let (mut registrations, mut evictions) = (0, 0);
    for rank in 0..cluster.size() {
        let table = cluster.node(rank).registration_counters().table;
        registrations += table.registrations;
        evictions += table.evictions;
    }
    (registrations, evictions)
}

/// Bytes that are mapped whole around an array: allocators ask for no less, and buckets at its ends can be
/// registered.
const STRETCH: u64 = 64 << 10;

impl RecordedRank {
    /// Its memory as it is mapped: where it starts and ends. Puts that pin an array's last page end behind
    /// it.
    fn stretches(&self, costs: &Costs) -> impl Iterator<Item = (u64, u64)> {
        let (page, behind) = (costs.page_bytes, costs.unregistered_max_bytes);
        let end =
            move |at: &u64, len: &u64| ((at + len).next_multiple_of(page) + behind).next_multiple_of(STRETCH);
        self.memory.iter().map(move |(at, len)| (at - at % STRETCH, end(at, len)))
    }

    /// Pins pages as a rank does that sends them: by puts that start with one, of so much that the card
    /// copies all but that, to memory of its neighbour's that nobody else uses.
    fn pin(&self, cluster: &mut Cluster, rank: u32, again: &Again) -> impl Iterator<Item = Act> + use<> {
        let (page, copied) = (again.costs.page_bytes, again.costs.unregistered_max_bytes);
        let (peer, len) = ((rank + 1) % cluster.size(), copied + page);
        let remote = cluster.map(peer, len, Access::Full).offset;
        let pages = self.memory.iter().flat_map(|(at, len)| {
            let (first, count) = (at - at % page, (at % page + len).div_ceil(page));
            // Which are pinned is spread evenly over pages and ranks, and does not depend on where they lie.
            let part = move |index: u64| (u64::from(rank) * count + index).wrapping_mul(GOLDEN) >> 32;
            let pinned = move |index: &u64| part(*index) * 40 < again.pinned_before << 32;
            (0..count).filter(pinned).map(move |index| first + index * page)
        });
        let puts = pages.map(|local| Act::Transfer { direction: Direction::Put, peer, remote, local, len });
        puts.collect::<Vec<_>>().into_iter()
    }
}

/// Multiples of the golden ratio fall evenly between whole numbers: 2^64 times its fraction.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// 0 of none.
fn mean(times: impl Iterator<Item = Nanos>) -> Nanos {
    let (sum, count) = times.fold((0, 0), |(sum, count), time| (sum + time, count + 1));
    sum / count.max(1)
}

/// What these steps do, phases of computing taking `slower` times what they did.
fn acts(steps: Vec<(Nanos, Act)>, slower: f64) -> impl Iterator<Item = Act> {
    let in_phase: Vec<bool> = in_phase(&steps).collect();
    steps.into_iter().zip(in_phase).flat_map(move |((compute, act), in_phase)| {
        let compute = if in_phase { (compute as f64 * slower).round() as Nanos } else { compute };
        [Act::Compute(compute), act]
    })
}

/// For each step, whether what is computed before it is a phase of computing: it comes after ranks have
/// waited for each other, or first of all.
fn in_phase(steps: &[(Nanos, Act)]) -> impl Iterator<Item = bool> + use<'_> {
    let waited = |(_, act): &(Nanos, Act)| !matches!(act, Act::Transfer { .. } | Act::Compute(_));
    std::iter::once(true).chain(steps.iter().map(waited)).take(steps.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_computing_come_after_waits_and_all_computing_is_evened_out() {
        let put = Act::Transfer { direction: Direction::Put, peer: 1, remote: 0, local: 0, len: 8 };
        let rank = |took| {
            let steps = vec![
                (took, put),
                (7, put),
                (took, Act::Compute(10 * took)),
                (0, Act::Signal(1)),
                (took, Act::Wait(1)),
                (5, put),
            ];
            RecordedRank { memory: Vec::new(), steps }
        };
        let computed = |recorded: &Recorded| -> Vec<Nanos> {
            let acts = acts(recorded.evened(0), 2.0);
            acts.filter_map(|act| if let Act::Compute(compute) = act { Some(compute) } else { None })
                .collect()
        };
        let mut recorded = Recorded { ranks: vec![rank(100), rank(300)] };
        assert_eq!((recorded.transfers(), recorded.phases_ns()), (6, 405));
        assert_eq!(computed(&recorded), [400, 7, 200, 2000, 0, 400, 10]);
        recorded.ranks[1].steps.push((1, put));
        assert_eq!(computed(&recorded), [400, 7, 100, 1000, 0, 400, 10], "they do not do the same");
        recorded.ranks[1].steps.push((1, Act::Barrier));
        recorded.ranks[1].steps.push((1, put));
        assert_eq!(computed(&recorded), [200, 7, 100, 1000, 0, 200, 10], "nor have they as many phases");
    }

    /// Rank 0 puts once to each page of rank 1's memory, `pinned_before` of every 40 of which are pinned.
    fn once_to_each_page(pinned_before: u64) -> Replayed {
        let (page, remote, local) = (4096, 1u64 << 30, 1u64 << 31);
        // A page more: out of the last one no put goes that pins it.
        let bytes = 81 * page;
        let put = |at: u64| {
            let (remote, local) = (remote + at * page, local + at * page);
            (0, Act::Transfer { direction: Direction::Put, peer: 1, remote, local, len: 8 })
        };
        let first = RecordedRank { memory: vec![(local, bytes)], steps: (0..80).map(put).collect() };
        let second = RecordedRank { memory: vec![(remote, bytes)], steps: Vec::new() };
        let again = Again {
            costs: Costs::myrinet_gm_2003(),
            strategy: Strategy::Firehose,
            settings: Settings { run_max: 1, ..super::super::paper_settings() },
            slower: 1.0,
            pinned_before,
        };
        Recorded { ranks: vec![first, second] }.replay(&again).expect("nothing goes wrong")
    }

    #[test]
    fn what_an_owner_has_pinned_before_is_not_pinned_for_its_peer() {
        let (cold, warm) = (once_to_each_page(0), once_to_each_page(30));
        assert_eq!((cold.registrations, warm.registrations), (80, 20));
        assert_eq!((cold.ran.misses.count, warm.ran.misses.count), (80, 80), "what is pinned is not held");
        let saved_us = (cold.ran.misses.mean_ns() - warm.ran.misses.mean_ns()) / 1e3;
        assert!((29.0..31.0).contains(&saved_us), "three quarters of 40 us: {saved_us}");
    }
}

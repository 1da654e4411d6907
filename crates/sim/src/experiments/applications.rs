//! What programs did, done again under another strategy.

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
    /// Pages, of every 40 of each rank's memory, that its owner has pinned before for itself, and keeps as victims.
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
        self.phases().first().map_or(0, |phases| phases.iter().sum())
    }

    /// For each rank, what its phases of computing take, in ns: the mean over all ranks, if all have as many.
    fn phases(&self) -> Vec<Vec<Nanos>> {
        let of = |rank: &RecordedRank| {
            let computed = |((compute, _), in_phase): (&(Nanos, Act), bool)| in_phase.then_some(*compute);
            rank.steps.iter().zip(in_phase(&rank.steps)).filter_map(computed).collect()
        };
        let own: Vec<Vec<Nanos>> = self.ranks.iter().map(of).collect();
        let (ranks, count) = (own.len() as u64, own.first().map_or(0, Vec::len));
        if own.iter().any(|phases| phases.len() != count) {
            return own;
        }
        let mean = |index| own.iter().map(|phases| phases[index]).sum::<Nanos>() / ranks;
        vec![(0..count).map(mean).collect(); own.len()]
    }

    /// Does it all again, each rank on a node of its own.
    ///
    /// *Phases of computing*, which come after ranks have waited for each other, take longer, and equally long at all
    /// ranks: or what disturbed the machine that recorded them would be magnified too. What was computed between one
    /// transfer and the next takes as long as it did.
    ///
    /// # Errors
    /// If a transfer fails, or ranks wait for each other for ever: then what was recorded does not fit together.
    pub fn replay(&self, again: &Again) -> Result<Replayed, ReplayError> {
        let mut cluster = self.cluster(again);
        if again.pinned_before > 0 {
            let programs: Vec<_> =
                (0..).zip(&self.ranks).map(|(rank, own)| own.pin(&mut cluster, rank, again)).collect();
            replay(&mut cluster, programs)?;
        }
        let before = counted(&mut cluster);
        let programs = self.ranks.iter().zip(self.phases());
        let programs = programs.map(|(rank, phases)| rank.acts(phases, again.slower)).collect();
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
            for (start, end) in recorded.stretches() {
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

/// Bytes that are mapped whole around an array: allocators ask for no less, and buckets at its ends can be registered.
const STRETCH: u64 = 64 << 10;

impl RecordedRank {
    /// Its memory as it is mapped: where it starts and ends.
    fn stretches(&self) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        self.memory.iter().map(|(at, len)| (at - at % STRETCH, (at + len).next_multiple_of(STRETCH)))
    }

    /// Pins pages as a rank does that sends them: by puts out of each, of more than the card copies, to memory of its
    /// neighbour's that nobody else uses.
    fn pin(&self, cluster: &mut Cluster, rank: u32, again: &Again) -> impl Iterator<Item = Act> + use<> {
        let page = again.costs.page_bytes;
        let len = again.costs.unregistered_max_bytes + page;
        let peer = (rank + 1) % cluster.size();
        let remote = cluster.map(peer, len, Access::Full).offset;
        let pinned = |(at, _): &(u64, u64)| at / page * again.pinned_before % 40 < again.pinned_before;
        let pages = self
            .stretches()
            .flat_map(|(start, end)| (start..end).step_by(page as usize).map(move |at| (at, end - at)));
        let puts = pages.filter(pinned).filter(|(_, left)| len <= *left).map(|(local, _)| Act::Transfer {
            direction: Direction::Put,
            peer,
            remote,
            local,
            len,
        });
        puts.collect::<Vec<_>>().into_iter()
    }

    /// What it does, its phases of computing taking `slower` times what is given.
    fn acts(&self, phases: Vec<Nanos>, slower: f64) -> impl Iterator<Item = Act> + use<'_> {
        let mut phases = phases.into_iter();
        self.steps.iter().zip(in_phase(&self.steps)).flat_map(move |((compute, act), in_phase)| {
            let phase = if in_phase { phases.next() } else { None };
            let compute = phase.map_or(*compute, |phase| (phase as f64 * slower).round() as Nanos);
            [Act::Compute(compute), *act]
        })
    }
}

/// For each step, whether what is computed before it is a phase of computing: it comes after ranks have waited for each
/// other, or first of all.
fn in_phase(steps: &[(Nanos, Act)]) -> impl Iterator<Item = bool> + use<'_> {
    let waited = |(_, act): &(Nanos, Act)| !matches!(act, Act::Transfer { .. } | Act::Compute(_));
    std::iter::once(true).chain(steps.iter().map(waited)).take(steps.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_computing_come_after_waits_and_are_evened_out() {
        let put = Act::Transfer { direction: Direction::Put, peer: 1, remote: 0, local: 0, len: 8 };
        let rank = |phase| RecordedRank {
            memory: Vec::new(),
            steps: vec![(phase, put), (7, put), (0, Act::Signal(1)), (phase, Act::Wait(1)), (5, put)],
        };
        let recorded = Recorded { ranks: vec![rank(100), rank(300)] };
        assert_eq!((recorded.transfers(), recorded.phases_ns()), (6, 405));
        let computed: Vec<Nanos> = recorded.ranks[0]
            .acts(recorded.phases()[0].clone(), 2.0)
            .filter_map(|act| if let Act::Compute(compute) = act { Some(compute) } else { None })
            .collect();
        assert_eq!(computed, [400, 7, 0, 400, 10]);
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

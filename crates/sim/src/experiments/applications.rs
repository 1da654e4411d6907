//! What programs did, done again under another strategy.

use engine::Nanos;
use engine::registration::{Settings, Strategy};

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

    /// Does it all again, on nodes that register by `strategy`, which makes its own of `settings`.
    ///
    /// *Phases of computing*, which come after ranks have waited for each other, take `slower` times as long, and
    /// equally long at all ranks: or what disturbed the machine that recorded them would be magnified too. What was
    /// computed between one transfer and the next takes as long as it did.
    ///
    /// # Errors
    /// If a transfer fails, or ranks wait for each other for ever: then what was recorded does not fit together.
    pub fn replay(
        &self,
        costs: &Costs,
        strategy: Strategy,
        settings: Settings,
        slower: f64,
    ) -> Result<Replayed, ReplayError> {
        let reach = if strategy == Strategy::Hardware { Reach::Everything } else { Reach::Heap };
        let size = self.ranks.len() as u32;
        let plan = Plan {
            handlers: 1,
            reach,
            registration: strategy.settings(settings),
            ..Plan::new(size, costs.clone())
        };
        let mut cluster = Cluster::new(plan);
        for (rank, recorded) in (0..).zip(&self.ranks) {
            for (at, len) in &recorded.memory {
                let start = at - at % STRETCH;
                let end = (at + len).next_multiple_of(STRETCH);
                cluster.map_at(rank, start, end - start, Access::Full);
            }
        }
        let programs =
            self.ranks.iter().zip(self.phases()).map(|(rank, phases)| rank.acts(phases, slower)).collect();
        let ran = replay(&mut cluster, programs)?;
        let mut replayed = Replayed { ran, registrations: 0, evictions: 0 };
        for rank in 0..size {
            let table = cluster.node(rank).registration_counters().table;
            replayed.registrations += table.registrations;
            replayed.evictions += table.evictions;
        }
        Ok(replayed)
    }
}

/// Bytes that are mapped whole around an array: allocators ask for no less, and buckets at its ends can be registered.
const STRETCH: u64 = 64 << 10;

impl RecordedRank {
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
    let waited = |(_, act): &(Nanos, Act)| !matches!(act, Act::Transfer { .. });
    std::iter::once(true).chain(steps.iter().map(waited)).take(steps.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_computing_come_after_waits_and_are_evened_out() {
        let put = Act::Transfer { direction: engine::Direction::Put, peer: 1, remote: 0, local: 0, len: 8 };
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
}

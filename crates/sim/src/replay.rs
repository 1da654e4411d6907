//! Programs in virtual time: each rank does one thing after the other, and what that takes is noted.

use std::collections::BTreeMap;

use engine::node::AmBody;
use engine::{AmSend, Direction, Lane, MemId, Nanos, OpError, OpId, Piece, Place, Rank, SendError};

use crate::cluster::{Cluster, Step};

/// The handler that counts signals: a cluster that runs programs needs one at least.
const SIGNAL: u32 = 0;

/// What a program does next. Each act is complete before the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Computes, in ns; nothing that arrives is looked at meanwhile.
    Compute(Nanos),
    /// Puts or gets.
    Transfer {
        /// Which way.
        direction: Direction,
        /// With whom.
        peer: Rank,
        /// Where at the peer, in its private memory.
        remote: u64,
        /// Where here, in private memory.
        local: u64,
        /// Bytes.
        len: u64,
    },
    /// Signals a peer, and goes on.
    Signal(Rank),
    /// Uses up one signal of a peer, and waits for one if there is none.
    Wait(Rank),
    /// Waits until all ranks have come here.
    Barrier,
}

/// What transfers of one kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// What they took from call to completion, all together, in ns.
    pub total_ns: Nanos,
}

impl Tally {
    /// The mean, in ns; 0 of none.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ns as f64 / self.count as f64 }
    }

    fn add(&mut self, took: Nanos) {
        self.count += 1;
        self.total_ns += took;
    }

    fn merge(&mut self, other: Tally) {
        self.count += other.count;
        self.total_ns += other.total_ns;
    }
}

/// What the programs of all ranks took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// When the last of them ended, in ns from the start.
    pub runtime_ns: Nanos,
    /// Transfers whose peer's memory was at hand.
    pub hits: Tally,
    /// Transfers that had to ask for some of it.
    pub misses: Tally,
    /// Bytes that were transferred.
    pub bytes: u64,
}

impl Ran {
    /// All transfers.
    pub fn transfers(&self) -> Tally {
        let mut all = self.hits;
        all.merge(self.misses);
        all
    }

    /// Hits among transfers, in percent.
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.hits.count as f64 / self.transfers().count.max(1) as f64
    }
}

/// Why programs did not come to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A transfer failed.
    #[error("rank {rank}'s transfer failed: {error}")]
    Failed {
        /// Whose.
        rank: Rank,
        /// Why.
        error: OpError,
    },
    /// Nothing happens any more, and this rank has not come to its end: it waits for a signal that nobody
    /// sends, or for a barrier that not all come to.
    #[error("rank {rank} waits for ever")]
    Stuck {
        /// Who waits.
        rank: Rank,
    },
}

/// What a rank is doing.
enum Doing {
    Computing(Nanos),
    Transferring {
        op: OpId,
        since: Nanos,
        misses: u64,
    },
    InBarrier(OpId),
    Waiting(Rank),
    /// A signal that found the lane full.
    Signalling(Rank),
    Next,
    Ended,
}

struct Program<I> {
    acts: I,
    doing: Doing,
    /// Signals that came and have not been used, by peer.
    signals: BTreeMap<Rank, u64>,
}

/// Runs a program on each rank of a cluster, to the end of all.
///
/// # Errors
/// [`ReplayError`]; the cluster is then in the middle of it.
///
/// # Panics
/// When there are not as many programs as ranks.
pub fn replay<I: Iterator<Item = Act>>(cluster: &mut Cluster, programs: Vec<I>) -> Result<Ran, ReplayError> {
    assert_eq!(programs.len(), cluster.size() as usize, "a program for each rank");
    let started = cluster.now();
    let program = |acts| Program { acts, doing: Doing::Next, signals: BTreeMap::new() };
    let mut replay = Replay { programs: programs.into_iter().map(program).collect(), ran: Ran::default() };
    for rank in 0..cluster.size() {
        replay.go_on(cluster, rank)?;
    }
    while replay.programs.iter().any(|program| !matches!(program.doing, Doing::Ended)) {
        match cluster.step() {
            Some(Step::Polled(rank)) => replay.go_on(cluster, rank)?,
            Some(Step::Deliver(rank, delivery)) => {
                *replay.programs[rank as usize].signals.entry(delivery.peer).or_default() += 1;
                replay.go_on(cluster, rank)?;
            }
            Some(_) => {}
            None => {
                let stuck = replay.programs.iter().position(|program| !matches!(program.doing, Doing::Ended));
                return Err(ReplayError::Stuck { rank: stuck.unwrap_or_default() as Rank });
            }
        }
    }
    replay.ran.runtime_ns -= started;
    Ok(replay.ran)
}

struct Replay<I> {
    programs: Vec<Program<I>>,
    ran: Ran,
}

impl<I: Iterator<Item = Act>> Replay<I> {
    /// Has a rank do what it can.
    fn go_on(&mut self, cluster: &mut Cluster, rank: Rank) -> Result<(), ReplayError> {
        while self.is_done(cluster, rank)? {
            let next = self.programs[rank as usize].acts.next();
            let doing = next.map_or(Doing::Ended, |act| self.begin(cluster, rank, act));
            if matches!(doing, Doing::Ended) {
                self.ran.runtime_ns = self.ran.runtime_ns.max(cluster.time_of(rank));
            }
            self.programs[rank as usize].doing = doing;
        }
        Ok(())
    }

    fn begin(&mut self, cluster: &mut Cluster, rank: Rank, act: Act) -> Doing {
        match act {
            Act::Compute(work) => {
                cluster.compute(rank, work);
                Doing::Computing(cluster.time_of(rank))
            }
            Act::Transfer { direction, peer, remote, local, len } => {
                let place = |offset| Place::new(MemId::Space, offset);
                let piece = Piece { remote: place(remote), local: place(local), len };
                let since = cluster.time_of(rank);
                let misses = cluster.node(rank).registration_counters().misses;
                let op = cluster.node(rank).transfer(peer, direction, &[piece], None);
                self.ran.bytes += len;
                Doing::Transferring { op, since, misses }
            }
            Act::Signal(peer) => Doing::Signalling(peer),
            Act::Wait(peer) => Doing::Waiting(peer),
            Act::Barrier => Doing::InBarrier(cluster.node(rank).barrier(None)),
        }
    }

    /// Whether a rank is through with what it was doing.
    fn is_done(&mut self, cluster: &mut Cluster, rank: Rank) -> Result<bool, ReplayError> {
        let program = &mut self.programs[rank as usize];
        let failed = |error| ReplayError::Failed { rank, error };
        Ok(match program.doing {
            Doing::Next => true,
            Doing::Ended => false,
            Doing::Computing(until) => cluster.now() >= until,
            Doing::InBarrier(op) => match cluster.node(rank).outcome(op) {
                None => false,
                Some(outcome) => outcome.map(|_| true).map_err(failed)?,
            },
            Doing::Waiting(peer) => match program.signals.get_mut(&peer) {
                Some(signals) if *signals > 0 => {
                    *signals -= 1;
                    true
                }
                _ => false,
            },
            Doing::Signalling(peer) => {
                let lane = Lane::Request;
                let signal = AmSend { peer, lane, handler: SIGNAL, args: [0; 4], body: AmBody::Short };
                match cluster.node(rank).send_am(&signal) {
                    Ok(()) => true,
                    Err(SendError::Busy) => false,
                    Err(SendError::Failed(error)) => return Err(failed(error)),
                }
            }
            Doing::Transferring { op, since, misses } => {
                let Some(outcome) = cluster.node(rank).outcome(op) else { return Ok(false) };
                outcome.map_err(failed)?;
                let missed = cluster.node(rank).registration_counters().misses > misses;
                let tally = if missed { &mut self.ran.misses } else { &mut self.ran.hits };
                tally.add(cluster.time_of(rank) - since);
                true
            }
        })
    }
}

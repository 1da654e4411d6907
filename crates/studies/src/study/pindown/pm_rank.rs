//! One process of the study through the PM layer: it sends or receives messages by PM's small message-passing
//! interface, whose locks hit the pin-down cache or miss it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use layers::pm::mpi::Mpi;
use layers::pm::{LockBy, PinDownCounters, Pm};
use serde::{Deserialize, Serialize};
use standpipe::{Node, ProgressThread};

use crate::study::layers::right;
use crate::study::ranks::RankPlan;
use measure::job_config;
use measure::json_lines::tell;

/// A lost peer ends all waits; this ends those for nobody in particular.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends and receives have an eighth of what may be registered each: what this process may pin for itself is
/// a quarter.
const SHARE: u64 = 8;

/// What the job is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PmPlan {
    /// Bytes of a message.
    pub(super) len: u64,
    /// Bytes that may be registered.
    pub(super) budget: u64,
    /// Messages that are to hit, in percent.
    pub(super) hits: Vec<u64>,
    pub(super) rounds: u32,
    /// Messages that are timed at each ratio in a round.
    pub(super) messages: u64,
}

impl PmPlan {
    /// Places that misses go to in turn: together twice of all that may be registered.
    fn places(&self) -> u64 {
        2 * self.budget / self.len
    }

    /// From one place to the next: a registration that is wider than its message reaches no other place.
    fn stride(&self) -> u64 {
        2 * self.len
    }
}

/// The figures of one ratio in one round, at one process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct PmRound {
    pub(super) wanted: u64,
    /// What a message took, in ns.
    pub(super) mean_ns: f64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
}

impl RankPlan for PmPlan {
    const NAME: &'static str = "pindown";

    /// Runs a rank, telling on standard output what each round came to.
    ///
    /// # Errors
    /// If the job cannot be joined, nothing can be pinned, a message came otherwise than it was sent, or
    /// nobody listens.
    fn run(&self) -> Result<ExitCode> {
        let config = job_config::config()?.timeout(PATIENCE).progress(ProgressThread::Off);
        let node = Node::open(config.pin_bytes(self.budget)).context("joining the study's job")?;
        let mut rank = Rank::open(&node, self)?;
        // The first round brings the cache to rest, and is not told.
        for round in 0..=self.rounds {
            for hits in &self.hits {
                let told = rank.round(*hits)?;
                if round > 0 {
                    tell(&told)?;
                }
            }
        }
        node.barrier()?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Rank<'a> {
    node: &'a Node,
    plan: &'a PmPlan,
    pm: Pm,
    mpi: Mpi,
    memory: Vec<u8>,
    /// Messages so far that were to miss.
    turn: u64,
    /// Messages so far, of which each carries its number.
    count: u64,
}

impl<'a> Rank<'a> {
    fn open(node: &'a Node, plan: &'a PmPlan) -> Result<Rank<'a>> {
        let mut pm = Pm::open(node.clone(), right(), LockBy::Pin)?;
        let context = pm.open_context(0, true)?;
        let mpi = Mpi::new(context, plan.budget / SHARE, plan.budget / SHARE);
        // Not zero, so that all pages are there.
        let memory = vec![1; usize::try_from((plan.places() + 1) * plan.stride())?];
        Ok(Rank { node, plan, pm, mpi, memory, turn: 0, count: 0 })
    }

    /// Sends, or receives, so many messages of which that many in a hundred go from one place to one place.
    fn round(&mut self, hits: u64) -> Result<PmRound> {
        self.node.barrier()?;
        let before = self.pm.pin_down();
        let begun = Instant::now();
        for index in 0..self.plan.messages {
            let is_hit = (index + 1) * hits / 100 > index * hits / 100;
            let at = if is_hit { 0 } else { self.next_place() };
            self.message(at)?;
        }
        let mean_ns = begun.elapsed().as_nanos() as f64 / self.plan.messages as f64;
        let PinDownCounters { misses, evictions, .. } = self.pm.pin_down();
        let misses = misses - before.misses;
        // Each message is one lock here. The table below also counts its use by the write, which always hits.
        let hits_of_locks = self.plan.messages.saturating_sub(misses);
        Ok(PmRound {
            wanted: hits,
            mean_ns,
            hits: hits_of_locks,
            misses,
            evictions: evictions - before.evictions,
        })
    }

    /// The place that was used longest ago: from round to round all have their turn, so that the cache has
    /// given it up.
    fn next_place(&mut self) -> u64 {
        self.turn += 1;
        (1 + self.turn % self.plan.places()) * self.plan.stride()
    }

    fn message(&mut self, at: u64) -> Result<()> {
        self.count += 1;
        let (at, len) = (usize::try_from(at)?, usize::try_from(self.plan.len)?);
        if self.node.rank() == 0 {
            self.memory[at..at + 8].copy_from_slice(&self.count.to_ne_bytes());
            let start = self.memory[at..].as_ptr();
            let sent = self.mpi.send(&mut self.pm, 1, 0, start, len)?;
            self.mpi.wait(&mut self.pm, sent)?;
            return Ok(());
        }
        let start = self.memory[at..].as_mut_ptr();
        let received = self.mpi.receive(&mut self.pm, Some(0), Some(0), start, len)?;
        let status = self.mpi.wait(&mut self.pm, received)?;
        let came = &self.memory[at..at + 8];
        ensure!(
            status.len == len && came == self.count.to_ne_bytes(),
            "message {} came otherwise",
            self.count
        );
        Ok(())
    }
}

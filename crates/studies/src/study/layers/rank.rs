//! One process of the study's job: it takes part in every measurement, and tells its own figures.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use standpipe::{Mechanism, Node, Operation, ProgressThread};

use super::benches::{self, Bench};
use super::plan::{BUFFERED, BUFFERED_MAX, Figure, Measure, Plan};
use crate::study::ranks::RankPlan;
use measure::job_config;
use measure::json_lines::tell;

/// A lost peer ends all waits but those for nobody in particular; this ends them, too.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long messages that were sent without a pause are under way at most, where nobody polls: on one host,
/// and over a network.
const UNDER_WAY: Duration = Duration::from_micros(300);
const UNDER_WAY_FAR: Duration = Duration::from_millis(2);

impl RankPlan for Plan {
    const NAME: &'static str = "layers";

    /// Runs a rank, telling on standard output what it measures.
    ///
    /// # Errors
    /// If the job cannot be joined, a layer fails or moves wrong bytes, a peer is lost, or nobody listens.
    fn run(&self) -> Result<ExitCode> {
        let config = job_config::config()?.timeout(PATIENCE).progress(ProgressThread::Off);
        let longest = self.sizes.iter().copied().max().unwrap_or(0).max(BUFFERED_MAX);
        // PM has a source and a place locked, in the quarter that is for this process's own use.
        let config =
            if config.pin_budget().is_none() { config.pin_bytes(16 * longest as u64) } else { config };
        let node = Node::open(config).context("joining the study's job")?;
        let open = |name: &String| Ok((name.clone(), benches::open(name, &node, longest)?));
        let mut benches: Vec<(String, Box<dyn Bench>)> =
            self.layers.iter().map(open).collect::<Result<_>>()?;
        let mut rank = Measured { node: &node, plan: self };
        if node.size() == 2 {
            for (name, bench) in &mut benches {
                benches::verify(&mut **bench, &node, &self.sizes).with_context(|| name.clone())?;
            }
        }
        // The first round warms all up, and is not told.
        for round in 0..=self.rounds {
            for size in &self.sizes {
                for (name, bench) in &mut benches {
                    let figures = rank.measure(&mut **bench, *size).with_context(|| name.clone())?;
                    for (measure, value) in figures {
                        let figure = Figure { layer: name.clone(), size: *size, measure, value };
                        if round > 0 {
                            tell(&figure)?;
                        }
                    }
                }
            }
        }
        node.barrier()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What one process tells of a turn.
type Told = Vec<(Measure, f64)>;

/// The measurements, of all of which both sides take part.
struct Measured<'a> {
    node: &'a Node,
    plan: &'a Plan,
}

/// Messages there and back that are timed together: of many batches the one in the middle counts, so that a
/// few that something interrupted do not.
const BATCH: u32 = 25;

/// An answer that the measurements themselves need is so long.
const ANSWER: usize = 8;

impl Measured<'_> {
    fn measure(&mut self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        if self.node.size() > 2 {
            return self.many(bench, size);
        }
        let mut told = self.latency(bench, size)?;
        told.extend(self.burst(bench, size)?);
        told.extend(self.both(bench, size)?);
        if size <= BUFFERED_MAX {
            told.extend(self.overheads(bench, size)?);
        }
        Ok(told)
    }

    /// Whether this process begins.
    fn is_first(&self) -> bool {
        self.node.rank() == 0
    }

    fn other(&self) -> u32 {
        1 - self.node.rank()
    }

    fn latency(&self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        let (turns, other) = (self.plan.turns_of(size), self.other());
        self.node.barrier()?;
        let mut batches = Vec::new();
        for left in (1..=turns).rev().step_by(BATCH as usize) {
            let (begun, batch) = (Instant::now(), left.min(BATCH));
            for _ in 0..batch {
                if self.is_first() { bench.round_trip(other, size)? } else { bench.serve(other, size)? }
            }
            batches.push(ns_each(begun.elapsed(), batch) / 2.0);
        }
        let middle = *middle(&mut batches).context("some turns")?;
        Ok(if self.is_first() { vec![(Measure::Latency, middle)] } else { Vec::new() })
    }

    /// Many messages one way, until the last is answered; and what both sides copied for them.
    fn burst(&self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        let (count, other) = (self.plan.burst_of(size), self.other());
        self.node.barrier()?;
        let before = self.copied(bench);
        let begun = Instant::now();
        if self.is_first() {
            (0..count).try_for_each(|_| bench.send(other, size))?;
            bench.receive(ANSWER)?;
        } else {
            (0..count).try_for_each(|_| bench.receive(size))?;
            bench.send(other, ANSWER)?;
        }
        let each = ns_each(begun.elapsed(), count);
        self.node.barrier()?;
        let copied = (self.copied(bench) - before) as f64 / (size as f64 * f64::from(count));
        Ok(match self.is_first() {
            true => vec![(Measure::Gap, each), (Measure::CopiesSend, copied)],
            false => vec![(Measure::CopiesReceive, copied)],
        })
    }

    /// Messages both ways at once: of those that layers buffer a few in a row, of longer ones one each.
    fn both(&self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        let (count, other) = (self.plan.burst_of(size), self.other());
        let turns = if size <= BUFFERED_MAX { count.div_ceil(BUFFERED) } else { count };
        self.node.barrier()?;
        let begun = Instant::now();
        for _ in 0..turns {
            if size <= BUFFERED_MAX {
                (0..BUFFERED).try_for_each(|_| bench.send(other, size))?;
                (0..BUFFERED).try_for_each(|_| bench.receive(size))?;
            } else {
                bench.exchange(other, size)?;
            }
        }
        let messages = if size <= BUFFERED_MAX { turns * BUFFERED } else { turns };
        let each = ns_each(begun.elapsed(), 2 * messages);
        Ok(if self.is_first() { vec![(Measure::GapBoth, each)] } else { Vec::new() })
    }

    /// A few messages that the layer buffers, and later their receiving, when all of them are there.
    fn overheads(&self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        let other = self.other();
        self.node.barrier()?;
        let begun = Instant::now();
        if self.is_first() {
            (0..BUFFERED).try_for_each(|_| bench.send(other, size))?;
            let each = ns_each(begun.elapsed(), BUFFERED);
            bench.receive(ANSWER)?;
            return Ok(vec![(Measure::OverheadSend, each)]);
        }
        // A sleep would be longer, and let the processor's caches go cold.
        let under_way = if self.node.provider().is_some() { UNDER_WAY_FAR } else { UNDER_WAY };
        while begun.elapsed() < under_way {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        (0..BUFFERED).try_for_each(|_| bench.receive(size))?;
        let each = ns_each(begun.elapsed(), BUFFERED);
        bench.send(other, ANSWER)?;
        Ok(vec![(Measure::OverheadReceive, each)])
    }

    /// All others send to the first, and are answered.
    fn many(&self, bench: &mut dyn Bench, size: usize) -> Result<Told> {
        let (count, senders) = (self.plan.burst_of(size), self.node.size() - 1);
        self.node.barrier()?;
        let begun = Instant::now();
        if self.is_first() {
            (0..count * senders).try_for_each(|_| bench.receive(size))?;
            let each = ns_each(begun.elapsed(), count * senders);
            (1..=senders).try_for_each(|to| bench.send(to, ANSWER))?;
            return Ok(vec![(Measure::GapMany, each)]);
        }
        (0..count).try_for_each(|_| bench.send(0, size))?;
        bench.receive(ANSWER)?;
        Ok(Vec::new())
    }

    /// Bytes that this process has copied: the layer, and the library below it. Bytes that a device moves are
    /// not among them, nor what the kernel's network copies.
    fn copied(&self, bench: &mut dyn Bench) -> u64 {
        let own = bench.copies();
        let stats = self.node.stats();
        let by = [Mechanism::Mapped, Mechanism::Cma, Mechanism::Message];
        let below = Operation::ALL.iter().flat_map(|operation| by.map(|mechanism| (*operation, mechanism)));
        let below: u64 = below.map(|(operation, mechanism)| stats.get(operation, mechanism).bytes).sum();
        own.sent + own.received + below - bench.landed()
    }
}

/// The value in the middle.
fn middle(values: &mut [f64]) -> Option<&f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2)
}

fn ns_each(time: Duration, count: u32) -> f64 {
    (100.0 * time.as_nanos() as f64 / f64::from(count)).round() / 100.0
}

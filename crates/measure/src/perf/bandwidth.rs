//! Transfers that follow each other as fast as they can, one way or both ways at once.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use standpipe::{Event, GlobalPtr, Node};

use super::case::{Case, Samples};
use super::flood::{self, Counts};
use super::flow::{Flow, Moves, Ways};
use super::memory::{PATIENCE, Shared, Theirs};
use super::timing::each;
use crate::bare;

/// Rounds, each of ours and of the limit's.
const ROUNDS: usize = 25;

/// Bytes of the transfers of a round, and how many these are at least and at most.
const ROUND_BYTES: usize = 8 << 20;
const LEAST: usize = 4;
const MOST: usize = 2000;

/// Gets under way at a time over a network.
const UNDER_WAY: usize = 64;

/// A stream beside the machine's own.
///
/// # Errors
/// The library's errors.
pub(super) fn measure(node: &Node, case: &Case, counts: &Arc<Counts>) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "bandwidth is measured between two processes");
    let flow = case.flow.context("a stream has a flow")?;
    match flow.moves {
        Moves::Medium => flood::measure(node, case, counts),
        Moves::Put | Moves::Get => one_sided(node, case, flow),
    }
}

fn one_sided(node: &Node, case: &Case, flow: Flow) -> Result<Option<Samples>> {
    let shared = Shared::new(node, case)?;
    let (rank, other) = (node.rank(), 1 - node.rank());
    let theirs = Theirs::find(node, other)?;
    let (sends, serves) = (rank == 0 || flow.ways == Ways::Both, rank == 1 || flow.ways == Ways::Both);
    let times = u32::try_from((ROUND_BYTES / case.size).clamp(LEAST, MOST))?;
    let mut limit = Limit::new(node, case, &theirs)?;
    let mut buffers = vec![vec![3; case.size]; if node.provider().is_some() { UNDER_WAY } else { 1 }];
    let (mut mine, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        node.barrier()?;
        let ours = match flow.moves {
            _ if !sends => Duration::ZERO,
            Moves::Put => put(node, theirs.heap, &buffers[0], times)?,
            _ => get(node, theirs.heap, &mut buffers, times)?,
        };
        node.barrier()?;
        let took = if sends { limit.round(flow.moves, &mut buffers[0], times)? } else { Duration::ZERO };
        limit.serve_until(serves, || node.barrier())?;
        if round > 0 {
            mine.push(each(ours, times));
            bare.push(each(took, times));
        }
    }
    ensure!(shared.heap.len() >= case.size, "the memory is still there");
    Ok((rank == 0).then(|| Samples::new(limit.name(flow.moves), times, mine, bare)))
}

fn put(node: &Node, to: GlobalPtr<u8>, from: &[u8], times: u32) -> Result<Duration> {
    let begun = Instant::now();
    for _ in 0..times {
        node.put_nbi(black_box(to), black_box(from))?;
    }
    node.quiet()?;
    Ok(begun.elapsed())
}

/// Gets into as many buffers at a time as there are; of one, each is waited for.
fn get(node: &Node, from: GlobalPtr<u8>, buffers: &mut Vec<Vec<u8>>, times: u32) -> Result<Duration> {
    let begun = Instant::now();
    if let [buffer] = &mut buffers[..] {
        for _ in 0..times {
            node.get_bytes(black_box(from), black_box(buffer))?;
        }
        return Ok(begun.elapsed());
    }
    let mut running: VecDeque<Event<Vec<u8>>> = VecDeque::with_capacity(buffers.len());
    for _ in 0..times {
        let buffer = match buffers.pop() {
            Some(buffer) => buffer,
            None => {
                let (ended, buffer) = running.pop_front().context("as many as buffers")?.wait();
                ended?;
                buffer
            }
        };
        running.push_back(node.get_nb(from, buffer));
    }
    for event in running {
        let (ended, buffer) = event.wait();
        ended?;
        buffers.push(buffer);
    }
    Ok(begun.elapsed())
}

enum Limit {
    Near(bare::Mapped),
    Far(Box<bare::Wire>),
}

impl Limit {
    fn new(node: &Node, case: &Case, theirs: &Theirs) -> Result<Limit> {
        let Some(provider) = node.provider() else {
            return Ok(Limit::Near(bare::mapped(node, theirs.heap, case.size)?));
        };
        let mut wire = bare::Wire::open(&provider, case.size)?;
        node.directory().publish(&format!("perf wire {}", node.rank()), &wire.card())?;
        wire.meet(&node.directory().wait(&format!("perf wire {}", 1 - node.rank()), PATIENCE)?)?;
        Ok(Limit::Far(Box::new(wire)))
    }

    const fn name(&self, moves: Moves) -> &'static str {
        match (self, moves) {
            (Limit::Near(_), _) => "memcpy between the same buffers",
            (Limit::Far(_), Moves::Put) => "writes by libfabric, many at a time",
            (Limit::Far(_), _) => "reads by libfabric, many at a time",
        }
    }

    fn round(&mut self, moves: Moves, buffer: &mut [u8], times: u32) -> Result<Duration> {
        Ok(match (self, moves) {
            (Limit::Near(mapped), Moves::Put) => mapped.put(buffer, times),
            (Limit::Near(mapped), _) => mapped.get(buffer, times),
            (Limit::Far(wire), moves) => wire.stream(buffer.len(), times, moves == Moves::Put)?,
        })
    }

    /// Calls `met`, and lets the other side write and read until that returns.
    fn serve_until<E>(&mut self, serves: bool, met: impl FnOnce() -> Result<(), E>) -> Result<()>
    where
        E: Into<anyhow::Error>,
    {
        let wire = match self {
            Limit::Far(wire) if serves => wire,
            _ => return met().map_err(Into::into),
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| wire.serve(|| done.load(Ordering::Relaxed)));
            let met = met();
            done.store(true, Ordering::Relaxed);
            served.join().expect("it does not panic")?;
            met.map_err(Into::into)
        })
    }
}

//! Words of a peer's heap: atomics, and puts that signal.

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use standpipe::{GlobalPtr, Node, Remote, Signal};

use super::case::{Case, Cores, Samples, WORK_NS};
use super::memory::{PATIENCE, Shared, Theirs};
use super::timing::{ROUNDS, SLOW_TURNS, TURNS, each, interleave, timed};
use crate::bare;

/// The words that both sides of a measurement use: the bounced line, that of the sleepers, and the counter.
const BOUNCED: usize = 8;
const SLEPT_ON: usize = 2;
const COUNTER: usize = 1;

/// A fetch-add on a word of a peer that sleeps, beside the processor's own on the same word.
///
/// # Errors
/// Whatever the library says.
pub(super) fn atomic(node: &Node, case: &Case) -> Result<Option<Samples>> {
    let _mine = Shared::new(node, case)?;
    node.barrier()?;
    let samples = (node.rank() == 0).then(|| {
        let counter = Theirs::find(node, 1)?.note(COUNTER);
        let word = bare::Word::new(node, counter)?;
        let word = word.get();
        interleave(
            "the processor's own on that word",
            |times| {
                timed(times, |_| {
                    node.fetch_add(counter, 1).map(|before| {
                        black_box(before);
                    })
                })
            },
            |times| {
                timed(times, |_| {
                    black_box(word.fetch_add(1, Ordering::SeqCst));
                    anyhow::Ok(())
                })
            },
        )
    });
    let samples = samples.transpose()?;
    node.barrier()?;
    Ok(samples)
}

/// Rounds and turns over a network: each turn is some 10 µs.
const FAR_ROUNDS: u64 = 60;
const FAR_TURNS: u32 = 100;

/// Puts that signal, there and back, each waiting for the other's.
///
/// # Errors
/// Whatever the library says.
pub(super) fn put_signal(node: &Node, case: &Case) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "puts that signal are measured between two processes");
    if let Some(provider) = node.provider() {
        return put_signal_over_network(node, case, &provider);
    }
    let mine = Shared::new(node, case)?;
    let theirs = Theirs::find(node, 1 - node.rank())?;
    let first = node.rank() == 0;
    let keeper = if first { mine.words.ptr(8 * BOUNCED) } else { theirs.note(BOUNCED) };
    let (word, inbox) =
        (bare::Word::new(node, keeper)?, bare::Word::new(node, mine.words.ptr(8 * SLEPT_ON))?);
    let outbox = bare::Word::new(node, theirs.note(SLEPT_ON))?;
    let turns = if case.cores == Cores::Shared { SLOW_TURNS } else { TURNS };
    let (to, counter) = (Remote::from(theirs.heap), mine.words.ptr(8 * COUNTER));
    let (signal, bytes) = (Signal::add(theirs.note(COUNTER), 1), vec![5u8; case.size]);
    let (mut ours, mut limit, mut line) = (Vec::new(), Vec::new(), Vec::new());
    let work = bare::Work::of_ns(WORK_NS);
    let stop = || !node.lost_peers().is_empty();
    for round in 0..=ROUNDS as u64 {
        node.barrier()?;
        let start = round * u64::from(turns);
        let bare = match case.cores {
            Cores::Apart => {
                let bare = bare::bounce(word.get(), first, 2 * start, turns, stop);
                line.extend((round > 0).then_some(each(bare, turns)));
                node.barrier()?;
                bare::signals([inbox.get(), outbox.get()], first, start, turns, work, stop)
            }
            Cores::Shared => bare::futex_ping_pong(inbox.get(), outbox.get(), first, start, turns),
        };
        node.barrier()?;
        let took = there_and_back(node, to, &bytes, (signal, counter), round * u64::from(turns), turns)?;
        if round > 0 {
            ours.push(each(took, turns));
            limit.push(each(bare, turns));
        }
    }
    node.barrier()?;
    let name = match case.cores {
        Cores::Apart => "words added to there and back, with 25 ns of work a side",
        Cores::Shared => "futex ping-pong on the same core",
    };
    Ok(first.then(|| Samples::new(name, turns, ours, limit).beside_line(line)))
}

/// The time that puts with `signal` take there and back, where `mine` is the counter that the other side's
/// change; so many turns were before.
fn there_and_back(
    node: &Node,
    to: Remote,
    bytes: &[u8],
    (signal, mine): (Signal, GlobalPtr<u64>),
    before: u64,
    turns: u32,
) -> Result<Duration> {
    let first = node.rank() == 0;
    let begun = Instant::now();
    for wanted in before + 1..=before + u64::from(turns) {
        if !first {
            node.wait_signal(mine, wanted)?;
        }
        node.put_signal(to, bytes, signal)?;
        if first {
            node.wait_signal(mine, wanted)?;
        }
    }
    Ok(begun.elapsed())
}

/// The same over a network, beside writes by bare libfabric there and back.
fn put_signal_over_network(node: &Node, case: &Case, provider: &str) -> Result<Option<Samples>> {
    let mine = Shared::new(node, case)?;
    let mut wire = bare::Wire::open(provider, 2 * case.size.next_multiple_of(8))?;
    let (first, other) = (node.rank() == 0, 1 - node.rank());
    node.directory().publish(&format!("perf wire {}", node.rank()), &wire.card())?;
    wire.meet(&node.directory().wait(&format!("perf wire {other}"), PATIENCE)?)?;
    let theirs = Theirs::find(node, other)?;
    let (to, counter) = (Remote::from(theirs.heap), mine.words.ptr(8 * COUNTER));
    let (signal, bytes) = (Signal::add(theirs.note(COUNTER), 1), vec![5u8; case.size]);
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let given_up = || begun.elapsed() > PATIENCE || !node.lost_peers().is_empty();
    for round in 0..=FAR_ROUNDS {
        let before = round * u64::from(FAR_TURNS);
        node.barrier()?;
        let bare = wire.bounce(case.size, first, before, FAR_TURNS, given_up)?;
        ensure!(!given_up(), "bare writes went there and back for {} s", PATIENCE.as_secs());
        node.barrier()?;
        let took = there_and_back(node, to, &bytes, (signal, counter), before, FAR_TURNS)?;
        if round > 0 {
            ours.push(each(took, FAR_TURNS));
            limit.push(each(bare, FAR_TURNS));
        }
    }
    node.barrier()?;
    Ok(first.then(|| Samples::new("a write by libfabric there and back", FAR_TURNS, ours, limit)))
}

//! A pool of tasks that ranks steal from each other. All tasks begin at rank 0. Those that a rank has are a
//! range, whose two ends lie in one word of its heap: it takes one off the front by a compare-and-swap, and
//! whoever has none left takes the back half of another's, by the same. Active Messages tell rank 0 how many
//! are done, and all others when all are.
//!
//! ```text
//! cargo build --release --example work_stealing
//! cargo run --release -- run -n 4 -- target/release/examples/work_stealing
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use standpipe::{Config, Error, GlobalPtr, Node, Reduction};

const TASKS: u32 = 20_000;
/// Tasks done between two messages about them.
const TOLD_EVERY: u64 = 64;

/// Tasks from the first to the one before the second.
fn pack(first: u32, end: u32) -> u64 {
    u64::from(first) << 32 | u64::from(end)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// A task: how many steps a number takes to 1. Some take a hundred times as long as others.
fn steps(number: u32) -> u64 {
    let (mut at, mut steps) = (u64::from(number) + 1, 0);
    while at != 1 {
        at = if at.is_multiple_of(2) { at / 2 } else { 3 * at + 1 };
        steps += 1;
    }
    steps
}

/// Takes the first task of a range off it.
fn take_one(node: &Node, tasks: GlobalPtr<u64>) -> Result<Option<u32>, Error> {
    let mut seen = node.atomic_load(tasks)?;
    loop {
        let (first, end) = unpack(seen);
        if first == end {
            return Ok(None);
        }
        let before = node.compare_swap(tasks, seen, pack(first + 1, end))?;
        if before == seen {
            return Ok(Some(first));
        }
        seen = before;
    }
}

/// Takes the back half of another's range, where there is more than one task in it. Ranges never come back to
/// a rank that had them, so a word that looks as it did is as it was.
fn steal(node: &Node, tasks: GlobalPtr<u64>) -> Result<Option<(u32, u32)>, Error> {
    let seen = node.atomic_load(tasks)?;
    let (first, end) = unpack(seen);
    if end - first < 2 {
        return Ok(None);
    }
    let middle = first + (end - first).div_ceil(2);
    let before = node.compare_swap(tasks, seen, pack(first, middle))?;
    Ok((before == seen).then_some((middle, end)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (done_here, over_here) = (Arc::clone(&done), Arc::clone(&over));
    let config = Config::from_env()?
        .handler("done", move |call| {
            done_here.fetch_add(call.args()[0], Ordering::Relaxed);
        })
        .handler("over", move |_| over_here.store(1, Ordering::Relaxed));
    let node = Node::open(config)?;
    let (me, size) = (node.rank(), node.size());
    let handler = |name| node.handler(name).expect("registered above");

    let tasks = node.heap().alloc_from(&[if me == 0 { pack(0, TASKS) } else { 0 }])?;
    node.directory().publish(&format!("tasks {me}"), bytemuck::bytes_of(&tasks.ptr(0).to_words()))?;
    let mut others = Vec::new();
    for peer in (1..size).map(|ahead| (me + ahead) % size) {
        let words = node.directory().wait(&format!("tasks {peer}"), Duration::from_secs(30))?;
        others.push(GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&words)));
    }
    // All begin together, or the first would be done before the last has started.
    node.barrier()?;

    let (mut sum, mut mine, mut stolen, mut untold) = (0, 0, 0, 0);
    while over.load(Ordering::Relaxed) == 0 {
        let task = take_one(&node, tasks.ptr(0))?;
        if let Some(task) = task {
            (sum, mine, untold) = (sum + steps(task), mine + 1, untold + 1);
        }
        if untold == TOLD_EVERY || (task.is_none() && untold > 0) {
            node.request(0, handler("done"), [untold, 0, 0, 0])?;
            untold = 0;
        }
        // What others say is heard only here, and where this rank waits.
        node.progress();
        if me == 0 && done.load(Ordering::Relaxed) == u64::from(TASKS) {
            for peer in 0..size {
                node.request(peer, handler("over"), [0; 4])?;
            }
            node.wait_until(|| over.load(Ordering::Relaxed) == 1)?;
        }
        if task.is_none() {
            for victim in &others {
                if let Some((first, end)) = steal(&node, *victim)? {
                    // Nobody changes the word of a rank that has no task but that rank.
                    node.compare_swap(tasks.ptr(0), node.atomic_load(tasks.ptr(0))?, pack(first, end))?;
                    stolen += 1;
                    break;
                }
            }
            std::thread::yield_now();
        }
    }

    let mut totals = [sum, mine];
    node.world().all_reduce(&mut totals, Reduction::Sum)?;
    println!("rank {me} did {mine} of {TASKS} tasks, and stole {stolen} times");
    assert_eq!(totals, [(0..TASKS).map(steps).sum(), u64::from(TASKS)], "each task is done once");
    Ok(())
}

//! Being told that operations have ended: by a queue, by its descriptor, and by awaits of which there are
//! many.

use std::hint::{black_box, spin_loop};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{EventfdFlags, eventfd};
use standpipe::{AtomicOp, Completions, Node, host};
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::case::{Case, Samples};
use super::memory::{PATIENCE, Shared, Theirs};
use super::placement::Placement;
use super::timing::{each, interleave, timed};

/// Copies of 8 bytes, which the compiler does not see into, by which a queue may cost an operation more.
const OPAQUE_COPIES: u32 = 3;

/// A put of 8 bytes through a queue, beside the same by its event, and some copies.
///
/// # Errors
/// Whatever the library says.
pub(super) fn through_a_queue(node: &Node) -> Result<Option<Samples>> {
    let words = node.heap().alloc_zeroed::<u64>(1)?;
    let (word, queue) = (words.ptr(0), node.completions(64)?);
    let mut buffer = Some(vec![1_u64]);
    let mut again = Some(vec![1_u64]);
    // As the compiler does not see which.
    let copy: fn(&mut u64, &u64) = black_box(|to, from| *to = *from);
    interleave(
        "the same by its event, and three opaque copies of 8 bytes",
        |times| {
            timed(times, |turn| {
                let from = buffer.take().context("it came back")?;
                queue.reserve()?.put(u64::from(turn), black_box(word), from);
                let done = queue.take()?.context("it has ended")?;
                buffer = Some(done.buffer);
                anyhow::Ok(done.result?)
            })
        },
        |times| {
            timed(times, |_| {
                let event = node.put_nb(black_box(word), again.take().context("it came back")?);
                let (result, back) = event.wait();
                again = Some(back);
                for _ in 0..OPAQUE_COPIES {
                    copy(black_box(&mut 0), black_box(&7));
                }
                anyhow::Ok(result?)
            })
        },
    )
    .map(Some)
}

/// An operation that another thread has ended, until a task has taken it by the queue's descriptor, beside a
/// bare descriptor in the same runtime.
///
/// # Errors
/// Whatever the library says, and where the system gives no descriptors.
pub(super) fn by_descriptor(node: &Node, case: &Case) -> Result<Option<Samples>> {
    let words = node.heap().alloc_zeroed::<u64>(1)?;
    let queue = Arc::new(node.completions::<()>(8)?);
    let bare = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    // How many of each the tasks have seen.
    let (taken, read) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let pair = case.placement.and_then(Placement::pair);
    let tasks = {
        let (queue, bare) = (Arc::clone(&queue), Arc::clone(&bare));
        let (taken, read) = (Arc::clone(&taken), Arc::clone(&read));
        let core = pair.map(|pair| pair[0]);
        std::thread::spawn(move || look(core, queue, bare, &taken, &read))
    };
    if let Some([_, core]) = pair {
        host::bind_to_core(core)?;
    }
    let (mut sent, mut rung) = (0, 0);
    let samples = interleave(
        "a bare eventfd's wake in the same runtime",
        |times| {
            timed(times, |_| {
                sent += 1;
                queue.reserve()?.start(sent, node.update_nb(words.ptr(0), AtomicOp::Add, 1));
                until(&taken, sent)
            })
        },
        |times| {
            timed(times, |_| {
                rung += 1;
                rustix::io::write(&*bare, &1_u64.to_ne_bytes())?;
                until(&read, rung)
            })
        },
    );
    // The tasks end at these, whatever has become of the measurement.
    taken.store(OVER, Ordering::SeqCst);
    read.store(OVER, Ordering::SeqCst);
    queue.reserve()?.start(0, node.update_nb(words.ptr(0), AtomicOp::Add, 1));
    rustix::io::write(&*bare, &1_u64.to_ne_bytes())?;
    tasks.join().ok().context("a task has panicked")??;
    samples.map(Some)
}

/// A count at which a task ends.
const OVER: u64 = u64::MAX;

fn until(count: &AtomicU64, wanted: u64) -> Result<()> {
    let begun = Instant::now();
    while count.load(Ordering::Acquire) < wanted {
        spin_loop();
        ensure!(begun.elapsed() < PATIENCE, "a task has not been woken in {} s", PATIENCE.as_secs());
    }
    Ok(())
}

/// The two tasks, each of which counts what it has seen.
#[allow(
    deprecated,
    reason = "what tokio would have instead is unsafe, and asks what holds of both: their descriptors stay"
)]
fn look(
    core: Option<usize>,
    queue: Arc<Completions<()>>,
    bare: Arc<OwnedFd>,
    taken: &AtomicU64,
    read: &AtomicU64,
) -> Result<()> {
    if let Some(core) = core {
        host::bind_to_core(core)?;
    }
    runtime()?.block_on(async {
        let (queue, bare) = (AsyncFd::new(queue)?, AsyncFd::new(bare)?);
        let takes = async {
            while taken.load(Ordering::SeqCst) != OVER {
                let mut ready = queue.readable().await?;
                while let Some(done) = queue.get_ref().take()? {
                    done.result?;
                    count(taken);
                }
                ready.clear_ready();
            }
            anyhow::Ok(())
        };
        let reads = async {
            while read.load(Ordering::SeqCst) != OVER {
                let mut ready = bare.readable().await?;
                if rustix::io::read(bare.get_ref(), &mut [0_u8; 8]).is_ok() {
                    count(read);
                }
                ready.clear_ready();
            }
            anyhow::Ok(())
        };
        tokio::try_join!(takes, reads).map(|_| ())
    })
}

fn count(seen: &AtomicU64) {
    let before = seen.load(Ordering::SeqCst);
    let _ = seen.compare_exchange(before, before.saturating_add(1), Ordering::SeqCst, Ordering::SeqCst);
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_io().build()?)
}

/// Settings of the ranks, by which gets of private memory are under way for a while.
pub(super) const SETTINGS: [(&str, &str); 1] = [("STANDPIPE_ATTACH", "never")];

/// Awaits that are pending at a time, for the limit.
const FEW: usize = 10;

/// Samples of each.
const SAMPLES: usize = 25;

/// Gets that are awaited, `n` at a time, beside the same a few at a time.
///
/// # Errors
/// Whatever the library says.
pub(super) fn pending(node: &Node, case: &Case) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "pending awaits are measured between two processes");
    let shared = Shared::new(node, &Case { n: 1, ..*case })?;
    if node.rank() == 1 {
        node.barrier()?;
        ensure!(shared.private.len() == 1, "the memory is still there");
        return Ok(None);
    }
    let theirs = Theirs::find(node, 1)?;
    let from = theirs.private(node, 1)?[0];
    let (runtime, mut ours, mut limit) = (runtime()?, Vec::new(), Vec::new());
    let measure = |at_a_time: usize| -> Result<Duration> {
        let begun = Instant::now();
        runtime.block_on(async {
            for _ in 0..case.n.div_ceil(at_a_time) {
                let mut tasks = JoinSet::new();
                for _ in 0..at_a_time {
                    let node = node.clone();
                    tasks.spawn(async move { node.get_nb(from, vec![0_u8; 8]).await.0 });
                }
                while let Some(result) = tasks.join_next().await {
                    result??;
                }
            }
            anyhow::Ok(())
        })?;
        Ok(begun.elapsed())
    };
    for round in 0..=SAMPLES {
        let (many, few) = (measure(case.n)?, measure(FEW)?);
        if round > 0 {
            ours.push(each(many, u32::try_from(case.n)?));
            limit.push(each(few, u32::try_from(case.n.next_multiple_of(FEW))?));
        }
    }
    node.barrier()?;
    Ok(Some(Samples::new("the same, ten at a time", u32::try_from(case.n)?, ours, limit)))
}

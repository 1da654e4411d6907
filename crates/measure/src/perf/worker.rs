//! One process of a measurement. Rank 0 measures and prints the row; the others are what it measures against.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use standpipe::{GetPiece, GlobalPtr, Node, Remote, Strided, host};

use super::case::{Case, Cores, Memory, Op, Samples, Target, WORK_NS};
use super::collectives;
use super::memory::{PATIENCE, REFUSED, Shared, Theirs};
use super::timing::{ROUNDS, SLOW_TURNS, TURNS, each, interleave, timed};
use super::{bandwidth, completions, flood, messages, misses, pins, words};
use crate::bare;
use crate::job_config;

/// Runs this process's part of `case`; rank 0 returns the samples.
///
/// # Errors
/// Whatever the library says; a measurement has no reason to fail.
pub(super) fn run(case: &Case) -> Result<Option<Samples>> {
    let served = Arc::new(AtomicU64::new(0));
    let [serve, replied, taken, kept] = std::array::from_fn(|_| Arc::clone(&served));
    let [answer, answer_kept] = [OnceLock::new(), OnceLock::new()];
    let config = job_config::config()?
        .timeout(PATIENCE)
        .handler("ping", move |call| {
            serve.store(serve.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let pong = *answer.get_or_init(|| call.node().handler("pong").expect("registered below"));
            call.reply(pong, call.args()).expect("the requester waits for the reply");
        })
        .handler("keep", move |call| {
            kept.store(kept.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let payload = call.take_payload().expect("none is kept for long");
            let pong = *answer_kept.get_or_init(|| call.node().handler("pong").expect("registered below"));
            call.reply(pong, call.args()).expect("the requester waits for the reply");
            drop(payload);
        })
        .handler("take", move |call| {
            std::hint::black_box(call.payload());
            taken.store(taken.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        })
        .handler("pong", move |_| {
            replied.store(replied.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
    let counts = Arc::new(flood::Counts::new(case));
    let config = counts.handle(config, case);
    let node = place(case, || Ok(Node::open(config)?))?;
    let samples = match case.op {
        Op::Put | Op::Get | Op::Scatter | Op::Strided => one_sided(&node, case),
        Op::Miss => misses::measure(&node, case, &served),
        Op::Pin => pins::measure(&node, case),
        Op::Grant => pins::granted(&node, case),
        Op::ShareMany => pins::shared(&node, case),
        Op::Am => active_messages(&node, case, &served),
        Op::PutSignal => words::put_signal(&node, case),
        Op::Atomic => words::atomic(&node, case),
        Op::Completion => completions::through_a_queue(&node),
        Op::CompletionFd => completions::by_descriptor(&node, case),
        Op::Pending => completions::pending(&node, case),
        Op::TryRequest => messages::tried(&node, &served),
        Op::TakePayload => messages::kept(&node, case, &served),
        Op::Flood => flood::measure(&node, case, &counts),
        Op::Bandwidth => bandwidth::measure(&node, case, &counts),
        Op::Barrier | Op::Allreduce | Op::Alltoall | Op::Broadcast => collectives::measure(&node, case),
        Op::Idle => idle(&node),
        Op::Open => open(&node),
        Op::Overhead => overhead(&node, case, &served),
    }?;
    node.barrier()?;
    Ok(samples)
}

/// Binds the process to the core that the case wants, then opens the node, which looks at the cores that it
/// has.
fn place(case: &Case, open: impl FnOnce() -> Result<Node>) -> Result<Node> {
    let cores = host::core_numbers();
    let rank: usize = std::env::var("STANDPIPE_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    match case.cores {
        Cores::Shared => {
            host::bind_to_core(
                *cores.first().context("the system does not tell the cores of this process")?,
            )?;
            open()
        }
        Cores::Apart if case.processes() == 2 && !matches!(case.op, Op::Idle | Op::Open) => {
            let pair = case.pair();
            let node = open()?;
            if let Some(pair) = pair {
                host::bind_to_core(pair[rank % 2])?;
            }
            Ok(node)
        }
        Cores::Apart => open(),
    }
}

const STOP: usize = 0;

/// Transfers over a network by which keys are held that were asked for.
const WARM_UPS: usize = 16;

fn one_sided(node: &Node, case: &Case) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "one-sided operations are measured between two processes");
    if let Some(provider) = node.provider() {
        return over_network(node, case, &provider);
    }
    let shared = Shared::new(node, case)?;
    if node.rank() == 1 {
        node.barrier()?;
        be_target(node, case.target, &shared);
        node.barrier()?;
        ensure!(shared.heap.len() >= case.size && !shared.private.is_empty(), "the memory is still there");
        return Ok(None);
    }
    let theirs = Theirs::find(node, 1)?;
    node.barrier()?;
    let row = match (case.op, case.memory) {
        (Op::Scatter, _) => scatter(node, case, &theirs),
        (Op::Strided, _) => strided(node, case, &theirs),
        (_, Memory::Heap) if case.size == 8 => heap_word(node, case, &theirs),
        (_, Memory::Heap) => heap_bulk(node, case, &theirs),
        (_, Memory::Private | Memory::Granted | Memory::OneGrant) => private(node, case, &theirs),
    };
    node.put(theirs.note(STOP), 1)?;
    node.barrier()?;
    row.map(Some)
}

/// What the target does until it is told to stop; it sleeps in the barrier that follows.
fn be_target(node: &Node, target: Target, shared: &Shared) {
    let is_over = || shared.words.read(STOP) != 0 || !node.lost_peers().is_empty();
    match target {
        Target::Asleep => {}
        Target::Busy => {
            let mut sum = 0u64;
            while !is_over() {
                sum = (0..10_000u64).fold(sum, |sum, i| black_box(sum.wrapping_mul(31).wrapping_add(i)));
            }
            black_box(sum);
        }
        Target::Serving => {
            while !is_over() {
                node.progress();
            }
        }
    }
}

/// A put or get over the network, beside the same write or read by bare libfabric.
fn over_network(node: &Node, case: &Case, provider: &str) -> Result<Option<Samples>> {
    let shared = Shared::new(node, case)?;
    let mut wire = bare::Wire::open(provider, case.size)?;
    if node.rank() == 1 {
        let done = AtomicBool::new(false);
        node.directory().publish("perf wire", &wire.card())?;
        return std::thread::scope(|scope| {
            let served = scope.spawn(|| wire.serve(|| done.load(Ordering::Relaxed)));
            let met = node.barrier().and_then(|()| {
                be_target(node, case.target, &shared);
                node.barrier()
            });
            done.store(true, Ordering::Relaxed);
            served.join().expect("it does not panic")?;
            ensure!(shared.private.len() == case.n, "the memory is still there");
            Ok(met.map(|()| None)?)
        });
    }
    wire.meet(&node.directory().wait("perf wire", PATIENCE)?)?;
    let theirs = Theirs::find(node, 1)?;
    let remote = match case.memory {
        Memory::Heap => Remote::from(theirs.heap),
        Memory::Private => theirs.private(node, 1)?[0],
        Memory::Granted | Memory::OneGrant => theirs.granted(node, case)?[0],
    };
    let mut buffer = vec![3u8; case.size];
    // What keys it takes is asked for while the target still answers.
    for _ in 0..WARM_UPS {
        node.put(theirs.note(STOP), 0)?;
        match case.op {
            Op::Put => node.put_bytes(remote, &buffer)?,
            _ => node.get_bytes(remote, &mut buffer)?,
        }
    }
    node.barrier()?;
    let samples = match case.op {
        Op::Put => interleave(
            "a write by libfabric, delivered",
            |times| timed(times, |_| node.put_bytes(remote, &buffer)),
            |times| Ok(wire.write(case.size, times)?),
        ),
        _ => interleave(
            "a read by libfabric",
            |times| timed(times, |_| node.get_bytes(remote, &mut buffer)),
            |times| Ok(wire.read(case.size, times)?),
        ),
    }?;
    node.put(theirs.note(STOP), 1)?;
    node.barrier()?;
    Ok(Some(samples))
}

fn heap_word(node: &Node, case: &Case, theirs: &Theirs) -> Result<Samples> {
    let (ptr, bare) = (theirs.heap.cast::<u64>(), bare::mapped(node, theirs.heap, 8)?);
    let mut bytes = [0; 8];
    match case.op {
        Op::Put => {
            let ours = |times| timed(times, |i| node.put(black_box(ptr), u64::from(i)));
            interleave("memcpy of 8 bytes", ours, |times| Ok(bare.put(&[7; 8], times)))
        }
        _ => {
            let ours = |times| {
                timed(times, |_| {
                    node.get(black_box(ptr)).map(|word| {
                        black_box(word);
                    })
                })
            };
            interleave("memcpy of 8 bytes", ours, |times| Ok(bare.get(&mut bytes, times)))
        }
    }
}

fn heap_bulk(node: &Node, case: &Case, theirs: &Theirs) -> Result<Samples> {
    let bare = bare::mapped(node, theirs.heap, case.size)?;
    let buffer = std::cell::RefCell::new(vec![3u8; case.size]);
    match case.op {
        Op::Put => interleave(
            "memcpy between the same buffers",
            |times| timed(times, |_| node.put_bytes(theirs.heap, &buffer.borrow())),
            |times| Ok(bare.put(&buffer.borrow(), times)),
        ),
        _ => interleave(
            "memcpy between the same buffers",
            |times| timed(times, |_| node.get_bytes(theirs.heap, &mut buffer.borrow_mut())),
            |times| Ok(bare.get(&mut buffer.borrow_mut(), times)),
        ),
    }
}

fn private(node: &Node, case: &Case, theirs: &Theirs) -> Result<Samples> {
    let remote = theirs.private(node, 1)?[0];
    let ours = if case.memory == Memory::Granted { theirs.granted(node, case)?[0] } else { remote };
    let buffer = std::cell::RefCell::new(vec![3u8; case.size]);
    match case.op {
        Op::Put => interleave(
            "process_vm_writev",
            |times| timed(times, |_| node.put_bytes(ours, &buffer.borrow())),
            |times| bare::attach_put(node, &[(remote, &buffer.borrow())], times)?.context(REFUSED),
        ),
        _ => interleave(
            "process_vm_readv",
            |times| timed(times, |_| node.get_bytes(ours, &mut buffer.borrow_mut())),
            |times| {
                bare::attach_get(node, &mut [(remote, &mut buffer.borrow_mut())], times)?.context(REFUSED)
            },
        ),
    }
}

fn scatter(node: &Node, case: &Case, theirs: &Theirs) -> Result<Samples> {
    let remotes = theirs.private(node, case.n)?;
    let ours = match case.memory {
        Memory::Private => remotes.clone(),
        Memory::Granted | Memory::OneGrant => theirs.granted(node, case)?,
        Memory::Heap => bail!("scattered gets are measured on private memory"),
    };
    let buffers = std::cell::RefCell::new(vec![vec![0u8; case.size]; case.n]);
    interleave(
        "process_vm_readv of the same list",
        |times| {
            timed(times, |_| {
                let mut buffers = buffers.borrow_mut();
                let pair = ours.iter().zip(buffers.iter_mut());
                let mut pieces: Vec<GetPiece<'_>> =
                    pair.map(|(from, into)| GetPiece { from: *from, into }).collect();
                node.get_list(&mut pieces)
            })
        },
        |times| {
            let mut buffers = buffers.borrow_mut();
            let pair = remotes.iter().zip(buffers.iter_mut());
            let mut pieces: Vec<(Remote, &mut [u8])> =
                pair.map(|(from, into)| (*from, &mut into[..])).collect();
            bare::attach_get(node, &mut pieces, times)?.context(REFUSED)
        },
    )
}

fn strided(node: &Node, case: &Case, theirs: &Theirs) -> Result<Samples> {
    let (Case { size, n, .. }, buffer) = (*case, vec![3u8; case.size * case.n]);
    let (counts, there, here) = ([n], [2 * size as i64], [size as isize]);
    let shape = Strided {
        block: size,
        counts: &counts,
        remote_strides: &there,
        local_strides: &here,
        ..Strided::default()
    };
    let bare = bare::mapped(node, theirs.heap, case.heap_bytes())?;
    let blocks = bare::Blocks { block: size, count: n, there: 2 * size as u64, here: size };
    interleave(
        "the same copies by a loop of one's own",
        |times| timed(times, |_| node.put_strided(theirs.heap, black_box(&buffer), black_box(&shape))),
        |times| Ok(bare.put_blocks(&buffer, blocks, times)),
    )
}

fn active_messages(node: &Node, case: &Case, served: &AtomicU64) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "Active Messages are measured between two processes");
    let mine = Shared::new(node, case)?;
    let theirs = Theirs::find(node, 1 - node.rank())?;
    let (first, handler) = (node.rank() == 0, node.handler("ping").context("registered at open")?);
    let keeper = if first { mine.words.ptr(8) } else { theirs.note(1) };
    let (word, inbox) = (bare::Word::new(node, keeper)?, bare::Word::new(node, mine.words.ptr(16))?);
    let outbox = bare::Word::new(node, theirs.note(2))?;
    let turns = if case.cores == Cores::Shared { SLOW_TURNS } else { TURNS };
    let (mut ours, mut limit, mut line) = (Vec::new(), Vec::new(), Vec::new());
    let work = bare::Work::of_ns(WORK_NS);
    let stop = || !node.lost_peers().is_empty();
    let (rounds, payload) = (ROUNDS as u64, vec![5; case.size]);
    for round in 0..=rounds {
        node.barrier()?;
        let start = round * u64::from(turns);
        let bare = match case.cores {
            Cores::Apart => {
                let bare = bare::bounce(word.get(), first, 4 * start, turns, stop);
                node.barrier()?;
                let start = 4 * start + 2 * u64::from(turns);
                let worked = bare::bounce_after(word.get(), first, start, turns, work, stop);
                line.extend((round > 0).then_some(each(bare, turns)));
                worked
            }
            Cores::Shared => bare::futex_ping_pong(inbox.get(), outbox.get(), first, start, turns),
        };
        node.barrier()?;
        let begun = Instant::now();
        if first {
            for turn in 0..u64::from(turns) {
                let wanted = round * u64::from(turns) + turn + 1;
                match payload.len() {
                    0 => node.request(1, handler, [turn; 4])?,
                    _ => node.request_medium(1, handler, [turn; 4], &payload)?,
                }
                node.wait_until(|| served.load(Ordering::Relaxed) >= wanted)?;
            }
        } else {
            node.wait_until(|| served.load(Ordering::Relaxed) >= (round + 1) * u64::from(turns))?;
        }
        if round > 0 {
            ours.push(each(begun.elapsed(), turns));
            limit.push(each(bare, turns));
        }
    }
    let name = match case.cores {
        Cores::Apart => "a word passed there and back, each side working 25 ns",
        Cores::Shared => "futex ping-pong on the same core",
    };
    Ok(first.then(|| Samples::new(name, turns, ours, limit).beside_line(line)))
}

/// Messages that are sent before any is taken. As many fit a lane several times, so that nobody waits for
/// room.
const BURST: u32 = 16;
const _: () = assert!(BURST as usize * 4 <= bare::LANE_MESSAGES);

/// Notes at the receiver: the round that it is ready for.
const READY: usize = 1;
/// The round that has been sent.
const SENT: usize = 2;
/// The nanoseconds that taking it took.
const TOOK: usize = 3;

/// Ours are the sender's times for a message, the limit's the receiver's.
fn overhead(node: &Node, case: &Case, served: &AtomicU64) -> Result<Option<Samples>> {
    ensure!(node.size() == 2, "messages are measured between two processes");
    let mine = Shared::new(node, case)?;
    let theirs = Theirs::find(node, 1)?;
    let handler = node.handler("take").context("registered at open")?;
    let (mut sender, mut receiver) = (Vec::new(), Vec::new());
    let give_up = Instant::now() + PATIENCE;
    // A peer that dies is noticed by the next barrier, if not here.
    let is_over = || Instant::now() > give_up || !node.lost_peers().is_empty();
    for round in 1..=ROUNDS as u64 {
        if node.rank() == 1 {
            // Looks only at its own memory: whoever makes progress would take messages.
            let await_word = |index| {
                while mine.words.read(8 * index) < round && !is_over() {
                    std::thread::yield_now();
                }
            };
            mine.words.write(8 * READY, round);
            await_word(SENT);
            let begun = Instant::now();
            node.wait_until(|| served.load(Ordering::Relaxed) >= round * u64::from(BURST))?;
            mine.words.write(8 * TOOK, begun.elapsed().as_nanos() as u64);
        } else {
            while node.get(theirs.note(READY))? < round && !is_over() {
                std::thread::yield_now();
            }
            sender.push(each(timed(BURST, |turn| node.request(1, handler, [u64::from(turn); 4]))?, BURST));
            node.put(theirs.note(SENT), round)?;
        }
        node.barrier()?;
        if node.rank() == 0 {
            receiver.push(node.get(theirs.note(TOOK))? as f64 / f64::from(BURST));
        }
    }
    Ok((node.rank() == 0).then(|| Samples::new("the receiver's part", BURST, sender, receiver)))
}

/// The limits that are set rather than measured.
pub(super) const IDLE_LIMIT: &str = "set: a hundredth of a core";
pub(super) const OPEN_LIMIT: &str = "set: a tenth of a second";

/// Time that rank 1 waits for.
const IDLE: Duration = Duration::from_secs(2);

fn idle(node: &Node) -> Result<Option<Samples>> {
    let words = node.heap().alloc_zeroed::<u64>(1)?;
    node.directory()
        .publish(&format!("idle {}", node.rank()), bytemuck::bytes_of(&words.ptr(0).to_words()))?;
    node.barrier()?;
    let before = host::cpu_time();
    if node.rank() == 0 {
        std::thread::sleep(IDLE);
        node.barrier()?;
        let found = node.directory().wait("idle 1", PATIENCE)?;
        let word =
            GlobalPtr::<u64>::from_words(bytemuck::try_pod_read_unaligned(&found).ok().context("words")?);
        node.barrier()?;
        let used = Cell::new(node.get(word)? as f64 / IDLE.as_secs_f64());
        node.barrier()?;
        return Ok(Some(Samples::new(IDLE_LIMIT, 1, vec![used.get()], vec![1e7])));
    }
    node.barrier()?;
    words.write(0, host::cpu_time().saturating_sub(before).as_nanos() as u64);
    node.barrier()?;
    node.barrier()?;
    Ok(None)
}

/// The environment variable that says when the launcher started, in nanoseconds of the monotonic clock.
pub(super) const STARTED: &str = "STANDPIPE_PERF_STARTED";

fn open(node: &Node) -> Result<Option<Samples>> {
    node.barrier()?;
    let started: u64 = std::env::var(STARTED).context("set by perf")?.parse()?;
    let took = host::monotonic_ns().saturating_sub(started) as f64;
    Ok((node.rank() == 0).then(|| Samples::new(OPEN_LIMIT, 1, vec![took], vec![1e8])))
}

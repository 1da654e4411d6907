//! Messages over a network that gather: they leave soon though their sender makes no call, each arrives once,
//! and a flood from several threads takes no more memory as it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use standpipe::Node;
use standpipe::host::monotonic_ns;

use crate::support::{Heard, config, job_of, network, role, say};

/// Messages of a round. The first leaves at once; the others gather, as nobody polls in between.
const MESSAGES: u64 = 3;

const ROUNDS: u64 = 20;

/// How long the sender computes after each round.
const COMPUTES: Duration = Duration::from_millis(50);

/// The last message of a round arrives within this in the best of all rounds: others may have the processors
/// in the rest.
const SOON: Duration = Duration::from_millis(5);

/// How long a handler of the sender's runs.
const DWELLS: Duration = Duration::from_secs(2);

const THREADS: u64 = 4;

/// Messages of each thread before memory is looked at, and then.
const FLOOD: u64 = 20_000;

/// Bytes that a process may have more after twice the messages.
const GROWS_MAX: u64 = 1 << 20;

#[test]
fn what_gathers_leaves_though_the_sender_computes() {
    let Some(transport) = network() else { return };
    for progress in ["auto", "on"] {
        let heard = Heard::default();
        let job = job_of(2, "computes").env("STANDPIPE_TRANSPORT", transport);
        heard.run_well(job.env("STANDPIPE_PROGRESS", progress));
        let late: Vec<u64> =
            heard.said(1)[0].split(' ').map(|nanos| nanos.parse().expect("a number")).collect();
        assert_eq!(late.len() as u64, ROUNDS);
        let (best, worst) = (late.iter().min().expect("rounds"), late.iter().max().expect("rounds"));
        println!("{progress}: the last of {MESSAGES} messages after {best} to {worst} ns");
        assert!(u128::from(*best) < SOON.as_nanos(), "{progress}: {late:?}");
    }
}

#[test]
fn what_gathers_leaves_with_progress_though_a_handler_runs_for_long() {
    let Some(transport) = network() else { return };
    let heard = Heard::default();
    heard.run_well(job_of(2, "dwells").env("STANDPIPE_TRANSPORT", transport));
    let late: u64 = heard.said(1)[0].parse().expect("a number");
    assert!(u128::from(late) < DWELLS.as_nanos() / 2, "{late} ns, where a handler took {DWELLS:?}");
}

#[test]
fn what_gathers_leaves_with_the_next_poll_where_nobody_else_makes_progress() {
    let Some(transport) = network() else { return };
    let heard = Heard::default();
    let job = job_of(2, "polls").env("STANDPIPE_TRANSPORT", transport);
    heard.run_well(job.env("STANDPIPE_PROGRESS", "off"));
    assert_eq!(heard.said(1), [MESSAGES.to_string()]);
}

#[test]
fn a_flood_from_several_threads_loses_nothing_and_takes_no_memory() {
    let transports = ["shm"].into_iter().chain(network());
    for transport in transports {
        let heard = Heard::default();
        heard.run_well(job_of(2, "floods").env("STANDPIPE_TRANSPORT", transport));
        for rank in 0..2 {
            let said: Vec<u64> =
                heard.said(rank)[0].split(' ').map(|word| word.parse().expect("a number")).collect();
            let [messages, before, after] = said[..] else { panic!("three numbers: {said:?}") };
            println!("{transport}, rank {rank}: {messages} messages, {before} and then {after} bytes");
            assert_eq!(messages, if rank == 1 { 2 * THREADS * FLOOD } else { 0 });
            assert!(after <= before + GROWS_MAX, "{transport}, rank {rank}: {before} and then {after} bytes");
        }
    }
}

/// Not a test: what the ranks of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "computes" => send_and(compute),
        "polls" => send_and(|node| _ = node.progress()),
        "dwells" => dwell(),
        "floods" => flood(),
        other => panic!("no role {other}"),
    }
}

/// Computes: no call of the library, and none of the kernel.
fn compute(_: &Node) {
    let start = Instant::now();
    while start.elapsed() < COMPUTES {
        std::hint::spin_loop();
    }
}

/// Rank 0 sends rounds of messages, and does something after each. Rank 1 says how late the last one of each
/// was.
fn send_and(act: impl Fn(&Node)) {
    let (count, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, lateness) = (Arc::clone(&count), Arc::clone(&late));
    let config = config().handler("note", move |call| {
        lateness.store(monotonic_ns().saturating_sub(call.args()[0]), Ordering::Relaxed);
        counted.fetch_add(1, Ordering::Release);
    });
    let node = Node::open(config).expect("it opens");
    let note = node.handler("note").expect("registered above");
    let computes = role().is_some_and(|role| role == "computes");
    let rounds = if computes { ROUNDS } else { 1 };
    let mut said = Vec::new();
    for round in 1..=rounds {
        node.barrier().expect("both come");
        if node.rank() == 0 {
            for _ in 0..MESSAGES {
                node.request(1, note, [monotonic_ns(), 0, 0, 0]).expect("it is taken");
            }
            act(&node);
        } else {
            let all = round * MESSAGES;
            node.wait_until(|| count.load(Ordering::Acquire) == all).expect("they arrive");
            said.push(if computes { late.load(Ordering::Relaxed) } else { all }.to_string());
        }
    }
    node.barrier().expect("both come");
    if node.rank() == 1 {
        say(said.join(" "));
    }
}

/// Rank 0's progress thread runs a handler for long, while another thread sends and calls `progress`. Rank 1
/// says how late the last message was.
fn dwell() {
    let (count, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let dwelling = Arc::new(AtomicU64::new(0));
    let (counted, lateness, begun) = (Arc::clone(&count), Arc::clone(&late), Arc::clone(&dwelling));
    let config = config()
        .handler("note", move |call| {
            lateness.store(monotonic_ns().saturating_sub(call.args()[0]), Ordering::Relaxed);
            counted.fetch_add(1, Ordering::Release);
        })
        .handler("dwell", move |_| {
            begun.store(1, Ordering::Release);
            std::thread::sleep(DWELLS);
        });
    let node = Node::open(config).expect("it opens");
    let [note, dwell] = ["note", "dwell"].map(|name| node.handler(name).expect("registered above"));
    node.barrier().expect("both come");
    if node.rank() == 1 {
        node.request(0, dwell, [0; 4]).expect("it is taken");
        node.wait_until(|| count.load(Ordering::Acquire) == MESSAGES).expect("they arrive");
        say(late.load(Ordering::Relaxed));
    } else {
        while dwelling.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        for _ in 0..MESSAGES {
            node.request(1, note, [monotonic_ns(), 0, 0, 0]).expect("it is taken");
        }
        while begun.elapsed() < DWELLS {
            node.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    node.barrier().expect("both come");
}

/// Rank 0 sends from several threads as fast as it can, twice as many messages as one look at memory takes.
fn flood() {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let config = config().handler("note", move |_| _ = counted.fetch_add(1, Ordering::Release));
    let node = Node::open(config).expect("it opens");
    let note = node.handler("note").expect("registered above");
    let mut bytes = [0; 2];
    for (half, bytes) in (1..).zip(&mut bytes) {
        if node.rank() == 0 {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        (0..FLOOD).for_each(|_| node.request(1, note, [0; 4]).expect("it is taken"));
                    });
                }
            });
            node.quiet().expect("they have run");
        } else {
            let all = half * THREADS * FLOOD;
            node.wait_until(|| count.load(Ordering::Acquire) == all).expect("they arrive");
        }
        node.barrier().expect("both come");
        *bytes = crate::support::own_bytes();
    }
    say(format!("{} {} {}", count.load(Ordering::Acquire), bytes[0], bytes[1]));
}

//! Jobs whose ranks reach each other over libfabric: all other tests again, and what is particular to it.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::{Fabric, Hints};
use standpipe::{Error, Exposure, Mechanism, Memory, OpenError, Operation, PathReason, Rights, Strategy};

use super::*;

/// What every machine with libfabric has.
const NETWORK: &str = "ofi:tcp";

pub(super) fn is_there() -> bool {
    let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    let there = Fabric::load().is_ok_and(|fabric| fabric.providers(&hints).is_ok_and(|all| !all.is_empty()));
    if !there {
        testbed::skip("no libfabric with the provider tcp");
    }
    there
}

pub(super) fn by_network() -> Config {
    config().transport(Transport::parse(NETWORK).expect("a transport"))
}

#[test]
fn all_other_tests_hold_over_the_network() {
    if !is_there() {
        return;
    }
    let itself = std::env::current_exe().expect("this program");
    let mut command = Command::new(itself);
    command.args(["--skip", "network::"]).env(TRANSPORT, NETWORK);
    if !testbed::has_time_for("but tests of messages, puts and gets") {
        command.args(["am::", "rma::"]);
    }
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// What was put after the owner had waited, and had told of new memory by other ways than ours, is there.
#[test]
fn memory_that_peers_have_let_go_of_may_be_told_of_by_any_channel() {
    if !is_there() {
        return;
    }
    // Where another thread runs all the time it cannot be seen that a removal is over, and that memory goes
    // by message for so long: then nothing is held that could be let go of, and all is tried again.
    assert!((0..20).any(|_| rounds_that_held(Told::ByAWord) > 1), "memory was never held twice");
}

#[test]
fn what_the_directory_says_of_memory_needs_no_other_care() {
    if is_there() {
        assert!((0..20).any(|_| rounds_that_held(Told::ByTheDirectory) > 1), "memory was never held twice");
    }
}

/// How the owner tells that its memory is new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// One that no part of ours sees, after it has waited.
    ByAWord,
    ByTheDirectory,
}

/// Puts to memory that is emptied after each put. Returns how many of them were made by a key.
fn rounds_that_held(way: Told) -> u64 {
    let (told_of, times_held) = (AtomicU64::new(0), AtomicU64::new(0));
    let config = || by_network().strategy(Strategy::Firehose);
    job(
        2,
        |_| config(),
        |node| {
            let mut mine = vec![0_u8; 1 << 20];
            let theirs = exchange_private(node, &mut mine);
            let by_key = || node.stats().get(Operation::Put, Mechanism::Registered).bytes;
            let (mut given, mut held) = (0, false);
            for round in 1..60 {
                let byte = round as u8;
                if node.rank() == 0 {
                    let since = Instant::now();
                    let told = || match way {
                        Told::ByAWord => told_of.load(Ordering::SeqCst),
                        Told::ByTheDirectory => {
                            let found = node.directory().lookup("round").expect("it is reached");
                            found.map_or(0, |round| u64::from_ne_bytes(round.try_into().expect("a word")))
                        }
                    };
                    while told() + 1 < round {
                        assert!(since.elapsed() < Duration::from_secs(60), "not told in round {round}");
                        std::thread::yield_now();
                    }
                    let known = std::mem::replace(&mut given, node.registrations().given_back);
                    assert!(given > known || !held, "the old memory is still held in round {round}");
                    let before = by_key();
                    node.put_bytes(theirs, &vec![byte; 1 << 20]).expect("put");
                    // More than the ends of the memory, which stay as they are.
                    held = by_key() > before + 100_000;
                    times_held.fetch_add(u64::from(held), Ordering::SeqCst);
                }
                node.barrier().expect("barrier");
                if node.rank() == 1 {
                    assert!(mine.iter().all(|found| *found == byte), "round {round}");
                    let len = mine.len();
                    // SAFETY: whole pages of this vector, whose bytes are zero afterwards; nobody puts to
                    // them now.
                    let emptied = unsafe {
                        let first = mine.as_mut_ptr().add(mine.as_ptr().align_offset(4096));
                        libc::madvise(first.cast(), len - 8192, libc::MADV_DONTNEED)
                    };
                    assert_eq!(emptied, 0);
                    match way {
                        Told::ByAWord => {
                            node.memory_sync().expect("peers answer");
                            told_of.store(round, Ordering::SeqCst);
                        }
                        Told::ByTheDirectory => {
                            node.directory().publish("round", &round.to_ne_bytes()).expect("published");
                        }
                    }
                }
            }
        },
    );
    times_held.load(Ordering::SeqCst)
}

/// What was prefetched is no miss, and what is not a network's needs no hint.
#[test]
fn hints_spare_the_first_use_its_question() {
    if !is_there() {
        return;
    }
    for transport in [NETWORK, "shm"] {
        let config = || config().transport(Transport::parse(transport).expect("a transport"));
        job(
            2,
            |_| config().strategy(Strategy::Firehose),
            |node| {
                let mut mine = vec![node.rank() as u8 + 1; 1 << 20];
                let theirs = exchange_private(node, &mut mine);
                node.prepare(&mine);
                node.prefetch(theirs, 1 << 20).expect("asked for");
                let mut got = vec![0_u8; 1 << 20];
                node.get_bytes(theirs, &mut got).expect("got");
                assert!(got.iter().all(|byte| u32::from(*byte) == 2 - node.rank()));
                let counters = node.registrations();
                assert_eq!((counters.misses, counters.hits > 0), (0, transport == NETWORK), "{counters:?}");
                assert_eq!(
                    node.prefetch(GlobalPtr::<u8>::new(7, 0), 1),
                    Err(Error::NoSuchPeer { peer: 7, size: 2 })
                );
                node.barrier().expect("barrier");
            },
        );
    }
}

/// Private memory goes through the owner's heap where nothing else reaches it, and not where others could
/// look into that.
#[test]
fn long_private_memory_goes_through_stages_unless_ranges_are_exposed() {
    let near: fn() -> Config = || config().attach_never();
    let far: fn() -> Config = || by_network().strategy(Strategy::Bounce);
    for way in [near, far].into_iter().take(1 + usize::from(is_there())) {
        for exposure in [Exposure::Everything, Exposure::Ranges] {
            let all = exposure == Exposure::Everything;
            job(
                2,
                |_| way().exposure(exposure),
                |node| {
                    let mut mine = vec![node.rank() as u8 + 1; 1 << 20];
                    let _exposed = node.expose(&raw const *mine, Rights::ReadWrite);
                    let theirs = exchange_private(node, &mut mine);
                    let mut got = vec![0_u8; 1 << 20];
                    // Nothing is known of the peer's heap at the first.
                    for _ in 0..3 {
                        node.get_bytes(theirs, &mut got).expect("got");
                        assert!(got.iter().all(|byte| u32::from(*byte) == 2 - node.rank()));
                    }
                    let staged = node.stats().staged_bytes();
                    assert_eq!(staged >= 1 << 20, all, "{staged} bytes went through stages");
                    node.barrier().expect("barrier");
                },
            );
        }
    }
}

/// A rank that registers nothing has peers that would use what it registers, and the other way round.
#[test]
fn ranks_of_different_strategies_reach_each_other() {
    if !is_there() {
        return;
    }
    let strategies = [Strategy::Firehose, Strategy::Bounce, Strategy::Firehose];
    job(
        3,
        |rank| by_network().strategy(strategies[rank as usize]),
        |node| {
            let mut mine = vec![0_u8; 300_000];
            let at = exchange_private(node, &mut mine);
            // Entries of the directory lie in heaps, and are got one-sided.
            let by_key = || node.stats().get(Operation::Get, Mechanism::Registered).count;
            let before = by_key();
            let (to, own) = ((node.rank() + 1) % 3, node.rank() as u8 + 1);
            for round in 0..8_u8 {
                node.put_bytes(at, &vec![own * 16 + round; 300_000]).expect("put");
                node.barrier().expect("barrier");
                let from = (node.rank() + 2) % 3;
                assert!(mine.iter().all(|byte| *byte == (from as u8 + 1) * 16 + round), "round {round}");
                let mut back = vec![0; 300_000];
                node.get_bytes(at, &mut back).expect("get");
                assert!(back.iter().all(|byte| *byte == own * 16 + round), "round {round}");
                node.barrier().expect("barrier");
            }
            let both = strategies[node.rank() as usize] == Strategy::Firehose
                && strategies[to as usize] == Strategy::Firehose;
            assert_eq!(by_key() > before, both, "rank {} to rank {to}", node.rank());
        },
    );
}

#[test]
fn nothing_of_a_peer_is_mapped_or_attached_to() {
    for strategy in [Strategy::Bounce, Strategy::Firehose].into_iter().filter(|_| is_there()) {
        job(
            2,
            |_| by_network().strategy(strategy),
            |node| {
                let mut mine = vec![0u8; 100_000];
                let theirs = exchange_private(node, &mut mine);
                let heap = node.heap().alloc_zeroed::<u64>(1).expect("room");
                let word = exchange(node, heap.ptr(0));
                assert_eq!(node.attach(right_of(node)), Some(Err(PathReason::Network)));
                let mapped = node.stats().get(Operation::Put, Mechanism::Mapped);
                let data = pattern(u64::from(node.rank()), 100_000);
                node.put_bytes(theirs, &data).expect("put");
                node.put(word, 5).expect("put");
                assert_eq!(node.fetch_add(word, 1), Ok(5));
                let mut got = vec![0; 100_000];
                node.get_bytes(theirs, &mut got).expect("get");
                assert!(got == data, "what was put");
                node.barrier().expect("barrier");
                let stats = node.stats();
                assert_eq!(stats.get(Operation::Put, Mechanism::Mapped), mapped);
                assert_eq!(stats.get(Operation::Put, Mechanism::Cma).count, 0);
                assert!(stats.why(PathReason::Network) > 0, "words of heaps go by message");
                assert!(stats.get(Operation::Atomic, Mechanism::Message).count > 0);
                let registered = stats.get(Operation::Put, Mechanism::Registered);
                assert_eq!(registered.bytes, if strategy == Strategy::Bounce { 0 } else { 100_000 });
                assert_eq!(heap.read(0), 6);
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn who_computes_is_served_by_its_progress_thread() {
    if !is_there() {
        return;
    }
    let (asked, done) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let configure = |_| {
        let asked = Arc::clone(&asked);
        by_network().handler("ask", move |_| _ = asked.fetch_add(1, Ordering::SeqCst))
    };
    job(2, configure, |node| {
        let mut mine = vec![0u8; 50_000];
        let theirs = exchange_private(node, &mut mine);
        node.barrier().expect("barrier");
        if node.rank() == 1 {
            let begun = Instant::now();
            while done.load(Ordering::SeqCst) == 0 {
                assert!(begun.elapsed() < LIMIT, "nobody served while this rank computed");
                std::thread::yield_now();
            }
        } else {
            let ask = node.handler("ask").expect("registered");
            node.put_bytes(theirs, &[7; 50_000]).expect("put");
            node.request(1, ask, [0; 4]).expect("sent");
            let mut got = vec![0; 50_000];
            node.get_bytes(theirs, &mut got).expect("get");
            assert!(got.iter().all(|byte| *byte == 7));
            assert_eq!(asked.load(Ordering::SeqCst), 1, "the handler has run before the get was served");
            done.store(1, Ordering::SeqCst);
        }
        node.barrier().expect("barrier");
    });
}

#[test]
fn memory_that_is_gone_is_a_fault_though_it_was_reached_before() {
    if !is_there() {
        return;
    }
    job(
        2,
        |_| by_network(),
        |node| {
            let size = 1 << 16;
            let block = vm::Segment::create("standpipe-test", size).expect("a segment");
            let address = block.memory().base_addr();
            tell(node, "address", [address, 0]);
            let [there, _] = ask(node, "address", right_of(node));
            // SAFETY: no reference to what lies in the segment is ever made.
            let there = unsafe { Remote::raw(right_of(node), there) };
            node.put_bytes(there, &[1; 100]).expect("it is there");
            node.barrier().expect("barrier");
            drop(block);
            node.barrier().expect("barrier");
            let fault = node.put_bytes(there, &[1; 100]).expect_err("it is gone");
            assert!(matches!(fault, Error::Fault { memory: Memory::Private, .. }), "{fault}");
            node.barrier().expect("nobody has come to harm");
        },
    );
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    if !is_there() {
        return;
    }
    let broker = Broker::start(2).expect("a broker");
    let transport = Transport::Ofi { provider: Some("carrier-pigeon".into()) };
    let error = Node::open_in(config().transport(transport), Some(&broker.env(0))).expect_err("none");
    assert!(
        matches!(error, OpenError::Network(_)) && error.to_string().contains("carrier-pigeon"),
        "{error}"
    );
}

/// Under `off` nobody makes progress for a rank that computes: what the others wait for at a barrier has left
/// it when it leaves the barrier, also to those that it has never talked to.
#[test]
fn barriers_and_collectives_let_all_go_though_one_computes_after_them() {
    if !is_there() {
        return;
    }
    for turn in 0..9 {
        let left = AtomicU64::new(0);
        job(
            4,
            |_| by_network().progress(standpipe::ProgressThread::Off),
            |node| {
                (0..4).for_each(|rank| node.connect(rank).expect("connected"));
                if node.rank() == 1 {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                let begun = Instant::now();
                match turn % 3 {
                    0 => node.barrier().expect("all come"),
                    1 => node.world().all_reduce(&mut [1_u64], standpipe::Reduction::Sum).expect("all come"),
                    _ => node.world().barrier_nb().wait().0.expect("all come"),
                }
                assert!(begun.elapsed() < LIMIT / 2, "rank {} was kept", node.rank());
                // No call of the library until all have left: who waits for one that is here is kept.
                left.fetch_add(1, Ordering::SeqCst);
                while left.load(Ordering::SeqCst) < 4 && begun.elapsed() < LIMIT {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            },
        );
    }
}

/// Far peers hear of a node's end before it has closed, and end their part: callers here hear that it closes.
#[test]
fn calls_that_closing_overtakes_say_that_the_node_has_closed() {
    if !is_there() {
        return;
    }
    for _ in 0..5 {
        job(
            2,
            |_| by_network(),
            |node| {
                let array = node.heap().alloc_zeroed::<u64>(1024).expect("room");
                let theirs = exchange(node, array.ptr(0));
                node.barrier().expect("barrier");
                if node.rank() == 1 {
                    return node.wait_until(|| !node.lost_peers().is_empty()).expect("it is told");
                }
                let until_closed = |call: &dyn Fn() -> Result<(), Error>| {
                    let error = loop {
                        if let Err(error) = call() {
                            break error;
                        }
                    };
                    assert!(matches!(error, Error::Closed { .. }), "{error}");
                };
                std::thread::scope(|scope| {
                    scope.spawn(|| until_closed(&|| node.put(theirs, 1)));
                    scope.spawn(|| until_closed(&|| node.get_slice(theirs, &mut [0; 1024])));
                    scope.spawn(|| until_closed(&|| node.fetch_add(theirs, 1).map(drop)));
                    scope.spawn(|| until_closed(&|| node.get_nb(theirs, vec![0_u64; 512]).wait().0));
                    std::thread::sleep(Duration::from_millis(20));
                    let closed = node.clone().close(Duration::from_secs(5));
                    assert!(
                        closed.as_ref().err().is_none_or(standpipe::CloseError::has_closed),
                        "{closed:?}"
                    );
                });
            },
        );
    }
}

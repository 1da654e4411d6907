//! One node for the libraries of a process: clients that come and go, each with its own handlers, failures
//! and end.

use crate::support;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::support::{Heard, LIMIT, job_of, role, say};
use standpipe::launch::End;
use standpipe::{CloseError, Code, Config, Error, HandlerId, Node, OpenError};

/// The node is the process's: tests of one process take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config() -> Config {
    Config::new().heap_bytes(4 << 20).timeout(LIMIT)
}

/// A library: a client with a handler that counts.
struct Library {
    node: Node,
    count: Arc<AtomicU64>,
    handler: HandlerId,
}

impl Library {
    fn open(namespace: &str) -> Library {
        let node = Node::shared(config()).expect("a share");
        let count = Arc::new(AtomicU64::new(0));
        let here = Arc::clone(&count);
        let add = move |call: &mut standpipe::Call<'_>| _ = here.fetch_add(call.args()[0], Ordering::SeqCst);
        let handler = node.register(namespace, "count", add).expect("a name of its own");
        Library { node, count, handler }
    }

    fn counts(&self, expected: u64) {
        self.node.wait_until(|| self.count.load(Ordering::SeqCst) == expected).expect("in time");
    }
}

#[test]
fn clients_share_a_node_and_end_by_themselves() {
    let _turn = turn();
    let (one, two) = (Library::open("one"), Library::open("two"));
    let array = one.node.heap().alloc_zeroed::<u64>(1).expect("room");
    two.node.put(array.ptr(0), 7).expect("the same heap");
    assert_eq!(array.read(0), 7);
    two.node.request(0, one.handler, [1; 4]).expect("it is there");
    one.node.request(0, two.handler, [2; 4]).expect("it is there");
    // Whoever waits runs the handlers of all.
    one.counts(1);
    one.node.wait_until(|| two.count.load(Ordering::SeqCst) == 2).expect("in time");

    let clone = one.node.clone();
    one.node.close(LIMIT).expect("nothing is under way");
    assert_eq!(clone.request(0, two.handler, [1; 4]), Err(Error::Closed { call: "a request" }));
    assert_eq!(clone.quiet().map_err(|error| error.code()), Err(Code::Closed));
    assert!(matches!(clone.close(LIMIT), Err(CloseError::Refused(Error::Closed { .. }))));
    assert_eq!(Arc::strong_count(&one.count), 1, "its handlers are gone");
    let gone = two.node.request(0, one.handler, [1; 4]);
    assert!(matches!(gone, Err(Error::NoSuchHandler { peer: 0, .. })), "{gone:?}");
    two.node.request(0, two.handler, [1; 4]).expect("it goes on");
    two.counts(3);

    // Its name is free again, and the next client's handler is another.
    let again = Library::open("one");
    two.node.request(0, again.handler, [5; 4]).expect("it is there");
    again.counts(5);
    drop(two);
    again.node.request(0, again.handler, [5; 4]).expect("it goes on");
    again.counts(10);
    let address = again.node.heap().alloc_zeroed::<u64>(1).expect("room");
    again.node.close(LIMIT).expect("the last one closes the node");
    drop((array, address));
    // And another can be opened.
    let new = Library::open("one");
    new.node.request(0, new.handler, [3; 4]).expect("it is there");
    new.counts(3);
}

#[test]
fn failures_are_told_to_the_client_whose_they_are() {
    let _turn = turn();
    let (one, two) = (Library::open("one"), Library::open("two"));
    let nowhere = HandlerId::of("no", "where");
    // A peer may have had it until now: then it refuses the message.
    let short = two.node.register("no", "where", |_| {}).expect("a name of its own");
    assert_eq!(short, nowhere);
    one.node.request(0, nowhere, [0; 4]).expect("it is there");
    assert_eq!(one.node.withdraw(nowhere), Ok(false), "it is another client's");
    assert_eq!(two.node.withdraw(nowhere), Ok(true));
    one.node.wait_until(|| one.node.has_failed()).expect("in time");
    assert!(!two.node.has_failed());
    two.node.quiet().expect("nothing of its own has failed");
    assert_eq!(one.node.stats().refused(), 1);
    let told = one.node.quiet();
    assert_eq!(told.map_err(|error| error.code()), Err(Code::NoSuchHandler));
    one.node.quiet().expect("it is told once");
    // Dropped events, too.
    let lost = Node::shared(config()).expect("a share");
    // SAFETY: nothing is mapped there, so nobody has anything there that could be harmed.
    let hole = unsafe { standpipe::Remote::raw(0, 8) };
    drop(lost.put_nb(hole, vec![1u8; 8]));
    one.node.quiet().expect("nothing of its own has failed");
    assert_eq!(lost.quiet().map_err(|error| error.code()), Err(Code::Fault));
}

#[test]
fn the_first_configuration_counts() {
    let _turn = turn();
    let one = Node::shared(config().peers_max(7)).expect("a share");
    let unset = Node::shared(Config::new()).expect("it says nothing");
    let alike = Node::shared(Config::new().peers_max(7).timeout(Duration::from_millis(1))).expect("alike");
    let late = alike.wait_until(|| false).expect_err("its own timeout");
    assert!(late.is_timeout());
    drop((unset, alike));
    let conflict = Node::shared(config().peers_max(8)).expect_err("another value");
    let OpenError::Conflict { setting, first, given } = &conflict else { panic!("{conflict}") };
    assert_eq!((*setting, first.as_str(), given.as_str()), ("STANDPIPE_PEERS", "7", "8"));
    assert_eq!(conflict.code(), Code::Setting);
    let heap = Node::shared(Config::new().heap_bytes(8 << 20)).expect_err("another value");
    assert!(heap.to_string().contains("STANDPIPE_HEAP"), "{heap}");
    // What is refused leaves nothing behind.
    drop(one);
    let other = Node::shared(config().peers_max(8)).expect("the first one now");
    let handlers = |node: &Node| node.handler("own").is_some();
    assert!(!handlers(&other));
    let with = Node::shared(config().peers_max(8).handler("own", |_| {})).expect("with a handler");
    assert!(handlers(&other));
    let taken = Node::shared(config().peers_max(8).handler("own", |_| {})).expect_err("it is taken");
    assert!(matches!(taken, OpenError::Handler(Error::HandlerTaken { .. })), "{taken}");
    drop(with);
    assert!(!handlers(&other));
}

#[test]
fn so_many_clients_and_no_more() {
    let _turn = turn();
    let mut all: Vec<Node> = (0..256).map(|_| Node::shared(config()).expect("a share")).collect();
    let full = Node::shared(config()).expect_err("no number is left");
    assert!(matches!(full, OpenError::Clients { most: 256 }) && full.code() == Code::NoRoom, "{full}");
    all.truncate(1);
    for _ in 0..1000 {
        Node::shared(config()).expect("there is room again");
    }
}

/// From many threads at once, so that opening, sharing and closing meet in every way.
#[test]
fn clients_come_and_go_from_all_threads() {
    let _turn = turn();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let library = Library::open(&format!("{thread}"));
                    library.node.request(0, library.handler, [round; 4]).expect("it is there");
                    library.counts(round);
                    if round % 2 == 0 {
                        library.node.close(LIMIT).expect("nothing is under way");
                    }
                }
            });
        }
    });
}

/// A client that its own handler closes, and one that waits for a handler that runs.
#[test]
fn clients_close_beside_handlers_that_run() {
    let _turn = turn();
    let stays = Library::open("stays");
    let goes = Library::open("goes");
    let seen = Arc::new(Mutex::new(None));
    let (told, handle) = (Arc::clone(&seen), Mutex::new(Some(goes.node.clone())));
    let close = goes.node.register("goes", "close", move |_| {
        let node = handle.lock().expect("no panic").take().expect("once");
        let refused = node.clone().close(LIMIT).map_err(|error| error.code());
        let shared = Node::shared(config()).map(drop).map_err(|error| error.code());
        // The last handle but one, which goes below.
        drop(node);
        *told.lock().expect("no panic") = Some((refused, shared));
    });
    goes.node.request(0, close.expect("registered"), [0; 4]).expect("it is there");
    drop(goes);
    stays.node.wait_until(|| seen.lock().expect("no panic").is_some()).expect("it runs");
    assert_eq!(*seen.lock().expect("no panic"), Some((Err(Code::InHandler), Ok(()))));
    stays.node.request(0, stays.handler, [1; 4]).expect("it goes on");
    stays.counts(1);

    let slow = Library::open("slow");
    let (in_it, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (told, done) = (Arc::clone(&in_it), Arc::clone(&over));
    let sleep = slow.node.register("slow", "sleep", move |_| {
        told.store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        done.store(1, Ordering::SeqCst);
    });
    let sleep = sleep.expect("registered");
    for (within, is_over) in [(LIMIT, true), (Duration::from_millis(20), false)] {
        let slow = Node::shared(config()).expect("a share");
        let (in_it, over) = (Arc::clone(&in_it), Arc::clone(&over));
        in_it.store(0, Ordering::SeqCst);
        over.store(0, Ordering::SeqCst);
        std::thread::scope(|scope| {
            stays.node.request(0, sleep, [0; 4]).expect("it is there");
            scope.spawn(|| stays.node.wait_until(|| over.load(Ordering::SeqCst) == 1));
            while in_it.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let closed = slow.close(within);
            assert_eq!(over.load(Ordering::SeqCst) == 1, is_over);
            assert_eq!(closed.is_ok(), is_over, "{closed:?}");
        });
    }
}

/// A client that has closed may have handles left: they keep nothing open.
#[test]
fn handles_of_a_client_that_has_closed_do_not_keep_the_node() {
    let _turn = turn();
    let (one, two) = (Library::open("one"), Library::open("two"));
    let left = one.node.clone();
    one.node.close(LIMIT).expect("nothing is under way");
    let held = Arc::clone(&two.count);
    drop(two);
    assert_eq!(Arc::strong_count(&held), 1, "the node has closed, and its handlers are gone");
    // Another node: the old handle is not of it.
    let new = Library::open("one");
    let (old, now) = (left.world_of("x").map(drop), new.node.world_of("x").map(drop));
    assert_eq!((old.map_err(|error| error.code()), now), (Err(Code::Closed), Ok(())));
}

/// Whatever a client's threads wait for, its end ends that.
#[test]
fn calls_that_wait_end_with_their_client() {
    let _turn = turn();
    let stays = Library::open("stays");
    let counter = stays.node.heap().alloc_zeroed::<u64>(1).expect("room");
    for what in ["condition", "signal", "queue", "answer"] {
        let goes = Node::shared(Config::new()).expect("a share without a timeout");
        let clone = goes.clone();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| match what {
                "condition" => clone.wait_until(|| false),
                // Its own rank never answers: it runs no handler that does.
                "answer" => clone.wait_until(|| clone.has_failed()),
                "signal" => clone.wait_signal(counter.ptr(0), 7).map(drop),
                _ => {
                    let queue = clone.completions::<Vec<u8>>(1).expect("a descriptor");
                    let _kept = queue.reserve().expect("room");
                    queue.wait_at_most(LIMIT).map(drop)
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            goes.close(LIMIT).expect("nothing is under way");
            if what != "queue" {
                let ended = waiter.join().expect("no panic").map_err(|error| error.code());
                assert_eq!(ended, Err(Code::Closed), "{what}");
            }
        });
        stays.node.request(0, stays.handler, [0; 4]).expect("it goes on");
    }
}

/// Code of the program's that runs when a handler is dropped may call what it likes.
#[test]
fn what_a_handler_holds_is_dropped_with_no_lock_held() {
    struct Calls(Node, Arc<AtomicU64>);
    impl Drop for Calls {
        fn drop(&mut self) {
            let _ = self.0.register("in", "drop", |_| {});
            let _ = self.0.withdraw(HandlerId::of("in", "drop"));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let _turn = turn();
    let (one, two) = (Library::open("one"), Library::open("two"));
    let dropped = Arc::new(AtomicU64::new(0));
    let calls = || {
        let calls = Calls(one.node.clone(), Arc::clone(&dropped));
        move |_: &mut standpipe::Call<'_>| {
            std::hint::black_box(&calls);
        }
    };
    let taken = two.node.register("two", "count", calls()).expect_err("its own name");
    assert!(matches!(taken, Error::HandlerTaken { .. }));
    assert!(two.node.register("two", "", calls()).is_err());
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    let other = two.node.register("two", "other", calls()).expect("a name of its own");
    assert_eq!(two.node.withdraw(other), Ok(true));
    two.node.register("two", "other", calls()).expect("a name of its own");
    two.node.close(LIMIT).expect("nothing is under way");
    assert_eq!(dropped.load(Ordering::SeqCst), 4);
}

/// Failures are told while others register: the two have locks of their own.
#[test]
fn quiet_and_register_do_not_wait_for_each_other() {
    let _turn = turn();
    let (one, two) = (Library::open("one"), Library::open("two"));
    let over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Ordering::SeqCst) == 0 {
                let id = two.node.register("comes", "and goes", |_| {}).expect("its own name");
                assert_eq!(two.node.withdraw(id), Ok(true));
            }
        });
        let handler = HandlerId::of("comes", "and goes");
        let mut refused = 0;
        for _ in 0..20_000 {
            if one.node.try_request(0, handler, [0; 4]).is_ok() {
                one.node.progress();
                refused += u32::from(one.node.quiet().is_err());
            }
        }
        over.store(1, Ordering::SeqCst);
        println!("{refused} refused");
    });
    one.node.request(0, one.handler, [1; 4]).expect("it goes on");
    one.counts(1);
}

/// A number that a client leaves behind with a failure on it tells the next one nothing.
#[test]
fn a_client_begins_without_others_failures() {
    let _turn = turn();
    let stays = Library::open("stays");
    for _ in 0..300 {
        let goes = Node::shared(config()).expect("a share");
        goes.quiet().expect("nothing of its own has failed");
        // SAFETY: nothing is mapped there, so nobody has anything there that could be harmed.
        let hole = unsafe { standpipe::Remote::raw(0, 8) };
        drop(goes.put_nb(hole, vec![1u8; 8]));
        assert!(goes.has_failed());
    }
    stays.node.quiet().expect("nothing of its own has failed");
}

#[test]
fn a_forked_child_shares_nothing() {
    let _turn = turn();
    let one = Library::open("one");
    // SAFETY: the child calls what is refused in a forked child, opens a node of its own, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = Node::shared(config()).map(drop).map_err(|error| error.code()) == Err(Code::Forked);
        let refused = one.node.register("a", "b", |_| {}).map_err(|error| error.code()) == Err(Code::Forked);
        let own = Node::open(config()).is_ok();
        drop(one);
        // SAFETY: it ends this child at once, and runs nothing of what the parent has registered.
        unsafe { libc::_exit(i32::from(!(forked && refused && own))) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and the status lies on this thread's stack.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    one.node.request(0, one.handler, [1; 4]).expect("it goes on");
    one.counts(1);
}

/// Two libraries in each of three processes: each meets its own, in an order of its own.
#[test]
fn libraries_of_a_job_meet_their_own() {
    for setting in ["shm", "ofi:tcp"] {
        if setting != "shm" && support::network().is_none() {
            continue;
        }
        Heard::default().run_well(job_of(3, "libraries").env("STANDPIPE_TRANSPORT", setting));
    }
}

fn libraries() {
    let config = || Config::from_env().expect("settings").timeout(LIMIT);
    let main = Node::shared(config()).expect("a share");
    let (rank, size) = (main.rank(), main.size());
    let library = |name: &'static str, rounds: u64| {
        let node = Node::shared(config()).expect("a share");
        let count = Arc::new(AtomicU64::new(0));
        let here = Arc::clone(&count);
        let add = move |call: &mut standpipe::Call<'_>| _ = here.fetch_add(call.args()[0], Ordering::SeqCst);
        let handler = node.register(name, "add", add).expect("a name of its own");
        let world = node.world_of(name).expect("room");
        for round in 1..=rounds {
            world.barrier().expect("its own meet");
            (0..size).for_each(|peer| node.request(peer, handler, [round; 4]).expect("it is there"));
            let expected = u64::from(size) * round * (round + 1) / 2;
            node.wait_until(|| count.load(Ordering::SeqCst) == expected).expect("in time");
            node.quiet().expect("nothing has failed");
        }
        world.barrier().expect("its own meet");
        node.close(LIMIT).expect("nothing is under way");
    };
    std::thread::scope(|scope| {
        let threads = [("first", 30), ("second", 50)];
        // They begin in another order at each rank.
        for at in 0..2 {
            let (name, rounds) = threads[(at + rank as usize) % 2];
            scope.spawn(move || library(name, rounds));
        }
    });
    main.barrier().expect("all are there");
    say("done");
}

/// A job whose processes open their nodes again and again, by themselves or shared; the last time one is
/// killed.
#[test]
fn ranks_that_have_closed_their_nodes_meet_again() {
    for setting in ["shm", "ofi:tcp"] {
        if setting != "shm" && support::network().is_none() {
            continue;
        }
        let heard = Heard::default();
        let outcome = heard.run(job_of(3, "again").keep_going(true).env("STANDPIPE_TRANSPORT", setting));
        let ends: Vec<End> = outcome.ranks.iter().map(|rank| rank.end).collect();
        assert_eq!(ends, [End::Exited(0), End::Killed(libc::SIGKILL), End::Exited(0)], "{}", heard.all());
        for rank in [0, 2] {
            assert_eq!(heard.said(rank), ["5 rounds", "lost 1"], "{}", heard.all());
        }
    }
}

fn again() {
    let config = || Config::from_env().expect("settings").timeout(LIMIT).heap_bytes(4 << 20);
    for round in 0..5_u64 {
        let node = if round % 2 == 0 { Node::open(config()) } else { Node::shared(config()) };
        let node = node.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let count = Arc::new(AtomicU64::new(0));
        let here = Arc::clone(&count);
        let add = move |call: &mut standpipe::Call<'_>| _ = here.fetch_add(call.args()[0], Ordering::SeqCst);
        let handler = node.register("again", "add", add).expect("a name of its own");
        node.barrier().expect("all come");
        assert!(node.lost_peers().is_empty(), "those of earlier rounds are not of this one");
        for peer in 0..node.size() {
            node.request(peer, handler, [round + 1; 4]).expect("it is there");
        }
        node.wait_until(|| count.load(Ordering::SeqCst) == 3 * (round + 1)).expect("in time");
        node.barrier().expect("all come");
        if round == 4 {
            say("5 rounds");
            if node.rank() == 1 {
                // SAFETY: it sends a signal to this very process, which ends by it as the test wants.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            node.wait_until(|| node.is_lost(1)).expect("in time");
            return say("lost 1");
        }
        match round % 3 {
            0 => node.close(LIMIT).expect("nothing is under way"),
            _ => drop(node),
        }
    }
}

#[test]
fn child() {
    match role().as_deref() {
        Some("again") => again(),
        Some("libraries") => libraries(),
        Some(other) => panic!("no role {other}"),
        None => {}
    }
}

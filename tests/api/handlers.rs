//! Handlers that come and go while the node is open, and what comes of messages for those that are not there.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{Code, Error, HandlerId, ProgressThread, Rank};

use super::*;

/// Two names of one hash, found by trying.
const COLLIDING: [&str; 2] = ["32170", "87466"];
const LATE: HandlerId = HandlerId::of("late", "note");

/// Registers a handler that adds its first argument to a sum.
fn adds(node: &Node, namespace: &str, name: &str) -> Arc<AtomicU64> {
    let sum = Arc::new(AtomicU64::new(0));
    let here = Arc::clone(&sum);
    let id = node.register(namespace, name, move |call| _ = here.fetch_add(call.args()[0], Ordering::SeqCst));
    assert_eq!(id, Ok(HandlerId::of(namespace, name)));
    sum
}

fn is(node: &Node, sum: &AtomicU64, expected: u64) {
    node.wait_until(|| sum.load(Ordering::SeqCst) == expected).expect("the messages come");
}

fn no_such(peer: Rank, handler: &str) -> Error {
    Error::NoSuchHandler { peer, handler: handler.to_owned() }
}

/// Who sends has not the handler itself.
#[test]
fn a_handler_is_there_once_it_is_registered() {
    job(
        2,
        |_| config(),
        |node| {
            node.connect(right_of(node)).expect("it is there");
            node.barrier().expect("barrier");
            if node.rank() == 1 {
                node.barrier().expect("barrier");
                let sum = adds(node, "late", "note");
                node.barrier().expect("barrier");
                is(node, &sum, 1 + 10 + 100);
                return node.barrier().expect("barrier");
            }
            let number = format!("{:#010x}", LATE.number());
            assert_eq!(node.request(1, LATE, [1; 4]), Err(no_such(1, &number)));
            assert_eq!(node.has_handler(1, LATE), Ok(false));
            let error = node.request_medium(1, LATE, [1; 4], b"payload").expect_err("it is not there");
            assert_eq!((error.code(), error.code().number()), (Code::NoSuchHandler, 36));
            node.barrier().expect("barrier");
            node.barrier().expect("barrier");
            assert_eq!(node.has_handler(1, LATE), Ok(true));
            node.request(1, LATE, [1; 4]).expect("it is there");
            node.request_medium(1, LATE, [10; 4], b"payload").expect("it is there");
            assert_eq!(node.try_request(1, LATE, [100; 4]), Ok(true));
            node.barrier().expect("barrier");
            node.quiet().expect("nothing was refused");
        },
    );
}

/// What cannot wait to ask is refused by the receiver, whoever it is.
#[test]
fn what_is_refused_is_told_to_whom_it_was_of() {
    job(
        2,
        |_| config(),
        |node| {
            let sum = adds(node, "short", "lived");
            node.connect(right_of(node)).expect("it is there");
            node.barrier().expect("barrier");
            let handler = HandlerId::of("short", "lived");
            if node.rank() == 1 {
                is(node, &sum, 1);
                assert_eq!(node.withdraw(handler), Ok(true));
                assert_eq!(node.withdraw(handler), Ok(false));
                node.barrier().expect("barrier");
                return node.barrier().expect("barrier");
            }
            node.request(1, handler, [1; 4]).expect("it is there");
            node.barrier().expect("barrier");
            assert!(!node.has_failed());
            // It was there just now: where that shows at once, nothing is sent.
            let told = node.try_request(1, handler, [1; 4]).and_then(|is_sent| {
                assert!(is_sent, "there is room");
                node.wait_until(|| node.has_failed()).expect("it is told");
                node.quiet()
            });
            assert_eq!(told, Err(no_such(1, "\"short/lived\"")));
            assert!(!node.has_failed());
            node.quiet().expect("it is told once");
            assert_eq!(node.request(1, handler, [1; 4]), Err(no_such(1, "\"short/lived\"")));
            assert_eq!(sum.load(Ordering::SeqCst), 0, "none ran here");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn a_reply_to_no_handler_fails() {
    let seen = Arc::new(Mutex::new(None));
    let configure = |_| {
        let seen = Arc::clone(&seen);
        config().handler("ask", move |call| {
            let reply = call.reply(HandlerId::of("nowhere", "answer"), [0; 4]);
            *seen.lock().expect("no panic") = Some(reply);
        })
    };
    job(2, configure, |node| {
        let told = || seen.lock().expect("no panic").is_some();
        if node.rank() == 0 {
            node.request(1, node.handler("ask").expect("registered"), [0; 4]).expect("it is there");
            return node.barrier().expect("barrier");
        }
        node.wait_until(told).expect("it has run");
        let number = format!("{:#010x}", HandlerId::of("nowhere", "answer").number());
        let reply = seen.lock().expect("no panic").take().expect("it has run");
        // A peer that shared memory does not reach refuses it later.
        let refused = reply.and_then(|()| {
            node.wait_until(|| node.has_failed()).expect("it is told");
            node.quiet()
        });
        assert_eq!(refused, Err(no_such(0, &number)));
        node.barrier().expect("barrier");
    });
}

#[test]
fn of_two_names_with_one_hash_the_first_is_taken() {
    let node = Node::open_in(config(), None).expect("a node");
    let [first, second] = COLLIDING;
    assert_eq!(HandlerId::of("collide", first).number(), HandlerId::of("collide", second).number());
    adds(&node, "collide", first);
    for (again, shown) in [(second, "\"collide/32170\" has the same hash"), (first, "it is already")] {
        let error = node.register("collide", again, |_| {}).expect_err("it is taken");
        assert!(error.to_string().ends_with(shown), "{error}");
        assert_eq!(error.code(), Code::Taken);
    }
    let first = HandlerId::of("collide", first);
    let second = HandlerId::of("collide", second);
    assert_eq!((node.withdraw(second), node.withdraw(first)), (Ok(false), Ok(true)));
    adds(&node, "collide", COLLIDING[1]);
    let differs = node.request(0, first, [0; 4]);
    assert!(matches!(differs, Err(Error::HandlersDiffer { peer: 0, .. })), "{differs:?}");
    node.request(0, second, [0; 4]).expect("it is there");
}

/// `connect` tells of handlers that collide; of one that comes later, each use is refused.
#[test]
fn two_names_with_one_hash_at_two_ranks_are_found() {
    let open = || {
        let broker = Broker::start(2).expect("a broker");
        let nodes = [0, 1].map(|rank| Node::open_in(config(), Some(&broker.env(rank))).expect("a node"));
        (broker, nodes)
    };
    let [first, second] = COLLIDING.map(|name| HandlerId::of("collide", name));
    let (_broker, nodes) = open();
    for (node, name) in nodes.iter().zip(COLLIDING) {
        adds(node, "collide", name);
    }
    let error = nodes[0].connect(1).expect_err("they collide");
    assert!(matches!(error, Error::HandlersDiffer { peer: 1, .. }), "{error}");
    assert_eq!(error.code(), Code::HandlersDiffer);
    assert!(error.to_string().contains("collide/32170"), "{error}");
    // They are connected all the same: what does not collide goes between them.
    let sum = adds(&nodes[1], "plain", "adds");
    std::thread::scope(|scope| {
        scope.spawn(|| is(&nodes[1], &sum, 5));
        nodes[0].request(1, HandlerId::of("plain", "adds"), [5; 4]).expect("it is there");
    });

    let (_broker, nodes) = open();
    nodes[0].connect(1).expect("it is there");
    adds(&nodes[1], "collide", COLLIDING[1]);
    let over = AtomicU64::new(0);
    let is_over = || over.load(Ordering::SeqCst) == 1;
    let error = std::thread::scope(|scope| {
        // Over a network it is asked.
        scope.spawn(|| nodes[1].wait_until(is_over));
        let error = nodes[0].request(1, first, [0; 4]);
        nodes[0].request(1, second, [0; 4]).expect("it is there");
        over.store(1, Ordering::SeqCst);
        nodes[1].wake();
        error
    });
    assert!(matches!(error, Err(Error::HandlersDiffer { peer: 1, .. })), "{error:?}");
}

#[test]
fn names_and_numbers_have_limits() {
    let node = Node::open_in(config(), None).expect("a node");
    let long = "x".repeat(255);
    adds(&node, &long, &long);
    let cases = [("a", String::new()), ("a", "x".repeat(256)), ("a", "b\0c".to_owned())];
    for (namespace, name) in cases {
        let error = node.register(namespace, &name, |_| {}).expect_err("no such name");
        assert!(matches!(error, Error::BadName { .. }) && error.code() == Code::Name, "{error}");
    }
    assert!(node.register(&"x".repeat(256), "a", |_| {}).is_err());
    let mut registered = 1;
    let full = loop {
        match node.register("many", &registered.to_string(), |_| {}) {
            Ok(_) => registered += 1,
            Err(Error::HandlerTaken { .. }) => panic!("two of so few have one hash: choose other names"),
            Err(error) => break error,
        }
    };
    assert_eq!((registered, full), (4096, Error::HandlersFull { most: 4096 }));
    for number in [1, 4095] {
        node.request(0, HandlerId::of("many", &number.to_string()), [0; 4]).expect("it is there");
    }
    assert_eq!(node.withdraw(HandlerId::of("many", "7")), Ok(true));
    node.register("many", "another", |_| {}).expect("there is room again");
}

/// Also while one runs, on another thread or this one; and what a handler holds goes with it.
#[test]
fn handlers_are_registered_while_others_run() {
    let node = Node::open_in(config().progress(ProgressThread::On), None).expect("a node");
    let (in_it, let_go) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (told, waits) = (Arc::clone(&in_it), Arc::clone(&let_go));
    let slow = node.register("slow", "one", move |call| {
        let own = call.node().register("from", "within", |_| {});
        assert_eq!(own, Ok(HandlerId::of("from", "within")));
        assert_eq!(call.node().withdraw(HandlerId::of("from", "within")), Ok(true));
        told.store(1, Ordering::SeqCst);
        while waits.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    });
    let slow = slow.expect("registered");
    node.request(0, slow, [0; 4]).expect("it is there");
    std::thread::scope(|scope| {
        scope.spawn(|| node.wait_until(|| let_go.load(Ordering::SeqCst) == 1));
        while in_it.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let sum = adds(&node, "while", "it runs");
        node.request(0, HandlerId::of("while", "it runs"), [5; 4]).expect("it is there");
        assert_eq!(node.withdraw(slow), Ok(true));
        let_go.store(1, Ordering::SeqCst);
        node.wake();
        is(&node, &sum, 5);
        // The thread that ran it lets go of it a moment after it ends.
        let until = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&let_go) > 1 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&let_go), 1, "the handler that is gone holds nothing");
    });
}

//! What nodes that nobody launched do, whatever they reach each other by: real processes that find each other
//! by their addresses, come, leave, die and come again.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use standpipe::{ConnectError, Error, Exposure, GlobalPtr, Node, Rank, Remote, Rights, Signal};

use crate::members::{Member, Other, PRIVATE, config};
use crate::support::{LIMIT, eventually, hex, pattern};

/// Both of two processes reach all that the other has; then one leaves.
fn all_that_two_can_do(role: &str) {
    let here = Member::new(config());
    let mut other = Other::start(role);
    let peer = here.node.connect_to(&other.address).expect("connected");
    assert_eq!((peer, here.node.connect_to(&other.address).expect("connected")), (1, 1));
    assert_eq!((here.node.peers(), here.node.rank(), here.node.size()), (vec![1], 0, 1));

    here.node.put(other.word(peer, 3), 42).expect("put");
    assert_eq!(here.node.fetch_add(other.word(peer, 3), 1), Ok(42));
    assert_eq!(here.node.get(other.word(peer, 3)), Ok(43));
    assert_eq!(other.order("read 3", "word"), "43");

    let counted = Signal::add(other.word(peer, 7), 2);
    here.node.put_signal(other.word(peer, 6), &9_u64.to_le_bytes(), counted).expect("put");
    assert_eq!(here.node.get(other.word(peer, 7)), Ok(2));
    assert_eq!((other.order("read 6", "word"), other.order("read 7", "word")), ("9".into(), "2".into()));

    let bytes = pattern(1, PRIVATE);
    here.node.put_bytes(other.private(peer), &bytes).expect("put");
    here.node.quiet().expect("complete");
    let mut back = vec![0_u8; PRIVATE];
    here.node.get_bytes(other.private(peer), &mut back).expect("got");
    assert!(back == bytes, "other bytes than were put");
    assert_eq!(other.order("private", "private"), hex(&bytes[..64]));

    for tag in [1, 10, 100] {
        here.ask(peer, tag).expect("answered");
    }
    assert_eq!((here.answered.load(Ordering::SeqCst), other.order("noted", "noted").as_str()), (111, "111"));

    // The other way round: this node has the number 1 there, and need make no call but to answer messages.
    let mine = hex(here.node.address().expect("a node that listens").as_bytes());
    assert_eq!(other.order(&format!("connect {mine}"), "peer"), "1");
    let offset = here.array.ptr(5).offset();
    assert_eq!(other.order(&format!("put 1 {offset} 7"), "put"), "Ok(())");
    assert_eq!(here.array.read(5), 7);
    writeln!(other.orders, "ask 1 5").expect("it reads");
    here.node.wait_until(|| here.noted.load(Ordering::SeqCst) == 5).expect("told");
    assert_eq!(other.hear("ask"), "Ok(())");

    writeln!(other.orders, "end").expect("it reads");
    assert!(eventually(|| here.node.lost_peers() == [peer]));
    assert_eq!(here.node.get(other.word(peer, 3)), Err(Error::PeerLost { peer }));
    assert_eq!(here.ask(peer, 1), Err(Error::PeerLost { peer }));
    assert!(here.node.peers().is_empty());
    // What this node does with itself goes on.
    here.node.barrier().expect("alone");
}

pub(crate) fn two_processes_reach_each_other() {
    all_that_two_can_do("serve");
}

pub(crate) fn two_processes_reach_each_other_by_message() {
    all_that_two_can_do("by message");
}

pub(crate) fn one_that_is_killed_is_lost_within_100_ms() {
    let here = Member::new(config());
    let mut took = Vec::new();
    for number in 1..=5 {
        let mut other = Other::start("serve");
        assert_eq!(here.node.connect_to(&other.address).expect("connected"), number);
        here.ask(number, 1).expect("answered");
        let word = other.word(number, 0);
        // Only to know that it has nothing else to do: it says so.
        other.order("read 0", "word");
        let killed = Instant::now();
        other.signal(rustix::process::Signal::KILL);
        let lost = loop {
            match here.node.put(word, 1) {
                Ok(()) => assert!(killed.elapsed() < LIMIT, "never lost"),
                Err(error) => break error,
            }
        };
        took.push(killed.elapsed());
        assert_eq!(lost, Error::PeerLost { peer: number });
    }
    println!("lost after {took:?}");
    // Others work beside this test: the best of five is what the library takes.
    assert!(took.iter().min().expect("five") < &Duration::from_millis(100), "{took:?}");
}

/// As a program does that hands its work to processes of its own, by `fork` alone.
pub(crate) fn one_that_is_killed_is_lost_though_a_child_of_its_lives_on() {
    let here = Member::new(config());
    let mut other = Other::start("serve");
    let peer = here.node.connect_to(&other.address).expect("connected");
    here.ask(peer, 1).expect("answered");
    other.order("fork", "forked");
    let killed = Instant::now();
    other.signal(rustix::process::Signal::KILL);
    let mut event = here.node.get_nb(other.private(peer), vec![0_u8; PRIVATE]);
    // Far less than the silence after which anybody is lost.
    while event.wait_at_most(Duration::from_millis(100)) == Ok(false) {
        assert!(killed.elapsed() < Duration::from_secs(20), "its child keeps it alive");
    }
    while here.node.lost_peers() != [peer] {
        assert!(killed.elapsed() < Duration::from_secs(20), "its child keeps it alive");
        here.node.progress();
    }
    let called = Instant::now();
    let error = here.node.connect_to(&other.address).expect_err("nobody is there");
    assert!(matches!(error, ConnectError::Gone | ConnectError::Unreachable { .. }), "{error}");
    assert!(called.elapsed() < Duration::from_secs(10), "{error} after {:?}", called.elapsed());
}

pub(crate) fn whoever_waits_for_one_that_is_killed_is_told() {
    let here = Member::new(config().attach_never());
    let other = Other::start("idle");
    let peer = here.node.connect_to(&other.address).expect("connected");
    // What goes by message to one that is stopped waits.
    other.stop();
    let mut event = here.node.get_nb(other.private(peer), vec![0_u8; PRIVATE]);
    assert_eq!(event.wait_at_most(Duration::from_millis(20)), Ok(false));
    let killed = Instant::now();
    other.signal(rustix::process::Signal::KILL);
    let (result, _) = event.wait();
    assert_eq!(result, Err(Error::PeerLost { peer }));
    println!("told after {:?}", killed.elapsed());
}

pub(crate) fn others_join_at_any_time_and_one_that_is_started_again_is_another() {
    let here = Member::new(config());
    let (mut first, mut second) = (Other::start("serve"), Other::start("serve"));
    let old = here.node.connect_to(&first.address).expect("connected");
    here.node.put(first.word(old, 0), 1).expect("put");

    // A third joins both, and they go on.
    let to_first = hex(&first.address);
    assert_eq!(second.order(&format!("connect {to_first}"), "peer"), "1");
    let offset = first.array;
    assert_eq!(second.order(&format!("put 1 {offset} 5"), "put"), "Ok(())");
    assert_eq!(here.node.get(first.word(old, 0)), Ok(5));
    let third = here.node.connect_to(&second.address).expect("connected");
    assert_eq!(third, old + 1);
    here.ask(third, 1).expect("answered");

    // One dies; its successor may have its array at the very same offset.
    let gone = std::mem::replace(&mut first, Other::start("serve"));
    gone.signal(rustix::process::Signal::KILL);
    assert!(eventually(|| here.node.lost_peers() == [old]));
    let new = here.node.connect_to(&first.address).expect("connected");
    assert_eq!(new, third + 1);
    assert_eq!(gone.array, first.array);
    let lost = Error::PeerLost { peer: old };
    assert_eq!(here.node.put(gone.word(old, 0), 9), Err(lost.clone()));
    assert_eq!(here.node.get(gone.word(old, 0)), Err(lost.clone()));
    assert_eq!(here.node.fetch_add(gone.word(old, 0), 9), Err(lost.clone()));
    assert_eq!(here.node.put_bytes(gone.private(old), &[9]), Err(lost.clone()));
    assert_eq!(here.ask(old, 9), Err(lost));
    assert!(matches!(here.node.connect_to(&gone.address), Err(ConnectError::Gone)));
    assert_eq!((first.order("read 0", "word"), first.order("noted", "noted")), ("0".into(), "0".into()));

    here.node.put(first.word(new, 0), 2).expect("put");
    here.ask(new, 3).expect("answered");
    here.ask(third, 3).expect("the others go on");
    assert_eq!(here.node.peers(), [third, new]);
    assert_eq!(second.order("put 1 0 1", "put"), "Err(peer 1 is lost)");
}

pub(crate) fn many_that_come_and_go_at_once_are_each_heard_and_missed() {
    const LINES: u32 = 3;
    const ROUNDS: u32 = 4;
    let here = Member::new(config());
    let mine = hex(here.node.address().expect("a node that listens").as_bytes());
    let come_and_go = &|line: u32| {
        for round in 0..ROUNDS {
            let mut other = Other::start("serve");
            assert_eq!(other.order(&format!("connect {mine}"), "peer"), "1");
            let (index, value) = (line as usize, u64::from(round) + 1);
            let offset = here.array.ptr(index).offset();
            assert_eq!(other.order(&format!("put 1 {offset} {value}"), "put"), "Ok(())");
            assert_eq!(here.array.read(index), value);
            assert_eq!(other.order("ask 1 1", "ask"), "Ok(())");
            // Every other one is killed, in the middle of a question.
            writeln!(other.orders, "{}", if (line + round).is_multiple_of(2) { "end" } else { "ask 1 0" })
                .expect("it reads");
        }
    };
    std::thread::scope(|scope| {
        let lines: Vec<_> = (0..LINES).map(|line| scope.spawn(move || come_and_go(line))).collect();
        while !lines.iter().all(|line| line.is_finished()) {
            here.node.wait_until(|| lines.iter().all(|line| line.is_finished())).expect("nobody hangs");
        }
    });
    let all: Vec<Rank> = (1..=LINES * ROUNDS).collect();
    assert!(eventually(|| here.node.lost_peers() == all), "{:?}", here.node.lost_peers());
    assert_eq!(here.noted.load(Ordering::SeqCst), u64::from(LINES * ROUNDS));
    assert!(here.node.peers().is_empty());
}

pub(crate) fn one_that_is_stopped_does_not_hold_up_who_calls_it() {
    let here = Member::new(config());
    let other = Other::start("idle");
    other.stop();
    let begun = Instant::now();
    let error = here.node.within(Duration::from_millis(100)).connect_to(&other.address).expect_err("stopped");
    assert!(matches!(error, ConnectError::Timeout { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    other.signal(rustix::process::Signal::CONT);
    let peer = here.node.connect_to(&other.address).expect("it goes on");
    here.node.put(other.word(peer, 0), 1).expect("put");
}

/// Nodes need not have the same handlers, but none may give one's number to another.
pub(crate) fn colliding_handlers_make_no_peers() {
    let open = |name: &str| {
        let node = Node::open_in(config(), None).expect("a node");
        node.register("collide", name, |_| {}).expect("a name of its own");
        node
    };
    let (plain, here) = (open("32170"), open("87466"));
    let address = here.address().expect("a node that listens");
    let text = plain.connect_to(address).expect_err("they collide").to_string();
    assert!(text.contains("another handler of the number"), "{text}");
    assert!(here.peers().is_empty() && plain.peers().is_empty());
    let other = open("another");
    let peer = other.connect_to(here.address().expect("a node that listens")).expect("they do not collide");
    assert_eq!(other.has_handler(peer, standpipe::HandlerId::of("collide", "87466")), Ok(true));
}

pub(crate) fn only_what_is_exposed_is_reached() {
    let open = || Node::open_in(config().exposure(Exposure::Auto), None).expect("a node");
    let (here, there) = (open(), open());
    let peer = here.connect_to(there.address().expect("a node that listens")).expect("connected");
    let memory: Vec<AtomicU64> = (0..100).map(AtomicU64::new).collect();
    let addr = memory.as_ptr().expose_provenance() as u64;
    // SAFETY: atomic words, which take writes at any time and stay until both nodes are gone.
    let at = |word: u64| unsafe { Remote::raw(peer, addr + 8 * word) };
    let refused = |word: u64, rights| Err(Error::NotExposed { peer, addr: addr + 8 * word, len: 8, rights });
    assert_eq!(here.get_bytes(at(5), &mut [0; 8]), refused(5, Rights::Read), "nothing is exposed at first");
    let exposed = there.expose(&raw const memory[10..20], Rights::ReadWrite);
    assert_eq!(here.put_bytes(at(10), &77_u64.to_le_bytes()), Ok(()));
    let mut word = [0; 8];
    assert_eq!((here.get_bytes(at(10), &mut word), u64::from_le_bytes(word)), (Ok(()), 77));
    assert_eq!(here.put_bytes(at(9), &[1; 8]), refused(9, Rights::Write));
    drop(exposed);
    assert_eq!(here.put_bytes(at(10), &[1; 8]), refused(10, Rights::Write));
    assert_eq!(memory.iter().map(|word| word.load(Ordering::SeqCst)).sum::<u64>(), 99 * 50 - 10 + 77);
    let shared = there.heap().alloc_from(&[3_u64]).expect("room");
    assert_eq!(
        here.get(GlobalPtr::<u64>::new(peer, shared.ptr(0).offset())),
        Ok(3),
        "heaps are there for that"
    );
}

pub(crate) fn room_for_peers_ends_with_the_number() {
    let node = |peers| Node::open_in(config().peers_max(peers), None).expect("a node");
    let (one, two, none) = (node(1), node(2), node(0));
    let other = node(9);
    let address = other.address().expect("a node that listens");
    assert_eq!(one.connect_to(&address).expect("connected"), 1);
    assert_eq!(two.connect_to(&address).expect("connected"), 1);
    let error = two.connect_to(one.address().expect("a node that listens")).expect_err("full there");
    assert!(error.to_string().contains("room for 1 peers"), "{error}");
    let error = one.connect_to(two.address().expect("a node that listens")).expect_err("full here");
    assert!(matches!(error, ConnectError::Full { peers: 1 }), "{error}");
    let error = none.connect_to(&address).expect_err("no room at all");
    assert!(matches!(error, ConnectError::Full { peers: 0 }), "{error}");
}

//! Operations that end otherwise than by completing: deadlines, cancellation, detachment.

use engine::{Direction, MemId, OpError, OpId, Outcome, Place, Rank};

use super::copies::BOTH;
use crate::bench::{Bench, Make, pattern, piece};
use crate::cluster::Cluster;

const LEN: usize = 30_000;

/// Ends an operation of rank 0 that rank 1 does not answer, by `end`, and checks that nothing happens to the
/// buffer when rank 1 answers after all.
fn end_and_check<C: Cluster>(make: Make<'_, C>, end: impl Fn(&mut Bench<C>, OpId)) {
    for direction in BOTH {
        for rounds in [0, 10, 200] {
            let mut bench = Bench::new(make, 2);
            let here = bench.filled(0, MemId::Space, &pattern(1, LEN));
            let there = bench.filled(1, MemId::Space, &pattern(2, LEN));
            bench.sleep(1);
            let deadline = Some(bench.cluster.now());
            let id = bench.node(0).transfer(1, direction, &[piece(there, here, LEN)], deadline);
            for _ in 0..rounds {
                bench.round();
            }
            if bench.node(0).is_done(id) {
                testbed::skip(format_args!(
                    "ending a {direction:?} before its peer answers: it needs no answer"
                ));
                continue;
            }
            end(&mut bench, id);
            assert_eq!(bench.node(0).in_flight(), 0);
            let timeout = Some(Err(OpError::Timeout { peer: 1 }));
            // Late answers find the operation in the node's table, or not.
            if rounds == 0 {
                assert_eq!(bench.node(0).outcome(id), timeout);
                buffer_is_free(&mut bench, direction, here, there);
            } else {
                buffer_is_free(&mut bench, direction, here, there);
                assert_eq!(bench.node(0).outcome(id), timeout);
            }
        }
    }
}

/// Rank 0's buffer is its own again: what rank 1 still does neither writes to it nor sees what it holds now.
fn buffer_is_free<C: Cluster>(bench: &mut Bench<C>, direction: Direction, here: Place, there: Place) {
    bench.cluster.poke(0, here, &vec![0xee; LEN]);
    bench.wake(1);
    bench.settle();
    assert!(bench.bytes(0, here, LEN) == vec![0xee; LEN], "a late answer wrote to a buffer given back");
    let found = bench.bytes(1, there, LEN);
    let (put, before) = (pattern(1, LEN), pattern(2, LEN));
    for (index, byte) in found.into_iter().enumerate() {
        let was_sent = direction == Direction::Put && byte == put[index];
        assert!(was_sent || byte == before[index], "byte {index} came from a buffer given back");
    }
    let back = bench.memory(0, MemId::Space, LEN);
    assert_eq!(bench.transfer(0, 1, Direction::Get, &[piece(there, back, LEN)]), Ok(0));
}

pub(crate) fn a_late_answer_touches_no_buffer<C: Cluster>(make: Make<'_, C>) {
    end_and_check(make, |bench, id| {
        let now = bench.cluster.now();
        assert_eq!(bench.node(0).expire(now), None);
        assert!(bench.node(0).is_done(id));
    });
}

pub(crate) fn a_cancelled_operation_touches_no_buffer<C: Cluster>(make: Make<'_, C>) {
    end_and_check(make, |bench, id| bench.node(0).cancel(id));
}

/// An operation that was given up at home may still write at its target: until that is over, the node is not
/// quiet, and after that nothing is written.
pub(crate) fn what_was_given_up_settles_before_the_node_is_quiet<C: Cluster>(make: Make<'_, C>) {
    for (mem, len) in [(MemId::Space, 40), (MemId::Space, LEN), (MemId::Heap, LEN), (MemId::Heap, 100_000)] {
        for by_deadline in [false, true] {
            let mut bench = Bench::new(make, 2);
            let here = bench.memory(0, MemId::Space, len);
            let there = bench.memory(1, mem, len);
            bench.cluster.poke(0, here, &vec![1; len]);
            // After two of them no key is left to ask for.
            for _ in 0..2 {
                let id = bench.node(0).transfer(1, Direction::Put, &[piece(there, here, len)], None);
                assert_eq!(bench.outcome(0, id), Ok(0));
            }
            bench.sleep(1);
            let now = bench.cluster.now();
            let id = bench.node(0).transfer(1, Direction::Put, &[piece(there, here, len)], Some(now + 1));
            if bench.node(0).is_done(id) {
                testbed::skip("settling: a put needs no answer here");
                return;
            }
            match by_deadline {
                true => _ = bench.node(0).expire(now + 1),
                false => bench.node(0).cancel(id),
            }
            assert_eq!(bench.node(0).outcome(id), Some(Err(OpError::Timeout { peer: 1 })));
            assert_eq!(bench.node(0).in_flight(), 0);
            let settles = bench.node(0).settles_with(1);
            assert_eq!(bench.node(0).is_quiet(), !settles);
            bench.wake(1);
            bench.until("it settles", |bench| bench.node(0).is_quiet());
            assert!(!bench.node(0).settles_with(1) && bench.node(0).settling() == 0);
            // The memory is somebody else's now.
            bench.cluster.poke(1, there, &vec![2; len]);
            bench.settle();
            let found = bench.bytes(1, there, len);
            assert!(found == vec![2; len], "a byte has come late, of {len} by deadline {by_deadline}");
        }
    }
}

pub(crate) fn deadlines_are_told_in_turn<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    bench.sleep(1);
    let here = bench.memory(0, MemId::Space, LEN);
    let there = bench.memory(1, MemId::Space, LEN);
    let now = bench.cluster.now();
    let deadlines = [Some(now + 2000), None, Some(now + 1000), Some(now + 3000)];
    let ops = deadlines.map(|at| bench.node(0).transfer(1, Direction::Get, &[piece(there, here, LEN)], at));
    if ops.iter().any(|id| bench.node(0).is_done(*id)) {
        testbed::skip("deadlines: a get needs no answer here");
        return;
    }
    assert_eq!(bench.node(0).expire(now + 999), Some(now + 1000));
    assert_eq!(bench.node(0).expire(now + 1000), Some(now + 2000));
    assert_eq!(bench.node(0).in_flight(), 3);
    assert_eq!(bench.node(0).expire(now + 2999), Some(now + 3000));
    assert_eq!(bench.node(0).expire(now + 3000), None);
    bench.wake(1);
    let timeout: Outcome = Err(OpError::Timeout { peer: 1 });
    assert_eq!(ops.map(|id| bench.outcome(0, id)), [timeout, Ok(0), timeout, timeout]);
}

/// The earliest deadline is that of an operation that has ended: at that time nothing is late, and the next
/// one is told.
pub(crate) fn a_deadline_that_was_met_ends_nothing<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.memory(0, MemId::Space, LEN);
    let there = bench.memory(1, MemId::Space, LEN);
    let now = bench.cluster.now();
    let get = |bench: &mut Bench<C>, at| {
        bench.node(0).transfer(1, Direction::Get, &[piece(there, here, LEN)], Some(at))
    };
    let met = get(&mut bench, now + 1_000_000_000_000);
    assert_eq!(bench.outcome(0, met), Ok(0));
    bench.sleep(1);
    let late = get(&mut bench, now + 2_000_000_000_000);
    if bench.node(0).is_done(late) {
        testbed::skip("deadlines: a get needs no answer here");
        return;
    }
    assert_eq!(bench.node(0).expire(now + 1_000_000_000_000), Some(now + 2_000_000_000_000));
    assert!(!bench.node(0).is_done(late));
    assert_eq!(bench.node(0).expire(now + 2_000_000_000_000), None);
    bench.wake(1);
    assert_eq!(bench.outcome(0, late), Err(OpError::Timeout { peer: 1 }));
}

pub(crate) fn detached_operations_report_their_failure<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let bytes = pattern(1, LEN);
    let here = bench.filled(0, MemId::Space, &bytes);
    let there = bench.memory(1, MemId::Space, LEN);
    let id = bench.node(0).transfer(1, Direction::Put, &[piece(there, here, LEN)], None);
    bench.node(0).detach(id);
    idle(&mut bench, 0);
    assert_eq!(bench.node(0).outcome(id), None, "a detached operation's outcome is nobody's");
    assert_eq!(bench.node(0).take_detached_error(), None);
    assert!(bench.bytes(1, there, LEN) == bytes, "a detached put did not go on");

    let bad = Place::new(MemId::Heap, 1 << 46);
    for wait in [false, true] {
        let id = bench.node(0).transfer(1, Direction::Put, &[piece(bad, here, 8)], None);
        if wait {
            bench.until("a put to fail", |bench| bench.node(0).is_done(id));
        }
        bench.node(0).detach(id);
        idle(&mut bench, 0);
        let error = bench.node(0).take_detached_error();
        assert!(matches!(error, Some(OpError::Fault { peer: 1, .. })), "{error:?}");
        assert_eq!(bench.node(0).take_detached_error(), None, "one failure was told twice");
    }
}

/// The engine tells of each watched operation once, however it ends.
pub(crate) fn watched_operations_are_told_of_once<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.memory(0, MemId::Space, LEN);
    let there = bench.memory(1, MemId::Space, LEN);
    let bad = Place::new(MemId::Heap, 1 << 46);
    let mut watched = Vec::new();
    let mut told = Vec::new();
    for turn in 0..40 {
        let (direction, remote, len) = match turn % 4 {
            0 => (Direction::Put, there, LEN),
            1 => (Direction::Get, there, LEN),
            2 => (Direction::Get, bad, 8),
            _ => (Direction::Get, there, 8),
        };
        let id = bench.node(0).transfer(1, direction, &[piece(remote, here, len)], None);
        if bench.node(0).watch(id) {
            // Twice is once, and a cancelled one is told of, too.
            assert!(bench.node(0).watch(id));
            watched.push(id);
            if turn % 8 == 3 {
                bench.node(0).cancel(id);
            }
        } else {
            assert!(bench.node(0).is_done(id), "what cannot be watched has ended");
        }
    }
    bench.until("all to be told of", |bench| {
        if bench.node(0).has_ended() {
            bench.node(0).take_ended(&mut told);
        }
        told.len() >= watched.len()
    });
    idle(&mut bench, 0);
    bench.node(0).take_ended(&mut told);
    assert!(told.iter().all(|id| bench.node(0).outcome(*id).is_some()), "what is told of has an outcome");
    let by_number = |ids: &[OpId]| {
        let mut numbers: Vec<String> = ids.iter().map(|id| format!("{id:?}")).collect();
        numbers.sort();
        numbers
    };
    assert_eq!(by_number(&told), by_number(&watched));
    assert!(!told.iter().any(|id| bench.node(0).watch(*id)), "their outcomes are taken");
}

fn idle<C: Cluster>(bench: &mut Bench<C>, rank: Rank) {
    bench.until("operations to end", |bench| bench.node(rank).in_flight() == 0);
}

pub(crate) fn outcomes_are_taken_once<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let here = bench.memory(0, MemId::Space, 8);
    let there = bench.memory(1, MemId::Space, 8);
    let id = bench.node(0).transfer(1, Direction::Put, &[piece(there, here, 8)], None);
    assert_eq!(bench.outcome(0, id), Ok(0));
    assert!(!bench.node(0).is_done(id));
    assert_eq!(bench.node(0).outcome(id), None);
    // What comes next may take the same place in the node's table, and is still another operation.
    let next = bench.node(0).transfer(1, Direction::Put, &[piece(there, here, 8)], None);
    assert_ne!(next, id);
    bench.node(0).cancel(id);
    bench.node(0).detach(id);
    assert_eq!(bench.node(0).outcome(id), None);
    assert_eq!(bench.outcome(0, next), Ok(0));
}

/// A call about one peer neither waits for the others nor tells their failures.
pub(crate) fn peers_are_told_apart<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let here = bench.filled(0, MemId::Space, &pattern(1, LEN));
    let bad = Place::new(MemId::Heap, 1 << 46);
    let fails = |bench: &mut Bench<C>, peer: Rank, len: usize| {
        let id = bench.node(0).transfer(peer, Direction::Put, &[piece(bad, here, len)], None);
        bench.node(0).detach(id);
        idle(bench, 0);
    };
    let with = |told: Option<OpError>| match told {
        None => None,
        Some(OpError::Fault { peer, len, .. }) => Some((peer, len)),
        Some(other) => panic!("{other:?} where a fault was due"),
    };
    for (peer, len) in [(2, 8), (1, 8), (2, 16), (1, 16)] {
        fails(&mut bench, peer, len);
    }
    assert_eq!(with(bench.node(0).take_detached_error_with(1)), Some((1, 8)), "the first with it");
    assert_eq!(with(bench.node(0).take_detached_error_with(1)), None, "one failure was told twice");
    assert!(bench.node(0).has_detached_error());
    assert_eq!(with(bench.node(0).take_detached_error()), Some((2, 8)));
    assert!(!bench.node(0).has_detached_error());
    // A call about all peers tells the first failure, and drops the rest.
    fails(&mut bench, 1, 8);
    fails(&mut bench, 2, 8);
    assert_eq!(with(bench.node(0).take_detached_error()), Some((1, 8)));
    assert_eq!([0, 1, 2].map(|peer| with(bench.node(0).take_detached_error_with(peer))), [None; 3]);
    // Others who share the node have their own.
    bench.node(0).act_for(3);
    fails(&mut bench, 1, 8);
    bench.node(0).act_for(0);
    assert_eq!(with(bench.node(0).take_detached_error_with(1)), None);
    bench.node(0).act_for(3);
    assert_eq!(with(bench.node(0).take_detached_error_with(1)), Some((1, 8)));
    bench.node(0).act_for(0);

    bench.sleep(1);
    let start = |bench: &mut Bench<C>, peer| {
        let there = bench.memory(peer, MemId::Space, LEN);
        bench.node(0).transfer(peer, Direction::Put, &[piece(there, here, LEN)], None)
    };
    let ids: Vec<OpId> = [2, 1, 2, 1].map(|peer| start(&mut bench, peer)).into();
    let under_way = |bench: &mut Bench<C>, at: [usize; 2]| -> Vec<OpId> {
        at.iter().map(|at| ids[*at]).filter(|id| !bench.node(0).is_over(*id)).collect()
    };
    let same = |bench: &mut Bench<C>, peer: Rank, expected: Vec<OpId>| {
        let found: Vec<OpId> = bench.node(0).started(Some(peer)).ops().collect();
        let is_same = found.len() == expected.len() && expected.iter().all(|id| found.contains(id));
        assert!(is_same, "{found:?} with peer {peer} where {expected:?} were due");
    };
    for peer in [1, 2] {
        let expected = under_way(&mut bench, if peer == 1 { [1, 3] } else { [0, 2] });
        same(&mut bench, peer, expected);
    }
    bench.until("what is with the one that is awake", |bench| nothing_with(bench, 2));
    assert!(bench.node(0).is_over(ids[0]) && bench.node(0).is_over(ids[2]));
    let expected = under_way(&mut bench, [1, 3]);
    same(&mut bench, 1, expected);
    bench.node(0).act_for(3);
    same(&mut bench, 1, Vec::new());
    bench.node(0).act_for(0);
    bench.node(0).cancel(ids[1]);
    // The one that was given up stays, if it can still write.
    let mut expected: Vec<OpId> = under_way(&mut bench, [3, 3]).into_iter().take(1).collect();
    expected.extend(Some(ids[1]).filter(|_| bench.node(0).settles_with(1)));
    same(&mut bench, 1, expected);
    bench.wake(1);
    bench.until("the rest", |bench| nothing_with(bench, 1));
    assert!(bench.node(0).in_flight() == 0 && bench.node(0).is_quiet());
}

/// Whether nothing with a peer is under way or settles.
fn nothing_with<C: Cluster>(bench: &mut Bench<C>, peer: Rank) -> bool {
    let mut started = bench.node(0).started(Some(peer));
    bench.node(0).are_over(&mut started)
}

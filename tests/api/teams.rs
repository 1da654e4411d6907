//! Teams: what is refused, what others notice of it, and what events of collectives are good for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use standpipe::{Error, Exposure, HeapError, ProgressThread, Reduction, Team};

use super::*;

#[test]
fn teams_know_their_members() {
    job(
        3,
        |_| config(),
        |node| {
            let world = node.world();
            assert_eq!((world.rank(), world.size()), (node.rank(), 3));
            let reversed = world.split(Some(7), -i64::from(node.rank())).expect("a split").expect("a color");
            assert_eq!(reversed.rank(), 2 - node.rank());
            assert_eq!(reversed.job_rank(0), Some(2));
            assert_eq!(reversed.job_rank(3), None);
            let none = world.split((node.rank() == 1).then_some(0), 0).expect("a split");
            assert_eq!(none.map(|team| (team.rank(), team.size())), (node.rank() == 1).then_some((0, 1)));
            let nested = reversed.split(Some(u32::from(reversed.rank() > 0)), 0).expect("a split");
            let nested = nested.expect("a color");
            let mut values = [u64::from(node.rank()) + 1];
            nested.all_reduce(&mut values, Reduction::Sum).expect("an all-reduce");
            assert_eq!(values, [3], "rank 2 alone, and the two others");
            node.barrier().expect("barrier");
        },
    );
}

#[test]
fn what_cannot_be_done_is_refused() {
    let node = alone(config());
    let team = node.world();
    assert_eq!(team.broadcast(&mut [1u8], 1), Err(Error::NoSuchRoot { root: 1, size: 1 }));
    let length = |what| Err(Error::Length { what, given: 3, expected: 2 });
    assert_eq!(team.all_gather(&[1u8, 2], &mut [0; 3]), length("values in `into`"));
    assert_eq!(team.all_to_all_v(&[1u8, 2, 3], &[2], &mut [0; 2], &[2]), length("values in `from`"));
    assert_eq!(team.all_gather_nb(vec![1u8, 2]).wait(), (Ok(()), vec![1, 2]));
    let mut values = [1.5f64, -2.0];
    team.all_reduce(&mut values, Reduction::Max).expect("a team of one");
    assert_eq!(values, [1.5, -2.0]);
}

#[test]
fn a_handler_does_not_wait_for_a_team() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let node = alone(config().handler("asks", move |call| {
        let refused = call.node().world().barrier();
        told.lock().expect("not poisoned").send(refused).expect("somebody listens");
    }));
    let asks = node.handler("asks").expect("registered");
    node.request(0, asks, [0; 4]).expect("room");
    let mut refused = None;
    node.wait_until(|| {
        refused = refused.take().or(heard.try_recv().ok());
        refused.is_some()
    })
    .expect("the handler runs");
    assert!(matches!(refused, Some(Err(Error::InHandler { .. }))));
}

#[test]
fn who_gives_up_or_calls_something_else_is_named() {
    job(
        3,
        |_| config(),
        |node| {
            let world = node.world();
            let first = world.split(Some(0), 0).expect("a split").expect("a color");
            // Nobody else comes.
            if node.rank() == 1 {
                let late = first.within(Duration::from_millis(50)).barrier();
                assert!(matches!(late, Err(Error::Timeout { .. } | Error::WaitTimeout { .. })), "{late:?}");
            }
            node.barrier().expect("another matter");
            let over = first.barrier();
            assert!(
                matches!(
                    over,
                    Err(Error::Team { peer: 1, .. }) | Err(Error::Timeout { .. } | Error::WaitTimeout { .. })
                ),
                "{over:?}"
            );
            let second = world.split(Some(0), 0).expect("a split").expect("a color");
            let lengths = if node.rank() == 2 { 4 } else { 5 };
            let mut values = vec![1u32; lengths];
            let differs = second.all_reduce(&mut values, Reduction::Sum).and_then(|()| second.barrier());
            let Err(Error::Differ { ranks, what }) = differs else { panic!("{differs:?}") };
            assert!(ranks.contains(&2), "the other two called the same");
            let call = |rank| {
                let bytes = if rank == 2 { 16 } else { 20 };
                format!("rank {rank} began an all-reduce of {bytes} bytes by sum of u32")
            };
            assert_eq!(what, ranks.map(call).join(", "));
            node.barrier().expect("another matter");
        },
    );
}

#[test]
fn events_of_collectives_may_be_dropped() {
    for way in WAYS {
        let configure = |_| way.config().progress(ProgressThread::On);
        job(3, configure, |node| {
            let world = node.world();
            for round in 0..10u64 {
                drop(world.all_reduce_nb(vec![round; 40_000], Reduction::Sum));
                let combine = |into: &mut [u64], from: &[u64]| into.copy_from_slice(from);
                drop(world.all_reduce_with_nb(vec![round; 3], combine));
            }
            let (result, last) = world.all_gather_nb(vec![node.rank(); 5000]).wait();
            result.expect("an all-gather");
            assert!(
                last.chunks(5000).zip(0..).all(|(part, member)| part.iter().all(|value| *value == member))
            );
            world.barrier().expect("all before are over where they are needed");
            node.quiet().expect("nothing failed");
            node.barrier().expect("barrier");
        });
    }
}

#[test]
fn who_has_done_its_part_may_drop_the_team_before_others_come_to_it() {
    job(
        2,
        |_| config(),
        |node| {
            let pair = node.world().split(Some(0), 0).expect("a split").expect("a color");
            if node.rank() == 0 {
                pair.broadcast(&mut [7_u64; 3], 0).expect("given");
                drop(pair);
                tell(node, "dropped", [1, 0]);
            } else {
                ask(node, "dropped", 0);
                let mut values = [0_u64; 3];
                assert_eq!(pair.broadcast(&mut values, 0), Ok(()));
                assert_eq!(values, [7; 3]);
                let next = pair.barrier();
                assert!(matches!(next, Err(Error::Team { peer: 0, .. })), "{next:?}");
            }
            node.barrier().expect("barrier");
        },
    );
}

/// Small collectives of which some members poll, some have long slept, and some have events: all in one
/// order, with the same results, and other messages in between.
#[test]
fn small_collectives_are_the_same_however_members_wait() {
    for size in [2, 3, 4] {
        let heard = Arc::new(AtomicU64::new(0));
        let hears = Arc::clone(&heard);
        let configure = |_| {
            let hears = Arc::clone(&hears);
            config().handler("hears", move |_| _ = hears.fetch_add(1, Ordering::Relaxed))
        };
        job(size, configure, |node| {
            let (world, rank) = (node.world(), u64::from(node.rank()));
            let hears = node.handler("hears").expect("registered");
            for round in 0..400u64 {
                let mine = (round * 7 + rank) % 11;
                if mine == 0 {
                    // Longer than the others poll.
                    thread::sleep(Duration::from_micros(300));
                }
                if mine == 1 {
                    node.request((node.rank() + 1) % size, hears, [0; 4]).expect("room");
                }
                let sum = |what: fn(u64) -> u64| (0..u64::from(size)).map(what).sum::<u64>();
                match round % 4 {
                    0 if mine == 2 => world.barrier_nb().wait().0.expect("a barrier"),
                    0 => world.barrier().expect("a barrier"),
                    1 if mine == 3 => {
                        let (result, values) = world.all_reduce_nb(vec![round + rank], Reduction::Sum).wait();
                        result.expect("an all-reduce");
                        assert_eq!(values, [round * u64::from(size) + sum(|rank| rank)]);
                    }
                    1 => {
                        let mut values = [round + rank];
                        world.all_reduce(&mut values, Reduction::Sum).expect("an all-reduce");
                        assert_eq!(values, [round * u64::from(size) + sum(|rank| rank)]);
                    }
                    2 => {
                        let mut values = [rank as u8, round as u8, 1];
                        world.all_reduce(&mut values, Reduction::Max).expect("an all-reduce");
                        assert_eq!(values, [size as u8 - 1, round as u8, 1]);
                    }
                    _ => {
                        let mut values = [rank as f32, -1.0];
                        world.all_reduce(&mut values, Reduction::Sum).expect("an all-reduce");
                        assert_eq!(values, [sum(|rank| rank) as f32, -(size as f32)]);
                    }
                }
            }
            node.barrier().expect("barrier");
        });
        assert!(heard.load(Ordering::Relaxed) > 0);
    }
}

/// A member that leaves at once after its last collective has done its part: the others end it, and the next
/// one fails.
#[test]
fn who_leaves_after_a_small_collective_has_done_its_part() {
    for _ in 0..20 {
        job(
            3,
            |_| config(),
            |node| {
                let pair = node.world().split((node.rank() < 2).then_some(0), 0).expect("a split");
                let Some(pair) = pair else { return };
                for _ in 0..10 {
                    pair.barrier().expect("a barrier");
                }
                if node.rank() == 0 {
                    let mut values = [1u64];
                    pair.all_reduce(&mut values, Reduction::Sum).expect("both were there");
                    assert_eq!(values, [2]);
                    let over = pair.barrier();
                    assert!(
                        matches!(over, Err(Error::Team { peer: 1, .. } | Error::PeerLost { peer: 1 })),
                        "{over:?}"
                    );
                } else {
                    let mut values = [1u64];
                    pair.all_reduce(&mut values, Reduction::Sum).expect("both were there");
                }
            },
        );
    }
}

/// Members that name different roots hear so, at the latest from the next collective: also those that needed
/// nobody for the first.
#[test]
fn members_that_name_different_roots_hear_so() {
    type Call = fn(&Team, u32, &mut [u64]) -> Result<(), Error>;
    let broadcast: Call = |team, root, values| team.broadcast(values, root);
    let gather: Call = |team, root, values| team.gather(values, &mut vec![0; 4 * values.len()], root);
    let scatter: Call = |team, root, values| team.scatter(&vec![0; 4 * values.len()], values, root);
    let reduce: Call = |team, root, values| team.reduce(&vec![7; values.len()], values, root, Reduction::Sum);
    job(
        4,
        |_| config(),
        move |node| {
            let me = node.rank();
            let (pairs, one) = (me % 2, u32::from(me == 3));
            // In pairs, each root of a gather waits for the other, and gets nothing from anybody that was not
            // for it.
            let cases = [broadcast, gather, scatter, reduce]
                .into_iter()
                .flat_map(|call| [(call, pairs), (call, one)]);
            for ((call, root), count) in cases.flat_map(|case| [1, 8, 10_000].map(|count| (case, count))) {
                let team = node.world().split(Some(0), 0).expect("a split").expect("a color");
                let mut values = vec![u64::from(me); count];
                let called = call(&team, root, &mut values);
                let said = called.and_then(|()| team.barrier()).expect_err("they differ").to_string();
                let names_both = said.contains("with root 0") && said.contains("with root 1");
                assert!(names_both, "rank {me} of root {root}, {count} values: {said}");
                node.barrier().expect("barrier");
            }
        },
    );
}

/// Large reductions of private memory go by way of the heap, if it has room, and use the same part of it
/// again.
#[test]
fn what_is_combined_is_staged_in_the_heap() {
    if skipped_over_the_network() {
        return;
    }
    // A stage may be a sixteenth of it.
    let free = |node: &Node| match node.heap().alloc::<u8>(1 << 40) {
        Err(HeapError::Full { free, .. }) => free,
        other => panic!("there is no such room: {:?}", other.map(drop)),
    };
    let reduce = |node: &Node, count: usize| {
        // Three bytes are of no size that divides a cache line's.
        let mut values = vec![[1u8, 2, 3]; count];
        let add = |into: &mut [[u8; 3]], from: &[[u8; 3]]| {
            into.iter_mut().zip(from).for_each(|(into, from)| (0..3).for_each(|at| into[at] += from[at]));
        };
        node.world().all_reduce_with(&mut values, add).expect("an all-reduce");
        assert!(values.iter().all(|value| *value == [3, 6, 9]));
        let mut values = vec![u64::from(node.rank()); count];
        node.world().all_reduce(&mut values, Reduction::Sum).expect("an all-reduce");
        assert!(values.iter().all(|value| *value == 3));
        let (ended, values) = node.world().all_reduce_nb(values, Reduction::Max).wait();
        ended.expect("an all-reduce");
        assert!(values.iter().all(|value| *value == 3));
    };
    job(
        3,
        |_| config(),
        move |node| {
            let before = free(node);
            reduce(node, 500_000);
            assert_eq!(before - free(node), 0, "its parts alone are as much as a sixteenth");
            reduce(node, 30_000);
            let taken = before - free(node);
            assert!(taken >= 240_000, "{taken} bytes");
            reduce(node, 30_000);
            assert_eq!(before - free(node), taken);
            let values = || vec![7u32; 60_000];
            let events = [(); 4].map(|()| node.world().all_reduce_nb(values(), Reduction::Min));
            for event in events {
                assert_eq!(event.wait(), (Ok(()), values()));
            }
            assert!(
                before - free(node) <= (8 << 20) / 16,
                "no more than a sixteenth, however many are under way"
            );
            node.barrier().expect("barrier");
        },
    );
}

/// Members whose memory is staged take fewer segments of a large reduction at a time than those whose heaps
/// are read as they are.
#[test]
fn members_of_all_memories_reduce_much_together() {
    const COUNT: usize = 900_000;
    let given = |rank: u32, turn: u64| {
        move |at: usize| (at as u64).wrapping_mul(0x9e37_79b9).wrapping_add(turn << 40) << rank
    };
    job(
        3,
        |rank| config().heap_bytes(if rank == 1 { 8 << 20 } else { 80 << 20 }),
        |node| {
            let (me, team) = (node.rank(), node.world());
            // Rank 0 has the heap, rank 1 no room for a stage, rank 2 a stage.
            let heap =
                node.heap().alloc_zeroed::<u64>(if me == 0 { COUNT } else { 0 }).expect("room for an array");
            let mut private = vec![0; if me == 0 { 0 } else { COUNT }];
            // SAFETY: nobody else has a pointer to the array, which outlives the slice.
            let own = unsafe { std::slice::from_raw_parts_mut(heap.as_ptr(), heap.len()) };
            let values = if me == 0 { own } else { &mut private[..] };
            for turn in 0..4 {
                let fill =
                    |values: &mut [u64]| (0..).map(given(me, turn)).zip(values).for_each(|(of, to)| *to = of);
                let sum = |at| (0..3).fold(0u64, |sum, rank| sum.wrapping_add(given(rank, turn)(at)));
                fill(values);
                team.all_reduce(values, Reduction::Sum).expect("an all-reduce");
                assert!((0..).map(sum).zip(&*values).all(|(expected, value)| expected == *value));
                fill(values);
                let mut result = vec![0; if me == 1 { COUNT } else { 0 }];
                team.reduce(values, &mut result, 1, Reduction::Sum).expect("a reduction");
                assert!((0..).map(sum).zip(&result).all(|(expected, value)| expected == *value));
            }
            node.barrier().expect("barrier");
        },
    );
}

/// Nothing private passes through the heap of a member that exposes ranges: all who map that could look into
/// it.
#[test]
fn nothing_is_staged_where_ranges_are_exposed() {
    if skipped_over_the_network() {
        return;
    }
    let free = |node: &Node| match node.heap().alloc::<u8>(1 << 40) {
        Err(HeapError::Full { free, .. }) => free,
        other => panic!("there is no such room: {:?}", other.map(drop)),
    };
    for exposure in [Exposure::Everything, Exposure::Ranges] {
        job(
            3,
            |_| config().exposure(exposure),
            move |node| {
                let before = free(node);
                let mut values = vec![u64::from(node.rank()); 30_000];
                node.world().all_reduce(&mut values, Reduction::Sum).expect("an all-reduce");
                assert!(values.iter().all(|value| *value == 3));
                let (ended, values) = node.world().all_reduce_nb(values, Reduction::Max).wait();
                ended.expect("an all-reduce");
                assert!(values.iter().all(|value| *value == 3));
                let mut all = vec![0; 90_000];
                node.world().all_gather(&values, &mut all).expect("an all-gather");
                assert!(all.iter().all(|value| *value == 3));
                let staged = before - free(node);
                assert_eq!(staged > 0, exposure == Exposure::Everything, "{staged} bytes, {exposure:?}");
                node.barrier().expect("barrier");
            },
        );
    }
}

/// A member may give a collective up while another copies what it offered, and change that at once: the other
/// fails, or has the bytes that were offered. Of three members two get the same, out of a stage.
#[test]
fn what_is_given_up_while_it_is_copied_is_never_taken_for_what_was_offered() {
    for members in [2, 3] {
        give_up_while_it_is_copied(members);
    }
}

fn give_up_while_it_is_copied(members: u32) {
    // A stage may be a sixteenth of the heap.
    const BYTES: usize = 512 << 10;
    let ended_well = Arc::new(AtomicU64::new(0));
    let (counts, rounds) = (Arc::clone(&ended_well), 300u64);
    job(
        members,
        |_| config(),
        move |node| {
            let (mut given, mut gotten) = (vec![0u8; BYTES], vec![0u8; members as usize * BYTES]);
            for round in 0..rounds {
                let pair = node.world().split(Some(0), 0).expect("a split").expect("a color");
                given.fill(round as u8);
                gotten.fill(!(round as u8));
                node.barrier().expect("barrier");
                let ended = if node.rank() == 0 {
                    // About as long as the other one takes to come and to copy, more or less.
                    let patience = Duration::from_micros(200 + round * 13 % 300);
                    let ended = pair.within(patience).all_gather(&given, &mut gotten);
                    given.fill(!(round as u8));
                    ended
                } else {
                    thread::sleep(Duration::from_micros(100 + round * 7 % 200));
                    pair.all_gather(&given, &mut gotten)
                };
                if ended.is_ok() {
                    counts.fetch_add(1, Ordering::Relaxed);
                    assert!(gotten.iter().all(|byte| *byte == round as u8), "round {round}");
                }
                node.barrier().expect("barrier");
            }
        },
    );
    let all = u64::from(members) * rounds;
    eprintln!("{} of {all} ended well", ended_well.load(Ordering::Relaxed));
}

//! Teams and their collectives between real processes, every result against a plain model.

use crate::support;
use std::time::{Duration, Instant};

use crate::support::{Heard, LIMIT, Random, config, job_of, role};
use rustix::process::{Signal, getpid, kill_process};
use standpipe::{Error, GlobalPtr, Node, Reduction, Team};

/// The jobs' sizes.
const SIZES: std::ops::RangeInclusive<u32> = 1..=9;
/// Without time.
const FEW: [u32; 3] = [2, 3, 5];

fn sizes() -> Vec<u32> {
    if testbed::has_time_for("a job of each size from 1 to 9") { SIZES.collect() } else { FEW.to_vec() }
}

#[test]
fn collectives_agree_with_a_plain_model_in_jobs_of_one_to_nine() {
    for size in sizes() {
        Heard::default().run_well(job_of(size, "model"));
    }
}

/// Then members get what they combine out of each other's private memory.
#[test]
fn they_do_where_heaps_have_no_room_for_what_is_large() {
    for size in [2, 3] {
        Heard::default().run_well(job_of(size, "model in little heap"));
    }
}

#[test]
fn they_do_where_memory_goes_by_message() {
    for size in [2, 5] {
        Heard::default().run_well(job_of(size, "model").env("STANDPIPE_ATTACH", "never"));
    }
}

#[test]
fn they_do_over_the_network() {
    let Some(network) = support::network() else { return };
    for size in sizes() {
        Heard::default().run_well(job_of(size, "model").env("STANDPIPE_TRANSPORT", network));
    }
}

#[test]
fn random_histories_of_interleaved_teams_come_out_as_the_model_says() {
    for size in [2, 4, 5] {
        Heard::default().run_well(job_of(size, "history"));
    }
    let Some(network) = support::network() else { return };
    Heard::default().run_well(job_of(3, "history").env("STANDPIPE_TRANSPORT", network));
}

#[test]
fn a_member_killed_amid_a_collective_ends_its_team_and_no_other() {
    let mut transports = vec!["shm"];
    transports.extend(support::network());
    for transport in transports {
        let launch = job_of(4, "killed").env("STANDPIPE_TRANSPORT", transport).keep_going(true);
        let heard = Heard::default();
        heard.run(launch);
        for rank in [0, 2, 3] {
            assert_eq!(heard.said(rank), ["ended"], "over {transport}: {}", heard.all());
        }
    }
}

#[test]
fn child() {
    let Some(role) = role() else { return };
    // A sixteenth of it is less than the largest that are reduced.
    let config = if role.ends_with("little heap") { config().heap_bytes(16 << 20) } else { config() };
    let node = Node::open(config.timeout(LIMIT)).expect("a node");
    match role.as_str() {
        "model" | "model in little heap" => model(&node, &node.world()),
        "history" => history(&node),
        "killed" => killed(&node),
        other => panic!("no role {other}"),
    }
    if role != "killed" {
        node.barrier().expect("nobody leaves before all are done");
    }
}

/// What a member gives: numbers that depend on it, and on what for.
fn given(member: u32, what: u64, count: usize) -> Vec<u64> {
    (0..count).map(|at| word(member, what, at)).collect()
}

fn word(member: u32, what: u64, at: usize) -> u64 {
    (u64::from(member) << 32 | what << 24 | at as u64).wrapping_mul(0x9e37_79b9)
}

/// Affine functions, composed: not commutative.
fn compose(into: &mut [[u32; 2]], from: &[[u32; 2]]) {
    for ([a, b], [c, d]) in into.iter_mut().zip(from) {
        (*a, *b) = (a.wrapping_mul(*c), a.wrapping_mul(*d).wrapping_add(*b));
    }
}

fn functions(member: u32, count: usize) -> Vec<[u32; 2]> {
    given(member, 9, count).into_iter().map(|word| [(word >> 32) as u32 | 1, word as u32]).collect()
}

fn model(node: &Node, team: &Team) {
    let counts: &[usize] =
        if team.size() <= 4 { &[0, 1, 3, 1500, 20_001, 200_000] } else { &[1, 3, 1500, 20_001] };
    for &count in counts {
        team.barrier().expect("a barrier");
        for root in 0..team.size() {
            rooted(team, root, count);
        }
        from_all(team, count);
        reductions(team, count);
        in_the_heap(node, team, count);
    }
}

fn rooted(team: &Team, root: u32, count: usize) {
    let (n, me) = (team.size(), team.rank());
    let mut values = if me == root { given(root, 1, count) } else { vec![0; count] };
    team.broadcast(&mut values, root).expect("a broadcast");
    assert!(values == given(root, 1, count), "broadcast of {count} by {root}");
    let mut all = vec![0; if me == root { count * n as usize } else { 0 }];
    team.gather(&given(me, 2, count), &mut all, root).expect("a gather");
    if me == root {
        assert!(all == (0..n).flat_map(|member| given(member, 2, count)).collect::<Vec<_>>());
    }
    let mut mine = vec![0; count];
    team.scatter(&all, &mut mine, root).expect("a scatter");
    assert!(mine == given(me, 2, count));
    let mut composed = vec![[0; 2]; if me == root { count } else { 0 }];
    team.reduce_with(&functions(me, count), &mut composed, root, compose).expect("a reduce");
    if me == root {
        assert!(composed == all_composed(n, count), "reduce of {count} at {root} of {n}");
    }
}

fn all_composed(n: u32, count: usize) -> Vec<[u32; 2]> {
    (1..n).fold(functions(0, count), |mut left, member| {
        compose(&mut left, &functions(member, count));
        left
    })
}

fn from_all(team: &Team, count: usize) {
    let (n, me) = (team.size(), team.rank());
    let mut all = vec![0; count * n as usize];
    team.all_gather(&given(me, 3, count), &mut all).expect("an all-gather");
    assert!(all == (0..n).flat_map(|member| given(member, 3, count)).collect::<Vec<_>>());
    // What goes from one member to another, in blocks of one length and of many.
    let block = |from: u32, to: u32, count: usize| given(from, u64::from(to), count);
    let from: Vec<u64> = (0..n).flat_map(|to| block(me, to, count)).collect();
    team.all_to_all(&from, &mut all).expect("an all-to-all");
    assert!(all == (0..n).flat_map(|from| block(from, me, count)).collect::<Vec<_>>());
    let length = |from: u32, to: u32| (from * 3 + to * 5) as usize % 4 * count;
    let counts = |of: &dyn Fn(u32) -> usize| (0..n).map(of).collect::<Vec<_>>();
    let (sends, receives) = (counts(&|to| length(me, to)), counts(&|from| length(from, me)));
    let from: Vec<u64> = (0..n).flat_map(|to| block(me, to, length(me, to))).collect();
    let mut into = vec![0; receives.iter().sum()];
    team.all_to_all_v(&from, &sends, &mut into, &receives).expect("an all-to-all-v");
    assert!(into == (0..n).flat_map(|from| block(from, me, length(from, me))).collect::<Vec<_>>());
}

fn reductions(team: &Team, count: usize) {
    let (n, me) = (team.size(), team.rank());
    let mut composed = functions(me, count);
    team.all_reduce_with(&mut composed, compose).expect("an all-reduce");
    assert!(composed == all_composed(n, count), "all-reduce of {count} by {n}");
    let all: Vec<Vec<u64>> = (0..n).map(|member| given(member, 4, count)).collect();
    let folded = |combine: fn(u64, u64) -> u64| -> Vec<u64> {
        (0..count).map(|at| all.iter().map(|of| of[at]).reduce(combine).expect("a member")).collect()
    };
    for (reduction, expected) in [
        (Reduction::Sum, folded(u64::wrapping_add)),
        (Reduction::Product, folded(u64::wrapping_mul)),
        (Reduction::Min, folded(u64::min)),
        (Reduction::Max, folded(u64::max)),
    ] {
        let mut values = given(me, 4, count);
        team.all_reduce(&mut values, reduction).expect("an all-reduce");
        assert!(values == expected, "{reduction:?}");
        let mut values = vec![0; count];
        team.reduce(&given(me, 4, count), &mut values, n - 1, reduction).expect("a reduce");
        assert!(me != n - 1 || values == expected, "{reduction:?}");
    }
}

/// What lies in the heap is nothing special to collectives.
fn in_the_heap(node: &Node, team: &Team, count: usize) {
    let (n, me) = (team.size(), team.rank());
    let [given_here, gotten] = [given(me, 5, count * n as usize), vec![0; count * n as usize]]
        .map(|values| node.heap().alloc_from(&values).expect("room in the heap"));
    // SAFETY: no pointer to the two arrays is ever told to anybody, so that nobody else writes there.
    let [from, into] = unsafe {
        [&given_here, &gotten].map(|array| std::slice::from_raw_parts_mut(array.as_ptr(), array.len()))
    };
    team.all_to_all(from, into).expect("an all-to-all");
    let sent = |from: u32, to: u32, at: usize| word(from, 5, to as usize * count + at);
    for (block, member) in into.chunks(count.max(1)).zip(0..) {
        assert!(block.iter().zip(0..).all(|(got, at)| *got == sent(member, me, at)), "all-to-all of {count}");
    }
    team.all_reduce(&mut into[..count], Reduction::Sum).expect("an all-reduce");
    let sum = |at| (0..n).fold(0u64, |sum, to| sum.wrapping_add(sent(0, to, at)));
    assert!(into[..count].iter().zip(0..).all(|(got, at)| *got == sum(at)), "all-reduce of {count}");
    // What one gives is not where the result goes; then not all give what lies in the heap.
    let (apart, mut gotten) = (from[..count].to_vec(), vec![0; count]);
    let least = |at| (0..n).map(|member| word(member, 5, at)).min().expect("a team has members");
    for mixed in [false, true] {
        let given = if mixed && me % 2 == 1 { &apart } else { &from[..count] };
        for root in [0, n - 1] {
            gotten.fill(0);
            team.reduce(given, &mut gotten, root, Reduction::Min).expect("a reduction");
            let right = gotten.iter().enumerate().all(|(at, got)| *got == least(at));
            assert!(right || me != root, "reduction of {count}, mixed: {mixed}");
        }
    }
    assert_eq!(from[..count], apart, "what is given stays as it is");
}

/// Many collectives under way at once in two teams interleaved, the same by a seed at all ranks; events are
/// waited for in an order of each rank's own, and some dropped.
fn history(node: &Node) {
    let world = node.world();
    for seed in 0..6 {
        let half = world.split(Some(node.rank() % 2), -i64::from(node.rank())).expect("a split");
        let half = half.expect("everyone gave a color");
        let (mut shared, mut own) = (Random::new(seed), Random::new(seed * 100 + u64::from(node.rank())));
        let mut waiting = Vec::new();
        for what in 0..60 {
            let team = if shared.below(2) == 0 { &world } else { &half };
            let count = [0, 1, 100, 3000][shared.below(4)];
            let kind = shared.below(3);
            let mine = given(team.rank(), what, count);
            let all: Vec<Vec<u64>> = (0..team.size()).map(|member| given(member, what, count)).collect();
            let (event, expected) = match kind {
                0 => (team.all_gather_nb(mine), all.concat()),
                1 => {
                    let root = shared.below(team.size() as usize) as u32;
                    let values = if root == team.rank() { mine } else { vec![0; count] };
                    (team.broadcast_nb(values, root), all[root as usize].clone())
                }
                _ => {
                    let sum = |at: usize| all.iter().fold(0u64, |sum, of| sum.wrapping_add(of[at]));
                    (team.all_reduce_nb(mine, Reduction::Sum), (0..count).map(sum).collect())
                }
            };
            match own.below(5) {
                0 => drop(event),
                _ => waiting.push((event, expected)),
            }
        }
        while !waiting.is_empty() {
            let (event, expected) = waiting.swap_remove(own.below(waiting.len()));
            let (result, values) = event.wait();
            assert_eq!(result, Ok(()), "seed {seed}");
            assert!(values == expected, "seed {seed}");
        }
        world.barrier().expect("a barrier");
        node.quiet().expect("those that were dropped went well, too");
    }
}

/// Rank 1 dies while all are at work.
fn killed(node: &Node) {
    let world = node.world();
    let half = world.split(Some(node.rank() % 2), 0).expect("a split").expect("a color");
    let others = world.split((node.rank() != 1).then_some(0), 0).expect("a split");
    if node.rank() == 1 {
        let me = getpid();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            kill_process(me, Signal::KILL)
        });
    }
    let word = node.heap().alloc_zeroed::<u64>(1).expect("room");
    let mut words = [word.ptr(0).to_words()];
    world.broadcast(&mut words, 1).expect("all are there");
    let theirs = GlobalPtr::<u64>::from_words(words[0]);
    let mut values = vec![1u64; 100_000];
    let lost = loop {
        if let Err(error) = world.all_reduce(&mut values, Reduction::Min) {
            break error;
        }
    };
    assert_eq!(lost, Error::PeerLost { peer: 1 });
    assert_eq!(node.put(theirs, 7), Err(lost), "whoever has told of it");
    let begun = Instant::now();
    assert_eq!(world.barrier(), Err(Error::PeerLost { peer: 1 }), "then and ever after");
    let ended = half.barrier();
    match node.rank() % 2 {
        1 => assert_eq!(ended, Err(Error::PeerLost { peer: 1 })),
        _ => assert_eq!(ended, Ok(())),
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
    let others = others.expect("only the dead has no such team");
    let mut sum = [u64::from(node.rank())];
    others.all_reduce(&mut sum, Reduction::Sum).expect("the living go on");
    assert_eq!(sum, [5]);
    others.barrier().expect("nobody leaves before all are done");
    support::say("ended");
}

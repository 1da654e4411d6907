//! Ranks that end and are other processes' soon after: what was meant for the old one never reaches the new.

mod race;

use engine::registration::{Quota, Settings};
use engine::{Atomic, Direction, MemId, OpError, OpId, Place, Rank};
use race::{PAGE, Race, settings};
use sim::{Access, Step};

const LOST: OpError = OpError::PeerLost { peer: 0 };

/// Rank 0's memory: pages of its own, and a page of its heap; the same places in each of its processes.
struct Memory {
    space: Place,
    heap: Place,
}

/// Maps rank 0's memory, which has just begun, and fills it.
fn map(race: &mut Race, fill: u8) -> Memory {
    let heap = race.cluster.heap(0, PAGE);
    race.fill(0, heap, PAGE, fill);
    Memory { space: race.pages(0, 8, fill), heap }
}

/// Rank 0 is another process from now on, whose memory is full of `fill`.
fn restart(race: &mut Race, fill: u8) {
    assert_eq!(race.cluster.restart(0), Step::Restarted(0));
    map(race, fill);
}

/// Waits until `rank` has heard that rank 0 is another process.
fn meet(race: &mut Race, rank: Rank) {
    let incarnation = race.cluster.incarnation(0);
    race.until("it hears of the new process", |race, _| {
        let node = race.cluster.node(rank);
        node.incarnation_of(0) == incarnation && !node.is_lost(0)
    });
}

fn put(race: &mut Race, rank: Rank, to: Place, from: Place, len: u64) -> OpId {
    race.start(rank, 0, Direction::Put, &[(to, from, len)])
}

/// What two nodes say of rank 0's rights to the other's memory, and the other's to rank 0's, is the same.
fn assert_rights_agree(race: &mut Race, other: Rank) {
    for (owner, holder) in [(0, other), (other, 0)] {
        let given = race.cluster.node(owner).rights_given(holder);
        assert_eq!(given, race.cluster.node(holder).rights_held(owner), "rank {owner}'s to rank {holder}");
    }
}

/// Rank 1 has puts and a count on their way to rank 0, by key and without, when that restarts. The new
/// process has the same page registered, under the same key, when they arrive.
#[test]
fn an_old_put_in_flight_arrives_after_the_restart() {
    for seed in 0..200 {
        let mut race = Race::new(3, settings(8, 8), "delay=0.4,reorder", seed);
        let memory = map(&mut race, 0);
        let locals = [race.pages(1, 8, 1), race.pages(2, 8, 2)];
        let first = put(&mut race, 1, memory.space, locals[0], PAGE);
        assert_eq!(race.wait(1, first), Ok(0));
        race.rest();
        let word = Place::new(MemId::Heap, memory.heap.offset + 8);
        let under_way = [
            put(&mut race, 1, memory.space, locals[0], PAGE),
            put(&mut race, 1, memory.heap, locals[0], 8),
            race.cluster.node(1).atomic(0, word, Atomic::fetch_add(1), None),
        ];
        restart(&mut race, 9);
        // Rank 2 hears of it at once, and has the page registered.
        race.say(0, 2);
        meet(&mut race, 2);
        let new = put(&mut race, 2, memory.space.plus(8), locals[1], 8);
        assert_eq!(race.wait(2, new), Ok(0), "seed {seed}");
        race.rest();
        for op in under_way {
            assert_eq!(race.wait(1, op), Err(LOST), "seed {seed}");
        }
        let page = race.bytes(0, memory.space, PAGE);
        assert!(page[8..16] == [2; 8] && page[..8] == [9; 8] && page[16..].iter().all(|byte| *byte == 9));
        assert_eq!(race.bytes(0, memory.heap, PAGE), [9; PAGE as usize], "seed {seed}");
        assert_eq!(race.cluster.node(1).references(), (0, 0), "seed {seed}");
    }
}

/// Rank 0 has granted rank 1 what it asked for, and restarts before rank 1 has the answer.
#[test]
fn a_grant_that_the_restart_overtakes() {
    let mut overtaken = 0;
    for seed in 0..200 {
        let mut race = Race::new(2, settings(8, 8), "delay=0.4,reorder", seed);
        let memory = map(&mut race, 0);
        let local = race.pages(1, 8, 1);
        let old = put(&mut race, 1, memory.space, local, 2 * PAGE);
        race.until("rank 0 has granted", |race, _| !race.cluster.node(0).rights_given(1).is_empty());
        // What has left the card by then arrives, whatever becomes of its sender.
        let left = race.cluster.time_of(0) + 1000;
        race.cluster.alarm(1, left);
        race.until("the answer has left", |race, _| race.cluster.now() >= left);
        overtaken += u32::from(race.cluster.node(1).rights_held(0).is_empty());
        restart(&mut race, 9);
        race.say(0, 1);
        meet(&mut race, 1);
        assert!(matches!(race.wait(1, old), Ok(0) | Err(LOST)), "seed {seed}");
        assert_eq!(race.cluster.node(1).rights_held(0), [], "seed {seed}");
        let new = put(&mut race, 1, memory.space, local, PAGE);
        assert_eq!(race.wait(1, new), Ok(0), "seed {seed}");
        race.rest();
        assert_eq!((race.counters(1).moves, race.counters(1).bounced), (2, 0), "seed {seed}");
        assert_eq!(race.bytes(0, memory.space, 2 * PAGE)[PAGE as usize - 1..][..2], [1, 9], "seed {seed}");
        assert_rights_agree(&mut race, 1);
        assert_eq!(race.cluster.node(1).counters().malformed, 0, "seed {seed}");
    }
    assert!(overtaken > 50, "{overtaken} of 200");
}

/// Rank 0 gets from rank 1, and restarts. The new process's first operation has the name of the old one's,
/// and ends when it has its own bytes.
#[test]
fn an_end_that_was_for_the_old_process() {
    for seed in 0..200 {
        let mut race = Race::new(2, settings(8, 16), "delay=0.4,reorder", seed);
        let there = race.pages(1, 1, 5);
        let here = map(&mut race, 0).space;
        let get = |race: &mut Race| race.start(0, 1, Direction::Get, &[(there, here, PAGE)]);
        let old = get(&mut race);
        race.until("the move is over", |race, _| race.counters(0).hits == 1);
        restart(&mut race, 9);
        let new = get(&mut race);
        assert_eq!(new, old, "operations of one node have names of their own");
        assert_eq!(race.wait(0, new), Ok(0), "seed {seed}");
        assert_eq!(race.bytes(0, here, PAGE), [5; PAGE as usize], "seed {seed}");
        race.rest();
        assert_rights_agree(&mut race, 1);
    }
}

/// Rank 0 and rank 1 hold all that they may of each other's memory. Rank 0 restarts, and asks at once for as
/// much again: rank 1 has not heard yet. It uses what it held until then.
#[test]
fn the_new_process_asks_while_the_other_holds_rights_to_the_old() {
    for seed in 0..100 {
        let mut race = Race::new(2, settings(8, 16), "delay=0.2,reorder", seed);
        let memory = map(&mut race, 0);
        let there = race.pages(1, 8, 1);
        let theirs = put(&mut race, 1, memory.space, there, 8 * PAGE);
        assert_eq!(race.wait(1, theirs), Ok(0));
        let ours = race.start(0, 1, Direction::Put, &[(there, memory.space, 8 * PAGE)]);
        assert_eq!(race.wait(0, ours), Ok(0));
        race.rest();
        // In use when the news comes, or not.
        let under_way = (seed % 2 == 0).then(|| put(&mut race, 1, memory.space, there, 8 * PAGE));
        restart(&mut race, 9);
        let ours = race.start(0, 1, Direction::Put, &[(there, memory.space, 8 * PAGE)]);
        assert_eq!(race.wait(0, ours), Ok(0), "seed {seed}");
        assert_eq!(
            (race.counters(0).bounced, race.counters(0).hits),
            (0, 1),
            "seed {seed}: it may hold as much"
        );
        assert_eq!(race.bytes(1, there, 8 * PAGE), [9; 8 * PAGE as usize], "seed {seed}");
        if let Some(op) = under_way {
            assert_eq!(race.wait(1, op), Err(LOST), "seed {seed}");
        }
        assert_eq!(race.cluster.node(1).rights_held(0), [], "seed {seed}");
        let theirs = put(&mut race, 1, memory.space, there, PAGE);
        assert_eq!(race.wait(1, theirs), Ok(0), "seed {seed}");
        race.rest();
        assert_rights_agree(&mut race, 1);
    }
}

/// Rank 1 frees what rank 0 holds and uses, and wants to tell rank 2. Rank 0 restarts and never answers: the
/// new process has nothing to give back, and rank 1 waits for it no more.
#[test]
fn a_restart_of_the_holder_during_a_recall() {
    for seed in 0..100 {
        let mut race = Race::new(3, settings(8, 8), "delay=0.2,reorder", seed);
        let memory = map(&mut race, 0);
        let there = race.pages(1, 1, 1);
        let first = race.start(0, 1, Direction::Put, &[(there, memory.space, PAGE)]);
        assert_eq!(race.wait(0, first), Ok(0));
        race.rest();
        race.cluster.mute(0);
        race.cluster.map_at(1, there.offset, PAGE, Access::Full);
        race.cluster.node(1).invalidate(there.offset, PAGE);
        let freed = race.cluster.now();
        race.say(1, 2);
        for _ in 0..seed % 2 {
            race.step();
        }
        restart(&mut race, 9);
        race.until("rank 2 hears", |_, step| matches!(step, Some(Step::Deliver(2, _))));
        let waited = race.cluster.now() - freed;
        assert!(waited < settings(8, 8).recall_within, "seed {seed}: it waited {waited} ns");
        let again = race.start(0, 1, Direction::Put, &[(there, memory.space, PAGE)]);
        assert_eq!(race.wait(0, again), Ok(0), "seed {seed}");
        race.rest();
        assert_eq!(race.bytes(1, there, PAGE), [9; PAGE as usize], "seed {seed}");
        assert_rights_agree(&mut race, 1);
        assert!(!race.cluster.node(1).is_lost(0), "seed {seed}");
    }
}

/// Rank 0 frees what rank 1 holds and uses, and restarts before rank 1 has given it back. The new process
/// knows of no such right; it gives rank 1 another under the same name.
#[test]
fn a_restart_of_the_owner_during_a_recall() {
    for seed in 0..100 {
        let mut race = Race::new(2, settings(8, 8), "delay=0.3,reorder", seed);
        let memory = map(&mut race, 0);
        let local = race.pages(1, 8, 1);
        let first = put(&mut race, 1, memory.space, local, 8 * PAGE);
        assert_eq!(race.wait(1, first), Ok(0));
        let in_use = put(&mut race, 1, memory.space, local, 8 * PAGE);
        race.cluster.node(0).invalidate(memory.space.offset, PAGE);
        for _ in 0..seed % 8 {
            race.step();
        }
        restart(&mut race, 9);
        race.say(0, 1);
        meet(&mut race, 1);
        let new = put(&mut race, 1, memory.space, local, 8);
        assert!(matches!(race.wait(1, in_use), Ok(0) | Err(LOST)), "seed {seed}");
        assert_eq!(race.wait(1, new), Ok(0), "seed {seed}");
        race.rest();
        assert_eq!(race.cluster.node(0).rights_given(1).len(), 1, "seed {seed}");
        assert_rights_agree(&mut race, 1);
        assert_eq!(
            race.cluster.node(0).counters().malformed,
            0,
            "seed {seed}: it is told of what it never gave"
        );
        assert_eq!(race.bytes(0, memory.space, PAGE)[7..9], [1, 9], "seed {seed}");
    }
}

/// Rank 0 restarts twice, and some have heard of the first time, and some have not.
#[test]
fn two_restarts_in_a_row() {
    let guaranteed = Settings { quota: Quota::Leases { guaranteed: PAGE }, ..settings(8, 8) };
    let mut unheard = 0;
    for seed in 0..200 {
        let mut race = Race::new(3, guaranteed, "delay=0.2,reorder", seed);
        let memory = map(&mut race, 0);
        let locals = [race.pages(1, 8, 1), race.pages(2, 8, 2)];
        let mut ops = Vec::new();
        for round in 0..3 {
            for rank in [1, 2] {
                let at = memory.space.plus(u64::from(rank) * PAGE);
                if !race.cluster.node(rank).is_lost(0) {
                    ops.push((rank, put(&mut race, rank, at, locals[rank as usize - 1], PAGE)));
                }
            }
            for _ in 0..seed % 40 {
                race.step();
            }
            if round < 2 {
                restart(&mut race, 9);
                race.say(0, 1);
            }
            unheard += u32::from(round == 1 && race.cluster.node(2).incarnation_of(0) == 0);
        }
        for rank in [1, 2] {
            meet(&mut race, rank);
            assert_eq!(race.cluster.node(rank).incarnation_of(0), 2, "seed {seed}");
        }
        race.rest();
        for (rank, op) in ops {
            assert!(matches!(race.wait(rank, op), Ok(0) | Err(LOST)), "seed {seed}");
        }
        restart(&mut race, 7);
        let last: Vec<OpId> = [1, 2]
            .map(|rank| {
                meet(&mut race, rank);
                put(
                    &mut race,
                    rank,
                    memory.space.plus(u64::from(rank) * PAGE),
                    locals[rank as usize - 1],
                    PAGE,
                )
            })
            .into();
        for (rank, op) in [1, 2].into_iter().zip(last) {
            assert_eq!(race.wait(rank, op), Ok(0), "seed {seed}");
            race.rest();
            assert_rights_agree(&mut race, rank);
        }
        let pages = race.bytes(0, memory.space, 4 * PAGE);
        assert!(
            pages
                .chunks(PAGE as usize)
                .zip([7, 1, 2, 7])
                .all(|(page, fill)| page.iter().all(|byte| *byte == fill))
        );
    }
    assert!(unheard > 20, "{unheard} of 200");
}

/// Ranks 1 and 2 wait at a barrier when rank 0, whose card counts, or rank 2 restarts. If all had arrived the
/// others pass; otherwise they do not, and the new process has no part in it, or in any other.
#[test]
fn a_barrier_begun_with_the_old_process() {
    for seed in 0..60 {
        for (restarts, all_arrive) in [(0, false), (2, false), (2, true)] {
            let mut race = Race::new(3, settings(8, 8), "delay=0.3,reorder", seed);
            let ranks: Vec<Rank> = (0..3).filter(|rank| *rank != restarts || all_arrive).collect();
            let waits: Vec<(Rank, OpId)> =
                ranks.into_iter().map(|rank| (rank, race.cluster.node(rank).barrier(None))).collect();
            for _ in 0..seed {
                race.step();
            }
            let passed = race.cluster.node(restarts).is_done(waits[waits.len() - 1].1);
            race.cluster.restart(restarts);
            let own = race.cluster.node(restarts).barrier(None);
            assert_eq!(race.wait(restarts, own), Err(OpError::PeerLost { peer: restarts }));
            for (rank, wait) in waits.into_iter().filter(|(rank, _)| *rank != restarts) {
                let outcome = race.wait(rank, wait);
                let lost = Err(OpError::PeerLost { peer: restarts });
                assert!(outcome == lost || all_arrive && outcome == Ok(0), "seed {seed}: {outcome:?}");
                assert!(
                    outcome != lost || !all_arrive || !passed,
                    "seed {seed}: rank {rank} of one that was passed"
                );
                race.rest();
                let next = race.cluster.node(rank).barrier(None);
                assert_eq!(race.wait(rank, next), lost, "seed {seed}: the next one is nobody's");
            }
        }
    }
}

//! Races of registration by name.

mod race;

use engine::registration::{Keep, Settings};
use engine::{Direction, OpError, Place};
use race::{PAGE, Race, settings};
use sim::{Access, Step};

/// Rank 1 ends its use of a bucket of rank 0's and begins another at once: the bucket is wanted again while
/// it is being deregistered. With a budget of one page the new pin waits for the end of the old one; with
/// more it does not.
#[test]
fn an_unpin_overtaken_by_a_new_pin_of_the_same_bucket() {
    for (peers, pinned_at_once) in [(1, 1), (2, 2)] {
        for seed in 0..20 {
            let keep_nothing = Settings { keep: Keep::Nothing, ..settings(peers, 0) };
            let mut race = Race::new(2, keep_nothing, "register-slow=1", seed);
            let (remote, local) = (race.pages(0, 1, 0), race.pages(1, 1, 1));
            let first = race.start(1, 0, Direction::Put, &[(remote, local, 100)]);
            assert_eq!(race.wait(1, first), Ok(0));
            race.fill(1, local, 200, 2);
            let second = race.start(1, 0, Direction::Put, &[(remote, local, 200)]);
            let mut most = 0;
            race.until("the second put ends", |race, _| {
                most = most.max(race.cluster.pinned(0));
                race.cluster.node(1).is_done(second)
            });
            assert_eq!(race.bytes(0, remote, 200), [2; 200]);
            let counters = race.counters(1);
            assert_eq!((counters.moves, counters.hits, counters.bounced), (2, 2, 0), "seed {seed}");
            assert_eq!(most, pinned_at_once * PAGE, "seed {seed}: it was not overtaken");
            race.rest();
            let table = race.counters(0).table;
            assert_eq!((table.registrations, table.evictions, table.pinned), (2, 2, 0));
        }
    }
}

/// Two threads of rank 1 put to the same bucket, which it does not hold, at once.
#[test]
fn two_operations_that_move_the_same_firehose_at_once() {
    for direction in [Direction::Put, Direction::Get] {
        let mut race = Race::new(2, settings(4, 4), "register-slow=1", 3);
        let (remote, local) = (race.pages(0, 2, 7), race.pages(1, 2, 7));
        // The second wants one bucket more.
        let one = race.start(1, 0, direction, &[(remote, local, 1000)]);
        let two = race.start(1, 0, direction, &[(remote.plus(1000), local.plus(1000), PAGE)]);
        assert_eq!((race.wait(1, one), race.wait(1, two)), (Ok(0), Ok(0)));
        let (initiator, owner) = (race.counters(1), race.counters(0).table);
        assert_eq!((initiator.moves, initiator.bounced), (2, 0), "{direction:?}: one for each bucket");
        assert_eq!(
            (owner.registrations, owner.hits),
            (2, 0),
            "{direction:?}: nobody asked for what was asked for"
        );
        let again = race.start(1, 0, direction, &[(remote, local, 2 * PAGE)]);
        assert_eq!(race.wait(1, again), Ok(0));
        assert_eq!(race.counters(1).moves, 2, "{direction:?}: both buckets are held");
    }
}

/// Ranks 1 and 2 want the same four pages of rank 0 from opposite ends, which lets both together have two.
/// Each holds what the other needs next; at their own ends each has room for half of what it moves, too.
#[test]
fn two_initiators_that_each_hold_half_of_what_the_other_needs() {
    let (mut hits, mut bounced) = (0, 0);
    for head_start in 0..60 {
        let mut race = Race::new(3, settings(2, 2), "delay,reorder", head_start);
        let remote = race.pages(0, 4, 9);
        let locals = [race.pages(1, 4, 1), race.pages(2, 4, 2)];
        let direction = if head_start % 2 == 0 { Direction::Put } else { Direction::Get };
        let mut pieces = [0, 1].map(|who| {
            [0, 1, 2, 3].map(|page| (remote.plus(page * PAGE), locals[who].plus(page * PAGE), PAGE))
        });
        pieces[1].reverse();
        let one = race.start(1, 0, direction, &pieces[0]);
        for _ in 0..head_start {
            race.step();
        }
        let two = race.start(2, 0, direction, &pieces[1]);
        assert_eq!((race.wait(1, one), race.wait(2, two)), (Ok(0), Ok(0)), "head start {head_start}");
        match direction {
            Direction::Put => {
                let all = race.bytes(0, remote, 4 * PAGE);
                let whole = |page: &[u8]| page.iter().all(|byte| matches!(byte, 1 | 2));
                assert!(whole(&all), "head start {head_start}");
            }
            Direction::Get => {
                assert!((0..2).all(|who| race.bytes(1 + who, locals[who as usize], 4 * PAGE) == [9; 16384]));
            }
        }
        for rank in [1, 2] {
            hits += race.counters(rank).hits;
            bounced += race.counters(rank).bounced;
        }
    }
    assert!(hits > 0 && bounced > 0, "{hits} pieces found room, {bounced} did not");
}

/// Rank 1 holds a run of eight pages, which is all that there is, and goes on using the first of them; rank 2
/// wants eight others. The run stays as long as its one page is hot, and goes whole as soon as it is not.
#[test]
fn a_run_held_by_one_hot_bucket() {
    const RUN: u64 = 8 * PAGE;
    let mut race = Race::new(3, settings(8, 8), "", 0);
    let (hot, cold) = (race.pages(0, 8, 5), race.pages(0, 16, 6));
    let locals = [race.pages(1, 8, 0), race.pages(2, 16, 0)];
    let whole = race.start(1, 0, Direction::Get, &[(hot, locals[0], RUN)]);
    assert_eq!(race.wait(1, whole), Ok(0));
    assert_eq!((race.counters(0).table.registrations, race.cluster.pinned(0)), (1, RUN));

    // One use is always under way: the next begins before the one before ends.
    let begin = |race: &mut Race| race.start(1, 0, Direction::Get, &[(hot, locals[0], 100)]);
    let mut uses = [begin(&mut race), begin(&mut race)];
    let mut wanted = race.start(2, 0, Direction::Get, &[(cold, locals[1], RUN)]);
    race.until("rank 2 has its bytes", |race, _| {
        if let Some(outcome) = race.cluster.node(1).outcome(uses[0]) {
            assert_eq!(outcome, Ok(0));
            uses = [uses[1], begin(race)];
        }
        race.cluster.node(2).is_done(wanted)
    });
    assert_eq!(race.bytes(2, locals[1], RUN), [6; RUN as usize]);
    assert!(race.counters(2).bounced > 0, "there was no room");
    assert_eq!(race.counters(1).moves, 1, "the hot page was never given up");
    assert_eq!((race.counters(0).table.evictions, race.cluster.pinned(0)), (0, RUN));
    for op in uses {
        assert_eq!(race.wait(1, op), Ok(0));
    }

    // Nobody uses it now. The first to ask may still go without; whoever asks after the run is back does not.
    race.rest();
    for from in [0, 0, RUN] {
        wanted = race.start(2, 0, Direction::Get, &[(cold.plus(from), locals[1].plus(from), RUN)]);
        race.rest();
        assert_eq!(race.cluster.node(2).outcome(wanted), Some(Ok(0)));
    }
    assert_eq!(race.bytes(2, locals[1], 2 * RUN), [6; 2 * RUN as usize]);
    assert_eq!((race.counters(1).given_back, race.counters(1).moves), (1, 1));
    let table = race.counters(0).table;
    // Rank 2 holds eight pages, asked for eight more, and those that it gave up for them are still there.
    assert_eq!((table.pinned, table.pinned_peak), (2 * RUN, 2 * RUN));
    let rescues = table.rescues;
    let back = begin(&mut race);
    assert_eq!(race.wait(1, back), Ok(0));
    assert_eq!(race.counters(0).table.rescues, rescues, "the run went first, and whole");
}

/// Rank 0's memory is replaced while rank 2 holds the right to it and uses it. Rank 0 tells rank 1, which
/// tells rank 2, which at once puts to the new memory: by a right to the old one it would write where nobody
/// looks.
#[test]
fn who_hears_of_new_memory_from_another_has_lost_the_key_to_the_old() {
    let mut crossed = 0;
    for seed in 0..200 {
        let mut race = Race::new(3, settings(8, 8), "delay=0.2,reorder", seed);
        let (remote, local) = (race.pages(0, 1, 0), race.pages(2, 2, 1));
        let put = |race: &mut Race, len| race.start(2, 0, Direction::Put, &[(remote, local, len)]);
        let first = put(&mut race, PAGE);
        assert_eq!(race.wait(2, first), Ok(0));
        // In use when the news comes, or not.
        let under_way = (seed % 2 == 0).then(|| put(&mut race, PAGE));
        let started = race.cluster.time_of(2);
        let now = race.cluster.now();
        race.cluster.compute(1, started - now + 1 + seed * 10);
        race.until("time goes on", |race, _| race.cluster.now() > started);
        race.cluster.map_at(0, remote.offset, PAGE, Access::Full);
        race.cluster.node(0).invalidate(remote.offset, PAGE);
        race.say(0, 1);
        race.fill(2, local.plus(PAGE), PAGE, 2);
        let misses = race.counters(2).misses;
        let mut second = None;
        race.until("rank 2 hears, and has put", |race, step| {
            match step {
                Some(Step::Deliver(1, _)) => race.say(1, 2),
                Some(Step::Deliver(2, _)) => {
                    let pieces = [(remote, local.plus(PAGE), PAGE)];
                    second = Some(race.start(2, 0, Direction::Put, &pieces));
                    assert_eq!(race.counters(2).misses, misses + 1, "seed {seed}: a key is left");
                }
                _ => {}
            }
            second.is_some_and(|op| race.cluster.node(2).is_done(op))
        });
        assert_eq!(race.bytes(0, remote, PAGE), [2; PAGE as usize], "seed {seed}");
        crossed += race.counters(0).table.invalidations;
        if let Some(op) = under_way {
            assert_eq!(race.wait(2, op), Ok(0));
        }
    }
    assert_eq!(crossed, 200, "there was a right to revoke each time");
}

/// Rank 1 holds all that it may of rank 0's memory, and computes for ever. Returns what it holds, and where
/// it puts it from.
fn held_for_ever(race: &mut Race) -> (Place, Place) {
    let (remote, local) = (race.pages(0, 8, 3), race.pages(1, 8, 4));
    let held = race.start(1, 0, Direction::Put, &[(remote, local, 8 * PAGE)]);
    assert_eq!(race.wait(1, held), Ok(0));
    race.rest();
    race.cluster.mute(1);
    (remote, local)
}

/// Rank 2 wants some of what rank 1 holds and does not use. It does without as long as rank 1 may take to
/// answer; then rank 1 is lost, and there is room for the next who asks.
#[test]
fn a_recall_for_others_whose_holder_computes_for_ever() {
    let within = settings(8, 8).recall_within;
    let mut race = Race::new(3, settings(8, 8), "", 0);
    held_for_ever(&mut race);
    let (other, elsewhere) = (race.pages(0, 1, 5), race.pages(2, 1, 0));
    let get = |race: &mut Race| race.start(2, 0, Direction::Get, &[(other, elsewhere, PAGE)]);
    let asked = race.cluster.now();
    for without in 1..4 {
        let first = get(&mut race);
        assert_eq!(race.wait(2, first), Ok(0));
        let counters = race.counters(2);
        assert_eq!((race.bytes(2, elsewhere, PAGE), counters.bounced), (vec![5; PAGE as usize], without));
        assert!(!race.cluster.node(0).is_lost(1));
    }
    race.until("rank 1 is lost", |race, _| race.cluster.node(0).is_lost(1));
    let waited = race.cluster.now() - asked;
    assert!((within..2 * within).contains(&waited), "it waited {waited} ns of {within}");
    assert_eq!(race.cluster.node(0).rights_given(1), []);
    let again = get(&mut race);
    assert_eq!(race.wait(2, again), Ok(0));
    race.rest();
    assert_eq!((race.counters(2).bounced, race.counters(2).hits), (3, 1));
}

/// Rank 0 has given rank 1 up, which has not heard, and puts by a right that it had: to memory that is
/// registered still, under the same key.
#[test]
fn who_was_given_up_and_still_runs_is_let_in_no_more() {
    let mut race = Race::new(3, settings(8, 8), "", 0);
    let (remote, local) = held_for_ever(&mut race);
    let (other, elsewhere) = (race.pages(0, 1, 5), race.pages(2, 1, 0));
    let get = race.start(2, 0, Direction::Get, &[(other, elsewhere, PAGE)]);
    assert_eq!(race.wait(2, get), Ok(0));
    race.until("rank 1 is lost", |race, _| race.cluster.node(0).is_lost(1));
    assert_eq!(race.cluster.pinned(0), 8 * PAGE, "nobody has wanted the room yet");
    race.fill(1, local, PAGE, 9);
    let hits = race.counters(1).hits;
    let late = race.start(1, 0, Direction::Put, &[(remote, local, PAGE)]);
    assert_eq!(race.counters(1).hits, hits + 1, "it holds the right, as far as it knows");
    assert_eq!(race.wait(1, late), Err(OpError::PeerLost { peer: 0 }));
    race.rest();
    assert_eq!(race.bytes(0, remote, PAGE), [4; PAGE as usize]);
    assert!(race.cluster.node(1).is_lost(0) && !race.cluster.node(1).is_lost(2));
}

/// Rank 0 frees what rank 1 holds, and wants to tell rank 2: it waits as long as it said, and not for ever.
#[test]
fn a_recall_whose_holder_computes_for_ever() {
    let within = settings(8, 8).recall_within;
    let mut race = Race::new(3, settings(8, 8), "", 0);
    let (remote, local) = held_for_ever(&mut race);
    let other = race.pages(0, 1, 5);
    let elsewhere = race.pages(2, 1, 0);
    race.cluster.unmap(0, remote.offset, PAGE);
    race.cluster.node(0).invalidate(remote.offset, PAGE);
    let freed = race.cluster.time_of(0);
    race.say(0, 2);
    race.until("rank 2 hears", |_, step| matches!(step, Some(Step::Deliver(2, _))));
    let waited = race.cluster.now() - freed;
    assert!((within..2 * within).contains(&waited), "it waited {waited} ns of {within}");
    assert!(race.cluster.node(0).is_lost(1));
    let late = race.start(0, 1, Direction::Put, &[(local, other, 8)]);
    assert_eq!(race.wait(0, late), Err(OpError::PeerLost { peer: 1 }));

    // What rank 1 had held is free for others.
    let again = race.start(2, 0, Direction::Get, &[(other, elsewhere, PAGE)]);
    assert_eq!(race.wait(2, again), Ok(0));
    race.rest();
    assert_eq!((race.counters(2).bounced, race.counters(0).table.evictions), (0, 0));
    assert_eq!(race.cluster.pinned(0), PAGE, "the run that rank 1 held is gone, another is there");
}

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn run(first: u64, count: u32) -> Run {
    Run { first, count }
}

fn hoses(limit: u64) -> Firehoses {
    Firehoses::new(Order::Fifo, PAGE, limit * PAGE)
}

fn held(hoses: &Firehoses, peer: Rank, bucket: u64) -> HoseId {
    match hoses.find(peer, bucket) {
        Found::Held(id) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_asked_for_is_not_asked_again() {
    let mut hoses = hoses(8);
    let mut asked = Vec::new();
    hoses.add(1, run(2, 1), Key(5), HolderId(0));
    hoses.ask(1, run(0, 5), 7, &mut asked);
    assert_eq!(asked, [run(0, 2), run(3, 2)]);
    assert_eq!((hoses.find(1, 4), hoses.find(2, 4)), (Found::Asked(7), Found::Miss));
    let mut again = Vec::new();
    hoses.ask(1, run(0, 5), 8, &mut again);
    assert_eq!(again, []);
    hoses.answered(1, &asked, 7);
    assert_eq!(hoses.find(1, 4), Found::Miss);
    assert_eq!(hoses.reach(held(&hoses, 1, 2)), (run(2, 1), Key(5)));
}

/// As a transfer of so many bytes does.
fn acquire(hoses: &mut Firehoses, peer: Rank, offset: u64, len: u64) -> Option<Held> {
    let recent = hoses.acquire_recent(peer, offset, len);
    recent.or_else(|| hoses.acquire_reaching(peer, offset, len, true))
}

/// An owner whose memory changes may have told of the newer run, and not yet of the older one's end.
#[test]
fn where_runs_overlap_the_one_that_fits_is_found() {
    let mut hoses = hoses(16);
    hoses.add(1, run(0, 4), Key(1), HolderId(0));
    hoses.add(1, run(1, 5), Key(2), HolderId(1));
    let older = acquire(&mut hoses, 1, 0, PAGE).expect("held");
    let newer = acquire(&mut hoses, 1, 3 * PAGE, 2 * PAGE).expect("held, too");
    let reach = |held: Held| (held.base, held.key);
    assert_eq!((reach(older), reach(newer)), ((0, Key(1)), (PAGE, Key(2))));
    assert_eq!(acquire(&mut hoses, 1, 3 * PAGE, 3 * PAGE + 1), None);
    for id in [older.hose, newer.hose] {
        assert_eq!(hoses.release(id), Released::Kept);
    }
}

#[test]
fn room_is_made_of_idle_ones_and_no_more_than_needed() {
    let mut hoses = hoses(4);
    for bucket in 0..4 {
        hoses.add(1, run(bucket, 1), Key(bucket), HolderId(bucket as u32));
    }
    let busy = held(&hoses, 1, 0);
    hoses.acquire(busy);
    let mut given_up = Vec::new();
    hoses.ask(1, run(10, 2), 7, &mut Vec::new());
    hoses.make_room(1, 8, &mut given_up);
    assert_eq!(given_up, [HolderId(1), HolderId(2)]);
    assert_eq!((hoses.held(1), hoses.find(1, 1)), (2 * PAGE, Found::Miss));
    assert_eq!(hoses.release(busy), Released::Kept);
    hoses.audit().expect("sound");
}

#[test]
fn a_scan_does_not_drive_out_what_is_used_again() {
    let mut hoses = Firehoses::new(Order::default(), PAGE, 3 * PAGE);
    let used = |hoses: &mut Firehoses, bucket| {
        let mut given_up = Vec::new();
        if hoses.find(1, bucket) == Found::Miss {
            let mut asked = Vec::new();
            hoses.ask(1, run(bucket, 1), 7, &mut asked);
            hoses.make_room(1, 8, &mut given_up);
            hoses.answered(1, &asked, 7);
            hoses.add(1, run(bucket, 1), Key(bucket), HolderId(bucket as u32));
        }
        let id = held(hoses, 1, bucket);
        hoses.acquire(id);
        assert_eq!(hoses.release(id), Released::Kept);
        given_up
    };
    for hot in [0, 1, 0, 1, 100] {
        assert_eq!(used(&mut hoses, hot), []);
    }
    for scanned in 101..200 {
        assert_eq!(used(&mut hoses, scanned), [HolderId(scanned as u32 - 1)], "the scan's own last one");
        assert_eq!((used(&mut hoses, 0), used(&mut hoses, 1)), (vec![], vec![]));
    }
}

#[test]
fn a_revoked_firehose_is_given_back_after_its_last_use() {
    let mut hoses = hoses(4);
    hoses.add(1, run(0, 2), Key(1), HolderId(9));
    let id = held(&hoses, 1, 1);
    hoses.acquire(id);
    hoses.acquire(id);
    assert!(!hoses.revoke(1, HolderId(9)));
    assert_eq!(hoses.find(1, 0), Found::Miss, "nobody starts to use it");
    assert_eq!(hoses.release(id), Released::Kept);
    assert_eq!(hoses.release(id), Released::Wanted(1, HolderId(9)));
    assert!(hoses.revoke(1, HolderId(9)), "what has been given back already is no longer here");
    hoses.audit().expect("sound");
}

#[test]
fn what_is_in_use_of_a_peer_that_is_gone_is_not_given_back_to_its_successor() {
    let mut hoses = hoses(4);
    hoses.set_limit(1, PAGE);
    hoses.add(1, run(0, 1), Key(1), HolderId(9));
    let old = held(&hoses, 1, 0);
    hoses.acquire(old);
    hoses.drop_peer(1);
    assert_eq!((hoses.find(1, 0), hoses.held(1)), (Found::Miss, 0));
    // The new process gives the same bucket under the same name, and lets more be held.
    hoses.add(1, run(0, 1), Key(2), HolderId(9));
    hoses.add(1, run(1, 3), Key(3), HolderId(10));
    hoses.make_room(1, 8, &mut Vec::new());
    assert_eq!((hoses.held(1), hoses.holders_of(1)), (4 * PAGE, vec![9, 10]));
    assert_eq!(hoses.reach(old), (run(0, 1), Key(1)), "what is in use stays as it is");
    assert_eq!(hoses.release(old), Released::Gone);
    assert_eq!(hoses.reach(held(&hoses, 1, 0)), (run(0, 1), Key(2)));
    hoses.audit().expect("sound");
    hoses.drop_peer(1);
    hoses.drop_peer(1);
    hoses.add(2, run(0, 1), Key(4), HolderId(0));
    assert_eq!((hoses.peers.len(), hoses.held(2)), (2, PAGE), "places are used again, each by one peer");
    hoses.add(1, run(0, 1), Key(5), HolderId(0));
    assert_eq!((hoses.peers.len(), hoses.free_peers.len()), (2, 0));
    hoses.audit().expect("sound");
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "minutes for a few histories")]
    fn any_history_keeps_what_is_in_use(
        steps in proptest::collection::vec((0u8..8, 1u32..3, 0u64..12, any::<usize>()), 1..200),
    ) {
        let mut hoses = hoses(4);
        let (mut used, mut next) = (Vec::new(), 0u32);
        for (what, peer, bucket, which) in steps {
            let mut given_up = Vec::new();
            match what {
                0 | 1 if (0..2).all(|more| hoses.find(peer, bucket + more) == Found::Miss) => {
                    next += 1;
                    hoses.add(peer, run(bucket, 2), Key(1), HolderId(next));
                }
                2 | 3 => if let Found::Held(id) = hoses.find(peer, bucket) {
                    hoses.acquire(id);
                    used.push((peer, id, hoses.reach(id)));
                },
                4 if !used.is_empty() => {
                    let (_, id, _) = used.swap_remove(which % used.len());
                    hoses.release(id);
                }
                5 => {
                    let mut asked = Vec::new();
                    hoses.ask(peer, run(20, 2), next, &mut asked);
                    hoses.make_room(peer, 3, &mut given_up);
                    hoses.answered(peer, &asked, next);
                }
                6 => _ = hoses.revoke(peer, HolderId(which as u32 % (next + 1))),
                7 if which % 8 == 0 => hoses.drop_peer(peer),
                _ => {}
            }
            for (_, id, reach) in &used {
                prop_assert_eq!(hoses.reach(*id), *reach, "what is in use stays as it is");
            }
            hoses.audit().map_err(TestCaseError::fail)?;
        }
    }
}

/// What was found last is counted apart, until another is: nobody is to see a difference.
#[test]
fn every_use_is_counted_at_its_peer_whichever_was_found_last() {
    let mut hoses = hoses(16);
    for peer in [1, 2] {
        hoses.add(peer, run(0, 4), Key(1), HolderId(peer));
    }
    let hits = |hoses: &Firehoses| {
        let (known, gone) = hoses.counters();
        let mut known: Vec<(Rank, u64)> = known.map(|(rank, counters)| (rank, counters.hits)).collect();
        known.sort_unstable();
        (known, gone.hits)
    };
    let mut used = Vec::new();
    for peer in [1, 1, 1, 2, 2, 1] {
        used.push(acquire(&mut hoses, peer, 3 * PAGE, 8).expect("held").hose);
    }
    assert_eq!(hits(&hoses), (vec![(1, 4), (2, 2)], 0));
    hoses.add(2, run(8, 1), Key(1), HolderId(3));
    assert_eq!(hits(&hoses), (vec![(1, 4), (2, 2)], 0), "what is added ends what was found last");
    used.push(acquire(&mut hoses, 1, 3 * PAGE, 8).expect("held").hose);
    used.push(acquire(&mut hoses, 1, 2 * PAGE, 8).expect("held").hose);
    assert_eq!(hits(&hoses), (vec![(1, 6), (2, 2)], 0));
    assert_eq!(hoses.references(), 8);
    assert!(!hoses.revoke(1, HolderId(1)), "it is in use");
    assert_eq!(hits(&hoses), (vec![(1, 6), (2, 2)], 0));
    hoses.drop_peer(1);
    assert_eq!(hits(&hoses), (vec![(2, 2)], 6));
    let ends: Vec<Released> = used.into_iter().map(|id| hoses.release(id)).collect();
    assert_eq!(ends.iter().filter(|end| **end == Released::Gone).count(), 1);
    hoses.audit().expect("sound");
}

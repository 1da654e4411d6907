//! What is counted of each peer: what happened with it, and nothing of those that were never talked to.

mod race;

use engine::Direction::{Get, Put};
use engine::registration::{ByPeer, PeerCounters};
use engine::{Direction, Rank};
use race::{PAGE, Race, settings};
use sim::{Access, Step};

const NONE: PeerCounters =
    PeerCounters { hits: 0, misses: 0, moves: 0, held: 0, served: 0, recalls: 0, given: 0 };

fn of(race: &mut Race, rank: Rank) -> ByPeer {
    race.cluster.node(rank).registration_by_peer()
}

/// Moves the first `pages` of `peer`'s memory, `times` times, one after the other.
fn transfer(race: &mut Race, rank: Rank, peer: Rank, direction: Direction, pages: u64, times: u32) {
    let theirs = race.cluster.map(peer, pages * PAGE, Access::Full);
    let ours = race.pages(rank, pages, 1);
    for _ in 0..times {
        let op = race.start(rank, peer, direction, &[(theirs, ours, pages * PAGE)]);
        race.wait(rank, op).expect("there is room for it");
    }
    race.rest();
}

#[test]
fn what_happened_is_counted_of_the_peer_that_it_happened_with() {
    let mut race = Race::new(4, settings(8, 8), "", 1);
    transfer(&mut race, 0, 1, Put, 2, 3);
    transfer(&mut race, 0, 2, Get, 1, 1);
    transfer(&mut race, 2, 0, Put, 1, 5);
    let asked = |hits, bytes| PeerCounters { hits, misses: 1, moves: 1, held: bytes, ..NONE };
    let served = |bytes| PeerCounters { served: 1, given: bytes, ..NONE };
    let mut both = asked(1, PAGE);
    both += served(PAGE);
    assert_eq!(of(&mut race, 0).peers, [(1, asked(3, 2 * PAGE)), (2, both)]);
    assert_eq!(of(&mut race, 1).peers, [(0, served(2 * PAGE))]);
    let mut both = asked(5, PAGE);
    both += served(PAGE);
    assert_eq!(of(&mut race, 2).peers, [(0, both)]);
    assert_eq!(of(&mut race, 3), ByPeer::default(), "nobody talked to it");
}

#[test]
fn who_is_asked_to_give_back_is_counted() {
    let mut race = Race::new(4, settings(4, 16), "", 1);
    transfer(&mut race, 1, 0, Put, 4, 1);
    transfer(&mut race, 2, 0, Put, 3, 2);
    let counted = of(&mut race, 0);
    let [(1, first), (2, second)] = counted.peers[..] else { panic!("{counted:?}") };
    assert!(first.recalls > 0 && second.recalls == 0, "{counted:?}");
    assert_eq!(first.recalls, race.counters(0).table.recalls);
    assert!(first.given < 4 * PAGE && second.given == 3 * PAGE, "{counted:?}");
    assert_eq!(of(&mut race, 1).peers[0].1.held, first.given);
}

#[test]
fn a_peer_that_is_gone_leaves_its_sum_and_the_next_of_its_rank_begins_anew() {
    let mut race = Race::new(3, settings(8, 8), "", 1);
    transfer(&mut race, 0, 1, Put, 2, 3);
    transfer(&mut race, 1, 0, Get, 1, 2);
    transfer(&mut race, 0, 2, Put, 1, 1);
    let before = of(&mut race, 0);
    assert_eq!(race.cluster.restart(1), Step::Restarted(1));
    race.until("the loss is known and the new process met", |race, _| {
        let incarnation = race.cluster.incarnation(1);
        let node = race.cluster.node(0);
        node.incarnation_of(1) == incarnation && !node.is_lost(1)
    });
    let after = of(&mut race, 0);
    let (old, other) = (before.peers[0].1, before.peers[1]);
    assert_eq!(after.gone, PeerCounters { held: 0, given: 0, ..old }, "what it held is free");
    assert_eq!(after.peers, [other]);
    transfer(&mut race, 0, 1, Put, 1, 2);
    let next = of(&mut race, 0);
    assert_eq!(next.gone, after.gone);
    assert_eq!(next.peers, [(1, PeerCounters { hits: 2, misses: 1, moves: 1, held: PAGE, ..NONE }), other]);
}

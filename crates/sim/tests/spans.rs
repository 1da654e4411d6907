//! What a program's subscriber sees of moves and recalls.

mod race;
#[path = "../../../tests/api/spans_seen.rs"]
mod spans;

use engine::Direction::Put;
use engine::Rank;
use race::{PAGE, Race, settings};
use sim::Access;
use spans::spans_of;

/// Puts so many pages into memory of `peer`'s that was never asked for.
fn put(race: &mut Race, rank: Rank, peer: Rank, pages: u64) {
    let theirs = race.cluster.map(peer, pages * PAGE, Access::Full);
    let ours = race.pages(rank, pages, 1);
    let op = race.start(rank, peer, Put, &[(theirs, ours, pages * PAGE)]);
    race.wait(rank, op).expect("there is room for it");
    race.rest();
}

#[test]
fn a_move_is_a_span_from_the_request_to_the_answer() {
    let seen = spans_of(|| put(&mut Race::new(2, settings(8, 8), "", 1), 0, 1, 3));
    assert_eq!(seen, ["move peer=1 asked=3 given_back=0 rides=false moved=3 outcome=\"granted\""]);
}

#[test]
fn a_move_whose_peer_ends_is_a_span_that_says_so() {
    let mut race = Race::new(2, settings(8, 8), "", 1);
    let theirs = race.cluster.map(1, PAGE, Access::Full);
    let ours = race.pages(0, 1, 1);
    let seen = spans_of(|| {
        let op = race.start(0, 1, Put, &[(theirs, ours, PAGE)]);
        race.cluster.node(0).lose(1);
        assert!(race.wait(0, op).is_err());
        race.rest();
    });
    assert_eq!(seen, ["move peer=1 asked=1 given_back=0 rides=false outcome=\"lost\""]);
}

#[test]
fn a_recall_is_a_span_until_the_holder_answers() {
    let seen = spans_of(|| {
        let mut race = Race::new(3, settings(4, 16), "", 1);
        put(&mut race, 1, 0, 4);
        put(&mut race, 2, 0, 3);
        assert!(race.counters(0).table.recalls > 0);
    });
    let recalls: Vec<&String> = seen.iter().filter(|text| text.starts_with("recall ")).collect();
    let [recall] = recalls[..] else { panic!("{seen:?}") };
    assert!(recall.starts_with("recall peer=1 bytes="), "{recall}");
    assert!(recall.ends_with(" outcome=\"answered\""), "{recall}");
}

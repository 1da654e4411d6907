//! Messages about registration that no correct peer sends.

use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::wire::{Header, Kind};
use engine::{Direction, Lane, MemId, OpError, OpId, Piece, Place, Rank, Transport};
use sim::{Access, Cluster, Costs, Plan, Reach};

fn cluster() -> Cluster {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: 1 << 40,
        victims_bytes: 1 << 20,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: u64::MAX,
    };
    let costs = Costs::infiniband_modern();
    Cluster::new(Plan {
        handlers: 1,
        registration: Some(settings),
        reach: Reach::Heap,
        ..Plan::new(2, costs)
    })
}

fn send(cluster: &mut Cluster, from: Rank, to: Rank, lane: Lane, header: Header, payload: &[u8]) {
    let header = Header { len: payload.len() as u32, ..header };
    cluster.node(from).transport().send(to, lane, &header.encode(), payload).expect("the lane has room");
}

fn settle(cluster: &mut Cluster) {
    while cluster.step().is_some() {}
    for rank in 0..2 {
        cluster.node(rank).audit().expect("the books add up");
    }
}

/// A get by rank 0 from rank 1 that has asked, and has not been answered.
fn get(cluster: &mut Cluster) -> (OpId, u64) {
    let there = cluster.map(1, 8192, Access::Full);
    let here = cluster.map(0, 8192, Access::Full);
    let piece = Piece::new(there, Place::new(MemId::Space, here.offset), 8192).expect("inside memory");
    (cluster.node(0).transfer(1, Direction::Get, &[piece], None), there.offset >> 12)
}

#[test]
fn a_move_for_more_than_anybody_asks_is_refused_at_once() {
    let mut cluster = cluster();
    let payload: Vec<u8> = 5u64.to_le_bytes().into_iter().chain(u32::MAX.to_le_bytes()).collect();
    let header = Header { args: [1, 0, 0, 0], ..Header::new(Kind::Move) };
    send(&mut cluster, 0, 1, Lane::Request, header, &payload);
    settle(&mut cluster);
    assert_eq!(cluster.node(1).counters().malformed, 1);
    assert_eq!(cluster.node(1).registration_counters().table.registrations, 0);
}

#[test]
fn an_answer_that_gives_too_much_or_one_name_twice_or_what_was_not_asked_for_gives_nothing_more() {
    let mut cluster = cluster();
    let (op, bucket) = get(&mut cluster);
    let given = |first: u64, count: u32, holder: u32| {
        let words = first.to_le_bytes().into_iter().chain(7u64.to_le_bytes());
        words.chain(count.to_le_bytes()).chain(holder.to_le_bytes()).collect::<Vec<u8>>()
    };
    // The first move of a node bears the number 1, in the first place.
    let answer = Header { token: 1 << 32, args: [u64::MAX, 0, 0, 0], ..Header::new(Kind::Moved) };
    let payload = [
        given(bucket, u32::MAX, 1),
        given(bucket + 5, 1, 2),
        given(bucket, 1, 3),
        given(bucket + 1, 1, 3),
        given(bucket + 1, 1, 4),
        // Two buckets were asked for.
        given(bucket, 1, 5),
    ];
    send(&mut cluster, 1, 0, Lane::Reply, answer, &payload.concat());
    settle(&mut cluster);
    // The owner's own answer comes too late.
    assert_eq!((cluster.node(0).counters().malformed, cluster.node(0).rights_held(1)), (5, vec![3, 4]));
    let outcome = cluster.node(0).outcome(op);
    assert!(
        matches!(outcome, Some(Err(OpError::Fault { peer: 1, .. }))),
        "no key of those is one: {outcome:?}"
    );
}

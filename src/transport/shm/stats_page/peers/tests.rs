use std::sync::atomic::Ordering;

use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{Direction, HandlerKey, Piece};
use sim::{Access, Cluster, Costs, Plan, Reach};

use super::*;
use crate::transport::shm::control::{Identity, Mapping};
use crate::transport::shm::stats_page::latencies::read_latencies;
use vm::Segment;

const SIZE: u32 = 40;
const PAGE: u64 = 4096;
const ROW_WORDS: usize = 1 + COUNTERS;
/// One of the process's.
const HANDLER: HandlerKey = HandlerKey { number: 7, check: 8 };

fn process() -> (Control, OwnedFd, Segment) {
    let identity = Identity {
        rank: 0,
        size: 1,
        nonce: 0,
        nonce_addr: 0,
        fences_asymmetric: false,
        ranges_only: false,
        unattended: false,
        directory: 0,
        allocated: Mapping::default(),
        heap: Mapping::default(),
    };
    let (control, segment) = Control::create(1, &identity).expect("memory for one page");
    control.show_handlers(&[HANDLER]);
    let page = segment.fd().try_clone_to_owned().expect("a descriptor");
    (control, page, segment)
}

/// Simulated nodes that register memory.
fn cluster() -> Cluster {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: 256 * PAGE,
        victims_bytes: 256 * PAGE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 1_000_000,
    };
    Cluster::new(Plan {
        reach: Reach::Heap,
        registration: Some(settings),
        ..Plan::new(SIZE, Costs::infiniband_modern())
    })
}

/// Puts a page of `rank`'s into one of `peer`'s, `times` times.
fn put(cluster: &mut Cluster, rank: Rank, peer: Rank, times: u32) {
    let from = cluster.map(rank, PAGE, Access::Full);
    let to = cluster.map(peer, PAGE, Access::Full);
    let piece = Piece::new(to, from, PAGE).expect("inside the memory");
    for _ in 0..times {
        let op = cluster.node(rank).transfer(peer, Direction::Put, &[piece], None);
        while !cluster.node(rank).is_done(op) {
            assert!(cluster.step().is_some(), "nothing happens any more");
        }
        cluster.node(rank).outcome(op).expect("it is done").expect("there is room");
    }
}

/// What a watcher reads of what `rank` shows.
fn seen(cluster: &Cluster, rank: Rank) -> Peers {
    let (control, page, _segment) = process();
    control.publish_peers(1, &Peers::of(cluster.view(rank).registration_by_peer()));
    assert_eq!(control.handlers(), Some((1 | 1 << 32, vec![HANDLER])), "and nothing else is overwritten");
    read_peers(&page, SIZE).expect("shown above")
}

fn sum(peers: &Peers) -> PeerCounters {
    ByPeer { peers: peers.busiest.clone(), gone: peers.others }.sum()
}

#[test]
fn the_busiest_are_seen_one_by_one_and_the_others_together() {
    let mut cluster = cluster();
    for peer in 1..SIZE {
        put(&mut cluster, 0, peer, peer.min(20));
    }
    put(&mut cluster, 5, 0, 3);
    let before = seen(&cluster, 0);
    let ranks: Vec<Rank> = before.busiest.iter().map(|(rank, _)| *rank).collect();
    // What rank 5 asks for besides does not make it one of the busiest.
    let expected: Vec<Rank> = (1..SIZE).filter(|rank| *rank > 7).collect();
    assert_eq!((ranks, before.more), (expected, 7));
    let each = |hits| PeerCounters { hits, misses: 1, moves: 1, held: PAGE, ..PeerCounters::default() };
    assert_eq!(before.busiest[0], (8, each(8)));
    assert_eq!(before.busiest[31], (39, each(20)));
    let mut others = PeerCounters { served: 1, given: PAGE, ..PeerCounters::default() };
    (1..=7).for_each(|hits| others += each(hits));
    assert_eq!(before.others, others);
    assert_eq!(
        seen(&cluster, 39).busiest,
        [(0, PeerCounters { served: 1, given: PAGE, ..PeerCounters::default() })]
    );

    let total = cluster.view(0).registration_counters();
    let all = sum(&before);
    assert_eq!(
        (all.hits, all.misses, all.moves, all.served),
        (total.hits, total.misses, total.moves, total.served)
    );
    assert_eq!((all.held, all.given), (39 * PAGE, PAGE));

    cluster.kill(39);
    while !cluster.view(0).is_lost(39) {
        assert!(cluster.step().is_some(), "the loss is told");
    }
    let after = seen(&cluster, 0);
    assert_eq!((after.busiest.len(), after.more), (32, 6));
    assert_eq!(sum(&after), PeerCounters { held: 38 * PAGE, ..all }, "what was counted of it stays");
}

#[test]
fn who_registers_nothing_shows_no_peers_and_who_shows_nothing_is_not_taken_for_that() {
    let (control, page, _segment) = process();
    assert_eq!(read_peers(&page, SIZE), None);
    control.publish_peers(1, &Peers::of(ByPeer::default()));
    assert_eq!(read_peers(&page, SIZE), Some(Peers::default()));
}

#[test]
fn what_no_rank_shows_is_not_believed() {
    let (control, page, _segment) = process();
    let counters = PeerCounters { hits: 1, ..PeerCounters::default() };
    let show = |ranks: &[Rank], more| {
        let busiest = ranks.iter().map(|rank| (*rank, counters)).collect();
        control.publish_peers(1, &Peers { busiest, more, others: counters });
        read_peers(&page, SIZE)
    };
    assert_eq!(show(&[1, 39], 2).map(|peers| peers.busiest), Some(vec![(1, counters), (39, counters)]));
    assert_eq!(show(&[1, 40], 0), None, "there is no such rank");
    assert_eq!(show(&[2, 1], 0), None, "out of order");
    assert_eq!(show(&[2, 2], 0), None, "the same twice");
    assert_eq!(show(&[1, 2], 38), None, "more peers than the job has");
    assert_eq!(show(&[1, 2], u32::MAX), None);
    let head = control.word(AT + 16);
    for rows in [33, u64::from(u32::MAX)] {
        assert!(show(&[1], 0).is_some());
        head.store(rows, Ordering::Relaxed);
        assert_eq!(read_peers(&page, u32::MAX), None, "{rows} rows");
    }
    assert!(show(&[1], 0).is_some());
    control.word(AT + 8 * (3 + COUNTERS as u64)).store(1 | 1 << 32, Ordering::Relaxed);
    assert_eq!(read_peers(&page, SIZE), None, "no rank is as large");
}

#[test]
fn whatever_a_process_writes_there_its_rows_add_up() {
    let (control, page, _segment) = process();
    control.publish_words(AT, 1, &[u64::MAX; WORDS]);
    assert_eq!(read_peers(&page, u32::MAX), None);
    let mut words = [u64::MAX; WORDS];
    words[0] = ROWS_MAX as u64;
    (0..ROWS_MAX).for_each(|row| words[1 + COUNTERS + row * ROW_WORDS] = row as u64);
    control.publish_words(AT, 1, &words);
    let peers = read_peers(&page, SIZE).expect("such ranks there are");
    assert!(sum(&peers).hits >= 33 * COUNTER_MAX);
    let file = std::fs::File::open("/dev/zero").expect("every system has it");
    assert_eq!(read_peers(&file.into(), SIZE), None);
}

#[test]
fn peers_that_were_refused_or_waited_for_are_seen_and_a_rank_may_be_its_own() {
    let (control, page, _segment) = process();
    assert_eq!(read_grant_peers(&page, SIZE), None, "nothing shown yet");
    let each = |denied| GrantPeerCounters { denied, waited: 2, in_use: 1 };
    let all = |count| GrantsByPeer {
        peers: (0..count).map(|rank| (rank, each(u64::from(rank)))).collect(),
        gone: each(1000),
    };
    control.publish_grant_peers(1, &GrantPeers::of_grants(all(SIZE)));
    let seen = read_grant_peers(&page, SIZE).expect("shown above");
    assert_eq!((seen.busiest.len(), seen.busiest[0], seen.more), (32, (8, each(8)), 8));
    assert_eq!(seen.others, GrantPeerCounters { denied: 1000 + 28, waited: 18, in_use: 9 });
    assert_eq!(read_grant_peers(&page, SIZE - 1), None, "more than the job has");
    assert_eq!(control.handlers(), Some((1 | 1 << 32, vec![HANDLER])), "and nothing else is overwritten");
    assert_eq!((read_peers(&page, SIZE), read_latencies(&page)), (None, None));
    control.publish_words(GRANT_PEERS_AT, 2, &[u64::MAX; GRANT_WORDS]);
    assert_eq!(read_grant_peers(&page, u32::MAX), None);
}

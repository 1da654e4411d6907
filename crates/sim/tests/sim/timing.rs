//! Virtual time, by the costs of Myrinet/GM: what one operation takes, and what several do to each other.

use crate::drive::{piece, transfer, wait};
use engine::node::AmBody;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{AmSend, Atomic, Direction, Lane, MemId, Nanos, Place};
use sim::{Access, Cluster, Costs, Plan, Reach, Step};

const MEGABYTE: u64 = 1 << 20;

/// Two ranks and private memory of a MiB at each.
fn two(costs: &Costs, reach: Reach) -> (Cluster, Place, Place) {
    let mut cluster = Cluster::new(Plan { handlers: 2, reach, ..Plan::new(2, costs.clone()) });
    let [here, there] = [0, 1].map(|rank| cluster.map(rank, MEGABYTE, Access::Full));
    (cluster, here, there)
}

fn put_ns(costs: &Costs, reach: Reach, len: u64) -> Nanos {
    let (mut cluster, here, there) = two(costs, reach);
    let (outcome, time) = transfer(&mut cluster, 0, 1, Direction::Put, &[piece(there, here, len)]);
    assert_eq!(outcome, Ok(0));
    time
}

/// Parts in a hundred that `is` differs from `wanted`.
fn deviation(is: Nanos, wanted: Nanos) -> u64 {
    is.abs_diff(wanted) * 100 / wanted
}

/// Each page is registered that is asked for.
fn pages(order: Order) -> Settings {
    Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 1,
        peers_bytes: MEGABYTE,
        victims_bytes: MEGABYTE,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: MEGABYTE },
        order,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 1_000_000_000,
    }
}

#[test]
fn a_put_takes_what_its_costs_say() {
    let gm = Costs::myrinet_gm_2003();
    for len in [8, 4096, MEGABYTE] {
        let sum = gm.send_overhead_ns + gm.card_ns(len) + 2 * gm.latency_ns + gm.completion_overhead_ns;
        assert_eq!(put_ns(&gm, Reach::Everything, len), sum);
    }
    // The paper's hits: 14 us in one kernel, 15 us in the other.
    let short = put_ns(&gm, Reach::Everything, 8);
    assert!((14_000..=15_000).contains(&short), "{short} ns");
    // The PCI bus of that machine carries 264 MB/s.
    let long = put_ns(&gm, Reach::Everything, MEGABYTE);
    assert_eq!(deviation(long, MEGABYTE * 1000 / 264), 0, "{long} ns");
}

#[test]
fn a_get_takes_one_round_trip_and_no_processor_at_the_target() {
    let gm = Costs::myrinet_gm_2003();
    let (mut cluster, here, there) = two(&gm, Reach::Everything);
    cluster.compute(1, 1_000_000_000);
    let (outcome, time) = transfer(&mut cluster, 0, 1, Direction::Get, &[piece(there, here, 100)]);
    assert_eq!(outcome, Ok(0));
    let cards = gm.card_ns(0) + gm.card_ns(100);
    assert_eq!(time, gm.send_overhead_ns + cards + 2 * gm.latency_ns + gm.completion_overhead_ns);
    assert_eq!(cluster.time_of(1), 1_000_000_000, "the target's processor had other work only");
}

/// By the key of a whole heap as by those of pages: words as all else.
#[test]
fn words_need_no_processor_at_the_target_either() {
    const TEN_SECONDS: Nanos = 10_000_000_000;
    let costs = Costs::infiniband_modern();
    for registration in [None, Some(Order::Fifo)].map(|order| order.map(pages)) {
        let plan = Plan { reach: Reach::Heap, registration, ..Plan::new(2, costs.clone()) };
        let mut cluster = Cluster::new(plan);
        let here = cluster.map(0, 64, Access::Full);
        let memories = [Some(cluster.heap(1, 64)), registration.map(|_| cluster.map(1, 64, Access::Full))];
        let both = [Direction::Put, Direction::Get];
        // What has to be asked for, is.
        for there in memories.into_iter().flatten() {
            for direction in both {
                let (outcome, _) = transfer(&mut cluster, 0, 1, direction, &[piece(there, here, 64)]);
                assert_eq!(outcome, Ok(0));
            }
        }
        let now = cluster.time_of(1);
        cluster.compute(1, TEN_SECONDS);
        for (there, len) in
            memories.into_iter().flatten().flat_map(|there| [4, 8, 16].map(|len| (there, len)))
        {
            for direction in both {
                let pieces = [piece(there, here, len)];
                let (outcome, time) = transfer(&mut cluster, 0, 1, direction, &pieces);
                assert!(outcome == Ok(0) && time < 10_000, "{direction:?} of {len} bytes took {time} ns");
            }
        }
        assert_eq!(cluster.time_of(1), now + TEN_SECONDS, "the target's processor had other work only");
    }
}

/// An echo of an empty message: how long it takes, with `computing` ns of work that rank 1 has before.
fn echo_ns(costs: &Costs, computing: Nanos) -> Nanos {
    let (mut cluster, ..) = two(costs, Reach::Everything);
    cluster.compute(1, computing);
    let ping = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    cluster.node(0).send_am(&ping).expect("the lane is empty");
    loop {
        match cluster.step().expect("an answer is still to come") {
            Step::Deliver(1, delivery) => {
                let pong = AmSend { peer: delivery.peer, lane: Lane::Reply, handler: 1, ..ping };
                cluster.node(1).send_am(&pong).expect("a reply always has room");
            }
            Step::Deliver(0, _) => return cluster.time_of(0),
            _ => {}
        }
    }
}

#[test]
fn a_message_waits_for_its_receivers_processor() {
    let gm = Costs::myrinet_gm_2003();
    let one_way = gm.send_overhead_ns + gm.card_ns(0) + gm.latency_ns + gm.receive_overhead_ns;
    assert_eq!(echo_ns(&gm, 0), 2 * one_way);
    assert_eq!(deviation(2 * one_way, 21_000), 0, "the handshake that the file says it is calibrated to");
    let computing = 1_000_000;
    assert_eq!(echo_ns(&gm, computing), computing + gm.receive_overhead_ns + one_way);
}

#[test]
fn bytes_leave_one_after_another_and_ranks_do_not_wait_for_each_other() {
    let gm = Costs::myrinet_gm_2003();
    let alone = put_ns(&gm, Reach::Everything, MEGABYTE);
    let (mut cluster, here, there) = two(&gm, Reach::Everything);
    let puts = [0, 0, 1].map(|rank| {
        let (near, far) = if rank == 0 { (here, there) } else { (there, here) };
        (rank, cluster.node(rank).transfer(1 - rank, Direction::Put, &[piece(far, near, MEGABYTE)], None))
    });
    let ends = puts.map(|(rank, id)| {
        assert_eq!(wait(&mut cluster, rank, id), Ok(0));
        cluster.time_of(rank)
    });
    assert_eq!(deviation(ends[1], 2 * alone), 0, "{ends:?}");
    assert_eq!(cluster.time_of(0) / 1_000_000, ends[1] / 1_000_000);
    let (mut cluster, here, there) = two(&gm, Reach::Everything);
    let both = [(0, there, here), (1, here, there)].map(|(rank, far, near)| {
        (rank, cluster.node(rank).transfer(1 - rank, Direction::Put, &[piece(far, near, MEGABYTE)], None))
    });
    for (rank, id) in both {
        assert_eq!(wait(&mut cluster, rank, id), Ok(0));
    }
    assert_eq!(deviation(cluster.now(), alone), 0, "links are for both directions at once");
}

#[test]
fn a_transfer_by_message_pays_its_copies() {
    let gm = Costs::myrinet_gm_2003();
    let time = put_ns(&gm, Reach::Heap, MEGABYTE);
    // Each end copies the bytes once, at 5 ns a byte, and the two overlap.
    let copy = gm.copy_ns(MEGABYTE);
    assert!(time > copy && time < 3 * copy, "{time} ns where one copy takes {copy} ns");
    assert!(time > 13 * put_ns(&gm, Reach::Everything, MEGABYTE) / 10);
}

#[test]
fn a_payload_is_copied_when_it_is_sent() {
    let gm = Costs::myrinet_gm_2003();
    let (mut cluster, ..) = two(&gm, Reach::Heap);
    let body = AmBody::Medium(&[1; 4000]);
    let note = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [0; 4], body };
    cluster.node(0).send_am(&note).expect("the lane is empty");
    assert_eq!(cluster.time_of(0), gm.send_overhead_ns + gm.copy_ns(4000));
    assert_eq!(gm.copy_ns(4000), 20_000);
}

#[test]
fn a_program_goes_on_when_all_of_its_work_is_done() {
    let (mut cluster, ..) = two(&Costs::myrinet_gm_2003(), Reach::Heap);
    cluster.compute(1, 1_000_000);
    cluster.compute(1, 500_000);
    while cluster.step().expect("the work ends") != Step::Polled(1) {}
    assert_eq!(cluster.now(), 1_500_000);
}

#[test]
fn who_found_a_lane_full_is_polled_when_it_has_room() {
    let gm = Costs::myrinet_gm_2003();
    let (mut cluster, ..) = two(&gm, Reach::Heap);
    let note = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    let sent = (0..100).take_while(|_| cluster.node(0).send_am(&note).is_ok()).count();
    assert_eq!(sent as u32, gm.lane_messages);
    let mut taken_at = None;
    loop {
        match cluster.step().expect("the sender is polled") {
            Step::Deliver(1, _) => _ = taken_at.get_or_insert(cluster.now()),
            Step::Polled(0) if taken_at.is_some() => break,
            _ => {}
        }
    }
    let busy = u64::from(gm.lane_messages) * gm.send_overhead_ns;
    assert_eq!(
        Some(cluster.now()),
        taken_at.map(|at| busy.max(at + gm.latency_ns)),
        "the news takes its time"
    );
    assert!(cluster.node(0).send_am(&note).is_ok());
}

#[test]
fn an_atomic_is_a_round_trip_of_the_card() {
    let gm = Costs::myrinet_gm_2003();
    let (mut cluster, ..) = two(&gm, Reach::Heap);
    let word = cluster.heap(1, 8);
    for old in [0, 5] {
        let before = cluster.time_of(0);
        let id = cluster.node(0).atomic(1, word, Atomic::fetch_add(5), None);
        assert_eq!(wait(&mut cluster, 0, id), Ok(old));
        assert_eq!(cluster.time_of(0) - before, put_ns(&gm, Reach::Everything, 8));
    }
    let mut bytes = [0; 8];
    cluster.peek(1, Place::new(MemId::Heap, word.offset), &mut bytes).expect("the word is there");
    assert_eq!(u64::from_ne_bytes(bytes), 10);
}

#[test]
fn a_deadline_is_noticed_by_its_alarm() {
    let (mut cluster, here, there) = two(&Costs::myrinet_gm_2003(), Reach::Heap);
    cluster.mute(1);
    let id = cluster.node(0).transfer(1, Direction::Get, &[piece(there, here, 8)], Some(77_000));
    cluster.alarm(0, 77_000);
    let outcome = wait(&mut cluster, 0, id);
    assert_eq!(outcome, Err(engine::OpError::Timeout { peer: 1 }));
    assert_eq!(cluster.now(), 77_000);
    assert_eq!(cluster.step(), None, "nothing is left to happen");
}

#[test]
fn pm_is_as_fast_as_its_figures() {
    let pm = Costs::myrinet_pm_1998();
    assert_eq!(deviation(echo_ns(&pm, 0) / 2, 7200), 0, "7.2 us one way");
    let long = put_ns(&pm, Reach::Everything, MEGABYTE);
    assert_eq!(deviation(long, MEGABYTE * 10_000 / 1088), 0, "108.8 MB/s");
}

#[test]
fn thousands_of_ranks_meet_at_a_barrier() {
    const SIZE: u32 = if cfg!(debug_assertions) { 1024 } else { 4096 };
    let mut cluster = Cluster::new(Plan::new(SIZE, Costs::infiniband_modern()));
    let waits: Vec<_> = (0..SIZE).map(|rank| cluster.node(rank).barrier(None)).collect();
    for rank in 0..SIZE {
        assert_eq!(wait(&mut cluster, rank, waits[rank as usize]), Ok(0));
    }
    // The last to arrive tells all others, one after another.
    let costs = cluster.costs();
    let one = costs.message_ns.max(costs.send_overhead_ns);
    let all = u64::from(SIZE) * one;
    assert!((all..2 * all).contains(&cluster.now()), "{} ns", cluster.now());
}

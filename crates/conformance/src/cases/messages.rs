//! Active Messages.

use engine::node::AmBody;
use engine::wire::Found;
use engine::{AmSend, Direction, HandlerKey, Lane, MemId, OpError, Rank, SendError, Transport};

use super::copies::BOTH;
use crate::bench::{ANSWER, Bench, ECHO, Make, NOTE, pattern, piece};
use crate::cluster::{Cluster, HANDLERS};

fn request(peer: Rank, handler: u32, tag: u64, body: AmBody<'_>) -> AmSend<'_> {
    AmSend { peer, lane: Lane::Request, handler, args: [tag, !tag, 3, u64::MAX], body }
}

fn body(payload: &[u8]) -> AmBody<'_> {
    if payload.is_empty() { AmBody::Short } else { AmBody::Medium(payload) }
}

/// Payload lengths up to the greatest.
fn lengths<C: Cluster>(bench: &mut Bench<C>) -> Vec<usize> {
    let max = bench.node(0).transport().payload_max();
    let mut lengths: Vec<usize> = [0, 1, 7, 8, 9, 63, 64, 1000, max - 1, max].into();
    lengths.retain(|len| *len <= max);
    lengths
}

pub(crate) fn messages_of_every_kind_arrive_whole<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let lengths = lengths(&mut bench);
    let place = bench.filled(1, MemId::Space, &pattern(1, 40));
    for (tag, len) in lengths.iter().enumerate() {
        let payload = pattern(tag as u64, *len);
        bench.send(0, &request(1, NOTE, tag as u64, AmBody::Medium(&payload)));
    }
    bench.send(0, &request(1, NOTE, 100, AmBody::Short));
    bench.send(0, &request(1, NOTE, 101, AmBody::Long(place, 40)));
    bench.until("every message", |bench| bench.got[1].len() == lengths.len() + 2);
    bench.settle();
    let got = std::mem::take(&mut bench.got[1]);
    assert_eq!(got.len(), lengths.len() + 2, "a message arrived twice");
    for (tag, (got, len)) in got.iter().zip(&lengths).enumerate() {
        assert!(got.payload == pattern(tag as u64, *len), "a payload of {len} bytes arrived otherwise");
        assert_eq!(got.args, [tag as u64, !(tag as u64), 3, u64::MAX]);
        assert_eq!(
            (got.delivery.peer, got.delivery.lane, got.delivery.handler),
            (0, Lane::Request, u64::from(NOTE))
        );
        assert_eq!(got.landed, None);
    }
    let [short, long] = &got[lengths.len()..] else { unreachable!("two more than there are lengths") };
    assert_eq!((short.args[0], short.payload.len(), short.landed), (100, 0, None));
    assert_eq!((long.args[0], long.landed), (101, Some((place, 40))));
    assert!(long.payload == pattern(1, 40));
    assert!(bench.got[0].is_empty(), "the sender got a message that nobody sent");
}

pub(crate) fn long_messages_find_their_payload_in_place<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let mut ops = Vec::new();
    let sizes = [0usize, 1, 100, 5000, 60_000];
    for (tag, len) in sizes.into_iter().enumerate() {
        for mem in [MemId::Space, MemId::Heap] {
            let here = bench.filled(0, MemId::Space, &pattern(tag as u64, len));
            let there = bench.memory(1, mem, len);
            let message = request(1, NOTE, tag as u64, AmBody::Long(there, len as u32));
            let pieces = [piece(there, here, len)];
            ops.push(bench.node(0).transfer_then_am(&pieces, &message, None));
        }
    }
    for id in ops {
        assert_eq!(bench.outcome(0, id), Ok(0));
    }
    bench.until("every long message", |bench| bench.got[1].len() == 2 * sizes.len());
    for got in &bench.got[1] {
        let tag = got.args[0];
        assert!(
            got.payload == pattern(tag, sizes[tag as usize]),
            "the handler ran before its payload lay in place"
        );
    }
}

pub(crate) fn requests_are_replied_to<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let lengths = lengths(&mut bench);
    for (tag, len) in lengths.iter().enumerate() {
        let payload = pattern(tag as u64, *len);
        bench.send(0, &request(1, ECHO, tag as u64, body(&payload)));
        bench.until("a reply", |bench| bench.got[0].len() == tag + 1);
        let reply = &bench.got[0][tag];
        assert!(reply.payload == payload, "a reply of {len} bytes arrived otherwise");
        let delivery = reply.delivery;
        assert_eq!((delivery.peer, delivery.lane, delivery.handler), (1, Lane::Reply, u64::from(ANSWER)));
        assert_eq!(reply.args[0], tag as u64);
    }
}

pub(crate) fn messages_to_oneself<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 1);
    for tag in 0..100 {
        bench.send(0, &request(0, ECHO, tag, AmBody::Medium(&pattern(tag, 8))));
    }
    let replies =
        |bench: &mut Bench<C>| bench.got[0].iter().filter(|got| got.delivery.lane == Lane::Reply).count();
    bench.until("replies from oneself", |bench| replies(bench) == 100);
}

/// Every rank sends `each` requests to every rank, itself too, as fast as the lanes take them, and goes on
/// until all are answered.
fn flood<C: Cluster>(bench: &mut Bench<C>, each: u64) {
    let (size, max) = (bench.size(), bench.node(0).transport().payload_max());
    let mut left: Vec<(Rank, Rank, u64)> =
        (0..size).flat_map(|rank| (0..size).map(move |peer| (rank, peer, 0))).collect();
    let replies = bench.answers.clone();
    let wanted = u64::from(size) * each;
    bench.until("the flood to be answered", |bench| {
        for (rank, peer, sent) in &mut left {
            while *sent < each {
                let payload = pattern(*sent, (*sent as usize * 37) % (max + 1));
                match bench.node(*rank).send_am(&request(*peer, ECHO, *sent, body(&payload))) {
                    Ok(()) => *sent += 1,
                    Err(SendError::Busy) => break,
                    Err(SendError::Failed(error)) => panic!("rank {rank} cannot send: {error}"),
                }
            }
        }
        (0..size as usize).all(|rank| (bench.answers[rank] - replies[rank]) as u64 == wanted)
    });
}

pub(crate) fn a_flood_of_requests_is_replied_to<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let max = bench.node(0).transport().payload_max();
    flood(&mut bench, 300);
    bench.settle();
    for got in bench.got.iter().flatten() {
        let sent = got.args[0];
        assert!(
            got.payload == pattern(sent, (sent as usize * 37) % (max + 1)),
            "a payload of the flood changed"
        );
    }
    for rank in 0..3 {
        assert_eq!(bench.got[rank].len(), 3 * 300 * 2, "a message was lost or came twice");
    }
}

pub(crate) fn messages_stay_in_order<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    flood(&mut bench, 100);
    for got in &bench.got {
        for peer in 0..3 {
            for lane in [Lane::Request, Lane::Reply] {
                let of = |got: &&crate::bench::Got| got.delivery.peer == peer && got.delivery.lane == lane;
                let tags = got.iter().filter(of).map(|got| got.args[0]);
                assert!(tags.eq(0..100), "messages of one lane arrived out of order");
            }
        }
    }
}

pub(crate) fn a_full_lane_waits_for_its_receiver<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    bench.sleep(1);
    let payload = pattern(1, bench.node(0).transport().payload_max());
    let mut sent = 0;
    while bench.node(0).send_am(&request(1, NOTE, sent, AmBody::Medium(&payload))) != Err(SendError::Busy) {
        sent += 1;
        assert!(sent < 1 << 20, "a lane without end: a receiver that never polls must be felt");
        bench.round();
    }
    assert!(sent > 0, "a lane that has no room at all");
    assert!(bench.got[1].is_empty());
    bench.wake(1);
    bench.until("the lane to drain", |bench| bench.got[1].len() as u64 == sent);
    bench.send(0, &request(1, NOTE, sent, AmBody::Short));
    bench.until("one more", |bench| bench.got[1].len() as u64 == sent + 1);
    assert!(bench.got[1].iter().map(|got| got.args[0]).eq(0..=sent));
}

pub(crate) fn floods_and_bulk_share_the_lanes<C: Cluster>(make: Make<'_, C>) {
    const LEN: usize = 40_000;
    let mut bench = Bench::new(make, 3);
    let (mut ops, mut wanted) = (Vec::new(), Vec::new());
    for rank in 0..3 {
        for direction in BOTH {
            let peer = (rank + 1) % 3;
            let (from, to) = if direction == Direction::Put { (rank, peer) } else { (peer, rank) };
            let bytes = pattern(u64::from(rank), LEN);
            let source = bench.filled(from, MemId::Space, &bytes);
            let target = bench.memory(to, MemId::Space, LEN);
            let (remote, local) =
                if direction == Direction::Put { (target, source) } else { (source, target) };
            ops.push((rank, bench.node(rank).transfer(peer, direction, &[piece(remote, local, LEN)], None)));
            wanted.push((to, target, bytes));
        }
    }
    flood(&mut bench, 100);
    for (rank, id) in ops {
        assert_eq!(bench.outcome(rank, id), Ok(0));
    }
    for (rank, place, bytes) in wanted {
        assert!(bench.bytes(rank, place, LEN) == bytes, "other bytes than were sent");
    }
}

pub(crate) fn a_message_to_no_handler_is_refused_and_its_sender_told<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    for handler in [HANDLERS, u32::MAX] {
        bench.send(0, &request(1, handler, 0, AmBody::Short));
        bench.send(0, &request(1, handler, 0, AmBody::Medium(&[7; 100])));
    }
    bench.send(0, &request(1, NOTE, 1, AmBody::Short));
    bench.until("the message that has a handler", |bench| !bench.got[1].is_empty());
    bench.until("the news of those that have none", |bench| bench.refused[0].len() == 4);
    assert_eq!((bench.got[1].len(), bench.got[1][0].args[0]), (1, 1));
    let handlers: Vec<u32> = bench.refused[0].iter().map(|refused| refused.handler).collect();
    assert_eq!(handlers, [HANDLERS, HANDLERS, u32::MAX, u32::MAX]);
    assert_eq!((bench.cluster.counters(1).malformed, bench.cluster.counters(1).refused), (0, 4));
    let told = bench.node(0).take_detached_error();
    assert_eq!(told, Some(OpError::NoSuchHandler { peer: 1, handler: HANDLERS }));
}

/// The two that the first two names of this kind with one number have.
pub(crate) fn handlers_come_and_go_and_are_asked_for<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    let (late, other) = (HandlerKey::of("collide", "32170"), HandlerKey::of("collide", "87466"));
    assert_eq!(late.number, other.number, "they are here for that");
    let ask = |bench: &mut Bench<C>, key| {
        let op = bench.node(0).ask_for_handler(1, key, None);
        bench.outcome(0, op)
    };
    assert_eq!(ask(&mut bench, late), Ok(Found::Nothing as u64));
    assert_eq!(bench.node(1).add_handler(late, u64::from(NOTE)), Ok(()));
    assert_eq!(bench.node(1).add_handler(other, 0), Err(late.check));
    assert_eq!(ask(&mut bench, late), Ok(Found::It as u64));
    assert_eq!(ask(&mut bench, other), Ok(Found::Another as u64));
    bench.send(0, &request(1, late.number, 9, AmBody::Short));
    bench.until("the handler that came late", |bench| !bench.got[1].is_empty());
    assert_eq!((bench.got[1][0].delivery.handler, bench.got[1][0].args[0]), (u64::from(NOTE), 9));

    bench.node(1).remove_handler(late);
    assert_eq!(ask(&mut bench, late), Ok(Found::Nothing as u64));
    bench.send(0, &request(1, late.number, 9, AmBody::Short));
    bench.until("the news that it is gone", |bench| bench.refused[0].len() == 1);
    assert_eq!(bench.got[1].len(), 1);
}

/// Two that share a node: each has its own operations and failures.
pub(crate) fn failures_are_told_to_those_whose_they_are<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    bench.node(0).act_for(3);
    bench.send(0, &request(1, HANDLERS, 0, AmBody::Short));
    bench.node(0).act_for(0);
    bench.until("the news", |bench| bench.refused[0].len() == 1);
    assert_eq!(bench.refused[0][0].client, 3);
    assert_eq!(bench.node(0).take_detached_error(), None);
    bench.node(0).act_for(3);
    let told = bench.node(0).take_detached_error();
    assert_eq!(told, Some(OpError::NoSuchHandler { peer: 1, handler: HANDLERS }));
    assert_eq!(bench.node(0).take_detached_error(), None);
}

//! Copies to and from heaps by key.

use std::time::Instant;

use conformance::Cluster;
use engine::registration::Strategy;
use engine::{
    Direction, Inbox, Mechanism, MemId, OpError, OpId, Operation, Outcome, Piece, Place, Rank, Tally,
};
use fabric::Provider;

use super::super::pending_requests::Known;
use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use super::suite::firehose;
use crate::transport::ofi::provider::{ONE_SIDED_MIN, one_sided_min};

const LEN: usize = 100_000;

/// Two ranks that know each other's heaps, and a place of that many bytes in the heap of rank 1; as if the
/// provider pinned, or not.
fn two(provider: &Provider, pins: bool) -> (OfiCluster, Place) {
    let registration = if pins { Strategy::Firehose.settings(firehose(64, 64)) } else { None };
    let setting =
        Setting { provider, registration, confirms: false, registers_local: pins, pins, send_timeout: LIMIT };
    let mut cluster = OfiCluster::new(2, setting);
    let there = cluster.heap(1, LEN);
    let here = cluster.private(0, LEN);
    // By message, as nothing is known yet; and what is needed is asked for.
    let id = start(&mut cluster, Direction::Put, here, there, LEN);
    assert_eq!(outcome(&mut cluster, true, id), Ok(0));
    assert_eq!((by_key(&mut cluster), hits(&mut cluster)), (Tally::default(), 0));
    (cluster, there)
}

/// As [`two`], as if the provider wrote and read by itself.
fn two_one_sided(provider: &Provider) -> (OfiCluster, Place) {
    let (mut cluster, there) = two(provider, false);
    cluster.transport(0).copies.heap_min = 0;
    (cluster, there)
}

fn start(cluster: &mut OfiCluster, direction: Direction, here: Place, there: Place, len: usize) -> OpId {
    let piece = Piece::new(there, here, len as u64).expect("it does not wrap");
    cluster.node(0).transfer(1, direction, &[piece], None)
}

/// What an operation of rank 0's comes to, while the engine of rank 1 is polled, or its provider only.
fn outcome(cluster: &mut OfiCluster, polled: bool, id: OpId) -> Outcome {
    let (begun, mut inbox) = (Instant::now(), Inbox::default());
    loop {
        cluster.node(0).poll(&mut inbox);
        if polled {
            cluster.node(1).poll(&mut inbox);
        } else {
            cluster.transport(1).progress();
        }
        cluster.step();
        if let Some(outcome) = cluster.node(0).outcome(id) {
            return outcome;
        }
        assert!(begun.elapsed() < LIMIT, "it does not end");
    }
}

/// Puts of rank 0's that went by the key of a heap.
fn by_key(cluster: &mut OfiCluster) -> Tally {
    cluster.transport(0).counters.get(Operation::Put, Mechanism::Registered)
}

fn filled(cluster: &mut OfiCluster, rank: Rank, len: usize, byte: u8) -> Place {
    let place = cluster.private(rank, len);
    cluster.poke(rank, place, &vec![byte; len]);
    place
}

fn bytes(cluster: &mut OfiCluster, rank: Rank, from: Place, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    cluster.peek(rank, from, &mut bytes);
    bytes
}

#[test]
fn copies_to_and_from_a_heap_ask_nobody() {
    for provider in providers() {
        let (mut cluster, there) = two_one_sided(&provider);
        for (count, len) in [1, 4, 7, 8, 9, 16, 4096, 4097, LEN].into_iter().enumerate() {
            let (source, target) = (filled(&mut cluster, 0, len, len as u8), cluster.private(0, len));
            let id = start(&mut cluster, Direction::Put, source, there, len);
            assert_eq!(outcome(&mut cluster, false, id), Ok(0), "{len} bytes");
            assert_eq!(bytes(&mut cluster, 1, there, len), vec![len as u8; len]);
            let id = start(&mut cluster, Direction::Get, target, there, len);
            assert_eq!(outcome(&mut cluster, false, id), Ok(0), "{len} bytes");
            assert_eq!(bytes(&mut cluster, 0, target, len), vec![len as u8; len]);
            assert_eq!(by_key(&mut cluster).count, count as u64 + 1);
        }
    }
}

#[test]
fn both_ends_may_lie_in_heaps() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, false);
        let here = cluster.heap(0, LEN);
        cluster.poke(0, here, &[5; LEN]);
        let id = start(&mut cluster, Direction::Put, here, there, LEN);
        assert_eq!(outcome(&mut cluster, false, id), Ok(0));
        assert_eq!(bytes(&mut cluster, 1, there, LEN), vec![5; LEN]);
        cluster.poke(1, there, &[6; LEN]);
        let id = start(&mut cluster, Direction::Get, here, there, LEN);
        assert_eq!(outcome(&mut cluster, false, id), Ok(0));
        assert_eq!(bytes(&mut cluster, 0, here, LEN), vec![6; LEN]);
    }
}

#[test]
fn words_go_by_message_over_sockets_and_longer_pieces_one_sided() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, false);
        let least = cluster.transport(0).copies.heap_min;
        assert_eq!(least, one_sided_min(&provider.description().provider));
        for len in [4, 8, 9, 16] {
            let before = by_key(&mut cluster).count;
            let (source, is_one_sided) = (filled(&mut cluster, 0, len, 3), len as u64 >= least);
            let id = start(&mut cluster, Direction::Put, source, there, len);
            assert_eq!(outcome(&mut cluster, !is_one_sided, id), Ok(0));
            assert_eq!(by_key(&mut cluster).count - before, u64::from(is_one_sided), "{len} bytes");
        }
    }
    assert_eq!(["tcp", "tcp;ofi_rxm"].map(one_sided_min), [ONE_SIDED_MIN; 2]);
    assert_eq!(["verbs;ofi_rxm", "cxi", "efa"].map(one_sided_min), [0; 3]);
}

#[test]
fn what_was_not_live_goes_by_message() {
    for provider in providers() {
        let (mut cluster, _) = two(&provider, false);
        // More than the heap had live pages for, when its owner was asked.
        let (more, len) = (cluster.heap(1, 1 << 20), 1 << 20);
        let source = filled(&mut cluster, 0, len, 4);
        let id = start(&mut cluster, Direction::Put, source, more, len);
        assert_eq!(outcome(&mut cluster, true, id), Ok(0));
        assert_eq!(by_key(&mut cluster), Tally::default());
        let id = start(&mut cluster, Direction::Put, source, more, len);
        assert_eq!(outcome(&mut cluster, false, id), Ok(0), "it has been asked again");
        assert_eq!(by_key(&mut cluster), Tally { count: 1, bytes: len as u64 });
    }
}

#[test]
fn who_is_given_up_reaches_the_heap_no_more() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, false);
        let source = filled(&mut cluster, 0, LEN, 9);
        cluster.transport(1).take_heap_back(0);
        let id = start(&mut cluster, Direction::Put, source, there, LEN);
        let outcome = outcome(&mut cluster, false, id);
        assert!(matches!(outcome, Err(OpError::PeerLost { peer: 1 })), "{outcome:?}");
        assert_eq!(bytes(&mut cluster, 1, there, LEN), vec![0; LEN]);
    }
}

/// A key leads to what was open when the peer asked for it, and a later one to what was opened since.
#[test]
fn what_is_opened_later_has_a_key_of_its_own() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, false);
        let (more, len) = (cluster.heap(1, 8 << 20), 8 << 20);
        let source = filled(&mut cluster, 0, len, 4);
        for (polled, count) in [(true, 0), (false, 1)] {
            let id = start(&mut cluster, Direction::Put, source, more, len);
            assert_eq!(outcome(&mut cluster, polled, id), Ok(0));
            assert_eq!(by_key(&mut cluster).count, count);
        }
        let id = start(&mut cluster, Direction::Put, source, there, LEN);
        assert_eq!(outcome(&mut cluster, false, id), Ok(0));
        assert_eq!(bytes(&mut cluster, 1, more, len), vec![4; len]);
        assert_eq!(bytes(&mut cluster, 1, there, LEN), vec![4; LEN]);
    }
}

/// The provider copies in the owner's name: there, what is not open must not be touched.
#[test]
fn no_key_leads_to_what_is_not_open_in_a_heap() {
    for provider in providers() {
        let (mut cluster, _) = two(&provider, false);
        let heap = cluster.transport(1).own.itself().heap().clone();
        assert!(heap.open_bytes() < heap.len());
        let known = &mut cluster.transport(0).links.get_mut(1).expect("they have met").heaps.known;
        let Known::Here(reach) = known else { panic!("it was asked for: {known:?}") };
        reach.live = heap.len();
        let source = filled(&mut cluster, 0, LEN, 9);
        let beyond = Place::new(MemId::Heap, heap.len() - LEN as u64);
        let id = start(&mut cluster, Direction::Put, source, beyond, LEN);
        let outcome = outcome(&mut cluster, false, id);
        assert!(matches!(outcome, Err(OpError::PeerLost { peer: 1 })), "{outcome:?}");
    }
}

/// Puts whose pages' keys were at hand.
fn hits(cluster: &mut OfiCluster) -> u64 {
    cluster.node(0).registration_counters().hits
}

#[test]
fn pages_of_heaps_are_registered_and_then_reached_one_sided() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, true);
        for len in [1, 4, 8, 9, 16, 4096, 4097, LEN] {
            let source = filled(&mut cluster, 0, len, len as u8);
            // The first asks for what it does not have; the second needs nobody.
            for polled in [true, false] {
                let id = start(&mut cluster, Direction::Put, source, there, len);
                assert_eq!(outcome(&mut cluster, polled, id), Ok(0), "{len} bytes");
                assert_eq!(bytes(&mut cluster, 1, there, len), vec![len as u8; len]);
            }
            let target = cluster.heap(0, len);
            let id = start(&mut cluster, Direction::Get, target, there, len);
            assert_eq!(outcome(&mut cluster, false, id), Ok(0), "{len} bytes");
            assert_eq!(bytes(&mut cluster, 0, target, len), vec![len as u8; len]);
        }
        assert!(hits(&mut cluster) >= 16);
    }
}

#[test]
fn who_frees_pages_that_peers_have_keys_of_keeps_them() {
    for provider in providers() {
        let (mut cluster, there) = two(&provider, true);
        let source = filled(&mut cluster, 0, LEN, 7);
        let put = |cluster: &mut OfiCluster, polled| {
            let id = start(cluster, Direction::Put, source, there, LEN);
            assert_eq!(outcome(cluster, polled, id), Ok(0));
        };
        put(&mut cluster, true);
        cluster.free_heap(1);
        assert_eq!(cluster.heap(1, LEN), there, "the next block lies where the freed one lay");
        assert!(
            bytes(&mut cluster, 1, there, LEN).iter().all(|byte| *byte == 7),
            "its pages are those of before"
        );
        cluster.poke(1, there, &[0; LEN]);
        put(&mut cluster, false);
        assert_eq!(
            bytes(&mut cluster, 1, there, LEN),
            vec![7; LEN],
            "the key leads to the pages of the heap"
        );
        // Once they are not registered any more they are taken away.
        cluster.free_heap(1);
        assert!(cluster.heap_resident(1) > 0);
        cluster.node(1).lose(0);
        cluster.node(1).invalidate(0, u64::MAX);
        assert_eq!(cluster.heap_resident(1), 0);
    }
}

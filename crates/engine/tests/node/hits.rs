//! Transfers whose memory is at hand, and what becomes of what they use.

use crate::common::Script;
use engine::node::Polled;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::{Direction, Event, Inbox, MemId, Node, OpError, OpId, Piece, Place, Submit};

const TIMEOUT: OpError = OpError::Timeout { peer: 2 };

fn node(rank: u32) -> Node<Script> {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: 8 << 12,
        victims_bytes: 8 << 12,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 100,
    };
    let mut script = Script::new(1 << 16);
    (script.registers, script.copies_keyed) = (true, true);
    Node::with_registration(rank, 3, 4, script, settings)
}

fn drain(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

fn start(node: &mut Node<Script>, direction: Direction) -> OpId {
    let space = |offset| Place::new(MemId::Space, offset);
    let piece = Piece::new(space(5 << 12), space(64), 100).expect("far below 2^64");
    node.transfer(2, direction, &[piece], Some(10))
}

/// Tells a node that the transport is through with the operation that it was given last.
fn complete(node: &mut Node<Script>, result: Result<u64, OpError>) {
    let op = *node.transport().started.last().expect("one was started");
    node.transport().inbox.push_back((Event::Completed { op, result }, Inbox::default()));
    drain(node);
}

/// Rank 1, which has been given what its transfers go to.
fn holding() -> Node<Script> {
    let (mut node, mut owner) = (node(1), node(2));
    let first = start(&mut node, Direction::Put);
    for sent in std::mem::take(&mut node.transport().sent) {
        owner.transport().arrive(1, sent.lane, sent.header.encode(), &sent.payload);
    }
    drain(&mut owner);
    for sent in std::mem::take(&mut owner.transport().sent) {
        node.transport().arrive(2, sent.lane, sent.header.encode(), &sent.payload);
    }
    drain(&mut node);
    complete(&mut node, Ok(0));
    assert_eq!((node.outcome(first), node.references()), (Some(Ok(0)), (0, 0)));
    node
}

#[test]
fn a_hit_is_one_operation_of_the_transport() {
    let mut node = holding();
    let before = node.registration_counters();
    for direction in [Direction::Put, Direction::Get] {
        for result in [Ok(0), Err(OpError::PeerLost { peer: 2 })] {
            let id = start(&mut node, direction);
            assert_eq!(node.transport().started.last(), Some(&id));
            assert_eq!((node.outcome(id), node.references(), node.in_flight()), (None, (0, 1), 1));
            complete(&mut node, result);
            assert_eq!((node.references(), node.in_flight()), ((0, 0), 0));
            assert_eq!((node.outcome(id), node.outcome(id)), (Some(result), None));
        }
    }
    let after = node.registration_counters();
    assert_eq!((after.hits, after.misses), (before.hits + 4, before.misses));
    assert!(node.transport().sent.is_empty() && node.audit().is_ok());
}

#[test]
fn a_hit_that_was_given_up_uses_what_it_does_until_the_transport_is_through() {
    let end: [fn(&mut Node<Script>, OpId); 3] =
        [|node, _| assert_eq!(node.expire(10), None), |node, id| node.cancel(id), |node, _| node.lose(2)];
    for end in end {
        for asked_before in [true, false] {
            let mut node = holding();
            let id = start(&mut node, Direction::Get);
            end(&mut node, id);
            assert_eq!(node.transport().abandoned.ops, [id]);
            let mut outcome = None;
            if asked_before {
                outcome = node.outcome(id);
                // Its id means nothing any more.
                node.cancel(id);
                node.detach(id);
                assert_eq!((node.outcome(id), node.expire(u64::MAX)), (None, None));
                assert!(node.is_locally_done(id));
            }
            assert_eq!((node.references(), node.in_flight()), ((0, 1), 0));
            complete(&mut node, Ok(0));
            assert_eq!(node.references(), (0, 0), "asked before: {asked_before}");
            let outcome = outcome.or_else(|| node.outcome(id));
            assert!(matches!(outcome, Some(Err(TIMEOUT | OpError::PeerLost { peer: 2 }))), "{outcome:?}");
            assert_eq!((node.outcome(id), node.transport().abandoned.ops.len()), (None, 1));
            assert!(node.audit().is_ok());
        }
    }
}

#[test]
fn a_hit_of_nobodys_that_is_given_up_is_told_of_and_lets_go() {
    let mut node = holding();
    let id = start(&mut node, Direction::Put);
    node.detach(id);
    node.cancel(id);
    assert_eq!((node.take_detached_error(), node.references()), (Some(TIMEOUT), (0, 1)));
    complete(&mut node, Ok(0));
    assert_eq!((node.take_detached_error(), node.references()), (None, (0, 0)));
}

#[test]
fn what_is_not_wholly_at_hand_is_no_hit() {
    let mut node = holding();
    let space = |offset| Place::new(MemId::Space, offset);
    for (remote, len) in [(5 << 12, 4097), ((5 << 12) - 1, 8), (6 << 12, 8)] {
        let piece = Piece::new(space(remote), space(0), len).expect("far below 2^64");
        let id = node.transfer(2, Direction::Put, &[piece], None);
        assert_eq!(node.outcome(id), None);
        assert_ne!(node.transport().started.last(), Some(&id), "{len} bytes at {remote:#x}");
    }
    let empty = Piece::new(space(5 << 12), space(0), 0).expect("far below 2^64");
    let id = node.transfer(2, Direction::Put, &[empty], None);
    assert_eq!(node.outcome(id), Some(Ok(0)));
}

#[test]
fn heaps_that_are_registered_are_memory_like_all_other() {
    let mut node = holding();
    let (space, heap) = (|offset| Place::new(MemId::Space, offset), |offset| Place::new(MemId::Heap, offset));
    let piece = |remote, local| Piece::new(remote, local, 100).expect("far below 2^64");
    let lists = [
        vec![piece(heap(0x1000), space(64))],
        vec![piece(heap(0x1000), heap(0))],
        vec![piece(space(0x5000), space(64)), piece(heap(0x1080), space(0x80))],
    ];
    for pieces in lists {
        let hits = node.registration_counters().hits;
        node.transport().heaps = Some(0x4000);
        let by_key = node.transfer(2, Direction::Put, &pieces, None);
        assert_eq!(node.registration_counters().hits, hits + pieces.len() as u64);
        complete(&mut node, Ok(0));
        assert_eq!((node.outcome(by_key), node.references()), (Some(Ok(0)), (0, 0)));
        // Where they are not, nothing that has to do with one goes by key.
        node.transport().heaps = None;
        node.transport().copies.push_back(Submit::Done(0));
        let copied = node.transfer(2, Direction::Put, &pieces, None);
        assert_eq!(node.outcome(copied), Some(Ok(0)));
        assert_eq!(node.registration_counters().hits, hits + pieces.len() as u64);
    }
}

#[test]
fn who_is_reached_without_keys_is_asked_for_none() {
    let mut node = holding();
    let before = node.registration_counters();
    (node.transport().near, node.transport().room) = (Some(2), 0);
    node.transport().copies.push_back(Submit::Done(0));
    let id = start(&mut node, Direction::Put);
    assert_eq!((node.outcome(id), node.transport().refused), (Some(Ok(0)), 0));
    assert_eq!(node.registration_counters(), before);
}

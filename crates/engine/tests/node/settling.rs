//! What is over at home and can still write at a peer, row by row of the table in `src/node/settling.rs`.

use crate::common::{PAYLOAD_MAX, Script, Sent, poll};
use engine::node::AmBody;
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::wire::Kind;
use engine::{
    AmSend, Atomic, Direction, Event, Header, Inbox, Lane, MemId, Node, OpError, OpId, PathReason, Piece,
    Place, Submit,
};

/// What an answer says of how it went.
const OK: u64 = 0;
const FAULT: u64 = 1;
const NOT_EXPOSED: u64 = 3;

const CHUNK: u64 = PAYLOAD_MAX as u64;

/// A node that reaches nothing by itself; what it gives up may still write.
fn node() -> Node<Script> {
    let mut script = Script::new(1 << 16);
    script.abandoned.write = true;
    Node::new(1, 3, 4, script)
}

/// A node that registers, whose peers are given so many buckets.
fn registering(buckets: u64, put_in_move_max: u32) -> Node<Script> {
    let settings = Settings {
        bucket: BucketSize::new(12).expect("a page"),
        run_max: 8,
        peers_bytes: buckets << 12,
        victims_bytes: 8 << 12,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max,
        recall_within: 100,
    };
    let mut script = Script::new(1 << 16);
    (script.registers, script.copies_keyed, script.abandoned.write) = (true, true, true);
    Node::with_registration(1, 3, 4, script, settings)
}

fn piece(len: u64) -> Piece {
    let space = |offset| Place::new(MemId::Space, offset);
    Piece::new(space(5 << 12), space(64), len).expect("far below 2^64")
}

fn start(node: &mut Node<Script>, peer: u32, direction: Direction, len: u64) -> OpId {
    let id = node.transfer(peer, direction, &[piece(len)], Some(10));
    poll(node);
    id
}

/// The same by the transport, which is at it.
fn direct(node: &mut Node<Script>, peer: u32) -> OpId {
    node.transport().copies.push_back(Submit::Pending);
    start(node, peer, Direction::Put, 100)
}

fn complete(node: &mut Node<Script>, op: OpId) {
    node.transport().inbox.push_back((Event::Completed { op, result: Ok(0) }, Inbox::default()));
    poll(node);
}

fn sent(node: &mut Node<Script>) -> Vec<Sent> {
    std::mem::take(&mut node.transport().sent)
}

/// A peer answers a chunk.
fn answer(node: &mut Node<Script>, peer: u32, to: &Sent, status: u64) {
    let (token, args) = (to.header.token, [to.header.args[1], status, 0, 0]);
    let header = Header { token, args, ..Header::new(Kind::PutDone) };
    node.transport().arrive(peer, Lane::Reply, header.encode(), &[]);
    poll(node);
}

fn cancel(node: &mut Node<Script>, id: OpId, peer: u32) {
    node.cancel(id);
    assert_eq!(node.outcome(id), Some(Err(OpError::Timeout { peer })));
}

/// One operation settles, with this peer.
fn settles(node: &Node<Script>, peer: u32) {
    assert_eq!((node.in_flight(), node.settling(), node.is_quiet()), (0, 1, false));
    assert!(node.settles_with(peer));
}

/// All is over, here and there.
fn is_quiet(node: &Node<Script>) {
    assert_eq!((node.in_flight_of_all(), node.settling(), node.is_quiet()), (0, 0, true));
}

#[test]
fn a_chunk_that_was_sent_settles_with_its_peers_answer_which_is_believed_once() {
    let mut node = node();
    let put = start(&mut node, 2, Direction::Put, 3 * CHUNK);
    let chunks = sent(&mut node);
    cancel(&mut node, put, 2);
    let number = chunks.len();
    assert!(number >= 2, "{number} chunks");
    settles(&node, 2);
    for chunk in &chunks {
        answer(&mut node, 0, chunk, OK);
    }
    for _ in 0..number {
        answer(&mut node, 2, &chunks[0], OK);
    }
    settles(&node, 2);
    for (at, chunk) in chunks.iter().enumerate().skip(1) {
        assert_eq!(node.settling(), 1, "{at} of {number} were answered");
        // How it went is all the same.
        answer(&mut node, 2, chunk, if at == 1 { FAULT } else { OK });
    }
    is_quiet(&node);
    assert_eq!((node.counters().given_up, node.counters().malformed), (1, 0));
}

#[test]
fn a_chunk_settles_with_the_signal_that_it_brings() {
    let mut node = node();
    let word = Place::new(MemId::Heap, 64);
    let put = node.transfer_then_signal(2, &[piece(8)], word, Atomic::fetch_add(5), None);
    let [message] = &sent(&mut node)[..] else { panic!("more than one message") };
    assert_eq!(message.header.kind, Kind::PutSignal);
    cancel(&mut node, put, 2);
    settles(&node, 2);
    answer(&mut node, 2, message, OK);
    is_quiet(&node);
}

#[test]
fn gets_settle_at_once() {
    let mut node = node();
    let get = start(&mut node, 2, Direction::Get, 3 * CHUNK);
    cancel(&mut node, get, 2);
    is_quiet(&node);
    node.transport().abandoned.write = false;
    node.transport().copies.push_back(Submit::Pending);
    let get = start(&mut node, 2, Direction::Get, 100);
    cancel(&mut node, get, 2);
    is_quiet(&node);
    complete(&mut node, get);
    is_quiet(&node);
}

#[test]
fn a_put_that_rides_in_a_move_settles_with_the_answer_to_it() {
    for status in [OK, FAULT, NOT_EXPOSED] {
        let mut node = registering(8, 512);
        let put = start(&mut node, 2, Direction::Put, 16);
        let asked = sent(&mut node).pop().expect("a move");
        assert_eq!((asked.header.kind, asked.header.args[2]), (Kind::Move, 1), "it rides");
        cancel(&mut node, put, 2);
        settles(&node, 2);
        let args = [0, status, 0, 0];
        let answer = Header { token: asked.header.token, args, ..Header::new(Kind::Moved) };
        for (peer, malformed) in [(0, 1), (2, 1), (2, 2)] {
            assert_eq!(node.is_quiet(), malformed == 2, "nobody else's answer counts");
            node.transport().arrive(peer, Lane::Reply, answer.encode(), &[]);
            poll(&mut node);
            assert_eq!(node.counters().malformed, malformed);
        }
        is_quiet(&node);
        assert!(node.audit().is_ok() && node.references() == (0, 0));
    }
}

#[test]
fn a_move_that_nothing_rides_in_is_not_awaited() {
    let mut node = registering(8, 0);
    let put = start(&mut node, 2, Direction::Put, 16);
    assert_eq!(sent(&mut node).pop().map(|sent| sent.header.kind), Some(Kind::Move));
    cancel(&mut node, put, 2);
    is_quiet(&node);
}

#[test]
fn what_a_transfer_by_keys_has_sent_in_chunks_settles_for_it() {
    let mut node = registering(0, 0);
    let put = start(&mut node, 2, Direction::Put, 2 * CHUNK);
    let chunks = sent(&mut node);
    assert!(chunks.iter().all(|sent| sent.header.kind == Kind::PutChunk) && chunks.len() == 2);
    cancel(&mut node, put, 2);
    for chunk in &chunks {
        settles(&node, 2);
        answer(&mut node, 2, chunk, OK);
    }
    is_quiet(&node);
}

#[test]
fn bytes_in_a_bounce_buffer_settle_when_they_have_been_copied_on() {
    const LONG: u64 = 16 * CHUNK;
    for status in [OK, FAULT] {
        let mut node = node();
        node.transport().reaches_bounce_buffers = true;
        node.transport().copies.extend([Submit::Unreachable(PathReason::Network), Submit::Pending]);
        let put = start(&mut node, 2, Direction::Put, LONG);
        let bounced = |node: &mut Node<Script>, kind, status| {
            let asked = node.transport().sent.last().expect("a message").header;
            assert_eq!(asked.kind, kind);
            let answer = Header { token: asked.token, args: [status, 9, 0, 0], ..Header::new(Kind::Bounced) };
            node.transport().arrive(2, Lane::Reply, answer.encode(), &[]);
            poll(node);
        };
        bounced(&mut node, Kind::BounceTake, OK);
        let copy = *node.transport().started.last().expect("it was started");
        complete(&mut node, copy);
        cancel(&mut node, put, 2);
        settles(&node, 2);
        bounced(&mut node, Kind::BounceDrain, status);
        is_quiet(&node);
        // Before it is told to copy on, nothing comes of it.
        node.transport().copies.extend([Submit::Unreachable(PathReason::Network), Submit::Pending]);
        let put = start(&mut node, 2, Direction::Put, LONG);
        bounced(&mut node, Kind::BounceTake, OK);
        let copy = *node.transport().started.last().expect("it was started");
        cancel(&mut node, put, 2);
        is_quiet(&node);
        complete(&mut node, copy);
        let drains = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::BounceDrain);
        assert_eq!(drains.count(), 1, "the peer is not told to");
    }
}

/// A node that has been given what its transfers with rank 2 go to.
fn holding() -> Node<Script> {
    let (mut node, mut owner) = (registering(8, 0), registering(8, 0));
    let first = start(&mut node, 2, Direction::Put, 100);
    for sent in sent(&mut node) {
        owner.transport().arrive(1, sent.lane, sent.header.encode(), &sent.payload);
    }
    poll(&mut owner);
    for sent in sent(&mut owner) {
        node.transport().arrive(2, sent.lane, sent.header.encode(), &sent.payload);
    }
    poll(&mut node);
    let part = *node.transport().started.last().expect("one was started");
    complete(&mut node, part);
    assert_eq!(node.outcome(first), Some(Ok(0)));
    node
}

#[test]
fn a_fast_transfer_settles_with_its_report_whoever_waits_for_it() {
    for (watched, detached, taken) in
        [(false, false, true), (false, false, false), (true, false, true), (false, true, false)]
    {
        let mut node = holding();
        let put = start(&mut node, 2, Direction::Put, 100);
        assert_eq!(node.transport().started.last(), Some(&put), "it is a fast one");
        if detached {
            node.detach(put);
        }
        assert!(!watched || node.watch(put));
        node.cancel(put);
        let timeout = OpError::Timeout { peer: 2 };
        if taken {
            assert_eq!(node.outcome(put), Some(Err(timeout)));
        }
        assert_eq!((node.has_ended(), node.take_detached_error()), (watched, detached.then_some(timeout)));
        settles(&node, 2);
        assert_eq!(node.references(), (0, 1), "what it goes to stays in use");
        complete(&mut node, put);
        is_quiet(&node);
        assert_eq!(node.references(), (0, 0));
        // It is told once.
        complete(&mut node, put);
        is_quiet(&node);
        if !taken && !detached {
            assert_eq!(node.outcome(put), Some(Err(timeout)));
        }
    }
}

#[test]
fn nothing_follows_a_put_that_was_given_up_and_what_had_followed_is_awaited() {
    let mut node = node();
    let word = Place::new(MemId::Heap, 64);
    for given_up_first in [true, false] {
        node.transport().copies.push_back(Submit::Pending);
        node.transport().atomics.push_back(Submit::Pending);
        let put = node.transfer_then_signal(2, &[piece(100)], word, Atomic::fetch_add(5), None);
        let before = node.transport().started.len();
        if given_up_first {
            cancel(&mut node, put, 2);
            settles(&node, 2);
            complete(&mut node, put);
            assert_eq!(node.transport().started.len(), before, "there is no signal");
            node.transport().atomics.clear();
        } else {
            complete(&mut node, put);
            assert_eq!(node.transport().started.len(), before + 1, "it signals");
            cancel(&mut node, put, 2);
            settles(&node, 2);
            complete(&mut node, put);
        }
        is_quiet(&node);
    }
    let body = AmBody::Long(Place::new(MemId::Space, 0), 8);
    let message = AmSend { peer: 2, lane: Lane::Request, handler: 2, args: [5; 4], body };
    node.transport().copies.push_back(Submit::Pending);
    let put = node.transfer_then_am(&[piece(100)], &message, None);
    cancel(&mut node, put, 2);
    complete(&mut node, put);
    is_quiet(&node);
    assert!(sent(&mut node).is_empty(), "it is not announced");
}

#[test]
fn a_detached_operation_settles_after_its_deadline() {
    let mut node = node();
    let put = direct(&mut node, 2);
    node.detach(put);
    assert_eq!(node.expire(10), None);
    assert_eq!(node.take_detached_error(), Some(OpError::Timeout { peer: 2 }));
    settles(&node, 2);
    complete(&mut node, put);
    is_quiet(&node);
}

/// The transport has found a peer's memory to be out of reach; nothing is left of what it was at.
#[test]
fn a_copy_that_was_given_up_and_can_go_no_further_has_settled() {
    let mut node = node();
    let put = direct(&mut node, 2);
    cancel(&mut node, put, 2);
    settles(&node, 2);
    let event = Event::Unreachable { op: put, why: PathReason::PtraceDenied };
    node.transport().inbox.push_back((event, Inbox::default()));
    poll(&mut node);
    is_quiet(&node);
    assert!(sent(&mut node).is_empty(), "the rest does not go by message");
}

#[test]
fn of_a_lost_peer_nothing_is_awaited() {
    let mut node = node();
    let others = direct(&mut node, 0);
    cancel(&mut node, others, 0);
    let chunks = start(&mut node, 2, Direction::Put, 3 * CHUNK);
    let messages = sent(&mut node);
    cancel(&mut node, chunks, 2);
    let copy = direct(&mut node, 2);
    cancel(&mut node, copy, 2);
    let last = direct(&mut node, 2);
    assert_eq!((node.settling(), node.settles_with(2)), (3, true));
    node.lose(2);
    assert_eq!(node.outcome(last), Some(Err(OpError::PeerLost { peer: 2 })));
    settles(&node, 0);
    assert!(!node.settles_with(2));
    // Whatever still comes says nothing.
    answer(&mut node, 2, &messages[0], OK);
    complete(&mut node, copy);
    complete(&mut node, last);
    settles(&node, 0);
    complete(&mut node, others);
    is_quiet(&node);
}

#[test]
fn clients_wait_for_their_own() {
    let mut node = node();
    let first = direct(&mut node, 2);
    node.act_for(1);
    let second = direct(&mut node, 2);
    cancel(&mut node, second, 2);
    assert!(!node.is_quiet() && node.started(Some(2)).ops().eq([second]));
    node.act_for(0);
    assert_eq!((node.in_flight(), node.in_flight_of_all(), node.is_quiet()), (1, 1, false));
    cancel(&mut node, first, 2);
    complete(&mut node, first);
    assert!(node.is_quiet() && node.started(None).ops().next().is_none());
    node.act_for(7);
    assert!(node.is_quiet());
    node.act_for(1);
    assert!(!node.is_quiet());
    complete(&mut node, second);
    is_quiet(&node);
}

#[test]
fn what_had_been_started_is_awaited_until_it_has_settled_and_nothing_later() {
    let mut node = node();
    let done = direct(&mut node, 2);
    let given_up = direct(&mut node, 2);
    let elsewhere = direct(&mut node, 0);
    let (mut with_2, mut all) = (node.started(Some(2)), node.started(None));
    assert_eq!((with_2.ops().count(), all.ops().count()), (2, 3));
    let later = direct(&mut node, 2);
    complete(&mut node, done);
    cancel(&mut node, given_up, 2);
    assert!(!node.are_over(&mut with_2) && with_2.awaited() == Some(2));
    complete(&mut node, given_up);
    assert!(node.are_over(&mut with_2) && with_2.awaited().is_none());
    assert!(!node.are_over(&mut all) && all.awaited() == Some(0));
    assert!(all.ops().any(|op| op == elsewhere));
    node.lose(0);
    assert!(node.are_over(&mut all) && !node.is_over(later));
    assert_eq!(node.in_flight(), 1);
}

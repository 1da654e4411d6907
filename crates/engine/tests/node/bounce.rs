//! Bounce buffers, message by message: who may have which, and what becomes of those whose holders break the
//! rules.

use crate::common::{BOUNCE_BYTES, PAYLOAD_MAX, Script};
use engine::node::Polled;
use engine::wire::Kind;
use engine::{Direction, Header, Inbox, Lane, MemId, Node, OpError, OpId, Piece, Place, Submit};

/// What a message says of how it went.
const OK: u64 = 0;
const FAULT: u64 = 1;
const NONE: u64 = 2;

/// Bytes that go through bounce buffers, all of them.
const LONG: u64 = 16 * PAYLOAD_MAX as u64;

/// A node of three, with memory of its own, and so many bounce buffers.
fn node(bounce_buffers: u64) -> Node<Script> {
    let mut script = Script::new(1 << 14);
    (script.reaches_bounce_buffers, script.bounce_buffers) = (true, bounce_buffers);
    for (index, byte) in script.memory.iter_mut().enumerate() {
        *byte = index as u8;
    }
    Node::new(1, 3, 4, script)
}

fn arrive(node: &mut Node<Script>, peer: u32, lane: Lane, header: Header) {
    node.transport().arrive(peer, lane, header.encode(), &[]);
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// The answer to what a peer asks about a bounce buffer: how it went, and which bounce buffer it is (0:
/// none).
fn ask(node: &mut Node<Script>, peer: u32, kind: Kind, buffer: u64, place: u64, len: u32) -> (u64, u64) {
    let header = Header { len, token: 77, args: [buffer, 0, 0, 0], place, ..Header::new(kind) };
    arrive(node, peer, Lane::Request, header);
    let sent = node.transport().sent.pop().expect("an answer");
    assert_eq!(
        (sent.peer, sent.lane, sent.header.kind, sent.header.token),
        (peer, Lane::Reply, Kind::Bounced, 77)
    );
    (sent.header.args[0], sent.header.args[1])
}

fn give(node: &mut Node<Script>, peer: u32, buffer: u64) {
    arrive(node, peer, Lane::Request, Header { args: [buffer, 0, 0, 0], ..Header::new(Kind::BounceGive) });
}

#[test]
fn a_bounce_buffer_is_its_holders_alone() {
    let mut node = node(2);
    let (status, buffer) = ask(&mut node, 0, Kind::BounceFill, 0, 300, 5);
    assert_eq!((status, buffer > 0), (OK, true));
    assert_eq!(node.transport().heap(buffer - 1, 5), [44, 45, 46, 47, 48]);
    let (status, other) = ask(&mut node, 2, Kind::BounceTake, 0, 0, 0);
    assert_eq!((status, other > 0 && other != buffer), (OK, true));
    // Another's, one that nobody has, none at all: nothing is copied.
    for bad in [buffer, buffer + 1, u64::MAX, 0] {
        let (status, _) = ask(&mut node, 2, Kind::BounceDrain, bad, 0, 5);
        assert_ne!(status, OK, "bounce buffer {bad}");
    }
    assert_eq!(ask(&mut node, 2, Kind::BounceFill, buffer, 300, 5).0, FAULT);
    assert_eq!(node.transport().writes, [], "no memory was written");
    assert_eq!(ask(&mut node, 0, Kind::BounceDrain, buffer, 1000, 5), (OK, buffer));
    assert_eq!(node.transport().memory[1000..1005], [44, 45, 46, 47, 48]);
    // Only its holder gives it back, once.
    for (peer, malformed) in [(2, 1), (0, 1), (0, 2)] {
        give(&mut node, peer, buffer);
        assert_eq!(node.counters().malformed, malformed);
    }
}

#[test]
fn more_than_a_bounce_buffer_holds_is_refused() {
    let mut node = node(1);
    let (_, buffer) = ask(&mut node, 0, Kind::BounceTake, 0, 0, 0);
    for kind in [Kind::BounceFill, Kind::BounceDrain] {
        assert_eq!(ask(&mut node, 0, kind, buffer, 0, BOUNCE_BYTES as u32 + 1).0, FAULT);
        assert_eq!(ask(&mut node, 0, kind, buffer, 1 << 40, 8).0, FAULT, "there is no such memory");
        assert_eq!(ask(&mut node, 0, kind, buffer, u64::MAX, 8).0, FAULT);
    }
    assert_eq!(node.transport().writes, []);
}

#[test]
fn one_peer_has_not_all_and_the_lost_have_none() {
    let mut node = node(5);
    let mut taken = 0;
    while ask(&mut node, 0, Kind::BounceTake, 0, 0, 0).0 == OK {
        taken += 1;
    }
    assert_eq!(taken, 4, "so many may one peer have");
    assert_eq!(ask(&mut node, 2, Kind::BounceTake, 0, 0, 0).0, OK);
    assert_eq!(ask(&mut node, 2, Kind::BounceTake, 0, 0, 0), (NONE, 0));
    node.lose(0);
    assert_eq!(ask(&mut node, 2, Kind::BounceTake, 0, 0, 0).0, OK);
}

fn start(node: &mut Node<Script>, direction: Direction, copies: &[Submit]) -> OpId {
    node.transport().copies.push_back(Submit::Unreachable(engine::PathReason::Network));
    node.transport().copies.extend(copies);
    let space = |offset| Place::new(MemId::Space, offset);
    let piece = Piece::new(space(1 << 20), space(0), LONG).expect("far below 2^64");
    node.transfer(0, direction, &[piece], None)
}

/// What was sent last, as an answer to which a peer sends its own.
fn answer(node: &mut Node<Script>, kind: Kind, args: [u64; 2]) {
    let asked = node.transport().sent.last().expect("a message").header;
    assert_eq!(asked.kind, kind);
    let args = [args[0], args[1], 0, 0];
    arrive(node, 0, Lane::Reply, Header { token: asked.token, args, ..Header::new(Kind::Bounced) });
}

#[test]
fn a_get_takes_one_message_there_and_back_for_each_bounce_buffer_full() {
    let mut node = node(0);
    let get = start(&mut node, Direction::Get, &[Submit::Done(0)]);
    answer(&mut node, Kind::BounceFill, [OK, 9]);
    assert_eq!(node.outcome(get), Some(Ok(0)));
    assert_eq!(node.transport().sent.last().map(|sent| sent.header.args[0]), Some(9), "it is given back");
    assert_eq!(node.counters().staged, LONG);
}

#[test]
fn a_put_is_over_when_its_bytes_have_left_the_bounce_buffer() {
    let mut node = node(0);
    let put = start(&mut node, Direction::Put, &[Submit::Done(0)]);
    answer(&mut node, Kind::BounceTake, [OK, 9]);
    assert!(!node.is_locally_done(put) && node.outcome(put).is_none());
    answer(&mut node, Kind::BounceDrain, [OK, 9]);
    assert_eq!(node.outcome(put), Some(Ok(0)));
}

#[test]
fn whoever_refuses_a_bounce_buffer_or_says_nonsense_is_sent_chunks() {
    for args in [[NONE, 0], [FAULT, 0], [FAULT, 9], [OK, 0], [99, 9]] {
        for direction in [Direction::Put, Direction::Get] {
            let mut node = node(0);
            let id = start(&mut node, direction, &[]);
            let kind = if direction == Direction::Put { Kind::BounceTake } else { Kind::BounceFill };
            answer(&mut node, kind, args);
            let chunk = if direction == Direction::Put { Kind::PutChunk } else { Kind::GetChunk };
            assert!(node.transport().sent.iter().any(|sent| sent.header.kind == chunk), "{args:?}");
            assert!(node.outcome(id).is_none());
            node.lose(0);
            assert_eq!(node.outcome(id), Some(Err(OpError::PeerLost { peer: 0 })));
        }
    }
}

#[test]
fn a_bounce_buffer_is_kept_until_a_copy_to_it_has_ended_that_was_given_up() {
    let mut node = node(0);
    let put = start(&mut node, Direction::Put, &[Submit::Pending]);
    answer(&mut node, Kind::BounceTake, [OK, 9]);
    let copy = *node.transport().started.last().expect("it was started");
    node.cancel(put);
    assert_eq!(node.outcome(put), Some(Err(OpError::Timeout { peer: 0 })));
    assert_eq!(node.transport().abandoned.ops, [copy], "the buffer is the caller's again");
    let given = |node: &mut Node<Script>| {
        node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::BounceGive).count()
    };
    assert_eq!(given(&mut node), 0, "its bytes may still come into the bounce buffer");
    node.transport()
        .inbox
        .push_back((engine::Event::Completed { op: copy, result: Ok(0) }, Inbox::default()));
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
    assert_eq!(given(&mut node), 1);
    assert_eq!(node.in_flight(), 0);
}

fn polled(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// The kinds of what was sent from the `from`-th message on.
fn kinds(node: &mut Node<Script>, from: usize) -> Vec<Kind> {
    node.transport().sent[from..].iter().map(|sent| sent.header.kind).collect()
}

#[test]
fn what_was_given_up_before_it_was_asked_for_comes_after_nothing() {
    let mut node = node(0);
    let put = start(&mut node, Direction::Put, &[Submit::Pending]);
    answer(&mut node, Kind::BounceTake, [OK, 9]);
    let (copy, sent) =
        (*node.transport().started.last().expect("it was started"), node.transport().sent.len());
    node.transport().room = 0;
    node.transport()
        .inbox
        .push_back((engine::Event::Completed { op: copy, result: Ok(0) }, Inbox::default()));
    polled(&mut node);
    node.cancel(put);
    node.transport().room = usize::MAX;
    // The caller puts something else to the same place.
    let space = |offset| Place::new(MemId::Space, offset);
    let piece = Piece::new(space(1 << 20), space(0), 64).expect("far below 2^64");
    node.transfer(0, Direction::Put, &[piece], None);
    polled(&mut node);
    assert_eq!(
        kinds(&mut node, sent),
        [Kind::BounceGive, Kind::PutChunk],
        "the old bytes stay where they are"
    );
}

#[test]
fn chunks_overtake_nothing_that_waits_for_their_lane() {
    let mut node = node(0);
    let put = start(&mut node, Direction::Put, &[Submit::Pending]);
    answer(&mut node, Kind::BounceTake, [OK, 9]);
    let (copy, sent) =
        (*node.transport().started.last().expect("it was started"), node.transport().sent.len());
    node.transport().room = 0;
    node.transport()
        .inbox
        .push_back((engine::Event::Completed { op: copy, result: Ok(0) }, Inbox::default()));
    polled(&mut node);
    node.transport().room = usize::MAX;
    let space = |offset| Place::new(MemId::Space, offset);
    let piece = Piece::new(space(1 << 20), space(0), 64).expect("far below 2^64");
    node.transfer(0, Direction::Put, &[piece], None);
    polled(&mut node);
    assert_eq!(kinds(&mut node, sent), [Kind::BounceDrain, Kind::PutChunk]);
    assert!(node.outcome(put).is_none());
}

#[test]
fn a_peer_that_never_answers_is_asked_only_so_often() {
    let mut node = node(0);
    for round in 0..40 {
        let get = start(&mut node, Direction::Get, &[]);
        node.transport().copies.clear();
        node.cancel(get);
        assert!(node.in_flight() <= 6, "{} are left after {round} rounds", node.in_flight());
    }
    let asked = kinds(&mut node, 0).iter().filter(|kind| **kind == Kind::BounceFill).count();
    assert_eq!(asked, 4, "one bounce each asks for all of it");
    node.lose(0);
    assert_eq!(node.in_flight(), 0);
}

#[test]
fn whoever_exposes_ranges_lends_no_bounce_buffer_and_is_not_asked_each_time() {
    let mut owner = node(3);
    owner.expose_ranges_only();
    const NEVER: u64 = 4;
    for kind in [Kind::BounceTake, Kind::BounceFill] {
        assert_eq!(ask(&mut owner, 0, kind, 0, 300, 5), (NEVER, 0));
    }
    let mut node = node(0);
    let _ = start(&mut node, Direction::Put, &[]);
    answer(&mut node, Kind::BounceTake, [NEVER, 0]);
    let sent = node.transport().sent.len();
    node.transport().copies.clear();
    let _ = start(&mut node, Direction::Put, &[]);
    assert!(!kinds(&mut node, sent).contains(&Kind::BounceTake));
}

#[test]
fn what_cannot_be_sent_in_the_end_fails_its_transfer_and_nobody_elses() {
    let mut node = node(0);
    node.transport().room = 0;
    let get = start(&mut node, Direction::Get, &[]);
    node.transport().room = usize::MAX;
    node.transport().broken = Some(0);
    polled(&mut node);
    assert!(matches!(node.outcome(get), Some(Err(OpError::Protocol { peer: 0, .. }))));
    assert_eq!(node.take_detached_error(), None, "nobody else has failed");
}

/// Others may write to the rings that a process's messages to itself lie in.
#[test]
fn what_comes_in_its_own_name_is_checked_like_any_other() {
    let mut owner = node(0);
    owner.expose_ranges_only();
    owner.expose(64, 64, engine::Rights::ReadWrite);
    for (at, status) in [(64, 0), (256, 3)] {
        let before = owner.transport().sent.len();
        let args = [MemId::Space.to_wire(), 0, 0, 0];
        let get = Header { len: 16, token: 9, args, place: at, ..Header::new(Kind::GetChunk) };
        owner.transport().arrive(1, Lane::Request, get.encode(), &[]);
        polled(&mut owner);
        let answer = &owner.transport().sent[before];
        assert_eq!((answer.peer, answer.header.kind, answer.header.args[1]), (1, Kind::GetData, status));
        assert_eq!(answer.payload.len(), if status == 0 { 16 } else { 0 });
    }
}

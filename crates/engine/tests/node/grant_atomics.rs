//! Atomics on words of grants, message by message: what is asked for, who answers what, and what is believed.

use crate::common::{Script, Sent};
use engine::node::Polled;
use engine::wire::Kind;
use engine::{
    Atomic, GrantId, Granted, Header, Inbox, Lane, Mechanism, MemId, Node, OpError, OpId, Operation, Piece,
    Place, Rights, WordType,
};

/// What an answer says of how it went.
const OK: u64 = 0;
const FAULT: u64 = 1;
const REVOKED: u64 = 6;
const NOT_GRANTED: u64 = 7;
const UNALIGNED: u64 = 8;

/// A grant of rank 2's.
const THEIRS: GrantId = GrantId { line: 5, generation: 77 };

fn node() -> Node<Script> {
    Node::new(1, 3, 4, Script::new(1 << 14))
}

fn drain(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// The messages since this was asked last.
fn sent(node: &mut Node<Script>) -> Vec<Sent> {
    std::mem::take(&mut node.transport().sent)
}

/// Asks rank 2 for an atomic on the word at this offset of its grant. Returns what is sent.
fn ask(node: &mut Node<Script>, offset: u64, atomic: Atomic, deadline: Option<u64>) -> (OpId, Sent) {
    let id = node.atomic(2, Place::granted(THEIRS, offset), atomic, deadline);
    drain(node);
    let [message] = &sent(node)[..] else { panic!("it is one message") };
    assert_eq!((message.peer, message.lane, message.header.kind), (2, Lane::Request, Kind::AtomicAsk));
    (id, message.clone())
}

fn answer(node: &mut Node<Script>, from: u32, token: u64, status: u64, old: u64) {
    let header = Header { token, args: [status, old, 0, 0], ..Header::new(Kind::AtomicDone) };
    node.transport().arrive(from, Lane::Reply, header.encode(), &[]);
    drain(node);
}

/// What rank 0 is answered that asks this node for that: how it went, and the word from before.
fn serve(node: &mut Node<Script>, place: Place, atomic: Atomic) -> (u64, u64) {
    let [what, first, second] = atomic.to_wire();
    let header = Header {
        small: u16::from(atomic.blind),
        len: what as u32,
        token: 99,
        args: [place.mem.to_wire(), first, second, 0],
        place: place.offset,
        ..Header::new(Kind::AtomicAsk)
    };
    node.transport().arrive(0, Lane::Request, header.encode(), &[]);
    drain(node);
    let [message] = &sent(node)[..] else { panic!("it is answered once") };
    let Header { kind, token, args: [status, old, ..], .. } = message.header;
    assert_eq!((message.peer, message.lane, kind, token), (0, Lane::Reply, Kind::AtomicDone, 99));
    (status, old)
}

fn grant(node: &mut Node<Script>, start: u64, len: u64, rights: Rights) -> GrantId {
    node.grant(Granted { start, len, rights, to: None }).expect("few are granted")
}

fn word(node: &mut Node<Script>, at: usize) -> u64 {
    u64::from_ne_bytes(node.transport().memory[at..at + 8].try_into().expect("eight bytes"))
}

#[test]
fn the_owner_is_asked_once_and_its_answer_is_the_outcome() {
    let mut node = node();
    let (id, message) = ask(&mut node, 64, Atomic::compare_swap(3, 4), None);
    let Header { small, len, args, place, .. } = message.header;
    assert_eq!((small, len, place), (0, 0x207, Place::granted(THEIRS, 64).offset));
    assert_eq!(args, [MemId::Grant(77).to_wire(), 3, 4, 0]);
    assert_eq!((node.outcome(id), node.in_flight(), node.is_quiet()), (None, 1, false));
    answer(&mut node, 2, message.header.token, OK, 41);
    assert_eq!((node.outcome(id), node.in_flight(), node.is_quiet()), (Some(Ok(41)), 0, true));
    // Where nobody asks for the word, none is told, whatever the owner says.
    let (id, message) = ask(&mut node, 64, Atomic::fetch_add(5).without_old(), None);
    assert_eq!((message.header.small, message.header.len), (1, 0x200));
    answer(&mut node, 2, message.header.token, OK, 41);
    assert_eq!(node.outcome(id), Some(Ok(0)));
    let counted = node.counters().get(Operation::Atomic, Mechanism::Message);
    assert_eq!((counted.count, counted.bytes, node.counters().malformed), (2, 16, 0));
}

#[test]
fn what_the_owner_refuses_is_told_with_its_values() {
    let mut node = node();
    let load = Atomic::load(WordType::U32);
    let store = Atomic::store(WordType::F64, 1).without_old();
    for (atomic, rights) in
        [(load, Rights::Read), (store, Rights::Write), (Atomic::fetch_add(1), Rights::ReadWrite)]
    {
        let len = atomic.size();
        let Place { mem, offset: addr } = Place::granted(THEIRS, 12);
        for (status, error) in [
            (FAULT, OpError::Fault { peer: 2, mem, addr, len }),
            (REVOKED, OpError::Revoked { peer: 2, grant: THEIRS, offset: 12, len }),
            (NOT_GRANTED, OpError::NotGranted { peer: 2, grant: THEIRS, rights, offset: 12, len }),
            (UNALIGNED, OpError::Unaligned { peer: 2, grant: THEIRS, offset: 12, size: len }),
            (3, OpError::Protocol { peer: 2, what: "unknown status of an atomic" }),
            (u64::MAX, OpError::Protocol { peer: 2, what: "unknown status of an atomic" }),
        ] {
            let (id, message) = ask(&mut node, 12, atomic, None);
            answer(&mut node, 2, message.header.token, status, 0);
            assert_eq!(node.outcome(id), Some(Err(error)), "{atomic:?}");
        }
    }
    assert!(node.is_quiet());
}

#[test]
fn only_the_owner_is_believed_and_only_once() {
    let mut node = node();
    let (id, message) = ask(&mut node, 0, Atomic::fetch_add(1), None);
    let token = message.header.token;
    for (from, token) in [(0, token), (2, token ^ 1 << 32), (1, token)] {
        answer(&mut node, from, token, OK, 5);
        assert_eq!(node.outcome(id), None, "{from}");
    }
    let wrong = Header { token, ..Header::new(Kind::PutDone) };
    node.transport().arrive(2, Lane::Reply, wrong.encode(), &[]);
    drain(&mut node);
    assert_eq!((node.outcome(id), node.counters().malformed), (None, 3));
    answer(&mut node, 2, token, OK, 5);
    answer(&mut node, 2, token, OK, 6);
    assert_eq!((node.outcome(id), node.counters().malformed), (Some(Ok(5)), 3), "the second one is late");
}

#[test]
fn an_atomic_that_is_given_up_settles_by_its_answer() {
    let mut node = node();
    let (id, message) = ask(&mut node, 0, Atomic::fetch_add(1), Some(10));
    node.expire(10);
    assert_eq!(node.outcome(id), Some(Err(OpError::Timeout { peer: 2 })));
    assert_eq!((node.in_flight(), node.is_quiet(), node.settling()), (0, false, 1), "it may be done yet");
    answer(&mut node, 0, message.header.token, OK, 0);
    assert!(!node.is_quiet(), "another peer's word is nothing");
    answer(&mut node, 2, message.header.token, OK, 0);
    assert!(node.is_quiet());
    // A load writes nowhere.
    let (id, _) = ask(&mut node, 0, Atomic::load(WordType::U64), None);
    node.cancel(id);
    assert_eq!((node.outcome(id), node.is_quiet()), (Some(Err(OpError::Timeout { peer: 2 })), true));
    // Of a peer that is lost nothing is awaited.
    let (id, _) = ask(&mut node, 0, Atomic::fetch_add(1), None);
    let (late, _) = ask(&mut node, 0, Atomic::fetch_add(1), None);
    node.cancel(late);
    node.lose(2);
    let lost = Some(Err(OpError::PeerLost { peer: 2 }));
    assert_eq!((node.outcome(id), node.is_quiet(), node.settling()), (lost, true, 0));
    let id = node.atomic(2, Place::granted(THEIRS, 0), Atomic::fetch_add(1), None);
    assert_eq!(node.outcome(id), lost);
}

#[test]
fn what_finds_no_room_waits_and_is_not_sent_once_it_is_given_up() {
    let mut node = node();
    node.transport().room = 0;
    let ids = [(); 2].map(|()| node.atomic(2, Place::granted(THEIRS, 0), Atomic::fetch_add(1), None));
    node.cancel(ids[0]);
    assert_eq!((node.in_flight(), node.settling()), (1, 0));
    node.transport().room = usize::MAX;
    drain(&mut node);
    let [message] = &sent(&mut node)[..] else { panic!("one of the two was given up") };
    answer(&mut node, 2, message.header.token, OK, 3);
    assert_eq!((node.outcome(ids[1]), node.is_quiet()), (Some(Ok(3)), true));
    // One that can never go.
    node.transport().room = 0;
    let id = node.atomic(2, Place::granted(THEIRS, 0), Atomic::fetch_add(1), None);
    (node.transport().room, node.transport().broken) = (usize::MAX, Some(2));
    drain(&mut node);
    assert!(matches!(node.outcome(id), Some(Err(OpError::Protocol { peer: 2, .. }))));
}

#[test]
fn the_owner_does_what_the_grant_allows_and_nothing_else() {
    let mut node = node();
    let (add, load) = (Atomic::fetch_add(5), Atomic::load(WordType::U64));
    let blind = add.without_old();
    node.transport().memory[1024..1032].copy_from_slice(&40_u64.to_ne_bytes());
    let names =
        [Rights::Read, Rights::Write, Rights::ReadWrite].map(|rights| grant(&mut node, 1000, 100, rights));
    let at = |name: usize, offset| Place::granted(names[name], offset);
    for (name, atomic, expected) in [
        (0, load, (OK, 40)),
        (0, add, (NOT_GRANTED, 0)),
        (0, blind, (NOT_GRANTED, 0)),
        (1, load, (NOT_GRANTED, 0)),
        (1, add, (NOT_GRANTED, 0)),
        (1, blind, (OK, 0)),
        (2, load, (OK, 45)),
        (2, add, (OK, 45)),
        (2, blind, (OK, 0)),
    ] {
        assert_eq!(serve(&mut node, at(name, 24), atomic), expected, "{name} {atomic:?}");
    }
    assert_eq!(word(&mut node, 1024), 55);
    let served = node.counters().get(Operation::Served, Mechanism::Message);
    assert_eq!((served.count, served.bytes, node.counters().denied), (5, 40, 4));
    // Addresses are aligned, and not offsets in grants: 1000 is a multiple of 8.
    let odd = grant(&mut node, 1004, 100, Rights::ReadWrite);
    assert_eq!(serve(&mut node, Place::granted(odd, 24), add), (UNALIGNED, 0));
    assert_eq!(serve(&mut node, Place::granted(odd, 20), add), (OK, 55));
    assert_eq!(serve(&mut node, Place::granted(odd, 24), Atomic::load(WordType::I32)), (OK, 0));
    // The last word, and what goes beyond.
    assert_eq!(serve(&mut node, at(2, 88), add), (OK, 0));
    assert_eq!(serve(&mut node, at(2, 96), add), (FAULT, 0));
    assert_eq!(serve(&mut node, at(2, 96), Atomic::load(WordType::U32)), (OK, 0));
    // No memory of this process's but what is granted.
    for place in [Place::new(MemId::Space, 1024), Place::new(MemId::Heap, 64), Place::new(MemId::Control, 0)]
    {
        assert_eq!(serve(&mut node, place, add), (FAULT, 0), "{place:?}");
    }
    // Where the owner's memory is not there.
    let nowhere = grant(&mut node, 1 << 20, 8, Rights::ReadWrite);
    assert_eq!(serve(&mut node, Place::granted(nowhere, 0), add), (FAULT, 0));
    let before = word(&mut node, 1024);
    node.revoke(names[2]).expect("it is granted");
    assert_eq!(serve(&mut node, at(2, 24), add), (REVOKED, 0));
    let forged = GrantId { line: names[2].line, generation: names[2].generation + 1 };
    assert_eq!(serve(&mut node, Place::granted(forged, 24), add), (REVOKED, 0));
    assert_eq!((word(&mut node, 1024), node.counters().malformed), (before, 0));
}

#[test]
fn words_that_say_no_atomic_are_malformed_and_not_answered() {
    let mut node = node();
    let name = grant(&mut node, 1000, 100, Rights::ReadWrite);
    let Place { mem, offset: place } = Place::granted(name, 0);
    for (len, first) in [(u32::MAX, 0), (0x608, 0), (0x007, 1 << 32), (0x401, 0)] {
        let args = [mem.to_wire(), first, 0, 0];
        let header = Header { len, args, place, ..Header::new(Kind::AtomicAsk) };
        node.transport().arrive(0, Lane::Request, header.encode(), &[]);
        drain(&mut node);
    }
    assert_eq!((node.counters().malformed, sent(&mut node).len(), word(&mut node, 1000)), (4, 0, 0));
}

#[test]
fn an_owner_does_its_own_at_once() {
    let mut node = node();
    let name = grant(&mut node, 1000, 100, Rights::Write);
    let at = Place::granted(name, 0);
    let id = node.atomic(1, at, Atomic::fetch_add(5).without_old(), None);
    assert_eq!((node.outcome(id), word(&mut node, 1000)), (Some(Ok(0)), 5));
    let refused = OpError::NotGranted { peer: 1, grant: name, rights: Rights::ReadWrite, offset: 0, len: 8 };
    let id = node.atomic(1, at, Atomic::fetch_add(5), None);
    assert_eq!((node.outcome(id), word(&mut node, 1000)), (Some(Err(refused)), 5));
    assert_eq!((sent(&mut node).len(), node.counters().denied), (0, 1));
}

#[test]
fn a_signal_in_a_grant_follows_all_bytes() {
    let mut node = node();
    // Also where a word of the heap would go with them.
    node.transport().signals_by_message = true;
    let piece = Piece::new(Place::new(MemId::Space, 0), Place::new(MemId::Space, 4096), 8).expect("in range");
    let counter = Place::granted(THEIRS, 16);
    let signal = Atomic::fetch_add(5).without_old();
    let id = node.transfer_then_signal(2, &[piece], counter, signal, None);
    drain(&mut node);
    let [put] = &sent(&mut node)[..] else { panic!("the bytes alone") };
    assert_eq!(put.header.kind, Kind::PutChunk);
    let done = Header { token: put.header.token, args: [0, OK, 0, 0], ..Header::new(Kind::PutDone) };
    node.transport().arrive(2, Lane::Reply, done.encode(), &[]);
    drain(&mut node);
    let [ask] = &sent(&mut node)[..] else { panic!("one message") };
    assert_eq!((ask.header.kind, ask.header.place), (Kind::AtomicAsk, counter.offset));
    assert_eq!((ask.header.small, ask.header.len), (1, 0x1_0200), "it signals");
    assert_eq!(node.outcome(id), None);
    answer(&mut node, 2, ask.header.token, OK, 0);
    assert_eq!(node.outcome(id), Some(Ok(0)));
    // Where the counter is refused, the bytes have been put.
    let id = node.transfer_then_signal(2, &[piece], counter, signal, None);
    drain(&mut node);
    let token = sent(&mut node)[0].header.token;
    let done = Header { token, args: [0, OK, 0, 0], ..Header::new(Kind::PutDone) };
    node.transport().arrive(2, Lane::Reply, done.encode(), &[]);
    drain(&mut node);
    let token = sent(&mut node)[0].header.token;
    answer(&mut node, 2, token, NOT_GRANTED, 0);
    let refused = OpError::NotGranted { peer: 2, grant: THEIRS, rights: Rights::Write, offset: 16, len: 8 };
    assert_eq!(node.outcome(id), Some(Err(refused)));
}

//! Puts that signal, message by message: what goes in one message, and what becomes of it.

use crate::common::{PAYLOAD_MAX, Script, Sent};
use engine::node::Polled;
use engine::wire::Kind;
use engine::{
    Atomic, AtomicOp, Change, Header, Inbox, Lane, MemId, Node, OpError, OpId, Piece, Place, Submit, WordType,
};

/// What an answer says of how it went.
const OK: u64 = 0;
const FAULT: u64 = 1;
const NO_WORD: u64 = 5;

/// Where the word lies in its owner's heap.
const WORD: u64 = 64;

fn node() -> Node<Script> {
    Node::new(1, 3, 4, Script::new(1 << 14))
}

/// Puts so many bytes to rank 2, and then changes the word.
fn put(node: &mut Node<Script>, len: u64, atomic: Atomic) -> OpId {
    let piece =
        Piece::new(Place::new(MemId::Space, 0), Place::new(MemId::Space, 4096), len).expect("in range");
    let id = node.transfer_then_signal(2, &[piece], Place::new(MemId::Heap, WORD), atomic, None);
    drain(node);
    id
}

/// Atomics that have been started: nothing else has, where the transport reaches nothing.
fn atomics(node: &mut Node<Script>) -> usize {
    node.transport().started.len()
}

fn drain(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// The messages since this was asked last.
fn sent(node: &mut Node<Script>) -> Vec<Sent> {
    std::mem::take(&mut node.transport().sent)
}

fn answer(node: &mut Node<Script>, to: &Sent, status: u64, old: u64) {
    let header = Header {
        token: to.header.token,
        args: [to.header.args[1], status, old, 0],
        ..Header::new(Kind::PutDone)
    };
    node.transport().arrive(to.peer, Lane::Reply, header.encode(), &[]);
    drain(node);
}

/// The header of a put of one byte to 300 that sets the word to 7.
fn setting() -> Header {
    let set = Atomic::new(WordType::U64, Change::Apply(AtomicOp::Swap, 7)).to_wire();
    Header {
        small: set[0] as u16,
        len: 1,
        token: 77,
        args: [MemId::Space.to_wire(), 3, WORD, set[1]],
        place: 300,
        ..Header::new(Kind::PutSignal)
    }
}

/// What the node answers to that, from rank 0: how it went, and the word from before.
fn ask(node: &mut Node<Script>, header: Header) -> Option<(u64, u64)> {
    node.transport().arrive(0, Lane::Request, header.encode(), &[9; 1]);
    drain(node);
    let answer = sent(node).pop()?;
    let Header { kind, token, args: [slot, status, old, _], .. } = answer.header;
    assert_eq!((answer.peer, answer.lane, kind, token, slot), (0, Lane::Reply, Kind::PutDone, 77, 3));
    Some((status, old))
}

#[test]
fn a_short_put_brings_its_signal_with_it() {
    let mut node = node();
    let id = put(&mut node, 8, Atomic::fetch_add(5));
    let [message] = &sent(&mut node)[..] else { panic!("more than one message") };
    assert_eq!((message.header.kind, message.payload.len()), (Kind::PutSignal, 8));
    assert_eq!(message.header.args[2..], [WORD, 5]);
    assert_eq!(node.outcome(id), None);
    answer(&mut node, message, OK, 41);
    assert_eq!((node.outcome(id), atomics(&mut node)), (Some(Ok(41)), 0), "and no atomic");
}

#[test]
fn what_went_wrong_is_told_apart() {
    let cases = [(FAULT, (MemId::Space, 0, 8)), (NO_WORD, (MemId::Heap, WORD, 8))];
    for (status, (mem, addr, len)) in cases {
        let mut node = node();
        let id = put(&mut node, 8, Atomic::fetch_add(5));
        let messages = sent(&mut node);
        answer(&mut node, &messages[0], status, 41);
        assert_eq!(node.outcome(id), Some(Err(OpError::Fault { peer: 2, mem, addr, len })));
        assert!(sent(&mut node).is_empty(), "the word is left alone");
    }
    // That a word is nowhere is no answer where none was to change.
    let mut node = node();
    let id = put(&mut node, 8, Atomic::compare_swap(1, 2));
    let messages = sent(&mut node);
    answer(&mut node, &messages[0], NO_WORD, 41);
    assert_eq!(node.outcome(id), Some(Err(OpError::Protocol { peer: 2, what: "unknown chunk status" })));
}

#[test]
fn a_signal_waits_for_all_chunks() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(41));
    let id = put(&mut node, 3 * PAYLOAD_MAX as u64, Atomic::fetch_add(5));
    let messages = sent(&mut node);
    assert!(messages.iter().all(|message| message.header.kind == Kind::PutChunk) && messages.len() == 3);
    for message in &messages {
        assert_eq!(atomics(&mut node), 0, "a signal before all bytes");
        answer(&mut node, message, OK, 0);
    }
    assert_eq!((node.outcome(id), atomics(&mut node)), (Some(Ok(41)), 1));
}

#[test]
fn a_last_chunk_alone_brings_the_signal_with_it() {
    for status in [OK, FAULT] {
        let mut node = node();
        node.transport().room = 2;
        let id = put(&mut node, 3 * PAYLOAD_MAX as u64, Atomic::fetch_add(5));
        let messages = sent(&mut node);
        assert_eq!(messages.len(), 2);
        answer(&mut node, &messages[0], OK, 0);
        answer(&mut node, &messages[1], status, 0);
        node.transport().room = 1;
        drain(&mut node);
        let last = sent(&mut node);
        if status == FAULT {
            assert!(last.is_empty() && matches!(node.outcome(id), Some(Err(OpError::Fault { .. }))));
            continue;
        }
        assert_eq!((last.len(), last[0].header.kind), (1, Kind::PutSignal));
        answer(&mut node, &last[0], OK, 41);
        assert_eq!(node.outcome(id), Some(Ok(41)));
    }
}

#[test]
fn what_has_two_values_goes_alone() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(1));
    let id = put(&mut node, 8, Atomic::compare_swap(1, 2));
    let messages = sent(&mut node);
    assert_eq!(messages[0].header.kind, Kind::PutChunk);
    answer(&mut node, &messages[0], OK, 0);
    assert_eq!((node.outcome(id), atomics(&mut node)), (Some(Ok(1)), 1));
}

#[test]
fn the_word_changes_after_the_bytes_and_not_without_them() {
    let mut node = node();
    node.transport().words.insert(WORD, 41);
    assert_eq!(ask(&mut node, setting()), Some((OK, 41)));
    assert_eq!((node.transport().memory[300], node.transport().words[&WORD]), (9, 7));
    // Bytes that go nowhere.
    assert_eq!(
        ask(&mut node, Header { place: 1 << 40, args: [0, 3, WORD, 8], ..setting() }),
        Some((FAULT, 0))
    );
    // A word that is nowhere.
    let place = 301;
    let args = [MemId::Space.to_wire(), 3, WORD + 4, 8];
    assert_eq!(ask(&mut node, Header { place, args, ..setting() }), Some((NO_WORD, 0)));
    assert_eq!((node.transport().memory[301], node.transport().words[&WORD]), (9, 7));
    assert_eq!(node.counters().malformed, 0);
}

#[test]
fn a_change_that_nobody_knows_stores_nothing() {
    let swap = Atomic::compare_swap(1, 2).to_wire()[0] as u16;
    for small in [u16::MAX, swap, 1 << 12] {
        let mut node = node();
        node.transport().words.insert(WORD, 41);
        assert_eq!(ask(&mut node, Header { small, ..setting() }), None);
        assert_eq!((node.transport().memory[300], node.transport().words[&WORD]), (0, 41));
        assert_eq!(node.counters().malformed, 1);
    }
}

/// What a put of `len` bytes to that place starts, where short ones had better be messages, and a copy would
/// be done at once: the kinds of messages, and how many copies and atomics.
fn started(remote: Place, len: u64) -> (Vec<Kind>, usize) {
    let mut script = Script::new(1 << 14);
    (script.signals_by_message, script.copies) = (true, [Submit::Done(0)].into());
    script.atomics.push_back(Submit::Done(41));
    let mut node = Node::new(1, 3, 4, script);
    let piece = Piece::new(remote, Place::new(MemId::Space, 4096), len).expect("in range");
    node.transfer_then_signal(2, &[piece], Place::new(MemId::Heap, WORD), Atomic::fetch_add(5), None);
    drain(&mut node);
    (sent(&mut node).iter().map(|sent| sent.header.kind).collect(), node.transport().started.len())
}

#[test]
fn what_fits_a_message_goes_as_one_though_it_could_be_copied() {
    const MOST: u64 = PAYLOAD_MAX as u64;
    let [heap, private] = [MemId::Heap, MemId::Space].map(|mem| move |offset| Place::new(mem, offset));
    for place in [heap(0), heap(8188), private(0), private((8 << 10) - MOST)] {
        assert_eq!(started(place, MOST), (vec![Kind::PutSignal], 0), "{place:?}");
    }
    // Too long; with a boundary in it, beyond which it may fault elsewhere; and nothing at all.
    assert_eq!(started(heap(0), MOST + 1), (vec![], 2));
    assert_eq!(started(private((8 << 10) - 4), 8), (vec![], 2));
    assert_eq!(started(heap(0), 0), (vec![], 1));
}

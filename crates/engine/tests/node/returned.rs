//! A peer whose rank another process has taken, and holders that do not answer: news told one by one.

use crate::common::{Script, Sent};
use engine::node::{AmBody, Polled};
use engine::registration::{Keep, Order, Quota, Settings};
use engine::span::BucketSize;
use engine::wire::Kind;
use engine::{
    AmSend, Atomic, Direction, Event, Header, Inbox, Lane, MemId, Node, OpError, OpId, Piece, Place, Rank,
    SendError, Submit,
};

const LOST: OpError = OpError::PeerLost { peer: 2 };

fn node() -> Node<Script> {
    Node::new(1, 3, 4, Script::new(1 << 16))
}

/// A node that lets its peers hold two pages.
fn registering() -> Node<Script> {
    registering_by(12)
}

/// Likewise, two buckets of so many bits.
fn registering_by(bits: u32) -> Node<Script> {
    registering_with(settings(bits))
}

fn settings(bits: u32) -> Settings {
    Settings {
        bucket: BucketSize::new(bits).expect("a page or more"),
        run_max: 8,
        peers_bytes: 2 << bits,
        victims_bytes: 0,
        victims_borrow: false,
        quota: Quota::Leases { guaranteed: 0 },
        order: Order::Fifo,
        keep: Keep::Firehoses,
        put_in_move_max: 0,
        recall_within: 100,
    }
}

fn registering_with(settings: Settings) -> Node<Script> {
    let mut script = Script::new(1 << 16);
    script.registers = true;
    Node::with_registration(1, 3, 4, script, settings)
}

fn drain(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

fn returned(node: &mut Node<Script>, incarnation: u32) {
    let event = Event::Returned { peer: 2, incarnation };
    node.transport().inbox.push_back((event, Inbox::default()));
    drain(node);
}

fn piece(local: u64, remote: u64, len: u64) -> Piece {
    let space = |offset| Place::new(MemId::Space, offset);
    Piece::new(space(remote), space(local), len).expect("far below 2^64")
}

fn short(lane: Lane) -> AmSend<'static> {
    AmSend { peer: 2, lane, handler: 2, args: [5; 4], body: AmBody::Short }
}

/// Rank `peer` asks for the pages from `first` on.
fn ask(node: &mut Node<Script>, peer: Rank, first: u64, pages: u32) {
    let mut payload = first.to_le_bytes().to_vec();
    payload.extend(pages.to_le_bytes());
    let header = Header { len: 12, token: first, args: [1, 0, 0, 0], ..Header::new(Kind::Move) };
    node.transport().arrive(peer, Lane::Request, header.encode(), &payload);
    drain(node);
}

fn sent(node: &mut Node<Script>, kind: Kind) -> Vec<Sent> {
    node.transport().sent.iter().filter(|sent| sent.header.kind == kind).cloned().collect()
}

#[test]
fn what_was_under_way_with_the_old_process_is_lost_and_nothing_of_it_is_sent_to_the_new() {
    let mut node = node();
    node.transport().room = 0;
    node.transport().atomics.push_back(Submit::Pending);
    let word = Place::new(MemId::Heap, 0);
    let ids = [
        node.transfer(2, Direction::Put, &[piece(0, 0, 64 * 20)], None),
        node.transfer(2, Direction::Get, &[piece(0, 0, 8)], None),
        node.atomic(2, word, Atomic::fetch_add(1), None),
    ];
    returned(&mut node, 1);
    assert_eq!(ids.map(|id| node.outcome(id)), [Some(Err(LOST)); 3]);
    assert_eq!(node.take_replaced(), Some(2));
    node.transport().room = 99;
    drain(&mut node);
    assert!(node.transport().sent.is_empty());
    let again = node.transfer(2, Direction::Put, &[piece(0, 0, 8)], None);
    assert_eq!(node.outcome(again), None);
    assert_eq!(sent(&mut node, Kind::PutChunk).len(), 1);
}

#[test]
fn nothing_starts_with_the_new_process_before_the_program_has_been_told() {
    let mut node = node();
    returned(&mut node, 1);
    assert!(node.is_lost(2) && node.incarnation_of(2) == 1);
    let put = node.transfer(2, Direction::Put, &[piece(0, 0, 8)], None);
    let count = node.atomic(2, Place::new(MemId::Heap, 0), Atomic::fetch_add(1), None);
    assert_eq!([node.outcome(put), node.outcome(count)], [Some(Err(LOST)); 2]);
    assert_eq!(node.send_am(&short(Lane::Request)), Err(SendError::Failed(LOST)));
    assert_eq!(node.send_am(&short(Lane::Reply)), Ok(()), "who has asked is answered");
    assert_eq!((node.take_replaced(), node.take_replaced()), (Some(2), None));
    assert!(!node.is_lost(2));
    assert_eq!(node.send_am(&short(Lane::Request)), Ok(()));
}

#[test]
fn old_news_of_a_return_changes_nothing() {
    let mut node = node();
    returned(&mut node, 2);
    assert_eq!(node.take_replaced(), Some(2));
    let put = node.transfer(2, Direction::Put, &[piece(0, 0, 8)], None);
    returned(&mut node, 1);
    returned(&mut node, 2);
    assert_eq!((node.outcome(put), node.take_replaced()), (None, None));
    node.lose(2);
    assert_eq!(node.outcome(put), Some(Err(LOST)));
    returned(&mut node, 3);
    node.lose(2);
    assert_eq!(node.take_replaced(), None, "the new one is lost, too");
    assert!(node.is_lost(2));
}

#[test]
fn the_barrier_is_that_of_the_first_processes() {
    let mut survivor = node();
    survivor.transport().atomics.extend([Submit::Done(0), Submit::Done(2)]);
    let begun = survivor.barrier(None);
    returned(&mut survivor, 1);
    assert_eq!(survivor.outcome(begun), Some(Err(LOST)), "its old self had not arrived");
    assert_eq!(survivor.take_replaced(), Some(2));
    let next = survivor.barrier(None);
    assert_eq!(survivor.outcome(next), Some(Err(LOST)));

    let mut last = node();
    returned(&mut last, 1);
    assert_eq!(last.take_replaced(), Some(2));
    let first = last.barrier(None);
    assert_eq!(last.outcome(first), Some(Err(LOST)));
    assert!(last.transport().started.is_empty(), "who cannot be counted in does not count");

    let mut new = node().as_replacement();
    let id = new.barrier(None);
    assert_eq!(new.outcome(id), Some(Err(OpError::PeerLost { peer: 1 })));
    assert!(new.transport().started.is_empty() && new.transport().sent.is_empty());
}

#[test]
fn what_the_old_process_held_is_there_for_others() {
    let mut node = registering();
    ask(&mut node, 2, 0, 2);
    assert_eq!(node.rights_given(2).len(), 1);
    node.invalidate(0, 1);
    assert_eq!(node.send_am(&AmSend { peer: 0, ..short(Lane::Request) }), Err(SendError::Busy));
    returned(&mut node, 1);
    assert_eq!(node.rights_given(2), [] as [u32; 0]);
    assert_eq!(node.registration_counters().table.pinned, 0);
    assert_eq!(node.send_am(&AmSend { peer: 0, ..short(Lane::Request) }), Ok(()), "nobody is waited for");
    ask(&mut node, 2, 4, 2);
    assert_eq!(node.rights_given(2).len(), 1, "the new one may hold as much");
    node.audit().expect("sound");
}

#[test]
fn an_answer_that_was_held_back_is_not_for_the_new_process() {
    let mut node = registering();
    ask(&mut node, 0, 0, 1);
    node.invalidate(0, 1);
    let header = Header { token: 77, len: 8, ..Header::new(Kind::GetChunk) };
    node.transport().arrive(2, Lane::Request, header.encode(), &[]);
    drain(&mut node);
    returned(&mut node, 1);
    node.lose(0);
    drain(&mut node);
    assert_eq!(sent(&mut node, Kind::GetData).len(), 0);
}

#[test]
fn a_holder_that_is_asked_for_room_and_does_not_answer_in_time_is_lost() {
    for answers in [false, true] {
        let mut node = registering();
        ask(&mut node, 2, 0, 2);
        assert!(!node.wants_time());
        ask(&mut node, 0, 4, 1);
        assert_eq!(sent(&mut node, Kind::Recall).len(), 1);
        assert!(node.wants_time());
        assert_eq!((node.expire(1000), node.wants_time()), (Some(1100), false));
        if answers {
            let nothing = Header { args: [2 << 32, 0, 0, 0], ..Header::new(Kind::Release) };
            node.transport().arrive(2, Lane::Request, nothing.encode(), &[]);
            drain(&mut node);
        }
        assert_eq!(node.expire(1099), (!answers).then_some(1100));
        assert_eq!((node.expire(1100), node.is_lost(2)), (None, !answers));
        let given_up: &[Rank] = if answers { &[] } else { &[2] };
        assert_eq!(node.transport().disconnected, given_up);
        ask(&mut node, 0, 4, 1);
        assert_eq!(node.rights_given(0).len(), usize::from(!answers));
    }
}

/// The answer may lie there, unread, while this process is stopped, or while the thread that polls is in a
/// handler.
#[test]
fn a_holders_time_hardly_passes_while_nobody_looks() {
    const SECOND: u64 = 1_000_000_000;
    let mut node = registering_with(Settings { recall_within: 10 * SECOND, ..settings(12) });
    ask(&mut node, 2, 0, 2);
    ask(&mut node, 0, 4, 1);
    assert_eq!(
        node.expire(SECOND),
        Some(SECOND + 10 * SECOND / 8),
        "what it was asked is looked for at least so often"
    );
    for tenth in 10..500 {
        assert_eq!(node.expire_unpolled(tenth * SECOND / 10), Some(tenth * SECOND / 10 + 10 * SECOND / 8));
    }
    let next = (1..8).map(|stopped| node.expire(50 * SECOND + stopped * 60 * SECOND)).last();
    let then = 470 * SECOND + 10 * SECOND / 8;
    assert_eq!((next, node.is_lost(2)), (Some(Some(then)), false));
    // By the clock as another thread had read it, before the last stop.
    node.expire(60 * SECOND);
    node.expire(470 * SECOND);
    assert!(!node.is_lost(2), "no stop counts twice");
    node.expire(then);
    assert!(node.is_lost(2));
}

/// Who is asked while nobody polls has all its time from then on.
#[test]
fn the_time_before_a_holder_is_asked_is_none_of_its_own() {
    const SECOND: u64 = 1_000_000_000;
    let mut node = registering_with(Settings { recall_within: 10 * SECOND, ..settings(12) });
    ask(&mut node, 2, 0, 1);
    node.expire(SECOND);
    node.invalidate(0, 1);
    node.expire_unpolled(100 * SECOND);
    let looks = (100 * SECOND..).step_by(SECOND as usize / 100);
    let lost_at = looks.map(|now| (now, node.expire(now))).find(|(_, next)| next.is_none());
    let lost_at = lost_at.expect("it ends").0;
    assert!((110 * SECOND..111 * SECOND).contains(&lost_at), "{lost_at} ns");
}

/// Whoever is told when to look again need not look all the time, however short the time to answer is.
#[test]
fn looks_are_not_closer_than_what_each_right_adds() {
    for recall_within in [0, 1, 7, 8, 1000, 1_000_000] {
        let mut node = registering_with(Settings { recall_within, ..settings(12) });
        ask(&mut node, 2, 0, 1);
        node.invalidate(0, 1);
        let (mut now, mut looks) = (5000, 0);
        while let Some(next) = node.expire(now) {
            assert!(next > now);
            (now, looks) = (next, looks + 1);
        }
        assert!(node.is_lost(2) && (1..=12).contains(&looks), "{looks} looks in {recall_within} ns");
    }
}

/// A node that waits at the barrier, and cannot arrive before `holder` has given a right back.
fn held_back(holder: Rank) -> (Node<Script>, OpId) {
    let mut node = registering();
    ask(&mut node, holder, 0, 1);
    node.invalidate(0, 1);
    let begun = node.barrier(None);
    assert!(node.transport().started.is_empty(), "who sees it counted may know of the new memory");
    (node, begun)
}

#[test]
fn an_arrival_that_was_held_back_is_not_counted_by_another_process() {
    let (mut node, begun) = held_back(2);
    node.transport().atomics.push_back(Submit::Done(0));
    let event = Event::Returned { peer: 0, incarnation: 1 };
    node.transport().inbox.push_back((event, Inbox::default()));
    drain(&mut node);
    let broken = Some(Err(OpError::PeerLost { peer: 0 }));
    assert_eq!(node.outcome(begun), broken, "who counts is gone");
    let looked = node.transport().started.len();
    node.lose(2);
    drain(&mut node);
    assert_eq!(node.transport().started.len(), looked, "the counter is another process's");
    let next = node.barrier(None);
    assert_eq!(node.outcome(next), broken, "what was said once stays true");
}

#[test]
fn who_cannot_arrive_yet_when_a_peer_is_lost_looks_who_has_when_it_does() {
    let lost = Some(Err(LOST));
    for (before, after, outcome) in [(2, None, Some(Ok(0))), (1, Some(2), lost)] {
        let (mut node, begun) = held_back(0);
        returned(&mut node, 1);
        assert_eq!(node.outcome(begun), None, "it has not arrived itself");
        let counts = std::iter::once(before).chain(after).map(Submit::Done);
        node.transport().atomics.extend(counts);
        let right = Header { args: [1 | 1 << 32, 0, 0, 0], ..Header::new(Kind::Release) };
        node.transport().arrive(0, Lane::Request, right.encode(), &[]);
        drain(&mut node);
        assert_eq!(node.outcome(begun), outcome, "{before} others had arrived");
        assert_eq!(sent(&mut node, Kind::BarrierOpen).len(), usize::from(before == 2));
        assert!(node.transport().atomics.is_empty());
    }
}

#[test]
fn a_peer_asks_for_no_buckets_beyond_the_address_space() {
    let mut node = registering_by(16);
    for (first, pages) in [(1 << 48, 1), ((1 << 48) - 1, 2), ((1 << 52) - 1, 1)] {
        ask(&mut node, 2, first, pages);
        assert_eq!(node.rights_given(2), [] as [u32; 0], "bucket {first:#x}: 2^64 is 0");
    }
    assert_eq!(node.counters().malformed, 3);
    assert_eq!(sent(&mut node, Kind::Moved).len(), 3, "a move is always answered");
    ask(&mut node, 2, (1 << 48) - 1, 1);
    assert_eq!(node.rights_given(2).len(), 1);
}

/// A rank that registers nothing, among others that do: what comes with the question is put, and the rest
/// goes by message.
#[test]
fn who_registers_nothing_says_so_to_those_who_ask() {
    let mut node = node();
    for (place, wrote) in [(8, true), (u64::MAX / 2, false)] {
        let mut payload = 0_u64.to_le_bytes().to_vec();
        payload.extend(1_u32.to_le_bytes());
        payload.extend([7; 4]);
        let header = Header { len: 16, token: 9, place, args: [1, 0, 1, 0], ..Header::new(Kind::Move) };
        node.transport().arrive(2, Lane::Request, header.encode(), &payload);
        drain(&mut node);
        let answer = sent(&mut node, Kind::Moved).pop().expect("a move is always answered");
        assert_eq!((answer.header.token, answer.header.len, answer.payload.len()), (9, 0, 0));
        assert_eq!(answer.header.args[1] == 0, wrote, "whether it was put");
    }
    assert_eq!(node.transport().memory[8..12], [7; 4]);
    assert_eq!(node.counters().malformed, 0);
}

#[test]
fn who_revokes_more_than_it_was_asked_for_is_given_up() {
    let mut node = registering();
    let get = node.transfer(2, Direction::Get, &[piece(0, 0, 8)], None);
    assert_eq!(node.outcome(get), None, "one bucket is asked for");
    let revoke = |node: &mut Node<Script>, holder| {
        let header = Header { args: [holder, 0, 0, 0], ..Header::new(Kind::Revoke) };
        node.transport().arrive(2, Lane::Request, header.encode(), &[]);
        drain(node);
    };
    revoke(&mut node, 7);
    assert!(!node.is_lost(2), "the news may be of what the answer gives");
    revoke(&mut node, 8);
    assert!(node.is_lost(2));
    assert_eq!((node.counters().malformed, node.outcome(get)), (1, Some(Err(LOST))));
}

#[test]
fn answers_wait_for_a_silent_holder_until_they_are_too_many() {
    let mut node = registering();
    ask(&mut node, 2, 0, 1);
    node.invalidate(0, 4096);
    // No transport takes so long a message; none is sent.
    let body = [0; 1 << 20];
    node.transport().full = true;
    let answer = AmSend { peer: 0, body: AmBody::Medium(&body), ..short(Lane::Reply) };
    for _ in 0..255 {
        node.send_am(&answer).expect("a reply is never refused");
        drain(&mut node);
    }
    assert!(!node.is_lost(2));
    node.send_am(&answer).expect("a reply is never refused");
    drain(&mut node);
    assert_eq!([0, 2].map(|peer| node.is_lost(peer)), [false, true], "it alone keeps them");
}

#[test]
fn who_is_recalled_for_again_and_again_owes_one_answer() {
    let mut node = registering();
    node.transport().room = 0;
    for _ in 0..100 {
        let header = Header { args: [4096, 0, 0, 0], ..Header::new(Kind::Recall) };
        node.transport().arrive(2, Lane::Request, header.encode(), &[]);
        drain(&mut node);
    }
    node.transport().room = 99;
    drain(&mut node);
    assert_eq!(sent(&mut node, Kind::Release).len(), 1);
}

/// Each request leaves room for one answer: of those to one peer as many go as come, the oldest first, once
/// nothing is held back.
#[test]
fn answers_that_waited_go_before_new_ones() {
    let mut node = registering();
    ask(&mut node, 2, 0, 1);
    node.invalidate(0, 4096);
    drain(&mut node);
    let answer = |node: &mut Node<Script>, number: u64| {
        let reply = AmSend { peer: 0, args: [number; 4], ..short(Lane::Reply) };
        node.send_am(&reply).expect("a reply is never refused");
    };
    (1..=3).for_each(|number| answer(&mut node, number));
    let replies = |node: &mut Node<Script>| {
        let sent = node.transport().sent.iter();
        sent.filter(|sent| (sent.peer, sent.lane) == (0, Lane::Reply))
            .map(|sent| sent.header.args[0])
            .collect::<Vec<_>>()
    };
    node.transport().room = 0;
    let revoked = sent(&mut node, Kind::Revoke).pop().expect("the right is revoked").header.args[0];
    let header = Header { args: [1 | 1 << 32, revoked, 0, 0], ..Header::new(Kind::Release) };
    node.transport().arrive(2, Lane::Request, header.encode(), &[]);
    drain(&mut node);
    assert_eq!(replies(&mut node), [], "there is no room");
    for number in 4..=6 {
        node.transport().room = 1;
        answer(&mut node, number);
    }
    assert_eq!(replies(&mut node), [1, 2, 3]);
    node.transport().room = 99;
    drain(&mut node);
    assert_eq!(replies(&mut node), [1, 2, 3, 4, 5, 6]);
}

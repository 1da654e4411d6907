//! Rules of the node that need news in a certain order, told one by one.

use crate::common::{Script, UNREACHED_AT};
use engine::node::{AmBody, Polled};
use engine::wire::Kind;
use engine::{
    AmSend, Direction, Event, Header, Inbox, Lane, MemId, Node, OpError, OpId, PathReason, Piece, Place,
    SendError, Submit,
};

fn node() -> Node<Script> {
    Node::new(1, 3, 4, Script::new(1 << 16))
}

fn drain(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

fn open(node: &mut Node<Script>, epoch: u64) {
    let header = Header { args: [epoch, 0, 0, 0], ..Header::new(Kind::BarrierOpen) };
    node.transport().arrive(0, Lane::Request, header.encode(), &[]);
    drain(node);
}

fn piece(local: u64, remote: u64, len: u64) -> Piece {
    let space = |offset| Place::new(MemId::Space, offset);
    Piece::new(space(remote), space(local), len).expect("far below 2^64")
}

fn long(peer: u32) -> AmSend<'static> {
    let body = AmBody::Long(Place::new(MemId::Space, 0), 8);
    AmSend { peer, lane: Lane::Request, handler: 2, args: [5; 4], body }
}

fn announcements(node: &mut Node<Script>) -> usize {
    node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::AmLong).count()
}

#[test]
fn a_barrier_that_opens_after_its_wait_timed_out_is_passed_by_the_next_call() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(0));
    let first = node.barrier(Some(10));
    assert_eq!(node.expire(10), None);
    assert_eq!(node.outcome(first), Some(Err(OpError::Timeout { peer: 0 })));
    open(&mut node, 1);
    let again = node.barrier(None);
    assert_eq!(node.outcome(again), Some(Ok(0)));
    assert_eq!(node.transport().started.len(), 1, "the second call must not arrive a second time");

    node.transport().atomics.push_back(Submit::Done(3));
    let second = node.barrier(None);
    assert_eq!(node.outcome(second), None);
    open(&mut node, 2);
    assert_eq!(node.outcome(second), Some(Ok(0)));
}

#[test]
fn a_barrier_wait_is_taken_up_again_before_the_barrier_opens() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(0));
    let first = node.barrier(None);
    node.cancel(first);
    assert_eq!(node.outcome(first), Some(Err(OpError::Timeout { peer: 0 })));
    let again = node.barrier(None);
    assert_eq!(node.outcome(again), None);
    open(&mut node, 1);
    assert_eq!(node.outcome(again), Some(Ok(0)));
    assert_eq!(node.transport().started.len(), 1);
}

#[test]
fn old_news_of_an_open_barrier_does_not_open_the_next() {
    let mut node = node();
    for before in [0, 3] {
        node.transport().atomics.push_back(Submit::Done(before));
    }
    let first = node.barrier(None);
    open(&mut node, 1);
    assert_eq!(node.outcome(first), Some(Ok(0)));
    let second = node.barrier(None);
    open(&mut node, 1);
    assert_eq!(node.outcome(second), None);
    open(&mut node, 2);
    assert_eq!(node.outcome(second), Some(Ok(0)));
}

#[test]
fn a_barrier_from_the_future_is_malformed() {
    let mut node = node();
    open(&mut node, 1);
    assert_eq!(node.counters().malformed, 1);
    node.transport().atomics.push_back(Submit::Done(0));
    let wait = node.barrier(None);
    open(&mut node, 2);
    open(&mut node, 0);
    assert_eq!((node.counters().malformed, node.outcome(wait)), (3, None));
}

#[test]
fn the_message_that_opens_a_barrier_may_overtake_the_counters_answer() {
    let mut node = node();
    node.transport().atomics.extend([Submit::Pending, Submit::Pending]);
    let first = node.barrier(None);
    open(&mut node, 1);
    assert_eq!(node.outcome(first), Some(Ok(0)));
    let second = node.barrier(None);
    let arrival = node.transport().started[0];
    node.transport().inbox.push_back((Event::Completed { op: arrival, result: Ok(1) }, Inbox::default()));
    drain(&mut node);
    assert_eq!(node.outcome(second), None, "news of the first arrival says nothing about the second");
    open(&mut node, 2);
    assert_eq!(node.outcome(second), Some(Ok(0)));
}

#[test]
fn a_barrier_that_was_given_up_stays_so_when_the_others_come_to_it() {
    let mut node = node();
    // This rank arrives second and rank 2 is lost before rank 0 comes: whether rank 2 had arrived, nobody can
    // say.
    node.transport().atomics.extend([Submit::Done(1), Submit::Done(2)]);
    let wait = node.barrier(None);
    node.lose(2);
    let given_up = Some(Err(OpError::PeerLost { peer: 2 }));
    assert_eq!(node.outcome(wait), given_up);
    open(&mut node, 1);
    for _ in 0..2 {
        let next = node.barrier(None);
        assert_eq!(node.outcome(next), given_up);
    }
    assert_eq!(node.transport().started.len(), 2, "it must not arrive any more");
}

#[test]
fn a_barrier_whose_wait_timed_out_before_a_loss_is_passed_if_all_had_arrived() {
    for (count, outcome) in [(3, Ok(0)), (2, Err(OpError::PeerLost { peer: 2 }))] {
        let mut node = node();
        node.transport().atomics.extend([Submit::Done(1), Submit::Done(count)]);
        let first = node.barrier(Some(10));
        assert_eq!(node.expire(10), None);
        assert_eq!(node.outcome(first), Some(Err(OpError::Timeout { peer: 0 })));
        node.lose(2);
        let again = node.barrier(None);
        assert_eq!(node.outcome(again), Some(outcome));
    }
}

#[test]
fn a_counter_that_ran_ahead_breaks_the_barrier_for_good() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(7));
    let wait = node.barrier(None);
    assert!(matches!(node.outcome(wait), Some(Err(OpError::Protocol { peer: 0, .. }))));
    let next = node.barrier(None);
    assert!(matches!(node.outcome(next), Some(Err(OpError::Protocol { peer: 0, .. }))));
}

#[test]
fn a_counter_at_its_end_breaks_the_barrier_of_one() {
    let mut node = Node::new(0, 1, 4, Script::new(0));
    node.transport().atomics.push_back(Submit::Done(u64::MAX));
    let wait = node.barrier(None);
    assert!(matches!(node.outcome(wait), Some(Err(OpError::Protocol { peer: 0, .. }))));
}

#[test]
fn without_atomics_a_barrier_says_why_it_cannot_be() {
    let mut node = node();
    let wait = node.barrier(None);
    assert_eq!(node.outcome(wait), Some(Err(OpError::Unsupported { peer: 0, why: PathReason::NotOffered })));
}

#[test]
fn a_pending_copy_is_announced_when_it_is_complete_and_not_before() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Pending);
    let id = node.transfer_then_am(&[piece(0, 0, 8)], &long(2), None);
    drain(&mut node);
    assert_eq!(announcements(&mut node), 0);
    node.transport().inbox.push_back((Event::Completed { op: id, result: Ok(0) }, Inbox::default()));
    drain(&mut node);
    assert_eq!((announcements(&mut node), node.outcome(id)), (1, Some(Ok(0))));
}

#[test]
fn a_pending_copy_that_fails_is_not_announced() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Pending);
    let id = node.transfer_then_am(&[piece(0, 0, 8)], &long(2), None);
    let fault = OpError::Fault { peer: 2, mem: MemId::Space, addr: 0, len: 8 };
    node.transport().inbox.push_back((Event::Completed { op: id, result: Err(fault) }, Inbox::default()));
    drain(&mut node);
    assert_eq!((announcements(&mut node), node.outcome(id)), (0, Some(Err(fault))));
}

/// The rest of a copy goes by message when its peer's memory cannot be reached any more, and what was to come
/// after the copy comes after that.
#[test]
fn a_pending_copy_that_cannot_go_on_goes_by_message() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Pending);
    let put = node.transfer_then_am(&[piece(0, 0, 20_000)], &long(2), None);
    let event = Event::Unreachable { op: put, why: PathReason::PtraceDenied };
    node.transport().inbox.push_back((event, Inbox::default()));
    drain(&mut node);
    assert_eq!(node.counters().why(PathReason::PtraceDenied), 1);
    let sent = node.transport().sent.clone();
    assert_eq!(sent.len(), 1, "what is left is one chunk");
    assert_eq!((sent[0].header.kind, sent[0].header.place), (Kind::PutChunk, UNREACHED_AT));
    assert!(node.outcome(put).is_none() && announcements(&mut node) == 0);
    let answer = Header {
        token: sent[0].header.token,
        args: [sent[0].header.args[1], 0, 0, 0],
        ..Header::new(Kind::PutDone)
    };
    node.transport().arrive(2, Lane::Reply, answer.encode(), &[]);
    drain(&mut node);
    assert_eq!((node.outcome(put), announcements(&mut node)), (Some(Ok(0)), 1));
}

#[test]
fn whatever_ends_a_pending_copy_early_takes_it_from_the_transport() {
    let end: [fn(&mut Node<Script>, OpId); 3] =
        [|node, _| assert_eq!(node.expire(10), None), |node, id| node.cancel(id), |node, _| node.lose(2)];
    for end in end {
        let mut node = node();
        node.transport().copies.push_back(Submit::Pending);
        let id = node.transfer(2, Direction::Get, &[piece(0, 0, 8)], Some(10));
        end(&mut node, id);
        assert_eq!(node.transport().abandoned.ops, [id]);
        node.transport().inbox.push_back((Event::Completed { op: id, result: Ok(0) }, Inbox::default()));
        drain(&mut node);
        assert!(matches!(node.outcome(id), Some(Err(OpError::Timeout { .. } | OpError::PeerLost { .. }))));
    }
}

#[test]
fn an_announcement_that_waits_for_room_is_not_overtaken() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Done(0));
    node.transport().room = 0;
    let id = node.transfer_then_am(&[piece(0, 0, 8)], &long(2), None);
    assert_eq!(node.outcome(id), Some(Ok(0)));
    node.transport().room = 1;
    let short = AmSend { body: AmBody::Short, ..long(2) };
    assert_eq!(node.send_am(&short), Err(SendError::Busy));
    drain(&mut node);
    assert_eq!(announcements(&mut node), 1);
    node.transport().room = 1;
    assert_eq!(node.send_am(&short), Ok(()));
}

#[test]
fn nothing_waits_for_room_towards_a_lost_peer() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Done(0));
    node.transport().room = 0;
    node.transfer_then_am(&[piece(0, 0, 8)], &long(2), None);
    node.lose(2);
    node.transport().room = 9;
    drain(&mut node);
    assert!(node.transport().sent.is_empty());
}

#[test]
fn a_window_of_chunks_is_under_way_and_no_more() {
    let mut node = node();
    node.transfer(2, Direction::Put, &[piece(0, 0, 64 * 20)], None);
    drain(&mut node);
    assert_eq!(node.transport().sent.len(), 8);
}

#[test]
fn a_full_lane_is_tried_once_a_poll_however_many_transfers_wait_for_it() {
    const EACH: usize = 50;
    let mut node = node();
    node.transport().room = 0;
    for peer in [0, 2].repeat(EACH) {
        node.transfer(peer, Direction::Put, &[piece(0, 0, 8)], None);
    }
    node.transport().refused = 0;
    for polls in 1..=3 {
        drain(&mut node);
        assert_eq!(node.transport().refused, 2 * polls, "once for each peer");
    }
    node.transport().room = usize::MAX;
    drain(&mut node);
    let to = |node: &mut Node<Script>, peer| node.transport().sent.iter().filter(|s| s.peer == peer).count();
    assert_eq!((to(&mut node, 0), to(&mut node, 2)), (EACH, EACH), "each chunk is sent, and sent once");
}

#[test]
fn an_operation_that_failed_reads_its_buffer_no_more() {
    let mut node = node();
    let id = node.transfer(2, Direction::Put, &[piece(0, 0, 64 * 20)], None);
    let refuse = Header { args: [0, 1, 0, 0], token: 0, ..Header::new(Kind::PutDone) };
    let sent = node.transport().sent.clone();
    let answer = |sent: &crate::common::Sent, status| Header {
        token: sent.header.token,
        args: [sent.header.args[1], status, 0, 0],
        ..refuse
    };
    let reads = node.transport().reads.len();
    for (index, sent) in sent.iter().enumerate() {
        node.transport().arrive(2, Lane::Reply, answer(sent, u64::from(index == 0)).encode(), &[]);
        drain(&mut node);
    }
    assert_eq!(node.transport().reads.len(), reads);
    let fault = OpError::Fault { peer: 2, mem: MemId::Space, addr: 0, len: 64 };
    assert_eq!(node.outcome(id), Some(Err(fault)));
}

#[test]
fn only_the_very_token_that_was_sent_is_believed() {
    let mut node = node();
    let id = node.transfer(2, Direction::Put, &[piece(0, 0, 8)], None);
    let token = node.transport().sent[0].header.token;
    // The table's keys have odd generations: this token's key would be the same.
    let other = Header { token: token ^ 1 << 32, ..Header::new(Kind::PutDone) };
    node.transport().arrive(2, Lane::Reply, other.encode(), &[]);
    drain(&mut node);
    assert_eq!(node.outcome(id), None);
    node.transport().arrive(2, Lane::Reply, Header { token, ..other }.encode(), &[]);
    drain(&mut node);
    assert_eq!(node.outcome(id), Some(Ok(0)));
}

#[test]
fn a_barrier_ends_when_its_counter_is_gone_and_cannot_answer() {
    for pending_before in [false, true] {
        let mut node = node();
        node.transport().atomics.extend([Submit::Done(0), Submit::Pending, Submit::Pending]);
        let wait = node.barrier(None);
        if pending_before {
            node.lose(2);
            assert_eq!(node.outcome(wait), None, "the counter has still to say whether the lost had arrived");
        }
        node.lose(0);
        assert!(matches!(node.outcome(wait), Some(Err(OpError::PeerLost { .. }))));
    }
}

#[test]
fn a_barrier_that_all_had_reached_opens_when_its_last_rank_is_lost() {
    for (count, opens) in [(2, false), (3, true)] {
        let mut node = node();
        node.transport().atomics.extend([Submit::Done(0), Submit::Done(count)]);
        let wait = node.barrier(None);
        node.lose(2);
        let lost = OpError::PeerLost { peer: 2 };
        assert_eq!(node.outcome(wait), Some(if opens { Ok(0) } else { Err(lost) }));
    }
}

#[test]
fn a_barrier_ends_for_all_when_one_of_them_gives_another_up() {
    for (count, given_up, outcome) in [(2, 2, Err(OpError::PeerLost { peer: 2 })), (3, 2, Ok(0))] {
        let mut node = node();
        node.transport().atomics.extend([Submit::Done(0), Submit::Done(count)]);
        let wait = node.barrier(None);
        let header = Header { args: [given_up, 0, 0, 0], ..Header::new(Kind::BarrierBroken) };
        node.transport().arrive(0, Lane::Request, header.encode(), &[]);
        drain(&mut node);
        assert_eq!(node.outcome(wait), Some(outcome), "{count} had arrived, 0 gave {given_up} up");
        if let Err(lost) = outcome {
            let next = node.barrier(None);
            assert_eq!(node.outcome(next), Some(Err(lost)), "0 comes to no barrier any more");
        }
        assert!(!node.is_lost(2), "only the barrier is");
    }
}

#[test]
fn what_one_says_of_another_that_is_gone_is_for_the_transport_to_judge() {
    for (gone, doubted) in [(0, vec![]), (1, vec![2])] {
        let mut node = node();
        let header = Header { args: [2, gone, 0, 0], ..Header::new(Kind::BarrierBroken) };
        node.transport().arrive(0, Lane::Request, header.encode(), &[]);
        drain(&mut node);
        assert_eq!((node.transport().doubted.clone(), node.is_lost(2)), (doubted, false));
        node.tell_gone(2);
        let told =
            node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::BarrierBroken).count();
        assert_eq!((node.is_lost(2), told), (true, 0), "whoever told this one has told all");
    }
    let mut node = node();
    node.tell_gone(2);
    let told: Vec<_> = node.transport().sent.iter().map(|sent| (sent.peer, sent.header.args)).collect();
    assert_eq!(told, [(0, [2, 1, 0, 0])]);
}

#[test]
fn who_gives_a_peer_up_tells_the_others_and_need_not_be_able_to_at_once() {
    let mut node = node();
    node.transport().broken = Some(0);
    node.transport().inbox.push_back((Event::Garbled { peer: 2 }, Inbox::default()));
    drain(&mut node);
    let told = |node: &mut Node<Script>| {
        let sent = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::BarrierBroken);
        sent.map(|sent| (sent.peer, sent.header.args[0])).collect::<Vec<_>>()
    };
    assert_eq!((node.is_lost(2), told(&mut node)), (true, vec![]));
    node.transport().broken = None;
    for _ in 0..100 {
        drain(&mut node);
    }
    assert_eq!(told(&mut node), [(0, 2)]);
}

fn opened(node: &mut Node<Script>, peer: u32) -> usize {
    let opens = node.transport().sent.iter().filter(|s| s.header.kind == Kind::BarrierOpen);
    opens.filter(|s| s.peer == peer).count()
}

/// A node that opened a barrier of which it could not tell rank 2.
fn cannot_tell_rank_2() -> Node<Script> {
    let mut node = node();
    node.transport().broken = Some(2);
    node.transport().atomics.push_back(Submit::Done(2));
    let id = node.barrier(None);
    assert_eq!(node.outcome(id), Some(Ok(0)), "the last to arrive");
    for _ in 0..1000 {
        drain(&mut node);
    }
    assert_eq!((opened(&mut node, 0), opened(&mut node, 2)), (1, 0));
    node
}

#[test]
fn a_barriers_opening_that_failed_is_told_later() {
    let mut node = cannot_tell_rank_2();
    let short = AmSend { body: AmBody::Short, ..long(2) };
    assert!(matches!(node.send_am(&short), Err(SendError::Failed(_))), "others learn why, not to wait");
    node.transport().broken = None;
    for _ in 0..1000 {
        drain(&mut node);
    }
    assert_eq!((opened(&mut node, 0), opened(&mut node, 2)), (1, 1), "told, and told once");
}

#[test]
fn a_barriers_opening_that_waited_for_room_and_failed_is_told_later() {
    let mut node = node();
    node.transport().room = 0;
    node.transport().atomics.push_back(Submit::Done(2));
    node.barrier(None);
    (node.transport().room, node.transport().broken) = (9, Some(2));
    drain(&mut node);
    assert_eq!((opened(&mut node, 0), opened(&mut node, 2)), (1, 0));
    node.transport().broken = None;
    for _ in 0..10 {
        drain(&mut node);
    }
    assert_eq!((opened(&mut node, 0), opened(&mut node, 2)), (1, 1));
}

#[test]
fn a_lost_peer_is_not_told_of_barriers() {
    let mut node = cannot_tell_rank_2();
    node.lose(2);
    node.transport().broken = None;
    for _ in 0..1000 {
        drain(&mut node);
    }
    assert_eq!(opened(&mut node, 2), 0);
}

#[test]
fn a_transfer_whose_announcement_fails_has_failed() {
    let mut node = node();
    node.transport().copies.push_back(Submit::Done(0));
    node.transport().broken = Some(2);
    let id = node.transfer_then_am(&[piece(0, 0, 8)], &long(2), None);
    assert!(matches!(node.outcome(id), Some(Err(OpError::Protocol { peer: 2, .. }))));
}

#[test]
fn the_barrier_is_no_affair_of_peers_beyond_the_job() {
    let mut node = node();
    node.transport().atomics.push_back(Submit::Done(0));
    let barrier = node.barrier(None);
    let put = node.transfer(3, Direction::Put, &[piece(0, 0, 8)], None);
    // Neither what they say of it nor their loss moves anything.
    for kind in [Kind::BarrierOpen, Kind::BarrierBroken] {
        let header = Header { args: [1, 0, 0, 0], ..Header::new(kind) };
        node.transport().arrive(3, Lane::Request, header.encode(), &[]);
    }
    drain(&mut node);
    assert_eq!((node.counters().malformed, node.outcome(barrier)), (2, None));
    node.give_up_peer(3);
    assert_eq!(node.outcome(put), Some(Err(OpError::PeerLost { peer: 3 })));
    assert!(node.transport().sent.iter().all(|sent| sent.header.kind != Kind::BarrierBroken));
    assert_eq!(node.outcome(barrier), None);
    open(&mut node, 1);
    assert_eq!(node.outcome(barrier), Some(Ok(0)));
}

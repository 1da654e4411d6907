//! Small collectives: of a word of each member without an operation, and how they go on as others do.

use crate::common::Script;
use engine::collective::Collective;
use engine::node::{Kept, Memories, Polled, SmallPolled, Start, TeamId};
use engine::wire::Kind;
use engine::{Header, Inbox, Lane, Node, OpError, OpId, Submit};

fn poll(node: &mut Node<Script>) {
    let mut inbox = Inbox::default();
    while node.poll(&mut inbox) != Polled::Idle {}
}

/// A node of two that has been in a barrier with the other one, and the small collective that the next one
/// begins as.
fn exchanging() -> Node<Script> {
    let mut node = Node::new(0, 2, 1, Script::new(0));
    assert!(
        !node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]),
        "the other one knows nothing of this one"
    );
    let first = goes_on(&mut node, false);
    word(&mut node, 1, [0; 2]);
    assert_eq!(node.outcome(first), Some(Ok(0)));
    node.transport().sent.clear();
    assert!(node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    assert_eq!(node.poll_small_collective(), SmallPolled::Pending);
    node
}

fn goes_on(node: &mut Node<Script>, goes_on: bool) -> OpId {
    let mut kept = Kept::default();
    kept.hold(None, &[], 0);
    let start = Start { memories: Memories::Kept(kept), steps_told: false, deadline: None, goes_on };
    node.collective(TeamId::WORLD, &Collective::Barrier, Collective::Barrier.plan(2, 0).into(), start)
}

/// The other one's word for a barrier, or for something else.
fn word(node: &mut Node<Script>, number: u64, sign: [u64; 2]) {
    word_to_be_looked_for(node, number, sign);
    poll(node);
}

fn word_to_be_looked_for(node: &mut Node<Script>, number: u64, [what, bytes]: [u64; 2]) {
    let header = Header { args: [number << 16, what, bytes, 0], ..Header::new(Kind::TeamWord) };
    node.transport().arrive(1, Lane::Request, header.encode(), &[]);
}

/// Whether the last word has come, and the small collective is over.
fn ends(node: &mut Node<Script>) -> bool {
    matches!(node.poll_small_collective(), SmallPolled::Word { last: true, .. })
}

fn words_sent(node: &mut Node<Script>) -> Vec<u64> {
    let words = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::TeamWord);
    words.map(|sent| sent.header.args[0] >> 16).collect()
}

/// Small collectives are collectives like any other to the rest of the team: each sends its word once, and
/// they have numbers in a row.
#[test]
fn a_small_collective_ends_when_the_words_have_come() {
    let mut node = exchanging();
    for number in 2..20 {
        // Whoever is ahead has sent the next word already.
        word(&mut node, number, [0; 2]);
        word(&mut node, number + 1, [0; 2]);
        assert!(ends(&mut node));
        assert_eq!(node.next_small_round([0; 8]), SmallPolled::FallsBack, "there is no next round");
        assert!(node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]), "{number}");
    }
    assert!(ends(&mut node));
    assert_eq!(words_sent(&mut node), (2..=20).collect::<Vec<_>>());
    let next = goes_on(&mut node, false);
    word(&mut node, 21, [0; 2]);
    assert_eq!(node.outcome(next), Some(Ok(0)));
    assert_eq!(node.transport().sent.len(), 20, "nobody had to say how far they have come");
}

#[test]
fn a_small_collective_goes_on_as_any_collective() {
    for comes_before in [false, true] {
        let mut node = exchanging();
        if comes_before {
            word(&mut node, 2, [0; 2]);
        }
        let same = goes_on(&mut node, true);
        if !comes_before {
            assert_eq!(node.outcome(same), None);
            word(&mut node, 2, [0; 2]);
        }
        assert_eq!(node.outcome(same), Some(Ok(0)));
        assert_eq!(words_sent(&mut node), [2], "the word is sent once");
        let next = goes_on(&mut node, true);
        word(&mut node, 3, [0; 2]);
        assert_eq!(node.outcome(next), Some(Ok(0)));
        assert_eq!(words_sent(&mut node), [2, 3]);
    }
}

#[test]
fn a_small_collective_with_who_calls_something_else_fails_as_any_collective() {
    let mut node = exchanging();
    word(&mut node, 2, [8, 8]);
    assert_eq!(node.poll_small_collective(), SmallPolled::FallsBack);
    let same = goes_on(&mut node, true);
    assert!(matches!(node.outcome(same), Some(Err(OpError::Team { peer: 1, .. }))));
    assert!(node.difference(TeamId::WORLD).is_some());
    assert!(has_told(&mut node));
}

#[test]
fn a_small_collective_needs_a_lost_member_until_its_word_has_come() {
    let mut node = exchanging();
    node.lose(1);
    assert_eq!(node.poll_small_collective(), SmallPolled::FallsBack);
    let same = goes_on(&mut node, true);
    assert_eq!(node.outcome(same), Some(Err(OpError::PeerLost { peer: 1 })));

    let mut node = exchanging();
    word(&mut node, 2, [0; 2]);
    node.lose(1);
    assert!(ends(&mut node));
    assert!(!node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]), "the team is over");
    let next = goes_on(&mut node, true);
    assert_eq!(node.outcome(next), Some(Err(OpError::PeerLost { peer: 1 })));
}

#[test]
fn a_small_collective_that_is_given_up_ends_the_team() {
    let mut node = exchanging();
    node.give_up_small_collective();
    assert!(has_told(&mut node));
    assert!(!node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    let next = goes_on(&mut node, false);
    assert!(matches!(node.outcome(next), Some(Err(OpError::Team { peer: 0, .. }))));
}

/// A word need not be polled for, if it is the next message of the one that it is from.
#[test]
fn a_small_collective_looks_for_its_word_by_itself() {
    let mut node = exchanging();
    word_to_be_looked_for(&mut node, 3, [0; 2]);
    assert_eq!(node.poll_small_collective(), SmallPolled::Pending, "the next one's is not its own");
    poll(&mut node);
    word_to_be_looked_for(&mut node, 2, [0; 2]);
    for number in 2..4 {
        assert!(ends(&mut node), "{number}");
        assert!(node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    }
    word_to_be_looked_for(&mut node, 4, [8, 8]);
    assert_eq!(node.poll_small_collective(), SmallPolled::Pending, "another call is for polls");
    poll(&mut node);
    assert_eq!(node.poll_small_collective(), SmallPolled::FallsBack);
}

/// Without room for its word nothing is begun, and the collective is as any other.
#[test]
fn a_small_collective_begins_with_room_for_its_word() {
    let mut node = exchanging();
    word(&mut node, 2, [0; 2]);
    assert!(ends(&mut node));
    node.transport().room = 0;
    assert!(!node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    let same = goes_on(&mut node, true);
    node.transport().room = usize::MAX;
    word(&mut node, 3, [0; 2]);
    assert_eq!(node.outcome(same), Some(Ok(0)));
    assert_eq!(words_sent(&mut node), [2, 3]);
}

/// Whether the other one has been told that the team is over.
fn has_told(node: &mut Node<Script>) -> bool {
    node.transport().sent.iter().any(|sent| sent.header.kind == Kind::TeamBroken)
}

/// Who has sent all its words may leave, though one of them is not waited for yet.
#[test]
fn a_small_collective_needs_no_member_whose_words_have_all_come() {
    let step = |node: &mut Node<Script>, from: u32, number: u64, tag: u64| {
        let header = Header { args: [number << 16 | tag, 0, 0, 0], ..Header::new(Kind::TeamWord) };
        node.transport().arrive(from, Lane::Request, header.encode(), &[]);
        poll(node);
    };
    let mut node = Node::new(0, 3, 1, Script::new(0));
    let mut kept = Kept::default();
    kept.hold(None, &[], 0);
    let start = Start { memories: Memories::Kept(kept), steps_told: false, deadline: None, goes_on: false };
    let first =
        node.collective(TeamId::WORLD, &Collective::Barrier, Collective::Barrier.plan(3, 0).into(), start);
    step(&mut node, 2, 1, 0);
    step(&mut node, 1, 1, 1);
    assert_eq!(node.outcome(first), Some(Ok(0)));
    assert!(node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    step(&mut node, 1, 2, 1);
    // It has had this one's word, and 2's.
    node.lose(1);
    assert_eq!(node.poll_small_collective(), SmallPolled::Pending);
    step(&mut node, 2, 2, 0);
    assert!(matches!(node.poll_small_collective(), SmallPolled::Word { last: false, .. }));
    assert!(matches!(node.next_small_round([0; 8]), SmallPolled::Word { last: true, .. }));
}

/// What was begun while a small collective was under way counts: nobody runs ahead of who has not come to
/// that.
#[test]
fn a_small_collective_knows_what_was_begun_beside_it() {
    let mut node = exchanging();
    let beside: Vec<_> = (3..8).map(|_| goes_on(&mut node, false)).collect();
    word(&mut node, 2, [0; 2]);
    assert!(ends(&mut node));
    assert!(
        !node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]),
        "the other one has not come to 3"
    );
    assert!(!node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]), "nor now");
    let sent = words_sent(&mut node);
    assert!(sent.iter().all(|number| *number <= 2 + 4), "{sent:?}");
    (3..8).for_each(|number| word(&mut node, number, [0; 2]));
    assert!(beside.iter().all(|id| node.outcome(*id) == Some(Ok(0))));
    assert!(node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]));
    let mut sent = words_sent(&mut node);
    sent.sort_unstable();
    assert_eq!(sent, (2..=8).collect::<Vec<_>>());
}

/// Two callers may poll for one barrier, and both pass it.
#[test]
fn a_barrier_is_open_to_all_who_poll_for_it() {
    [true, false].into_iter().for_each(polls_for_a_barrier);
}

fn polls_for_a_barrier(polls: bool) {
    let mut node = Node::new(0, 2, 1, Script::new(0));
    node.transport().atomics = [Submit::Done(0), Submit::Done(2)].into();
    let [one, other] = [(); 2].map(|()| node.arrive_polling().expect("nothing is lost"));
    assert_eq!((one, other), (1, 1));
    assert!(!node.is_open(one));
    let open = Header { args: [1, 0, 0, 0], ..Header::new(Kind::BarrierOpen) };
    node.transport().arrive(1, Lane::Request, open.encode(), &[]);
    if polls {
        poll(&mut node);
    }
    assert!(node.is_open(one) && node.is_open(other) && node.is_open(one));
    assert_eq!(node.arrive_polling(), Some(2));
    assert!(!node.is_open(2));
    node.lose(1);
    assert_eq!(node.arrive_polling(), None);
}

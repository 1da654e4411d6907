//! What members of a team tell each other besides steps: how far they have come, what they called, and why a
//! team is over.

use crate::common::{Script, poll, told};
use engine::collective::Collective;
use engine::node::{Memories, Start, TeamId};
use engine::wire::Kind;
use engine::{Header, Lane, MemId, Node, OpError, OpId, Place};

const SIZE: u32 = 3;
const ME: u32 = 1;
const MEMORY: usize = 1 << 14;

/// Who is asked whether it still is in a collective says so, or that it is not.
#[test]
fn who_is_doubted_answers() {
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    let id = start_what(&mut node, &Collective::AllToAll { block: 100 });
    let ask = |node: &mut Node<Script>, number: u64| {
        let doubted = Header { args: [number << 16, 0, 0, 0], ..Header::new(Kind::TeamDoubted) };
        node.transport().arrive(2, Lane::Request, doubted.encode(), &[]);
        poll(node);
        [Kind::TeamUpheld, Kind::TeamBroken].map(|kind| told(node, kind).len())
    };
    assert_eq!(ask(&mut node, 1), [1, 0]);
    assert_eq!(ask(&mut node, 2), [1, 0], "it has not come to that one");
    assert_eq!(node.counters().malformed, 1);
    node.cancel(id);
    let broken = told(&mut node, Kind::TeamBroken).len();
    assert_eq!(ask(&mut node, 1), [1, broken + 1]);
}

/// A root that needs nobody hears from another that called it with another root: before, soon after, and long
/// after.
#[test]
fn members_that_name_different_roots_are_told() {
    const BROADCAST: u64 = 1;
    let what = Collective::Broadcast { root: ME, len: 8 };
    let from_another_root = |node: &mut Node<Script>| {
        let args = [1 << 16, BROADCAST, 8, 0];
        ask(node, 0, Header { args, len: 8, ..Header::new(Kind::TeamWord) });
    };
    let begin = |node: &mut Node<Script>| {
        let id = start_what(node, &what);
        node.outcome(id)
    };
    let fails = Some(Err(OpError::Team { peer: 0, what: "and another member called different ones" }));
    for (before, after) in [(0, 0), (1, 0), (1, 3), (20, 0)] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        for _ in 0..before {
            assert_eq!(begin(&mut node), Some(Ok(0)));
            let come_to = Header { args: [100, 0, 0, 0], ..Header::new(Kind::TeamPace) };
            for peer in [0, 2] {
                ask(&mut node, peer, come_to);
            }
        }
        from_another_root(&mut node);
        for _ in 0..=after {
            assert_eq!(begin(&mut node), fails, "after {before}");
        }
        let said = node.difference(TeamId::WORLD).expect("they differ").to_string();
        let ours = match before {
            20 => "rank 1 had ended another one long before",
            _ => "rank 1 began a broadcast of 8 bytes with root 1",
        };
        assert_eq!(said, format!("rank 0 began a broadcast of 8 bytes with root 0, {ours}"));
        assert_eq!(node.counters().malformed, 0);
    }
    // The same again is no difference.
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    assert_eq!(begin(&mut node), Some(Ok(0)));
    let args = [1 << 16, BROADCAST | u64::from(ME) << 8, 8, 0];
    ask(&mut node, 0, Header { args, len: 8, ..Header::new(Kind::TeamWord) });
    assert_eq!((begin(&mut node), node.counters().malformed), (Some(Ok(0)), 1));
}

/// Who has waited for a while asks those that it waits for what they called, and again, less and less often;
/// and who called something else says so.
#[test]
fn members_that_wait_for_each_other_in_vain_are_told() {
    const MS: u64 = 1_000_000;
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    let gather = Collective::Gather { root: ME, block: 8 };
    let id = start_what(&mut node, &gather);
    node.transport().sent.clear();
    let asked = |node: &mut Node<Script>| {
        let sent = std::mem::take(&mut node.transport().sent);
        assert!(sent.iter().all(|sent| sent.header.kind == Kind::TeamPace));
        sent.iter().map(|sent| (sent.peer, sent.header.args, sent.header.place)).collect::<Vec<_>>()
    };
    let question = [1, 0, 2 | u64::from(ME) << 8, 8];
    assert_eq!((node.expire(5 * MS), asked(&mut node)), (Some(105 * MS), vec![]));
    assert_eq!((node.expire(104 * MS), asked(&mut node)), (Some(105 * MS), vec![]));
    let both = vec![(0, question, 1), (2, question, 1)];
    assert_eq!((node.expire(105 * MS), asked(&mut node)), (Some(305 * MS), both));
    let args = [1 << 16, question[2], 8, 7];
    ask(&mut node, 0, Header { args, len: 8, ..Header::new(Kind::TeamWord) });
    assert_eq!((node.expire(305 * MS), asked(&mut node)), (Some(705 * MS), vec![(2, question, 1)]));
    // It may have been asked itself meanwhile: by one that has called the same, and by one that has not.
    let asks = |what: u64| Header { args: [1, 0, what, 8], place: 1, ..Header::new(Kind::TeamPace) };
    ask(&mut node, 2, asks(question[2]));
    assert_eq!(node.outcome(id), None);
    ask(&mut node, 2, asks(2));
    let what = "and another member called different ones";
    assert_eq!(node.outcome(id), Some(Err(OpError::Team { peer: 2, what })));
    let said = node.difference(TeamId::WORLD).expect("they differ").to_string();
    assert!(said.starts_with("rank 2 began a gather of 8 bytes with root 0, rank 1 began"), "{said}");
    assert_eq!(told(&mut node, Kind::TeamBroken), [0, 2]);
}

/// A member's transport takes nothing any more, and whatever it asks waits as one answer for each thing that
/// it asked for.
#[test]
fn who_takes_no_answers_has_few_waiting() {
    for (kind, word, answer) in [
        (Kind::TeamDoubted, 1 << 16, Kind::TeamUpheld),
        (Kind::TeamPace, 2, Kind::TeamPace),
        (Kind::TeamWord, 1 << 16, Kind::TeamBroken),
    ] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        let id = start_what(&mut node, &Collective::AllToAll { block: 100 });
        if kind == Kind::TeamWord {
            node.cancel(id);
        }
        close(&mut node);
        let before = node.transport().sent.len();
        for _ in 0..20_000 {
            ask(&mut node, 2, Header { args: [word, word, 0, 0], ..Header::new(kind) });
        }
        assert_eq!(open(&mut node, before), [(2, answer)]);
        assert_eq!(node.counters().malformed, 0);
    }
}

/// Who asks about ever other teams that are not there, and takes no answer, is given up. Others are not.
#[test]
fn who_asks_on_and_on_is_given_up() {
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    close(&mut node);
    let word = Header { args: [1 << 16, 0, 0, 0], ..Header::new(Kind::TeamWord) };
    let mut asked = 0;
    while node.transport().disconnected.is_empty() {
        asked += 1;
        assert!(asked < 10_000, "as much as it likes");
        ask(&mut node, 2, Header { token: asked, ..word });
    }
    assert!(asked > 8_000, "after {asked}");
    assert_eq!(node.transport().disconnected, [2]);
    assert_eq!(node.counters().malformed, 1);
    ask(&mut node, 0, Header { token: 1, ..word });
    assert_eq!(open(&mut node, 0), [(0, Kind::BarrierBroken), (0, Kind::TeamBroken)]);
}

/// Who begins many collectives that another has not come to asks that one to say when it has, in one message;
/// and what it asks waits beside answers, but makes nobody lost.
#[test]
fn who_is_far_ahead_asks_once() {
    const STARTED: u64 = 20_000;
    let mut node = Node::new(ME, 2, 1, Script::new(MEMORY));
    close(&mut node);
    for _ in 0..STARTED {
        start_what(&mut node, &Collective::Barrier);
    }
    ask(&mut node, 0, Header { args: [1, 1, 0, 0], ..Header::new(Kind::TeamPace) });
    assert_eq!(node.transport().disconnected, []);
    let paces = |node: &mut Node<Script>| {
        let sent = node.transport().sent.iter();
        sent.filter(|sent| sent.header.kind == Kind::TeamPace)
            .map(|sent| sent.header.args)
            .collect::<Vec<_>>()
    };
    open(&mut node, 0);
    assert_eq!(paces(&mut node), [[STARTED, STARTED, 0, 0]]);
}

/// Starts a collective of all, in the memory's first bytes.
fn start_what(node: &mut Node<Script>, what: &Collective) -> OpId {
    let place = Place::new(MemId::Space, 0);
    let memories = Memories::At { input: place, output: place, scratch: place };
    let start = Start { memories, steps_told: false, deadline: None, goes_on: false };
    let (size, me) = node.team(TeamId::WORLD).expect("everyone has it");
    node.collective(TeamId::WORLD, what, what.plan(size, me).into(), start)
}

/// From now on nothing can be sent.
fn close(node: &mut Node<Script>) {
    (node.transport().room, node.transport().full) = (0, true);
}

/// From now on everything can. What was sent then, but for the first messages.
fn open(node: &mut Node<Script>, before: usize) -> Vec<(u32, Kind)> {
    (node.transport().room, node.transport().full) = (usize::MAX, false);
    poll(node);
    node.transport().sent[before..].iter().map(|sent| (sent.peer, sent.header.kind)).collect()
}

fn ask(node: &mut Node<Script>, peer: u32, header: Header) {
    node.transport().arrive(peer, Lane::Request, header.encode(), &[]);
    poll(node);
}

/// What has come of another collective before this one was begun is looked at when it is begun, whoever is
/// waited for.
#[test]
fn what_came_early_of_another_collective_ends_this_one() {
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    ask(&mut node, 2, Header { args: [1 << 16, 7, 8, 0], len: 8, ..Header::new(Kind::TeamWord) });
    let id = start_what(&mut node, &Collective::Broadcast { root: 0, len: 8 });
    let what = "and another member called different ones";
    assert_eq!(node.outcome(id), Some(Err(OpError::Team { peer: 2, what })));
}

/// Collectives that go on when later ones cannot end any more do so, also with a member that has begun the
/// later ones.
#[test]
fn who_has_come_past_the_end_of_a_team_is_sent_what_goes_on() {
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    let ids = [(); 10].map(|()| start_what(&mut node, &Collective::Broadcast { root: ME, len: 8 }));
    let come_to = |number: u64| Header { args: [number, 0, 0, 0], ..Header::new(Kind::TeamPace) };
    ask(&mut node, 0, come_to(10));
    let words =
        |node: &mut Node<Script>| told(node, Kind::TeamWord).iter().filter(|peer| **peer == 2).count();
    assert_eq!(words(&mut node), 4, "it may be ahead of it by so many");
    node.lose(0);
    ask(&mut node, 2, come_to(12));
    assert_eq!(words(&mut node), 10);
    assert_eq!(ids.map(|id| node.outcome(id)), [Some(Ok(0)); 10]);
    assert_eq!(told(&mut node, Kind::TeamBroken), [2, 2], "it may not have heard when it said that");
    let late = start_what(&mut node, &Collective::Barrier);
    assert_eq!(node.outcome(late), Some(Err(OpError::PeerLost { peer: 0 })));
}

/// A member that has ended the team by saying that it dropped it, and asks on and on, has one answer waiting.
#[test]
fn who_has_dropped_a_team_and_takes_no_answers_has_few_waiting() {
    const DROPPED: u64 = 3;
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    close(&mut node);
    for from in (1..1000).rev() {
        ask(&mut node, 2, Header { args: [DROPPED | from << 16, 2, 0, 0], ..Header::new(Kind::TeamBroken) });
        ask(&mut node, 2, Header { args: [1 << 40, 0, 0, 0], ..Header::new(Kind::TeamPace) });
    }
    assert_eq!(open(&mut node, 0), [(2, Kind::TeamBroken)]);
}

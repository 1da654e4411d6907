//! Members of a team that send anything: the node never panics, touches no memory but what its collectives
//! were given, keeps few messages of each, and ends everything when they are lost.

use std::collections::BTreeMap;

use crate::common::{Script, poll, told};
use engine::collective::{Collective, Elements, Function, Step};
use engine::node::{Kept, Memories, Polled, SmallPolled, Start, TeamId};
use engine::wire::Kind;
use engine::{Event, Header, Inbox, Lane, MemId, Node, OpError, OpId, Place, Submit};
use proptest::prelude::*;

const SIZE: u32 = 3;
const ME: u32 = 1;
const MEMORY: usize = 1 << 14;
/// Bytes that each collective has for each of its memories.
const REGION: u64 = 512;
const OPS: u64 = 8;

const KINDS: [Kind; 9] = [
    Kind::TeamWord,
    Kind::TeamData,
    Kind::TeamOffer,
    Kind::TeamTaken,
    Kind::TeamConfirmed,
    Kind::TeamDoubted,
    Kind::TeamUpheld,
    Kind::TeamPace,
    Kind::TeamBroken,
];

#[derive(Clone, Debug)]
enum Act {
    Start {
        what: usize,
        deadline: bool,
    },
    /// A barrier without an operation.
    BeginSmall,
    /// A look at what has come of it.
    PollSmall,
    Message {
        peer: u32,
        kind: usize,
        number: u64,
        tag: u16,
        sign: usize,
        last: u64,
        len: usize,
        noise: u64,
    },
    Local,
    Copies {
        how: usize,
    },
    Ended {
        pick: usize,
        well: bool,
    },
    Cancel {
        pick: usize,
    },
    Room {
        room: usize,
    },
    Expire,
}

fn collective(pick: usize) -> Collective {
    let elements = |count| Elements { count, bytes: 8, function: Function::Own, commutative: false };
    match pick % 6 {
        0 => Collective::Barrier,
        1 => Collective::Broadcast { root: 0, len: 8 },
        2 => Collective::AllGather { block: 40 },
        3 => Collective::AllToAll { block: 100 },
        4 => Collective::AllReduce { elements: elements(1) },
        _ => Collective::AllReduce { elements: elements(20) },
    }
}

/// What a member's messages say of a collective. Which member's does not matter, if it begins by sending.
fn signature(pick: usize) -> [u64; 2] {
    let said = (0..SIZE).find_map(|me| {
        let mut node = Node::new(me, SIZE, 1, Script::new(MEMORY));
        let id = start_as(&mut node, me, 0, pick, None);
        while node.local_step(id).is_some() {
            node.local_done(id);
        }
        let is_step = |kind| matches!(kind, Kind::TeamWord | Kind::TeamData | Kind::TeamOffer);
        let step = node.transport().sent.iter().find(|sent| is_step(sent.header.kind));
        step.map(|sent| [sent.header.args[1], sent.header.args[2]])
    });
    said.expect("somebody begins by sending")
}

/// The most bytes that a member gives or gets in one of them.
const LONGEST: usize = 100 * SIZE as usize;

fn start(node: &mut Node<Script>, at: u64, pick: usize, deadline: Option<u64>) -> OpId {
    start_as(node, ME, at, pick, deadline)
}

fn start_as(node: &mut Node<Script>, me: u32, at: u64, pick: usize, deadline: Option<u64>) -> OpId {
    go_on(node, me, at, pick, deadline, false)
}

/// Starts a collective, or goes on with the one that was begun by a small collective.
fn go_on(
    node: &mut Node<Script>,
    me: u32,
    at: u64,
    pick: usize,
    deadline: Option<u64>,
    goes_on: bool,
) -> OpId {
    let what = collective(pick);
    let place = |part: u64| Place::new(MemId::Space, (at * 3 + part) * REGION);
    let (input, output, scratch) = (place(0), place(1), place(2));
    let plan = what.plan(SIZE, me);
    assert!(plan.scratch <= REGION);
    // What a script's messages hold is enough for the smallest only.
    let longest = if pick == 4 { 8 } else { LONGEST };
    let mut kept = Kept::default();
    kept.hold(Some(&vec![1; longest]), &vec![0; longest], plan.scratch);
    let memories = match at % 2 == 1 && node.keeps(kept.len() as u64) {
        true => Memories::Kept(kept),
        false => Memories::At { input, output, scratch },
    };
    node.collective(
        TeamId::WORLD,
        &what,
        plan.into(),
        Start { memories, steps_told: false, deadline, goes_on },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let number = prop_oneof![8 => 0u64..12, 1 => any::<u64>().prop_map(|number| number >> 16)];
    let tag = prop_oneof![8 => 0u16..3, 4 => 64u16..67, 1 => any::<u16>()];
    let last = prop_oneof![3 => Just(100u64), 1 => 0u64..600, 1 => any::<u64>()];
    let len = prop_oneof![2 => Just(40usize), 1 => 0usize..64];
    let noise = prop_oneof![8 => Just(0u64), 1 => any::<u64>()];
    let message = (0..SIZE, 0..KINDS.len(), number, tag, 0usize..6, last, len, noise).prop_map(
        |(peer, kind, number, tag, sign, last, len, noise)| Act::Message {
            peer,
            kind,
            number,
            tag,
            sign,
            last,
            len,
            noise,
        },
    );
    prop_oneof![
        3 => (0usize..6, any::<bool>()).prop_map(|(what, deadline)| Act::Start { what, deadline }),
        3 => Just(Act::BeginSmall),
        3 => Just(Act::PollSmall),
        20 => message,
        4 => Just(Act::Local),
        3 => (0usize..3).prop_map(|how| Act::Copies { how }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pick, well)| Act::Ended { pick, well }),
        1 => any::<usize>().prop_map(|pick| Act::Cancel { pick }),
        2 => prop_oneof![Just(usize::MAX), 0usize..3].prop_map(|room| Act::Room { room }),
        1 => Just(Act::Expire),
    ]
}

/// A copy ends: well, or as that member's memory is not accessible.
fn end(node: &mut Node<Script>, op: OpId, not_there: Option<u32>) {
    let fault = |peer| OpError::Fault { peer, mem: MemId::Space, addr: 0, len: 1 };
    let result = not_there.map_or(Ok(0), |peer| Err(fault(peer)));
    node.transport().inbox.push_back((Event::Completed { op, result }, Inbox::default()));
}

struct Run {
    node: Node<Script>,
    ops: Vec<OpId>,
    polls_small: bool,
    signatures: [[u64; 2]; 6],
}

impl Run {
    fn act(&mut self, act: &Act) {
        match *act {
            Act::Start { what, deadline } if (self.ops.len() as u64) < OPS => {
                let at = self.ops.len() as u64;
                let id = start(&mut self.node, at, what, deadline.then_some(1));
                self.ops.push(id);
            }
            Act::Start { .. } => {}
            Act::BeginSmall if !self.polls_small => {
                self.polls_small =
                    self.node.begin_small_collective(TeamId::WORLD, &Collective::Barrier, [0; 8]);
            }
            Act::BeginSmall => {}
            Act::PollSmall if self.polls_small => {
                let mut polled = self.node.poll_small_collective();
                while let SmallPolled::Word { last: false, .. } = polled {
                    polled = self.node.next_small_round([0; 8]);
                }
                self.polls_small = polled == SmallPolled::Pending;
                if polled == SmallPolled::FallsBack {
                    self.goes_on();
                }
            }
            Act::PollSmall => {}
            Act::Message { peer, kind, number, tag, sign, last, len, noise } => {
                let kind = KINDS[kind];
                let [what, bytes] = self.signatures[sign];
                let mut args = [number << 16 | u64::from(tag), what ^ noise, bytes, last];
                if matches!(kind, Kind::TeamPace | Kind::TeamBroken) {
                    args = [if noise == 0 { number } else { noise }, last, number, 0];
                }
                let header = Header {
                    len: len as u32,
                    args,
                    small: (noise % 4) as u16,
                    place: last,
                    ..Header::new(kind)
                };
                let payload = vec![0xab; if kind == Kind::TeamData { len } else { 0 }];
                self.node.transport().arrive(peer, Lane::Request, header.encode(), &payload);
            }
            Act::Local => self.local(),
            Act::Copies { how } => {
                let fault = OpError::Fault { peer: ME, mem: MemId::Space, addr: 0, len: 1 };
                let submit = [Submit::Failed(fault), Submit::Pending, Submit::Done(0)][how];
                self.node.transport().copies = [submit; 4].into();
            }
            Act::Ended { pick, well } => {
                let script = self.node.transport();
                let at = pick % script.started.len().max(1);
                if let (Some(op), Some(peer)) =
                    (script.started.get(at).copied(), script.peers.get(at).copied())
                {
                    end(&mut self.node, op, (!well).then_some(peer));
                }
            }
            Act::Cancel { pick } => {
                if let Some(op) = self.ops.get(pick % OPS as usize) {
                    self.node.cancel(*op);
                }
            }
            Act::Room { room } => self.node.transport().room = room,
            Act::Expire => drop(self.node.expire(1)),
        }
        let mut inbox = Inbox::default();
        while self.node.poll(&mut inbox) != Polled::Idle {}
    }

    /// What was begun by a small collective goes on as any other.
    fn goes_on(&mut self) {
        self.polls_small = false;
        // Nothing of a barrier lies in memory.
        self.ops.push(go_on(&mut self.node, ME, 0, 0, None, true));
    }

    fn local(&mut self) {
        for op in self.ops.clone() {
            while self.node.local_step(op).is_some() {
                self.node.local_done(op);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 500 }, ..ProptestConfig::default() })]

    #[test]
    fn whatever_members_send_the_node_lives_and_ends(acts in proptest::collection::vec(act(), 1..120)) {
        let node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        let mut run = Run { node, ops: Vec::new(), polls_small: false, signatures: std::array::from_fn(signature) };
        acts.iter().for_each(|act| run.act(act));
        let given = run.ops.len() as u64 * 3 * REGION;
        for (at, len) in &run.node.transport().writes {
            prop_assert!(at + len <= given, "{len} bytes at {at}");
        }
        run.node.transport().room = usize::MAX;
        if run.polls_small {
            run.goes_on();
        }
        (0..SIZE).filter(|peer| *peer != ME).for_each(|peer| run.node.lose(peer));
        for op in &run.ops {
            prop_assert!(run.node.outcome(*op).is_some(), "a collective without an end");
        }
        prop_assert_eq!((run.node.in_flight(), run.node.collectives_in_flight()), (0, 0));
    }
}

/// Whoever sends for collectives that are far off, or too much for those that are near, breaks the team, and
/// no more is kept.
#[test]
fn a_member_that_runs_ahead_breaks_the_team() {
    let messages = |numbers: &[u64]| {
        let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        for (tag, number) in numbers.iter().enumerate() {
            let args = [number << 16 | tag as u64, 0, 0, 0];
            let header = Header { args, ..Header::new(Kind::TeamWord) };
            node.transport().arrive(0, Lane::Request, header.encode(), &[]);
        }
        // A member that has said nothing so far is told when it does.
        let pace = Header { args: [1, 0, 0, 0], ..Header::new(Kind::TeamPace) };
        node.transport().arrive(2, Lane::Request, pace.encode(), &[]);
        let mut inbox = Inbox::default();
        while node.poll(&mut inbox) != Polled::Idle {}
        let told = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::TeamBroken).count();
        told as u32
    };
    assert_eq!(messages(&[1, 2, 3, 4]), 0, "so far it may be ahead");
    assert_eq!(messages(&[5]), SIZE - 1);
    assert_eq!(messages(&[1; 17]), SIZE - 1);
}

/// What a member has sent for later steps of collectives under way does not count as running ahead.
#[test]
fn whoever_has_done_its_steps_early_runs_not_ahead() {
    let [what, bytes] = signature(4);
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    let step = |node: &mut Node<Script>, number: u64| {
        let args = [number << 16, what, bytes, 1];
        let header = Header { args, len: 8, ..Header::new(Kind::TeamWord) };
        node.transport().arrive(2, Lane::Request, header.encode(), &[]);
        let mut inbox = Inbox::default();
        while node.poll(&mut inbox) != Polled::Idle {}
    };
    // All of them wait for the first member, before they come to what the last one has sent.
    for number in 1..=40 {
        let id = start(&mut node, 1, 4, None);
        while node.local_step(id).is_some() {
            node.local_done(id);
        }
        step(&mut node, number);
        step(&mut node, number + 1);
    }
    assert_eq!(node.collectives_in_flight(), 40);
    assert!(node.transport().sent.iter().all(|sent| sent.header.kind != Kind::TeamBroken));
}

/// A member may have done its part in a new team, and dropped it, before another has learned who its members
/// are.
#[test]
fn what_came_of_a_team_before_it_was_made_still_counts() {
    let what = Collective::Broadcast { root: 0, len: 8 };
    let begin = |node: &mut Node<Script>, team: TeamId, me: u32, value: [u8; 8]| {
        let mut kept = Kept::default();
        kept.hold(None, &value, 0);
        let memories = Memories::Kept(kept);
        let plan = what.plan(2, me).into();
        node.collective(
            team,
            &what,
            plan,
            Start { memories, steps_told: false, deadline: None, goes_on: false },
        )
    };
    let [mut first, mut second] = [0, 1].map(|me| Node::new(me, 2, 1, Script::new(MEMORY)));
    let [team, same] =
        [&mut first, &mut second].map(|node| node.begin_split(TeamId::WORLD, 7).expect("there is none yet"));
    assert_eq!(team, same);
    first.end_split(TeamId::WORLD, team, &[0, 1]);
    let given = begin(&mut first, team, 0, *b"the root");
    assert_eq!(first.outcome(given), Some(Ok(0)));
    first.drop_team(team);
    let sent = std::mem::take(&mut first.transport().sent);
    assert!(sent.iter().any(|sent| sent.header.kind == Kind::TeamBroken), "it tells that it has dropped it");
    for sent in sent {
        second.transport().arrive(0, Lane::Request, sent.header.encode(), &[]);
    }
    let mut inbox = Inbox::default();
    while second.poll(&mut inbox) != Polled::Idle {}
    second.end_split(TeamId::WORLD, team, &[0, 1]);
    let gotten = begin(&mut second, team, 1, [0; 8]);
    assert_eq!(second.kept(gotten).map(|kept| kept.output().to_vec()), Some(b"the root".to_vec()));
    assert_eq!(second.outcome(gotten), Some(Ok(0)));
    let next = begin(&mut second, team, 1, [0; 8]);
    assert!(matches!(second.outcome(next), Some(Err(OpError::Team { peer: 0, .. }))));
}

/// An all-to-all of three, in which both others offer what is then gotten: those transfers.
fn offered(node: &mut Node<Script>) -> (OpId, [OpId; 2]) {
    const PICK: usize = 3;
    let [what, bytes] = signature(PICK);
    node.transport().copies = [Submit::Pending; 2].into();
    let id = start(node, 0, PICK, None);
    node.transport().room = usize::MAX;
    for peer in [0, 2] {
        let awaited = |tag: u64| [1 << 16 | tag, what, bytes, 100];
        for tag in 0..SIZE.into() {
            let args = awaited(tag);
            let header = Header { args, len: 100, place: 5000, ..Header::new(Kind::TeamOffer) };
            node.transport().arrive(peer, Lane::Request, header.encode(), &[]);
        }
    }
    poll(node);
    let started = node.transport().started.clone();
    (id, started.try_into().expect("two transfers"))
}

/// A member whose bytes could not be reached is not told that they were.
#[test]
fn what_could_not_be_reached_is_not_said_to_be_taken() {
    for faults_first in [true, false] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        let (id, [first, second]) = offered(&mut node);
        let [bad, good] = node.transport().peers[..] else { panic!("two copies") };
        let ends = [(first, Some(bad)), (second, None)];
        for at in if faults_first { [0, 1] } else { [1, 0] } {
            end(&mut node, ends[at].0, ends[at].1);
        }
        poll(&mut node);
        assert_eq!(
            (told(&mut node, Kind::TeamDoubted), told(&mut node, Kind::TeamTaken)),
            (vec![bad], vec![good])
        );
        assert_eq!(node.outcome(id), None);
        let upheld = Header { args: [1 << 16, 0, 0, 0], ..Header::new(Kind::TeamUpheld) };
        node.transport().arrive(bad, Lane::Request, upheld.encode(), &[]);
        poll(&mut node);
        assert!(matches!(node.outcome(id), Some(Err(OpError::Fault { peer, .. })) if peer == bad));
    }
}

/// Whoever offers again what could not be reached does not make it come; and who is doubted and lost ends the
/// collective.
#[test]
fn what_could_not_be_reached_does_not_come_later() {
    const PICK: usize = 3;
    let [what, bytes] = signature(PICK);
    let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
    let fault = OpError::Fault { peer: ME, mem: MemId::Space, addr: 0, len: 1 };
    node.transport().copies = [Submit::Failed(fault), Submit::Done(0)].into();
    let id = start(&mut node, 0, PICK, None);
    for _ in 0..2 {
        for tag in 0..SIZE.into() {
            let args = [1 << 16 | tag, what, bytes, 100];
            let header = Header { args, len: 100, place: 5000, ..Header::new(Kind::TeamOffer) };
            node.transport().arrive(0, Lane::Request, header.encode(), &[]);
        }
        poll(&mut node);
    }
    assert_eq!((told(&mut node, Kind::TeamDoubted), told(&mut node, Kind::TeamTaken)), (vec![0], vec![]));
    node.lose(0);
    assert_eq!(node.outcome(id), Some(Err(OpError::PeerLost { peer: 0 })));
}

/// Whoever sees that what was offered has not been given up needs no word of that, and asks for none;
/// otherwise it waits for it.
#[test]
fn what_was_not_given_up_is_seen_or_asked_for() {
    let said = |node: &mut Node<Script>, kind: Kind, more: u64| {
        for (peer, tag) in [0, 2].into_iter().flat_map(|peer| (0..3).map(move |tag| (peer, tag))) {
            let header = Header { args: [1 << 16 | tag, more, 0, 0], ..Header::new(kind) };
            node.transport().arrive(peer, Lane::Request, header.encode(), &[]);
        }
        poll(node);
    };
    for (seen, asked) in [(None, true), (Some(100), false), (Some(101), true)] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(MEMORY));
        let (id, gets) = offered(&mut node);
        node.transport().given_up = seen.map_or(BTreeMap::new(), |seen| [(0, seen), (2, seen)].into());
        gets.into_iter().for_each(|get| end(&mut node, get, None));
        poll(&mut node);
        let taken = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::TeamTaken);
        assert_eq!(taken.map(|sent| sent.header.args[1]).collect::<Vec<_>>(), [u64::from(!asked); 2]);
        while node.local_step(id).is_some() {
            node.local_done(id);
        }
        said(&mut node, Kind::TeamTaken, 1);
        assert_eq!(node.outcome(id).is_some(), !asked, "{seen:?}");
        if asked {
            said(&mut node, Kind::TeamConfirmed, 0);
            assert_eq!(node.outcome(id), Some(Ok(0)));
        }
    }
}

/// What was combined of bytes that may have been given up meanwhile goes to nobody before their giver has
/// said that they were not. The next part is combined in that time.
#[test]
fn results_are_sent_once_what_they_are_made_of_is_confirmed() {
    const LENGTHS: [u64; 2] = [512 << 10, 9000];
    const ALL: u64 = 3 * (LENGTHS[0] + LENGTHS[1]);
    let what = Collective::AllReduce {
        elements: Elements { count: ALL, bytes: 1, function: Function::Own, commutative: true },
    };
    for (seen, asked) in [(None, true), (Some(5), false), (Some(6), true)] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(4 * ALL as usize));
        node.transport().given_up = seen.map_or(BTreeMap::new(), |seen| [(0, seen), (2, seen)].into());
        let place = |at| Place::new(MemId::Space, at);
        let memories = Memories::At { input: place(0), output: place(ALL), scratch: place(2 * ALL) };
        let start = Start { memories, steps_told: false, deadline: None, goes_on: false };
        let id = node.collective(TeamId::WORLD, &what, what.plan(SIZE, ME).into(), start);
        let signature: [u64; 2] =
            node.transport().sent[0].header.args[1..3].try_into().expect("what all must agree on");
        let say = |node: &mut Node<Script>, peer, header: Header| {
            node.transport().arrive(peer, Lane::Request, header.encode(), &[]);
            poll(node);
        };
        for (peer, segment) in [0, 2].into_iter().flat_map(|peer| [(peer, 0), (peer, 1)]) {
            let args = [(1 << 16) | (2 * segment), signature[0], signature[1], LENGTHS[segment as usize]];
            say(&mut node, peer, Header { args, len: 5, place: 5000, ..Header::new(Kind::TeamOffer) });
        }
        let results = |node: &mut Node<Script>, tag: u16| {
            let sent = node.transport().sent.iter();
            sent.filter(|sent| sent.header.kind == Kind::TeamOffer && sent.header.args[0] as u16 == tag)
                .count()
        };
        for segment in [0, 1] {
            let step = node.local_step(id);
            assert!(matches!(step, Some(Step::Fold { tag, .. }) if tag == 2 * segment), "{step:?}");
            node.local_done(id);
        }
        let sent = |node: &mut Node<Script>| [results(node, 1), results(node, 3)];
        assert_eq!(sent(&mut node), if asked { [0, 0] } else { [2, 2] }, "{seen:?}");
        // The second one's are confirmed first.
        for (peer, tag, then) in
            [(0, 2, [0, 0]), (2, 0, [0, 0]), (2, 2, [0, 2]), (0, 0, [2, 2])].into_iter().filter(|_| asked)
        {
            let header = Header { args: [1 << 16 | tag, 0, 0, 0], ..Header::new(Kind::TeamConfirmed) };
            say(&mut node, peer, header);
            assert_eq!(sent(&mut node), then, "{peer} has confirmed {tag}");
        }
        assert_eq!(node.outcome(id), None, "the others' results are still to come");
    }
}

/// What a node offers says how often it has given up offers, and giving it up counts before its caller hears
/// of it.
#[test]
fn what_is_given_up_is_counted_first() {
    let what = Collective::AllGather { block: 20_000 };
    for ends in ["cancelled", "lost", "well", "with the node"] {
        let mut node = Node::new(ME, SIZE, 1, Script::new(200_000));
        node.transport().given_up = [(ME, 7)].into();
        let place = |at| Place::new(MemId::Space, at);
        let memories = Memories::At { input: place(0), output: place(20_000), scratch: place(80_000) };
        let start = Start { memories, steps_told: false, deadline: None, goes_on: false };
        let id = node.collective(TeamId::WORLD, &what, what.plan(SIZE, ME).into(), start);
        let offers = node.transport().sent.iter().filter(|sent| sent.header.kind == Kind::TeamOffer);
        assert_eq!(offers.map(|sent| sent.header.len).collect::<Vec<_>>(), [7; 2]);
        match ends {
            "cancelled" => node.cancel(id),
            "lost" => node.lose(0),
            "with the node" => node.give_up_offers(),
            _ => {
                for peer in [0, 2] {
                    let taken = Header { args: [1 << 16, 1, 0, 0], ..Header::new(Kind::TeamTaken) };
                    node.transport().arrive(peer, Lane::Request, taken.encode(), &[]);
                }
                poll(&mut node);
                assert_eq!(told(&mut node, Kind::TeamConfirmed), [], "nobody asks");
                node.cancel(id);
            }
        }
        assert_eq!(node.transport().gave_up, u32::from(ends != "well"), "{ends}");
    }
}

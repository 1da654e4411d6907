use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;

use super::buffers::{Kept, Memories};
use super::calls::Start;
use super::roster::Roster;
use super::state::Teams;
use crate::collective::{Collective, Elements, Function, Step, TeamId};
use crate::node::core::Core;
use crate::node::lanes::{self, Lanes};
use crate::node::lent::Lent;
use crate::node::mail::Mail;
use crate::node::operations::Operations;
use crate::op_id::OpKey;
use crate::wire::{Message, Pace, TeamMessage};
use crate::{Lane, OpError, Outcome, Rank};

const MEMBERS: usize = 3;

/// One member, with what its teams are lent.
struct Member {
    core: Core<Lanes>,
    mail: Mail,
    ops: Operations,
    teams: Teams,
    /// What was started, in turn, and what has become of it.
    started: Vec<(usize, OpKey)>,
    done: Vec<(usize, Outcome, u64)>,
}

/// The collectives that members go through, all alike: each has a word of every member.
fn what(pick: usize) -> Collective {
    let elements = Elements { count: 1, bytes: 8, function: Function::Own, commutative: false };
    match pick % 3 {
        0 => Collective::Barrier,
        1 => Collective::Broadcast { root: (pick % MEMBERS) as u32, len: 8 },
        _ => Collective::AllReduce { elements },
    }
}

/// What comes of it at each member, who gives its rank and one more.
fn result(pick: usize) -> u64 {
    match what(pick) {
        Collective::Broadcast { root, .. } => u64::from(root) + 1,
        Collective::AllReduce { .. } => (1..=MEMBERS as u64).sum(),
        _ => 0,
    }
}

impl Member {
    fn new(rank: usize) -> Member {
        let core = lanes::core_of(rank as Rank, MEMBERS as u32);
        let (mail, ops) = (Mail::new(0), Operations::default());
        let teams = Teams::new(MEMBERS as u32);
        Member { core, mail, ops, teams, started: Vec::new(), done: Vec::new() }
    }

    /// Has the teams do something, and then the steps that are its own.
    fn with<R>(&mut self, what: impl FnOnce(&mut Teams, &mut Lent<'_, Lanes>) -> R) -> R {
        let Member { core, mail, ops, teams, .. } = self;
        let value = what(teams, &mut Lent { core, mail, ops });
        self.do_own_steps();
        value
    }

    fn do_own_steps(&mut self) {
        let Member { core, mail, ops, teams, started, done } = self;
        for (_, key) in started.iter() {
            while let Some(step) = teams.local_step(*key).filter(|_| ops.is_under_way(*key)) {
                let Step::Combine { into, from } = step else { unreachable!("all memory is kept: {step:?}") };
                let kept = teams.kept(*key).expect("it is kept");
                let word =
                    |kept: &Kept, span| u64::from_le_bytes(kept.part(span).try_into().expect("a word"));
                let sum = word(kept, into) + word(kept, from);
                kept.part_mut(into).copy_from_slice(&sum.to_le_bytes());
                teams.local_done(&mut Lent { core, mail, ops }, *key, false);
            }
        }
        started.retain(|(pick, key)| {
            let Some((outcome, _)) = ops.take(*key) else { return true };
            let got =
                teams.kept(*key).map_or(0, |kept| kept.output().try_into().map_or(0, u64::from_le_bytes));
            teams.forget_run(*key);
            done.push((*pick, outcome, got));
            false
        });
    }

    fn start(&mut self, pick: usize) {
        let (collective, me) = (what(pick), self.core.rank);
        let plan = Arc::new(collective.plan(MEMBERS as u32, me));
        let given = (u64::from(me) + 1).to_le_bytes();
        let mut kept = Kept::default();
        match collective {
            Collective::Barrier => kept.hold(None, &[], plan.scratch),
            Collective::Broadcast { .. } => kept.hold(None, &given, plan.scratch),
            _ => kept.hold(Some(&given), &[0; 8], plan.scratch),
        }
        let memories = Memories::Kept(kept);
        let start = Start { memories, steps_told: false, deadline: None, goes_on: false };
        let Member { core, mail, ops, teams, .. } = self;
        let lent = &mut Lent { core, mail, ops };
        let key = teams.start(lent, TeamId::WORLD, (&collective, plan), start);
        self.started.push((pick, key));
        self.do_own_steps();
    }

    /// Tries again what found no room.
    fn poll(&mut self) {
        self.mail.drain_outbox(&mut self.core, &mut Vec::new());
        self.with(|teams, lent| teams.retry(lent));
    }
}

/// What has been sent and not come.
type OnTheWay = BTreeMap<(usize, usize), VecDeque<Message>>;

/// Takes what a member has sent.
fn collect(members: &mut [Member], way: &mut OnTheWay) {
    for (from, member) in members.iter_mut().enumerate() {
        for (to, _, message) in member.core.transport.take_sent() {
            way.entry((from, to as usize)).or_default().push_back(message);
        }
    }
}

/// Delivers the oldest message on one way. Returns whether there was one.
fn deliver(members: &mut [Member], way: &mut OnTheWay, from: usize, to: usize) -> bool {
    let Some(message) = way.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
    let Message::Team(id, said) = message else { unreachable!("teams send nothing else: {message:?}") };
    members[to].with(|teams, lent| teams.on_message(lent, (from as Rank, None), (id, &said), &[]));
    true
}

proptest! {
    /// Whatever comes first and wherever lanes are full: members end the same collectives in the same order,
    /// with what these are to give.
    #[test]
    fn members_end_what_they_start(acts in proptest::collection::vec(
        (0..5_u8, 0..MEMBERS, 0..MEMBERS, 0..3_usize), 0..150,
    )) {
        let (mut members, mut way): (Vec<Member>, _) = ((0..MEMBERS).map(Member::new).collect(), BTreeMap::new());
        let mut come = [0_usize; MEMBERS];
        for (act, at, other, room) in acts {
            match act {
                // Nobody is more than a few ahead of what it has ended: programs wait.
                0 if members[at].started.len() < 6 => {
                    members[at].start(come[at]);
                    come[at] += 1;
                }
                1 | 2 => _ = deliver(&mut members, &mut way, other, at),
                3 if at != other => {
                    _ = members[at].core.transport.room.insert((other as Rank, Lane::Request), room);
                }
                _ => members[at].poll(),
            }
            collect(&mut members, &mut way);
        }
        let most = come.into_iter().max().unwrap_or(0);
        for member in &mut members {
            member.core.transport.room.clear();
        }
        let mut quiet = 0;
        while quiet < 3 {
            for at in 0..MEMBERS {
                if come[at] < most {
                    members[at].start(come[at]);
                    come[at] += 1;
                }
                members[at].poll();
            }
            collect(&mut members, &mut way);
            let pairs = (0..MEMBERS).flat_map(|from| (0..MEMBERS).map(move |to| (from, to)));
            let any = pairs.fold(false, |any, (from, to)| deliver(&mut members, &mut way, from, to) | any);
            collect(&mut members, &mut way);
            quiet = if any || come.iter().any(|come| *come < most) { 0 } else { quiet + 1 };
        }
        for member in members {
            let expected: Vec<_> = (0..most).map(|pick| (pick, Ok(0), result(pick))).collect();
            let mut done = member.done;
            done.sort_unstable_by_key(|(pick, ..)| *pick);
            prop_assert_eq!(done, expected);
            prop_assert_eq!((member.core.counters.malformed, member.teams.in_flight()), (0, 0));
        }
    }
}

#[test]
fn a_lost_member_ends_what_needs_it_and_what_comes_after() {
    let mut first = Member::new(0);
    first.start(0);
    first.core.lose(1);
    first.with(|teams, lent| teams.break_teams_of(lent, 1));
    first.start(0);
    let lost = Err(OpError::PeerLost { peer: 1 });
    assert_eq!(first.done, [(0, lost, 0), (0, lost, 0)]);
    assert_eq!((first.teams.in_flight(), first.teams.next_wanted()), (0, None));
}

#[test]
fn news_that_wait_for_one_member_are_said_at_once() {
    let (mut core, mut mail, mut ops) = (lanes::core(), Mail::new(0), Operations::default());
    core.transport.room.insert((1, Lane::Request), 0);
    let roster = Roster::new(4);
    let lent = &mut Lent { core: &mut core, mail: &mut mail, ops: &mut ops };
    for come_to in [3, 7, 5] {
        let pace = TeamMessage::Pace(Pace { come_to, wants: come_to, waits_in: None });
        roster.tell(lent, 1, TeamId::WORLD, pace).expect("it waits");
    }
    let largest =
        Message::Team(TeamId::WORLD, TeamMessage::Pace(Pace { come_to: 7, wants: 7, waits_in: None }));
    assert_eq!(lent.mail.unsent_to(1).collect::<Vec<_>>(), [&largest]);
}

//! Teams: how they are made, how far members get ahead, and how teams end.

use engine::collective::{Collective, Elements, Function, NumberType, Reduction, split_entry, split_members};
use engine::node::{Memories, Start, TeamId};
use engine::{HandlerKey, OpError, Rank};

use super::collectives::{Started, all, composed, elements, inputs, result, start};
use crate::bench::{Bench, Make, pattern};
use crate::cluster::Cluster;

/// Splits a team at some of its members. Returns the teams that they are in then.
fn split<C: Cluster>(
    bench: &mut Bench<C>,
    team: TeamId,
    ranks: &[Rank],
    choice: impl Fn(Rank) -> (Option<u32>, i64),
) -> Vec<Option<TeamId>> {
    let started: Vec<(Option<(u32, TeamId)>, Started)> = ranks
        .iter()
        .map(|rank| {
            let (color, key) = choice(*rank);
            let new = color
                .map(|color| (color, bench.node(*rank).begin_split(team, color).expect("a team of its own")));
            (new, start(bench, *rank, team, &Collective::Split, &split_entry(color, key), None))
        })
        .collect();
    started
        .into_iter()
        .map(|(new, started)| {
            let entries = result(bench, started);
            let (color, new) = new?;
            bench.node(started.rank).end_split(team, new, &split_members(&entries, color));
            Some(new)
        })
        .collect()
}

pub(crate) fn teams_split_and_nest<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 7);
    let ranks: Vec<Rank> = (0..7).collect();
    // Even and odd ranks, the former in reverse; the last has no team.
    let choice = |rank: Rank| {
        ((rank < 6).then_some(rank % 2), i64::from(rank) * if rank.is_multiple_of(2) { -1 } else { 0 })
    };
    let halves = split(&mut bench, TeamId::WORLD, &ranks, choice);
    assert_eq!(halves[6], None);
    let (even, odd) = (halves[0].expect("a color"), halves[1].expect("a color"));
    assert!(even != odd && halves[2] == Some(even) && halves[5] == Some(odd));
    assert_eq!(bench.node(0).team(even), Some((3, 2)));
    assert_eq!(bench.node(4).member_rank(even, 0), Some(4));
    // Two teams interleaved, and the whole job between.
    let given = inputs(3, 16);
    let gathers = Collective::AllGather { block: 16 };
    let started: Vec<Started> = [(4, 0), (2, 1), (0, 2)]
        .map(|(rank, at): (Rank, usize)| start(&mut bench, rank, even, &gathers, &given[at], None))
        .to_vec();
    let what = Collective::AllReduce { elements: elements(2) };
    let got = all(&mut bench, odd, &[1, 3, 5], &what, &given);
    assert!(got.iter().all(|got| *got == composed(&given)));
    all(&mut bench, TeamId::WORLD, &ranks, &Collective::Barrier, &vec![Vec::new(); 7]);
    for started in started {
        assert_eq!(result(&mut bench, started), given.concat());
    }
    // A team of a team, twice with the same colors.
    let first = split(&mut bench, even, &[4, 2, 0], |rank| (Some(u32::from(rank == 2)), 0));
    let second = split(&mut bench, even, &[4, 2, 0], |rank| (Some(u32::from(rank == 2)), 0));
    assert!(first[0] == first[2] && first[0] != first[1] && first[0] != second[0]);
    let inner = second[0].expect("a color");
    let what = Collective::Broadcast { root: 1, len: 30_000 };
    let bytes = pattern(3, 30_000);
    let got = all(&mut bench, inner, &[4, 0], &what, &[Vec::new(), bytes.clone()]);
    assert!(got.iter().all(|got| *got == bytes));
    bench.node(4).drop_team(inner);
    assert_eq!(bench.node(4).team(inner), None);
}

/// Members make a team of all ranks by its name, each when it comes to that.
pub(crate) fn named_teams_are_made_by_whoever_comes_first<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let [one, other] = ["one", "other"].map(|name| TeamId::named(HandlerKey::of(name, "")));
    let begin = |bench: &mut Bench<C>, rank, team| {
        assert!(bench.node(rank).make_named_team(team));
        start(bench, rank, team, &Collective::Barrier, &[], None)
    };
    // Each meets in another order: were it one team, they would meet each other's calls.
    let mut started = vec![begin(&mut bench, 0, one), begin(&mut bench, 0, other)];
    started.extend([begin(&mut bench, 1, other), begin(&mut bench, 2, other)]);
    bench.settle();
    started.extend([begin(&mut bench, 1, one), begin(&mut bench, 2, one)]);
    for started in started {
        result(&mut bench, started);
    }
    bench.node(1).drop_team(one);
    assert_eq!(bench.node(1).team(one), Some((3, 1)), "it is there as long as the node");
    bench.kill(2);
    let started = [begin(&mut bench, 0, one), begin(&mut bench, 1, one)];
    for Started { rank, id, .. } in started {
        assert_eq!(bench.outcome(rank, id), Err(OpError::PeerLost { peer: 2 }));
    }
    let late = TeamId::named(HandlerKey::of("late", ""));
    let Started { rank, id, .. } = begin(&mut bench, 0, late);
    assert_eq!(bench.outcome(rank, id), Err(OpError::PeerLost { peer: 2 }));
}

pub(crate) fn near_ranks_have_a_team_of_their_own<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 4);
    for rank in 0..4 {
        let near = if rank % 2 == 0 { vec![0, 2] } else { vec![1, 3] };
        bench.node(rank).make_near_team(Some(near));
    }
    let what = Collective::AllGather { block: 8 };
    let begin = |bench: &mut Bench<C>, rank: u32| {
        start(bench, rank, TeamId::NEAR, &what, &u64::from(rank).to_ne_bytes(), None)
    };
    // The ranks of one host wait for no rank of the other.
    let both = [begin(&mut bench, 2), begin(&mut bench, 0)];
    for started in both {
        let all: Vec<u8> = [0_u64, 2].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(result(&mut bench, started), all);
    }
    assert_eq!(
        (bench.node(3).team(TeamId::NEAR), bench.node(3).member_rank(TeamId::NEAR, 0)),
        (Some((2, 1)), Some(1))
    );
    bench.node(0).drop_team(TeamId::NEAR);
    assert_eq!(bench.node(0).team(TeamId::NEAR), Some((2, 0)), "it is there as long as the node");
    // A loss on the other host ends nothing here.
    bench.kill(3);
    let both = [begin(&mut bench, 0), begin(&mut bench, 2)];
    for started in both {
        result(&mut bench, started);
    }
    let Started { rank, id, .. } = begin(&mut bench, 1);
    assert_eq!(bench.outcome(rank, id), Err(OpError::PeerLost { peer: 3 }));
}

pub(crate) fn whoever_is_ahead_waits_for_the_others<C: Cluster>(make: Make<'_, C>) {
    for len in [8, 5000, 20_000] {
        let mut bench = Bench::new(make, 3);
        let rounds = 30;
        // The second half has another root, who has not talked to all others before.
        let what = |round: u64| Collective::Broadcast { root: if round < rounds / 2 { 0 } else { 1 }, len };
        let given = |round: u64| pattern(round, len as usize);
        let mut begun: Vec<Started> = Vec::new();
        for rank in [0, 1] {
            for round in 0..rounds {
                let root = u32::from(round >= rounds / 2);
                let input = if rank == root { given(round) } else { Vec::new() };
                begun.push(start(&mut bench, rank, TeamId::WORLD, &what(round), &input, None));
            }
            bench.settle();
        }
        // The last one comes to each when the one before is over.
        for round in 0..rounds {
            let last = start(&mut bench, 2, TeamId::WORLD, &what(round), &[], None);
            assert_eq!(result(&mut bench, last), given(round));
        }
        for (at, started) in (0..).zip(begun) {
            assert_eq!(result(&mut bench, started), given(at % rounds));
        }
    }
}

pub(crate) fn members_that_call_differently_are_told<C: Cluster>(make: Make<'_, C>) {
    let broadcast = |root, len| Collective::Broadcast { root, len };
    let built_in = |of: NumberType, by| Collective::AllReduce {
        elements: Elements { function: Function::BuiltIn(of.into(), by), ..elements(3) },
    };
    let own = |count, bytes| Collective::AllReduce { elements: Elements { count, bytes, ..elements(3) } };
    for (one, other) in [
        (broadcast(0, 8), broadcast(0, 16)),
        (broadcast(0, 8), broadcast(1, 8)),
        (broadcast(0, 60_000), broadcast(0, 50_000)),
        (Collective::AllGather { block: 16 }, Collective::AllToAll { block: 16 }),
        (built_in(NumberType::I64, Reduction::Sum), built_in(NumberType::F64, Reduction::Sum)),
        (built_in(NumberType::U64, Reduction::BitOr), built_in(NumberType::U64, Reduction::LogicalOr)),
        (built_in(NumberType::U64, Reduction::Sum), own(3, 8)),
        (own(3, 8), own(1, 24)),
        (own(5000, 8), own(2500, 16)),
    ] {
        let mut bench = Bench::new(make, 3);
        let input = vec![1; 60_000];
        let calls = [&one, &one, &other];
        let started: Vec<Started> = (0..3)
            .zip(calls)
            .map(|(rank, what)| start(&mut bench, rank, TeamId::WORLD, what, &input, None))
            .collect();
        let outcomes: Vec<_> =
            started.iter().map(|started| bench.outcome(started.rank, started.id)).collect();
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(OpError::Team { .. }))), "{outcomes:?}");
        // It is said what two of them called: the one that differs, and another.
        let told = (0..3).find_map(|rank| bench.node(rank).difference(TeamId::WORLD)).expect("they differ");
        assert!(told.ranks.contains(&2) && told.ranks[0] != told.ranks[1], "{told}");
        let text = told.to_string();
        assert!(text.contains(one.name()) && text.contains(other.name()), "{text}");
        let combined = |what: &Collective| match what {
            Collective::AllReduce { elements: Elements { function, bytes, .. } } => match function {
                Function::BuiltIn(of, by) => format!("by {by} of {of}"),
                Function::Own => format!("on elements of {bytes} bytes"),
            },
            _ => String::new(),
        };
        assert!(text.contains(&combined(&one)) && text.contains(&combined(&other)), "{text}");
        // Those who were through before it showed have what they wanted; nobody goes on.
        bench.settle();
        for rank in 0..3 {
            let later = start(&mut bench, rank, TeamId::WORLD, &Collective::Barrier, &[], None);
            let outcome = bench.outcome(rank, later.id);
            assert!(matches!(outcome, Err(OpError::Team { .. })), "rank {rank}: {outcome:?}");
            assert_eq!(
                bench.node(rank).difference(TeamId::WORLD).map(|all| all.ranks.contains(&2)),
                Some(true)
            );
        }
    }
}

pub(crate) fn a_collective_that_is_given_up_ends_its_team<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let now = bench.cluster.now();
    let what = Collective::AllGather { block: 20_000 };
    let given = inputs(3, 20_000);
    let late = start(&mut bench, 0, TeamId::WORLD, &what, &given[0], Some(now));
    let other = start(&mut bench, 1, TeamId::WORLD, &what, &given[1], None);
    bench.settle();
    assert_eq!(bench.node(0).outcome(late.id), None, "one has not come");
    bench.node(0).expire(now);
    assert!(matches!(bench.outcome(0, late.id), Err(OpError::Timeout { .. })));
    assert!(matches!(bench.outcome(1, other.id), Err(OpError::Team { peer: 0, .. })));
    bench.settle();
    let last = start(&mut bench, 2, TeamId::WORLD, &what, &given[2], None);
    assert!(matches!(bench.outcome(2, last.id), Err(OpError::Team { peer: 0, .. })));
}

/// Who has given up a collective may have freed what it offered; one that is still in it must not.
pub(crate) fn what_one_that_gives_up_took_away_is_no_fault<C: Cluster>(make: Make<'_, C>) {
    // Gotten at once, and by and by.
    let broadcast = Collective::Broadcast { root: 0, len: 20_000 };
    let all_reduce = Collective::AllReduce { elements: elements(4000) };
    for (what, given, gives_up) in
        [(&broadcast, 0, true), (&broadcast, 0, false), (&all_reduce, 32_000, true)]
    {
        let mut bench = Bench::new(make, 2);
        let Some(freed) = bench.cluster.inaccessible(0) else {
            testbed::skip("freed memory of a member: no inaccessible memory here");
            return;
        };
        let waits = start(&mut bench, 1, TeamId::WORLD, what, &pattern(1, given), None);
        let now = bench.cluster.now();
        let memories = Memories::At { input: freed, output: freed, scratch: freed };
        let begun = Start { memories, steps_told: false, deadline: Some(now), goes_on: false };
        let offers = bench.node(0).collective(TeamId::WORLD, what, what.plan(2, 0).into(), begun);
        if gives_up {
            bench.node(0).expire(now);
        }
        let outcome = bench.outcome(1, waits.id);
        let offered = bench.outcome(0, offers);
        if gives_up {
            assert!(matches!(outcome, Err(OpError::Team { peer: 0, .. })), "{outcome:?}");
            assert!(matches!(offered, Err(OpError::Timeout { .. })), "{offered:?}");
        } else {
            assert!(matches!(outcome, Err(OpError::Fault { peer: 0, .. })), "{outcome:?}");
            assert!(matches!(offered, Err(OpError::Team { peer: 1, .. })), "{offered:?}");
        }
    }
}

pub(crate) fn a_lost_member_ends_its_teams_and_no_others<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 6);
    let ranks: Vec<Rank> = (0..6).collect();
    let halves = split(&mut bench, TeamId::WORLD, &ranks, |rank| (Some(rank % 2), 0));
    let (even, odd) = (halves[0].expect("a color"), halves[1].expect("a color"));
    let what = Collective::AllReduce { elements: elements(2000) };
    let given = inputs(6, 16_000);
    let waits: Vec<Started> =
        [0, 4].map(|rank| start(&mut bench, rank, even, &what, &given[rank as usize], None)).to_vec();
    bench.settle();
    bench.kill(2);
    for wait in waits {
        assert_eq!(bench.outcome(wait.rank, wait.id), Err(OpError::PeerLost { peer: 2 }));
    }
    let given = inputs(3, 16_000);
    let got = all(&mut bench, odd, &[1, 3, 5], &what, &given);
    assert!(got.iter().all(|got| *got == composed(&given)), "the others go on");
    for rank in [0, 1, 3, 4, 5] {
        let later = start(&mut bench, rank, TeamId::WORLD, &Collective::Barrier, &[], None);
        assert_eq!(bench.outcome(rank, later.id), Err(OpError::PeerLost { peer: 2 }));
    }
}

pub(crate) fn a_member_is_lost_amid_a_collective<C: Cluster>(make: Make<'_, C>) {
    for (rounds, lost) in (0..40).step_by(3).zip((0..4).cycle()) {
        let mut bench = Bench::new(make, 4);
        let what = Collective::AllReduce { elements: elements(4000) };
        let given = inputs(4, 32_000);
        let waits: Vec<Started> = (0..4)
            .map(|rank| start(&mut bench, rank, TeamId::WORLD, &what, &given[rank as usize], None))
            .collect();
        for _ in 0..rounds {
            bench.round();
        }
        bench.kill(lost);
        for wait in waits.into_iter().filter(|wait| wait.rank != lost) {
            match bench.outcome(wait.rank, wait.id) {
                Ok(_) => {}
                Err(error) => assert_eq!(error, OpError::PeerLost { peer: lost }),
            }
        }
    }
}

pub(crate) fn a_member_that_is_lost_after_its_part_harms_nobody<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let what = Collective::Gather { root: 0, block: 20_000 };
    let given = inputs(3, 20_000);
    let started: Vec<Started> = (0..3)
        .map(|rank| start(&mut bench, rank, TeamId::WORLD, &what, &given[rank as usize], None))
        .collect();
    // The root has all of one member's, and waits for the other, who does not wait for the first.
    bench.sleep(2);
    bench.settle();
    assert_eq!(bench.outcome(1, started[1].id), Ok(0));
    // Where that is seen in shared memory, nobody need say it.
    if engine::Transport::offers_given_up(bench.node(0).transport(), 1).is_none() {
        assert_eq!(
            bench.node(0).outcome(started[0].id),
            None,
            "one has not said that it still has what was taken"
        );
    }
    bench.kill(1);
    bench.settle();
    bench.wake(2);
    assert_eq!(result(&mut bench, started[0]), given.concat());
    assert_eq!(bench.outcome(2, started[2].id), Ok(0));
    for rank in [0, 2] {
        let later = start(&mut bench, rank, TeamId::WORLD, &Collective::Barrier, &[], None);
        assert_eq!(bench.outcome(rank, later.id), Err(OpError::PeerLost { peer: 1 }));
    }
}

pub(crate) fn whoever_waits_for_one_without_the_team_is_told<C: Cluster>(make: Make<'_, C>) {
    let what = Collective::Broadcast { root: 0, len: 8 };
    // Some have had to do with the root in that team before it drops it, and some have not.
    for before in [false, true] {
        let mut bench = Bench::new(make, 4);
        let ranks: Vec<Rank> = (0..4).collect();
        let team = split(&mut bench, TeamId::WORLD, &ranks, |_| (Some(0), 0))[0].expect("a color");
        if before {
            all(&mut bench, team, &ranks, &what, &inputs(4, 8));
        }
        bench.node(0).drop_team(team);
        // A member that waits for one that waits for the root is told, too.
        let waits = [3, 2, 1].map(|rank| start(&mut bench, rank, team, &what, &[], None));
        for waits in waits {
            let outcome = bench.outcome(waits.rank, waits.id);
            assert!(matches!(outcome, Err(OpError::Team { .. })), "rank {}: {outcome:?}", waits.rank);
        }
    }
}

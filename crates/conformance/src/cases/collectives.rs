//! Collectives against plain models.

use engine::collective::{Collective, Elements, Function};
use engine::node::{Kept, Memories, Start, TeamId};
use engine::{MemId, Nanos, OpId, Place, Rank};

use crate::bench::{Bench, Dice, Make, asks, compose, pattern};
use crate::cluster::Cluster;

/// A collective that a rank has started: its operation, and where its result will be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) rank: Rank,
    pub(crate) id: OpId,
    out: Place,
    len: usize,
}

/// Starts a collective at a rank. A broadcast's `input` is what lies at its result's place before.
pub(crate) fn start<C: Cluster>(
    bench: &mut Bench<C>,
    rank: Rank,
    team: TeamId,
    what: &Collective,
    input: &[u8],
    deadline: Option<Nanos>,
) -> Started {
    let (size, me) = bench.node(rank).team(team).expect("the rank has the team");
    let broadcasts = matches!(what, Collective::Broadcast { .. });
    let len = out_len(what, size, me) as usize;
    let plan = what.plan(size, me);
    let scratch = bench.memory(rank, MemId::Space, plan.scratch as usize + 8);
    let given = bench.memory(rank, MemId::Space, input.len() + 8);
    let out = bench.memory(rank, MemId::Space, len + 8);
    let input = if broadcasts { &input[..len.min(input.len())] } else { input };
    bench.cluster.poke(rank, if broadcasts { out } else { given }, input);
    let all = input.len() + len + plan.scratch as usize;
    // Little is kept by the engines of some ranks.
    let memories = if rank % 3 != 1 && bench.node(rank).keeps(all as u64) {
        let mut kept = Kept::default();
        match broadcasts {
            true => kept.hold(None, &[input, &vec![0; len - input.len()]].concat(), plan.scratch),
            false => kept.hold(Some(input), &vec![0; len], plan.scratch),
        }
        Memories::Kept(kept)
    } else {
        Memories::At { input: given, output: out, scratch }
    };
    let start = Start { memories, steps_told: !asks(rank), deadline, goes_on: false };
    let id = bench.node(rank).collective(team, what, plan.into(), start);
    bench.memories.insert((rank, id), [given, out, scratch]);
    bench.do_local_steps(rank, id);
    Started { rank, id, out, len }
}

fn out_len(what: &Collective, size: u32, me: u32) -> u64 {
    let size = u64::from(size);
    match what {
        Collective::Barrier => 0,
        Collective::Broadcast { len, .. } => *len,
        Collective::Gather { root, block } => {
            if *root == me {
                size * block
            } else {
                0
            }
        }
        Collective::Scatter { block, .. } => *block,
        Collective::AllGather { block } | Collective::AllToAll { block } => size * block,
        Collective::AllToAllV { receives, .. } => receives.iter().sum(),
        Collective::Reduce { elements, .. } | Collective::AllReduce { elements } => {
            elements.count * elements.bytes
        }
        Collective::Split => size * engine::collective::SPLIT_BYTES,
    }
}

/// Waits for its end and returns the result.
pub(crate) fn result<C: Cluster>(bench: &mut Bench<C>, started: Started) -> Vec<u8> {
    let Started { rank, id, out, len } = started;
    bench.until("a collective's end", |bench| bench.node(rank).is_locally_done(id));
    let kept = bench.node(rank).kept(id).map(|kept| kept.output().to_vec());
    assert_eq!(bench.outcome(rank, id), Ok(0));
    kept.unwrap_or_else(|| bench.bytes(rank, out, len))
}

/// The same collective of all members of a team, from first to last.
pub(crate) fn all<C: Cluster>(
    bench: &mut Bench<C>,
    team: TeamId,
    ranks: &[Rank],
    what: &Collective,
    inputs: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let started: Vec<Started> =
        ranks.iter().zip(inputs).map(|(rank, input)| start(bench, *rank, team, what, input, None)).collect();
    started.into_iter().map(|started| result(bench, started)).collect()
}

pub(crate) fn world<C: Cluster>(bench: &mut Bench<C>, what: &Collective, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let ranks: Vec<Rank> = (0..bench.size()).collect();
    all(bench, TeamId::WORLD, &ranks, what, inputs)
}

pub(crate) fn inputs(size: u32, len: u64) -> Vec<Vec<u8>> {
    (0..size).map(|me| pattern(u64::from(me) + 1, len as usize)).collect()
}

/// Checks clusters of 1 to 9 ranks with these lengths, in odd ones from the last on, so that the longest is
/// the first that is moved. What moves much does so by few ways: the last is for some sizes only.
fn at_all_sizes<C: Cluster>(
    make: Make<'_, C>,
    lengths: [u64; 4],
    sizes_of_last: [u32; 3],
    check: fn(&mut Bench<C>, u64),
) {
    for size in 1..=9 {
        let mut bench = Bench::new(make, size);
        let mut lengths = lengths[..if sizes_of_last.contains(&size) { 4 } else { 3 }].to_vec();
        if size % 2 == 1 {
            lengths.reverse();
        }
        lengths.into_iter().for_each(|len| check(&mut bench, len));
    }
}

pub(crate) fn rooted_collectives_do_what_they_say<C: Cluster>(make: Make<'_, C>) {
    at_all_sizes(make, [0, 1, 700, 20_001], [2, 5, 9], rooted);
}

fn rooted<C: Cluster>(bench: &mut Bench<C>, len: u64) {
    let size = bench.size();
    let given = inputs(size, len);
    for root in 0..size {
        let heard = world(bench, &Collective::Broadcast { root, len }, &pad(&given, root));
        assert!(heard.iter().all(|got| *got == given[root as usize]), "{size} {len} {root}");
        let is_rooted_here = match len {
            0 | 1 => true,
            2..=1000 => [0, size / 2, size - 1].contains(&root),
            _ => root == size - 1,
        };
        if !is_rooted_here {
            continue;
        }
        let got = world(bench, &Collective::Gather { root, block: len }, &given);
        assert_eq!(got[root as usize], given.concat());
        let mut blocks = vec![Vec::new(); size as usize];
        blocks[root as usize] = given.concat();
        assert_eq!(world(bench, &Collective::Scatter { root, block: len }, &blocks), given);
    }
}

/// Only the root gives something.
fn pad(given: &[Vec<u8>], root: u32) -> Vec<Vec<u8>> {
    (0..).zip(given).map(|(me, bytes)| if me == root { bytes.clone() } else { Vec::new() }).collect()
}

pub(crate) fn everyone_gets_from_all<C: Cluster>(make: Make<'_, C>) {
    at_all_sizes(make, [0, 1, 200, 9001], [2, 3, 5], from_all);
}

fn from_all<C: Cluster>(bench: &mut Bench<C>, block: u64) {
    let size = bench.size();
    let given = inputs(size, block);
    let got = world(bench, &Collective::AllGather { block }, &given);
    assert!(got.iter().all(|got| *got == given.concat()), "all-gather {size} {block}");
    let given = inputs(size, block * u64::from(size));
    let got = world(bench, &Collective::AllToAll { block }, &given);
    for (me, got) in got.iter().enumerate() {
        let range = me * block as usize..(me + 1) * block as usize;
        let expected: Vec<u8> = given.iter().flat_map(|from| from[range.clone()].to_vec()).collect();
        assert_eq!(*got, expected, "all-to-all {size} {block}");
    }
    let nothing = vec![Vec::new(); size as usize];
    world(bench, &Collective::Barrier, &nothing);
    all_to_all_v(bench, block);
}

fn all_to_all_v<C: Cluster>(bench: &mut Bench<C>, unit: u64) {
    let size = bench.size();
    let length = |from: u32, to: u32| u64::from((from * 7 + to * 3) % 4) * unit;
    let list = |of: &dyn Fn(u32) -> u64| -> Vec<u64> { (0..size).map(of).collect() };
    let part = |from: u32, to: u32| pattern(u64::from(from * 16 + to), length(from, to) as usize);
    let started: Vec<Started> = (0..size)
        .map(|me| {
            let what = Collective::AllToAllV {
                sends: list(&|to| length(me, to)),
                receives: list(&|from| length(from, me)),
            };
            let input: Vec<u8> = (0..size).flat_map(|to| part(me, to)).collect();
            start(bench, me, TeamId::WORLD, &what, &input, None)
        })
        .collect();
    for started in started {
        let expected: Vec<u8> = (0..size).flat_map(|from| part(from, started.rank)).collect();
        assert_eq!(result(bench, started), expected, "all-to-all-v {size} {unit}");
    }
}

/// So many functions to be composed.
pub(crate) fn elements(count: u64) -> Elements {
    Elements { count, bytes: 8, function: Function::Own, commutative: false }
}

pub(crate) fn composed(given: &[Vec<u8>]) -> Vec<u8> {
    given[1..].iter().fold(given[0].clone(), |left, right| compose(&left, right))
}

pub(crate) fn reductions_combine_in_the_order_of_members<C: Cluster>(make: Make<'_, C>) {
    at_all_sizes(make, [0, 1, 77, 3001], [2, 3, 6], reductions);
}

fn reductions<C: Cluster>(bench: &mut Bench<C>, count: u64) {
    let size = bench.size();
    let given = inputs(size, 8 * count);
    let got = world(bench, &Collective::AllReduce { elements: elements(count) }, &given);
    assert!(got.iter().all(|got| *got == composed(&given)), "all-reduce {size} {count}");
    for root in (0..size).filter(|root| count < 100 || *root == size / 2) {
        let what = Collective::Reduce { root, elements: elements(count) };
        assert_eq!(world(bench, &what, &given)[root as usize], composed(&given), "{size} {count}");
    }
}

/// From the second time on the rights to the others' memory are there, where they are kept: what is gotten by
/// them is awaited like all else.
pub(crate) fn the_same_memory_is_gathered_again<C: Cluster>(make: Make<'_, C>) {
    let (size, block) = (3, 12_000);
    let what = Collective::AllGather { block };
    let mut bench = Bench::new(make, size);
    let out_bytes = u64::from(size) * block;
    let places: Vec<[Place; 3]> = (0..size)
        .map(|me| {
            let lens = [block, out_bytes, what.plan(size, me).scratch + 8];
            lens.map(|len| bench.memory(me, MemId::Space, len as usize))
        })
        .collect();
    for round in 0..4 {
        let given: Vec<Vec<u8>> =
            (0..u64::from(size)).map(|me| pattern(10 * round + me + 1, block as usize)).collect();
        let ids: Vec<OpId> = (0..size)
            .map(|me| {
                let [input, output, scratch] = places[me as usize];
                bench.cluster.poke(me, input, &given[me as usize]);
                let memories = Memories::At { input, output, scratch };
                let start = Start { memories, steps_told: !asks(me), deadline: None, goes_on: false };
                let plan = what.plan(size, me).into();
                let id = bench.node(me).collective(TeamId::WORLD, &what, plan, start);
                bench.memories.insert((me, id), places[me as usize]);
                bench.do_local_steps(me, id);
                id
            })
            .collect();
        for (me, id) in (0..size).zip(ids) {
            let [_, out, _] = places[me as usize];
            let got = result(&mut bench, Started { rank: me, id, out, len: out_bytes as usize });
            assert_eq!(got, given.concat(), "rank {me}, round {round}");
        }
    }
}

pub(crate) fn many_collectives_under_way_at_once<C: Cluster>(make: Make<'_, C>) {
    for seed in 0..4 {
        let mut dice = Dice::new(seed);
        let size = 2 + dice.below(4) as u32;
        let mut bench = Bench::new(make, size);
        let rounds = 20;
        let lengths: Vec<u64> = (0..rounds).map(|_| [0, 8, 800, 12_000][dice.below(4) as usize]).collect();
        let what = |round: usize| match round % 3 {
            0 => Collective::AllReduce { elements: elements(lengths[round] / 8) },
            1 => Collective::Broadcast { root: round as u32 % size, len: lengths[round] },
            _ => Collective::AllGather { block: lengths[round] },
        };
        let given =
            |round: usize, me: u32| pattern((round * 16) as u64 + u64::from(me), lengths[round] as usize);
        // Each rank begins its own in order, but at its own pace.
        let mut begun: Vec<Vec<Started>> = vec![Vec::new(); size as usize];
        while begun.iter().any(|of| of.len() < rounds) {
            let rank = dice.below(u64::from(size)) as Rank;
            let round = begun[rank as usize].len();
            if round < rounds {
                let gives = round % 3 != 1 || rank == round as u32 % size;
                let input = if gives { given(round, rank) } else { Vec::new() };
                let started = start(&mut bench, rank, TeamId::WORLD, &what(round), &input, None);
                begun[rank as usize].push(started);
            }
            bench.round();
        }
        for round in 0..rounds {
            let all: Vec<Vec<u8>> = (0..size).map(|me| given(round, me)).collect();
            let expected = match round % 3 {
                0 => composed(&all),
                1 => all[round % size as usize].clone(),
                _ => all.concat(),
            };
            for of in &begun {
                assert_eq!(result(&mut bench, of[round]), expected, "seed {seed}, round {round}");
            }
        }
    }
}

//! Every plan against plain models, for all sizes and roots, over an exchange of messages in an order by
//! seed.

use std::collections::HashMap;

use super::*;

/// One member of a model: its memories, and where it is in its plan.
struct Member {
    plan: Plan,
    at: usize,
    memory: [Vec<u8>; 3],
    awaited: Vec<(u32, u16, Span)>,
    /// What has been awaited, and not released.
    known: HashMap<(u32, u16), Vec<u8>>,
}

type Wires = HashMap<(u32, u32, u16), Vec<u8>>;

fn index(memory: Memory) -> usize {
    memory as usize
}

impl Member {
    fn bytes(&self, span: Span) -> Vec<u8> {
        self.memory[index(span.memory)][span.at as usize..(span.at + span.len) as usize].to_vec()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        assert_eq!(span.len as usize, bytes.len(), "sender and receiver mean the same length");
        self.memory[index(span.memory)][span.at as usize..(span.at + span.len) as usize]
            .copy_from_slice(bytes);
    }

    /// Does one step. Returns whether it could.
    fn step(&mut self, me: u32, wires: &mut Wires) -> bool {
        let ready = self.awaited.iter().position(|(from, tag, _)| wires.contains_key(&(*from, me, *tag)));
        if let Some(ready) = ready {
            let (from, tag, into) = self.awaited.swap_remove(ready);
            let bytes = wires.remove(&(from, me, tag)).expect("just seen");
            self.write(into, &bytes);
            return true;
        }
        let Some(step) = self.plan.steps.get(self.at).copied() else { return false };
        match step {
            Step::Send { to, tag, from, .. } => {
                assert!(wires.insert((me, to, tag), self.bytes(from)).is_none(), "a tag twice: {tag}");
            }
            Step::Receive { from, tag, into } => self.awaited.push((from, tag, into)),
            // Whether it has come is seen when it is pulled.
            Step::Await { .. } => {}
            Step::Pull { from, tag, at, into } => {
                if let Some(bytes) = wires.remove(&(from, me, tag)) {
                    self.known.insert((from, tag), bytes);
                }
                let Some(bytes) = self.known.get(&(from, tag)) else { return false };
                let part = bytes[at as usize..(at + into.len) as usize].to_vec();
                self.write(into, &part);
            }
            Step::Release { from, tag } => {
                assert!(self.known.remove(&(from, tag)).is_some(), "it was pulled")
            }
            Step::Wait if !self.awaited.is_empty() => return false,
            Step::Wait => {}
            Step::Copy { from, into } => {
                let bytes = self.bytes(from);
                self.write(into, &bytes);
            }
            Step::Combine { into, from } => {
                let combined = compose(&self.bytes(into), &self.bytes(from));
                self.write(into, &combined);
            }
            Step::Fold { own, into, tag, instead_of } => {
                // Every second member cannot reach what the others give.
                if me.is_multiple_of(2) {
                    self.at += 1;
                    return true;
                }
                let others: Vec<u32> = self.plan.others().collect();
                for from in &others {
                    if let Some(bytes) = wires.remove(&(*from, me, tag)) {
                        self.known.insert((*from, tag), bytes);
                    }
                }
                let given: Option<Vec<&Vec<u8>>> =
                    others.iter().map(|from| self.known.get(&(*from, tag))).collect();
                let Some(given) = given else { return false };
                let combined = given.iter().fold(self.bytes(own), |left, right| compose(&left, right));
                self.write(into, &combined);
                self.at += instead_of as usize;
            }
        }
        self.at += 1;
        true
    }
}

/// Affine functions of numbers, composed: not commutative.
fn compose(left: &[u8], right: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let pairs = left.chunks_exact(8).zip(right.chunks_exact(8));
    pairs
        .flat_map(|(l, r)| {
            let (a, b, c, d) = (word(&l[..4]), word(&l[4..]), word(&r[..4]), word(&r[4..]));
            [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)].map(u32::to_le_bytes).concat()
        })
        .collect()
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_add(1).wrapping_mul(seed * 2 + 0x9e37_79b9) >> 5) as u8).collect()
}

/// Carries a collective out at all members, which take their steps in an order that depends on `seed`.
fn carry_out(what: impl Fn(u32) -> Collective, inputs: &[Vec<u8>], out: &[u64], seed: u64) -> Vec<Vec<u8>> {
    let size = inputs.len() as u32;
    let mut members: Vec<Member> = (0..size)
        .map(|me| {
            let plan = what(me).plan(size, me);
            // Nobody else can tell.
            let staged = (u64::from(me) + seed)
                .is_multiple_of(3)
                .then(|| what(me).staged_plan(size, me, |memory| memory != Memory::Scratch))
                .flatten();
            let plan = staged.unwrap_or(plan);
            let scratch = vec![0; plan.scratch as usize];
            let out = match what(me) {
                Collective::Broadcast { root, .. } if root == me => inputs[me as usize].clone(),
                _ => vec![0; out[me as usize] as usize],
            };
            Member {
                plan,
                at: 0,
                memory: [inputs[me as usize].clone(), out, scratch],
                awaited: Vec::new(),
                known: HashMap::new(),
            }
        })
        .collect();
    let (mut wires, mut dice, mut idle) = (Wires::new(), seed, 0);
    while idle < VAIN * size {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let me = ((dice >> 33) % u64::from(size)) as u32;
        idle = if members[me as usize].step(me, &mut wires) { 0 } else { idle + 1 };
    }
    let over = |member: &Member| {
        member.at == member.plan.steps.len() && member.awaited.is_empty() && member.known.is_empty()
    };
    assert!(
        members.iter().all(over) && wires.is_empty(),
        "everyone comes to the end, and nothing is left over"
    );
    members.into_iter().map(|member| member.memory[1].clone()).collect()
}

// Under Miri, which takes a thousand times as long, little of each; of what only plans, and touches no
// memory, nothing.
const SIZES: std::ops::RangeInclusive<u32> = 1..=if cfg!(miri) { 3 } else { 9 };
const LENGTHS: &[u64] = if cfg!(miri) { &[0, 9] } else { &[0, 1, 7, 64, 1000, 9000] };
const COUNTS: &[u64] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 5, 1001, 2000] };
/// Steps of each member that do nothing, after which nobody has anything to do.
const VAIN: u32 = if cfg!(miri) { 30 } else { 200 };

fn inputs(size: u32, len: u64) -> Vec<Vec<u8>> {
    (0..size).map(|me| pattern(u64::from(me) + 1, len)).collect()
}

#[test]
fn rooted_collectives_do_what_they_say() {
    for (size, len) in SIZES.flat_map(|size| LENGTHS.iter().map(move |len| (size, *len))) {
        for root in 0..size {
            let n = size as usize;
            let given = inputs(size, len);
            let heard = carry_out(|_| Collective::Broadcast { root, len }, &given, &vec![len; n], len);
            assert!(heard.iter().all(|got| *got == given[root as usize]), "broadcast {size} {root} {len}");
            let mut out = vec![0; n];
            out[root as usize] = len * u64::from(size);
            let got = carry_out(|_| Collective::Gather { root, block: len }, &given, &out, 1);
            assert_eq!(got[root as usize], given.concat());
            let mut blocks = vec![Vec::new(); n];
            blocks[root as usize] = given.concat();
            let got = carry_out(|_| Collective::Scatter { root, block: len }, &blocks, &vec![len; n], 2);
            assert_eq!(got, given);
        }
    }
}

#[test]
fn everyone_gets_from_all() {
    for (size, len) in SIZES.flat_map(|size| LENGTHS.iter().map(move |len| (size, *len))) {
        let (n, all) = (size as usize, len * u64::from(size));
        let given = inputs(size, len);
        let got = carry_out(|_| Collective::AllGather { block: len }, &given, &vec![all; n], 3);
        assert!(got.iter().all(|got| *got == given.concat()), "all-gather {size} {len}");
        let given = inputs(size, all);
        let got = carry_out(|_| Collective::AllToAll { block: len }, &given, &vec![all; n], 4);
        for (me, got) in got.iter().enumerate() {
            let range = me * len as usize..(me + 1) * len as usize;
            let expected: Vec<u8> = given.iter().flat_map(|from| from[range.clone()].to_vec()).collect();
            assert_eq!(*got, expected, "all-to-all {size} {len}");
        }
        carry_out(|_| Collective::Barrier, &vec![Vec::new(); n], &vec![0; n], len);
    }
}

#[test]
fn everyone_sends_everyone_as_much_as_it_says() {
    for size in SIZES {
        let some = if cfg!(miri) { 20 } else { 1000 };
        let length = |from: u32, to: u32| u64::from((from * 7 + to * 3) % 5 * some);
        let list = |of: &dyn Fn(u32) -> u64| -> Vec<u64> { (0..size).map(of).collect() };
        let given: Vec<Vec<u8>> = (0..size)
            .map(|me| (0..size).flat_map(|to| pattern(u64::from(me * 16 + to), length(me, to))).collect())
            .collect();
        let out: Vec<u64> = (0..size).map(|me| list(&|from| length(from, me)).iter().sum()).collect();
        let what = |me| Collective::AllToAllV {
            sends: list(&|to| length(me, to)),
            receives: list(&|from| length(from, me)),
        };
        let got = carry_out(what, &given, &out, 5);
        for me in 0..size {
            let expected: Vec<u8> =
                (0..size).flat_map(|from| pattern(u64::from(from * 16 + me), length(from, me))).collect();
            assert_eq!(got[me as usize], expected);
        }
    }
}

#[test]
fn reductions_combine_in_the_order_of_members() {
    for (size, count) in SIZES.flat_map(|size| COUNTS.iter().map(move |count| (size, *count))) {
        let (n, len) = (size as usize, count * 8);
        let elements = Elements { count, bytes: 8, function: Function::Own, commutative: false };
        let given = inputs(size, len);
        let expected = given[1..].iter().fold(given[0].clone(), |left, right| compose(&left, right));
        let got = carry_out(|_| Collective::AllReduce { elements }, &given, &vec![len; n], 6);
        assert!(got.iter().all(|got| *got == expected), "all-reduce {size} {count}");
        for root in 0..size {
            let got = carry_out(|_| Collective::Reduce { root, elements }, &given, &vec![len; n], 7);
            assert_eq!(got[root as usize], expected, "reduce {size} {count} {root}");
        }
    }
}

#[test]
fn commutative_reductions_lose_nothing() {
    for size in SIZES {
        for root in 0..size {
            // Composed shifts add up, in any order.
            let elements = Elements { count: 3, bytes: 8, function: Function::Own, commutative: true };
            let shift = |by: u32| [[1u32, by].map(u32::to_le_bytes).concat(); 1].concat();
            let given: Vec<Vec<u8>> = (0..size).map(|me| shift(1 << me).repeat(3)).collect();
            let got =
                carry_out(|_| Collective::Reduce { root, elements }, &given, &vec![24; size as usize], 8);
            assert_eq!(got[root as usize], shift((1 << size) - 1).repeat(3));
        }
    }
}

/// Segments follow each other, and members may be one apart.
#[test]
#[cfg(not(miri))]
fn much_is_reduced_in_segments() {
    for (size, commutative) in [(2u32, true), (3, false), (3, true)] {
        let count = u64::from(size) * 263_001;
        let elements = Elements { count, bytes: 8, function: Function::Own, commutative };
        let shift = |by: u32| [1u32, by].map(u32::to_le_bytes).concat();
        let given: Vec<Vec<u8>> =
            (0..size).map(|me| (0..count as u32).flat_map(|at| shift(at << me)).collect()).collect();
        let all = (1u32 << size) - 1;
        let expected: Vec<u8> = (0..count as u32).flat_map(|at| shift(at.wrapping_mul(all))).collect();
        let out = vec![count * 8; size as usize];
        let got = carry_out(|_| Collective::AllReduce { elements }, &given, &out, 9);
        assert!(got.iter().all(|got| *got == expected), "all-reduce of {size}");
        let got = carry_out(|_| Collective::Reduce { root: 1, elements }, &given, &out, 10);
        assert_eq!(got[1], expected, "reduce of {size}");
    }
}

/// What several get, or combine, is given out of scratch memory; what one gets is not, nor what rides in a
/// message.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn what_pays_is_staged() {
    let elements = |commutative| Elements { count: 1 << 17, bytes: 8, function: Function::Own, commutative };
    let (block, len) = (1 << 20, 1 << 20);
    for (what, hidden, copied) in [
        // Three of four parts, and the result.
        (Collective::AllReduce { elements: elements(true) }, [true; 2], 1 << 20),
        (Collective::AllReduce { elements: elements(true) }, [true, false], 768 << 10),
        (Collective::AllReduce { elements: elements(true) }, [false; 2], 0),
        // The result alone.
        (Collective::AllReduce { elements: elements(false) }, [true; 2], 256 << 10),
        (Collective::AllGather { block }, [true; 2], 1 << 20),
        (Collective::Broadcast { root: 0, len }, [true; 2], 1 << 20),
        (Collective::AllToAll { block }, [true; 2], 0),
        (Collective::Scatter { root: 0, block }, [true; 2], 0),
        (Collective::Broadcast { root: 0, len: EAGER_MAX }, [true; 2], 0),
    ] {
        let plan = what.plan_by(4, 0, 1);
        let copies = |plan: &Plan| {
            plan.steps
                .iter()
                .fold(0, |sum, step| if let Step::Copy { from, .. } = step { sum + from.len } else { sum })
        };
        let staged = what.staged_plan(4, 0, |memory| memory != Memory::Scratch && hidden[index(memory)]);
        let more = staged.as_ref().map_or(0, |staged| copies(staged) - copies(&plan));
        assert_eq!(more, copied, "{what:?} {hidden:?}");
        assert_eq!(staged.is_some(), copied > 0, "{what:?} {hidden:?}");
        assert_eq!(
            staged.map_or(0, |staged| staged.scratch - plan.scratch),
            copied,
            "none of it lies there twice"
        );
    }
}

/// What has changed since is copied anew, and few bytes are not, nor what lies there already.
#[test]
fn stages_hold_what_is_sent_then() {
    let much = Span::output(0, EAGER_MAX + 8);
    let (few, own) = (Span::output(0, 8), Span { memory: Memory::Scratch, ..much });
    let mut plan = Plan::new(Algorithm::Direct, 3, 0);
    plan.scratch = own.len;
    for _ in 0..2 {
        for from in [much, few, own] {
            plan.send(1, 0, from);
            plan.send(2, 0, from);
        }
        plan.wait();
    }
    let staged = plan.staged(|memory| memory == Memory::Out).expect("it pays");
    let place = Span { at: own.len, ..own };
    let once = |plan: &mut Plan| {
        plan.copy(much, place);
        for from in [place, few, own] {
            plan.send(1, 0, from);
            plan.send(2, 0, from);
        }
        plan.wait();
    };
    let mut expected = Plan { steps: Vec::new(), scratch: 2 * own.len, ..plan };
    once(&mut expected);
    once(&mut expected);
    assert_eq!(staged, expected);
    let out_of_scratch = expected.staged(|_| false).expect("much is given out of scratch memory");
    assert_eq!(out_of_scratch, expected);
    let mut little = Plan { steps: Vec::new(), ..plan };
    little.send(1, 0, own.part(0, EAGER_MAX));
    assert_eq!(little.staged(|_| false), None, "it rides in the message");
}

/// Places are used again once everybody has what lay there.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn stages_are_as_long_as_a_segment() {
    let elements = Elements { count: 100 << 20, bytes: 1, function: Function::Own, commutative: true };
    let what = Collective::AllReduce { elements };
    let staged = what.staged_plan(2, 1, |memory| memory != Memory::Scratch).expect("it pays");
    assert_eq!(staged.scratch - what.plan_by(2, 1, 1).scratch, 2 * (512 << 10));
}

/// Only who copies what it gives to be combined waits for the others at each segment.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn who_stages_results_alone_waits_as_seldom_as_who_stages_nothing() {
    let elements = |commutative| Elements { count: 3 << 20, bytes: 8, function: Function::Own, commutative };
    let waits = |plan: &Plan| plan.steps.iter().filter(|step| **step == Step::Wait).count();
    let (combined, ordered) = (elements(true), elements(false));
    for (what, hidden, segments) in [
        (Collective::AllReduce { elements: combined }, [true; 2], 16),
        (Collective::Reduce { root: 1, elements: combined }, [true; 2], 16),
        (Collective::Reduce { root: 1, elements: combined }, [false; 2], 4),
        (Collective::AllReduce { elements: combined }, [false, true], 4),
        (Collective::AllReduce { elements: ordered }, [true; 2], 4),
    ] {
        let staged = what.staged_plan(3, 0, |memory| memory != Memory::Scratch && hidden[index(memory)]);
        assert_eq!(staged.map(|staged| waits(&staged)), Some(segments), "{what:?} {hidden:?}");
        assert_eq!(waits(&what.plan(3, 0)), 4);
    }
}

/// What was sent stays as it is until the next wait, also where it was copied to.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn nothing_that_is_sent_is_written_before_a_wait() {
    let elements = |commutative| Elements { count: 900_001, bytes: 8, function: Function::Own, commutative };
    let (block, len) = (100_000, 3 << 20);
    for (size, me) in [2, 3, 4, 9].into_iter().flat_map(|size| (0..size).map(move |me| (size, me))) {
        for what in [
            Collective::Broadcast { root: 1, len },
            Collective::Gather { root: 1, block },
            Collective::Scatter { root: 1, block },
            Collective::AllGather { block },
            Collective::AllToAll { block },
            Collective::Reduce { root: 1, elements: elements(true) },
            Collective::Reduce { root: 1, elements: elements(false) },
            Collective::AllReduce { elements: elements(true) },
            Collective::AllReduce { elements: elements(false) },
        ] {
            let plan = what.plan(size, me);
            let staged = what.staged_plan(size, me, |memory| memory != Memory::Scratch);
            for plan in staged.into_iter().chain([plan]) {
                let mut sent: Vec<Span> = Vec::new();
                for step in &plan.steps {
                    match *step {
                        Step::Send { from, .. } => sent.push(from),
                        Step::Wait => sent.clear(),
                        Step::Copy { into, .. }
                        | Step::Combine { into, .. }
                        | Step::Fold { into, .. }
                        | Step::Receive { into, .. }
                        | Step::Pull { into, .. } => {
                            assert!(!sent.iter().any(|sent| sent.meets(into)), "{what:?} of {size} at {me}");
                        }
                        Step::Await { .. } | Step::Release { .. } => {}
                    }
                }
            }
        }
    }
}

/// Members whose memories differ wait for each other at other places, and say the same.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn staged_plans_have_the_same_messages() {
    let elements = Elements { count: 1_700_001, bytes: 8, function: Function::Own, commutative: true };
    for (size, me) in [2, 3, 4].into_iter().flat_map(|size| (0..size).map(move |me| (size, me))) {
        for what in [
            Collective::AllReduce { elements },
            Collective::Reduce { root: 1, elements },
            Collective::AllGather { block: 100_000 },
        ] {
            let messages = |plan: &Plan| {
                let mut messages: Vec<_> = plan
                    .steps
                    .iter()
                    .filter_map(|step| match *step {
                        Step::Send { to, tag, from, .. } => Some(("to", to, tag, from.len)),
                        Step::Receive { from, tag, into } => Some(("from", from, tag, into.len)),
                        Step::Await { from, tag, len } => Some(("from", from, tag, len)),
                        _ => None,
                    })
                    .collect();
                messages.sort_unstable();
                messages
            };
            let plan = what.plan(size, me);
            let Some(staged) = what.staged_plan(size, me, |memory| memory != Memory::Scratch) else {
                assert!(size == 2, "something pays in {what:?} of {size}");
                continue;
            };
            assert_eq!(messages(&staged), messages(&plan), "{what:?} of {size}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn few_messages_go_to_a_member_before_it_must_have_come() {
    for (size, commutative) in [(2, true), (3, false), (4, true)] {
        let elements = Elements { count: 5_000_000, bytes: 8, function: Function::Own, commutative };
        for what in [Collective::AllReduce { elements }, Collective::Reduce { root: 1, elements }] {
            let plan = what.plan(size, 0);
            for other in 1..size {
                let early = plan.steps.iter().take_while(|step| match step {
                    Step::Receive { from, .. } | Step::Await { from, .. } => *from != other,
                    _ => true,
                });
                let sent = early.filter(|step| matches!(step, Step::Send { to, .. } if *to == other));
                assert_eq!(sent.count(), 4, "{what:?} of {size}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn few_messages_go_between_two_members() {
    let elements = |commutative| Elements { count: 5000, bytes: 8, function: Function::Own, commutative };
    for size in [2, 3, 8, 9, 13, 16, 33] {
        for what in [
            Collective::Barrier,
            Collective::Broadcast { root: 1, len: 100 },
            Collective::Broadcast { root: 1, len: 100_000 },
            Collective::AllGather { block: 8 },
            Collective::AllToAll { block: 8 },
            Collective::AllReduce { elements: elements(false) },
            Collective::AllReduce { elements: Elements { count: 1, ..elements(false) } },
            Collective::Reduce { root: 1, elements: Elements { count: 1, ..elements(false) } },
            Collective::Reduce { root: 1, elements: elements(false) },
        ] {
            let plan = what.plan(size, 0);
            for other in 1..size {
                let sent =
                    plan.steps.iter().filter(|step| matches!(step, Step::Send { to, .. } if *to == other));
                assert!(sent.count() <= 4, "{} of {size} by {}", what.name(), plan.algorithm);
            }
        }
    }
}

#[test]
fn a_split_sorts_by_key_and_then_by_member() {
    let given = [(Some(1), 5), (Some(1), -2), (None, 0), (Some(2), 1), (Some(1), 5)];
    let entries: Vec<u8> = given.iter().flat_map(|(color, key)| split_entry(*color, *key)).collect();
    assert_eq!(split_members(&entries, 1), [1, 0, 4]);
    assert_eq!(split_members(&entries, 2), [3]);
    assert_eq!(split_members(&entries, 0), [] as [u32; 0]);
}

/// What is done by rounds sends and receives what the plan does, in that order.
#[test]
#[cfg_attr(miri, ignore = "only plans")]
fn rounds_are_those_of_the_plans() {
    let of = |bytes, commutative| Collective::AllReduce {
        elements: Elements { count: 1, bytes, function: Function::Own, commutative },
    };
    for (what, size) in [Collective::Barrier, of(8, true), of(1, true)]
        .iter()
        .flat_map(|what| (1..=64).map(move |size| (what, size)))
    {
        let Some(rounds) = what.rounds(size) else {
            assert!(!size.is_power_of_two() && *what != Collective::Barrier, "{what:?} of {size}");
            continue;
        };
        for member in 0..size {
            let plan = what.plan(size, member);
            let ways = plan.steps.iter().filter_map(|step| match step {
                Step::Send { to, tag, .. } => Some((true, *to, *tag)),
                Step::Receive { from, tag, .. } => Some((false, *from, *tag)),
                _ => None,
            });
            let expected = (0..rounds.count).flat_map(|round| {
                let (to, from) = rounds.partners(member, round);
                [(true, to, round as u16), (false, from, round as u16)]
            });
            assert_eq!(ways.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{what:?} of {size}");
        }
    }
    let others = [of(9, true), of(0, true), of(8, false), Collective::Broadcast { root: 0, len: 8 }];
    assert!(others.iter().all(|what| what.rounds(2).is_none()));
    assert_eq!(Collective::Barrier.rounds(65), None, "more rounds than there is room for");
}

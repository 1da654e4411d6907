//! Reductions of all types, of bytes whose type or size is known at run time, and what is refused.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use standpipe::{
    Code, Element, ElementType, Error, Located, NumberType, ProgressThread, Reduction, Team, TeamEvent,
};

use super::*;

/// The least lengths that go in a word, in one message, and by offers and parts.
const COUNTS: [usize; 5] = [0, 1, 5, 900, 9000];

/// What these tests reduce: numbers from 0 to 3, so that sums and products of four are exact in every type.
fn number(member: u32, at: usize) -> u64 {
    (u64::from(member) * 7 + at as u64 * 5 + (at as u64 >> 3)) % 4
}

/// A number that every type has, as its bytes.
fn bytes_of(of: NumberType, number: u64) -> Vec<u8> {
    match of {
        NumberType::F32 => (number as f32).to_le_bytes().to_vec(),
        NumberType::F64 => (number as f64).to_le_bytes().to_vec(),
        NumberType::F16 => f16::from_f32(number as f32).to_le_bytes().to_vec(),
        NumberType::Bf16 => bf16::from_f32(number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes()[..of.bytes()].to_vec(),
    }
}

fn combined(by: Reduction, a: u64, b: u64) -> u64 {
    match by {
        Reduction::Sum => a + b,
        Reduction::Product => a * b,
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::BitAnd => a & b,
        Reduction::BitOr => a | b,
        Reduction::BitXor => a ^ b,
        Reduction::LogicalAnd => u64::from(a != 0) * u64::from(b != 0),
        Reduction::LogicalOr => u64::from(a + b != 0),
        Reduction::LogicalXor => (u64::from(a != 0) + u64::from(b != 0)) % 2,
        other => panic!("{other} is new"),
    }
}

/// What members give of a type, and what comes of it: of numbers, or of numbers with the member that they
/// were found at.
fn given(of: ElementType, member: u32, count: usize) -> Vec<u8> {
    let element = |at: usize| match of {
        ElementType::Number(number_type) => bytes_of(number_type, number(member, at)),
        ElementType::Located(number_type) => {
            [bytes_of(number_type, number(member, at)), u64::from(member).to_le_bytes().to_vec()].concat()
        }
        other => panic!("{other} is new"),
    };
    (0..count).flat_map(element).collect()
}

fn expected(of: ElementType, by: Reduction, members: u32, count: usize) -> Vec<u8> {
    let element = |at: usize| {
        let all = (0..members).map(|member| number(member, at));
        match of {
            ElementType::Number(number_type) => {
                // Of a lone operand a logical one makes 0 or 1 as well.
                let lone = members == 1 && by.name().starts_with("logical");
                let none = lone.then_some(u64::from(by == Reduction::LogicalAnd));
                let result = all.chain(none).reduce(|a, b| combined(by, a, b)).expect("a member");
                bytes_of(number_type, result)
            }
            ElementType::Located(number_type) => {
                let best = all.clone().reduce(|a, b| combined(by, a, b)).expect("a member");
                let first = all.into_iter().position(|number| number == best).expect("it is one of them");
                [bytes_of(number_type, best), first.to_le_bytes().to_vec()].concat()
            }
            other => panic!("{other} is new"),
        }
    };
    (0..count).flat_map(element).collect()
}

fn types() -> impl Iterator<Item = ElementType> {
    let numbers = NumberType::ALL.iter();
    numbers.flat_map(|number| [ElementType::Number(*number), ElementType::Located(*number)])
}

/// By all four forms, of bytes that begin `offset` bytes after an even address.
fn reduce_all_ways(team: &Team, of: ElementType, by: Reduction, count: usize, offset: usize) {
    let (n, me) = (team.size(), team.rank());
    let expected = expected(of, by, n, count);
    let what = format!("{by} of {count} {of} at {offset}, of {n}");
    let mut words = vec![[0_u64; 2]; count.max(1) + 1];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let values = &mut bytes[offset..offset + count * of.bytes()];
    values.copy_from_slice(&given(of, me, count));
    let mine = values.to_vec();
    team.all_reduce_bytes(values, of, by).expect(&what);
    assert!(values == expected, "{what}");
    let mut gotten = vec![0xa5; offset + mine.len()];
    team.reduce_bytes(&mine, &mut gotten[offset..], n - 1, of, by).expect(&what);
    assert!(me != n - 1 || gotten[offset..] == expected, "{what}");
    let one = team.all_reduce_bytes_nb(mine.clone(), of, by);
    let other = team.reduce_bytes_nb(mine, 0, of, by);
    assert_eq!(one.wait(), (Ok(()), expected.clone()), "{what}");
    let (result, gotten) = other.wait();
    assert_eq!((result, gotten), (Ok(()), if me == 0 { expected } else { Vec::new() }), "{what}");
}

#[test]
fn every_reduction_of_every_type_is_right_in_bytes_at_any_address() {
    for size in [1, 2, 3, 4] {
        job(
            size,
            |_| config(),
            |node| {
                let team = node.world();
                for of in types() {
                    for by in Reduction::ALL.iter().copied().filter(|by| of.has(*by)) {
                        // Long ones of some only: they take their time.
                        let is_long = matches!(by, Reduction::Sum | Reduction::Min | Reduction::BitXor);
                        for (count, offset) in COUNTS.into_iter().zip([0, 3, 1, 7, 5]) {
                            if count < 100 || is_long && size == 3 {
                                reduce_all_ways(&team, of, by, count, offset);
                            }
                        }
                    }
                }
                node.barrier().expect("barrier");
            },
        );
    }
}

/// The lengths of a slice, and of one in the heap, where operands are combined where they lie.
fn reduce_typed<T: Element + PartialEq + Debug + Send>(node: &Node, value: fn(u64, u64) -> T) {
    let team = node.world();
    let (n, me) = (team.size(), team.rank());
    for by in Reduction::ALL.iter().copied().filter(|by| T::TYPE.has(*by)) {
        for count in [1, 7, 9000] {
            let mine: Vec<T> = (0..count).map(|at| value(number(me, at), u64::from(me))).collect();
            let expected = expected(T::TYPE, by, n, count);
            let mut values = mine.clone();
            // Whether the type is known to the compiler is each member's own affair.
            match me % 2 {
                0 => team.all_reduce(&mut values, by).expect("an all-reduce"),
                _ => team
                    .all_reduce_bytes(bytemuck::cast_slice_mut(&mut values), T::TYPE, by)
                    .expect("an all-reduce"),
            }
            assert!(bytemuck::cast_slice::<T, u8>(&values) == expected, "{by} of {count} {}", T::TYPE);
            let array = node.heap().alloc_from(&mine).expect("room in the heap");
            // SAFETY: no pointer to the array is ever told to anybody, so that nobody else writes there.
            let shared = unsafe { std::slice::from_raw_parts_mut(array.as_ptr(), array.len()) };
            team.all_reduce(shared, by).expect("an all-reduce");
            assert!(bytemuck::cast_slice::<T, u8>(shared) == expected, "{by} of {count} {}", T::TYPE);
            let mut gotten = vec![mine[0]; count];
            team.reduce(&mine, &mut gotten, 0, by).expect("a reduction");
            assert!(me != 0 || bytemuck::cast_slice::<T, u8>(&gotten) == expected, "{by} {}", T::TYPE);
            let (result, values) = team.all_reduce_nb(mine.clone(), by).wait();
            result.expect("an all-reduce");
            assert!(bytemuck::cast_slice::<T, u8>(&values) == expected, "{by} of {count} {}", T::TYPE);
            let (result, values) = team.reduce_nb(mine, n - 1, by).wait();
            result.expect("a reduction");
            assert!(me != n - 1 || bytemuck::cast_slice::<T, u8>(&values) == expected, "{by} {}", T::TYPE);
            team.barrier().expect("barrier");
        }
    }
}

#[test]
fn typed_reductions_are_those_of_their_bytes() {
    job(
        3,
        |_| config(),
        |node| {
            reduce_typed(node, |number, _| number as i8);
            reduce_typed(node, |number, _| number as u32);
            reduce_typed(node, |number, _| number as f64);
            reduce_typed(node, |number, _| f16::from_f32(number as f32));
            reduce_typed(node, |number, _| bf16::from_f32(number as f32));
            reduce_typed(node, |number, member| Located::new(number as f32, member));
            reduce_typed(node, Located::new);
            reduce_typed(node, |number, member| Located::new(f16::from_f32(number as f32), member));
            node.barrier().expect("barrier");
        },
    );
}

/// What does not come out even, of numbers of all sizes and none: whatever it is, it is the same everywhere.
#[test]
fn results_are_the_same_at_every_member() {
    for size in [2, 3, 4, 5] {
        job(
            size,
            |_| config(),
            |node| {
                let team = node.world();
                let me = u64::from(team.rank());
                let bits = |at: u64| (at * 5 + me + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
                for count in [3_u64, 20_000] {
                    let halves = (0..count).map(|at| f16::from_bits(bits(at) as u16)).collect::<Vec<_>>();
                    let brains = (0..count).map(|at| bf16::from_bits(bits(at) as u16)).collect::<Vec<_>>();
                    let found =
                        (0..count).map(|at| f32::from_bits(bits(at) as u32 | 0x7f80_0000 >> (at % 2)));
                    let found: Vec<_> =
                        found.zip(0..).map(|(value, at)| Located::new(value, at / 2)).collect();
                    for by in [Reduction::Sum, Reduction::Product] {
                        same_everywhere(&team, &halves, by);
                        same_everywhere(&team, &brains, by);
                    }
                    for by in [Reduction::Min, Reduction::Max] {
                        same_everywhere(&team, &halves, by);
                        same_everywhere(&team, &found, by);
                    }
                }
                node.barrier().expect("barrier");
            },
        );
    }
}

fn same_everywhere<T: Element>(team: &Team, mine: &[T], by: Reduction) {
    let mut values = mine.to_vec();
    team.all_reduce(&mut values, by).expect("an all-reduce");
    let bytes: &[u8] = bytemuck::cast_slice(&values);
    let mut firsts = bytes.to_vec();
    team.broadcast(&mut firsts, 0).expect("a broadcast");
    assert!(bytes == firsts, "{by} of {} {}", mine.len(), T::TYPE);
}

#[test]
fn numbers_that_are_none_lose_and_of_equals_the_first_wins() {
    job(
        3,
        |_| config(),
        |node| {
            let team = node.world();
            let me = u64::from(team.rank());
            let mut values = [
                Located::new([f64::NAN, 2.0, 2.0][me as usize], 10 - me),
                Located::new([0.0, -0.0, 0.0][me as usize], [7, 9, 8][me as usize]),
                Located::new(f64::NAN, 100 - me),
            ];
            let mut greatest = values;
            team.all_reduce(&mut values, Reduction::Min).expect("an all-reduce");
            team.all_reduce(&mut greatest, Reduction::Max).expect("an all-reduce");
            for [first, second, third] in [values, greatest] {
                assert_eq!((first.value(), first.index()), (2.0, 8));
                assert_eq!((second.value(), second.index()), (0.0, 7));
                assert!(third.value().is_nan());
                assert_eq!(third.index(), 98);
            }
            node.barrier().expect("barrier");
        },
    );
}

/// Affine functions of numbers below 2^16, each in front of a byte that says whose it was first: what comes
/// of them depends on the order.
fn compose(into: &mut [u8], from: &[u8]) {
    assert_eq!((into.len(), into.len() % EACH), (from.len(), 0), "whole elements");
    let words = |of: &[u8]| [0, 2].map(|at| u16::from_le_bytes([of[at], of[at + 1]]));
    for (left, right) in into.chunks_mut(EACH).zip(from.chunks(EACH)) {
        let ([a, b], [c, d]) = (words(left), words(right));
        left[..2].copy_from_slice(&a.wrapping_mul(c).to_le_bytes());
        left[2..4].copy_from_slice(&a.wrapping_mul(d).wrapping_add(b).to_le_bytes());
    }
}

/// Bytes of one of these: of no power of two, and no divisor of any buffer's length.
const EACH: usize = 5;

#[test]
fn functions_get_whole_elements_in_the_order_of_members() {
    for size in [1, 2, 3, 5] {
        job(
            size,
            |_| config(),
            |node| {
                let team = node.world();
                let (n, me) = (team.size(), team.rank());
                for count in [0, 1, 3, 1000, 90_001] {
                    let given = |member: u32| {
                        let mut bytes = pattern(u64::from(member) + 3, EACH * count);
                        bytes.chunks_mut(EACH).for_each(|element| element[4] = member as u8);
                        bytes
                    };
                    let expected = (1..n).map(given).fold(given(0), |mut left, right| {
                        compose(&mut left, &right);
                        left
                    });
                    let mut values = [&[0; 3], &given(me)[..]].concat();
                    team.all_reduce_bytes_with(&mut values[3..], EACH, compose).expect("an all-reduce");
                    assert!(values[3..] == expected, "{count} of {n}");
                    let mut gotten = vec![0; EACH * count];
                    team.reduce_bytes_with(&given(me), &mut gotten, n / 2, EACH, compose)
                        .expect("a reduction");
                    assert!(me != n / 2 || gotten == expected, "{count} of {n}");
                    let one = team.all_reduce_bytes_with_nb(given(me), EACH, compose);
                    let other = team.reduce_bytes_with_nb(given(me), n - 1, EACH, compose);
                    assert!(one.wait() == (Ok(()), expected.clone()), "{count} of {n}");
                    let (result, gotten) = other.wait();
                    result.expect("a reduction");
                    assert!(gotten == if me == n - 1 { expected } else { Vec::new() }, "{count} of {n}");
                }
                // Elements that are larger than what is combined at a time otherwise.
                let each = (1 << 20) + 1;
                let mut values = vec![me as u8; 2 * each];
                let longest = |into: &mut [u8], from: &[u8]| {
                    assert!(into.len().is_multiple_of(each) && into.len() == from.len());
                    into.iter_mut().zip(from).for_each(|(into, from)| *into = *from);
                };
                team.all_reduce_bytes_with(&mut values, each, longest).expect("an all-reduce");
                assert!(values.iter().all(|last| u32::from(*last) == n - 1), "of {n}");
                node.barrier().expect("barrier");
            },
        );
    }
}

#[test]
fn what_no_type_has_and_parts_of_elements_are_refused_before_anything_is_sent() {
    job(
        2,
        |_| config(),
        |node| {
            let team = node.world();
            if node.rank() == 0 {
                refused(&team);
            }
            let mut values = [u64::from(node.rank()) + 1; 3];
            team.all_reduce(&mut values, Reduction::BitOr).expect("nobody has heard of what was refused");
            assert_eq!(values, [3; 3]);
            node.barrier().expect("barrier");
        },
    );
}

fn refused(team: &Team) {
    let no = |of: ElementType, reduction| Error::NoReduction { of, reduction };
    let (f32s, located) = (NumberType::F32.into(), ElementType::Located(NumberType::U8));
    let xor = Reduction::BitXor;
    assert_eq!(team.all_reduce(&mut [1.5_f32], xor), Err(no(f32s, xor)));
    assert_eq!(team.reduce(&[1.5_f32], &mut [0.0], 0, xor), Err(no(f32s, xor)));
    assert_eq!(team.all_reduce_nb(vec![1.5_f32], xor).wait(), (Err(no(f32s, xor)), vec![1.5]));
    assert_eq!(team.reduce_nb(vec![1.5_f32], 0, xor).wait().0, Err(no(f32s, xor)));
    assert_eq!(team.all_reduce_bytes(&mut [0; 8], NumberType::F32, xor), Err(no(f32s, xor)));
    assert_eq!(team.reduce_bytes(&[0; 8], &mut [0; 8], 0, f32s, xor), Err(no(f32s, xor)));
    assert_eq!(team.all_reduce_bytes_nb(vec![7; 4], f32s, xor).wait(), (Err(no(f32s, xor)), vec![7; 4]));
    assert_eq!(team.reduce_bytes_nb(vec![0; 4], 0, f32s, xor).wait().0, Err(no(f32s, xor)));
    let sum = team.all_reduce(&mut [Located::new(1_u8, 2)], Reduction::Sum).expect_err("it has none");
    assert_eq!(sum, no(located, Reduction::Sum));
    assert_eq!(
        (sum.to_string(), sum.code()),
        ("located u8 has no reduction sum".into(), Code::NoSuchOperation)
    );
    assert_eq!(no(f32s, xor).to_string(), "f32 has no reduction bit-xor");

    let part = |what, given, each| Error::PartOfElement { what, given, each };
    let (from, values) = ("bytes in `from`", "bytes in `values`");
    let or = Reduction::BitOr;
    let nothing = |_: &mut [u8], _: &[u8]| unreachable!("there is nothing to combine");
    for len in [1, 7, 9, 15] {
        let (of, bytes) = (NumberType::U64, len as u64);
        assert_eq!(team.all_reduce_bytes(&mut vec![0; len], of, or), Err(part(values, bytes, 8)));
        assert_eq!(team.reduce_bytes(&vec![0; len], &mut [], 1, of, or), Err(part(from, bytes, 8)));
        assert_eq!(
            team.all_reduce_bytes_nb(vec![1; len], of, or).wait(),
            (Err(part(values, bytes, 8)), vec![1; len])
        );
        assert_eq!(team.reduce_bytes_nb(vec![0; len], 1, of, or).wait().0, Err(part(from, bytes, 8)));
        for each in [0, 2, len + 1] {
            let error = |what| Err(part(what, bytes, each as u64));
            assert_eq!(team.all_reduce_bytes_with(&mut vec![0; len], each, nothing), error(values));
            assert_eq!(team.reduce_bytes_with(&vec![0; len], &mut [], 1, each, nothing), error(from));
            assert_eq!(team.all_reduce_bytes_with_nb(vec![0; len], each, nothing).wait().0, error(values));
            assert_eq!(team.reduce_bytes_with_nb(vec![0; len], 1, each, nothing).wait().0, error(from));
        }
    }
    let error = team.all_reduce_bytes_with(&mut [], 0, nothing).expect_err("of no bytes");
    assert_eq!(error.to_string(), "bytes in `values`: 0 are no whole elements of 0 bytes");
    assert_eq!(error.code(), Code::Length);
    // What else is wrong is said, too.
    assert_eq!(team.reduce_bytes(&[0; 8], &mut [0; 8], 2, f32s, or).err(), Some(no(f32s, or)));
    let root = team.reduce_bytes(&[0; 8], &mut [0; 8], 2, NumberType::U8, or);
    assert_eq!(root, Err(Error::NoSuchRoot { root: 2, size: 2 }));
    let short = team.reduce_bytes(&[0; 8], &mut [0; 4], 0, NumberType::U8, or);
    assert!(matches!(short, Err(Error::Length { given: 4, expected: 8, .. })), "{short:?}");
}

#[test]
fn members_that_combine_differently_are_told_how() {
    type Call = fn(&Team) -> Result<(), Error>;
    let calls: [(Call, &str, Call, &str); 6] = [
        (
            |team| team.all_reduce(&mut [1_u32; 4], Reduction::Sum),
            "all-reduce of 16 bytes by sum of u32",
            |team| team.all_reduce(&mut [1_u32; 4], Reduction::BitXor),
            "all-reduce of 16 bytes by bit-xor of u32",
        ),
        (
            |team| team.all_reduce(&mut [1_u32], Reduction::Sum),
            "all-reduce of 4 bytes by sum of u32",
            |team| team.all_reduce(&mut [1.0_f32], Reduction::Sum),
            "all-reduce of 4 bytes by sum of f32",
        ),
        (
            |team| team.all_reduce_bytes_with(&mut [0; 24], 6, |_, _| ()),
            "all-reduce of 24 bytes by a function of its own on elements of 6 bytes",
            |team| team.all_reduce_bytes_with(&mut [0; 24], 8, |_, _| ()),
            "all-reduce of 24 bytes by a function of its own on elements of 8 bytes",
        ),
        (
            |team| team.all_reduce_bytes(&mut [0; 60_000], NumberType::F16, Reduction::Sum),
            "all-reduce of 60000 bytes by sum of f16",
            |team| team.all_reduce_bytes(&mut [0; 60_000], NumberType::Bf16, Reduction::Sum),
            "all-reduce of 60000 bytes by sum of bf16",
        ),
        (
            |team| team.all_reduce_bytes(&mut [0; 24], ElementType::Located(NumberType::I32), Reduction::Min),
            "all-reduce of 24 bytes by min of located i32",
            |team| team.all_reduce_bytes(&mut [0; 24], NumberType::I32, Reduction::Min),
            "all-reduce of 24 bytes by min of i32",
        ),
        (
            |team| team.reduce_bytes(&[0; 8], &mut [0; 8], 0, NumberType::U8, Reduction::LogicalOr),
            "reduce of 8 bytes with root 0 by logical-or of u8",
            |team| team.reduce_bytes_with(&[0; 8], &mut [0; 8], 0, 1, |_, _| ()),
            "reduce of 8 bytes with root 0 by a function of its own on elements of 1 bytes",
        ),
    ];
    job(
        2,
        |_| config(),
        |node| {
            for (call, name, other_call, other_name) in calls {
                let team = node.world().split(Some(0), 0).expect("a split").expect("a color");
                let called = if node.rank() == 0 { call(&team) } else { other_call(&team) };
                let Err(Error::Differ { ranks, what }) = called.and_then(|()| team.barrier()) else {
                    panic!("{name} and {other_name}")
                };
                let began = |rank| {
                    let name = if rank == 0 { name } else { other_name };
                    format!("rank {rank} began a{} {name}", if name.starts_with('a') { "n" } else { "" })
                };
                assert_eq!(what, ranks.map(began).join(", "));
                node.barrier().expect("another matter");
            }
        },
    );
}

/// Adds, until it is told to panic; says when it does.
fn touchy(panics: bool, done: &Arc<AtomicU64>) -> impl FnMut(&mut [u64], &[u64]) + Send + 'static {
    let done = Arc::clone(done);
    move |into, from| {
        if panics {
            done.fetch_add(1, Ordering::SeqCst);
            panic!("it was told to");
        }
        into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
    }
}

/// Starts a sum whose function panics at rank 0, which has returned from that by the time that rank 1 starts.
fn reduce_touchily(team: &Team, count: usize, done: &Arc<AtomicU64>, turn: &Barrier) -> TeamEvent<u64> {
    let start = || team.all_reduce_with_nb(vec![1; count], touchy(team.rank() == 0, done));
    if team.rank() == 0 {
        let event = start();
        turn.wait();
        event
    } else {
        turn.wait();
        start()
    }
}

/// Waits for a collective whose function has panicked at rank 0.
fn hear_of_the_panic(node: &Node, event: TeamEvent<u64>, done: &Arc<AtomicU64>) {
    let outcome = event.wait().0;
    match (node.rank(), outcome) {
        (0, Err(error)) => {
            assert_eq!(error.to_string(), "the function of a reduction panicked");
            assert_eq!(error.code(), Code::Panicked);
        }
        // What it needs may have come before.
        (1, Ok(()) | Err(Error::Team { peer: 0, .. })) => {}
        (rank, other) => panic!("rank {rank}: {other:?}"),
    }
    let started = Instant::now();
    while Arc::strong_count(done) > 1 {
        assert!(started.elapsed() < LIMIT, "somebody keeps the function");
        std::thread::yield_now();
    }
    node.quiet().expect("it has been told");
    node.barrier().expect("another matter");
}

/// Small values come in messages, and many by offers and parts.
#[test]
fn a_function_that_panics_on_the_progress_thread_is_what_its_event_says() {
    for count in [1, 900, 90_000] {
        let turn = Barrier::new(2);
        job(
            2,
            |_| config().progress(ProgressThread::On),
            |node| {
                let team = node.world().split(Some(0), 0).expect("a split").expect("a color");
                let done = Arc::new(AtomicU64::new(0));
                let event = reduce_touchily(&team, count, &done, &turn);
                // No call of the library, so that only the progress thread can run the function.
                let started = Instant::now();
                while node.rank() == 0 && done.load(Ordering::SeqCst) == 0 {
                    assert!(started.elapsed() < LIMIT, "nobody runs the function");
                    std::thread::yield_now();
                }
                hear_of_the_panic(node, event, &done);
            },
        );
    }
}

#[test]
fn a_function_that_panics_in_another_call_ends_that_call_and_is_what_its_event_says() {
    let turn = Barrier::new(2);
    job(
        2,
        |_| config().progress(ProgressThread::Off),
        |node| {
            let team = node.world().split(Some(0), 0).expect("a split").expect("a color");
            let done = Arc::new(AtomicU64::new(0));
            let event = reduce_touchily(&team, 9000, &done, &turn);
            if node.rank() == 0 {
                let wait = std::panic::AssertUnwindSafe(|| node.wait_until(|| false));
                std::panic::catch_unwind(wait).expect_err("the function's panic ends the wait");
            }
            hear_of_the_panic(node, event, &done);
        },
    );
}

#[test]
fn types_and_reductions_go_by_number_and_name() {
    for of in types() {
        assert_eq!(ElementType::from_number(of.number()), Some(of));
    }
    for by in Reduction::ALL {
        assert_eq!(Reduction::from_number(by.number()), Some(*by));
    }
    assert_eq!((ElementType::from_number(0), Reduction::from_number(0)), (None, None));
    assert_eq!(<Located<f16> as Element>::TYPE.to_string(), "located f16");
    assert_eq!((bf16::TYPE.bytes(), Located::<f64>::TYPE.bytes()), (2, 16));
}

//! Reductions against plain models, element by element.

use std::fmt::Debug;

use vm::Segment;

use super::*;

/// As many elements as are combined one by one, in vectors, and in more than one chunk.
const COUNTS: [usize; 12] = [0, 1, 3, 7, 15, 16, 17, 64, 127, 128, 129, 700];

/// A reduction, and what two elements come to by it.
type Model<T> = (Reduction, fn(T, T) -> T);

fn mixed(seed: u64) -> u64 {
    let word = (seed ^ seed >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Holds all reductions of a type to these models, which must be of all that it has: of values and of bytes
/// at any address, combined and folded.
fn agrees<T: Element + PartialEq + Debug>(number: fn(u64) -> T, models: &[Model<T>]) {
    let segment = Segment::create("reductions", 1 << 16).expect("memory");
    let memory = segment.memory();
    for by in Reduction::ALL {
        let model = models.iter().find(|(of, _)| of == by);
        assert_eq!(T::TYPE.has(*by), model.is_some(), "{by} of {}", T::TYPE);
        let made = BuiltIn::of::<T>(*by, 7);
        let Some((_, model)) = model else {
            assert_eq!(made.err(), Some(Error::NoReduction { of: T::TYPE, reduction: *by }));
            continue;
        };
        let (mut typed, elements) = made.expect("it has one");
        assert_eq!((elements.count, elements.bytes as usize), (7, size_of::<T>()));
        let (mut untyped, _) = BuiltInOf::new(T::TYPE, *by, 7).expect("it has one");
        for count in COUNTS {
            let numbers =
                |seed: u64| (0..count as u64).map(|at| number(mixed(at + seed))).collect::<Vec<T>>();
            let (left, right) = (numbers(1000), numbers(7_000_000));
            let pairs = left.iter().zip(&right);
            let expected: Vec<T> = pairs.map(|(left, right)| model(*left, *right)).collect();
            let mut values = left.clone();
            typed.combine(&mut values, &right);
            assert_eq!(values, expected, "{by} of {count} {}", T::TYPE);
            let [left_bytes, right_bytes, expected_bytes] =
                [&left, &right, &expected].map(|values| bytemuck::cast_slice::<T, u8>(values));
            memory.copy_in(3, right_bytes).expect("it fits");
            for offset in 0..9 {
                let put = |bytes: &[u8]| [&vec![0; offset], bytes].concat();
                let (mut into, from) = (put(left_bytes), put(right_bytes));
                untyped.combine(&mut into[offset..], &from[offset..]);
                assert_eq!(into[offset..], *expected_bytes, "{by} of {count} {} at {offset}", T::TYPE);
                for own in [None, Some(left_bytes)] {
                    let before = if own.is_some() { vec![0xa5; left_bytes.len()] } else { left_bytes.into() };
                    let mut into = put(&before);
                    let is_done = untyped.fold(own, &mut into[offset..], &[(memory, 3)]);
                    let is_half = matches!(T::TYPE, ElementType::Number(NumberType::F16 | NumberType::Bf16));
                    assert_eq!(is_done, !is_half);
                    assert_eq!(into[offset..], *if is_done { expected_bytes } else { &before[..] });
                }
            }
            let mut values = left.clone();
            if typed.fold(None, &mut values, &[(memory, 3)]) {
                assert_eq!(values, expected);
            }
            let past = [(memory, memory.len())];
            assert!(count == 0 || !typed.fold(None, &mut values, &past), "it would reach past the memory");
        }
    }
}

macro_rules! integers_agree {
    ($($number:ty)*) => {$({
        type T = $number;
        // Some are alike, and some are 0.
        agrees(|word| if word % 3 == 0 { (word >> 8) as T % 2 } else { (word >> 8) as T }, &[
            (Reduction::Sum, T::wrapping_add),
            (Reduction::Product, T::wrapping_mul),
            (Reduction::Min, |a, b| if b < a { b } else { a }),
            (Reduction::Max, |a, b| if b > a { b } else { a }),
            (Reduction::BitAnd, |a, b| a & b),
            (Reduction::BitOr, |a, b| a | b),
            (Reduction::BitXor, |a, b| a ^ b),
            (Reduction::LogicalAnd, |a, b| if a == 0 || b == 0 { 0 } else { 1 }),
            (Reduction::LogicalOr, |a, b| if a == 0 && b == 0 { 0 } else { 1 }),
            (Reduction::LogicalXor, |a, b| if (a == 0) == (b == 0) { 0 } else { 1 }),
        ]);
    })*};
}

macro_rules! floats_agree {
    ($($number:ty: $of:expr;)*) => {$({
        agrees::<$number>(|word| $of(if word % 3 == 0 { 0.0 } else { f64::from((word >> 44) as i32 - (1 << 19)) / 64.0 }), &[
            (Reduction::Sum, |a, b| $of(f64::from(a) + f64::from(b))),
            (Reduction::Product, |a, b| $of(f64::from(a) * f64::from(b))),
            (Reduction::Min, |a, b| if b < a { b } else { a }),
            (Reduction::Max, |a, b| if b > a { b } else { a }),
            (Reduction::LogicalAnd, |a, b| $of(f64::from(u8::from(f64::from(a) != 0.0 && f64::from(b) != 0.0)))),
            (Reduction::LogicalOr, |a, b| $of(f64::from(u8::from(f64::from(a) != 0.0 || f64::from(b) != 0.0)))),
            (Reduction::LogicalXor, |a, b| $of(f64::from(u8::from((f64::from(a) != 0.0) ^ (f64::from(b) != 0.0))))),
        ]);
    })*};
}

#[test]
fn integers_come_to_what_plain_loops_do() {
    integers_agree!(u8 u16 u32 u64 i8 i16 i32 i64);
}

#[test]
fn floating_point_numbers_come_to_what_plain_loops_do() {
    floats_agree! { f32: |wide: f64| wide as f32; f64: |wide: f64| wide; }
    // What is no number is true.
    for (by, expected) in [(Reduction::LogicalAnd, 0.0), (Reduction::LogicalOr, 1.0), (Reduction::Min, -0.0)]
    {
        let (mut by, _) = BuiltIn::of::<f64>(by, 1).expect("it has one");
        let mut values = [f64::NAN];
        by.combine(&mut values, &[-0.0]);
        assert_eq!(values, [expected]);
    }
}

/// `f64` has room for all digits of a sum or product of the numbers here, so that the model rounds once.
#[test]
fn half_floats_are_rounded_once_for_each_operation() {
    use half::{bf16, f16};
    floats_agree! { f16: f16::from_f64; bf16: bf16::from_f64; }
    let sum = |a: f32, b: f32| {
        let (mut by, _) = BuiltIn::of::<f16>(Reduction::Sum, 1).expect("it has one");
        let mut value = [f16::from_f32(a)];
        by.combine(&mut value, &[f16::from_f32(b)]);
        value[0].to_f32()
    };
    assert_eq!((sum(2048.0, 1.0), sum(2048.0, 3.0)), (2048.0, 2052.0), "ties go to the even number");
    assert_eq!((sum(65504.0, 15.0), sum(65504.0, 16.0)), (65504.0, f32::INFINITY));
    assert_eq!(sum(6.0e-8, 6.0e-8), f16::from_bits(2).to_f32(), "the least of all");
    let mut value = [bf16::from_f32(256.0), bf16::from_f32(256.0)];
    let (mut by, _) = BuiltIn::of::<bf16>(Reduction::Sum, 2).expect("it has one");
    by.combine(&mut value, &[bf16::from_f32(1.0), bf16::from_f32(3.0)]);
    assert_eq!(value.map(f32::from), [256.0, 260.0]);
}

fn located(by: Reduction, all: &[Located<f32>]) -> Located<f32> {
    let (mut by, _) = BuiltIn::of::<Located<f32>>(by, 1).expect("it has one");
    let mut result = [all[0]];
    all[1..].iter().for_each(|next| by.combine(&mut result, &[*next]));
    result[0]
}

/// All orders of them, and what each two neighbours come to first.
fn orders(all: Vec<Located<f32>>) -> Vec<Vec<Located<f32>>> {
    if all.len() < 2 {
        return vec![all];
    }
    let taken = |at: usize| {
        let mut rest = all.clone();
        let first = rest.remove(at);
        orders(rest).into_iter().map(move |mut order| {
            order.push(first);
            order
        })
    };
    (0..all.len()).flat_map(taken).collect()
}

#[test]
fn the_least_and_the_greatest_are_the_same_in_any_order() {
    let nan = |bits: u32| f32::from_bits(0x7fc0_0000 | bits);
    let at = Located::new;
    for (given, least, greatest) in [
        (vec![at(3.0, 5), at(1.0, 9), at(1.0, 7), at(3.0, 2), at(2.0, 0)], (1.0, 7), (3.0, 2)),
        (vec![at(0.0, 5), at(-0.0, 4), at(0.0, 3), at(-0.0, 6)], (0.0, 3), (0.0, 3)),
        (
            vec![at(nan(1), 0), at(f32::INFINITY, 8), at(nan(2), 1), at(-1.0, 6)],
            (-1.0, 6),
            (f32::INFINITY, 8),
        ),
        (vec![at(nan(3), u64::MAX), at(nan(1), 3), at(-nan(2), 4)], (nan(1), 3), (nan(1), 3)),
        // The same index more than once.
        (vec![at(0.0, 2), at(-0.0, 2), at(nan(9), 1), at(0.0, 2)], (0.0, 2), (0.0, 2)),
        (vec![at(nan(4), 1), at(nan(2), 1), at(nan(3), 1)], (nan(2), 1), (nan(2), 1)),
    ] {
        for (by, (value, index)) in [(Reduction::Min, least), (Reduction::Max, greatest)] {
            let bits = |of: Located<f32>| (of.value().to_bits(), of.index());
            let wanted = (value.to_bits(), index);
            for order in orders(given.clone()) {
                assert_eq!(bits(located(by, &order)), wanted, "{by} of {order:?}");
                for cut in 1..order.len() {
                    let (left, right) = order.split_at(cut);
                    let apart = located(by, &[located(by, left), located(by, right)]);
                    assert_eq!(bits(apart), wanted, "{by} of {left:?} and {right:?}");
                }
            }
        }
    }
}

macro_rules! located_agree {
    ($($number:ty: $of:expr;)*) => {$({
        type T = Located<$number>;
        assert_eq!((size_of::<T>(), align_of::<T>()), (size_of::<$number>() + 8, 1));
        assert_eq!(T::TYPE.bytes(), size_of::<T>());
        agrees(|word| Located::new($of(word % 5), word >> 60), &[
            (Reduction::Min, |a: T, b: T| {
                if b.value() < a.value() || b.value() == a.value() && b.index() < a.index() { b } else { a }
            }),
            (Reduction::Max, |a: T, b: T| {
                if b.value() > a.value() || b.value() == a.value() && b.index() < a.index() { b } else { a }
            }),
        ]);
    })*};
}

#[test]
fn numbers_with_an_index_are_plain_bytes_of_every_type() {
    located_agree! {
        u8: |word| word as u8; u16: |word| word as u16; u32: |word| word as u32; u64: |word| word;
        i8: |word| word as i8 - 2; i16: |word| word as i16 - 2; i32: |word| word as i32 - 2;
        i64: |word| word as i64 - 2; f32: |word| word as f32 - 2.0; f64: |word| word as f64 - 2.0;
    }
    located_agree! {
        half::f16: |word| half::f16::from_f32(word as f32 - 2.0);
        half::bf16: |word| half::bf16::from_f32(word as f32 - 2.0);
    }
    assert_eq!(
        bytemuck::bytes_of(&Located::new(0x0102_u16, 3)),
        [&[2, 1][..], &3_u64.to_le_bytes()].concat()
    );
    assert_eq!(format!("{:?}", Located::new(-1_i8, 3)), "Located { value: -1, index: 3 }");
}

#[test]
fn a_lone_operand_comes_to_0_or_1_where_several_do() {
    for (by, expected) in [
        (Reduction::LogicalAnd, [1.0, 0.0, 0.0, 1.0]),
        (Reduction::LogicalOr, [1.0, 0.0, 0.0, 1.0]),
        (Reduction::LogicalXor, [1.0, 0.0, 0.0, 1.0]),
        (Reduction::Sum, [-5.0, 0.0, -0.0, f32::INFINITY]),
    ] {
        let (mut by, _) = BuiltIn::of::<f32>(by, 4).expect("it has one");
        let mut values = [-5.0, 0.0, -0.0, f32::INFINITY];
        by.settle(&mut values);
        assert_eq!(values, expected);
    }
}

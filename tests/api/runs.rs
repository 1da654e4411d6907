//! Vectors and indexed blocks, which are cut differently at the two ends, against plain arrays.

use std::ops::Range;

/// What is counted of local memory.
const LOCAL: &str = "bytes of local memory";

use proptest::prelude::*;
use standpipe::{Error, Indexed, Memory, RemoteRun, Strided};

use super::model::{BYTES, Pair};
use super::*;

/// Cuts `lens` out of [`BYTES`] bytes, apart from each other, in an order that `seed` decides: their starts.
fn spread(seed: u64, lens: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|i| (*i as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
    let gap = (BYTES - lens.iter().sum::<usize>()) / (lens.len() + 1);
    let (mut starts, mut at) = (vec![0; lens.len()], gap);
    for i in order {
        starts[i] = at;
        at += lens[i] + if seed & (1 << (i % 60)) == 0 { 0 } else { gap };
    }
    starts
}

/// Lengths of two lists of runs, of as many bytes.
fn cuts() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    let lens = || proptest::collection::vec(prop_oneof![Just(0), 1usize..20, 1usize..300], 0..16);
    (lens(), lens()).prop_map(|(mut there, mut here)| {
        let (sum_there, sum_here) = (there.iter().sum::<usize>(), here.iter().sum::<usize>());
        there.push(sum_here.saturating_sub(sum_there));
        here.push(sum_there.saturating_sub(sum_here));
        let total = |lens: &[usize]| lens.iter().sum::<usize>();
        assert_eq!(total(&there), total(&here));
        (there, here)
    })
}

/// The ranges of runs.
fn ranges(starts: &[usize], lens: &[usize]) -> Vec<Range<usize>> {
    starts.iter().zip(lens).map(|(start, len)| *start..start + len).collect()
}

/// The bytes in ranges, one after the other.
fn taken(bytes: &[u8], ranges: &[Range<usize>]) -> Vec<u8> {
    ranges.iter().flat_map(|range| bytes[range.clone()].iter().copied()).collect()
}

/// `bytes` with what `taken` would take replaced.
fn given(mut bytes: Vec<u8>, ranges: &[Range<usize>], from: &[u8]) -> Vec<u8> {
    let mut from = from.iter();
    for at in ranges.iter().cloned().flatten() {
        bytes[at] = *from.next().expect("as many bytes");
    }
    bytes
}

/// Parts of an array, to be written.
fn parts<'a>(bytes: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<&'a mut [u8]> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].start, ranges[*i].end));
    let mut parts: Vec<&'a mut [u8]> = ranges.iter().map(|_| Default::default()).collect();
    let (mut rest, mut at) = (bytes, 0);
    for i in order {
        let (before, after) = rest.split_at_mut(ranges[i].end - at);
        parts[i] = &mut before[ranges[i].start - at..];
        (rest, at) = (after, ranges[i].end);
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn vectors_move_what_their_runs_say(
        message: bool, private: bool, seed: u64, (there, here) in cuts(),
    ) {
        let pair = Pair::of(WAYS[usize::from(message)]);
        let remote = pair.remote(private);
        let before = pattern(seed % 1000, BYTES);
        let there = ranges(&spread(seed, &there), &there);
        let here = ranges(&spread(seed.rotate_left(7), &here), &here);
        let runs: Vec<RemoteRun> =
            there.iter().map(|run| RemoteRun { at: remote.plus(run.start as u64), len: run.len() }).collect();

        pair.fill(private, &before);
        let model = given(vec![0xee; BYTES], &here, &taken(&before, &there));
        let mut got = vec![0xee; BYTES];
        prop_assert_eq!(pair.zero.get_vector(&runs, &mut parts(&mut got, &here)), Ok(()));
        prop_assert!(got == model);
        let (result, got) = pair.zero.get_vector_nb(&runs, vec![0xee_u8; BYTES], &here).wait();
        prop_assert_eq!(result, Ok(()));
        prop_assert!(got == model);

        let source = pattern(seed % 1000 + 1, BYTES);
        let model = given(before.clone(), &there, &taken(&source, &here));
        let slices: Vec<&[u8]> = here.iter().map(|part| &source[part.clone()]).collect();
        prop_assert_eq!(pair.zero.put_vector(&runs, &slices), Ok(()));
        prop_assert!(pair.all(private) == model);
        pair.fill(private, &before);
        prop_assert_eq!(pair.zero.put_vector_nb(&runs, source.clone(), &here).wait().0, Ok(()));
        prop_assert!(pair.all(private) == model);
        pair.fill(private, &before);
        prop_assert_eq!(pair.zero.put_vector_nbi(&runs, &slices), Ok(()));
        prop_assert_eq!(pair.zero.quiet(), Ok(()));
        prop_assert!(pair.all(private) == model);
    }

    #[test]
    fn indexed_blocks_move_what_their_offsets_say(
        message: bool, private: bool, seed: u64, lens in (1usize..40, 1usize..8, 1usize..8),
    ) {
        let pair = Pair::of(WAYS[usize::from(message)]);
        let remote = pair.remote(private);
        // As many bytes at both ends: so many of each other's blocks.
        let (unit, a, b) = lens;
        let (remote_block, local_block) = (unit * a, unit * b);
        let there = spread(seed, &vec![remote_block; b]);
        let here = spread(seed.rotate_left(9), &vec![local_block; a]);
        let remote_offsets: Vec<u64> = there.iter().map(|start| *start as u64).collect();
        let shape = Indexed { remote_block, remote_offsets: &remote_offsets, local_block, local_offsets: &here };
        let there = ranges(&there, &vec![remote_block; b]);
        let here = ranges(&here, &vec![local_block; a]);

        let before = pattern(seed % 1000, BYTES);
        pair.fill(private, &before);
        let model = given(vec![0xee; BYTES], &here, &taken(&before, &there));
        let mut got = vec![0xee; BYTES];
        prop_assert_eq!(pair.zero.get_indexed(remote, &mut got, &shape), Ok(()));
        prop_assert!(got == model);
        let (result, got) = pair.zero.get_indexed_nb(remote, vec![0xee_u8; BYTES], &shape).wait();
        prop_assert_eq!(result, Ok(()));
        prop_assert!(got == model);

        let source = pattern(seed % 1000 + 1, BYTES);
        let model = given(before.clone(), &there, &taken(&source, &here));
        prop_assert_eq!(pair.zero.put_indexed(remote, &source, &shape), Ok(()));
        prop_assert!(pair.all(private) == model);
        pair.fill(private, &before);
        prop_assert_eq!(pair.zero.put_indexed_nb(remote, source.clone(), &shape).wait().0, Ok(()));
        prop_assert!(pair.all(private) == model);
        pair.fill(private, &before);
        prop_assert_eq!(pair.zero.put_indexed_nbi(remote, &source, &shape), Ok(()));
        prop_assert_eq!(pair.zero.quiet(), Ok(()));
        prop_assert!(pair.all(private) == model);
    }
}

#[test]
fn strides_and_lists_have_forms_that_do_not_wait() {
    for (way, private) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let pair = Pair::of(way);
        let to = pair.remote(private);
        let shape = Strided {
            block: 3,
            counts: &[4, 2],
            remote_strides: &[5, 100],
            local_strides: &[3, 12],
            ..Strided::default()
        };
        pair.fill(private, &[0; BYTES]);
        let source = pattern(5, 24);
        let (result, source) = pair.zero.put_strided_nb(to, source, &shape).wait();
        assert_eq!(result, Ok(()));
        let (result, got) = pair.zero.get_strided_nb(to, vec![0_u8; 24], &shape).wait();
        assert_eq!((result, &got), (Ok(()), &source));
        let once = pair.all(private);
        pair.fill(private, &[0; BYTES]);
        pair.zero.put_strided_nbi(to, &source, &shape).expect("put");
        pair.zero.quiet().expect("quiet");
        assert!(pair.all(private) == once);
        let pieces = [(7, &source[..5]), (900, &source[5..])]
            .map(|(at, from)| standpipe::PutPiece { to: to.plus(at), from });
        pair.zero.put_list_nbi(&pieces).expect("put");
        pair.zero.quiet().expect("quiet");
        let all = pair.all(private);
        assert!(all[7..12] == source[..5] && all[900..919] == source[5..]);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_numbers_and_moves_nothing() {
    let pair = Pair::of(Way::Attach);
    let (zero, to) = (&pair.zero, pair.remote(false));
    pair.fill(false, &[0; BYTES]);
    let runs = [RemoteRun { at: to, len: 10 }, RemoteRun { at: to.plus(20), len: 3 }];
    let unequal = Err(Error::Length { what: "bytes in the local runs", given: 12, expected: 13 });
    assert_eq!(zero.put_vector(&runs, &[&[1; 12]]), unequal);
    assert_eq!(zero.put_vector_nbi(&runs, &[&[1; 12]]), unequal);
    assert_eq!(zero.get_vector(&runs, &mut [&mut [1; 6], &mut [1; 6]]), unequal);
    let parts = |first: Range<usize>, second| [first, second];
    assert_eq!(zero.put_vector_nb(&runs, vec![1_u8; 20], &parts(0..6, 10..16)).wait().0, unequal);
    let beyond = zero.put_vector_nb(&runs, vec![1_u8; 20], &parts(0..6, 14..21)).wait().0;
    assert_eq!(beyond, Err(Error::Length { what: LOCAL, given: 20, expected: 21 }));
    let over = zero.get_vector_nb(&runs, vec![1_u8; 20], &parts(5..12, 0..6)).wait().0;
    assert_eq!(over, Err(Error::Overlap { start: 5, end: 6 }));
    let elsewhere = [runs[0], RemoteRun { at: nowhere(0), len: 3 }];
    let several = zero.put_vector_nb(&elsewhere, vec![1_u8; 13], std::slice::from_ref(&(0..13))).wait().0;
    assert_eq!(several, Err(Error::Elsewhere { peer: 0, expected: 1 }));
    // SAFETY: no memory lies there, and the put is refused before it reaches anything.
    let last = unsafe { standpipe::Remote::raw(1, u64::MAX - 1) };
    let wraps = zero.put_vector(&[runs[0], RemoteRun { at: last, len: 3 }], &[&[1; 13]]);
    assert!(matches!(wraps, Err(Error::Fault { peer: 1, len: 3, .. })), "{wraps:?}");

    let shape = Indexed { remote_block: 4, remote_offsets: &[0, 8], local_block: 8, local_offsets: &[3] };
    assert_eq!(
        zero.put_indexed(to, &[1; 10], &shape),
        Err(Error::Length { what: LOCAL, given: 10, expected: 11 })
    );
    let unequal = Indexed { local_block: 7, ..shape };
    let blocks = Err(Error::Length { what: "bytes in the local blocks", given: 7, expected: 8 });
    assert_eq!(zero.put_indexed(to, &[1; 10], &unequal), blocks);
    let over = Indexed { local_block: 4, local_offsets: &[6, 3], ..shape };
    assert_eq!(zero.get_indexed(to, &mut [1; 10], &over), Err(Error::Overlap { start: 6, end: 7 }));
    let far = Indexed { remote_offsets: &[0, u64::MAX - 2], ..shape };
    let wraps = zero.put_indexed(to, &[1; 11], &far);
    assert!(matches!(wraps, Err(Error::Fault { peer: 1, len: 4, .. })), "{wraps:?}");
    let endless = Indexed {
        local_block: usize::MAX,
        local_offsets: &[9, 9],
        remote_offsets: &[0; 2],
        remote_block: usize::MAX,
    };
    assert!(zero.put_indexed(to, &[1; 11], &endless).is_err());
    assert!(pair.all(false).iter().all(|byte| *byte == 0));
}

#[test]
fn a_run_that_is_not_there_is_named_and_others_need_none() {
    let pair = Pair::of(Way::Attach);
    let there = pair.remote(true);
    let bad = [RemoteRun { at: there, len: 5 }, RemoteRun { at: nowhere(1), len: 7 }];
    let fault = pair.zero.put_vector(&bad, &[&[1; 4], &[1; 8]]);
    // The piece that is cut there: of the second run, as the first source ends within the first.
    let expected = Err(Error::Fault { peer: 1, memory: Memory::Private, addr: 4096, len: 7 });
    assert!(fault == expected || std::env::var_os(TRANSPORT).is_some(), "{fault:?}");
    assert!(matches!(fault, Err(Error::Fault { peer: 1, .. })), "{fault:?}");
    assert_eq!(pair.zero.put_vector(&[], &[]), Ok(()));
    assert_eq!(pair.zero.put_vector_nb(&[], Vec::<u8>::new(), &[]).wait().0, Ok(()));
}

#[test]
fn runs_of_several_peers_and_memories_go_by_one_call() {
    job(
        3,
        |_| config(),
        |node| {
            let heap = node.heap().alloc_zeroed::<u64>(4).expect("room");
            let mut private = vec![0_u8; 8];
            tell(node, "heap", heap.ptr(0).to_words());
            let right = exchange_private(node, &mut private);
            let left = (node.rank() + 2) % 3;
            let there = GlobalPtr::<u64>::from_words(ask(node, "heap", left));
            let runs = [
                RemoteRun { at: right, len: 8 },
                RemoteRun { at: there.into(), len: 3 },
                RemoteRun { at: Remote::from(there).plus(3), len: 5 },
            ];
            let bytes = pattern(u64::from(node.rank()), 16);
            node.put_vector(&runs, &[&bytes[..1], &bytes[1..]]).expect("put");
            node.barrier().expect("barrier");
            let from = |rank: u32| pattern(u64::from(rank), 16);
            assert_eq!(bytemuck::bytes_of(&heap.read(0)), &from((node.rank() + 1) % 3)[8..]);
            assert_eq!(private, from(left)[..8]);
            node.barrier().expect("barrier");
        },
    );
}

//! Scatter lists and strided shapes against plain arrays.

use std::sync::OnceLock;

use proptest::prelude::*;
use standpipe::{Error, GetPiece, HeapArray, PutPiece, Strided};

use super::*;

pub(super) const BYTES: usize = 4000;

/// Two nodes, of which the second only holds memory.
pub(super) struct Pair {
    pub(super) zero: Node,
    _one: Node,
    heap: HeapArray<u8>,
    /// The second node's private memory; nothing but transfers touches it.
    private: Remote,
    _broker: Broker,
}

impl Pair {
    fn new(way: Way) -> Pair {
        let broker = Broker::start(2).expect("a broker");
        let zero = Node::open_in(way.config(), Some(&broker.env(0))).expect("a node");
        let one = Node::open_in(way.config(), Some(&broker.env(1))).expect("a node");
        let heap = one.heap().alloc_zeroed::<u8>(BYTES).expect("room");
        let private = vec![0u8; BYTES].leak().as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the vector is leaked, so that its bytes stay, and nobody else knows their address.
        let private = unsafe { Remote::raw(1, private) };
        Pair { zero, _one: one, heap, private, _broker: broker }
    }

    /// The pair for a way; tests of one process share it in turn.
    pub(super) fn of(way: Way) -> std::sync::MutexGuard<'static, Pair> {
        static PAIRS: OnceLock<[std::sync::Mutex<Pair>; 2]> = OnceLock::new();
        let pairs = PAIRS.get_or_init(|| WAYS.map(|way| std::sync::Mutex::new(Pair::new(way))));
        pairs[way as usize].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn remote(&self, private: bool) -> Remote {
        if private { self.private } else { self.heap.ptr(0).into() }
    }

    pub(super) fn fill(&self, private: bool, bytes: &[u8]) {
        self.zero.put_bytes(self.remote(private), bytes).expect("put");
    }

    pub(super) fn all(&self, private: bool) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.zero.get_bytes(self.remote(private), &mut bytes).expect("get");
        bytes
    }
}

/// A shape of up to three dimensions: block, counts, remote and local strides of either sign.
type Shape = (usize, Vec<usize>, Vec<i64>, Vec<isize>);

fn shape() -> impl Strategy<Value = Shape> {
    (0usize..40, 0usize..4).prop_flat_map(|(block, dims)| {
        let counts = proptest::collection::vec(0usize..5, dims);
        let strides = || proptest::collection::vec(-200isize..300, dims);
        (Just(block), counts, strides(), strides()).prop_map(|(block, counts, there, here)| {
            let there = there.into_iter().map(|stride| stride as i64).collect();
            (block, counts, there, here)
        })
    })
}

/// (remote, local) offsets of all blocks, by counting like an odometer, and those of the first one: the
/// lowest ones are 0.
fn blocks((_, counts, there, here): &Shape) -> (Vec<(usize, usize)>, (usize, usize)) {
    let mut blocks = vec![(0_isize, 0_isize)];
    for d in 0..counts.len() {
        let steps = 0..counts[d] as isize;
        blocks = steps
            .flat_map(|n| blocks.iter().map(move |(a, b)| (a + n * there[d] as isize, b + n * here[d])))
            .collect();
    }
    let lowest = |of: fn(&(isize, isize)) -> isize| blocks.iter().map(of).min().unwrap_or(0);
    let (there, here) = (lowest(|block| block.0), lowest(|block| block.1));
    let blocks = blocks.iter().map(|block| ((block.0 - there) as usize, (block.1 - here) as usize)).collect();
    (blocks, ((-there) as usize, (-here) as usize))
}

fn overlap(mut starts: Vec<usize>, block: usize) -> bool {
    starts.sort_unstable();
    block > 0 && starts.windows(2).any(|pair| pair[1] - pair[0] < block)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn lists_move_what_their_pieces_say(
        message: bool,
        private: bool,
        seed: u64,
        pieces in proptest::collection::vec((0..BYTES, 0..BYTES, 0usize..600), 0..30),
    ) {
        let pair = Pair::of(WAYS[usize::from(message)]);
        let mut model = pattern(seed % 1000, BYTES);
        pair.fill(private, &model);
        let remote = pair.remote(private);
        let source = pattern(seed % 1000 + 1, BYTES);
        let mut taken = vec![false; BYTES];
        let mut list = Vec::new();
        for (to, from, len) in &pieces {
            let len = (*len).min(BYTES - to).min(BYTES - from);
            // The order of the pieces of one list is open, so they must not overlap at the target.
            if taken[*to..to + len].iter().any(|taken| *taken) {
                continue;
            }
            taken[*to..to + len].fill(true);
            model[*to..to + len].copy_from_slice(&source[*from..from + len]);
            list.push(PutPiece { to: remote.plus(*to as u64), from: &source[*from..from + len] });
        }
        pair.zero.put_list(&list).expect("put");
        prop_assert!(pair.all(private) == model);
        let mut got: Vec<(usize, Vec<u8>)> =
            pieces.iter().map(|(at, _, len)| (*at, vec![0; (*len).min(BYTES - at)])).collect();
        let mut list: Vec<GetPiece<'_>> = got
            .iter_mut()
            .map(|(at, into)| GetPiece { from: remote.plus(*at as u64), into })
            .collect();
        pair.zero.get_list(&mut list).expect("get");
        for (at, bytes) in got {
            prop_assert!(bytes == model[at..at + bytes.len()]);
        }
    }

    #[test]
    fn strided_shapes_move_what_an_odometer_says(
        message: bool, private: bool, seed: u64, shape in shape(),
    ) {
        let pair = Pair::of(WAYS[usize::from(message)]);
        let (block, counts, there, here) = &shape;
        let (blocks, (first_there, first_here)) = blocks(&shape);
        let strided = Strided {
            block: *block,
            counts,
            remote_strides: there,
            local_strides: here,
            local_start: first_here,
        };
        let end = |starts: &mut dyn Iterator<Item = usize>| starts.map(|s| s + block).max().unwrap_or(0);
        let (remote_end, local_end) =
            (end(&mut blocks.iter().map(|b| b.0)), end(&mut blocks.iter().map(|b| b.1)));
        prop_assume!(remote_end <= BYTES && local_end <= BYTES);
        let remote = pair.remote(private).plus(first_there as u64);

        let before = pattern(seed % 1000, BYTES);
        pair.fill(private, &before);
        let local_overlap = overlap(blocks.iter().map(|b| b.1).collect(), *block);
        let mut got = vec![0xee; BYTES];
        let result = pair.zero.get_strided(remote, &mut got, &strided);
        if local_overlap {
            let refused = matches!(result, Err(Error::Overlap { .. }));
            prop_assert!(refused, "overlapping blocks were got: {:?}", result);
        } else {
            prop_assert_eq!(result, Ok(()));
            let mut model = vec![0xee; BYTES];
            for (there, here) in &blocks {
                model[*here..here + block].copy_from_slice(&before[*there..there + block]);
            }
            prop_assert!(got == model);
        }

        let source = pattern(seed % 1000 + 1, BYTES);
        if !overlap(blocks.iter().map(|b| b.0).collect(), *block) {
            let mut model = before;
            for (there, here) in &blocks {
                model[*there..there + block].copy_from_slice(&source[*here..here + block]);
            }
            prop_assert_eq!(pair.zero.put_strided(remote, &source, &strided), Ok(()));
            prop_assert!(pair.all(private) == model);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_numbers() {
    let pair = Pair::of(Way::Attach);
    let to = pair.remote(false);
    let shape = Strided {
        block: 10,
        counts: &[3],
        remote_strides: &[10],
        local_strides: &[10],
        ..Strided::default()
    };
    assert_eq!(pair.zero.put_strided(to, &[1; 30], &shape), Ok(()));
    let short = pair.zero.put_strided(to, &[1; 29], &shape);
    assert!(matches!(short, Err(Error::Length { given: 29, .. })), "{short:?}");
    let flat = Strided { remote_strides: &[], ..shape };
    let length = |what| Err(Error::Length { what, given: 0, expected: 1 });
    assert_eq!(pair.zero.put_strided(to, &[1; 30], &flat), length("distances in `remote_strides`"));
    let flat = Strided { local_strides: &[], ..shape };
    assert_eq!(pair.zero.put_strided(to, &[1; 30], &flat), length("distances in `local_strides`"));
    let endless = Strided { counts: &[usize::MAX], ..shape };
    let refused = pair.zero.get_strided(to, &mut [0; 30], &endless);
    assert!(matches!(refused, Err(Error::Length { .. })), "{refused:?}");
    for stride in [i64::MAX, i64::MIN] {
        let far = Strided { remote_strides: &[stride], ..shape };
        let fault = pair.zero.put_strided(to, &[1; 30], &far);
        assert!(matches!(fault, Err(Error::Fault { .. })), "{fault:?}");
    }
    for (local_start, stride) in
        [(1, 10), (19, -10), (0, -1), (usize::MAX, 10), (0, isize::MAX), (0, isize::MIN)]
    {
        let outside = Strided { local_start, local_strides: &[stride], ..shape };
        let refused = pair.zero.put_strided(to, &[1; 30], &outside);
        assert!(matches!(refused, Err(Error::Length { .. })), "{local_start}, {stride}: {refused:?}");
    }
    // More blocks than anybody could look at, one over the other.
    let endless =
        Strided { block: 1, counts: &[1 << 40], remote_strides: &[0], local_strides: &[0], ..shape };
    let refused = pair.zero.get_strided(to, &mut [0; 8], &endless);
    assert!(matches!(refused, Err(Error::Length { given: 8, .. })), "{refused:?}");
    let backwards = Strided { local_start: 20, local_strides: &[-10], ..shape };
    assert_eq!(pair.zero.put_strided(to, &[1; 30], &backwards), Ok(()));
}

#[test]
fn a_stride_does_not_wrap_around_the_address_space() {
    let node = alone(config());
    let array = node.heap().alloc_from(&[1u64, 2, 3, 4]).expect("room");
    let back =
        Strided { block: 8, counts: &[2], remote_strides: &[-8], local_strides: &[8], ..Strided::default() };
    // The block before the first one of the heap would lie at the end of the address space.
    let first: standpipe::GlobalPtr<u64> = standpipe::GlobalPtr::new(node.rank(), 0);
    let put = node.put_strided(first, &[9; 16], &back);
    assert!(matches!(put, Err(Error::Fault { peer: 0, len: 8, .. })), "{put:?}");
    let got = node.get_strided(first, &mut [0; 16], &back);
    assert!(matches!(got, Err(Error::Fault { peer: 0, len: 8, .. })), "{got:?}");
    assert_eq!(array.to_vec(), [1, 2, 3, 4]);
    node.put_strided(array.ptr(3), bytemuck::bytes_of(&[8_u64, 9]), &back)
        .expect("the word before is its own");
    assert_eq!(array.to_vec(), [1, 2, 9, 8]);
}

#[test]
fn blocks_of_no_bytes_move_nothing() {
    let node = alone(config());
    let array = node.heap().alloc_from(&[1u64]).expect("room");
    let nothing = Strided {
        block: 0,
        counts: &[4, 4],
        remote_strides: &[8, 32],
        local_strides: &[8, 32],
        ..Strided::default()
    };
    assert_eq!(node.put_strided(array.ptr(0), &[], &nothing), Ok(()));
    assert_eq!(node.get_strided(array.ptr(0), &mut [], &nothing), Ok(()));
}

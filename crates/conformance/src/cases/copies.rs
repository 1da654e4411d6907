//! Puts, gets and scatter lists.

use engine::{Direction, MemId, Place, Rank};

use crate::bench::{Bench, Dice, Make, pattern, piece};
use crate::cluster::Cluster;

const SIZES: [usize; 14] = [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 8191, 8192, 8193, 65_537, 1 << 20];
const MEMORIES: [MemId; 2] = [MemId::Space, MemId::Heap];
pub(crate) const BOTH: [Direction; 2] = [Direction::Put, Direction::Get];

/// Bytes on each side of a transfer that must stay as they are.
const GUARD: usize = 64;

pub(crate) fn transfers_of_every_size_between_all_kinds_of_memory<C: Cluster>(make: Make<'_, C>) {
    for local in MEMORIES {
        for remote in MEMORIES {
            let mut bench = Bench::new(make, 2);
            let room = SIZES[SIZES.len() - 1] + 2 * GUARD;
            let here = bench.memory(0, local, room);
            let there = bench.memory(1, remote, room);
            for (index, size) in SIZES.into_iter().enumerate() {
                for direction in BOTH {
                    move_and_check(&mut bench, direction, here, there, size, index);
                }
            }
        }
    }
}

/// Moves `size` bytes to where they are guarded on both sides; both ends start off the page's beginning.
fn move_and_check<C: Cluster>(
    bench: &mut Bench<C>,
    direction: Direction,
    here: Place,
    there: Place,
    size: usize,
    seed: usize,
) {
    let ((from, source), (to, target)) = match direction {
        Direction::Put => ((0, here), (1, there)),
        Direction::Get => ((1, there), (0, here)),
    };
    let sent = pattern(seed as u64, size + 2 * GUARD);
    let before = pattern(seed as u64 + 100, size + 2 * GUARD);
    bench.cluster.poke(from, source, &sent);
    bench.cluster.poke(to, target, &before);
    let pieces = [piece(there.plus(GUARD as u64), here.plus(GUARD as u64), size)];
    let outcome = bench.transfer(0, 1, direction, &pieces);
    let what = format!("{direction:?} of {size} bytes, {:?} here and {:?} there", here.mem, there.mem);
    assert_eq!(outcome, Ok(0), "{what}");
    let mut wanted = before;
    wanted[GUARD..GUARD + size].copy_from_slice(&sent[GUARD..GUARD + size]);
    assert!(bench.bytes(to, target, wanted.len()) == wanted, "{what}: other bytes than were sent");
    assert!(bench.bytes(from, source, sent.len()) == sent, "{what}: the source has changed");
}

pub(crate) fn scatter_lists_of_mixed_pieces<C: Cluster>(make: Make<'_, C>) {
    for direction in BOTH {
        let mut bench = Bench::new(make, 2);
        let mut dice = Dice::new(7);
        let (mut pieces, mut wanted) = (Vec::new(), Vec::new());
        let (source, target) = if direction == Direction::Put { (0, 1) } else { (1, 0) };
        for index in 0..150 {
            let len = [0, 1, 8, 100, 4096, 9000][dice.below(6) as usize];
            let from_mem = MEMORIES[dice.below(2) as usize];
            let to_mem = MEMORIES[dice.below(2) as usize];
            let bytes = pattern(index, len);
            let from = bench.filled(source, from_mem, &bytes);
            let to = bench.memory(target, to_mem, len + 16);
            wanted.push((to, [vec![0; 8], bytes, vec![0; 8]].concat()));
            let (remote, local) =
                if direction == Direction::Put { (to.plus(8), from) } else { (from, to.plus(8)) };
            pieces.push(piece(remote, local, len));
        }
        assert_eq!(bench.transfer(0, 1, direction, &pieces), Ok(0));
        for (index, (place, bytes)) in wanted.iter().enumerate() {
            let found = bench.bytes(target, *place, bytes.len());
            assert!(found == *bytes, "{direction:?}: piece {index} of the list went wrong");
        }
    }
}

pub(crate) fn an_empty_list_is_a_transfer<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    for direction in BOTH {
        assert_eq!(bench.transfer(0, 1, direction, &[]), Ok(0));
    }
    assert_eq!(bench.node(0).in_flight(), 0);
}

pub(crate) fn many_transfers_at_once<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 3);
    let mut dice = Dice::new(11);
    let (mut ops, mut wanted) = (Vec::new(), Vec::new());
    for index in 0..60u64 {
        let (rank, peer) = (dice.below(3) as Rank, dice.below(3) as Rank);
        let direction = BOTH[dice.below(2) as usize];
        let (from, to) = if direction == Direction::Put { (rank, peer) } else { (peer, rank) };
        let bytes = pattern(index, dice.below(15_000) as usize);
        let source = bench.filled(from, MEMORIES[dice.below(2) as usize], &bytes);
        let target = bench.memory(to, MEMORIES[dice.below(2) as usize], bytes.len());
        let (remote, local) = if direction == Direction::Put { (target, source) } else { (source, target) };
        let id = bench.node(rank).transfer(peer, direction, &[piece(remote, local, bytes.len())], None);
        ops.push((rank, id));
        wanted.push((to, target, bytes));
    }
    // Taken last first: outcomes wait for whoever asks.
    for (rank, id) in ops.into_iter().rev() {
        assert_eq!(bench.outcome(rank, id), Ok(0));
    }
    for (rank, place, bytes) in wanted {
        assert!(bench.bytes(rank, place, bytes.len()) == bytes, "other bytes than were sent");
    }
    assert!((0..3).all(|rank| bench.node(rank).in_flight() == 0));
}

pub(crate) fn bulk_in_both_directions_at_once<C: Cluster>(make: Make<'_, C>) {
    const LEN: usize = 100_000;
    let mut bench = Bench::new(make, 2);
    let (mut ops, mut wanted) = (Vec::new(), Vec::new());
    for rank in [0, 1] {
        for direction in BOTH {
            let peer = 1 - rank;
            let (from, to) = if direction == Direction::Put { (rank, peer) } else { (peer, rank) };
            let bytes = pattern(u64::from(rank), LEN);
            let source = bench.filled(from, MemId::Space, &bytes);
            let target = bench.memory(to, MemId::Space, LEN);
            let (remote, local) =
                if direction == Direction::Put { (target, source) } else { (source, target) };
            ops.push((rank, bench.node(rank).transfer(peer, direction, &[piece(remote, local, LEN)], None)));
            wanted.push((to, target, bytes));
        }
    }
    for (rank, id) in ops {
        assert_eq!(bench.outcome(rank, id), Ok(0));
    }
    for (rank, place, bytes) in wanted {
        assert!(bench.bytes(rank, place, LEN) == bytes, "other bytes than were sent");
    }
}

pub(crate) fn transfers_to_oneself<C: Cluster>(make: Make<'_, C>) {
    for direction in BOTH {
        let mut bench = Bench::new(make, 1);
        for (mem, len) in [(MemId::Space, 100), (MemId::Heap, 100), (MemId::Space, 70_000)] {
            let bytes = pattern(3, len);
            let source = bench.filled(0, mem, &bytes);
            let target = bench.memory(0, MemId::Space, len);
            let (remote, local) =
                if direction == Direction::Put { (target, source) } else { (source, target) };
            assert_eq!(bench.transfer(0, 0, direction, &[piece(remote, local, len)]), Ok(0));
            assert!(bench.bytes(0, target, len) == bytes, "other bytes than were sent");
        }
    }
}

pub(crate) fn a_locally_done_put_has_left_its_buffer<C: Cluster>(make: Make<'_, C>) {
    let mut bench = Bench::new(make, 2);
    for len in [1, 100, 50_000] {
        let bytes = pattern(5, len);
        let source = bench.filled(0, MemId::Space, &bytes);
        let target = bench.memory(1, MemId::Space, len);
        let id = bench.node(0).transfer(1, Direction::Put, &[piece(target, source, len)], None);
        bench.until("a put to be locally done", |bench| bench.node(0).is_locally_done(id));
        bench.cluster.poke(0, source, &pattern(6, len));
        assert_eq!(bench.outcome(0, id), Ok(0));
        assert!(bench.bytes(1, target, len) == bytes, "bytes from after the put was locally done");
    }
}

//! Removals of pages that another thread changes meanwhile, at both ends of transfers.

use engine::Direction;

use super::area::Area;
use super::pairs::{self, Pair, pairs};
use super::rows::{Ends, bytes_of};

/// Makes every pair of changes that is wanted, over ends that `make` makes, and wants the bytes of the time.
pub(crate) fn all_hold<E: Ends>(over: &str, wanted: impl Fn(&Pair) -> bool, mut make: impl FnMut() -> E) {
    let mut failed = Vec::new();
    let wanted: Vec<Pair> = pairs().filter(wanted).collect();
    assert!(!wanted.is_empty(), "no pair is wanted");
    for pair in wanted {
        let (mut ends, rounds) = (make(), pair.rounds());
        let stale = (0..rounds).filter(|round| !holds(&mut ends, &pair, *round)).count();
        let (hits, told) = ends.counts();
        eprintln!("{over}: {}: {rounds} rounds, {hits} hits, {told} told", pair.name());
        if stale > 0 {
            failed.push(format!("{over}: {}: {stale} of {rounds} got a stale byte", pair.name()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Changes the memory of one end or the other during puts or gets.
fn holds(ends: &mut impl Ends, pair: &Pair, round: u32) -> bool {
    let byte = (round % 200) as u8 + 1;
    let direction = if round.is_multiple_of(2) { Direction::Put } else { Direction::Get };
    let (here, there) = (Area::new(pairs::PAGES), Area::new(pairs::PAGES));
    let (from, to) = if direction == Direction::Put { (&here, &there) } else { (&there, &here) };
    from.fill(0xfe);
    ends.transfer(direction, &here, &there);
    let changing = if round % 4 < 2 { &here } else { &there };
    pair.change(changing, || ends.try_to_transfer(direction, &here, &there));
    from.fill(byte);
    to.fill(0xff);
    ends.transfer(direction, &here, &there);
    bytes_of(to).iter().all(|found| *found == byte)
}

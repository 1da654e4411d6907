//! Ways to change memory that is watched, by name, and what must hold of each at both ends of transfers.

use std::sync::LazyLock;

use engine::Direction;

use super::area::Area;
use super::changes::{BREAK, ROWS, Row};

/// How often each change is made, unless `STANDPIPE_CHANGE_ROUNDS` says otherwise; and without time.
const ROUNDS: u32 = 90;
const FEW_ROUNDS: u32 = 15;

/// How often at one place, as what is once in doubt may stay so.
const ROUNDS_A_PLACE: u32 = 30;

/// Names rows to hold instead of all: those whose names begin so.
pub(crate) const ONLY: &str = "STANDPIPE_CHANGE_ROWS";

/// Said where that names rows of other tests alone.
pub(crate) const NONE: &str = "no row of this test begins so";

/// Two engines whose memory is this process's.
pub(crate) trait Ends {
    /// The far one tells the near one that it may begin, as whoever changes memory must; then that puts or
    /// gets.
    fn transfer(&mut self, direction: Direction, here: &Area, there: &Area);

    /// Puts or gets while the memory changes, whatever comes of it.
    fn try_to_transfer(&mut self, direction: Direction, here: &Area, there: &Area);

    /// Transfers that were one-sided at once, and registrations that were given up because of a change.
    fn counts(&mut self) -> (u64, u64);
}

pub(crate) fn rounds() -> u32 {
    static ASKED_FOR: LazyLock<u32> = LazyLock::new(|| match std::env::var("STANDPIPE_CHANGE_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("a number"),
        Err(_) if testbed::has_time_for("90 rounds of each change instead of 15") => ROUNDS,
        Err(_) => FEW_ROUNDS,
    });
    *ASKED_FOR
}

/// Of a row; a process with many pinned pages takes long to fork, as all of these are copied then.
fn rounds_of(row: &Row) -> u32 {
    if row.name.starts_with("fork") { rounds().div_ceil(5) } else { rounds() }
}

/// Changes the memory of both ends, of one, or of the other, after transfers both ways, and wants the bytes
/// of the time. How many places it did that at; `None`: this kernel cannot.
pub(crate) fn holds(ends: &mut impl Ends, rounds: u32, row: &Row) -> Option<u32> {
    let places = rounds.div_ceil(ROUNDS_A_PLACE);
    for place in 0..places {
        let (mut here, mut there) = ((row.place)()?, (row.place)()?);
        for round in place * ROUNDS_A_PLACE..rounds.min((place + 1) * ROUNDS_A_PLACE) {
            let byte = (round % 200) as u8 + 1;
            for direction in [Direction::Put, Direction::Get] {
                let (from, to) = if direction == Direction::Put { (&here, &there) } else { (&there, &here) };
                from.fill(byte);
                to.fill(0xff);
                ends.transfer(direction, &here, &there);
                let stale = bytes_of(to).iter().position(|found| *found != byte);
                assert_eq!(stale, None, "round {round}, {direction:?}: where a byte of before is");
                let changed = (round % 3 == 1 || (row.change)(&mut here))
                    && (round % 3 == 2 || (row.change)(&mut there));
                if !changed {
                    return None;
                }
            }
        }
    }
    Some(places)
}

/// The same for every row, over ends that `make` makes.
pub(crate) fn all_hold<E: Ends>(over: &str, mut make: impl FnMut() -> E) {
    let only = std::env::var(ONLY).unwrap_or_default();
    let wanted = |row: &&Row| row.name.starts_with(&only) && (row.name != BREAK || only == BREAK);
    if !ROWS.iter().any(|row| wanted(&row)) {
        // The pairs are rows of another test.
        eprintln!("{NONE}: {only}");
    }
    for row in ROWS.iter().filter(wanted) {
        let (mut ends, rounds) = (make(), rounds_of(row));
        let Some(places) = holds(&mut ends, rounds, row) else {
            testbed::skip(format_args!("{over}: {}: this kernel cannot", row.name));
            continue;
        };
        let (hits, told) = ends.counts();
        eprintln!("{over}: {}: {rounds} rounds, {hits} hits, {told} told", row.name);
        row.told.holds(places, hits, told).unwrap_or_else(|what| panic!("{over}: {}: {what}", row.name));
    }
}

pub(crate) fn bytes_of(area: &Area) -> Vec<u8> {
    // SAFETY: the test has readable memory mapped there, in which nothing but bytes lives, and nobody writes
    // it now.
    unsafe { std::slice::from_raw_parts(area.start().cast::<u8>(), area.len()) }.to_vec()
}

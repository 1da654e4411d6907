//! Memory that changes at both ends of transfers over real providers, with every bucket registered: no byte
//! of before is ever put or got.
//!
//! `STANDPIPE_CHANGE_ROUNDS` says how often each row changes memory.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use conformance::Cluster;
use engine::{Direction, Inbox, MemId, OpError, Piece, Place, Rank};

use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use super::suite::firehose;
use crate::transport::mr_invalidation::tests::area::Area;
use crate::transport::mr_invalidation::tests::changes::BREAK;
use crate::transport::mr_invalidation::tests::removals;
use crate::transport::mr_invalidation::tests::rows::{Ends, all_hold};
use crate::transport::mr_invalidation::tests::{alone, in_a_process_of_its_own};
use crate::transport::mr_invalidation::{ChangeSource, apply_changes};

/// Where one rank writes what it tells the other.
static FLAGS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Two ranks in this process.
struct Pair(OfiCluster);

impl Ends for Pair {
    fn transfer(&mut self, direction: Direction, here: &Area, there: &Area) {
        assert_eq!(self.run(1, Direction::Put, FLAGS.each_ref().map(|flag| flag.as_ptr() as u64), 8), Ok(0));
        assert_eq!(self.run(0, direction, [here.addr, there.addr], here.len), Ok(0));
    }

    fn try_to_transfer(&mut self, direction: Direction, here: &Area, there: &Area) {
        // Nothing may be mapped there now.
        let _ = self.run(0, direction, [here.addr, there.addr], here.len);
    }

    fn counts(&mut self) -> (u64, u64) {
        let counters = [0, 1].map(|rank| self.0.node(rank).registration_counters());
        (counters[0].hits, counters.iter().map(|counters| counters.table.invalidations).sum())
    }
}

impl Pair {
    fn new(setting: Setting<'_>) -> Pair {
        let mut cluster = OfiCluster::new(2, setting);
        (0..2).for_each(|rank| cluster.transport(rank).memory = ChangeSource::watched());
        Pair(cluster)
    }

    fn run(
        &mut self,
        rank: Rank,
        direction: Direction,
        [here, there]: [u64; 2],
        len: u64,
    ) -> Result<u64, OpError> {
        let place = |addr| Place::new(MemId::Space, addr);
        let piece = Piece::new(place(there), place(here), len).expect("it does not wrap");
        let node = self.0.node(rank);
        apply_changes(node);
        let op = node.transfer(1 - rank, direction, &[piece], None);
        let (start, mut inbox) = (Instant::now(), Inbox::default());
        loop {
            if let Some(outcome) = self.0.node(rank).outcome(op) {
                return outcome;
            }
            assert!(start.elapsed() < LIMIT, "it does not end");
            for rank in 0..2 {
                apply_changes(self.0.node(rank));
                self.0.node(rank).poll(&mut inbox);
            }
        }
    }
}

#[test]
fn no_byte_of_before_a_change_is_transferred() {
    if vm::Monitor::of_process().is_err() || providers().is_empty() {
        return testbed::skip("no monitor of memory, or no provider");
    }
    in_a_process_of_its_own(
        "transport::ofi::tests::changes::no_byte_of_before_a_change_is_transferred",
        || {
            over_each_provider(|provider, setting| all_hold(provider, || Pair::new(setting)));
        },
    );
}

/// What leaves memory for a while that cannot be accessed: some providers take that for the end of a
/// connection.
const HOLES: [&str; 5] = ["munmap", "mremap away", "mremap shrink", "mremap grow", "mprotect"];

#[test]
fn no_byte_of_before_a_removal_that_others_meet_is_transferred() {
    over_each_provider(|provider, setting| {
        let wanted = |name: &str| !HOLES.iter().any(|other| name.contains(other)) && name.ends_with("tail");
        removals::all_hold(provider, |pair| wanted(&pair.name()), || Pair::new(setting));
    });
}

fn over_each_provider(holds: impl Fn(&str, Setting<'_>)) {
    if let Err(error) = vm::Monitor::of_process() {
        return testbed::skip(&error);
    }
    for provider in providers() {
        let setting = Setting {
            provider: &provider,
            registration: Some(firehose(64, 16)),
            confirms: false,
            registers_local: false,
            pins: false,
            send_timeout: LIMIT,
        };
        holds(&provider.description().provider, setting);
    }
}

#[test]
fn the_break_moves_in_a_process_of_its_own() {
    if vm::Monitor::of_process().is_ok() && !providers().is_empty() {
        alone("transport::ofi::tests::changes::no_byte_of_before_a_change_is_transferred", BREAK, None);
    }
}

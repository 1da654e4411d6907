//! Storms over many seeds.

use sim::Faults;
use sim::storm::{Outcome, Storm};

/// Combinations of faults that each seed takes one of.
const WEATHERS: [&str; 8] = [
    "late",
    "late,delay,reorder",
    "register-fail,register-slow,reorder",
    "shrink,register-slow",
    "unmap=100,delay,reorder",
    "stop=0.5,delay,reorder",
    "late,mute=1,unmap=50,delay,reorder",
    "late,delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5",
];

fn storm(nodes: u32, seed: u64, steps: u64, faults: &str) -> Storm {
    let faults: Faults = faults.parse().expect("the faults above are faults");
    Storm { nodes, seed, steps, faults, costs: None }
}

fn pass(storm: &Storm) -> Outcome {
    storm.run(|_| ()).unwrap_or_else(|failure| panic!("{failure}"))
}

fn nth(seed: u64, steps: u64) -> Storm {
    storm(2 + (seed / 8 % 5) as u32, seed, steps, WEATHERS[(seed % 8) as usize])
}

#[test]
fn thousands_of_seeds_pass() {
    let operations: u64 = (0..2400).map(|seed| pass(&nth(seed, 400)).operations).sum();
    assert!(operations > 100_000, "{operations} operations only");
}

/// Combinations with ranks that restart, of which each seed takes one.
const RESTARTS: [&str; 8] = [
    "restart=2",
    "restart=10,late,delay,reorder",
    "restart=50,reorder",
    "restart=5,register-slow,register-fail=0.02,reorder",
    "restart=5,shrink,unmap=50,delay,reorder",
    "restart=5,stop=0.5,delay,reorder",
    "restart=5,mute=2,unmap=50,delay,reorder",
    "restart=2,late,delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5",
];

#[test]
fn thousands_of_seeds_with_restarts_pass() {
    let nth = |seed: u64| storm(2 + (seed / 8 % 5) as u32, seed, 600, RESTARTS[(seed % 8) as usize]);
    let operations: u64 = (0..2400).map(|seed| pass(&nth(seed)).operations).sum();
    assert!(operations > 100_000, "{operations} operations only");
}

/// Of those of a seventh of all seeds, ranks grant memory, revoke and re-point names, and go by old ones.
#[test]
fn a_thousand_seeds_that_grant_memory_pass() {
    let nth = |turn: u64| {
        let seed = 7 * turn + 3;
        let faults = [WEATHERS, RESTARTS].as_flattened()[(turn % 16) as usize];
        storm(2 + (turn / 16 % 5) as u32, seed, 600, faults)
    };
    let operations: u64 = (0..1000).map(|turn| pass(&nth(turn)).operations).sum();
    assert!(operations > 100_000, "{operations} operations only");
}

/// News of changed memory takes its time to get round.
#[test]
fn longer_storms_over_changing_memory_pass() {
    for seed in (0..160).filter(|seed| nth(*seed, 0).faults.unmap > 0.0) {
        pass(&nth(seed, 1500));
    }
}

#[test]
fn a_storm_is_the_same_again() {
    for seed in [3, 7, 15] {
        assert_eq!(nth(seed, 2000).run(|_| ()), nth(seed, 2000).run(|_| ()));
    }
}

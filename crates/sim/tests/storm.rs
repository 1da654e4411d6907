//! Storms over many seeds, and those that once found something.

use sim::Faults;
use sim::storm::{Outcome, Storm};

/// Combinations of faults that each seed takes one of.
const WEATHERS: [&str; 8] = [
    "",
    "delay,reorder",
    "register-fail,register-slow,reorder",
    "shrink,register-slow",
    "unmap=20,delay,reorder",
    "stop=0.5,delay,reorder",
    "mute=1,unmap=10,delay,reorder",
    "delay,reorder,register-fail=0.02,register-slow,shrink,unmap=20,stop=0.2,mute=0.5",
];

/// What once failed: ranks, seed, steps, faults; and what it was.
const FOUND: [(u32, u64, u64, &str, &str); 7] = [
    (6, 9, 2000, "", "an operation that was given up kept its rights"),
    (2, 155, 500, "unmap=20", "a right was used whose revocation had overtaken it"),
    (2, 125, 2000, "delay,reorder,unmap=20", "a move was never sent, and what it was to give up was lost"),
    (3, 451, 2000, "delay,reorder,unmap=20", "likewise"),
    (3, 6, 2000, "delay,mute=1,reorder,unmap=10", "a lost peer was given rights"),
    (4, 147, 2000, "delay,mute=1,reorder,unmap=10", "likewise"),
    (6, 534, 1500, "delay,mute=1,reorder,unmap=10", "a rank gave another up when it was no longer mute"),
];

fn storm(nodes: u32, seed: u64, steps: u64, faults: &str) -> Storm {
    let faults: Faults = faults.parse().expect("the faults above are faults");
    Storm { nodes, seed, steps, faults, costs: None }
}

fn pass(storm: &Storm) -> Outcome {
    storm.run().unwrap_or_else(|failure| panic!("{failure}"))
}

fn nth(seed: u64, steps: u64) -> Storm {
    storm(2 + (seed / 8 % 5) as u32, seed, steps, WEATHERS[(seed % 8) as usize])
}

#[test]
fn thousands_of_seeds_pass() {
    let operations: u64 = (0..2400).map(|seed| pass(&nth(seed, 400)).operations).sum();
    assert!(operations > 100_000, "{operations} operations only");
}

#[test]
fn what_once_failed_passes() {
    for (nodes, seed, steps, faults, _) in FOUND {
        pass(&storm(nodes, seed, steps, faults));
    }
}

#[test]
fn a_storm_is_the_same_again() {
    for seed in [3, 7, 15] {
        assert_eq!(nth(seed, 2000).run(), nth(seed, 2000).run());
    }
}

//! The suite over the reference transport, in every setting and for many seeds: the engine's own test bed.

extern crate standpipe_conformance as conformance;

use conformance::cases;
use conformance::memory::{MemoryCluster, OneSided, Settings};

/// The settings of a seed.
fn settings(seed: u64) -> Settings {
    let of = |shift: u32, bound: usize| (seed.wrapping_mul(0x9e37_79b9) >> shift) as usize % bound;
    Settings {
        seed,
        copies: OneSided::ALL[seed as usize % 5],
        atomics: OneSided::ALL[seed as usize / 5 % 4],
        lane_messages: 1 + of(3, 4),
        payload_max: [300, 1024, 2000, 4096][of(9, 4)],
    }
}

/// The case that moves megabytes; it has its turn for some of the seeds.
const LONG: &str = "transfers_of_every_size_between_all_kinds_of_memory";

fn run_seeds(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let all = cases::<MemoryCluster>();
        assert!(all.iter().any(|(name, _)| *name == LONG), "the long case has another name now");
        for (name, case) in all.into_iter().filter(|(name, _)| seed % 16 < 4 || *name != LONG) {
            let run = || case(&mut |size| MemoryCluster::new(size, settings(seed)));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("{name} failed with {:?}", settings(seed));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

mod by_message {
    use super::*;
    const PLAIN: Settings = Settings {
        seed: 1,
        copies: OneSided::Off,
        atomics: OneSided::Immediate,
        lane_messages: 4,
        payload_max: 1024,
    };
    conformance::conformance_tests!(|size| MemoryCluster::new(size, PLAIN));
}

mod without_atomics {
    use super::*;
    const BARE: Settings = Settings {
        seed: 2,
        copies: OneSided::Off,
        atomics: OneSided::Off,
        lane_messages: 1,
        payload_max: 200,
    };
    conformance::conformance_tests!(|size| MemoryCluster::new(size, BARE));
}

mod one_sided {
    use super::*;
    const PENDING: Settings = Settings {
        seed: 3,
        copies: OneSided::Pending,
        atomics: OneSided::Pending,
        lane_messages: 2,
        payload_max: 1024,
    };
    conformance::conformance_tests!(|size| MemoryCluster::new(size, PENDING));
}

mod through_stages {
    use super::*;
    const STAGED: Settings = Settings {
        seed: 4,
        copies: OneSided::Staged,
        atomics: OneSided::Immediate,
        lane_messages: 3,
        payload_max: 500,
    };
    conformance::conformance_tests!(|size| MemoryCluster::new(size, STAGED));
}

/// Without optimisation a seed takes a third of a second; every setting still has its turn.
const SEEDS: u64 = if cfg!(debug_assertions) { 16 } else { 200 };

#[test]
fn many_seeds_hold_in_every_setting_even() {
    run_seeds((0..SEEDS).step_by(2));
}

#[test]
fn many_seeds_hold_in_every_setting_odd() {
    run_seeds((1..SEEDS).step_by(2));
}

//! The suite that every transport passes, over the simulator: every machine, all that cards reach, and faults
//! that delay and reorder. It is the engine's own test bed, too.

mod polled;

use conformance::cases;
use sim::{Costs, Reach};

use polled::Polled;

mod gm {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(
        size,
        Costs::myrinet_gm_2003(),
        Reach::Everything,
        "",
        1
    ));
}

mod heap_only {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, Costs::myrinet_gm_2003(), Reach::Heap, "", 2));
}

mod infiniband_in_bad_weather {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(
        size,
        Costs::infiniband_modern(),
        Reach::Everything,
        "delay,reorder",
        3
    ));
}

mod by_message {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Words, "delay,reorder", 6));
}

mod without_atomics {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Nothing, "delay,reorder", 7));
}

mod at_once {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::AtOnce, "delay,reorder", 8));
}

/// Lanes of this kind are full all the time.
fn narrow() -> Costs {
    Costs { lane_messages: 1, payload_max_bytes: 300, ..Costs::myrinet_pm_1998() }
}

mod narrow_lanes {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Heap, "delay,reorder", 4));
}

mod through_stages {
    use super::*;
    conformance::conformance_tests!(|size| Polled::new(size, narrow(), Reach::Stages, "delay,reorder", 5));
}

/// Where messages leave later than they are sent.
fn gathering(costs: Costs) -> Costs {
    Costs { gathers: true, ..costs }
}

mod gathering_in_bad_weather {
    use super::*;
    conformance::conformance_tests!(|size| {
        let costs = gathering(Costs::infiniband_modern());
        Polled::new(size, costs, Reach::Words, "delay,reorder", 9)
    });
}

mod gathering_in_narrow_lanes {
    use super::*;
    conformance::conformance_tests!(|size| {
        Polled::new(size, gathering(narrow()), Reach::Stages, "delay,reorder", 10)
    });
}

/// The case that moves megabytes; the settings above run it.
const LONG: &str = "transfers_of_every_size_between_all_kinds_of_memory";

/// Without optimisation a seed takes a while.
const SEEDS: u64 = if cfg!(debug_assertions) { 12 } else { 150 };

const REACHES: [Reach; 6] =
    [Reach::Nothing, Reach::Words, Reach::AtOnce, Reach::Everything, Reach::Heap, Reach::Stages];

#[test]
fn many_seeds_hold() {
    for seed in 0..SEEDS {
        let costs = || match (seed + seed / 6) % 4 {
            0 => Costs::myrinet_gm_2003(),
            1 => Costs::infiniband_modern(),
            2 => narrow(),
            _ => Costs { lane_messages: 3, payload_max_bytes: 1000, ..Costs::myrinet_pm_1998() },
        };
        let reach = REACHES[seed as usize % REACHES.len()];
        let all = cases::<Polled>();
        assert!(all.iter().any(|(name, _)| *name == LONG), "the long case has another name now");
        for (name, case) in all.into_iter().filter(|(name, _)| *name != LONG) {
            let gathers = |gathers| {
                case(&mut |size| {
                    let costs = Costs { gathers, ..costs() };
                    Polled::new(size, costs, reach, "delay=0.05,reorder", seed)
                })
            };
            let run = || [false, true].into_iter().for_each(gathers);
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!("{name} failed with seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

//! The simulator does today what it did before, bit by bit: every message, registration, one-sided operation
//! and fault, and when.
//!
//! `digests.txt` has a line for each storm. A change of the engine that is to change nothing changes none of
//! them. One that is to change something is a commit of its own, which writes the file anew
//! (`STANDPIPE_TEST_DIGESTS=write`) and says in its body which seeds have changed and why.

use std::fmt::Write;
use std::path::Path;

use sim::Faults;
use sim::storm::Storm;

/// Faults, and how many steps their storms have.
const WEATHERS: [(&str, u64); 18] = [
    ("", 400),
    ("delay,reorder", 400),
    ("register-fail,register-slow,reorder", 400),
    ("shrink,register-slow", 400),
    ("unmap=100,delay,reorder", 400),
    ("stop=0.5,delay,reorder", 400),
    ("mute=1,unmap=50,delay,reorder", 400),
    ("delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5", 400),
    ("restart=2", 600),
    ("restart=10,delay,reorder", 600),
    ("restart=50,reorder", 600),
    ("restart=5,register-slow,register-fail=0.02,reorder", 600),
    ("restart=5,shrink,unmap=50,delay,reorder", 600),
    ("restart=5,stop=0.5,delay,reorder", 600),
    ("restart=5,mute=2,unmap=50,delay,reorder", 600),
    ("restart=2,delay,reorder,register-fail=0.02,register-slow,shrink,unmap=50,stop=0.2,mute=0.5", 600),
    ("late,delay,reorder", 400),
    ("restart=5,late,unmap=50,delay,reorder", 600),
];

/// Of each. A seed picks the strategy of registration, its limits, the machine, and everything that programs
/// do.
const SEEDS: u64 = 200;

/// Lines that a failure shows.
const SHOWN: usize = 20;

/// Says that the file is to be written, and not compared.
const MODE: &str = "STANDPIPE_TEST_DIGESTS";

fn line(faults: &str, steps: u64, seed: u64) -> String {
    let nodes = 2 + (seed % 5) as u32;
    let storm = Storm { nodes, seed, steps, faults: faults.parse::<Faults>().expect("faults"), costs: None };
    let outcome = storm.run(|_| ()).unwrap_or_else(|failure| panic!("{failure}"));
    let named = if faults.is_empty() { "none" } else { faults };
    format!("{:016x} {seed:3} {named}", outcome.fingerprint)
}

#[test]
fn everything_that_happens_is_what_it_was() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    let mut now = String::new();
    for (faults, steps) in WEATHERS {
        for seed in 0..SEEDS {
            writeln!(now, "{}", line(faults, steps, seed)).expect("room for a line");
        }
    }
    if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
        return std::fs::write(&file, now).expect("the file is written");
    }
    let before = std::fs::read_to_string(&file).expect("the file is there");
    assert_eq!(before.lines().count(), now.lines().count(), "storms");
    let changed: Vec<&str> =
        before.lines().zip(now.lines()).filter(|(before, now)| before != now).map(|(_, now)| now).collect();
    let shown = changed.iter().take(SHOWN).copied().collect::<Vec<_>>().join("\n");
    assert!(changed.is_empty(), "{} storms are not what they were, among them\n{shown}", changed.len());
}

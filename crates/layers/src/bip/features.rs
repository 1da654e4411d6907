//! The layer's column in the study's table.

use crate::features::Feature;

const fn feature(feature: &'static str, holds: &'static str, test: &'static str) -> Feature {
    Feature { layer: "bip", feature, holds, test }
}

/// BIP's behaviour in each respect, and the test that shows it.
pub const FEATURES: &[Feature] = &[
    feature("paradigm", "send and receive, matched by tags", "crates/layers-c/tests/bip.rs::tags"),
    feature(
        "protection",
        "none: a receiver reads any memory of a sender's, registered or not",
        "crates/layers-c/tests/bip.rs::lengths",
    ),
    feature(
        "multiprogramming",
        "jobs of one host side by side",
        "crates/layers-c/tests/bip.rs::jobs_side_by_side",
    ),
    feature(
        "loss handling",
        "detected: a lost process ends every wait, and nothing recovers",
        "crates/layers-c/tests/bip.rs::losses",
    ),
    feature(
        "order",
        "of one sender with one tag, short and long ones mixed",
        "crates/layers-c/tests/bip.rs::order",
    ),
    feature(
        "flow control",
        "a window: the declared buffers and 1,024",
        "crates/layers-c/tests/bip.rs::held_back",
    ),
    feature("send path", "short: 1 copy, long: none", "crates/layers/tests/bip.rs::copies"),
    feature("receive copies", "short: 1, in place 0; long: 0", "crates/layers/tests/bip.rs::copies"),
    feature("notification", "polling", "crates/layers-c/tests/bip.rs::polling"),
    feature("threads", "one at a time", "crates/layers-c/tests/bip.rs::threads"),
    feature("message size", "any length of an int, in words", "crates/layers-c/tests/bip.rs::large"),
];

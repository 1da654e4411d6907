//! VIA's cells of the study's table.

use crate::features::Feature;

/// A cell with the test of the C interface behind it.
macro_rules! cell {
    ($feature:literal, $holds:literal, $test:literal) => {
        Feature {
            layer: "via",
            feature: $feature,
            holds: $holds,
            test: concat!("crates/layers-c/tests/via.rs::", $test),
        }
    };
}

/// VIA's behaviour in each respect, with the test that shows it.
pub const FEATURES: &[Feature] = &[
    cell!("paradigm", "send and receive by connection, remote write and read", "data_goes_both_ways"),
    cell!("protection", "by connection, and by tags of memory", "memory_is_protected"),
    cell!("multiprogramming", "yes: each VI is its own", "data_goes_both_ways"),
    cell!(
        "loss handling",
        "reliable below; a lost peer breaks its connections",
        "a_dead_peer_breaks_its_connections"
    ),
    cell!("order", "yes, by VI", "data_goes_both_ways"),
    cell!("flow control", "none: a receive must be posted", "every_status_arises"),
    cell!("send path", "up to 4 KiB in the message; longer ones are fetched", "data_goes_both_ways"),
    cell!("receive copies", "up to 4 KiB 1; longer ones and remote writes 0", "data_goes_both_ways"),
    cell!("notification", "poll, wait, or a handler on a thread of the layer's", "handlers_are_called"),
    cell!("threads", "any; the layer has two of its own", "handlers_are_called"),
    cell!("message size", "1 GiB", "data_goes_both_ways"),
];

//! PM's cells of the study's table.

use crate::features::Feature;

/// A cell with the test of the C interface behind it.
macro_rules! cell {
    ($feature:literal, $holds:literal, $test:literal) => {
        Feature {
            layer: "pm",
            feature: $feature,
            holds: $holds,
            test: concat!("crates/layers-c/tests/pm.rs::", $test),
        }
    };
}

/// PM's behaviour in each respect, with the test that shows it.
pub const FEATURES: &[Feature] = &[
    cell!("paradigm", "messages and remote write", "writes_and_reads_need_locks_at_both_ends"),
    cell!(
        "protection",
        "by channel; of memory, by what is locked",
        "writes_and_reads_need_locks_at_both_ends"
    ),
    cell!("multiprogramming", "by channel; no gang switch", "each_pair_and_context_keeps_its_order"),
    Feature {
        layer: "pm",
        feature: "loss handling",
        holds: "reliable below; damaged messages dropped and told of, a lost peer is a reset",
        test: "crates/layers-c/tests/pm.rs::a_peer_that_is_killed_ends_all_waits",
    },
    cell!("order", "yes, by pair and channel", "each_pair_and_context_keeps_its_order"),
    cell!("flow control", "a window by pair and channel", "buffers_have_their_limits_and_locks"),
    cell!(
        "send path",
        "written in place, sent by the transport; up to 16 bytes as words",
        "buffers_have_their_limits_and_locks"
    ),
    Feature {
        layer: "pm",
        feature: "receive copies",
        holds: "0 on write; read in place; up to 16 bytes copied",
        test: "crates/layers/tests/pm_mpi.rs::nothing_is_copied_by_the_layer_while_payloads_can_be_kept",
    },
    Feature {
        layer: "pm",
        feature: "notification",
        holds: "poll",
        test: "crates/layers/tests/pm_mpi.rs::nothing_arrives_but_by_polling",
    },
    cell!("threads", "no: one at a time", "calls_of_two_threads_go_one_after_the_other"),
    cell!("message size", "8 KiB; writes of any length", "buffers_have_their_limits_and_locks"),
];

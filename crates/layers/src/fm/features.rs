//! FM's column of the study's table.

use crate::features::Feature;

/// The layer's behaviour in each respect of the study's table, with the test that shows it.
pub const FEATURES: &[Feature] = &[
    feature(
        "paradigm",
        "streams of pieces, and handlers that receive them as they come",
        "crates/layers-c/tests/fm.rs::a_handler_starts_on_the_first_packet",
    ),
    feature(
        "protection",
        "none: every node sends to every handler of every other",
        "crates/layers-c/tests/fm.rs::messages_come_whole_and_in_order",
    ),
    feature(
        "multiprogramming",
        "several jobs on a host, side by side",
        "crates/layers-c/tests/fm.rs::two_jobs_run_side_by_side",
    ),
    feature(
        "loss handling",
        "nothing is lost; a lost node ends waits, and its messages' handlers are set aside",
        "crates/layers-c/tests/fm.rs::the_handler_of_a_lost_sender_is_set_aside_and_others_go_on",
    ),
    feature("order", "yes, by sender", "crates/layers-c/tests/fm.rs::messages_come_whole_and_in_order"),
    feature(
        "flow control",
        "credits, returned as the receiver extracts",
        "crates/layers-c/tests/fm.rs::a_sender_waits_only_when_the_room_is_full",
    ),
    feature(
        "send path",
        "processor, straight from the piece; parts of packets are copied once more",
        "crates/layers/tests/fm.rs::a_whole_piece_is_not_copied_and_parts_of_packets_are",
    ),
    feature(
        "receive copies",
        "1 of the layer, in FM_receive",
        "crates/layers/tests/fm.rs::a_whole_piece_is_not_copied_and_parts_of_packets_are",
    ),
    feature(
        "notification",
        "poll, by FM_extract",
        "crates/layers-c/tests/fm.rs::extract_stops_after_the_packet_that_reaches_its_bound",
    ),
    feature(
        "threads",
        "all may send and extract; handlers run one at a time, each on one thread",
        "crates/layers-c/tests/fm.rs::threads_send_and_extract_and_handlers_run_one_at_a_time",
    ),
    feature(
        "message size",
        "any, in packets of 8 KiB",
        "crates/layers-c/tests/fm.rs::a_message_may_be_shorter_than_announced",
    ),
];

const fn feature(feature: &'static str, holds: &'static str, test: &'static str) -> Feature {
    Feature { layer: "fm", feature, holds, test }
}

//! Fast Messages 2.x: messages as streams of pieces, and handlers that receive them piece by piece.
//!
//! A sender [begins](Fm::begin) a message, sends it [in pieces](Fm::send_piece) and [ends](Fm::end) it. At
//! its receiver [`Fm::extract`] starts the message's handler when the first packet has come. The handler
//! [receives](Incoming::receive) as many bytes as it likes at a time; where they have not come it waits, on a
//! stack of its own, and others run. Nothing runs but in the program's own calls, and what a program does not
//! extract stays bounded: senders wait.

mod arrivals;
mod assembly;
mod body;
mod credits;
mod endpoint;
mod extract;
mod incoming;
mod lock;
mod notices;
mod port;
mod runner;
mod send;
mod shared;
mod stream;
mod table;
#[doc(hidden)]
pub mod wire;

pub use endpoint::{Counts, Fm, OpenError};
pub use extract::NESTING_MAX;
pub use incoming::{Dispatch, Done, Incoming};
pub use notices::Notice;
pub use send::{BeginError, SendError, Sending};
pub use table::{HANDLERS, HANDLERS_MAX, Table, TableError};

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

#[cfg(test)]
mod tests {
    use super::FEATURES;
    use crate::features::NAMES;

    #[test]
    fn every_feature_has_its_cell() {
        let names: Vec<&str> = FEATURES.iter().map(|feature| feature.feature).collect();
        assert_eq!(names, NAMES);
    }
}

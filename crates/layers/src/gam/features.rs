//! This layer's column of the study's table.

use crate::features::Feature;

const fn feature(feature: &'static str, holds: &'static str, test: &'static str) -> Feature {
    Feature { layer: "gam", feature, holds, test }
}

/// The layer's behaviour in each respect, and the test that shows it.
pub const FEATURES: &[Feature] = &[
    feature(
        "paradigm",
        "requests that run functions, one reply each, stores and gets",
        "crates/layers-c/tests/gam/main.rs::requests_and_replies_of_all_lengths_carry_their_words",
    ),
    feature(
        "protection",
        "none: every process writes and reads any variable of any other",
        "crates/layers-c/tests/gam/main.rs::variables_and_functions_have_one_address_in_all_processes",
    ),
    feature(
        "multiprogramming",
        "jobs run side by side, as processes of the system",
        "crates/layers-c/tests/gam/main.rs::jobs_run_side_by_side",
    ),
    feature(
        "loss handling",
        "a lost process ends the others, in words",
        "crates/layers-c/tests/gam/main.rs::a_peer_that_is_killed_ends_all_waits",
    ),
    feature(
        "order",
        "requests of a process in the order sent",
        "crates/layers-c/tests/gam/main.rs::requests_of_one_process_come_in_order",
    ),
    feature(
        "flow control",
        "30 credits a pair, given back by replies; up to 15 empty ones travel in one message",
        "crates/layers-c/tests/gam/main.rs::thirty_requests_leave_at_once_and_the_next_waits",
    ),
    feature(
        "send path",
        "words in the message; stores directly from the program's memory",
        "crates/layers/tests/gam.rs::medium_messages_alone_are_copied_by_the_layer",
    ),
    feature(
        "receive copies",
        "none: stores land in place; medium messages are read where they came, in C in a copy to write",
        "crates/layers/tests/gam.rs::medium_messages_alone_are_copied_by_the_layer",
    ),
    feature(
        "notification",
        "poll, or am_sleep and am_wait_for, which sleep",
        "crates/layers-c/tests/gam/main.rs::am_sleep_runs_handlers_for_its_time",
    ),
    feature(
        "threads",
        "one, which handlers run on, too",
        "crates/layers-c/tests/gam/main.rs::handlers_run_in_the_programs_calls_on_its_thread",
    ),
    feature(
        "message size",
        "16,384 bytes a store or a get, 8,192 a medium message; nothing is cut",
        "crates/layers-c/tests/gam/main.rs::bad_arguments_are_refused_and_cost_nothing",
    ),
];

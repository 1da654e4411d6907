//! All bursts: of each operation around each limit of places, over each route. `cargo test` begins with them,
//! for seconds or, where it has time, for a minute.

use crate::command::run;
use crate::form::Form;
use crate::outcome::Outcome;
use crate::verbs::{Step, over_verbs};

const TESTS: &str = "cargo test --package standpipe --test bursts -- --nocapture --test-threads 1";

/// Seconds for each route, and for all of them: far more than they take.
const ROUTE_LIMIT_S: u32 = 3600;
const LIMIT_S: u64 = 5 * ROUTE_LIMIT_S as u64;

/// The same over verbs, in an emulated machine.
const OVER_VERBS: [Step; 1] = [Step {
    program: "bursts",
    args: "--nocapture bursts_over_providers_that_are_named",
    env: "STANDPIPE_TEST_BURST_S=14400 STANDPIPE_TEST_BURST_CASE_S=60",
    limit_s: 5 * ROUTE_LIMIT_S,
}];

/// Every case of every route that this machine has, or of verbs.
pub(crate) fn bursts(verbs: bool) -> Outcome {
    if verbs {
        return over_verbs(Form::Long, &OVER_VERBS);
    }
    run(TESTS).env("STANDPIPE_TEST_BURST_S", ROUTE_LIMIT_S.to_string()).limit_s(LIMIT_S).status().into()
}

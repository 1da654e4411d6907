//! The long run over memory that changes: each way to change it, so many times, at both ends of transfers.

use crate::command::run;
use crate::filters::each_names_a_test;
use crate::outcome::Outcome;

/// Seconds for everything, at most.
const LIMIT_S: u64 = 6 * 3600;

/// How the tests are built and started, and those that look at every row: over pins of the kernel's, by other
/// allocators, and over libfabric's providers.
const TESTS: &str = "cargo test --release --package standpipe --lib --";
const ROWS: &str = "mr_invalidation::tests ofi::tests::changes";

/// Changes memory in each way, so many times over each provider.
pub(crate) fn changes(rounds: u32) -> Outcome {
    let all = || {
        each_names_a_test(ROWS, || run(TESTS).arg("--list"))?;
        let rows = run(&format!("{TESTS} --nocapture --test-threads 1 {ROWS}"));
        rows.env("STANDPIPE_CHANGE_ROUNDS", rounds.to_string()).limit_s(LIMIT_S).status()
    };
    all().into()
}

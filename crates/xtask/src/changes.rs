//! The long run over memory that changes: each way to change it, so many times, at both ends of transfers.

use crate::command::run;
use crate::outcome::Outcome;

/// Seconds for everything, at most.
const LIMIT_S: u64 = 6 * 3600;

/// The tests that look at every row: over pins of the kernel's, by other allocators, and over libfabric's providers.
const TESTS: &str = "cargo test --release --package standpipe --lib -- --nocapture --test-threads 1 memory::tests \
                     ofi::tests::changes";

/// Changes memory in each way, so many times over each provider.
pub(crate) fn changes(rounds: u32) -> Outcome {
    run(TESTS).env("STANDPIPE_CHANGE_ROUNDS", rounds.to_string()).limit_s(LIMIT_S).status().into()
}

//! The long run of real processes: storms over ever new seeds, each form and transport in turn.

use std::time::{Duration, Instant};

use crate::command::{Failure, run};
use crate::outcome::Outcome;

/// One storm of each form and transport.
const TESTS: &str = "cargo test --package standpipe --test storm -- --nocapture --test-threads 1";

/// Seconds for one of each, at most.
const ROUND_LIMIT_S: u64 = 1200;

/// Storms from `seed` on, until so many minutes are over. The last round is brought to its end.
pub(crate) fn real_storms(minutes: u64, seed: u64) -> Outcome {
    go_on(Duration::from_secs(60 * minutes), seed).into()
}

fn go_on(time: Duration, first: u64) -> Result<(), Failure> {
    let started = Instant::now();
    let mut seed = first;
    while started.elapsed() < time {
        let round = run(TESTS)
            .env("STANDPIPE_TEST_LONG", "1")
            .env("STANDPIPE_TEST_SEED", seed.to_string())
            .env("STANDPIPE_TEST_STACKS", "yes");
        round.limit_s(ROUND_LIMIT_S).status()?;
        let (minutes, of) = (started.elapsed().as_secs() / 60, time.as_secs() / 60);
        println!("{minutes} min of {of}: seeds {first} to {seed}, nothing wrong");
        seed += 1;
    }
    Ok(())
}

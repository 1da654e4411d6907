//! The programs of an older commit and of this one in the same jobs: whatever they say to each other must not
//! have changed.

use crate::command::{Failure, root, run};
use crate::outcome::Outcome;
use std::path::PathBuf;

/// The storms in which every second process is the other commit's.
const STORMS: &str = "cargo test --package standpipe --test storm -- --nocapture --test-threads 1";

/// Seconds for one storm of each form and transport, at most.
const STORMS_LIMIT_S: u64 = 1200;

/// One storm of each form and transport, of processes of this tree and of `commit` in turn.
pub(crate) fn beside(commit: &str) -> Outcome {
    let all = || {
        let other = storm_of(commit)?;
        let storms =
            run(STORMS).env("STANDPIPE_TEST_LONG", "1").env("STANDPIPE_TEST_BESIDE", other.as_os_str());
        storms.env("STANDPIPE_TEST_STACKS", "yes").limit_s(STORMS_LIMIT_S).status()
    };
    all().into()
}

/// Builds the storm of that commit in a clone of its own.
fn storm_of(commit: &str) -> Result<PathBuf, Failure> {
    let folder = root().join("target/beside");
    let (tree, built) = (folder.join("tree"), folder.join("target"));
    if !tree.join(".git").exists() {
        run("git clone --quiet --shared --no-checkout").arg(root()).arg(&tree).status()?;
    }
    // The clone has no objects of its own: it also finds commits that are younger.
    let commit = run("git rev-parse --verify").arg(format!("{commit}^{{commit}}")).output()?;
    run("git checkout --quiet --detach").arg(commit.trim()).dir(&tree).status()?;
    let build = run("cargo test --package standpipe --test storm --no-run --message-format=json");
    let told = build.env("CARGO_TARGET_DIR", &built).dir(&tree).output()?;
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    told.lines()
        .filter_map(program)
        .next_back()
        .ok_or_else(|| Failure("cargo names no program of tests".into()))
}

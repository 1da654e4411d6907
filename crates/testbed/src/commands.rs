//! Commands as children: how they end, and what a refusal looks like.

use std::process::{Child, Output};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for a command, or for a sign of it, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for a command whose output is piped, and kills it if it takes longer than [`PATIENCE`].
///
/// # Panics
/// When it takes longer.
pub fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().expect("our child");
            panic!("no end after {PATIENCE:?}: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("our child")
}

/// Makes sure that a command refused these words: with exit status 2, nothing on standard output, and few
/// lines that have `said` in them and name no temporary file of its own.
///
/// # Panics
/// When it did not.
pub fn assert_refused(words: &[&str], said: &str, output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code().expect("not killed");
    assert!(output.stdout.is_empty(), "{words:?}: {error}");
    let temporary = ["at path", ".costs-", ".recording-"].iter().any(|part| error.contains(part));
    assert!(status == 2 && !temporary, "{words:?}: {status}: {error}");
    assert!(error.contains(said) && error.lines().count() < 8, "{words:?}: {error}");
}

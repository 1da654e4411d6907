//! Two processes of the same user, as two ranks of a job are, one of which tries to read the other's memory.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    hint::black_box,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use standpipe::host::{CmaError, allow_tracer, probe_attach};

/// A process that has said nothing by then, on a machine however busy, will not.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The hidden subcommand that runs a peer.
pub const SUBCOMMAND: &str = "doctor-peer";

/// What came of one process reading another's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// It read what is there.
    Works,
    /// The kernel forbids it, and said this.
    Denied(String),
    /// It could not be tried, or failed for another reason.
    Failed(String),
}

/// Has one new process read the memory of another, side by side as two ranks of a job.
#[must_use]
pub fn try_attach() -> Attach {
    fn attempt() -> Result<Attach> {
        let target = Peer::start()?;
        let mut reader = Peer::start()?;
        let address = target.hear(ANSWER_WITHIN)?;
        reader.hear(ANSWER_WITHIN)?;
        writeln!(reader.input, "{} {address}", target.child.id())?;
        let answer = reader.hear(ANSWER_WITHIN)?;
        Ok(match answer.split_once(' ').unwrap_or((&answer, "")) {
            (WORKS, _) => Attach::Works,
            (DENIED, why) => Attach::Denied(why.to_owned()),
            (_, why) => Attach::Failed(why.to_owned()),
        })
    }
    attempt().unwrap_or_else(|error| Attach::Failed(format!("{error:#}")))
}

const WORKS: &str = "works";
const DENIED: &str = "denied";
const FAILED: &str = "failed";

/// The hidden subcommand: says where a secret number is in this process, then, for each line "process address
/// number" on standard input, whether that process has that number there. Ends with its input.
///
/// # Errors
/// If the process that started it is gone, or says something else.
pub fn run() -> Result<ExitCode> {
    let nonce = Box::new(RandomState::new().hash_one("nonce"));
    // As a rank permits its launcher and what descends from it. Without Yama there is nothing to permit, and
    // the call says so; what matters is what the attempt then shows.
    let _ = allow_tracer(std::os::unix::process::parent_id());
    let mut out = io::stdout();
    writeln!(out, "{} {nonce}", (&raw const *nonce).expose_provenance())?;
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let &[pid, address, number] = words.as_slice() else { anyhow::bail!("what is {line:?}?") };
        match probe_attach(u32::try_from(pid)?, address, number) {
            Ok(()) => writeln!(out, "{WORKS}")?,
            Err(CmaError::Denied { errno }) => writeln!(out, "{DENIED} {errno}")?,
            Err(error) => writeln!(out, "{FAILED} {error}")?,
        }
    }
    black_box(&nonce);
    Ok(ExitCode::SUCCESS)
}

/// A started peer; it ends when this is dropped.
struct Peer {
    child: Child,
    input: ChildStdin,
    /// What it says, line by line.
    output: Receiver<io::Result<String>>,
}

impl Peer {
    fn start() -> Result<Self> {
        let program = env::current_exe().context("this program's own file")?;
        Peer::start_as(Command::new(program).arg(SUBCOMMAND))
    }

    fn start_as(command: &mut Command) -> Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("starting a process")?;
        let input = child.stdin.take().context("its standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("its standard output")?);
        let (said, output) = mpsc::channel();
        // Ends with the process, which is killed when nobody listens any more.
        let listener =
            thread::Builder::new().spawn(move || stdout.lines().try_for_each(|line| said.send(line)));
        let peer = Self { child, input, output };
        listener.context("starting a thread (the limit on processes: ulimit -u)")?;
        Ok(peer)
    }

    fn hear(&self, within: Duration) -> Result<String> {
        match self.output.recv_timeout(within) {
            Ok(line) => Ok(line?),
            Err(RecvTimeoutError::Timeout) => {
                anyhow::bail!("a process that was started for a test said nothing within {within:?}")
            }
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("a process that was started for a test died")
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Whether it was alive until now or not, it is not any longer, and nobody waits for its words.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_says_nothing_or_dies_is_not_waited_for() {
        let silent = Peer::start_as(Command::new("sleep").arg("60")).expect("every system has sleep");
        let error = silent.hear(Duration::from_millis(50)).expect_err("it sleeps");
        assert!(error.to_string().contains("said nothing"), "{error}");
        let dead = Peer::start_as(&mut Command::new("true")).expect("every system has true");
        let error = dead.hear(ANSWER_WITHIN).expect_err("it is gone");
        assert!(error.to_string().contains("died"), "{error}");
    }
}

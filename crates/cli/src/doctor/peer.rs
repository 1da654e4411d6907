//! Two processes of the same user, as two ranks of a job are, one of which tries to read the other's memory.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    hint::black_box,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
};

use anyhow::{Context, Result};
use standpipe::host::{CmaError, allow_tracer, probe_attach};

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
        let mut target = Peer::start()?;
        let mut reader = Peer::start()?;
        let address = target.hear()?;
        reader.hear()?;
        writeln!(reader.input, "{} {address}", target.child.id())?;
        let answer = reader.hear()?;
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

/// The hidden subcommand: says where a secret number is in this process, then, for each line "process address number"
/// on standard input, whether that process has that number there. Ends with its input.
///
/// # Errors
/// If the process that started it is gone, or says something else.
pub fn run() -> Result<ExitCode> {
    let nonce = Box::new(RandomState::new().hash_one("nonce"));
    // As a rank permits its launcher and what descends from it. Without Yama there is nothing to permit, and the call
    // says so; what matters is what the attempt then shows.
    let _ = allow_tracer(std::os::unix::process::parent_id());
    println!("{} {nonce}", (&raw const *nonce).expose_provenance());
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let &[pid, address, number] = words.as_slice() else { anyhow::bail!("what is {line:?}?") };
        match probe_attach(u32::try_from(pid)?, address, number) {
            Ok(()) => println!("{WORKS}"),
            Err(CmaError::Denied { errno }) => println!("{DENIED} {errno}"),
            Err(error) => println!("{FAILED} {error}"),
        }
    }
    black_box(&nonce);
    Ok(ExitCode::SUCCESS)
}

/// A started peer; it ends when this is dropped.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Result<Self> {
        let program = env::current_exe().context("this program's own file")?;
        let mut child = Command::new(program)
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a process")?;
        let input = child.stdin.take().context("its standard input")?;
        let output = BufReader::new(child.stdout.take().context("its standard output")?);
        Ok(Self { child, input, output })
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        anyhow::ensure!(line.ends_with('\n'), "a process that was started for a test died");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Whether it was alive until now or not, it is not any longer, and nobody waits for its words.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A live study's jobs, one for each strategy, all of which are there from the beginning to the end: so they
//! can be asked in turn, and what disturbs the machine disturbs all alike.

use std::{
    env,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use standpipe::Strategy;

use super::case::{Answer, Case};
use super::rank::Memory;
use super::ranks::Part;
use crate::study::ranks::words;
use measure::json_lines::{decode, encode};
use measure::transport::{STRATEGY, TRANSPORT};

/// What all jobs have in common.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// By what ranks reach each other.
    pub(crate) transport: String,
    /// Bytes that may be registered.
    pub(crate) budget: u64,
    /// Bytes of memory that is put to.
    pub(crate) bytes: u64,
    /// Bytes of the longest write by bare libfabric.
    pub(crate) written: usize,
}

/// A job of two ranks, by itself in processes of its own.
#[derive(Debug)]
pub(crate) struct Job {
    strategy: Strategy,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Job {
    /// Starts a job that registers by this strategy.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(plan: &Plan, strategy: Strategy) -> Result<Job> {
        let program = env::current_exe().context("this program's own file")?;
        let part = Part::Both(Memory { bytes: plan.bytes, written: plan.written });
        let mut child = Command::new(&program)
            .args(words(&part)?)
            .env(TRANSPORT, &plan.transport)
            .env(STRATEGY, strategy.name())
            .env(PIN, plan.budget.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a job")?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Ok(Job { strategy, child, input, output: BufReader::new(output) })
    }

    /// How it registers.
    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Has it do something.
    ///
    /// # Errors
    /// If it has ended, which it says the reason for on standard error.
    pub(crate) fn ask(&mut self, case: &Case) -> Result<Answer> {
        let ended = || format!("the job that registers by {} has ended", self.strategy.name());
        let input = self.input.as_mut().expect("it is open until the job is dropped");
        writeln!(input, "{}", encode(case)).with_context(ended)?;
        let line = read_line(&mut self.output, Instant::now() + ANSWER_WITHIN).with_context(ended)?;
        match decode(&line) {
            Some(answer) => Ok(answer),
            None if line.is_empty() => bail!("{}", ended()),
            None => bail!("{} said: {line}", self.strategy.name()),
        }
    }
}

/// The next line, or what there is of it where the writer has ended.
///
/// # Errors
/// `TimedOut`, and what reading ends with.
fn read_line<R: Read + AsFd>(from: &mut BufReader<R>, deadline: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if from.buffer().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(from.get_ref(), PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(ErrorKind::TimedOut.into()),
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
        }
        let there = from.fill_buf()?;
        let end = there.iter().position(|byte| *byte == b'\n').map_or(there.len(), |at| at + 1);
        if end == 0 {
            break;
        }
        line.extend_from_slice(&there[..end]);
        from.consume(end);
    }
    String::from_utf8(line).map_err(|_| ErrorKind::InvalidData.into())
}

impl Drop for Job {
    fn drop(&mut self) {
        // It ends when there is nothing more to read.
        drop(self.input.take());
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Its ranks go with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PIN: &str = "STANDPIPE_PIN";
/// How long a job may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);
/// How long a job may take over one case: its ranks wait a minute for each other.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_is_not_waited_for_without_end() {
        let (reads, mut writes) = io::pipe().expect("a pipe");
        let mut from = BufReader::new(reads);
        let soon = || Instant::now() + Duration::from_millis(50);
        write!(writes, "one\ntw").expect("room");
        assert_eq!(read_line(&mut from, soon()).expect("a line"), "one\n");
        assert_eq!(read_line(&mut from, soon()).expect_err("half a line").kind(), ErrorKind::TimedOut);
        drop(writes);
        assert_eq!(read_line(&mut from, soon()).expect("the end"), "");
    }
}

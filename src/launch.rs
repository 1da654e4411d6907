//! Starting the processes of a job on this host and staying with them until the last has ended.
//!
//! ```no_run
//! let outcome = standpipe::launch::Launch::new("./stencil").arg("--steps=100").ranks(8).run()?;
//! std::process::exit(outcome.status().into());
//! # Ok::<(), standpipe::launch::LaunchError>(())
//! ```
//!
//! **What a rank is given.** Its number and the job's secret in its environment; a process group of its own,
//! so that a signal reaches whatever it starts in turn; standard input from the launcher for rank 0 unless
//! that is a terminal, and nothing to read for the others. Ranks write where the launcher writes, unless
//! their lines are [tagged](Launch::tag_output) or [handed to a function](Launch::on_line).
//!
//! **How a job ends.** A rank fails when it exits with a status other than zero or is killed by a signal. The
//! first to fail is named, and the others get `SIGTERM` and, after a [grace period](Launch::grace),
//! `SIGKILL`, unless they are to [go on](Launch::keep_going). Processes that a rank which has ended leaves in
//! its process group are killed. If the launcher itself is killed, by whatever means, the kernel kills every
//! rank. A guard, which is a `/bin/sh` of the launcher's, kills what is left in the ranks' process groups: a
//! program that a wrapper has started, for example. The guard ends with the job. A process that has left its
//! rank's group, as by `setsid`, lives on in either case; as a member of the job it learns of the end.
//!
//! **Signals** `SIGINT`, `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1`, `SIGUSR2`, `SIGWINCH`, `SIGTSTP` and
//! `SIGCONT` that reach the launcher while [`run`](Launch::run) is at work go to all ranks. Those that the
//! launcher ignores, as under `nohup`, do not. Ranks that still run a [grace period](Launch::grace) after
//! `SIGINT` are killed, and all of them at once by a second one. No signal is blocked in a rank, whatever is
//! in the launcher ([`unblock_signals`]). While a job runs, a launcher that ignores `SIGCHLD` does not, as
//! the kernel tells it how ranks end only then.

mod end;
mod guard;
mod hosted;
mod kills;
mod output;
mod signals;
mod start;
mod supervise;

use std::ffi::OsString;
use std::time::Duration;

pub use self::end::{End, Outcome, RankOutcome};
pub use self::hosted::HostedJob;
pub use self::output::Stream;
pub use self::start::LaunchError;
use crate::base::fd_limit::fill_standard;
pub use crate::job::plumbing::RANKS_MAX;

use self::output::{OnLine, Output};
use self::start::Plan;
use self::supervise::{Policy, Say};

const GRACE: Duration = Duration::from_secs(5);

/// A job to be started: what to run, how many times, and what to do when a rank fails.
pub struct Launch {
    plan: Plan,
    tag_output: bool,
    stdout_to_stderr: bool,
    on_line: Option<OnLine>,
    keep_going: bool,
    grace: Duration,
    say: Say,
}

impl Launch {
    /// A job of one rank that runs `program`, which is looked for in `PATH` unless it has a slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            plan: Plan::new(program.into()),
            tag_output: false,
            stdout_to_stderr: false,
            on_line: None,
            keep_going: false,
            grace: GRACE,
            say: Box::new(say_on_stderr),
        }
    }

    /// How many ranks to start: 1 to [`RANKS_MAX`].
    #[must_use]
    pub fn ranks(mut self, ranks: u32) -> Self {
        self.plan.ranks = ranks;
        self
    }

    /// Adds an argument for the program.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.plan.args.push(arg.into());
        self
    }

    /// Adds arguments for the program.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.plan.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of every rank, on top of the launcher's own.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.plan.env.push((name.into(), value.into()));
        self
    }

    /// Whether all ranks have the program, its libraries, its stack and its heap at the same addresses: the
    /// kernel then places none of them at random. For programs that send each other pointers, as those for
    /// Generic Active Messages do.
    #[must_use]
    pub fn same_addresses(mut self, same: bool) -> Self {
        self.plan.same_addresses = same;
        self
    }

    /// Whether every line that a rank writes gets `[rank] ` in front. Lines of different ranks are then never
    /// mixed; a last line without a line feed gets one, and a line above 64 KiB is cut. Without this the
    /// ranks write straight to the launcher's standard output and error, which costs nothing and promises
    /// nothing.
    #[must_use]
    pub fn tag_output(mut self, tag: bool) -> Self {
        self.tag_output = tag;
        self
    }

    /// Whether what the ranks write to standard output goes to the launcher's standard error.
    #[must_use]
    pub fn stdout_to_stderr(mut self, redirect: bool) -> Self {
        self.stdout_to_stderr = redirect;
        self
    }

    /// Hands every line that a rank writes to `on_line`, without its line feed, instead of printing it. Lines
    /// are cut as by [`tag_output`](Self::tag_output). `on_line` runs on one thread of the launcher, in order
    /// for each rank and stream; while it runs, ranks that write a lot wait.
    #[must_use]
    pub fn on_line(mut self, on_line: impl Fn(u32, Stream, &[u8]) + Send + 'static) -> Self {
        self.on_line = Some(Box::new(on_line));
        self
    }

    /// Whether the other ranks go on when one has failed.
    #[must_use]
    pub fn keep_going(mut self, keep_going: bool) -> Self {
        self.keep_going = keep_going;
        self
    }

    /// How long the others may take to end after `SIGTERM` when a rank has failed, and all after `SIGINT`: 5
    /// seconds unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Where to say which rank failed and what happens then: one line of text a call, without prefix or line
    /// feed. Unless set it goes to standard error.
    #[must_use]
    pub fn say(mut self, say: impl Fn(&str) + Send + 'static) -> Self {
        self.say = Box::new(say);
        self
    }

    /// Starts the ranks and stays until all have ended and what they wrote has been passed on.
    ///
    /// The calling thread waits meanwhile; the ranks are killed if it ends. Signals are forwarded as the
    /// [module](self) says, and have their usual effect again once this returns.
    ///
    /// # Errors
    /// When the job could not be started. No rank is left then.
    pub fn run(self) -> Result<Outcome, LaunchError> {
        fill_standard();
        let output = match (self.on_line, self.tag_output) {
            (Some(on_line), _) => Output::Lines(on_line),
            (None, true) => Output::Tagged { stdout_to_stderr: self.stdout_to_stderr },
            (None, false) => Output::Direct { stdout_to_stderr: self.stdout_to_stderr },
        };
        let policy = Policy { keep_going: self.keep_going, grace: self.grace, say: self.say };
        Ok(start::start(self.plan, output)?.supervise(policy))
    }
}

/// Lets the signals that [`Launch::run`] passes on come to the calling thread, for a program that does
/// nothing but launch. The program that started it may have had them blocked, and a blocked signal is
/// inherited. Ranks are started with none blocked in any case.
///
/// # Errors
/// If the system refuses, which Linux does for no signal that there is. Any thread may call, and only its own
/// signals change.
pub fn unblock_signals() -> std::io::Result<()> {
    vm::spawn::unblock_signals(&signals::FORWARDED)
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch")
            .field("plan", &self.plan)
            .field("tag_output", &self.tag_output)
            .field("stdout_to_stderr", &self.stdout_to_stderr)
            .field("keep_going", &self.keep_going)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}

fn say_on_stderr(text: &str) {
    // In one write, so that what others write at that moment does not mix in.
    let line = format!("standpipe: {text}\n");
    // With standard error closed there is nowhere to say it.
    let _ = output::write_whole(std::io::stderr(), line.as_bytes());
}

//! Starting the ranks: all of them, or none.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};

use vm::spawn::ChildrenWait;

use super::guard::Guard;
use super::kills::Kills;
use super::output::{Output, Pipe, Pump, Stream};
use super::signals::Signals;
use crate::base::code::{Code, into_io_error, of_system};
use crate::base::debug_is_display::debug_is_display;
use crate::base::fd_limit::{Raised, TooFew, make_room};
use crate::job::launched::{Broker, BrokerError};
use crate::transport::ofi::provider_env;

/// The broker holds a connection, a process and two segments of each rank, the launcher a process and two
/// pipes.
const DESCRIPTORS_PER_RANK: u64 = 7;
/// Guests, watchers, listener and the launcher's own.
const DESCRIPTORS_BESIDES: u64 = 128;

/// The program to start.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) ranks: u32,
    pub(super) same_addresses: bool,
}

impl Plan {
    pub(super) fn new(program: OsString) -> Self {
        Self { program, args: Vec::new(), env: Vec::new(), ranks: 1, same_addresses: false }
    }
}

debug_is_display!(LaunchError);

/// Why a job could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// There is no such program.
    #[error("cannot run {}: there is no such program", program.display())]
    NotFound {
        /// The program.
        program: OsString,
    },
    /// The program is there, but this user may not run it.
    #[error("cannot run {}: permission denied", program.display())]
    NotExecutable {
        /// The program.
        program: OsString,
    },
    /// A rank could not be started for another reason.
    #[error("cannot start rank {rank} ({}): {source}", program.display())]
    Spawn {
        /// The rank.
        rank: u32,
        /// The program.
        program: OsString,
        /// The operating system's error.
        source: io::Error,
    },
    /// The system does not let this process watch another one, which launching relies on.
    #[error(
        "cannot watch the ranks: the system refuses pidfd_open ({source}), as container profiles for older kernels do: allow \
         that call in the profile (seccomp)"
    )]
    Unwatched {
        /// The operating system's error.
        source: io::Error,
    },
    /// The system does not let this process choose that the ranks' addresses are not random.
    #[error(
        "cannot give the ranks the same addresses: the system refuses personality(ADDR_NO_RANDOMIZE) ({source}), as container \
         profiles do: allow that call in the profile (seccomp), or build the program with -no-pie"
    )]
    SameAddresses {
        /// The operating system's error.
        source: io::Error,
    },
    /// The job would need more file descriptors than this process may have.
    #[error("a job of {ranks} needs {needed} file descriptors, and {allowed} are allowed (ulimit -n)")]
    Descriptors {
        /// The size of the job.
        ranks: u32,
        /// File descriptors needed.
        needed: u64,
        /// File descriptors allowed.
        allowed: u64,
    },
    /// The number of ranks is out of bounds, or the broker could not be started.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// This program's allocator is [`GlobalHeap`](crate::GlobalHeap): it cannot be forked, and a rank that is
    /// to die with its launcher is started that way.
    #[cfg(feature = "allocator")]
    #[error("a program whose allocator is GlobalHeap cannot start ranks: `standpipe run` can")]
    GlobalHeap,
    /// The operating system refused a thread or a handler.
    #[error("cannot launch: {0}")]
    Io(#[from] io::Error),
}

impl LaunchError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        match self {
            LaunchError::NotFound { .. } => Code::NotFound,
            LaunchError::NotExecutable { .. } => Code::Denied,
            LaunchError::Spawn { source, .. } | LaunchError::Io(source) => of_system(source),
            LaunchError::Descriptors { .. } => Code::NoRoom,
            LaunchError::Unwatched { .. } | LaunchError::SameAddresses { .. } | LaunchError::Broker(_) => {
                Code::System
            }
            #[cfg(feature = "allocator")]
            LaunchError::GlobalHeap => Code::System,
        }
    }
}

into_io_error!(LaunchError);

impl LaunchError {
    /// The exit status in the shell's terms: 127 for a program that is not there, 126 for one that cannot be
    /// run, 125 for all else.
    pub fn status(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            _ => 125,
        }
    }
}

/// A started job.
pub(super) struct Started {
    pub(super) broker: Broker,
    pub(super) signals: Signals,
    pub(super) ranks: Vec<Rank>,
    pub(super) pump: Option<Pump>,
    pub(super) children_wait: ChildrenWait,
    /// Before any rank could be killed.
    pub(super) kills: Kills,
    /// Why there is none, where there is none.
    pub(super) guard: io::Result<Guard>,
}

/// A rank's process, which is ours to reap.
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) process: Pid,
    pub(super) handle: OwnedFd,
}

impl Rank {
    pub(super) fn pid(&self) -> u32 {
        self.process.as_raw_nonzero().get().unsigned_abs()
    }

    /// Signals the rank's process and whatever it has started in its process group. To be called only while
    /// the process has not been reaped: until then the group's number cannot become another's.
    pub(super) fn signal(&self, signal: Signal) {
        if kill_process_group(self.process, signal).is_err() {
            // It has joined another process group, or is dead already: then this fails too.
            let _ = pidfd_send_signal(&self.handle, signal);
        }
    }
}

/// Starts all ranks of `plan`. If one cannot be started, none is left.
pub(super) fn start(plan: Plan, output: Output) -> Result<Started, LaunchError> {
    #[cfg(feature = "allocator")]
    if vm::global_heap::is_used() {
        return Err(LaunchError::GlobalHeap);
    }
    let (ranks, kills) = (plan.ranks, Kills::now());
    let broker = Broker::start_supervised(ranks)?;
    let raised = make_room(DESCRIPTORS_BESIDES + DESCRIPTORS_PER_RANK * u64::from(ranks))
        .map_err(|TooFew { needed, allowed }| LaunchError::Descriptors { ranks, needed, allowed })?;
    // A signal that comes while the ranks are being started is theirs too.
    let signals = Signals::new()?;
    let children_wait = ChildrenWait::new();
    let mut crew = Crew { ranks: Vec::new(), pipes: Vec::new(), guard: Some(Guard::start()) };
    let refused = |source| LaunchError::SameAddresses { source };
    let _placed = plan.same_addresses.then(vm::spawn::SameAddresses::new).transpose().map_err(refused)?;
    for rank in 0..ranks {
        crew.add(&plan, rank, &output, &broker, raised.as_ref())?;
    }
    let pump = match output {
        Output::Direct { .. } => None,
        output => Some(Pump::start(std::mem::take(&mut crew.pipes), output)?),
    };
    let guard = crew.guard.take().expect("set where the crew was made");
    Ok(Started { broker, signals, ranks: std::mem::take(&mut crew.ranks), pump, children_wait, kills, guard })
}

/// The ranks started so far. Dropped before the last has been, it ends them.
struct Crew {
    ranks: Vec<Rank>,
    pipes: Vec<Pipe>,
    /// Gone when all have been started.
    guard: Option<io::Result<Guard>>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for rank in &self.ranks {
            rank.signal(Signal::KILL);
        }
        for rank in &self.ranks {
            if let Some(Ok(guard)) = &mut self.guard {
                guard.forget(rank.process);
            }
            // Nobody asks how they ended.
            let _ = waitid(WaitId::PidFd(rank.handle.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

impl Crew {
    fn add(
        &mut self,
        plan: &Plan,
        rank: u32,
        output: &Output,
        broker: &Broker,
        raised: Option<&Raised>,
    ) -> Result<(), LaunchError> {
        let fail = |source: io::Error| spawn_error(rank, &plan.program, source);
        let mut command = Command::new(&plan.program);
        command.args(&plan.args).envs(provider_env::environment(plan.ranks));
        command.envs(plan.env.iter().map(|(name, value)| (name, value)));
        command.envs(broker.env(rank).vars()).process_group(0).stdin(input(rank));
        direct(&mut command, output).map_err(fail)?;
        vm::spawn::die_with_parent(&mut command);
        vm::spawn::unblock_signals_of(&mut command);
        let child = command.spawn().map_err(fail)?;
        let process = Pid::from_child(&child);
        if let Some(Ok(guard)) = &mut self.guard {
            guard.watch(process);
        }
        if let Some(raised) = raised {
            raised.lower_for(process);
        }
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(handle) => self.ranks.push(Rank { rank, process, handle }),
            Err(error) => {
                end_unwatched(child);
                if let Some(Ok(guard)) = &mut self.guard {
                    guard.forget(process);
                }
                return Err(match error {
                    Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
                        LaunchError::Unwatched { source: error.into() }
                    }
                    error => LaunchError::Spawn { rank, program: plan.program.clone(), source: error.into() },
                });
            }
        }
        self.pipes.extend(pipes(rank, child));
        Ok(())
    }
}

fn spawn_error(rank: u32, program: &OsStr, source: io::Error) -> LaunchError {
    let program = program.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => LaunchError::NotFound { program },
        io::ErrorKind::PermissionDenied => LaunchError::NotExecutable { program },
        _ => LaunchError::Spawn { rank, program, source },
    }
}

/// Rank 0 reads what the launcher is given. From a terminal it cannot: in its own process group it would be
/// stopped at the first read.
fn input(rank: u32) -> Stdio {
    if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() }
}

fn direct(command: &mut Command, output: &Output) -> io::Result<()> {
    match output {
        Output::Direct { stdout_to_stderr: false } => {}
        Output::Direct { stdout_to_stderr: true } => {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        Output::Tagged { .. } | Output::Lines(_) => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
    }
    Ok(())
}

fn pipes(rank: u32, child: Child) -> impl Iterator<Item = Pipe> {
    let stdout = child.stdout.map(|source| (Stream::Stdout, source.into()));
    let stderr = child.stderr.map(|source| (Stream::Stderr, source.into()));
    stdout.into_iter().chain(stderr).map(move |(stream, source)| Pipe { rank, stream, source })
}

fn end_unwatched(mut child: Child) {
    // Either fails only when it is over already.
    let _ = child.kill();
    let _ = child.wait();
}

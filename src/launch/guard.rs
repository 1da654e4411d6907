//! The guard of a job: a shell that ends the ranks' process groups when the launcher is gone.
//!
//! The kernel kills each rank with its launcher, but not what a rank has started: a shell around the program,
//! and then the program. A process of its own does that, since nothing of a launcher runs after `SIGKILL`. It
//! is a shell because whatever is forked from the launcher and goes on would keep the launcher's memory.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::job::plumbing::poll::poll_until;

/// Lines are `+ GROUP`, `- GROUP` and `.`; the last, or the end of them, ends the groups that are left. It
/// ignores what a terminal or a service manager sends first: it has to outlive the launcher by a moment.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM USR1 USR2 TSTP
groups=' '
while read -r word group; do
    case $word in
    +) groups=\"$groups$group \" ;;
    -) case $groups in *\" $group \"*) groups=\"${groups%% \"$group\" *} ${groups#* \"$group\" }\" ;; esac ;;
    *) break ;;
    esac
done
for group in $groups; do kill -s KILL -- \"-$group\"; done";

/// How long the shell may take for a line, or to end. One that is stopped never does either.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends all groups that it still guards when it is dropped, or when this process ends in any way.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    /// Until the shell takes no more lines.
    tell: Option<PipeWriter>,
    /// With it a write to a guard that somebody has killed raises no `SIGPIPE`: it finds the pipe full in
    /// the end.
    _reader: PipeReader,
}

impl Guard {
    /// # Errors
    /// Where there is no `/bin/sh`, or no process or pipe can be had.
    pub(super) fn start() -> io::Result<Guard> {
        let (reader, tell) = io::pipe()?;
        ioctl_fionbio(&tell, true)?;
        let mut command = Command::new("/bin/sh");
        // Not in the launcher's group, which a terminal stops and interrupts as a whole. It holds no folder.
        command.args(["-c", SCRIPT, "standpipe-guard"]).env_clear().process_group(0).current_dir("/");
        command.stdin(reader.try_clone()?).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard { shell: command.spawn()?, tell: Some(tell), _reader: reader })
    }

    /// `rank` has just been started, in a group of its own.
    pub(super) fn watch(&mut self, rank: Pid) {
        self.say(&format!("+ {}\n", rank.as_raw_nonzero()));
    }

    /// `rank` has ended: its group's number may be another's soon.
    pub(super) fn forget(&mut self, rank: Pid) {
        self.say(&format!("- {}\n", rank.as_raw_nonzero()));
    }

    /// Writes a line, which a pipe takes whole or not at all. A shell that takes none any more is ended: it
    /// would not hear that a group's number has become another's.
    fn say(&mut self, line: &str) {
        let Some(tell) = &mut self.tell else { return };
        let deadline = Instant::now() + PATIENCE;
        while tell.write_all(line.as_bytes()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            if !is_ready(tell, PollFlags::OUT, deadline) {
                let _ = self.shell.kill();
                self.tell = None;
                return;
            }
        }
    }
}

/// Whether that is so by then.
fn is_ready(of: &impl AsFd, what: PollFlags, deadline: Instant) -> bool {
    poll_until(&mut [PollFd::new(of, what)], Some(deadline)).is_ok_and(|ready| ready > 0)
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A child that was forked meanwhile may hold the pipe: its end may be far.
        self.say(".\n");
        let handle = pidfd_open(Pid::from_child(&self.shell), PidfdFlags::empty());
        if handle.is_ok_and(|handle| !is_ready(&handle, PollFlags::IN, Instant::now() + PATIENCE)) {
            let _ = self.shell.kill();
        }
        // Somebody else may have reaped it.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    /// More lines than its pipe holds, and then its end.
    #[test]
    fn a_guard_that_stands_still_keeps_nobody() {
        let mut guard = Guard::start().expect("a shell");
        let shell = Pid::from_child(&guard.shell);
        kill_process(shell, Signal::STOP).expect("it is ours");
        let begun = Instant::now();
        for _ in 0..10_000 {
            guard.forget(shell);
        }
        drop(guard);
        assert!(begun.elapsed() < 10 * PATIENCE, "{:?}", begun.elapsed());
    }
}

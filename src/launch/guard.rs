//! The guard of a job: a shell that ends the ranks' process groups when the launcher is gone.
//!
//! The kernel kills each rank with its launcher, but not what a rank has started: a shell around the program,
//! and then the program. A process of its own does that, since nothing of a launcher runs after `SIGKILL`. It
//! is a shell because whatever is forked from the launcher and goes on would keep the launcher's memory.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

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

/// Ends all groups that it still guards when it is dropped, or when this process ends in any way.
#[derive(Debug)]
pub(super) struct Guard {
    shell: Child,
    tell: PipeWriter,
    /// With it a write to a guard that somebody has killed raises no `SIGPIPE`.
    _reader: PipeReader,
}

impl Guard {
    /// # Errors
    /// Where there is no `/bin/sh`, or no process or pipe can be had.
    pub(super) fn start() -> io::Result<Guard> {
        let (reader, tell) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        // Not in the launcher's group, which a terminal stops and interrupts as a whole. It holds no folder.
        command.args(["-c", SCRIPT, "standpipe-guard"]).env_clear().process_group(0).current_dir("/");
        command.stdin(reader.try_clone()?).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard { shell: command.spawn()?, tell, _reader: reader })
    }

    /// `rank` has just been started, in a group of its own.
    pub(super) fn watch(&mut self, rank: Pid) {
        self.say(&format!("+ {}\n", rank.as_raw_nonzero()));
    }

    /// `rank` has ended: its group's number may be another's soon.
    pub(super) fn forget(&mut self, rank: Pid) {
        self.say(&format!("- {}\n", rank.as_raw_nonzero()));
    }

    fn say(&mut self, line: &str) {
        // It takes what is written at once, and we hold the other end: this fails in no way that could be
        // mended.
        let _ = self.tell.write_all(line.as_bytes());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A child that was forked meanwhile may hold the pipe: its end may be far.
        self.say(".\n");
        // Somebody else may have reaped it.
        let _ = self.shell.wait();
    }
}

//! Terminals of any width, to run programs in.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a program may run in a terminal, unless more is said.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A terminal to be.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Letters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
    /// How long what runs in it may take.
    pub limit: Duration,
}

/// A terminal, and how to open the end of it that programs have.
#[derive(Debug)]
pub struct Opened {
    /// The tests' end: it reads what the programs write, and the programs read what it writes.
    pub near: File,
    far: String,
}

impl Opened {
    /// The end that programs have.
    ///
    /// # Errors
    /// What the system says.
    pub fn far(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(&self.far)
    }
}

impl Terminal {
    /// One of so many letters in a line.
    #[must_use]
    pub fn of(columns: u16) -> Terminal {
        Terminal { columns, rows: 24, limit: LIMIT }
    }

    /// Opens it.
    ///
    /// # Errors
    /// What the system says: there are no more, most likely.
    pub fn open(&self) -> io::Result<Opened> {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&near)?;
        unlockpt(&near)?;
        let far = ptsname(&near, Vec::new())?.into_string().map_err(io::Error::other)?;
        let opened = Opened { near: File::from(near), far };
        let size = Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&opened.near, size)?;
        Ok(opened)
    }

    /// Runs a program whose three streams are this terminal, in a session that the terminal belongs to, as
    /// from a shell, and hands on what it writes. Environment and folder are those of `command`, which must
    /// not clear its environment; `TERM` is `xterm` unless it says otherwise.
    ///
    /// # Errors
    /// If it cannot be started (this takes `setsid` of util-linux), or runs longer than it may: then this
    /// kills it. However it ends, this kills the rest of its process group.
    pub fn run(&self, command: &Command, mut hear: impl FnMut(&[u8])) -> io::Result<ExitStatus> {
        let Opened { mut near, far } = self.open()?;
        let open = || File::options().read(true).write(true).open(&far);
        let mut child = in_session(command).stdin(open()?).stdout(open()?).stderr(open()?).spawn()?;
        let end = Instant::now() + self.limit;
        let ended = hear_until_ended(&mut near, &child, end, &mut hear);
        // The program may have left processes behind. Until somebody waits for it, nobody else gets the
        // group's number.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = match ended {
            Ok(true) => return child.wait(),
            // It may not have got so far as to have a group.
            _ => child.kill().and_then(|()| child.wait()),
        };
        let in_vain = format!("it still ran after {:?}", self.limit);
        ended.and(status).and_then(|_| Err(io::Error::new(io::ErrorKind::TimedOut, in_vain)))
    }

    /// The same, and gives how it ended and all that it wrote, with ends of lines as in a file.
    ///
    /// # Errors
    /// As [`Terminal::run`].
    pub fn output(&self, command: &Command) -> io::Result<(ExitStatus, String)> {
        let mut said = Vec::new();
        let status = self.run(command, |bytes| said.extend_from_slice(bytes))?;
        Ok((status, String::from_utf8_lossy(&said).replace("\r\n", "\n")))
    }
}

/// `setsid --ctty` before the same command, which begins as from a shell.
fn in_session(command: &Command) -> Command {
    let mut session = Command::new("setsid");
    // A shell's children hear of every signal, whatever the process that stands in for one here has been told
    // to ignore.
    session.args(["--ctty", "env", "--default-signal"]);
    session.arg(command.get_program()).args(command.get_args()).env("TERM", "xterm");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => session.env(name, value),
            None => session.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        session.current_dir(folder);
    }
    session
}

/// How often to look whether a program has ended whose terminal others keep open.
const LOOK: Duration = Duration::from_millis(50);

/// Hands on all that comes until `child` has ended, which is still to be waited for, and nothing more is to
/// be read. Whether it has ended in time.
fn hear_until_ended(
    near: &mut File,
    child: &Child,
    end: Instant,
    hear: &mut impl FnMut(&[u8]),
) -> io::Result<bool> {
    let looking = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let mut bytes = [0; 4096];
    loop {
        // Asked before reading: what it wrote before its end is there by then.
        let ended = waitid(WaitId::Pid(Pid::from_child(child)), looking)?.is_some();
        let look = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        let mut waits = [PollFd::new(&*near, PollFlags::IN)];
        let some = match poll(&mut waits, Some(&look)) {
            Err(rustix::io::Errno::INTR) => continue,
            some => some? > 0,
        };
        // The system calls it an error when nobody has the other end any more.
        let read = if some { near.read(&mut bytes).unwrap_or(0) } else { 0 };
        hear(&bytes[..read]);
        let is_late = Instant::now() > end;
        match ended {
            // A process that the program left behind may write for ever.
            true if read == 0 || is_late => return Ok(true),
            false if is_late => return Ok(false),
            // It has closed the terminal, and goes on.
            false if some && read == 0 => std::thread::sleep(LOOK),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_program_finds_a_terminal_of_its_own_of_that_size() {
        let said =
            Terminal::of(60).output(shell("tty -s < /dev/tty && stty size; exit 7").env("TERM", "dumb"));
        let (status, said) = said.expect("it runs");
        assert_eq!((status.code(), said.as_str()), (Some(7), "24 60\n"));
    }

    #[test]
    fn environment_and_folder_are_those_of_the_command() {
        let mut command = shell("pwd; echo $TERM $A ${HOME-unset}");
        let said = Terminal::of(80).output(command.env("A", "b").env_remove("HOME").current_dir("/proc"));
        assert_eq!(said.expect("it runs").1, "/proc\nxterm b unset\n");
    }

    #[test]
    fn much_is_read_to_its_end() {
        let (status, said) = Terminal::of(80).output(&shell("seq 100000")).expect("it runs");
        assert!(status.success() && said.ends_with("\n99999\n100000\n"));
        assert_eq!(said.lines().count(), 100_000);
    }

    #[test]
    fn what_is_left_behind_ends_with_it_and_holds_nobody_up() {
        let start = Instant::now();
        // The end of a session tells those who listen that it is over.
        let script = "trap '' HUP; sleep 77 & echo $!; exit 3";
        let (status, said) = Terminal::of(80).output(&shell(script)).expect("it ends");
        assert!(status.code() == Some(3) && start.elapsed() < LIMIT / 2);
        let left = said.lines().next().expect("a process number");
        let stat = || std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
        let is_running = || stat().rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'));
        while is_running() {
            assert!(start.elapsed() < LIMIT, "{}", stat());
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn what_takes_too_long_is_killed_with_what_it_started() {
        let short = Terminal { limit: Duration::from_millis(300), ..Terminal::of(80) };
        let mut said = Vec::new();
        let late = short.run(&shell("sleep 77 & echo $!; wait"), |bytes| said.extend_from_slice(bytes));
        assert_eq!(late.expect_err("too late").kind(), io::ErrorKind::TimedOut);
        let pid = String::from_utf8_lossy(&said).trim().to_owned();
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // It is nobody's to wait for here, and a busy machine takes its time.
        let end = Instant::now() + LIMIT;
        while !(stat().is_empty() || stat().contains(") Z")) {
            assert!(Instant::now() < end, "{pid}: {}", stat());
            std::thread::sleep(LOOK);
        }
        assert!(!pid.is_empty());
    }
}

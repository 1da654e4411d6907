//! What ends a command before it is done: Ctrl-C, `kill`, a terminal that goes away.
//!
//! One thread waits for these signals and ends the whole process in order, whatever its other threads are at:
//! it kills what the command has started, removes what the command would have removed, says so in one line
//! and exits with 128 and the signal's number, as shells expect. A second signal, later, ends the process at
//! once. So a command needs to do little about signals: ask `ending` before it complains of processes that
//! were killed, and do `undisturbed` what must not be half done.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
// At once: what libraries do at a process's end is not made for threads that still run.
use signal_hook::low_level::{exit, signal_name};
use standpipe::host::without_signals;
use tempfile::TempDir;

use crate::{progress, scratch};

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// A signal that comes this soon after the first is the first again: `timeout` sends one to a process, and
/// then to its group.
const SAME: Duration = Duration::from_millis(200);

/// Whether a signal has come that ends this process. What other processes say or come to no longer matters
/// then.
static ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));
/// Whether somebody ends this process already: the command, which is done, or the thread that heard a signal.
static TAKEN: AtomicBool = AtomicBool::new(false);
static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());
/// Held by what is not to be disturbed, and by the thread that ends this process, for good.
static UNDISTURBED: Mutex<()> = Mutex::new(());
/// Whether the report is there that there would not be.
static DELIVERED: AtomicBool = AtomicBool::new(false);

/// Whether a signal has come that ends this process. Any thread may ask.
#[must_use]
pub fn ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Says a line on standard error, unless a signal has come: it would be about its consequences.
pub fn say(text: &str) {
    if !ending() {
        complain(format_args!("standpipe: {text}"));
    }
}

/// Writes a line on standard error. Where that takes none, closed or full, there is nowhere to say so.
pub fn complain(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Does what a signal must not come amidst: starting a process, which would be left behind, or writing a
/// report. The signal waits meanwhile, so it is to be short. Does not return if this process is being ended.
pub fn undisturbed<R>(act: impl FnOnce() -> R) -> R {
    let guard = UNDISTURBED.lock().unwrap_or_else(PoisonError::into_inner);
    if ending() {
        drop(guard);
        stay();
    }
    act()
}

/// The report is written, whatever ends this process now.
pub fn delivered() {
    DELIVERED.store(true, Ordering::SeqCst);
}

/// Until this process has been ended by another thread.
fn stay() -> ! {
    loop {
        thread::park();
    }
}

/// Whether this process was started with `signal` ignored, as under `nohup`. It is to stay so.
fn is_ignored(signal: i32) -> bool {
    is_ignored_by(&fs::read_to_string("/proc/self/status").unwrap_or_default(), signal)
}

fn is_ignored_by(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0) & 1 << (signal - 1) != 0
}

/// Something that must not stay when a signal ends this process. The command itself removes it otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A folder with all that is in it.
    Folder(PathBuf),
    /// A folder that was made for results, if it has none.
    EmptyFolder(PathBuf),
    /// A file.
    File(PathBuf),
}

impl Leftover {
    /// Has it removed when a signal ends this process.
    pub fn note(self) {
        leftovers().push(self);
    }

    fn remove(&self) -> io::Result<()> {
        match self {
            Self::Folder(path) => fs::remove_dir_all(path),
            Self::EmptyFolder(path) => fs::remove_dir(path),
            Self::File(path) => fs::remove_file(path),
        }
    }
}

fn leftovers() -> MutexGuard<'static, Vec<Leftover>> {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that signals end in order. Dropped, it removes the folder of temporary files if it made one.
#[derive(Debug, Default)]
pub struct Attended {
    scratch: Option<TempDir>,
}

impl Attended {
    /// From now on a signal ends this process as the [module](self) says; `without` tells what there will not
    /// be.
    ///
    /// # Errors
    /// When the system refuses a handler or a thread.
    pub fn begin(without: &'static str) -> io::Result<Attended> {
        let ours = is_started_by_this_program();
        if ours {
            // The other one has its reasons to end, and says them.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        let heard: Vec<i32> =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect();
        // Before the flag: a signal that only set that would end nothing, and `finish` would wait for ever.
        let signals = Signals::new(&heard)?;
        for signal in &heard {
            signal_hook::flag::register(*signal, Arc::clone(&ENDING))?;
        }
        let listener = thread::Builder::new().name("signals".to_owned());
        // While libfabric is loaded, its libraries' handlers are there for some moments, and the main thread
        // takes no signal.
        without_signals(|| listener.spawn(move || listen(signals, without, !ours)))?;
        Ok(Attended::default())
    }

    /// From now on temporary files go to a folder of their own, so that it can be removed with all of them;
    /// and `out`, where results are to go, goes again if it is not there yet.
    #[must_use]
    pub fn keep_tidy(self, out: &Path) -> Attended {
        for folder in missing(out) {
            Leftover::EmptyFolder(folder.to_owned()).note();
        }
        // Without such a folder, temporary files go where they go anyway, or cannot be made there either.
        let scratch = scratch::folder().ok();
        if let Some(scratch) = &scratch {
            Leftover::Folder(scratch.path().to_owned()).note();
            // Refused where it has been done before, and it is done once.
            let _ = tempfile::env::override_temp_dir(scratch.path());
        }
        Attended { scratch }
    }

    /// The command is done: a signal is too late. Does not return if one was not.
    pub fn finish(self) {
        // What a signal did to other processes may have ended the command before the thread that ends this
        // one woke.
        if ending() || TAKEN.swap(true, Ordering::SeqCst) {
            stay();
        }
        drop(self.scratch);
    }
}

/// Ends this process at the first signal, and at once at the second.
fn listen(mut signals: Signals, without: &'static str, aloud: bool) {
    let mut signals = signals.forever();
    let Some(first) = signals.next() else { return };
    // It may have come before the flag had a handler.
    ENDING.store(true, Ordering::SeqCst);
    let heard = Instant::now();
    let end = move || end(first, without, aloud);
    if thread::Builder::new().name("end".to_owned()).spawn(end).is_err() {
        return end();
    }
    if let Some(again) = signals.find(|_| heard.elapsed() >= SAME) {
        exit(128 + again);
    }
}

/// Ends this process because of a signal, unless it ends already.
fn end(signal: i32, without: &str, aloud: bool) {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return;
    }
    let _nothing_begins = UNDISTURBED.lock().unwrap_or_else(PoisonError::into_inner);
    kill_children();
    for leftover in leftovers().iter() {
        // The command may be removing it as well; and a folder that has become full stays.
        let _ = leftover.remove();
    }
    // Last, as nobody may read it.
    progress::clear();
    if aloud {
        let name = signal_name(signal).unwrap_or("a signal");
        let what = if DELIVERED.load(Ordering::SeqCst) { "the report was written" } else { without };
        complain(format_args!("standpipe: ended by {name}; {what}"));
    }
    exit(128 + signal);
}

/// `folder` and those above it that are not there, from the innermost on.
pub fn missing(folder: &Path) -> impl Iterator<Item = &Path> {
    folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
}

/// Kills the processes that this one has started and stays until they are gone. Those that have children of
/// their own have these killed with them.
fn kill_children() {
    let give_up = Instant::now() + PATIENCE;
    while children().into_iter().filter(|child| kill(*child)).count() > 0 && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Of all threads of this process.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    };
    lists.flat_map(pids).collect()
}

/// Kills a child; false if it is dead already. Another thread may have collected it, and its number may be
/// another process's by now: so it is asked who it is only once that can no longer change.
fn kill(child: Pid) -> bool {
    let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else { return false };
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    is_living_child(&stat, getpid()) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

/// Whether this line of `/proc` is of a process that runs, and that `parent` has started.
fn is_living_child(stat: &str, parent: Pid) -> bool {
    // The program's name, in parentheses, may be anything.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
    let mut words = rest.split(' ');
    let (state, its_parent) = (words.next(), words.next());
    !matches!(state, None | Some("Z" | "X")) && its_parent == Some(&parent.to_string())
}

/// Whether the process that started this one runs the same program: `standpipe` starts itself for parts of
/// its work.
fn is_started_by_this_program() -> bool {
    let Some(parent) = getppid() else { return false };
    let program = |of: &str| fs::read_link(format!("/proc/{of}/exe")).ok();
    program("self").is_some_and(|this| program(&parent.to_string()) == Some(this))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernels_mask() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(is_ignored_by(status, SIGHUP) && !is_ignored_by(status, SIGINT));
        assert!(!is_ignored_by("", SIGHUP));
    }

    #[test]
    fn only_living_children_are_killed() {
        let parent = Pid::from_raw(7).expect("not 0");
        assert!(is_living_child("12 (a) b) S 7 1 1", parent));
        for other in ["12 (a) Z 7 1", "12 (a) S 8 1", "12 (a) X 7", ""] {
            assert!(!is_living_child(other, parent), "{other}");
        }
    }

    #[test]
    fn a_full_folder_of_results_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("report.html");
        fs::write(&file, "").expect("written");
        assert!(Leftover::EmptyFolder(folder.path().to_owned()).remove().is_err() && file.exists());
        assert!(Leftover::File(file).remove().is_ok());
        assert!(Leftover::EmptyFolder(folder.path().to_owned()).remove().is_ok());
    }
}

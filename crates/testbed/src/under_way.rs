//! Commands that a signal ends before they are done.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// A command under way, in a process group of its own as one that a shell has started.
struct UnderWay {
    child: Child,
    words: String,
    /// Where it runs, and where it has to put its temporary files.
    folder: TempDir,
}

impl UnderWay {
    /// Starts it, and stays until it has started so many processes in its turn and is well into what it does.
    fn begin(program: &str, words: &str, processes: usize) -> UnderWay {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(program);
        command.args(words.split(' ')).current_dir(folder.path()).env("TMPDIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().expect("the command was built with the test");
        let under_way = UnderWay { child, words: words.to_owned(), folder };
        let start = Instant::now();
        while under_way.descendants().len() < processes {
            assert!(start.elapsed() < PATIENCE, "{words}: {} processes", under_way.descendants().len());
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(200));
        under_way
    }

    /// The process numbers of all that it has started, directly or not.
    fn descendants(&self) -> Vec<String> {
        let mut found = children(&self.child.id().to_string());
        let mut seen = 0;
        while let Some(pid) = found.get(seen) {
            let more = children(pid);
            found.extend(more);
            seen += 1;
        }
        found
    }

    /// Lets it come to its end, killing it when that takes too long.
    fn finish(mut self) -> (Output, String, TempDir) {
        let start = Instant::now();
        while self.child.try_wait().expect("our child").is_none() {
            if start.elapsed() > PATIENCE {
                self.child.kill().expect("our child");
            }
            thread::sleep(Duration::from_millis(5));
        }
        (self.child.wait_with_output().expect("our child"), self.words, self.folder)
    }
}

fn children(parent: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Shows that each of `commands` of `program` ends in order at SIGINT to its group, as Ctrl-C sends it, at
/// SIGTERM to it alone, and at both at once: with the shell's status and a line, and leaving nothing behind.
/// Beside each stands how many processes it starts at once at least.
///
/// # Panics
/// If one does not.
pub fn ends_in_order(program: &str, commands: &[(&str, usize)]) {
    end_each(program, commands, Signal::INT, (130, "SIGINT"), |pid| {
        kill_process_group(pid, Signal::INT).expect("it runs");
    });
    end_each(program, commands, Signal::TERM, (143, "SIGTERM"), |pid| {
        kill_process(pid, Signal::TERM).expect("it runs");
    });
    // `timeout` sends a signal to its child, and then to the group that it is in.
    end_each(program, commands, Signal::TERM, (143, "SIGTERM"), |pid| {
        kill_process(pid, Signal::TERM).expect("it runs");
        thread::sleep(Duration::from_millis(5));
        // It may be done.
        let _ = kill_process_group(pid, Signal::TERM);
    });
}

fn end_each(
    program: &str,
    commands: &[(&str, usize)],
    signal: Signal,
    (status, name): (i32, &str),
    send: impl Fn(Pid),
) {
    for (words, processes) in commands {
        let under_way = UnderWay::begin(program, words, *processes);
        let started = under_way.descendants();
        send(Pid::from_child(&under_way.child));
        let (output, words, folder) = under_way.finish();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{words}: {error}");
        let said: Vec<&str> = error.lines().filter(|line| !is_progress(line)).collect();
        assert_eq!(said.len(), 1, "{words}: {error}");
        assert!(said[0].starts_with(&format!("standpipe: ended by {name}; ")), "{words}: {error}");
        assert_eq!(left_in(folder.path()), [""; 0], "{words} at {signal:?}");
        let gone_at_last = Instant::now() + Duration::from_secs(5);
        // Whatever was started stays in the folder, that which was started after the signal included.
        while let Some(pid) = started.iter().cloned().chain(working_in(folder.path())).find(|pid| runs(pid)) {
            assert!(Instant::now() < gone_at_last, "{words}: process {pid} of {started:?} runs still");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The processes that have `folder` as their working directory.
fn working_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("our folder");
    let all = fs::read_dir("/proc").expect("the kernel's").flatten();
    let here = all.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    here.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Lines that come while all is well: of what is under way, of a machine that is busy, and of how this
/// program was built.
fn is_progress(line: &str) -> bool {
    [" % after ", "the load average is", "this is a debug build"].iter().any(|known| line.contains(known))
}

fn left_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("our folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

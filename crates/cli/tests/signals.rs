//! A signal ends a command before it is done: the command says so in a line, has the shell's status, and
//! leaves nothing behind.

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
    fn begin(words: &str, processes: usize) -> UnderWay {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.args(words.split(' ')).current_dir(folder.path()).env("TMPDIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().expect("the command was built with this test");
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

/// Commands that take long, and how many processes each starts at once at least.
const COMMANDS: [(&str, usize); 10] = [
    ("perf", 2),
    ("perf barrier -n 4 --json", 4),
    ("sim --measure here.toml", 0),
    ("sim --seeds 1000000", 0),
    ("study kv --compute-us 20000", 4),
    ("kernel cannon -n 4 --size 4000 --record trace", 4),
    ("study firehose", 5),
    ("study pindown", 0),
    ("study scale", 1),
    ("study policies", 0),
];

fn ends_each_in_order(signal: Signal, status: i32, name: &str, send: impl Fn(Pid)) {
    for (words, processes) in COMMANDS {
        let under_way = UnderWay::begin(words, processes);
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

#[test]
fn control_c_ends_every_command_in_order() {
    ends_each_in_order(Signal::INT, 130, "SIGINT", |pid| {
        kill_process_group(pid, Signal::INT).expect("it runs");
    });
}

#[test]
fn a_termination_of_the_command_alone_ends_every_command_in_order() {
    ends_each_in_order(Signal::TERM, 143, "SIGTERM", |pid| {
        kill_process(pid, Signal::TERM).expect("it runs");
    });
}

/// `timeout` sends a signal to its child, and then to the group that it is in.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    ends_each_in_order(Signal::TERM, 143, "SIGTERM", |pid| {
        kill_process(pid, Signal::TERM).expect("it runs");
        thread::sleep(Duration::from_millis(5));
        // It may be done.
        let _ = kill_process_group(pid, Signal::TERM);
    });
}

/// Libraries that libfabric loads have handlers of their own, which exit with status 1.
#[test]
fn what_is_ended_while_it_loads_libraries_says_so() {
    for ms in (0..200).step_by(10) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        command.arg("info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command was built with this test");
        // Before it minds signals, one ends it as any program.
        while !minds(child.id(), Signal::INT) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(ms));
        // It may be done.
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        let output = child.wait_with_output().expect("our child");
        let error = String::from_utf8_lossy(&output.stderr);
        let ended = output.status.code() == Some(130) && error.contains("ended by SIGINT");
        assert!(ended || output.status.success(), "after {ms} ms: {:?}: {error}", output.status);
    }
}

/// Whether the process has a handler for a signal, or is none any more.
fn minds(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

#[test]
fn ignored_signals_stay_ignored() {
    let mut command = Command::new("sh");
    let script = "trap '' INT; exec \"$0\" sim --seeds 300 --steps 1000";
    command.args(["-c", script, env!("CARGO_BIN_EXE_standpipe")]).stdout(Stdio::null());
    let child = command.spawn().expect("a shell");
    thread::sleep(Duration::from_millis(100));
    let pid = Pid::from_child(&child);
    // It may be done.
    let _ = kill_process(pid, Signal::INT);
    assert!(child.wait_with_output().expect("our child").status.success());
}

//! What signals do to a launcher and its ranks, `SIGKILL` included. The launcher of each test is this program
//! again, running [`child`] alone.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use standpipe::bootstrap::{JobEnv, Membership, Notice};
use standpipe::launch::Launch;

const ROLE: &str = "LAUNCH_TEST_ROLE";
const SCRIPT: &str = "LAUNCH_TEST_SCRIPT";
/// Tells the lines that matter from those of the test harness around them.
const MARK: &str = "@@";
/// Waits without a child process that would outlive the shell.
const WAIT: &str = "while :; do sleep 0.05; done";

struct Launcher {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Launcher {
    /// Launches `ranks` shells that run `script`, and hear of every signal though these tests may be run
    /// under nohup, or in a script's background, which ignores interrupts.
    fn of(ranks: u32, script: &str) -> Self {
        let env = [(SCRIPT, script), ("RANKS", &ranks.to_string())];
        Self::start("launcher", &env, &["env", "--default-signal"])
    }

    /// `wrap` is a command that this program is started by.
    fn start(role: &str, env: &[(&str, &str)], wrap: &[&str]) -> Self {
        let this = std::env::current_exe().expect("a running program has a path");
        let mut words = wrap.iter().map(Into::into).chain([this.into_os_string()]);
        let mut command = Command::new(words.next().expect("at least this program"));
        command.args(words).args(["--exact", "launch_signals::child", "--nocapture"]).env(ROLE, role);
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program runs");
        let lines = BufReader::new(child.stdout.take().expect("piped above"));
        Self { child, lines }
    }

    /// The next line with the mark, without it.
    fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).expect("a pipe"), 0, "no such line");
            if let Some((_, text)) = line.split_once(MARK) {
                return text.trim_end().to_owned();
            }
        }
    }

    fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..count).map(|_| self.line()).collect();
        lines.sort();
        lines
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours to signal");
    }

    /// How the launcher ended. Nothing of this takes longer than a few seconds.
    fn end(mut self) -> ExitStatus {
        let give_up = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("ours to wait for") {
                return status;
            }
            if Instant::now() > give_up {
                let _ = self.child.kill();
                panic!("the launcher hangs");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn every_rank_gets_what_the_launcher_gets() {
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::WINCH, "WINCH"),
    ] {
        let script = format!("trap 'echo @@got; exit 0' {name}; echo @@ready; {WAIT}");
        let mut launcher = Launcher::of(2, &script);
        launcher.lines(2);
        launcher.signal(signal);
        assert_eq!(launcher.lines(2), ["got", "got"], "{name}");
        assert_eq!(launcher.end().code(), Some(0), "{name}");
    }
}

#[test]
fn an_interrupt_that_is_not_caught_ends_the_job() {
    let mut launcher = Launcher::of(2, &format!("echo @@ready; {WAIT}"));
    launcher.lines(2);
    launcher.signal(Signal::INT);
    assert_eq!(launcher.end().code(), Some(130));
}

#[test]
fn a_second_interrupt_kills() {
    let script = format!("trap 'echo @@got' INT; echo @@ready; {WAIT}");
    let mut launcher = Launcher::of(2, &script);
    launcher.lines(2);
    launcher.signal(Signal::INT);
    assert_eq!(launcher.lines(2), ["got", "got"]);
    launcher.signal(Signal::INT);
    assert_eq!(launcher.end().code(), Some(130));
}

/// As `timeout` sends it, to a process and then to its group.
#[test]
fn an_interrupt_that_comes_twice_at_once_is_one() {
    let script = format!("trap 'sleep 0.5; echo @@saved; exit 0' INT; echo @@ready; {WAIT}");
    let mut launcher = Launcher::of(2, &script);
    launcher.lines(2);
    launcher.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(5));
    launcher.signal(Signal::INT);
    assert_eq!(launcher.lines(2), ["saved", "saved"]);
    assert_eq!(launcher.end().code(), Some(0));
}

#[test]
fn under_nohup_a_hangup_is_nobodys_business() {
    let env = [(SCRIPT, "echo @@ready; sleep 0.5; echo @@done"), ("RANKS", "1")];
    let mut launcher = Launcher::start("launcher", &env, &["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
    assert_eq!(launcher.line(), "ready");
    launcher.signal(Signal::HUP);
    assert_eq!(launcher.line(), "done");
    assert_eq!(launcher.end().code(), Some(0));
}

#[test]
fn a_launcher_that_was_started_to_ignore_its_children_hears_how_they_end() {
    let script = "grep -c 'SigIgn:.*[13579bdf]....$' /proc/self/status | sed s/^/@@/; exit 3";
    let env = [(SCRIPT, script), ("RANKS", "1")];
    let mut launcher = Launcher::start("launcher", &env, &["env", "--ignore-signal=CHLD"]);
    assert_eq!(launcher.line(), "0", "nor does its rank ignore its own");
    assert_eq!(launcher.end().code(), Some(3));
}

#[test]
fn afterwards_children_are_ignored_as_they_were_before() {
    let env = [(SCRIPT, "exit 0"), ("RANKS", "1")];
    let mut launcher = Launcher::start("linger", &env, &["env", "--ignore-signal=CHLD"]);
    assert_eq!(launcher.line(), "job over");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", launcher.child.id())).expect("it lingers");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("Linux says so");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a mask");
    assert_ne!(ignored & 1 << 16, 0, "{ignored:x}");
    launcher.signal(Signal::TERM);
    assert_eq!(launcher.end().signal(), Some(15));
}

#[test]
fn a_signal_that_whoever_started_the_launcher_had_blocked_reaches_the_ranks() {
    let env = [(SCRIPT, &*format!("trap 'echo @@got; exit 0' TERM; echo @@ready; {WAIT}")), ("RANKS", "2")];
    let mut launcher = Launcher::start("unblock", &env, &["env", "--block-signal=TERM"]);
    assert_eq!(launcher.lines(2), ["ready", "ready"]);
    launcher.signal(Signal::TERM);
    assert_eq!(launcher.lines(2), ["got", "got"]);
    assert_eq!(launcher.end().code(), Some(0));
}

#[test]
fn after_the_job_signals_do_what_they_did_before() {
    let env = [(SCRIPT, "exit 0"), ("RANKS", "1")];
    let mut launcher = Launcher::start("linger", &env, &[]);
    assert_eq!(launcher.line(), "job over");
    launcher.signal(Signal::TERM);
    assert_eq!(launcher.end().signal(), Some(15));
}

#[test]
fn killing_the_launcher_leaves_no_rank() {
    let mut launcher = Launcher::of(3, "echo @@$$; exec sleep 60");
    let pids = launcher.lines(3);
    assert!(pids.iter().all(|pid| is_running(pid)));
    launcher.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(launcher.end().signal(), Some(9));
    while pids.iter().any(|pid| is_running(pid)) {
        assert!(killed.elapsed() < Duration::from_secs(5), "a rank outlived its launcher");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("all ranks were gone {:?} after the launcher was killed", killed.elapsed());
}

/// The processes whose parent is this one, those of threads included.
fn children(parent: u32) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn killing_the_launcher_leaves_nothing_that_a_wrapper_has_started() {
    for signal in [Signal::KILL, Signal::ABORT] {
        // Wrappers that go on beside the program, that have ended before it, and that are wrapped themselves.
        let script =
            "sleep 60 & echo @@$!; (sleep 60 & echo @@$!); sh -c 'sleep 60 & echo @@$!; wait; true'; true";
        let mut launcher = Launcher::of(2, script);
        let pids = launcher.lines(6);
        let children = children(launcher.child.id());
        assert_eq!(children.len(), 3, "two ranks and the guard");
        assert!(pids.iter().chain(&children).all(|pid| is_running(pid)));
        launcher.signal(signal);
        let killed = Instant::now();
        assert_eq!(launcher.end().signal(), Some(signal.as_raw()));
        while let Some(pid) = pids.iter().chain(&children).find(|pid| is_running(pid)) {
            assert!(killed.elapsed() < Duration::from_secs(5), "process {pid} outlived the launcher");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn the_guard_ends_with_the_job() {
    let mut launcher = Launcher::start("linger", &[(SCRIPT, "exit 0"), ("RANKS", "3")], &[]);
    assert_eq!(launcher.line(), "job over");
    assert_eq!(children(launcher.child.id()), [""; 0], "neither a rank nor the guard is left");
    launcher.signal(Signal::TERM);
    assert_eq!(launcher.end().signal(), Some(15));
}

#[test]
fn killing_the_launcher_leaves_no_socket_and_a_ranks_child_learns_of_it() {
    // The member is a child of the rank and has left its group: neither the kernel nor the guard kills it.
    let mut launcher = Launcher::of(1, "setsid \"$THIS\" --exact launch_signals::child --nocapture & wait");
    let job = launcher.line();
    let listening = || std::fs::read_to_string("/proc/net/unix").expect("Linux").contains(&job);
    assert!(listening());
    launcher.signal(Signal::KILL);
    assert_eq!(launcher.line(), "broker gone");
    let mut rest = String::new();
    launcher.lines.read_to_string(&mut rest).expect("the member ends and closes the pipe");
    // The launcher is gone for good, and with it the last of its sockets, when it can be waited for.
    assert_eq!(launcher.end().signal(), Some(9));
    assert!(!listening());
}

/// Not a test: what the launchers and members of the tests above do.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "member" {
        return member();
    }
    let this = std::env::current_exe().expect("a running program has a path");
    let script = std::env::var(SCRIPT).expect("set by the test");
    let ranks = std::env::var("RANKS").ok().and_then(|ranks| ranks.parse().ok()).expect("set by the test");
    if role == "unblock" {
        standpipe::launch::unblock_signals().expect("they are signals");
    }
    let launch = Launch::new("sh").arg("-c").arg(script).ranks(ranks).env(ROLE, "member").env("THIS", this);
    let status = launch.run().expect("the job starts").status();
    if role == "linger" {
        println!("{MARK}job over");
        std::thread::sleep(Duration::from_secs(10));
    }
    std::process::exit(status.into());
}

fn member() {
    let env = JobEnv::from_env().expect("well formed").expect("launched");
    let file = File::open("/dev/null").expect("every system has it");
    let (tell, told) = std::sync::mpsc::channel();
    let on_notice = Box::new(move |notice| {
        let _ = tell.send(notice);
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let _job = Membership::join(&env, [file.as_fd(); 3], deadline, on_notice).expect("let in");
    println!("{MARK}{}", env.vars()[0].1);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(Notice::BrokerGone));
    println!("{MARK}broker gone");
    std::process::exit(0);
}

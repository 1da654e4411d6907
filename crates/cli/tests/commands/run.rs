//! `standpipe run` as a user calls it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn standpipe(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    command.arg("run").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    standpipe(args).output().expect("the command runs")
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn any_program_runs() {
    let output = run(&["-n", "2", "--", "hostname"]);
    assert!(output.status.success());
    assert_eq!(lines(&output.stdout).len(), 2);
    assert!(output.stderr.is_empty());
}

#[test]
fn who_names_hosts_is_told_of_the_launchers_that_reach_them() {
    let output = run(&["-n", "8", "--hosts", "a,b", "--", "./program", "-x"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mpirun -host a,b --map-by node -n 8 ./program -x"), "{said}");
    // Without PMI the tasks could not meet.
    assert!(said.contains("srun --mpi=pmix -w a,b -n 8 ./program -x"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn output_is_the_ranks_own_unless_tagged() {
    let script = "echo $STANDPIPE_RANK; printf e$STANDPIPE_RANK >&2";
    let plain = run(&["-n", "2", "--", "sh", "-c", script]);
    assert_eq!(lines(&plain.stdout), ["0", "1"]);
    let tagged = run(&["-n", "2", "--tag-output", "sh", "-c", script]);
    assert_eq!(lines(&tagged.stdout), ["[0] 0", "[1] 1"]);
    assert_eq!(lines(&tagged.stderr), ["[0] e0", "[1] e1"]);
}

#[test]
fn tagged_lines_never_mix() {
    // Each rank writes its lines in two halves.
    let script =
        "i=0; while [ $i -lt 200 ]; do printf 'begin $i $STANDPIPE_RANK '; echo end; i=$((i+1)); done";
    let script = script.replace('\'', "\"");
    let output = run(&["-n", "4", "--tag-output", "--", "sh", "-c", &script]);
    let text = String::from_utf8(output.stdout).expect("letters and digits");
    for rank in 0..4 {
        let tag = format!("[{rank}] ");
        let theirs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&tag)).collect();
        let expected: Vec<String> = (0..200).map(|i| format!("begin {i} {rank} end")).collect();
        assert_eq!(theirs, expected);
    }
    assert_eq!(text.lines().count(), 800);
}

#[test]
fn a_failure_is_named_and_its_status_returned() {
    let begun = Instant::now();
    let script = "test $STANDPIPE_RANK = 1 && exit 7; exec sleep 60";
    let output = run(&["-n", "3", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("standpipe: rank 1 (pid "), "{said}");
    assert!(said.ends_with(") exited with status 7; ending the others\n"), "{said}");
}

#[test]
fn the_grace_period_is_the_users() {
    let begun = Instant::now();
    let script =
        "test $STANDPIPE_RANK = 0 && { sleep 0.2; kill -9 $$; }; trap '' TERM; while :; do sleep 0.05; done";
    let output = run(&["-n", "2", "--grace", "0.2", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(137));
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("still running 200ms after SIGTERM: rank 1"));
}

/// Starts two ranks that say `ready` and ignore SIGINT, and interrupts the launcher; gives what came of it
/// and when.
fn interrupted(grace: &str, times: u32) -> (Output, Duration) {
    let script = "trap '' INT; echo ready; while :; do sleep 0.05; done";
    let mut command = standpipe(&["-n", "2", "--grace", grace, "--tag-output", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.by_ref().take(2).filter(Result::is_ok).count(), 2);
    let begun = Instant::now();
    for time in 0..times {
        if time > 0 {
            std::thread::sleep(Duration::from_millis(600));
        }
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    }
    let watchdog = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("ours to wait for").is_none() {
        if Instant::now() > watchdog {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (child.wait_with_output().expect("ours to wait for"), begun.elapsed())
}

#[test]
fn ranks_that_ignore_an_interrupt_are_killed_after_the_grace() {
    let (output, took) = interrupted("1", 1);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!(
        said.starts_with("standpipe: SIGINT was passed on to the ranks; those that still run 1s after"),
        "{said}"
    );
    assert!(said.ends_with("\nstandpipe: still running 1s after SIGINT: rank 0, 1; killing\n"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_grace() {
    let (output, took) = interrupted("3600", 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        took < Duration::from_secs(20) && said.contains("interrupted again; killing all ranks"),
        "{said}"
    );
}

#[test]
fn json_is_one_object_and_nothing_else() {
    let script = "echo noise; exit $STANDPIPE_RANK";
    let output = run(&["-n", "2", "--keep-going", "--json", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&report["status"], &report["first_failed"]), (&1.into(), &1.into()));
    assert_eq!((&report["ranks"][1]["exit_code"], &report["ranks"][1]["signal"]), (&1.into(), &().into()));
    let noise = String::from_utf8_lossy(&output.stderr);
    assert_eq!(noise.lines().filter(|line| *line == "noise").count(), 2);
}

#[test]
fn rank_zero_reads_the_launchers_input_and_the_others_nothing() {
    let mut command = standpipe(&["-n", "2", "--tag-output", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command runs");
    child.stdin.take().expect("piped").write_all(b"hello\n").expect("read by rank 0");
    let output = child.wait_with_output().expect("it ends at the end of input");
    assert_eq!(lines(&output.stdout), ["[0] hello"]);
    assert!(output.status.success());
}

#[test]
fn when_nobody_takes_the_output_the_job_ends() {
    let mut command = standpipe(&["-n", "2", "--tag-output", "--", "yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command runs");
    drop(child.stdout.take());
    let give_up = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = child.try_wait().expect("ours to wait for") {
            break status;
        }
        if Instant::now() > give_up {
            let _ = child.kill();
            panic!("it goes on without a reader");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(!status.success(), "yes(1) does not end well without a reader");
}

#[test]
fn output_that_finds_no_room_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let mut command = standpipe(&["-n", "1", "--tag-output", "--", "echo", "hello"]);
    let output = command.stdout(full).stderr(Stdio::piped()).output().expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("could be passed on: No space left on device"), "{said}");
}

#[test]
fn a_variable_that_looks_like_a_setting_and_is_none_is_told_once() {
    let mut command = standpipe(&["-n", "2", "--", "true"]);
    let output = command.env("STANDPIPE_HAEP", "1G").output().expect("the command runs");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("STANDPIPE_HAEP has no meaning").count(), 1, "{said}");
    for words in [&["run", "-n", "2", "--", "true"][..], &["info"], &["top"], &["doctor"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let output = command.args(words).env("STANDPIPE_HAEP", "1G").output().expect("the command runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.matches("STANDPIPE_HAEP").count(), 1, "{words:?}: {said}");
        assert!(said.contains("did you mean STANDPIPE_HEAP?"), "{words:?}: {said}");
        assert!(!said.contains("WARN"), "{words:?}: {said}");
    }
}

#[test]
fn settings_that_no_rank_can_read_are_told_before_any_starts() {
    let bad = [("STANDPIPE_HEAP", "banana"), ("STANDPIPE_TRANSPORT", "shmm"), ("STANDPIPE_ATTACH", "nver")];
    let with_bad = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_standpipe"));
        let output = command.args(args).envs(bad).output().expect("the command runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let hints = ["STANDPIPE_HEAP=\"banana\" is not bytes", "did you mean shm?", "did you mean never?"];
    let (status, out, said) = with_bad(&["run", "-n", "2", "--", "echo", "started"]);
    assert_eq!((status, out.as_str()), (Some(2), ""), "{said}");
    assert!(hints.iter().all(|hint| said.contains(hint)), "{said}");
    let (status, _, said) = with_bad(&["run", "-n", "2", "--transport", "shm", "--", "true"]);
    assert!(status == Some(2) && said.contains("banana") && !said.contains("shmm"), "{said}");
    // They start no rank, and say so all the same.
    for (args, starts) in [(&["info"][..], true), (&["top", "--openmetrics"], true)] {
        let (status, _, said) = with_bad(args);
        assert_eq!(status == Some(0), starts, "{args:?}: {said}");
        assert!(hints.iter().all(|hint| said.contains(hint)), "{args:?}: {said}");
        assert!(said.contains("no node would open"), "{said}");
    }
}

#[test]
fn a_transport_that_is_not_there_is_told_before_ranks_start() {
    let refused = |args: &[&str], set: &str| {
        let mut command = standpipe(args);
        let output = command.env("STANDPIPE_TRANSPORT", set).output().expect("the command runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    let program = ["-n", "2", "--", "sh", "-c", "echo started $STANDPIPE_TRANSPORT"];
    let named = [&["--transport", "ofi:nonesuch"], &program[..]].concat();
    for (args, set) in [(&program[..], "ofi:nonesuch"), (&named[..], "shm")] {
        let (status, said, written) = refused(args, set);
        assert_eq!((status, written.len()), (Some(2), 0), "{said}");
        assert!(said.starts_with("standpipe: ") && said.lines().count() == 1, "{said}");
    }
    let other = [&["--transport", "shm"], &program[..]].concat();
    let mut info = Command::new(env!("CARGO_BIN_EXE_standpipe"));
    let info = info.arg("info").env("STANDPIPE_TRANSPORT", "ofi:nonesuch").output().expect("it runs");
    let told = String::from_utf8_lossy(&info.stderr);
    assert!(info.status.success() && told.contains("no node would open: STANDPIPE_TRANSPORT=ofi:nonesuch"));
    let (status, said, written) = refused(&other, "ofi:nonesuch");
    let written = String::from_utf8_lossy(&written);
    assert_eq!((status, written.matches("started shm").count()), (Some(0), 2), "{said}");
}

#[test]
fn what_cannot_be_started_has_the_shells_status() {
    let missing = run(&["-n", "1", "--", "no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot run no-such-program-anywhere"));
    assert_eq!(run(&["-n", "1", "--", "/etc/passwd"]).status.code(), Some(126));
}

#[test]
fn arguments_are_checked() {
    for wrong in
        [&["-n", "0", "--", "true"][..], &["-n", "1025", "--", "true"], &["-n", "1"], &["--", "true"]]
    {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_rank_that_memory_was_not_there_for_is_told_of_as_such() {
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let bus = run(&["-n", "1", "--", "sh", "-c", "kill -BUS $$"]);
    assert!(
        said(&bus).contains("(SIGBUS) (it used memory of a file that is shorter by now"),
        "{}",
        said(&bus)
    );
    let Some(group) = Group::of(256 << 20) else {
        return testbed::skip("no control group with a limit of memory can be made (it takes root)");
    };
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"",
        &group.0,
        env!("CARGO_BIN_EXE_standpipe"),
    ]);
    // It keeps a line for as long as it has no end.
    shell.args(["run", "-n", "2", "--keep-going", "--", "sh", "-c", "exec tail /dev/zero"]);
    let output = shell.stdin(Stdio::null()).output().expect("it starts");
    let text = said(&output);
    assert_eq!(text.matches("out of memory: ").count(), 2, "{text}");
}

/// A control group of memory, by its folder, which goes away with it.
struct Group(String);

impl Group {
    fn of(limit_bytes: u64) -> Option<Group> {
        let versions = [
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
        ];
        versions.iter().find_map(|(root, limit, with_swap)| {
            let group = Group(format!("{root}/standpipe-test-{}", std::process::id()));
            std::fs::create_dir(&group.0).ok()?;
            // Else it is a folder like any other, and limits nothing.
            std::fs::exists(format!("{}/cgroup.procs", group.0)).ok()?.then_some(())?;
            std::fs::write(format!("{}/{limit}", group.0), limit_bytes.to_string()).ok()?;
            let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
            if swaps.lines().count() > 1 {
                std::fs::write(format!("{}/{with_swap}", group.0), limit_bytes.to_string()).ok()?;
            }
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Empty by now; what cannot be removed is left to the system.
        let _ = std::fs::remove_dir(&self.0);
    }
}

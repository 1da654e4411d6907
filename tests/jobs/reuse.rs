//! Names that the kernel gives to others once their owner has ended: a peer's process number, by which its
//! private memory is reached. Nothing is written into the process that has the number next, whenever the
//! survivor was stopped.

use crate::{pids, support};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Heard, LIMIT, config, eventually, is_running, itself, job_of, role, said, say};
use crate::traced::Traced;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use standpipe::launch::Outcome;
use standpipe::{Config, Error, Exposure, Node, Rank, Remote};

/// Where every process of these tests has a page, the survivor apart.
const PLACE: usize = 0x2a_0000_0000;
const BYTES: usize = 4096;
/// What a stranger has there, and what the survivor writes.
const ITS_OWN: u8 = 0x5a;
const WRITTEN: u8 = 0xc3;

/// What a survivor says of a put to a target that lives, and of one to a target that is gone.
const WELL: &str = "put: well";
const ENDED: &str = "the first thread has ended";
const LOST: &str = "put: peer 1 is lost";

#[test]
fn a_survivor_that_was_stopped_before_it_looked_writes_nothing_into_a_stranger() {
    pids::in_namespace("before the look");
}

#[test]
fn a_survivor_that_has_not_heard_of_the_end_writes_nothing_into_a_stranger() {
    pids::in_namespace("late news");
}

/// As a container is that is paused, or a batch system's job.
#[test]
fn a_survivor_that_was_frozen_writes_nothing_into_a_stranger() {
    pids::in_namespace("frozen");
}

#[test]
fn a_survivor_that_was_stopped_between_look_and_copy_does_not_say_that_all_is_well() {
    pids::in_namespace("between look and copy");
}

#[test]
fn a_strict_survivor_that_was_stopped_between_look_and_copy_writes_nothing_into_a_stranger() {
    pids::in_namespace("between look and copy, strictly");
}

#[test]
fn a_launcher_keeps_a_dead_ranks_number_while_another_rank_is_about_to_use_it() {
    pids::in_namespace("launcher, about to use it");
}

#[test]
fn a_launcher_keeps_a_dead_ranks_number_while_another_rank_is_stopped() {
    pids::in_namespace("launcher, stopped");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_not_lost() {
    let mut target = Process::start(&mut itself("headless"));
    let (mut survivor, _) = survivor_of(&mut target, "survivor");
    target.order("end it");
    assert_eq!(target.hear(), ENDED);
    is_reached(&mut survivor, &mut target);
}

#[test]
fn a_node_that_was_opened_by_a_thread_that_has_ended_is_not_lost() {
    let mut target = Process::start(&mut itself("threaded"));
    let (mut survivor, _) = survivor_of(&mut target, "survivor");
    is_reached(&mut survivor, &mut target);
}

/// Not a test: what the processes of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "before the look" => before_the_look(),
        "late news" => late_news(),
        "frozen" => frozen(),
        // What is left where nobody keeps the number: see docs/SECURITY.md.
        "between look and copy" => {
            assert_eq!(between_look_and_copy("survivor", libc::SYS_process_vm_writev), "spoilt");
        }
        "between look and copy, strictly" => {
            assert_eq!(between_look_and_copy("strict", libc::SYS_pwrite64), "intact");
        }
        "launcher, about to use it" => launcher(Hold::AboutToUse),
        "launcher, stopped" => launcher(Hold::Stopped),
        "target" => target(),
        "headless" => headless(),
        "threaded" => threaded(),
        "survivor" => survivor(config()),
        "strict" => survivor(config().attach_strict()),
        "stranger" => stranger(),
        "rank" => rank(),
        other => panic!("no role {other}"),
    }
}

/// A process in a role, killed when dropped.
struct Process {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Process {
        Process::of(piped(command).spawn().expect("it starts"))
    }

    fn of(mut child: Child) -> Process {
        let orders = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Process { child, orders, lines }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing that it says.
    fn hear(&mut self) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find_map(|line| said(&line).map(str::to_owned)).expect("it says something before it ends")
    }

    fn order(&mut self, text: &str) {
        writeln!(self.orders, "{text}").expect("it listens");
    }

    /// Kills it and gives its number back.
    fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead.
        let _ = (self.child.kill(), self.child.wait());
    }
}

fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped())
}

/// A survivor that has written to a target, and the thread of it that does.
fn survivor_of(target: &mut Process, role: &str) -> (Process, libc::pid_t) {
    let mut survivor = Process::start(&mut itself(role));
    survivor.order(&target.hear());
    assert_eq!(survivor.hear(), WELL, "{role}");
    let thread = survivor.hear().parse().expect("a number");
    (survivor, thread)
}

/// Another process with the number of a target that has ended, and other memory at the same place.
fn stranger_as(pid: u32) -> Process {
    let mut stranger = Process::of(pids::start_as(pid, piped(&mut itself("stranger"))));
    assert_eq!(stranger.hear(), "here");
    stranger
}

fn before_the_look() {
    let mut target = Process::start(&mut itself("target"));
    let (mut survivor, _) = survivor_of(&mut target, "survivor");
    survivor.order("stop");
    let pid = Pid::from_child(&survivor.child);
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("our child").expect("it stops");
    assert!(status.stopped());
    target.kill();
    let mut stranger = stranger_as(target.pid());
    kill_process(pid, Signal::CONT).expect("our child");
    assert_eq!(survivor.hear(), LOST);
    stranger.order("look");
    assert_eq!(stranger.hear(), "intact");
}

fn frozen() {
    let mut target = Process::start(&mut itself("target"));
    let (mut survivor, _) = survivor_of(&mut target, "survivor");
    let Some(freezer) = Freezer::of(survivor.pid()) else {
        return testbed::skip("no control group that freezes can be made here");
    };
    target.kill();
    let mut stranger = stranger_as(target.pid());
    survivor.order("put");
    drop(freezer);
    assert_eq!(survivor.hear(), LOST);
    stranger.order("look");
    assert_eq!(stranger.hear(), "intact");
}

/// A control group whose one process stands still until this is dropped.
struct Freezer {
    folder: String,
    thaw: (&'static str, &'static str),
    /// Where its process came from.
    home: String,
}

impl Freezer {
    fn of(pid: u32) -> Option<Freezer> {
        // By version 1 and 2: the mount, the process's group in /proc, how to freeze, how to see that it is
        // frozen, how to thaw.
        let versions = [
            (
                "/sys/fs/cgroup/freezer",
                ":freezer:",
                ("freezer.state", "FROZEN"),
                ("freezer.state", "FROZEN"),
                "THAWED",
            ),
            ("/sys/fs/cgroup", "0::", ("cgroup.freeze", "1"), ("cgroup.events", "frozen 1"), "0"),
        ];
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        versions.into_iter().find_map(|(mount, named, freeze, frozen, thaw)| {
            let own = groups.lines().find_map(|line| Some(line.split_once(named)?.1))?;
            // Numbers are the namespace's own, and others have the same.
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
            let folder = format!("{mount}/standpipe-test-{now}");
            std::fs::create_dir(&folder).ok()?;
            // Else it is a folder like any other, and freezes nobody.
            if !std::fs::exists(format!("{folder}/cgroup.procs")).is_ok_and(|is_there| is_there) {
                let _ = std::fs::remove_dir(&folder);
                return None;
            }
            let group =
                Freezer { folder, thaw: (freeze.0, thaw), home: format!("{mount}{own}/cgroup.procs") };
            group.write("cgroup.procs", &pid.to_string())?;
            group.write(freeze.0, freeze.1)?;
            let is_frozen = || {
                let state = std::fs::read_to_string(format!("{}/{}", group.folder, frozen.0));
                state.is_ok_and(|state| state.contains(frozen.1))
            };
            support::eventually(is_frozen).then_some(group)
        })
    }

    fn write(&self, file: &str, text: &str) -> Option<()> {
        std::fs::write(format!("{}/{file}", self.folder), text).ok()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.write(self.thaw.0, self.thaw.1);
        let procs = std::fs::read_to_string(format!("{}/cgroup.procs", self.folder)).unwrap_or_default();
        for pid in procs.lines() {
            let _ = std::fs::write(&self.home, pid);
        }
        // What cannot be removed is left to the system.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Holds the thread of the survivor that would hear of the target's end.
fn late_news() {
    let mut target = Process::start(&mut itself("target"));
    let (mut survivor, _) = survivor_of(&mut target, "survivor");
    let traced = Traced::seize(thread_of(survivor.pid(), "standpipe-p2p"));
    target.kill();
    let mut stranger = stranger_as(target.pid());
    survivor.order("put");
    assert_eq!(survivor.hear(), LOST);
    stranger.order("look");
    assert_eq!(stranger.hear(), "intact");
    traced.release();
}

/// The thread of a process that has this name, which it gives itself once it runs.
fn thread_of(pid: u32, name: &str) -> libc::pid_t {
    let mut thread = None;
    let is_there = eventually(|| {
        thread = named_thread(pid, name);
        thread.is_some()
    });
    assert!(is_there, "no thread of {pid} is named {name}");
    thread.expect("it is there")
}

fn named_thread(pid: u32, name: &str) -> Option<libc::pid_t> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let is_named = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let path = threads.map(|entry| entry.path()).find(|path| is_named(path))?;
    path.file_name()?.to_str()?.parse().ok()
}

/// Holds the survivor where it calls the kernel to copy, and gives the target's number away meanwhile. What
/// the stranger says.
fn between_look_and_copy(role: &str, call: libc::c_long) -> String {
    let mut target = Process::start(&mut itself("target"));
    let (mut survivor, thread) = survivor_of(&mut target, role);
    let traced = Traced::seize(thread);
    survivor.order("put");
    traced.run_to(call);
    target.kill();
    let mut stranger = stranger_as(target.pid());
    traced.release();
    assert_eq!(survivor.hear(), LOST);
    stranger.order("look");
    stranger.hear()
}

#[derive(Clone, Copy, PartialEq)]
enum Hold {
    AboutToUse,
    Stopped,
}

/// A job of two ranks, of which rank 1 is killed while rank 0 is held.
fn launcher(hold: Hold) {
    let heard = Heard::default();
    let job: std::thread::JoinHandle<Outcome> = std::thread::spawn({
        let heard = heard.clone();
        move || heard.run(job_of(2, "rank").keep_going(true))
    });
    assert!(eventually(|| (0..2).all(|rank| heard.said(rank).len() >= 2)), "{}", heard.all());
    let number = |rank, at: usize| heard.said(rank)[at].parse::<u32>().expect("a number");
    let (survivor, target) = (number(0, 0), number(1, 0));
    let signal = |pid: u32, signal| {
        kill_process(Pid::from_raw(pid as i32).expect("a number"), signal).expect("not reaped");
    };
    let traced = (hold == Hold::AboutToUse).then(|| Traced::seize(number(0, 1) as libc::pid_t));
    match &traced {
        Some(traced) => traced.run_to(libc::SYS_process_vm_writev),
        None => signal(survivor, Signal::STOP),
    }
    signal(target, Signal::KILL);
    assert!(eventually(|| !is_running(target)), "it dies");
    let kept = || std::path::Path::new(&format!("/proc/{target}")).exists();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        assert!(kept(), "its number is free while the other may use it");
        std::thread::sleep(Duration::from_millis(5));
    }
    match traced {
        Some(traced) => traced.release(),
        None => signal(survivor, Signal::CONT),
    }
    assert!(eventually(|| heard.said(0).len() > 2), "{}", heard.all());
    assert_eq!(heard.said(0)[2], LOST);
    assert!(eventually(|| !kept()), "all know, and it is reaped though the job goes on");
    signal(survivor, Signal::KILL);
    job.join().expect("no panic");
}

/// A page of this process's at the place where all have one.
fn page(fill: u8) -> &'static mut [u8] {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let place = std::ptr::with_exposed_provenance_mut(PLACE);
    // SAFETY: a new mapping, where this process has none so far.
    let at = unsafe { libc::mmap(place, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_eq!(at, place, "{}", std::io::Error::last_os_error());
    // SAFETY: mapped just now, for good, and used by nobody else of this process.
    let page = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), BYTES) };
    page.fill(fill);
    page
}

fn open() -> Node {
    Node::open_in(config().exposure(Exposure::Everything), None).expect("a node")
}

/// This thread's number.
fn thread() -> libc::pid_t {
    // SAFETY: a call that takes nothing and touches no memory at all.
    unsafe { libc::gettid() }
}

/// Says the node's address.
fn announce(node: &Node) {
    let address = node.address().expect("a node that listens");
    say(address.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
}

fn sleep() {
    std::thread::sleep(LIMIT);
}

fn target() {
    page(0);
    let node = open();
    announce(&node);
    sleep();
}

/// A process whose node a thread has opened that ends.
fn threaded() {
    page(0);
    let opened = std::thread::spawn(|| {
        let node = open();
        announce(&node);
        node
    });
    let _node = opened.join().expect("no panic");
    sleep();
}

/// A process whose first thread ends when it is told: a child of this one's, as the first thread of this one
/// is not ours to end.
fn headless() {
    // SAFETY: the child goes on with this thread alone, which has locked nothing.
    if unsafe { libc::fork() } != 0 {
        return sleep();
    }
    let first = thread();
    std::thread::spawn(move || {
        // SAFETY: a call that takes numbers only: it ends with the thread that started it.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        page(0);
        let node = open();
        announce(&node);
        let state = || std::fs::read_to_string(format!("/proc/self/task/{first}/stat")).expect("it is kept");
        assert!(eventually(|| state().contains(") Z ")), "its first thread has ended: {}", state());
        say(ENDED);
        sleep();
    });
    std::io::stdin().lines().next();
    // SAFETY: ends this thread alone, which holds nothing that others wait for.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn stranger() {
    let page = page(ITS_OWN);
    say("here");
    std::io::stdin().lines().next();
    say(if page.iter().all(|byte| *byte == ITS_OWN) { "intact" } else { "spoilt" });
}

fn there(peer: Rank) -> Remote {
    // SAFETY: a page of a target, which has it for this; or of a stranger, which only looks what becomes of
    // it.
    unsafe { Remote::raw(peer, PLACE as u64) }
}

fn outcome(put: Result<(), Error>) -> String {
    put.map_or_else(|error| format!("put: {error}"), |()| WELL.to_owned())
}

fn survivor(config: Config) {
    let node = Node::open_in(config, None).expect("a node");
    let mut orders = std::io::stdin().lines().map_while(Result::ok);
    let address = orders.next().expect("an address");
    let bytes = address.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("digits"));
    let bytes: Vec<u8> = bytes.map(|two| u8::from_str_radix(two, 16).expect("digits")).collect();
    let peer = node.connect_to(bytes).expect("it is there");
    let put = || outcome(node.put_bytes(there(peer), &[WRITTEN; 8]));
    say(put());
    say(thread());
    for order in orders {
        if order == "stop" {
            // This very thread stops at once, and the others with it.
            // SAFETY: sends this thread a signal that no handler ever gets.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        say(put());
    }
}

/// Writes to the target, which must be there, and hears of its end.
fn is_reached(survivor: &mut Process, target: &mut Process) {
    survivor.order("put");
    assert_eq!(survivor.hear(), WELL);
    target.kill();
    assert!(eventually(|| {
        survivor.order("put");
        survivor.hear() == LOST
    }));
}

/// Rank 0 writes to rank 1 until that fails; rank 1 sleeps.
fn rank() {
    let node = Node::open(config()).expect("a node");
    if node.rank() == 1 {
        page(0);
    }
    node.barrier().expect("both come");
    say(std::process::id());
    say(thread());
    if node.rank() == 1 {
        return sleep();
    }
    while node.put_bytes(there(1), &[WRITTEN; 8]).is_ok() {}
    say(outcome(node.put_bytes(there(1), &[WRITTEN; 8])));
    sleep();
}

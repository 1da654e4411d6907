//! Waits end: every kind of wait, by each setting of the progress thread, near and far, launched and not,
//! under tokio's two runtimes and on a thread that parks itself.
//!
//! Each case is two real processes, of which one may only sleep where the setting promises that it is served
//! all the same.

use crate::support;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::pin::pin;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use standpipe::{Config, GlobalPtr, Node, Rank, Reduction, Remote, Rights, Signal};

use crate::support::{Heard, LIMIT, Private, itself, job_of, pattern, private_of, said, say};

/// Values of the setting `STANDPIPE_PROGRESS`.
const SETTINGS: [&str; 3] = ["auto", "on", "off"];

/// What awaits.
const EXECUTORS: [&str; 3] = ["parked", "current", "multi"];

/// How often each process goes through all waits.
const ROUNDS: u64 = 3;

/// Bytes of a transfer: more than one message.
const LEN: usize = 20_000;

/// Messages that a process has heard, and how many of them on a thread of the library's.
static HEARD: AtomicU64 = AtomicU64::new(0);
static HEARD_BY_OURS: AtomicU64 = AtomicU64::new(0);

#[test]
fn child() {
    let Some(role) = support::role() else { return };
    support::die_after(LIMIT);
    match *role.split(' ').collect::<Vec<_>>() {
        ["rank", executor] => rank(executor),
        ["threadless"] => threadless(),
        ["owner", setting] => owner(setting),
        ["puller", executor, address, counter, memory] => puller(executor, address, counter, memory),
        _ => panic!("no role: {role}"),
    }
}

/// Ways to reach a peer: what they are called, their settings.
fn ways() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut ways = vec![("near", vec![]), ("near, by message", vec![("STANDPIPE_ATTACH", "never")])];
    ways.extend(support::network().map(|name| ("far", vec![("STANDPIPE_TRANSPORT", name)])));
    ways
}

#[test]
fn every_wait_of_a_launched_job_ends() {
    for (way, settings) in ways() {
        for setting in SETTINGS {
            for executor in EXECUTORS {
                let job = job_of(2, &format!("rank {executor}")).env("STANDPIPE_PROGRESS", setting);
                let job = settings.iter().fold(job, |job, (name, value)| job.env(name, value));
                println!("{way}, {setting}, {executor}");
                Heard::default().run_well(job);
            }
        }
    }
}

#[test]
fn every_wait_of_nodes_that_nobody_launched_ends() {
    for (way, settings) in ways() {
        for setting in SETTINGS {
            for executor in EXECUTORS {
                println!("{way}, {setting}, {executor}");
                let start = |role: &str| Process::start(role, setting, &settings);
                let mut owner = start(&format!("owner {setting}"));
                let place = owner.hear();
                let mut puller = start(&format!("puller {executor} {place}"));
                assert_eq!(puller.hear(), "done", "{way}, {setting}, {executor}");
                // It is told so only now, and has made no call until then.
                writeln!(owner.child.stdin.take().expect("piped"), "end").expect("it reads");
                assert_eq!(owner.hear(), "done", "{way}, {setting}, {executor}");
            }
        }
    }
}

#[test]
fn awaits_end_also_where_no_thread_can_be_started() {
    for setting in ["auto", "off"] {
        Heard::default().run_well(job_of(2, "threadless").env("STANDPIPE_PROGRESS", setting));
    }
}

/// A rank of a job of two that may start no thread any more.
fn threadless() {
    let node = node();
    node.connect(1 - node.rank()).expect("connected");
    node.barrier().expect("barrier");
    let refused = [libc::SYS_clone, libc::SYS_clone3].map(|call| (call, Vec::new()));
    let action = SeccompAction::Errno(libc::EAGAIN as u32);
    let arch = std::env::consts::ARCH.try_into().expect("seccompiler knows it");
    let filter = SeccompFilter::new(refused.into(), SeccompAction::Allow, action, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a good filter");
    apply_filter_all_threads(&program).expect("filters are allowed");
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "threads can be started");
    park_on(collectives(node.clone(), 1));
    node.barrier().expect("barrier");
}

/// A node whose handler tells by whom it is run.
fn node() -> Node {
    let config = Config::from_env().expect("good settings").heap_bytes(64 << 20).handler("hear", |_| {
        let is_ours = std::thread::current().name().is_some_and(|name| name.starts_with("standpipe"));
        HEARD_BY_OURS.fetch_add(u64::from(is_ours), Ordering::SeqCst);
        HEARD.fetch_add(1, Ordering::SeqCst);
    });
    Node::open(config).expect("a node")
}

/// Under `off` no thread of the library's has run a handler.
fn check_who_has_heard(setting: &str) {
    assert!(
        setting != "off" || HEARD_BY_OURS.load(Ordering::SeqCst) == 0,
        "a thread of ours has run handlers"
    );
}

/// A rank of a job of two: each wait in turn, with the other at the same.
fn rank(executor: &str) {
    let node = node();
    let (me, other) = (node.rank(), 1 - node.rank());
    let mine = Private::from(&pattern(u64::from(me), 4 * LEN));
    mine.show(&node, "memory");
    let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
    support::publish(&node, "counter", counter.ptr(0).to_words());
    let theirs = private_of(&node, other, "memory");
    let signalled = GlobalPtr::from_words(support::look_up(&node, other, "counter"));
    let hear = node.handler("hear").expect("registered");
    for round in 1..=ROUNDS {
        node.request(other, hear, [0; 4]).expect("sent");
        run(executor, awaits(node.clone(), theirs, other));
        run(executor, collectives(node.clone(), round));
        blocking(&node, theirs, other);
        node.barrier().expect("barrier");
        let mut sum = [round];
        node.world().all_reduce(&mut sum, Reduction::Sum).expect("all-reduce");
        assert_eq!(sum, [2 * round]);
        node.put_signal(theirs.plus(3 * LEN as u64), &[1_u8; 8], Signal::add(signalled, 1)).expect("put");
        assert!(node.wait_signal(counter.ptr(0), round).expect("signalled") >= round);
        node.directory().publish(&format!("round {round} of {me}"), &[]).expect("published");
        node.directory().wait(&format!("round {round} of {other}"), LIMIT).expect("published");
    }
    node.wait_until(|| HEARD.load(Ordering::SeqCst) == ROUNDS).expect("heard");
    check_who_has_heard(&std::env::var("STANDPIPE_PROGRESS").expect("set"));
    node.barrier().expect("barrier");
}

/// A node with memory for others. It sleeps, and makes no call, unless its setting says that nobody else
/// serves peers.
fn owner(setting: &str) {
    let node = node();
    let memory = Private::from(&pattern(0, 4 * LEN));
    let bytes = std::ptr::slice_from_raw_parts(
        std::ptr::with_exposed_provenance::<u8>(memory.addr() as usize),
        4 * LEN,
    );
    let _exposed = node.expose(bytes, Rights::ReadWrite);
    let counter = node.heap().alloc_zeroed::<u64>(1).expect("room");
    let address = support::hex(node.address().expect("a node that listens").as_bytes());
    say(format!("{address} {} {}", counter.ptr(0).offset(), memory.addr()));
    if setting == "off" {
        node.wait_signal(counter.ptr(0), ROUNDS).expect("signalled");
    }
    BufReader::new(std::io::stdin()).lines().next();
    assert_eq!(counter.read(0), ROUNDS);
    check_who_has_heard(setting);
    say("done");
}

/// A node that reads and writes the owner's memory.
fn puller(executor: &str, address: &str, counter: &str, memory: &str) {
    let node = node();
    let peer = node.connect_to(support::unhex(address)).expect("connected");
    let [counter, memory] = [counter, memory].map(|text| text.parse::<u64>().expect("a number"));
    // SAFETY: bytes of a `Private` of the owner's, which takes writes by others at any time and stays until
    // the owner ends.
    let theirs = unsafe { Remote::raw(peer, memory) };
    let own = node.heap().alloc_zeroed::<u64>(1).expect("room");
    for round in 1..=ROUNDS {
        run(executor, awaits(node.clone(), theirs, 0));
        blocking(&node, theirs, 0);
        node.barrier().expect("alone");
        let own = own.ptr(0);
        node.request(peer, node.handler("hear").expect("registered"), [0; 4]).expect("sent");
        node.put_signal(own, &[0_u64; 0], Signal::add(own, 1)).expect("put");
        node.wait_signal(own, round).expect("signalled");
        node.directory().publish("name", &[]).expect("published");
        node.directory().wait("name", LIMIT).expect("published");
        let signal = Signal::add(GlobalPtr::new(peer, counter), 1);
        node.put_signal(theirs.plus(3 * LEN as u64), &[1_u8; 8], signal).expect("put");
    }
    say("done");
}

/// Awaits operations, one after the other and several at once, with one whose memory has the pattern of this
/// seed.
async fn awaits(node: Node, theirs: Remote, seed: Rank) {
    let (result, buffer) = node.put_nb(theirs.plus(LEN as u64), pattern(9, LEN)).await;
    assert_eq!(result, Ok(()));
    assert_eq!(node.get_nb(theirs.plus(LEN as u64), vec![0_u8; LEN]).await, (Ok(()), buffer));
    let gets: Vec<_> = (0..4).map(|_| node.get_nb(theirs, vec![0_u8; LEN])).collect();
    // Not in the order of their start.
    for get in gets.into_iter().rev() {
        let (result, bytes) = get.await;
        assert_eq!(result, Ok(()));
        assert!(bytes == pattern(u64::from(seed), LEN), "other bytes than the owner's");
    }
}

async fn collectives(node: Node, round: u64) {
    let team = node.world();
    assert_eq!(team.barrier_nb().await.0, Ok(()));
    assert_eq!(team.all_reduce_nb(vec![round; 3], Reduction::Sum).await, (Ok(()), vec![2 * round; 3]));
    let large = vec![round; 100_000];
    assert_eq!(team.broadcast_nb(large.clone(), 0).await, (Ok(()), large));
}

fn blocking(node: &Node, theirs: Remote, seed: Rank) {
    let (result, bytes) = node.get_nb(theirs, vec![0_u8; LEN]).wait();
    assert_eq!(result, Ok(()));
    assert!(bytes == pattern(u64::from(seed), LEN), "other bytes than the owner's");
    node.put_nbi(theirs.plus(2 * LEN as u64), &pattern(7, LEN)).expect("started");
    node.quiet().expect("complete");
}

/// Runs a task by that executor to its end.
fn run(executor: &str, task: impl Future<Output = ()> + Send + 'static) {
    match executor {
        "current" => tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(task),
        "multi" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async { tokio::spawn(task).await.expect("no panic") });
        }
        _ => park_on(task),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a task to its end on this thread, which parks in between.
fn park_on(task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    while task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        std::thread::park();
    }
}

/// A process that nobody launched as part of a job.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(role: &str, setting: &str, settings: &[(&str, &str)]) -> Process {
        let mut command = itself(role);
        command.env("STANDPIPE_PROGRESS", setting).envs(settings.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Process { child, lines }
    }

    /// What it says next.
    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("it says more").expect("text");
            if let Some(text) = said(&line) {
                return text.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! What ships: which way each operation takes, why, by how many calls of the kernel, and what its target's
//! processor does for it. The table stands in `ships.txt`: a change that is to leave the ways alone leaves
//! that file alone.

mod support;
#[path = "support/traced.rs"]
mod traced;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use standpipe::{
    GlobalPtr, Mechanism, Node, Operation, PathReason, PutPiece, Remote, Signal, Stats, Strided,
};
use support::{Heard, Private, config, heap_of, job_of, look_up, network, publish, role, say};
use traced::Traced;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ships.txt");
/// Set to `write`, the table is written anew.
const WRITE: &str = "STANDPIPE_TEST_SHIPS";

/// The transports, as the table has them, and the settings of each.
const TRANSPORTS: [(&str, &[(&str, &str)]); 4] = [
    ("shm", &[("STANDPIPE_TRANSPORT", "shm")]),
    ("shm, no attach", &[("STANDPIPE_TRANSPORT", "shm"), ("STANDPIPE_ATTACH", "never")]),
    ("tcp", &[("STANDPIPE_TRANSPORT", "ofi:tcp")]),
    ("tcp, firehose", &[("STANDPIPE_TRANSPORT", "ofi:tcp"), ("STANDPIPE_STRATEGY", "firehose")]),
];

/// Nobody sleeps: who does must be woken, by calls that are not the operation's. A progress thread sleeps as
/// soon as the thread that polls has not had a processor for a while; without one, the barrier polls alone.
const NO_SLEEP: [(&str, &str); 2] = [("STANDPIPE_SPIN_US", "60000000"), ("STANDPIPE_PROGRESS", "off")];

const SIZES: [usize; 3] = [8, 4096, 1 << 20];
const LARGEST: usize = SIZES[2];

/// Private memory begins at a page: where a transfer is cut, or registered, depends on that.
const PAGE: u64 = 4096;

/// How often each operation is made before it counts, and then.
const WARM_UPS: usize = 3;
const TIMES: usize = 5;

/// A call of the kernel that nothing else makes: it stands before an operation that counts, and after it.
const MARK: libc::c_long = libc::SYS_getppid;

#[test]
fn each_operation_goes_the_way_that_the_table_says() {
    let has_network = network().is_some();
    let mut rows = String::new();
    let is_there = |transport: &str| !transport.starts_with("tcp") || has_network;
    for (transport, settings) in TRANSPORTS.into_iter().filter(|(transport, _)| is_there(transport)) {
        for row in ways(settings, transport == "shm") {
            writeln!(rows, "{transport:<15}{row}").expect("a string takes all");
        }
    }
    let header = format!(
        "{:<15}{:<15}{:<9}{:>8}  {:<15}{:<30}{:>5}{:>8}\n",
        "transport", "operation", "memory", "bytes", "way", "why", "calls", "served"
    );
    let table = format!("{header}{rows}");
    if std::env::var(WRITE).is_ok_and(|what| what == "write") {
        assert!(has_network, "the whole table is written, or none of it");
        std::fs::write(TABLE, &table).expect("the table's file");
    }
    let committed = std::fs::read_to_string(TABLE).expect("the table's file");
    // The header begins with another word than any row.
    let committed: Vec<&str> = committed.lines().filter(|line| is_there(line)).collect();
    let changed: Vec<String> = committed
        .iter()
        .zip(table.lines())
        .filter(|(was, is)| *was != is)
        .map(|(was, is)| format!("was {was}\nis  {is}"))
        .collect();
    let counts = (committed.len(), table.lines().count());
    assert!(changed.is_empty() && counts.0 == counts.1, "{counts:?} lines\n{}", changed.join("\n"));
}

/// The rows of one transport. Where messages are waited for, calls of the kernel depend on the moment, and
/// are not counted.
fn ways(settings: &[(&str, &str)], count: bool) -> Vec<String> {
    let heard = Heard::default();
    let job =
        settings.iter().chain(&NO_SLEEP).fold(job_of(2, "ship"), |job, (name, value)| job.env(*name, *value));
    let ranks = heard.clone();
    let running = std::thread::spawn(move || ranks.run_well(job));
    assert!(support::eventually(|| !heard.said(0).is_empty() || running.is_finished()), "{}", heard.all());
    let thread = heard.said(0)[0].parse().expect("its number");
    let calls = if count { calls_of(thread) } else { Vec::new() };
    running.join().expect("a job that ends well");
    let said = heard.said(0);
    let rows = said[1..].iter().enumerate();
    let least =
        |row: usize| calls.get(row * TIMES..(row + 1) * TIMES).and_then(|calls| calls.iter().min().copied());
    rows.map(|(row, text)| match text.rsplit_once(' ') {
        Some((text, served)) => {
            let calls = least(row).map_or("-".to_owned(), |calls| calls.to_string());
            format!("{text}{calls:>5}{served:>8}")
        }
        None => panic!("no row: {text}"),
    })
    .collect()
}

/// How many calls of the kernel a thread makes between each mark and the next, until it ends.
fn calls_of(thread: libc::pid_t) -> Vec<usize> {
    let traced = Traced::seize(thread);
    let (mut calls, mut open) = (Vec::new(), None::<usize>);
    while let Some(call) = traced.next_call() {
        open = match (open, call == MARK) {
            (None, true) => Some(0),
            (None, false) => None,
            (Some(counted), false) => Some(counted + 1),
            (Some(counted), true) => {
                calls.push(counted);
                None
            }
        };
    }
    calls
}

/// Not a test: what the ranks do.
#[test]
fn child() {
    if role().is_some() {
        ship();
    }
}

/// What rank 0 works with.
struct Bench {
    node: Node,
    heap: GlobalPtr<u8>,
    private: Remote,
    word: GlobalPtr<u64>,
    /// How many of its parts of puts and gets rank 1 has copied, as it last told, and how often it has.
    served: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
}

fn ship() {
    let (served, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (heard, tells) = (Arc::clone(&served), Arc::clone(&told));
    let config = config()
        .handler("tell", |call| {
            let served = call.node().stats().total(Operation::Served).count;
            call.reply(call.node().handler("told").expect("registered"), [served, 0, 0, 0])
                .expect("it lives");
        })
        .handler("told", move |call| {
            heard.store(call.args()[0], Ordering::SeqCst);
            tells.fetch_add(1, Ordering::SeqCst);
        })
        .handler("nothing", |_| {});
    let node = Node::open(config).expect("a node");
    let heap = node.heap().alloc_zeroed::<u8>(2 * LARGEST).expect("room");
    let word = node.heap().alloc_zeroed::<u64>(1).expect("room");
    let private = Private::new(2 * LARGEST + PAGE as usize);
    publish(&node, "heap", heap.ptr(0).to_words());
    publish(&node, "word", word.ptr(0).to_words());
    private.show(&node, "private");
    if node.rank() == 0 {
        let (heap, word) = (heap_of(&node, 1, "heap"), heap_of(&node, 1, "word"));
        let [addr, _] = look_up(&node, 1, "private");
        // SAFETY: bytes of the other's `Private`, which takes writes at any time and stays until both have
        // come to the barrier.
        let private = unsafe { Remote::raw(1, addr.next_multiple_of(PAGE)) };
        let bench = Bench { node: node.clone(), heap, private, word, served, told };
        // A thread of its own ends before the process does, and with it what is counted.
        std::thread::spawn(move || go(&bench)).join().expect("no panic");
    }
    node.barrier().expect("both come");
}

fn go(bench: &Bench) {
    // SAFETY: a call without arguments, which reads and writes no memory of this process and cannot fail.
    say(unsafe { libc::syscall(libc::SYS_gettid) });
    // Where messages are waited for nobody comes to count.
    let is_traced = || {
        std::fs::read_to_string("/proc/thread-self/status").is_ok_and(|text| !text.contains("TracerPid:\t0"))
    };
    if bench.node.attach(1) == Some(Ok(())) {
        assert!(support::eventually(is_traced), "somebody counts");
    }
    let node = &bench.node;
    for (memory, at) in [("heap", bench.heap.into()), ("private", bench.private)] {
        for bytes in SIZES {
            transfers(bench, memory, at, bytes);
        }
    }
    bench.row("atomic", "heap", 8, || _ = node.fetch_add(bench.word, 1).expect("added"));
    let nothing = node.handler("nothing").expect("registered");
    bench.row("request", "-", 0, || node.request(1, nothing, [0; 4]).expect("sent"));
    bench.row("request", "-", 64, || node.request_medium(1, nothing, [0; 4], &[7; 64]).expect("sent"));
    bench.row("request", "heap", 4096, || {
        node.request_long(nothing, [0; 4], bench.heap, &[7; 4096]).expect("sent")
    });
}

/// Each operation that moves so many bytes.
fn transfers(bench: &Bench, memory: &str, at: Remote, bytes: usize) {
    let (node, from) = (&bench.node, vec![7; bytes]);
    let mut into = vec![0; bytes];
    bench.row("put", memory, bytes, || node.put_bytes(at, &from).expect("put"));
    bench.row("get", memory, bytes, || node.get_bytes(at, &mut into).expect("got"));
    bench.row("put_nbi, quiet", memory, bytes, || {
        node.put_nbi(at, &from).expect("begun");
        node.quiet().expect("put");
    });
    let pieces: Vec<PutPiece<'_>> = from
        .chunks(bytes / 4)
        .enumerate()
        .map(|(number, from)| PutPiece { to: at.plus((number * bytes / 2) as u64), from })
        .collect();
    bench.row("put_list", memory, bytes, || node.put_list(&pieces).expect("put"));
    let (apart, here) = ([bytes as i64 / 2], [bytes as isize / 4]);
    let shape = Strided {
        block: bytes / 4,
        counts: &[4],
        remote_strides: &apart,
        local_strides: &here,
        ..Strided::default()
    };
    bench.row("put_strided", memory, bytes, || node.put_strided(at, &from, &shape).expect("put"));
    let signal = Signal::add(bench.word, 1);
    bench.row("put_signal", memory, bytes, || node.put_signal(at, &from, signal).expect("put"));
}

impl Bench {
    /// Makes the operation some times, and says which way it has gone.
    fn row(&self, operation: &str, memory: &str, bytes: usize, mut act: impl FnMut()) {
        for _ in 0..WARM_UPS {
            act();
        }
        let (before, served) = (self.node.stats(), self.served());
        for _ in 0..TIMES {
            mark();
            act();
            mark();
        }
        let (after, now) = (self.node.stats(), self.served());
        let served = (now - served) as f64 / TIMES as f64;
        let (way, why) = (way(&before, &after), reason(&before, &after));
        say(format!("{operation:<15}{memory:<9}{bytes:>8}  {way:<15}{why:<30} {served}"));
    }

    /// How many parts of puts and gets rank 1 has copied for this one so far.
    fn served(&self) -> u64 {
        let told = self.told.load(Ordering::SeqCst);
        self.node.request(1, self.node.handler("tell").expect("registered"), [0; 4]).expect("sent");
        self.node.wait_until(|| self.told.load(Ordering::SeqCst) > told).expect("told");
        self.served.load(Ordering::SeqCst)
    }
}

fn mark() {
    // SAFETY: a call without arguments, which reads and writes no memory of this process and cannot fail.
    unsafe { libc::syscall(MARK) };
}

/// By what the operations between two looks went: what was asked for last is a request of the bench's own.
fn way(before: &Stats, after: &Stats) -> String {
    let moved = |mechanism: &Mechanism| {
        [Operation::Put, Operation::Get, Operation::Atomic].iter().any(|operation| {
            after.get(*operation, *mechanism).count > before.get(*operation, *mechanism).count
        })
    };
    joined(Mechanism::ALL.iter().filter(|mechanism| moved(mechanism)).map(|mechanism| mechanism.name()))
}

fn reason(before: &Stats, after: &Stats) -> String {
    joined(PathReason::ALL.iter().filter(|why| after.why(**why) > before.why(**why)).map(|why| why.name()))
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

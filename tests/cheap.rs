//! What the common case does not cost: no allocation and no system call for a put, get or atomic in the heap,
//! or for a small collective whose members poll, and no processor time for waiting.
//!
//! That there is no system call is shown by a filter under which the first one kills the process.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use standpipe::host::cpu_time;
use standpipe::launch::End;
use standpipe::{
    Config, GetPiece, GlobalPtr, Indexed, Node, ProgressThread, PutPiece, Reduction, Remote, RemoteRun,
    Strided,
};
use support::{Heard, Private, heap_of, job_of, private_of, publish, role, say};

/// The system's allocator, with a count of what the calling thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; the counter is a plain word of the thread's
// own, whose use neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the block came from `alloc` above, that is from the system, with the same layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Signal 31: a system call that the filter does not allow.
const BAD_CALL: End = End::Killed(31);

#[test]
fn the_heap_path_makes_no_allocation_and_no_system_call() {
    let heard = Heard::default();
    heard.run_well(job_of(2, "cheap"));
    assert_eq!(heard.said(0), ["0 allocations"]);
}

#[test]
fn small_collectives_of_members_that_poll_make_hardly_an_allocation_and_no_system_call() {
    let heard = Heard::default();
    // They never have polled for long enough.
    heard.run_well(job_of(2, "together").env("STANDPIPE_SPIN_US", "60000000"));
    for rank in 0..2 {
        let allocations: u64 = heard.said(rank)[0].parse().expect("a number");
        println!("{allocations} allocations for {ROUNDS} rounds");
        // A word that comes before it is waited for is kept.
        assert!(allocations < ROUNDS, "{allocations} allocations for {ROUNDS} rounds");
    }
}

#[test]
fn the_filter_does_kill_at_a_system_call() {
    let outcome = Heard::default().run(job_of(2, "not so cheap").keep_going(true));
    assert_eq!((outcome.ranks[0].end, outcome.ranks[1].end), (BAD_CALL, End::Exited(0)));
}

#[test]
fn the_allocator_does_count() {
    let before = ASKED.get();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ASKED.get() - before, 2);
}

#[test]
fn waiting_takes_next_to_no_processor_time() {
    for progress in ["off", "on"] {
        let heard = Heard::default();
        heard.run_well(job_of(3, "idle").env("STANDPIPE_PROGRESS", progress));
        for rank in 1..3 {
            let percent: f64 = heard.said(rank)[0].parse().expect("a number");
            println!("waiting in a barrier, progress thread {progress}: {percent:.2} % of a core");
            assert!(percent < 5.0, "a process that waits takes {percent} % of a core");
        }
    }
}

/// Not a test: what the ranks of the tests above do.
#[test]
fn child() {
    let Some(role) = role() else { return };
    match role.as_str() {
        "cheap" => measure(|of, _| work(of)),
        "not so cheap" => measure(|of, there| {
            work(of);
            of.node.put_bytes(there, &[1]).expect("unless it kills");
        }),
        "together" => together(),
        "idle" => idle(),
        other => panic!("no role {other}"),
    }
}

/// What rank 0 works on: memory of rank 1, and buffers of its own.
struct Bench {
    node: Node,
    bytes: GlobalPtr<u8>,
    words: GlobalPtr<u64>,
    source: Vec<u8>,
    target: Vec<u8>,
}

/// Every operation of the heap path in many sizes, verified.
fn work(of: &mut Bench) {
    let Bench { node, bytes, words, source, target } = of;
    for size in [8, 9, 64, 1000, 4096] {
        node.put_bytes(*bytes, &source[..size]).expect("put");
        node.get_bytes(*bytes, &mut target[..size]).expect("get");
        assert!(source[..size] == target[..size]);
        node.put_slice(bytes.add(5), &source[..size]).expect("put");
        node.get_slice(bytes.add(5), &mut target[..size]).expect("get");
        assert!(source[..size] == target[..size]);
        node.put_nbi(*bytes, &source[..size]).expect("put");
        node.quiet().expect("quiet");
        let (there, here) = (Remote::from(*bytes), source.as_slice());
        let pieces = [0, 1, 2].map(|at| PutPiece { to: there.plus(at * 4096), from: &here[..size] });
        node.put_list(&pieces).expect("put list");
        let (first, second) = target.split_at_mut(size);
        if second.len() >= size {
            let far = GetPiece { from: there.plus(4096), into: &mut second[..size] };
            node.get_list(&mut [GetPiece { from: there, into: first }, far]).expect("get list");
        }
        shapes(node, *bytes, &source[..size], target);
        let (result, back) = node.put_nb(*bytes, std::mem::take(source)).wait();
        result.expect("put");
        *source = back;
    }
    for n in 0..1000 {
        node.put(*words, n).expect("put");
        assert_eq!(node.get(*words), Ok(n));
        node.put(words.add(1).cast(), [n; 4]).expect("put");
        assert_eq!(node.get(words.add(1).cast()), Ok([n; 4]));
        assert_eq!(node.fetch_add(*words, 2), Ok(n));
        assert_eq!(node.compare_swap(*words, n + 2, 7), Ok(n + 2));
    }
    node.fence().expect("fence");
}

/// Puts and gets of every shape, verified.
fn shapes(node: &Node, there: GlobalPtr<u8>, source: &[u8], target: &mut [u8]) {
    let half = source.len() / 2;
    let shape = Strided {
        block: half,
        counts: &[2],
        remote_strides: &[half as i64 + 3],
        local_strides: &[half as isize],
        ..Strided::default()
    };
    node.put_strided(there, source, &shape).expect("put");
    node.put_strided_nbi(there, source, &shape).expect("put");
    node.get_strided(there, target, &shape).expect("get");
    assert!(source[..2 * half] == target[..2 * half]);
    let offsets = [half as u64 + 3, 0];
    let shape =
        Indexed { remote_block: half, remote_offsets: &offsets, local_block: 2 * half, local_offsets: &[0] };
    node.put_indexed(there, source, &shape).expect("put");
    node.get_indexed(there, target, &shape).expect("get");
    assert!(source[..2 * half] == target[..2 * half]);
    let runs = offsets.map(|at| RemoteRun { at: there.add(at as usize).into(), len: half });
    node.put_vector(&runs, &[&source[..1], &source[1..2 * half]]).expect("put");
    let (first, second) = target[..2 * half].split_at_mut(half - 1);
    node.get_vector(&runs, &mut [first, second]).expect("get");
    assert!(source[..2 * half] == target[..2 * half]);
}

/// What the measured thread has come to: 1 more than its allocations.
static RESULT: AtomicU64 = AtomicU64::new(0);

/// Does `work` once to get warm, and once more under a filter that allows no system call.
fn measure(work: fn(&mut Bench, Remote)) {
    let node = Node::open(Config::from_env().expect("good settings").heap_bytes(1 << 20)).expect("a node");
    let (bytes, words) = (node.heap().alloc_zeroed::<u8>(1 << 14), node.heap().alloc_zeroed::<u64>(8));
    let (bytes, words) = (bytes.expect("room"), words.expect("room"));
    let private = Private::new(8);
    publish(&node, "bytes", bytes.ptr(0).to_words());
    publish(&node, "words", words.ptr(0).to_words());
    private.show(&node, "private");
    if node.rank() == 1 {
        // Whether rank 0 is killed or comes.
        let _ = node.barrier();
        return;
    }
    let there = private_of(&node, 1, "private");
    let (bytes, words) = (heap_of(&node, 1, "bytes"), heap_of(&node, 1, "words"));
    let (source, target) = (support::pattern(1, 4096), vec![0; 4096]);
    let mut bench = Bench { node: node.clone(), bytes, words, source, target };
    std::thread::spawn(move || {
        work(&mut bench, there);
        allow_no_calls();
        let before = ASKED.get();
        work(&mut bench, there);
        RESULT.store(1 + ASKED.get() - before, Ordering::SeqCst);
        // Even the thread's end would be a system call.
        loop {
            std::hint::spin_loop();
        }
    });
    while RESULT.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    say(format!("{} allocations", RESULT.load(Ordering::SeqCst) - 1));
    node.barrier().expect("barrier");
    std::process::exit(0);
}

/// From now on every system call of this thread but the process's end kills the process.
fn allow_no_calls() {
    let arch = std::env::consts::ARCH.try_into().expect("a machine that filters are made for");
    let rules = [(libc::SYS_exit_group, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.expect("a filter").try_into().expect("a short program");
    apply_filter(&program).expect("a thread may restrict itself");
}

/// All-reduces and two kinds of barriers in turn, so many of each.
const ROUNDS: u64 = 2000;

/// Barriers and all-reduces of a word between two that do nothing else, once to get warm and once more under
/// a filter that allows no system call. Whoever made an operation of each would make a dozen allocations.
fn together() {
    let config = support::config().progress(ProgressThread::Off);
    let node = Node::open(config).expect("a node");
    let meet = |node: &Node| {
        let team = node.world();
        for round in 0..ROUNDS {
            let mut value = [round + u64::from(node.rank())];
            team.all_reduce(&mut value, Reduction::Max).expect("an all-reduce");
            assert_eq!(value, [round + 1]);
            team.barrier().expect("a team's barrier");
            node.barrier().expect("a barrier");
        }
    };
    let (its, outcome) = (node.clone(), Arc::new(AtomicU64::new(0)));
    let told = Arc::clone(&outcome);
    std::thread::spawn(move || {
        meet(&its);
        allow_no_calls();
        let before = ASKED.get();
        meet(&its);
        told.store(1 + ASKED.get() - before, Ordering::SeqCst);
        // Even the thread's end would be a system call.
        loop {
            std::hint::spin_loop();
        }
    });
    while outcome.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    say(outcome.load(Ordering::SeqCst) - 1);
    // The other may still be on its way there, or gone.
    publish(&node, "over", [0; 2]);
    let _ = node.directory().wait(&format!("over of {}", 1 - node.rank()), support::LIMIT);
    std::process::exit(0);
}

/// Rank 0 comes late to a barrier; the others say what waiting took, in percent of a core.
fn idle() {
    const LATE: Duration = Duration::from_secs(2);
    let config = support::config();
    let node = Node::open(config).expect("a node");
    for peer in 0..node.size() {
        node.connect(peer).expect("connected");
    }
    node.barrier().expect("barrier");
    if node.rank() == 0 {
        std::thread::sleep(LATE);
    }
    let before = cpu_time();
    node.barrier().expect("barrier");
    say((cpu_time() - before).as_secs_f64() / LATE.as_secs_f64() * 100.0);
    node.barrier().expect("barrier");
}

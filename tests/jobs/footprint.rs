//! What of a job's memory is there for those who walk through all that a process has mapped: the kernel that
//! dumps core, and `mlockall`; and what stays of nodes that have closed. Each role runs in a process of its
//! own.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::support::{Heard, LIMIT, config, eventually, heap_of, itself, job_of, network, publish, role};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use standpipe::launch::End;
use standpipe::{GlobalPtr, HeapArray, Listen, Node, OpenError};
use testbed::{Mapped, mapped};

const MIB: u64 = 1 << 20;
const HEAP_BYTES: u64 = 512 * MIB;

/// What a process has that uses 1 MiB of its heap, at most.
const SMALL: u64 = 64 * MIB;

/// What is opened of a heap of which 1 MiB is used, at most.
const OPEN_MAX: u64 = 16 * MIB;

/// What a process may lock that may not lock much.
const LOCKABLE: u64 = 64 * MIB;

/// Where a rank that aborts leaves its core.
const FOLDER: &str = "STANDPIPE_TEST_FOLDER";

/// The user that has no rights but its own.
const NOBODY: u32 = 65534;

/// What a process ends with whose memory cannot be locked.
const UNLOCKED: i32 = 3;

/// What nobody has written but the rank that aborts, into its heap; the bytes are made when they are needed,
/// so that no other memory has them.
fn mark(index: usize) -> u64 {
    0x5354_414e_4450_4950_u64.rotate_left(index as u32 % 64) ^ index as u64
}

#[test]
fn neither_unused_memory_of_heaps_nor_peers_memory_is_dumped() {
    Heard::default().run_well(job_of(2, "flags"));
}

#[test]
fn rings_of_peers_that_never_come_are_neither_dumped_nor_locked() {
    let output = itself("unlaunched").output().expect("this program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_freed_leaves_core_dumps_and_what_is_taken_again_returns() {
    Heard::default().run_well(job_of(1, "freed"));
}

#[test]
fn a_core_has_what_its_process_wrote_and_touches_no_heap() {
    let Some(folder) = folder_for_cores() else { return };
    let heard = Heard::default();
    let outcome = heard.run(job_of(2, "aborts").env(FOLDER, folder.path()).keep_going(true));
    assert!(matches!(outcome.ranks[0].end, End::Killed(_)), "{outcome:?}\n{}", heard.all());
    assert_eq!(outcome.ranks[1].end, End::Exited(0), "{outcome:?}\n{}", heard.all());
    let Some(core) = only_file(folder.path()) else {
        return testbed::skip("the kernel has left no core, though it says that it would");
    };
    let bytes = std::fs::read(&core).expect("a core");
    let marks: Vec<u8> = (0..1 << 17).flat_map(|index| mark(index).to_le_bytes()).collect();
    println!("a core of {} KiB", bytes.len() >> 10);
    assert!(bytes.len() as u64 <= SMALL, "a core of {} bytes", bytes.len());
    let has = |part: &[u8]| bytes.windows(part.len()).step_by(8).any(|window| window == part);
    assert!(has(&marks), "what the rank wrote is not in its core");
}

#[test]
fn locking_what_will_be_mapped_takes_no_memory_for_heaps() {
    Heard::default().run_well(job_of(2, "locks before"));
}

#[test]
fn locking_what_is_mapped_takes_no_memory_for_heaps() {
    Heard::default().run_well(job_of(2, "locks after"));
}

#[test]
fn a_heap_that_cannot_be_locked_is_an_error_with_the_limit_and_the_remedy() {
    let output = itself("limits").output().expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// glibc keeps what was freed where and as it pleases, but in one arena, and until it is asked for it.
#[test]
fn pairs_of_nodes_that_open_and_close_over_a_network_leave_nothing() {
    let Some(network) = network() else { return };
    let mut command = itself("opens and closes");
    command.env("STANDPIPE_TRANSPORT", network).env("MALLOC_ARENA_MAX", "1");
    let output = command.output().expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{said}");
}

/// Not a test: what the processes of the tests above do.
#[test]
fn child() {
    match role().as_deref() {
        Some("flags") => flags(),
        Some("unlaunched") => unlaunched(),
        Some("freed") => freed(),
        Some("aborts") => aborts(),
        Some("locks before") => locks(true),
        Some("locks after") => locks(false),
        Some("limits") => limits(),
        Some("opens and closes") => opens_and_closes(),
        Some("may lock little") => may_lock_little(),
        _ => {}
    }
}

fn open() -> Node {
    Node::open(config().heap_bytes(HEAP_BYTES)).expect("a node")
}

/// Uses 1 MiB of this node's heap, and one word of each rank's, which each rank has then written and read.
fn use_heaps(node: &Node) -> HeapArray<u64> {
    let array = node.heap().alloc::<u64>(1 << 17).expect("room");
    for index in 0..array.len() {
        array.write(index, mark(index));
    }
    publish(node, "array", array.ptr(0).to_words());
    for peer in 0..node.size() {
        let there: GlobalPtr<u64> = heap_of(node, peer, "array");
        let last = there.add(array.len() - 1);
        node.put(last, node.get(last).expect("got")).expect("put");
    }
    node.barrier().expect("all are there");
    array
}

/// The mappings that an array lies in, of those with that name.
fn mappings_of(array: &HeapArray<u64>, maps: &[Mapped]) -> Vec<Mapped> {
    let start = array.as_ptr().addr() as u64;
    let end = start + array.len() as u64 * 8;
    maps.iter().filter(|map| map.range.start < end && start < map.range.end).cloned().collect()
}

fn bytes_of(maps: &[Mapped], which: impl Fn(&Mapped) -> bool) -> u64 {
    maps.iter().filter(|map| which(map)).map(Mapped::bytes).sum()
}

fn flags() {
    let node = open();
    let array = use_heaps(&node);
    let maps = mapped("standpipe-heap");
    assert_eq!(bytes_of(&maps, |_| true), 2 * HEAP_BYTES, "one's own and the peer's: {maps:#?}");
    let dumped = bytes_of(&maps, |map| map.is_dumped);
    assert!(dumped <= OPEN_MAX && mappings_of(&array, &maps).iter().all(|map| map.is_dumped), "{maps:#?}");
    let open = bytes_of(&maps, Mapped::is_open);
    assert!(open > dumped, "something of the peer's is open, and not dumped: {maps:#?}");
    assert!(open <= 2 * OPEN_MAX, "{maps:#?}");
    let control = mapped("standpipe-control");
    assert!(
        bytes_of(&control, |map| map.is_dumped) < bytes_of(&control, |map| !map.is_dumped),
        "{control:#?}"
    );
}

/// Room for a thousand peers is mapped at once, and each has rings.
fn unlaunched() {
    let (one, other) = (config().peers_max(1000), config().peers_max(1000));
    let (one, other) = (Node::open_in(one, None).expect("a node"), Node::open_in(other, None).expect("one"));
    one.connect_to(other.address().expect("it listens")).expect("they meet");
    let maps = mapped("standpipe-control");
    let all = bytes_of(&maps, |_| true);
    assert!(all > 4 * 100 * MIB, "both have both: {all} bytes");
    let open = bytes_of(&maps, Mapped::is_open);
    assert!(open <= 4 * MIB && bytes_of(&maps, |map| map.is_dumped) <= open, "{maps:#?}");
}

fn freed() {
    let node = open();
    let words = |mib: u64| usize::try_from(mib * MIB / 8).expect("few");
    let dumped = || bytes_of(&mapped("standpipe-heap"), |map| map.is_dumped);
    let kept = node.heap().alloc::<u64>(words(1)).expect("room");
    let (first, last) = (node.heap().alloc::<u64>(words(200)), node.heap().alloc::<u64>(words(200)));
    let last = last.expect("room");
    assert!(dumped() >= 400 * MIB);
    drop(first);
    assert!(dumped() <= 200 * MIB + SMALL, "{:#?}", mapped("standpipe-heap"));
    assert!(mappings_of(&kept, &mapped("standpipe-heap")).iter().all(|map| map.is_dumped));
    drop(last);
    assert!(dumped() <= SMALL, "{:#?}", mapped("standpipe-heap"));
    let again = node.heap().alloc::<u64>(words(300)).expect("room");
    let maps = mappings_of(&again, &mapped("standpipe-heap"));
    assert!(maps.iter().all(|map| map.is_dumped && map.is_open()), "{maps:#?}");
}

/// A folder that cores of processes started there go to, if there is one.
fn folder_for_cores() -> Option<tempfile::TempDir> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim().is_empty() || pattern.contains(['|', '/']) {
        testbed::skip(format_args!("cores do not go to the working directory: {}", pattern.trim()));
        return None;
    }
    let limit = getrlimit(Resource::Core).maximum;
    if limit.is_some_and(|limit| limit < 4 * HEAP_BYTES) {
        testbed::skip(format_args!("cores may have at most {limit:?} bytes"));
        return None;
    }
    Some(tempfile::tempdir().expect("a folder"))
}

fn only_file(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder).expect("it is there").next().map(|entry| entry.expect("a file").path())
}

fn aborts() {
    let node = open();
    let array = use_heaps(&node);
    let before = resident_bytes();
    node.barrier().expect("all are there");
    if node.rank() == 0 {
        std::env::set_current_dir(std::env::var_os(FOLDER).expect("the test says where")).expect("a folder");
        let maximum = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).expect("as much as is allowed");
        std::process::abort();
    }
    assert!(eventually(|| !node.lost_peers().is_empty()), "the launcher tells");
    assert_eq!(resident_bytes(), before, "who dumps core touches its peers' heaps");
    assert_eq!(array.read(0), mark(0));
}

/// Bytes of memory that this process's heap has, in whoever's use.
fn resident_bytes() -> u64 {
    // A peer that connects, too, sends its heap once more, which the thread that hears of it closes.
    assert!(
        eventually(|| open_heaps().len() == 1),
        "a peer's heap is closed once it is mapped: {:?}",
        open_heaps()
    );
    std::fs::metadata(&open_heaps()[0]).expect("it is open").blocks() * 512
}

/// The descriptors of heaps, as files.
fn open_heaps() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("/proc is there");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_heap = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:standpipe-heap"))
    };
    paths.filter(is_heap).collect()
}

/// Whether this process may lock all of its memory, and has done so.
fn locks_all(flags: rustix::mm::MlockAllFlags) -> bool {
    lock_all(flags).map_err(testbed::skip).is_ok()
}

/// Locks all of this process's memory; the error says why it is not locked.
fn lock_all(flags: rustix::mm::MlockAllFlags) -> Result<(), String> {
    let locked = rustix::mm::mlockall(flags);
    locked.map_err(|error| format!("this process may not lock its memory: {error}"))?;
    is_locked().then_some(()).ok_or_else(|| "mlockall does nothing here, as under sanitizers".to_owned())
}

/// Whether the kernel counts what is mapped now, if it was not before, as locked, or refuses to map it.
fn is_locked() -> bool {
    let segment = vm::Segment::create("standpipe-test", 64 << 10);
    let told = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let locked = told.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("Linux tells it");
    segment.is_err() || locked.split_whitespace().next() != Some("0")
}

fn locks(is_before: bool) {
    use rustix::mm::MlockAllFlags as Lock;
    if is_before && !locks_all(Lock::FUTURE) {
        return;
    }
    let node = open();
    let array = use_heaps(&node);
    // Both have mapped both: whatever either of them locks is counted at both.
    if !is_before && !locks_all(Lock::CURRENT | Lock::FUTURE) {
        return;
    }
    node.barrier().expect("all are there");
    let resident = resident_bytes();
    assert!(resident <= OPEN_MAX, "{resident} bytes of a heap of which 1 MiB is used");
    let more = node.heap().alloc::<u64>(1 << 20).expect("room");
    more.write(0, 1);
    let resident = resident_bytes();
    assert!(resident <= OPEN_MAX + 8 * MIB, "{resident} bytes of a heap of which 9 MiB are used");
    assert_eq!(array.read(1), mark(1));
    node.barrier().expect("all are there");
}

/// Lays the limit on itself, and runs what it is for as a user whom it binds.
fn limits() {
    let is_root = rustix::process::geteuid().is_root();
    let most = getrlimit(Resource::Memlock).maximum;
    let limit = most.map_or(LOCKABLE, |most| most.min(LOCKABLE));
    setrlimit(Resource::Memlock, Rlimit { current: Some(limit), maximum: Some(limit) })
        .expect("less is always allowed");
    let mut command = itself("may lock little");
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    match command.status() {
        Ok(status) if status.code() == Some(UNLOCKED) => testbed::skip("mlockall locks nothing here"),
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => {
            testbed::skip(format_args!("no process of user {NOBODY} can be started here ({error})"))
        }
    }
}

fn may_lock_little() {
    let limit = getrlimit(Resource::Memlock).current.expect("it was set");
    let small = Node::open_in(config().heap_bytes(MIB), None).expect("nothing is locked yet");
    let large = Node::open_in(config().heap_bytes(HEAP_BYTES), None).expect("nothing is locked yet");
    let address = large.address().expect("it listens");
    if let Err(why) = lock_all(rustix::mm::MlockAllFlags::FUTURE) {
        // Its parent skips: it may write to the file of skips, and this user may not.
        eprintln!("{why}");
        std::process::exit(UNLOCKED);
    }
    let opened = Node::open_in(config().heap_bytes(HEAP_BYTES), None).map(drop);
    let error = opened.expect_err("so much cannot be locked");
    assert!(matches!(error, OpenError::Heap { bytes: HEAP_BYTES, .. }), "{error}");
    let text = error.to_string();
    let (limit_text, bytes) = (limit.to_string(), HEAP_BYTES.to_string());
    for part in [&limit_text, &bytes, "ulimit -l", "STANDPIPE_HEAP", "MCL_FUTURE", "MCL_ONFAULT"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let error = small.connect_to(&address).map(drop).expect_err("so much cannot be locked");
    let text = error.to_string();
    assert!(text.contains("ulimit -l"), "{text}");
    if limit == LOCKABLE {
        let node = Node::open_in(config().heap_bytes(LOCKABLE / 4), None).expect("so much can");
        node.heap().alloc_zeroed::<u64>(1 << 17).expect("room");
    }
}

/// How many pairs of nodes open and close; and after how many memory stays as it is.
const PAIRS: usize = 60;
const SETTLED: usize = 20;

/// What a process has in use: KiB of memory that is resident, threads, and descriptors.
fn holdings() -> (u64, u64, usize) {
    // SAFETY: it gives free memory back to the system, and touches nothing that is in use.
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let number = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("the kernel says it");
        line.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc is there").count();
    (number("VmRSS:"), number("Threads:"), descriptors)
}

fn opens_and_closes() {
    let open = || {
        let listen = Listen::parse("127.0.0.1:0").expect("an address");
        Node::open_in(config().heap_bytes(MIB).listen(listen), None).expect("a node")
    };
    let mut settled = holdings();
    for pair in 1..=PAIRS {
        let (one, other) = (open(), open());
        one.connect_to(other.address().expect("it listens")).expect("they meet");
        one.close(LIMIT).expect("closed");
        other.close(LIMIT).expect("closed");
        if pair == SETTLED {
            settled = holdings();
        }
    }
    let ended = holdings();
    println!("(KiB, threads, descriptors): {settled:?} after {SETTLED} pairs, {ended:?} after {PAIRS}");
    assert!(ended.0 * 100 <= settled.0 * 105, "{} KiB, and {} KiB after {PAIRS} pairs", settled.0, ended.0);
    // The kernel still counts a thread for a moment that has just been joined, so that fewer are no fault.
    assert!(ended.1 <= settled.1 && ended.2 <= settled.2, "threads and descriptors: {settled:?}, {ended:?}");
}

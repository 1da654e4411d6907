//! A program whose allocator is the heap: what it allocates is mapped by its peers, whoever freed what
//! before.

#[path = "support/members.rs"]
mod members;
mod support;

use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use standpipe::launch::{Launch, LaunchError};
use standpipe::{Exposure, GlobalHeap, GlobalPtr, Mechanism, Node, Operation};

use members::{Member, Other, PRIVATE, config};
use support::{hex, itself, pattern, role, say};

// SAFETY: the peers of these tests write only to what this program means them to.
#[global_allocator]
static HEAP: GlobalHeap = unsafe { GlobalHeap::new() };

/// What the nodes of this program reach each other by.
const OVER: &str = "shm";

#[test]
fn child() {
    match role().as_deref() {
        Some("forks") => forks(),
        Some("frees") => frees(),
        Some("shows") => shows(),
        Some("limited") => limited(),
        Some("dumped") => dumped(),
        _ => members::play(),
    }
}

/// Each counts the bytes by what they went.
fn mapped(node: &Node, operation: Operation) -> u64 {
    node.stats().get(operation, Mechanism::Mapped).bytes
}

#[test]
fn what_another_process_allocates_is_mapped_here() {
    // Only heaps are exposed, and nobody attaches: what is reached is reached since it is in a heap.
    let here = Member::new(config().exposure(Exposure::Ranges).attach_never());
    let (node, mut other) = (&here.node, Other::start("by message"));
    let peer = node.connect_to(&other.address).expect("connected");
    let (there, bytes) = (other.private(peer), pattern(1, PRIVATE));
    node.put_bytes(there, &bytes).expect("put");
    let mut back = vec![0_u8; PRIVATE];
    node.get_bytes(there, &mut back).expect("got");
    assert!(back == bytes, "other bytes than were put");
    assert_eq!(other.order("private", "private"), hex(&bytes[..64]));
    assert_eq!((mapped(node, Operation::Put), mapped(node, Operation::Get)), (100_000, 100_000));
    let (done, back) = node.get_nb(there.plus(7), vec![0_u8; 100]).wait();
    done.expect("got");
    assert_eq!(back, bytes[7..107]);
    node.put_nbi(there, &[9_u8; 64]).expect("put");
    assert_eq!(other.order("private", "private"), hex(&[9; 64]));
}

#[test]
fn what_is_allocated_has_a_pointer_that_others_use() {
    let mut other = Other::start("shows");
    let node = Node::open_in(config(), None).expect("a node");
    let peer = node.connect_to(&other.address).expect("connected");
    let words = GlobalPtr::<u64>::new(peer, other.array);
    let mut values = [0; 4];
    node.get_slice(words, &mut values).expect("got");
    assert_eq!(values, [3, 1, 4, 1]);
    assert_eq!(node.fetch_add(words.add(1), 10), Ok(1));
    assert_eq!(other.order("look", "words"), "[3, 11, 4, 1]");
}

/// Shows where a vector of its lies, and what is in it when asked.
fn shows() {
    let node = Node::open_in(config(), None).expect("a node");
    let words: Vec<AtomicU64> = [3, 1, 4, 1].map(AtomicU64::new).into();
    let (first, on_the_stack) = (words[0].as_ptr(), 0_u64);
    assert_eq!(node.heap().ptr_of(&raw const on_the_stack), None);
    say(format!("address {}", hex(node.address().expect("a node that listens").as_bytes())));
    let [_, offset] = node.heap().ptr_of(first).expect("it is allocated").to_words();
    say(format!("place {offset} {}", first.addr()));
    for _ in std::io::stdin().lines() {
        say(format!("words {words:?}"));
    }
}

#[test]
fn what_is_freed_goes_back_to_the_system_and_comes_again_as_zeros() {
    let out = itself("frees").output().expect("it ran");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// The only node of its process allocates, frees, and allocates again.
fn frees() {
    let node = Node::open_in(config(), None).expect("a node");
    let before = node.heap().resident_bytes();
    let block = vec![1_u8; 256 << 20];
    let with = node.heap().resident_bytes();
    assert!(with >= before + (256 << 20), "{before} bytes, and {with} with 256 MiB more");
    drop(block);
    let gone = support::eventually(|| {
        // The allocator looks after its pages now and then, when it is called.
        drop(vec![1_u8; 1 << 20]);
        node.heap().resident_bytes() < before + (32 << 20)
    });
    assert!(gone, "{} bytes stay", node.heap().resident_bytes() - before);
    let again = vec![0_u8; 256 << 20];
    assert!(again.iter().all(|byte| *byte == 0), "memory that was used before is not zero");
}

/// Threads hand memory to each other, which is freed elsewhere than it was allocated.
#[test]
fn threads_allocate_and_free_each_others_memory() {
    let (send, receive) = mpsc::channel::<(u64, Vec<u8>)>();
    let checks = std::thread::spawn(move || {
        let mut count = 0;
        for (seed, block) in receive {
            assert!(block == pattern(seed, block.len()), "the block of seed {seed}");
            count += 1;
        }
        count
    });
    let makers: Vec<_> = (0..4_u64)
        .map(|thread| {
            let send = send.clone();
            std::thread::spawn(move || {
                for round in 0..200 {
                    let seed = thread << 32 | round;
                    let mut block = pattern(seed, 100);
                    block.reserve(1 << (round % 17));
                    block.extend(pattern(seed, (round as usize * 37) % 20_000 + 100).split_off(100));
                    send.send((seed, block)).expect("it listens");
                }
            })
        })
        .collect();
    drop(send);
    makers.into_iter().for_each(|maker| maker.join().expect("no panic"));
    assert_eq!(checks.join().expect("no panic"), 800);
}

#[test]
fn a_second_node_has_a_heap_of_its_own() {
    let nodes = [0, 1].map(|_| Node::open_in(config(), None).expect("a node"));
    let word = Box::new(AtomicU64::new(7));
    let pointers = nodes.each_ref().map(|node| node.heap().ptr_of(word.as_ptr()));
    // Another test's may have been the process's first.
    assert!(pointers[1].is_none(), "{pointers:?}");
    let array = nodes[1].heap().alloc_from(&[5_u64]).expect("room");
    assert_eq!(array.read(0), 5);
}

#[test]
fn a_heap_for_which_there_is_no_room_may_be_made_smaller() {
    let out = itself("limited").output().expect("it ran");
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("the second has it"), "{said}\n{error}");
}

/// Opens a node whose heap does not fit into the address space that this process may have, and then one whose
/// heap does.
fn limited() {
    let memory = |line: &str| {
        let all = std::fs::read_to_string("/proc/meminfo").expect("it is told");
        let found = all.lines().find_map(|told| told.strip_prefix(line)).expect("a line of it");
        found.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    let statm = std::fs::read_to_string("/proc/self/statm").expect("it is told");
    let pages: u64 = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    // The node maps the allocator's memory once more, and has 540 KiB for each of 1,024 peers.
    let most = pages * 4096 + memory("MemTotal:") / 2 + (1 << 30);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: only this process is limited, by a value that lives until the call returns.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let open = |heap| Node::open_in(config().heap_bytes(heap), None);
    let error = open(4 << 30).map(|_| ()).expect_err("there is no room");
    let node = open(8 << 20).unwrap_or_else(|error| panic!("no smaller one either: {error}"));
    let word = Box::new(AtomicU64::new(7));
    assert!(node.heap().ptr_of(word.as_ptr()).is_some(), "it is not in the heap");
    let full = node.heap().alloc_zeroed::<u8>(64 << 20).map(|_| ()).expect_err("there is no room");
    let is_full = matches!(full, standpipe::HeapError::Full { size, .. } if size == 8 << 20);
    assert!(is_full && node.heap().size() == 8 << 20, "{full}");
    say(format!("the second has it: {error}"));
}

#[test]
fn core_dumps_have_what_is_allocated_and_nothing_else() {
    let out = itself("dumped").output().expect("it ran");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Allocates and frees, and looks what a core dump would contain.
fn dumped() {
    const MIB: u64 = 1 << 20;
    let dumped = || {
        let maps = testbed::mapped("standpipe-global-heap");
        maps.into_iter().filter(|map| map.is_dumped).collect::<Vec<_>>()
    };
    let bytes = |maps: &[testbed::Mapped]| maps.iter().map(testbed::Mapped::bytes).sum::<u64>();
    let kept = vec![1_u8; MIB as usize];
    let before = bytes(&dumped());
    assert!(before <= 256 * MIB, "{:#?}", dumped());
    let is_dumped = |block: &[u8]| {
        let at = block.as_ptr().addr() as u64;
        dumped().iter().any(|map| map.range.contains(&at))
    };
    let node = Node::open_in(config(), None).expect("a node");
    assert!(is_dumped(&kept), "{:#?}", dumped());
    let more = vec![1_u8; 300 * MIB as usize];
    assert!(is_dumped(&more) && is_dumped(&more[more.len() - 1..]), "{:#?}", dumped());
    // The node maps it once more, and that is not dumped.
    let all = bytes(&testbed::mapped("standpipe-global-heap"));
    let with_more = bytes(&dumped());
    assert!(with_more <= before + 512 * MIB && with_more < all / 2, "{with_more} of {all}: {:#?}", dumped());
    drop((more, node));
}

#[test]
fn a_forked_process_ends_with_a_message() {
    let out = itself("forks").output().expect("it ran");
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("its child exited with 71"), "{said}\n{error}");
    assert!(error.contains("whose allocator is standpipe's heap was forked"), "{error}");
}

/// Forks, and says how that ended.
fn forks() {
    // SAFETY: the child runs nothing but the handler that ends it.
    let child = unsafe { libc::fork() };
    assert!(child > 0, "no fork: {child}");
    let mut status = 0;
    // SAFETY: a child of this process's, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    say(format!("its child exited with {}", libc::WEXITSTATUS(status)));
}

#[test]
fn it_launches_no_job() {
    drop(Box::new(1));
    let refused = Launch::new("true").ranks(2).run().map(|_| ()).expect_err("it cannot fork");
    assert!(matches!(refused, LaunchError::GlobalHeap), "{refused}");
}

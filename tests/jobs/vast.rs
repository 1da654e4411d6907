//! Memory that others' libraries stumble over: transfers longer than 32 bits count, and huge pages at either
//! end.

use std::ptr::null_mut;

use crate::support::{Heard, config, job_of, look_up, network, publish, role};
use standpipe::{Mechanism, Node, Operation, Remote};

/// Lengths just past what a signed and an unsigned word of 32 bits can count.
const LENGTHS: [usize; 2] = [(1 << 31) + 1, (1 << 32) + 1];

/// What stands behind all of a long range but its last page, again and again.
const STRIPE: usize = 16 << 20;
const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

#[test]
fn transfers_beyond_two_and_four_gigabytes_arrive_whole() {
    Heard::default().run_well(job_of(2, "long"));
}

#[test]
fn memory_of_huge_pages_is_put_from_and_got_into_as_any_other() {
    // Two for each of two ranks.
    let Some(pages) = huge(4) else {
        return testbed::skip("no huge pages are set aside here (vm.nr_hugepages)");
    };
    // SAFETY: the range was mapped by `huge` as it is, and nobody has looked at it.
    unsafe { libc::munmap(pages.as_mut_ptr().cast(), pages.len()) };
    Heard::default().run_well(job_of(2, "huge"));
    Heard::default().run_well(job_of(2, "huge").env("STANDPIPE_ATTACH", "never"));
    let Some(transport) = network() else { return };
    for strategy in ["bounce", "firehose"] {
        let job = job_of(2, "huge").env("STANDPIPE_TRANSPORT", transport);
        Heard::default().run_well(job.env("STANDPIPE_STRATEGY", strategy));
    }
}

/// Not a test: what the ranks of the tests above do.
#[test]
fn child() {
    match role().as_deref() {
        None => {}
        Some("long") => long(),
        Some("huge") => huge_at_both_ends(),
        Some(other) => panic!("no role {other}"),
    }
}

/// Addresses by the gigabyte with little memory behind them: one stripe over and over, and a page of its own
/// at the end.
struct Striped {
    start: *mut u8,
    len: usize,
}

impl Striped {
    fn new(len: usize) -> Striped {
        let whole = len.next_multiple_of(STRIPE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses a range that nothing else uses.
        let start = unsafe { libc::mmap(null_mut(), whole, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{len} bytes of addresses");
        // SAFETY: it makes a file in memory, by a name that ends in a zero.
        let file = unsafe { libc::memfd_create(c"stripe".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the file was made just now, and is this function's own to size.
        assert_eq!(unsafe { libc::ftruncate(file, STRIPE as i64) }, 0);
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let put_at = |at: usize, len: usize, flags, file| {
            // SAFETY: the place lies in the range mapped above, which nothing uses yet.
            let mapped = unsafe { libc::mmap(start.add(at), len, both, flags | libc::MAP_FIXED, file, 0) };
            assert_ne!(mapped, libc::MAP_FAILED);
        };
        (0..whole).step_by(STRIPE).for_each(|at| put_at(at, STRIPE, libc::MAP_SHARED, file));
        put_at((len - 1) / PAGE * PAGE, PAGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        // SAFETY: the number is this function's own; the mappings keep the file behind it.
        unsafe { libc::close(file) };
        Striped { start: start.cast(), len }
    }

    /// The whole of it, which peers write only while this rank does not look.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped, readable and writable for as long as this lives, and plain bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Striped {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.len.next_multiple_of(STRIPE)) };
    }
}

fn long() {
    let node = Node::open(config()).expect("it opens");
    for len in LENGTHS {
        let name = len.to_string();
        let mut mine = Striped::new(len);
        publish(&node, &name, [mine.start.expose_provenance() as u64, 0]);
        if node.rank() == 0 {
            let [addr, _] = look_up(&node, 1, &name);
            // SAFETY: rank 1 keeps the range until both have met below, and does not use it meanwhile.
            let there = unsafe { Remote::raw(1, addr) };
            let moved = || node.stats().get(Operation::Put, Mechanism::Cma).bytes;
            let before = moved();
            mine.bytes()[..STRIPE].fill(7);
            mine.bytes()[len - 1] = 9;
            node.put_bytes(there, mine.bytes()).expect("put");
            let by_attach = node.attach(1) == Some(Ok(()));
            assert!(!by_attach || moved() - before == len as u64, "{len}");
            mine.bytes()[..STRIPE].fill(0);
            mine.bytes()[len - 1] = 0;
            node.get_bytes(there, mine.bytes()).expect("got");
            assert_eq!(
                (mine.bytes()[0], mine.bytes()[STRIPE - 1], mine.bytes()[len - 1]),
                (7, 7, 9),
                "{len}"
            );
        }
        node.barrier().expect("both have moved it");
        if node.rank() == 1 {
            assert_eq!(
                (mine.bytes()[0], mine.bytes()[STRIPE - 1], mine.bytes()[len - 1]),
                (7, 7, 9),
                "{len}"
            );
        }
        node.barrier().expect("both have looked");
    }
}

/// So many huge pages, if the system has set them aside.
fn huge(pages: usize) -> Option<&'static mut [u8]> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses a range that nothing else uses.
    let start = unsafe { libc::mmap(null_mut(), pages * HUGE, both, flags, -1, 0) };
    // SAFETY: the range was mapped just now, is plain bytes, and stays mapped.
    (start != libc::MAP_FAILED).then(|| unsafe { std::slice::from_raw_parts_mut(start.cast(), pages * HUGE) })
}

fn huge_at_both_ends() {
    let node = Node::open(config()).expect("it opens");
    let pages = huge(2).expect("the launcher has found some");
    let addr = pages.as_ptr().expose_provenance() as u64;
    publish(&node, "huge", [addr, 0]);
    let peer = 1 - node.rank();
    let [there, _] = look_up(&node, peer, "huge");
    node.barrier().expect("both have some");
    // Across the end of the first page, at no alignment, a part for either direction.
    let (mine, theirs) = match node.rank() {
        0 => (HUGE - 100_001, HUGE + 1),
        _ => (HUGE + 1, HUGE - 100_001),
    };
    const LEN: usize = 100_000;
    pages[mine..mine + LEN].fill(40 + node.rank() as u8);
    node.barrier().expect("both have filled theirs");
    // SAFETY: the peer's pages stay mapped, and it uses its own part of them meanwhile.
    let remote = |at: usize| unsafe { Remote::raw(peer, there + at as u64) };
    let mut got = vec![0; LEN];
    node.get_bytes(remote(theirs), &mut got).expect("got");
    assert!(got.iter().all(|byte| *byte == 40 + peer as u8));
    node.put_bytes(remote(mine), &pages[mine..mine + LEN]).expect("put");
    node.get_bytes(remote(mine), &mut pages[..LEN]).expect("got");
    assert!(pages[..LEN].iter().all(|byte| *byte == 40 + node.rank() as u8));
    node.barrier().expect("both are done");
    assert!(pages[theirs..theirs + LEN].iter().all(|byte| *byte == 40 + peer as u8));
    node.barrier().expect("both have looked");
}

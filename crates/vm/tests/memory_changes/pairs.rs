//! A removal of pages, and what another thread does to some of them meanwhile.
//!
//! The kernel lets go of whoever removes pages before it takes them away. So anything may happen to them in
//! between.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::area::{Area, PAGE};

/// Pages of which some are removed.
pub(crate) const PAGES: u64 = 6;

/// Not in the C library's headers of old: `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: i32 = 24;

/// How often each pair is made: one turn at each end, with puts and with gets.
const ROUNDS: u32 = 4;

/// Names pairs to hold instead of all: those whose names begin so.
const ONLY: &str = "STANDPIPE_CHANGE_ROWS";

/// Parts of the area that the other thread changes, in pages.
const PARTS: [(&str, Range<u64>); 4] =
    [("whole", 0..PAGES), ("head", 0..2), ("middle", 2..4), ("tail", 4..PAGES)];

/// What another thread does to a part of what is removed. Something is mapped there afterwards.
struct Other {
    name: &'static str,
    change: fn(&Area),
}

const OTHERS: [Other; 16] = [
    Other { name: "munmap", change: unmapped },
    Other { name: "mmap over", change: Area::map_anew },
    Other { name: "mremap away", change: moved_away },
    Other { name: "mremap onto", change: moved_onto },
    Other { name: "mremap shrink", change: shrunk },
    Other { name: "mremap grow", change: grown },
    Other { name: "DONTNEED", change: |part| advise(part, libc::MADV_DONTNEED) },
    Other { name: "DONTNEED_LOCKED", change: |part| advise(part, DONTNEED_LOCKED) },
    Other { name: "FREE", change: |part| advise(part, libc::MADV_FREE) },
    Other { name: "PAGEOUT", change: |part| advise(part, libc::MADV_PAGEOUT) },
    Other { name: "huge pages", change: split_and_joined },
    Other { name: "MERGEABLE", change: merged_and_not },
    Other { name: "mlock", change: locked },
    Other { name: "mprotect", change: protected },
    Other { name: "write", change: |part| part.fill(0xfc) },
    Other { name: "fork", change: forked },
];

/// One removal and one other change at once.
pub(crate) struct Pair {
    other: &'static Other,
    part: &'static (&'static str, Range<u64>),
}

/// Those that are wanted.
pub(crate) fn pairs() -> impl Iterator<Item = Pair> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let all = OTHERS.iter().flat_map(|other| PARTS.iter().map(move |part| Pair { other, part }));
    all.filter(move |pair| pair.name().starts_with(&only))
}

impl Pair {
    pub(crate) fn name(&self) -> String {
        format!("DONTNEED and {}, {}", self.other.name, self.part.0)
    }

    /// How often it is to be made. A process with many pinned pages takes long to fork, as all of these are
    /// copied then.
    pub(crate) fn rounds(&self) -> u32 {
        let long = std::env::var("STANDPIPE_CHANGE_ROUNDS").map(|rounds| rounds.parse().expect("a number"));
        let rounds = long.map_or(ROUNDS, |rounds: u32| rounds.div_ceil(2));
        if self.other.name == "fork" { rounds.div_ceil(5) } else { rounds }
    }

    /// Removes the area's pages, and has another thread change the pair's part of it between the announcement
    /// and the removal itself. `meanwhile` is called again and again until both have returned.
    pub(crate) fn change(&self, area: &Area, mut meanwhile: impl FnMut()) {
        let Range { start, end } = self.part.1;
        let part = Area { addr: area.addr + start * PAGE, len: (end - start) * PAGE, is_borrowed: true };
        let removal = Removal::default();
        std::thread::scope(|scope| {
            let removes = scope.spawn(|| removal.remove(area));
            scope.spawn(|| removal.hold_up());
            let changes = scope.spawn(|| removal.meet(|| (self.other.change)(&part)));
            while !(removes.is_finished() && changes.is_finished()) {
                meanwhile();
            }
        });
    }
}

/// How long a removal is held up when the other change has been made, so that others can pin what is about to
/// go.
const HELD_UP: Duration = Duration::from_micros(500);

/// A wait for what has not come by then ends: the round shows less.
const PATIENCE: Duration = Duration::from_millis(20);

/// A removal whose thread gets no processor once it has been announced.
#[derive(Default)]
struct Removal {
    /// Which thread that is, when it runs.
    thread: AtomicI32,
    /// Where it runs, with whoever takes the processor from it.
    processor: AtomicUsize,
    is_ready: AtomicBool,
    is_met: AtomicBool,
}

impl Removal {
    fn remove(&self, area: &Area) {
        // SAFETY: both calls take nothing, touch no memory, and return numbers.
        let (processor, thread) = unsafe { (libc::sched_getcpu() as usize, libc::gettid()) };
        stay_on(processor);
        self.processor.store(processor, Ordering::SeqCst);
        self.thread.store(thread, Ordering::SeqCst);
        within(PATIENCE, || self.is_ready.load(Ordering::SeqCst));
        try_to_advise(area, libc::MADV_DONTNEED);
    }

    /// Takes the processor when a removal is announced, and gives it back when the other change has been made
    /// for a while.
    fn hold_up(&self) {
        within(PATIENCE, || self.thread.load(Ordering::SeqCst) > 0);
        let thread = self.thread.load(Ordering::SeqCst);
        stay_on(self.processor.load(Ordering::SeqCst));
        let mut polled = libc::pollfd { fd: userfaultfd(), events: libc::POLLIN, revents: 0 };
        // The other thread goes on when this one sleeps, as both have one processor.
        self.is_ready.store(true, Ordering::SeqCst);
        // SAFETY: one descriptor of this process, and a structure that lives for the call.
        unsafe { libc::poll(&raw mut polled, 1, PATIENCE.as_millis() as i32) };
        be_scheduled(thread, libc::SCHED_IDLE);
        spin(PATIENCE, || self.is_met.load(Ordering::SeqCst));
        spin(HELD_UP, || false);
        be_scheduled(thread, libc::SCHED_OTHER);
    }

    /// Makes the other change when a removal has been announced.
    fn meet(&self, change: impl FnOnce()) {
        let removed = || vm::Monitor::of_process().map_or(0, |monitor| monitor.counters().removed);
        let before = removed();
        within(PATIENCE, || removed() > before);
        change();
        self.is_met.store(true, Ordering::SeqCst);
    }
}

fn within(limit: Duration, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() && start.elapsed() < limit {
        std::thread::yield_now();
    }
}

/// Does not give the processor away.
fn spin(limit: Duration, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() && start.elapsed() < limit {
        std::hint::spin_loop();
    }
}

/// If that may be.
fn be_scheduled(thread: i32, policy: i32) {
    // SAFETY: the parameters live for the call, which concerns one thread of the test's, or none.
    unsafe { libc::sched_setscheduler(thread, policy, &libc::sched_param { sched_priority: 0 }) };
}

/// If it may, this thread stays on that processor.
fn stay_on(processor: usize) {
    // SAFETY: a set of processors is numbers, of which zero is none; it lives for the call, which concerns
    // this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// The descriptor by which the kernel tells this process's monitor.
fn userfaultfd() -> i32 {
    let is_it = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("userfaultfd"))
    };
    let mut open = std::fs::read_dir("/proc/self/fd").expect("there is a /proc").flatten();
    let found = open.find(is_it).and_then(|entry| entry.file_name().to_str()?.parse().ok());
    found.unwrap_or(-1)
}

/// What is to be removed may not be mapped now, or be locked.
fn try_to_advise(area: &Area, advice: i32) {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    unsafe { libc::madvise(area.start(), area.len(), advice) };
}

fn advise(part: &Area, advice: i32) {
    try_to_advise(part, advice);
}

fn unmapped(part: &Area) {
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    part.call("munmap", |at, len| unsafe { libc::munmap(at, len) }.into());
    part.map_anew();
}

fn moved_away(part: &Area) {
    remap(part, &Area::reserved(part.len / PAGE));
    part.map_anew();
}

fn moved_onto(part: &Area) {
    let other = Area::new(part.len / PAGE);
    other.fill(0xee);
    remap(&other, part);
}

fn remap(from: &Area, to: &Area) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both areas are this test's alone, and nothing in them is borrowed.
    from.call("mremap", |at, len| unsafe { libc::mremap(at, len, len, flags, to.start()) } as i64);
}

/// All but the part's last byte's page goes, or all of one page.
fn shrunk(part: &Area) {
    resize(part, part.len(), PAGE as usize);
    let rest = Area { addr: part.addr + PAGE, len: part.len - PAGE, is_borrowed: true };
    if rest.len > 0 {
        rest.map_anew();
    }
}

/// The part's last page goes, and comes back when what is left grows.
fn grown(part: &Area) {
    let last = Area { addr: part.addr + part.len - PAGE, len: PAGE, is_borrowed: true };
    // SAFETY: the area is this test's alone, and nothing in it is borrowed.
    last.call("munmap", |at, len| unsafe { libc::munmap(at, len) }.into());
    if part.len == PAGE || !resize(part, part.len() - PAGE as usize, part.len()) {
        last.map_anew();
    }
}

fn resize(part: &Area, from: usize, to: usize) -> bool {
    // SAFETY: the area is this test's alone, nothing in it is borrowed, and what it grows into is a hole of
    // its own.
    unsafe { libc::mremap(part.start(), from, to, 0) == part.start() }
}

/// What the kernel knows of a mapping is one with its neighbours, or apart.
fn split_and_joined(part: &Area) {
    advise(part, libc::MADV_NOHUGEPAGE);
    advise(part, libc::MADV_HUGEPAGE);
}

fn merged_and_not(part: &Area) {
    advise(part, libc::MADV_MERGEABLE);
    advise(part, libc::MADV_UNMERGEABLE);
}

/// Nothing locked can be removed.
fn locked(part: &Area) {
    // SAFETY: the area is this test's alone, and locking changes no byte of it.
    unsafe {
        libc::mlock(part.start(), part.len());
        libc::munlock(part.start(), part.len());
    }
}

fn protected(part: &Area) {
    for rights in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: the area is this test's alone; whoever transfers it bears that it is protected.
        part.call("mprotect", |at, len| unsafe { libc::mprotect(at, len, rights) }.into());
    }
}

fn forked(part: &Area) {
    // SAFETY: the child makes system calls only and ends by one; the status is written to where it fits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::munmap(part.start(), part.len());
            libc::_exit(0)
        }
        assert!(child > 0);
        part.fill(0xfd);
        let mut status = 0;
        assert_eq!((libc::waitpid(child, &raw mut status, 0), status), (child, 0));
    }
}

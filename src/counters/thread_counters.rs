//! Counting what never enters the engine, without an atomic read-modify-write per operation.
//!
//! Each thread has counters of its own for each node, which only it writes; a reader adds them all up. Those
//! of the first thread that counts lie in the node itself: for them one comparison is all that there is to
//! looking them up.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Counters, Mechanism, Operation, PathReason, Tally};

/// The operations counted here: those that complete at the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FastOp {
    PutMapped,
    GetMapped,
    /// Of 8 bytes, as those for [`FastOp::PutMapped`] are of any number. Stores leave a processor in order,
    /// and of those that wait for a line it holds few dozens. Where many puts miss the caches, each store
    /// less lets more of them wait at once.
    Put8Mapped,
    /// Of 8 bytes.
    Get8Mapped,
    /// Of words of 4 bytes: how many says how many bytes.
    Atomic4Mapped,
    /// Of words of 8 bytes.
    Atomic8Mapped,
    PutCma,
    GetCma,
}

impl FastOp {
    /// A put of so many bytes in mapped memory.
    #[inline(always)]
    pub(crate) const fn put_mapped(bytes: u64) -> FastOp {
        if bytes == 8 { FastOp::Put8Mapped } else { FastOp::PutMapped }
    }

    /// A get of so many bytes from mapped memory.
    #[inline(always)]
    pub(crate) const fn get_mapped(bytes: u64) -> FastOp {
        if bytes == 8 { FastOp::Get8Mapped } else { FastOp::GetMapped }
    }

    /// Bytes of each such operation, if all have as many.
    #[inline(always)]
    const fn bytes_each(self) -> Option<u64> {
        match self {
            FastOp::Atomic4Mapped => Some(4),
            FastOp::Put8Mapped | FastOp::Get8Mapped | FastOp::Atomic8Mapped => Some(8),
            _ => None,
        }
    }
}

const KINDS: [(FastOp, Operation, Mechanism, PathReason); 8] = [
    (FastOp::PutMapped, Operation::Put, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::GetMapped, Operation::Get, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::Put8Mapped, Operation::Put, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::Get8Mapped, Operation::Get, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::Atomic4Mapped, Operation::Atomic, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::Atomic8Mapped, Operation::Atomic, Mechanism::Mapped, PathReason::HeapMapped),
    (FastOp::PutCma, Operation::Put, Mechanism::Cma, PathReason::PrivateReachable),
    (FastOp::GetCma, Operation::Get, Mechanism::Cma, PathReason::PrivateReachable),
];

/// One thread's counts, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Block {
    counts: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
}

impl Block {
    #[inline(always)]
    fn add(&self, what: FastOp, bytes: u64) {
        bump(&self.counts[what as usize], 1);
        if what.bytes_each().is_none() {
            bump(&self.bytes[what as usize], bytes);
        }
    }

    fn add_all(&self, other: &Block) {
        let pairs = self.counts.iter().zip(&other.counts).chain(self.bytes.iter().zip(&other.bytes));
        for (mine, theirs) in pairs {
            bump(mine, theirs.load(Ordering::Relaxed));
        }
    }
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// No thread's number.
const NOBODY: u64 = u64::MAX;

thread_local! {
    /// This thread's number; 0 before it has one.
    static NUMBER: Cell<u64> = const { Cell::new(0) };

    /// The counters that this thread used last, and whose they are.
    static LAST: RefCell<Option<(u64, Arc<Block>)>> = const { RefCell::new(None) };
}

/// Counters of one thread at a time, that is no Rust: it adds 1 to one of these for each operation of 8
/// bytes. They are the node's as long as this lives, and their sum after that.
#[derive(Debug)]
pub struct InlineCounters(Arc<Block>);

impl InlineCounters {
    /// Puts in mapped heaps.
    pub fn puts(&self) -> *mut u64 {
        self.0.counts[FastOp::Put8Mapped as usize].as_ptr()
    }

    /// Gets from mapped heaps.
    pub fn gets(&self) -> *mut u64 {
        self.0.counts[FastOp::Get8Mapped as usize].as_ptr()
    }

    /// Atomics on mapped heaps.
    pub fn atomics(&self) -> *mut u64 {
        self.0.counts[FastOp::Atomic8Mapped as usize].as_ptr()
    }
}

/// All threads' counts of one node.
#[derive(Debug)]
pub(crate) struct ThreadCounters {
    /// Tells nodes of one process apart.
    node: u64,
    /// The number of the first thread that counted, [`NOBODY`] before: only it writes `first`.
    owner: AtomicU64,
    first: Block,
    /// The others'.
    threads: Mutex<Threads>,
}

/// The counters of those threads that may still count, and the sum of the others'.
#[derive(Debug, Default)]
struct Threads {
    blocks: Vec<(Option<std::thread::ThreadId>, Arc<Block>)>,
    past: Block,
}

impl Threads {
    /// Adds up the counters that no thread holds any more: it has ended, or last counted for another node.
    fn fold(&mut self) {
        let Threads { blocks, past } = self;
        blocks.retain(|(_, block)| {
            let held = Arc::strong_count(block) > 1;
            if !held {
                // The values that the thread wrote before it let go.
                fence(Ordering::Acquire);
                past.add_all(block);
            }
            held
        });
    }
}

impl ThreadCounters {
    pub(crate) fn new() -> ThreadCounters {
        static NODES: AtomicU64 = AtomicU64::new(1);
        let node = NODES.fetch_add(1, Ordering::Relaxed);
        ThreadCounters {
            node,
            owner: AtomicU64::new(NOBODY),
            first: Block::default(),
            threads: Mutex::default(),
        }
    }

    /// Counts one operation of so many bytes. Any thread.
    #[inline(always)]
    pub(crate) fn add(&self, what: FastOp, bytes: u64) {
        if NUMBER.get() == self.owner.load(Ordering::Relaxed) {
            return self.first.add(what, bytes);
        }
        self.add_elsewhere(what, bytes);
    }

    /// Counts for a thread that is not the first, or not known to be.
    #[inline(never)]
    fn add_elsewhere(&self, what: FastOp, bytes: u64) {
        if self.owner.load(Ordering::Relaxed) == NOBODY && self.claim() {
            return self.first.add(what, bytes);
        }
        let counted = LAST.try_with(|last| {
            if let Some((node, block)) = &*last.borrow()
                && *node == self.node
            {
                return block.add(what, bytes);
            }
            self.add_first(last, what, bytes);
        });
        if counted.is_err() {
            // The thread is ending: what counts is the drop of something that belongs to it.
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.past.add(what, bytes);
        }
    }

    /// Makes this thread the first, unless another has been quicker.
    fn claim(&self) -> bool {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        if NUMBER.get() == 0 {
            NUMBER.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
        }
        self.owner.compare_exchange(NOBODY, NUMBER.get(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn add_first(&self, last: &RefCell<Option<(u64, Arc<Block>)>>, what: FastOp, bytes: u64) {
        let thread = std::thread::current().id();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.fold();
        let blocks = &mut threads.blocks;
        let block = match blocks.iter().find(|(id, _)| *id == Some(thread)) {
            Some((_, block)) => Arc::clone(block),
            None => {
                let block = Arc::new(Block::default());
                blocks.push((Some(thread), Arc::clone(&block)));
                block
            }
        };
        block.add(what, bytes);
        last.replace(Some((self.node, block)));
    }

    /// Counters that no thread of this library's writes, for operations that are inlined into programs of
    /// other languages.
    pub(crate) fn of_others(&self) -> InlineCounters {
        let block = Arc::new(Block::default());
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.fold();
        threads.blocks.push((None, Arc::clone(&block)));
        InlineCounters(block)
    }

    /// Adds everything counted so far to `counters`.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for block in threads.blocks.iter().map(|(_, block)| &**block).chain([&self.first, &threads.past]) {
            for (kind, operation, mechanism, why) in KINDS {
                let count = block.counts[kind as usize].load(Ordering::Relaxed);
                let bytes = match kind.bytes_each() {
                    Some(each) => each * count,
                    None => block.bytes[kind as usize].load(Ordering::Relaxed),
                };
                counters.add_many(operation, mechanism, Tally { count, bytes });
                counters.add_why(why, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        assert!(KINDS.iter().enumerate().all(|(index, (kind, ..))| *kind as usize == index));
    }

    #[test]
    fn every_threads_counts_add_up_and_nodes_stay_apart() {
        let (one, other) = (ThreadCounters::new(), ThreadCounters::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        one.add(FastOp::PutMapped, 8);
                        other.add(FastOp::GetCma, 3);
                    }
                });
            }
        });
        let mut counters = Counters::default();
        one.add_to(&mut counters);
        assert_eq!(counters.get(Operation::Put, Mechanism::Mapped), Tally { count: 4000, bytes: 32_000 });
        assert_eq!(counters.get(Operation::Get, Mechanism::Cma), Tally::default());
        assert_eq!(counters.why(PathReason::HeapMapped), 4000);
    }

    #[test]
    fn what_belongs_to_a_thread_may_count_when_the_thread_ends() {
        struct Last(Arc<ThreadCounters>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.add(FastOp::GetCma, 3);
            }
        }
        thread_local! {
            static MINE: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let thread_counters = Arc::new(ThreadCounters::new());
        // This thread is the first, whose counters are not its own to drop.
        thread_counters.add(FastOp::GetCma, 3);
        let theirs = Arc::clone(&thread_counters);
        let other = std::thread::spawn(move || {
            // Before its first count: what a thread set first it drops last.
            MINE.set(Some(Last(Arc::clone(&theirs))));
            theirs.add(FastOp::GetCma, 3);
        });
        other.join().expect("counting does not panic");
        let mut counters = Counters::default();
        thread_counters.add_to(&mut counters);
        assert_eq!(counters.get(Operation::Get, Mechanism::Cma), Tally { count: 3, bytes: 9 });
    }

    #[test]
    fn threads_that_have_ended_leave_their_counts_and_nothing_else() {
        let thread_counters = ThreadCounters::new();
        for _ in 0..100 {
            std::thread::scope(|scope| scope.spawn(|| thread_counters.add(FastOp::GetCma, 3)).join())
                .expect("counting does not panic");
        }
        let left = thread_counters.threads.lock().expect("no panic").blocks.len();
        assert!(left <= 2, "{left} blocks for threads that have ended");
        let mut counters = Counters::default();
        thread_counters.add_to(&mut counters);
        assert_eq!(counters.get(Operation::Get, Mechanism::Cma), Tally { count: 100, bytes: 300 });
    }
}

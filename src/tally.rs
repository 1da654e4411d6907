//! Counting what never enters the engine, without an atomic read-modify-write per operation.
//!
//! Each thread has counters of its own for each node, which only it writes; a reader adds them all up.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Counters, Mechanism, Operation, Tally, Why};

/// The operations counted here: those that complete at the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direct {
    PutMapped,
    GetMapped,
    AtomicMapped,
    PutCma,
    GetCma,
}

const KINDS: [(Direct, Operation, Mechanism, Why); 5] = [
    (Direct::PutMapped, Operation::Put, Mechanism::Mapped, Why::HeapMapped),
    (Direct::GetMapped, Operation::Get, Mechanism::Mapped, Why::HeapMapped),
    (Direct::AtomicMapped, Operation::Atomic, Mechanism::Mapped, Why::HeapMapped),
    (Direct::PutCma, Operation::Put, Mechanism::Cma, Why::PrivateReachable),
    (Direct::GetCma, Operation::Get, Mechanism::Cma, Why::PrivateReachable),
];

/// One thread's counts.
#[derive(Debug, Default)]
struct Block {
    counts: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
}

impl Block {
    #[inline(always)]
    fn add(&self, what: Direct, bytes: u64) {
        bump(&self.counts[what as usize], 1);
        bump(&self.bytes[what as usize], bytes);
    }
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

thread_local! {
    /// The counters that this thread used last, and whose they are.
    static LAST: RefCell<Option<(u64, Arc<Block>)>> = const { RefCell::new(None) };
}

/// All threads' counts of one node.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// Tells nodes of one process apart.
    node: u64,
    blocks: Mutex<Vec<(std::thread::ThreadId, Arc<Block>)>>,
}

impl Tallies {
    pub(crate) fn new() -> Tallies {
        static NODES: AtomicU64 = AtomicU64::new(1);
        Tallies { node: NODES.fetch_add(1, Ordering::Relaxed), blocks: Mutex::new(Vec::new()) }
    }

    /// Counts one operation. Any thread.
    #[inline(always)]
    pub(crate) fn add(&self, what: Direct, bytes: u64) {
        LAST.with(|last| {
            if let Some((node, block)) = &*last.borrow()
                && *node == self.node
            {
                return block.add(what, bytes);
            }
            self.add_first(last, what, bytes);
        });
    }

    #[cold]
    fn add_first(&self, last: &RefCell<Option<(u64, Arc<Block>)>>, what: Direct, bytes: u64) {
        let thread = std::thread::current().id();
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match blocks.iter().find(|(id, _)| *id == thread) {
            Some((_, block)) => Arc::clone(block),
            None => {
                let block = Arc::new(Block::default());
                blocks.push((thread, Arc::clone(&block)));
                block
            }
        };
        block.add(what, bytes);
        last.replace(Some((self.node, block)));
    }

    /// Adds everything counted so far to `counters`.
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        for (_, block) in &*self.blocks.lock().unwrap_or_else(PoisonError::into_inner) {
            for (kind, operation, mechanism, why) in KINDS {
                let count = block.counts[kind as usize].load(Ordering::Relaxed);
                let bytes = block.bytes[kind as usize].load(Ordering::Relaxed);
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
        let (one, other) = (Tallies::new(), Tallies::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        one.add(Direct::PutMapped, 8);
                        other.add(Direct::GetCma, 3);
                    }
                });
            }
        });
        let mut counters = Counters::default();
        one.add_to(&mut counters);
        assert_eq!(counters.get(Operation::Put, Mechanism::Mapped), Tally { count: 4000, bytes: 32_000 });
        assert_eq!(counters.get(Operation::Get, Mechanism::Cma), Tally::default());
        assert_eq!(counters.why(Why::HeapMapped), 4000);
    }
}

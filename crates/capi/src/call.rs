//! Which threads are inside a function of this interface, so that a closed node is freed when none may be
//! using it.
//!
//! A thread that enters and leaves changes a counter that only it writes; to close is what costs. A node that
//! was closed waits in [`BURIED`] until each thread that was inside then has left.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use standpipe::Node;

/// A thread's counter: odd while it is inside.
type Visits = Arc<AtomicU32>;

/// All threads' counters. A thread that has ended holds its counter no more.
static VISITORS: Mutex<Vec<Visits>> = Mutex::new(Vec::new());

/// A node that was closed, with the threads that were inside then, and their counters' values.
type Closed = (Box<Node>, Vec<(Visits, u32)>);

/// Closed nodes that may still be used.
static BURIED: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

thread_local! {
    /// How many of this thread's calls are inside each other: a handler calls functions, too.
    static DEPTH: Cell<u32> = const { Cell::new(0) };

    static VISITS: Visits = {
        let visits = Visits::default();
        let mut visitors = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
        visitors.retain(|visits| Arc::strong_count(visits) > 1);
        visitors.push(Arc::clone(&visits));
        visits
    };
}

/// This thread is inside as long as it lives.
pub(crate) struct Inside {
    /// The thread is not ending.
    is_counted: bool,
}

impl Inside {
    pub(crate) fn enter() -> Inside {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        let is_counted = depth > 0 || VISITS.try_with(enters).is_ok();
        Inside { is_counted }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 && self.is_counted {
            let _ = VISITS.try_with(leaves);
        }
    }
}

/// Counts this thread in.
fn enters(visits: &Visits) {
    visits.store(visits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    // To bury a node is to look at the counter after its handle was taken away. This thread looks at the
    // handle after it has counted.
    fence(Ordering::SeqCst);
}

/// Counts this thread out, after all that it has done inside.
fn leaves(visits: &Visits) {
    visits.store(visits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// Frees a node that no later call finds any more, now or when the threads have left that are inside now.
pub(crate) fn bury(node: Box<Node>) {
    fence(Ordering::SeqCst);
    let inside = {
        let visitors = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
        // This thread uses the node further out, if a callback of its closes it.
        let own = VISITS.try_with(Arc::clone).ok().filter(|_| DEPTH.get() == 1);
        let others =
            visitors.iter().filter(|visits| own.as_ref().is_none_or(|own| !Arc::ptr_eq(own, visits)));
        let counted = others.map(|visits| (Arc::clone(visits), visits.load(Ordering::Acquire)));
        counted.filter(|(_, count)| count % 2 == 1).collect()
    };
    BURIED.lock().unwrap_or_else(PoisonError::into_inner).push((node, inside));
    clear();
}

/// Frees the closed nodes that no thread can be using any more.
pub(crate) fn clear() {
    let mut buried = BURIED.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut free, mut rest) = (Vec::new(), Vec::new());
    for (node, inside) in buried.drain(..) {
        let is_left = |(visits, count): &(Visits, u32)| visits.load(Ordering::Acquire) != *count;
        match inside.iter().all(is_left) {
            true => free.push(node),
            false => rest.push((node, inside)),
        }
    }
    *buried = rest;
    drop(buried);
    // With no lock held: dropping a node ends threads.
    drop(free);
}

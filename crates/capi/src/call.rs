//! Which threads are inside a function of this interface, so that a closed node is freed when none may be
//! using it.
//!
//! A thread that enters and leaves changes a counter that only it writes; to close is what costs. A node that
//! was closed waits in [`BURIED`] until each thread that was inside then has left.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence, fence};
use std::sync::{Mutex, PoisonError};

use standpipe::{Node, underneath};

/// A thread's counter, which later threads have after it.
#[derive(Default)]
struct Visits {
    /// Odd while the thread is inside.
    count: AtomicU32,
    is_taken: AtomicBool,
}

/// All counters that there ever were.
static VISITORS: Mutex<Vec<&'static Visits>> = Mutex::new(Vec::new());

/// Whether the kernel fences all threads where a node is buried, so that they need none themselves.
static ARE_FENCED: AtomicBool = AtomicBool::new(false);

/// A node that was closed, with the threads that were inside then, and their counters' values.
type Closed = (Box<Node>, Vec<(&'static Visits, u32)>);

/// Closed nodes that may still be used.
static BURIED: Mutex<Vec<Closed>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread's counter, from its first call on until it ends, and how many of its calls are inside each
    /// other: a handler calls functions, too.
    static THREAD: Cell<(Option<&'static Visits>, u32)> = const { Cell::new((None, 0)) };

    static TAKEN: Taken = Taken::new();
}

/// That a thread has a counter, until it ends.
struct Taken(&'static Visits);

impl Taken {
    fn new() -> Taken {
        ARE_FENCED.fetch_or(underneath::register_private(), Ordering::Relaxed);
        let mut visitors = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
        let free = visitors.iter().copied().find(|visits| !visits.is_taken.load(Ordering::Acquire));
        let visits = free.unwrap_or_else(|| {
            let visits = Box::leak(Box::default());
            visitors.push(visits);
            visits
        });
        visits.is_taken.store(true, Ordering::Relaxed);
        Taken(visits)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        THREAD.set((None, THREAD.get().1));
        // One that left a call by longjmp is inside still. The next one begins outside.
        let count = self.0.count.load(Ordering::Relaxed);
        self.0.count.store(count.wrapping_add(count % 2), Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

/// This thread is inside as long as it lives.
pub(crate) struct Inside(());

impl Inside {
    #[inline]
    pub(crate) fn enter() -> Inside {
        let (visits, depth) = THREAD.get();
        THREAD.set((visits, depth + 1));
        match visits {
            _ if depth > 0 => {}
            Some(visits) => enters(visits),
            None => enters_first(),
        }
        Inside(())
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        let (visits, depth) = THREAD.get();
        THREAD.set((visits, depth - 1));
        if let Some(visits) = visits.filter(|_| depth == 1) {
            // After all that it has done inside.
            visits.count.store(visits.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }
}

/// Counts this thread in.
#[inline]
fn enters(visits: &Visits) {
    visits.count.store(visits.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    // To bury a node is to look at the counter after its handle was taken away. This thread looks at the
    // handle after it has counted.
    match ARE_FENCED.load(Ordering::Relaxed) {
        true => compiler_fence(Ordering::SeqCst),
        false => fence(Ordering::SeqCst),
    }
}

/// As [`enters`], for a thread's first call. A thread that is ending is not counted.
#[cold]
fn enters_first() {
    if let Ok(visits) = TAKEN.try_with(|taken| taken.0) {
        THREAD.set((Some(visits), THREAD.get().1));
        enters(visits);
    }
}

/// Frees a node that no later call finds any more, now or when the threads have left that are inside now.
pub(crate) fn bury(node: Box<Node>) {
    fence(Ordering::SeqCst);
    if ARE_FENCED.load(Ordering::Relaxed) && !underneath::private_fence() {
        // A filter of system calls forbids it since. So nobody knows who is inside, and the node stays.
        Box::leak(node);
        return;
    }
    let inside = {
        let visitors = VISITORS.lock().unwrap_or_else(PoisonError::into_inner);
        // This thread uses the node further out, if a callback of its closes it.
        let (own, depth) = THREAD.get();
        let own = own.filter(|_| depth == 1);
        let others = visitors.iter().filter(|visits| own.is_none_or(|own| !std::ptr::eq(own, **visits)));
        let counted = others.map(|visits| (*visits, visits.count.load(Ordering::Acquire)));
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
        let is_left = |(visits, count): &(&Visits, u32)| visits.count.load(Ordering::Acquire) != *count;
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
